"""Variants of rungs: copies whose kernel.cu has some texts replaced, to measure what these are worth."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ladder.errors import LadderError
from ladder.stages import new_stage


def make_variant(name: str, stage: str, replacements: Mapping[str, str], folder: Path) -> str:
    """Makes a stage in ``folder`` that is ``stage`` with texts of its kernel.cu replaced. Returns its name.

    Raises :class:`LadderError` unless kernel.cu contains each of the texts exactly once.
    """
    made = new_stage(name, stage, folder)
    text = made.kernel.read_text()
    for find, replacement in replacements.items():
        if text.count(find) != 1:
            raise LadderError(f"{stage}/kernel.cu has {text.count(find)} places with {find!r}, not one")
        text = text.replace(find, replacement)
    made.kernel.write_text(text)
    return made.name


@contextmanager
def own_stages() -> Iterator[Path]:
    """A folder whose stages are discovered within the block."""
    before = os.environ.get("LADDER_STAGES")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LADDER_STAGES"] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["LADDER_STAGES"]
            else:
                os.environ["LADDER_STAGES"] = before
