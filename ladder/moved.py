"""Packages under the names that users know: ``ladder.distributed`` is :mod:`ladder.call.distributed`.

A module is one object under both names. The documented names stay. Names of earlier versions warn once, and
go in the version after next.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import CodeType, ModuleType
from typing import Any

#: Names in the documentation, and what they stand for.
DOCUMENTED = {
    "ladder.banks": "ladder.counts.banks",
    "ladder.distributed": "ladder.call.distributed",
    "ladder.emulator": "ladder.run.emulator",
    "ladder.lessons": "ladder.course.lessons",
    "ladder.torch": "ladder.call.torch",
}
#: Names of earlier versions.
EARLIER = {
    "ladder.backends": "ladder.run.backends",
    "ladder.build": "ladder.compile",
    "ladder.classroom": "ladder.course.classroom",
    "ladder.evaluation": "ladder.run.evaluation",
    "ladder.exercises": "ladder.course.exercises",
    "ladder.foreign": "ladder.run.foreign",
    "ladder.functional": "ladder.call",
    "ladder.lines": "ladder.counts.lines",
    "ladder.nsight": "ladder.counts.nsight",
    "ladder.plots": "ladder.show.plots",
    "ladder.profiling": "ladder.counts.profiling",
    "ladder.render": "ladder.show.render",
    "ladder.serving": "ladder.course.serving",
}


class _Loader(InspectLoader):
    """Loads the module of ``spec`` under another name; ``python -m`` asks for its code."""

    def __init__(self, spec: ModuleSpec) -> None:
        self.spec = spec
        self.loader: Any = spec.loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(self.spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has just put the alias's there

    def is_package(self, fullname: str) -> bool:
        return self.spec.submodule_search_locations is not None

    def get_code(self, fullname: str) -> CodeType | None:
        code: CodeType | None = self.loader.get_code(self.spec.name)
        return code

    def get_source(self, fullname: str) -> str | None:
        source: str | None = self.loader.get_source(self.spec.name)
        return source


class _Finder(MetaPathFinder):
    """Finds modules under their other names, before the finder of files would load them once more."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("ladder."):
            return None
        package = ".".join(fullname.split(".")[:2])
        new = DOCUMENTED.get(package) or EARLIER.get(package)
        if new is None:
            return None
        name = new + fullname[len(package) :]
        if fullname in EARLIER:
            warnings.warn(f"{fullname} is now {name}", FutureWarning, stacklevel=2)
        spec = find_spec(name)
        return spec and spec_from_loader(fullname, _Loader(spec), origin=spec.origin)


def install() -> None:
    """Makes the other names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
