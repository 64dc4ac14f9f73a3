"""Tables that list the rungs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ladder.stages import Stage, discover, examples_root, root
from tools.measure.steps import changed_lines
from tools.measure.tables_of.data import ROOT, markdown, measured_rows


def rungs_of_ladder(folder: Path) -> str:
    """For the README of a ladder in a folder of its own: its rungs with idea, lines, page and lesson."""
    own = [stage for stage in discover() if stage.path.parent == folder]
    rows = [
        [_rung_link(stage, folder), stage.idea, _lines(stage), _lesson_links(stage, folder)] for stage in own
    ]
    table = markdown(["rung", "the one idea", "lines", "lesson"], rows)
    return table.replace("| --- | ---: | ---: | ---: |", "| --- | --- | ---: | --- |")


def rungs_with_speeds() -> str:
    """The main ladder's rungs, with the speed of each on the H200, in the run that measured it."""
    rows = []
    for stage in discover().computing("attention"):
        if stage.path.parent == root():
            speeds = [
                rung_speed(stage.name, 64),
                *(rung_speed(stage.name, 128, causal) for causal in (False, True)),
            ]
            links = _rung_link(stage, ROOT), _lesson_links(stage, ROOT)
            rows.append([links[0], stage.idea, _lines(stage), *speeds, links[1]])
    table = markdown(
        ["rung", "the one idea", "lines", "d = 64", "d = 128", "d = 128, causal", "lesson"], rows
    )
    return table.replace(
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |", "| --- | --- | ---: | ---: | ---: | ---: | --- |"
    )


def _rung_link(stage: Stage, folder: Path) -> str:
    """A link from a page in ``folder``."""
    page = "README.md" if (stage.path / "README.md").is_file() else "kernel.cu"
    return f"[`{stage.name}`]({relative(stage.path / page, folder)})"


def takes(*operations: str) -> str:
    """What each rung and example of these operations takes, as its stage.toml says."""
    stages = [stage for operation in operations for stage in discover().computing(operation)]
    rows = [_taken(stage) for stage in stages if stage.is_own or stage.path.parent == examples_root()]
    head = ["rung", "GPU", "dtypes", "head dims", "also takes", "needs", "same bits"]
    return markdown(head, rows).replace("---:", "---")


def _taken(stage: Stage) -> list[str]:
    minimum = "sm_{}{} and later".format(*stage.min_compute_capability)
    lists = (stage.dtypes, stage.head_dims, stage.takes, stage.needs)
    return [
        f"[`{stage.name}`](../{stage.path.relative_to(ROOT)}/kernel.cu)",
        f"{stage.only_arch} alone" if stage.only_arch else minimum,
        *(", ".join(map(str, values)) for values in lists),
        "yes" if stage.deterministic else "no",
    ]


def _lines(stage: Stage) -> str:
    """The lines of code that the rung adds to the one before it, and removes."""
    if stage.before is None:
        return ""
    added, removed = changed_lines(discover()[stage.before], stage)
    return f"+{added} -{removed}"


def _lesson_links(stage: Stage, folder: Path) -> str:
    """Links from a page in ``folder`` to the stage's lessons in notebooks/README.md."""
    listed = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8").splitlines()
    lessons = [re.search(r"\[(\w+)\]\((\S+)\)", line) for line in listed if f"`{stage.number}`" in line]
    notebooks = relative(ROOT / "notebooks", folder)
    return ", ".join(f"[{found[1]}]({notebooks}/{found[2]})" for found in lessons if found)


def relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def rung_speed(stage: str, head_dim: int, causal: bool = False) -> str:
    """TFLOP/s at B4 H16 N4096 in bf16, and relative to cuDNN's attention in the same run."""
    measured = measured_rows("speed.csv")
    at = (measured.N == 4096) & (measured.d == head_dim) & (measured.causal.astype(str) == str(causal))
    same = measured[at & (measured.contender == stage) & (measured.dtype == "bf16")]
    return "" if same.empty else f"{same.tflops.median():.3g} ({same.of_cudnn.median():.2f})"
