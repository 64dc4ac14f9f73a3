"""Rungs whose kernels a lesson changes, at paths that depend on the text alone, so that builds are reused."""

from __future__ import annotations

from pathlib import Path

from ladder.common import cache
from ladder.stages import Stage, copy_sources


def changed_copy(stage: Stage, kernel: str, suffix: str) -> Path:
    """The folder of a copy of ``stage``, whose name gets the suffix, with ``kernel`` as its kernel.cu."""
    final = cache.root() / "walks" / cache.digest([kernel]) / f"{stage.name}_{suffix}"

    def fill(directory: Path) -> None:
        copy_sources(stage.path, directory)
        (directory / "kernel.cu").write_text(kernel, encoding="utf-8")

    return cache.made_once(final, fill)
