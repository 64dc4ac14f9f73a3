"""The host's part of a rung: kept and used again while nothing but bodies of device functions change.

nvcc compiles a source twice, for the host and for the GPU, and the host's compilers take half of the time.
Their object serves every source with the same :func:`~ladder.compile.host_text.host_text`, once it gets the
new device code. It finds that by the name of its module, which the new PTX must bear, and by the kernels and
variables that it registers, of which the new PTX must have the same.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ladder.common import cache
from ladder.compile import housekeeping
from ladder.compile.host_text import host_text

OBJECT = "kernel.o"
_FACTS = "facts.json"
_MODULE = re.compile(r"_GLOBAL__N__[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}")
#: What the host registers of a module: its kernels with their parameters, and its variables.
_REGISTERED = re.compile(
    r"^\.(?:(?:visible|weak) \.)?entry [^)]*\)|^(?:\.\w+ )*?\.(?:global|const) [^$\n]*?;", re.MULTILINE
)


@dataclass(frozen=True)
class _Facts:
    """What is known of an object: a digest of its bytes, the name that nvcc gave its module, what it
    registers, and the shared headers that were read.
    """

    seal: str
    module: str
    registered: list[str]
    read: list[str]


@dataclass(frozen=True)
class HostPart:
    """The place of the object of one host's text."""

    path: Path

    @classmethod
    def of(
        cls, key: Iterable[str], folder: Path, own_files: Sequence[Path], shared: Iterable[str]
    ) -> HostPart | None:
        """The part for a rung with these files of its own in ``folder``; None if it cannot be used again.

        ``key`` and ``shared`` are what else the object depends on, such as flags and shared headers.
        """
        parts = [*key, *shared]
        for path in sorted(own_files):
            text = host_text(path.read_text(encoding="utf-8", errors="surrogateescape"))
            if text is None:
                return None
            parts += [str(path.relative_to(folder)), text]
        return cls(housekeeping.builds() / f"host-{cache.digest(parts)}")

    def put(self, directory: Path, ptx: Path) -> list[Path] | None:
        """Copies the object into ``directory`` and fits the PTX to it; returns the shared headers that it was
        made from. None if there is no object, or the PTX has other kernels or variables.
        """
        try:
            facts = _Facts(**json.loads((self.path / _FACTS).read_text()))
            data = (self.path / OBJECT).read_bytes()
        except (OSError, ValueError, TypeError):
            return None
        if cache.digest([data]) != facts.seal:
            shutil.rmtree(self.path, ignore_errors=True)
            return None
        module, registered = _described(text := ptx.read_text())
        if registered != facts.registered:
            return None
        (directory / OBJECT).write_bytes(data)
        ptx.write_text(text.replace(module, facts.module) if module and facts.module else text)
        housekeeping.mark_used(self.path)
        return [Path(one) for one in facts.read]

    def is_there(self) -> bool:
        return (self.path / _FACTS).is_file()

    def keep(self, directory: Path, ptx: Path, read: Iterable[Path]) -> None:
        """Keeps the object in ``directory``, compiled with this PTX from these shared headers."""
        module, registered = _described(ptx.read_text())
        if module is None or self.is_there():
            return
        facts = _Facts(
            cache.digest([(directory / OBJECT).read_bytes()]), module, registered, [*map(str, read)]
        )
        with cache.new_directory(self.path) as kept:
            shutil.copyfile(directory / OBJECT, kept / OBJECT)
            (kept / _FACTS).write_text(json.dumps(asdict(facts)))


def _described(ptx: str) -> tuple[str | None, list[str]]:
    """The name of the module in the PTX, "" if nothing is named after it and None if there are several; and
    what the host registers of it.
    """
    modules = {*_MODULE.findall(ptx)}
    registered = sorted(_MODULE.sub("", found) for found in _REGISTERED.findall(ptx))
    return (None if len(modules) > 1 else "".join(modules)), registered
