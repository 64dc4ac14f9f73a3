"""``ladder port``: carries a change of a rung's file into the rungs that stand on it, by three-way merges."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.errors import LadderError
from ladder.stages.discovery import discover
from ladder.stages.stage import Stage

#: Of a conflict of ``git merge-file``: the rung's lines, the lines before the change, and those after it.
_CONFLICT = re.compile(
    r"^<{7}[^\n]*\n(.*?)^\|{7}[^\n]*\n(.*?)^={7}\n(.*?)^>{7}[^\n]*\n", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Conflict:
    """A part of the change that did not apply: the rung's lines there, the lines before and after."""

    ours: str
    before: str
    after: str


@dataclass(frozen=True)
class Merge:
    """The change in one rung. ``text`` is the merged file; without meaning if there are ``conflicts``."""

    stage: Stage
    path: Path
    now: str
    text: str
    conflicts: tuple[Conflict, ...]

    @property
    def applies(self) -> bool:
        """Whether the whole change applies, and changes the file."""
        return not self.conflicts and self.text != self.now


def port(path: Path, since: str = "HEAD") -> list[Merge]:
    """Merges what has changed in a rung's file since the commit ``since`` into the same file of each rung
    above it, lowest first. Nothing is written.

    Each merge starts from the nearest rung below that the whole change applies to: it has the most lines in
    common. The names of rungs do not count as differences. Raises :class:`LadderError` if ``path`` is no file
    of a rung or has not changed, or if git cannot read it.
    """
    path = path.resolve()
    changed = _rung_of(path)
    before, after = _at(path, since), path.read_text(encoding="utf-8")
    if before == after:
        raise LadderError(
            f"{path.name} of {changed.name} has not changed since {since}",
            "Change it first, or name an older commit: --since COMMIT",
        )
    versions = {changed.name: (changed.name, before, after)}
    merges = []
    for stage in _above(changed, path.name):
        name, old, new = versions[stage.before or ""]
        file = stage.path / path.name
        if not file.is_file():
            versions[stage.name] = name, old, new
            continue
        now = file.read_text(encoding="utf-8")
        text, conflicts = merged(now, _renamed(old, name, stage.name), _renamed(new, name, stage.name))
        merges.append(Merge(stage, file, now, text, conflicts))
        versions[stage.name] = (name, old, new) if conflicts else (stage.name, now, text)
    return merges


def merged(now: str, before: str, after: str) -> tuple[str, tuple[Conflict, ...]]:
    """``now`` with the change from ``before`` to ``after``, and the parts of it that do not apply. Raises
    :class:`LadderError` if git fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("now", "before", "after")]
        for file, text in zip(paths, (now, before, after), strict=True):
            file.write_text(text, encoding="utf-8")
        done = _git(["merge-file", "--diff3", "-p", *map(str, paths)], Path(folder))
    if not 0 <= done.returncode < 128:
        raise LadderError(f"git merge-file: {done.stderr.strip()}")
    return done.stdout, tuple(Conflict(*match.groups()) for match in _CONFLICT.finditer(done.stdout))


def _rung_of(path: Path) -> Stage:
    for stage in discover():
        if path.is_file() and path.parent == stage.path.resolve():
            return stage
    raise LadderError(f"{path} is no file of a rung", "For example, in stages/: ladder port RUNG/kernel.cu")


def _above(changed: Stage, file: str) -> Iterator[Stage]:
    """The rungs that stand on ``changed``, each after the one that it stands on."""
    names = {changed.name}
    stages = [stage for stage in discover() if stage.name != changed.name]
    while found := [stage for stage in stages if stage.before in names and stage.name not in names]:
        names.update(stage.name for stage in found)
        yield from found


def _at(path: Path, commit: str) -> str:
    done = _git(["show", f"{commit}:./{path.name}"], path.parent)
    if done.returncode != 0:
        raise LadderError(f"git cannot show {path} at {commit}: {done.stderr.strip()}")
    return done.stdout


def _git(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    except OSError as error:
        raise LadderError(f"git cannot be run: {error.strerror}", "ladder port needs git.") from error


def _renamed(text: str, name: str, today: str) -> str:
    return re.sub(rf"\b{re.escape(name)}\b", today, text)
