"""Runs stages on problems, checks their outputs, and enters the results in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.evaluation.alignment import evaluate_misaligned
    from ladder.evaluation.comparison import (
        Comparison,
        Evaluation,
        compare,
        default_problem,
        evaluate,
        evaluate_all,
        run_comparison,
        verdict_key,
    )
    from ladder.evaluation.sanitizing import (
        check_stage,
        checked_stage,
        stage_remarks,
    )
    from ladder.evaluation.sparse import faults_of_last_blocks
    from ladder.evaluation.table import (
        COLUMNS,
        Row,
        columns,
        fill_row,
        make_row,
        to_frame,
        to_json,
    )

_NAMES = {
    "COLUMNS": "table",
    "Comparison": "comparison",
    "Evaluation": "comparison",
    "Row": "table",
    "columns": "table",
    "default_problem": "comparison",
    "check_stage": "sanitizing",
    "checked_stage": "sanitizing",
    "compare": "comparison",
    "evaluate": "comparison",
    "evaluate_all": "comparison",
    "evaluate_misaligned": "alignment",
    "faults_of_last_blocks": "sparse",
    "fill_row": "table",
    "make_row": "table",
    "run_comparison": "comparison",
    "stage_remarks": "sanitizing",
    "to_frame": "table",
    "to_json": "table",
    "verdict_key": "comparison",
}

__getattr__ = door(__name__, _NAMES)
