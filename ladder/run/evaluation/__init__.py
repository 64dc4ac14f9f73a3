"""Runs stages on problems, checks their outputs, and enters the results in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.run.evaluation.alignment import evaluate_misaligned
    from ladder.run.evaluation.comparison import (
        Comparison,
        Evaluation,
        compare,
        default_problem,
        evaluate,
        evaluate_all,
        run_comparison,
        usual_problems,
        verdict_key,
    )
    from ladder.run.evaluation.references import reference_of
    from ladder.run.evaluation.reuse import MULTIPROCESSORS, busy_problem, largest_constant
    from ladder.run.evaluation.sanitizing import check_stage, checked_stage, is_faulty, stage_remarks
    from ladder.run.evaluation.shares import rows_of_first_block
    from ladder.run.evaluation.sparse import faults_beyond_32_bits
    from ladder.run.evaluation.table import COLUMNS, Row, columns, fill_row, make_row, to_frame, to_json

__getattr__ = door(__name__)
