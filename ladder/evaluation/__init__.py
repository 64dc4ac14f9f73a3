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
    from ladder.evaluation.references import reference_of
    from ladder.evaluation.sanitizing import check_stage, checked_stage, is_faulty, stage_remarks
    from ladder.evaluation.shares import rows_of_first_block
    from ladder.evaluation.sparse import faults_beyond_32_bits
    from ladder.evaluation.table import COLUMNS, Row, columns, fill_row, make_row, to_frame, to_json

__getattr__ = door(__name__)
