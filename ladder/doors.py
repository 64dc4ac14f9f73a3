"""The doors of the subpackages: an ``__init__`` that names the parts of its modules that others may use.

A name's module is loaded when the name is first used. So importing a package is fast, even if some of its
modules import torch or pandas, which takes seconds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def door(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes the ``__getattr__`` of a package from the names that it exports and their modules.

    No module of the package may have the name of an export: once imported, it would replace the export.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{names[name]}"), name)

    return get
