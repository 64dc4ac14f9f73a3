"""The doors of the packages: an ``__init__`` that names the parts of its modules that others may use.

The names stand once, in the imports under ``if TYPE_CHECKING``, which type checkers read and so does
:func:`door`. A name's module is loaded when the name is first used. So importing a package is fast, even if
some of its modules import torch or pandas, which takes seconds.
"""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def door(package: str) -> Callable[[str], Any]:
    """Makes the ``__getattr__`` of a package from the imports in its source.

    No module of the package may have the name of an export: once imported, it would replace the export.
    """

    @functools.cache
    def modules() -> Mapping[str, str]:
        """The modules of the exported names."""
        source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
        imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
        return {name.name: str(node.module) for node in imports for name in node.names}

    def get(name: str) -> Any:
        module = modules().get(name, "")
        if not module.startswith("ladder."):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        if package == "ladder":
            setattr(sys.modules[package], name, value)  # what users call often is found without asking here
        return value

    return get
