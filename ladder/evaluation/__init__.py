"""Runs stages on problems, checks their outputs, and enters the results in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.evaluation.comparison import (
        Comparison,
        Evaluation,
        Ruling,
        compare,
        default_problem,
        evaluate,
        rule_on,
        rule_on_misaligned,
        run_comparison,
        verdict_key,
    )
    from ladder.evaluation.isolation import ProcessEnded, call
    from ladder.evaluation.sanitizing import (
        check_stage,
        checked_stage,
        stage_remarks,
    )
    from ladder.evaluation.sparse import faults_beyond_32_bits
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
    "ProcessEnded": "isolation",
    "call": "isolation",
    "Evaluation": "comparison",
    "Row": "table",
    "Ruling": "comparison",
    "columns": "table",
    "default_problem": "comparison",
    "check_stage": "sanitizing",
    "checked_stage": "sanitizing",
    "compare": "comparison",
    "evaluate": "comparison",
    "faults_beyond_32_bits": "sparse",
    "fill_row": "table",
    "make_row": "table",
    "rule_on": "comparison",
    "rule_on_misaligned": "comparison",
    "run_comparison": "comparison",
    "stage_remarks": "sanitizing",
    "to_frame": "table",
    "to_json": "table",
    "verdict_key": "comparison",
}

__getattr__ = door(__name__, _NAMES)
