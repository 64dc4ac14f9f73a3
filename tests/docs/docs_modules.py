"""The scripts of docs/ as modules."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@functools.cache
def docs_module(name: str) -> ModuleType:
    """The module ``docs/<name>.py``, whose name may be one of Python's: ``site``."""
    if str(DOCS) not in sys.path:
        sys.path.insert(0, str(DOCS))  # the scripts import each other
    if name not in sys.stdlib_module_names:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
