"""Discovers the rungs: the folders in stages/, in the directories named by LADDER_STAGES, and in my_rungs/.

A folder without a rung's files whose subfolders have them is a ladder: its subfolders are its rungs. A broken
folder is set aside with its error, so that it does not affect the others.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ladder.common import files
from ladder.errors import StageError
from ladder.operations import OPERATIONS
from ladder.stages.places import (
    OWN_EXERCISES,
    OWN_STAGES,
    examples_root,
    is_users,
    of_somebody_else,
    own_folder,
    require_own,
    root,
)
from ladder.stages.reading import STAGE_FILES, read_stage
from ladder.stages.renamed import name_today
from ladder.stages.stage import OptionValue, Stage, parse_options


@dataclass(frozen=True)
class Ladder:
    """All rungs by operation, lowest first, and the broken folders. ``aside`` holds exercises being worked
    on, which can be named but are not part of a comparison of all rungs.
    """

    stages: tuple[Stage, ...]
    broken: Mapping[str, StageError]
    aside: Mapping[str, Stage | StageError] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    @property
    def names(self) -> frozenset[str]:
        """All names: of rungs, broken folders and exercises."""
        return frozenset((*(stage.name for stage in self.stages), *self.broken, *self.aside))

    def computing(self, operation: str) -> tuple[Stage, ...]:
        """The rungs of one operation, lowest first, except those by the manual, which are chosen by name."""
        return tuple(
            stage for stage in self.stages if stage.computes == operation and not stage.is_by_the_manual
        )

    def today(self, name: str) -> str:
        """The name of the rung that ``name`` names: in full, by its number (``v1``, unless a rung is
        called that), or by an earlier name, with a warning; else ``name`` itself.
        """
        names = self.names
        by_number = [] if name in names else [one.name for one in self.stages if _has_number(one, name)]
        return by_number[0] if by_number else name_today(name, names)

    def __getitem__(self, name: str) -> Stage:
        """The rung that ``name`` names: see :meth:`today`. Raises its :class:`StageError` if it is broken,
        and one if there is none.
        """
        name = self.today(name)
        for stage in self.stages:
            if stage.name == name:
                return stage
        if name in self.broken:
            raise self.broken[name]
        found = self.aside.get(name)
        if isinstance(found, Stage):
            return found
        if found is not None:
            raise found
        names = [*(stage.name for stage in self.stages), *self.aside]
        near = difflib.get_close_matches(name, names, n=1) or [n for n in names if n.startswith(name)]
        raise StageError(
            f"there is no stage {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
            f"Stages: {', '.join(names)}",
        )


def _has_number(stage: Stage, number: str) -> bool:
    """Whether it is the project's rung of this number: no two have the same one."""
    return stage.path.is_relative_to(root()) and stage.number == number


def stage_and_options(spec: str) -> tuple[Stage, dict[str, OptionValue]]:
    """Parses ``my_rung`` or ``my_rung:ROWS=32,KEYS=64`` into the stage, and every option with its value.

    Raises :class:`LadderError` for an unknown stage or option.
    """
    name, _, options = spec.partition(":")
    stage = discover()[name]
    return stage, stage.chosen_options(parse_options(options))


def discover() -> Ladder:
    """Reads all stage folders: the project's own, its examples, those of LADDER_STAGES (separated like PATH)
    and those in my_rungs/. The exercises in my_exercises/ go to ``aside``.

    >>> ladder.discover()["v3"].before == ladder.discover()["v2"].name
    True
    """
    stages: dict[str, Stage] = {}
    broken: dict[str, StageError] = {}
    own = own_folder(OWN_STAGES)
    for folder in _folders():
        try:
            if folder.parent == own:
                require_own(folder)
            if folder.name in stages:
                raise StageError(
                    f"{folder} has the name of the stage in {stages[folder.name].path}", "Rename it."
                )
            stages[folder.name] = read_stage(folder)
        except StageError as error:
            broken[folder.name if folder.name not in stages else str(folder)] = error
    if own is not None and not is_users(own):
        broken[str(own)] = of_somebody_else(own)
    stages = {name: _above_todays(stage, {*stages, *broken}) for name, stage in stages.items()}
    misplaced = {}
    for stage in stages.values():
        try:
            _check_before(stage, stages, broken)
        except StageError as error:
            misplaced[stage.name] = error
    broken.update(misplaced)
    sound = {name: stage for name, stage in stages.items() if name not in broken}
    return Ladder(_lowest_first(sound), broken, _exercises(sound))


def _above_todays(stage: Stage, known: Container[str]) -> Stage:
    """The stage with today's name of the rung before it."""
    return replace(stage, before=name_today(stage.before, known)) if stage.before else stage


def _exercises(stages: Mapping[str, Stage]) -> dict[str, Stage | StageError]:
    found: dict[str, Stage | StageError] = {}
    directory = own_folder(OWN_EXERCISES)
    for folder in _stage_folders(directory) if directory else ():
        if folder.name not in stages:
            try:
                require_own(folder.parent)
                found[folder.name] = read_stage(folder)
            except StageError as error:
                found[folder.name] = error
    return found


def ladder_pages() -> list[Path]:
    """The README of each of the project's ladders that has a folder of its own."""
    return sorted(page for page in root().glob("*/README.md") if _is_ladder(page.parent))


def _folders() -> Iterator[Path]:
    seen = set()
    for folder in _all_folders():
        if folder not in seen:
            seen.add(folder)
            yield folder


def _all_folders() -> Iterator[Path]:
    yield from _stage_folders(root())
    if (examples := examples_root()) is not None:
        yield from _stage_folders(examples)
    for entry in os.environ.get("LADDER_STAGES", "").split(os.pathsep):
        if not entry:
            continue
        directory = files.expanded(entry)
        if not directory.is_dir():
            raise StageError(
                f"LADDER_STAGES names {entry}, which is no directory", "It is a folder of stage folders."
            )
        if _has_stage_files(directory):
            yield directory
        else:
            yield from _stage_folders(directory)
    own = own_folder(OWN_STAGES)
    if own is not None and is_users(own):
        yield from _stage_folders(own)


def _stage_folders(directory: Path) -> Iterator[Path]:
    """The folders in ``directory`` that should be rungs, and those of the ladders in it."""
    try:
        folders = [folder for folder in sorted(directory.iterdir()) if _may_be_stage(folder)]
    except OSError as error:
        raise StageError(f"{directory} cannot be read: {error.strerror}") from error
    for folder in folders:
        if _is_ladder(folder):
            yield from filter(_may_be_stage, sorted(folder.iterdir()))
        else:
            yield folder


def _may_be_stage(folder: Path) -> bool:
    return (
        folder.is_dir() and folder.name != "include" and folder.name[0] not in "._" and _holds_files(folder)
    )


def _is_ladder(folder: Path) -> bool:
    """Whether the folder has none of a rung's files, and a subfolder that has."""
    try:
        return not _has_stage_files(folder) and any(map(_has_stage_files, folder.iterdir()))
    except OSError:
        return False  # reading it as a stage says why


def _has_stage_files(folder: Path) -> bool:
    return any((folder / name).exists() for name in STAGE_FILES)


def _holds_files(folder: Path) -> bool:
    try:
        return any(entry.name[0] not in "._" for entry in folder.iterdir())
    except OSError:
        return True  # reading the stage says why not


def _check_before(stage: Stage, stages: Mapping[str, Stage], broken: Mapping[str, StageError]) -> None:
    """Raises :class:`StageError` for a ``before`` that names no stage or leads back to the stage itself."""
    seen = {stage.name}
    below = stage.before
    while below is not None and below in stages:
        if below in seen:
            raise StageError(f"{stage.path / 'stage.toml'}: before = {stage.before!r} goes in a circle")
        seen.add(below)
        below = stages[below].before
    if stage.before is not None and stage.before not in stages and stage.before not in broken:
        raise StageError(f"{stage.path / 'stage.toml'}: before = {stage.before!r} is no stage")


def _lowest_first(stages: Mapping[str, Stage]) -> tuple[Stage, ...]:
    """Each rung after the one before it. Where the ladder forks, the shorter branch comes first, so that the
    ladder goes on with the longer one. Variants do not come before a branch of others for being shorter.
    """
    chains = {name: _chain(stage, stages) for name, stage in stages.items()}
    heights: dict[str, int] = {}  # of a stage: how many rungs of its operation stand on it, at most
    for chain in chains.values():
        for above, stage in enumerate(reversed(chain)):
            heights[stage.name] = max(heights.get(stage.name, 0), above)

    def height(stage: Stage) -> int:
        if not stage.is_variant:
            return heights[stage.name]
        others = [one for one in stages.values() if _continues_as(one, stage) and not one.is_variant]
        return max(heights[one.name] for one in (stage, *others))

    def place(stage: Stage) -> tuple[object, ...]:
        chain = chains[stage.name]
        forks = [(height(below), below.name) for below in chain]
        return OPERATIONS.index(stage.computes), _depth(chain[0], stages), forks

    return tuple(sorted(stages.values(), key=place))


def _continues_as(one: Stage, other: Stage) -> bool:
    """Whether both stand on the same rung of their operation."""
    return (one.before, one.computes) == (other.before, other.computes)


def _chain(stage: Stage, stages: Mapping[str, Stage]) -> list[Stage]:
    """The rungs of the stage's operation from the first one to the stage."""
    before = stages.get(stage.before or "")
    if before is None or before.computes != stage.computes:
        return [stage]
    return [*_chain(before, stages), stage]


def _depth(stage: Stage, stages: Mapping[str, Stage]) -> int:
    """The number of valid rungs below the stage."""
    below = stages.get(stage.before or "")
    return 0 if below is None else 1 + _depth(below, stages)
