"""The doors of the package's folders: an ``__init__`` that names what others may use of its modules.

A name's module is loaded when the name is first used, so a door costs nothing, though some of the modules
behind it load torch or pandas, which take seconds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def door(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package, for the names that it offers and the module of each.

    No module of the package may have the name of something it offers: once imported it would take its place.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{names[name]}"), name)

    return get
