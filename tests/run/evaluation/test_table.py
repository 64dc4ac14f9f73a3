import json
import math
import re

import pandas as pd

from ladder.operations import Deviation, Problem, get_operation, make_inputs, reference
from ladder.run.emulator import COUNTERS
from ladder.run.evaluation import COLUMNS, fill_row, make_row, to_frame, to_json

SCHEMA = """
stage, backend, arch, B, H, Hkv, N, M, d, dtype, causal, window, softcap, sinks, lengths,
error, error_bound, passed, lse_error,
shared_load_instructions, shared_store_instructions, ldmatrix_instructions, wavefronts_ld, wavefronts_st,
conflicts_ld, conflicts_st, conflicts_atom, conflicts, mma_instructions, global_sectors_ld, global_sectors_st,
wgmma_instructions, wavefronts_gmma, conflicts_gmma, tma_load_instructions, tma_store_instructions,
tma_sectors_ld, tma_sectors_st, time_ms, tflops
"""

PROBLEM = Problem(1, 2, 4, 4, 32, dtype="f32", kv_heads=1)


def row(error=1e-9, lse_error=1e-9, counters=None, time_ms=None):
    q, k, v = make_inputs(PROBLEM)
    expected = reference(q, k, v, is_causal=False, scale=1.0)
    result = make_row("mine", "emulator", "sm_80", PROBLEM)
    counted = dict.fromkeys(COUNTERS, 7) if counters is None else counters
    errors = {
        name: Deviation(error, error, expected.bounds[name], 0)
        for name, error in (("o", error), ("lse", lse_error))
    }
    fill_row(result, PROBLEM, expected, errors, counted, time_ms)
    return result


def test_schema():
    assert list(COLUMNS) == re.split(r",\s*", SCHEMA.strip())
    assert list(to_frame([row()]).columns) == list(COLUMNS)
    assert list(json.loads(to_json([row()]))[0]) == list(COLUMNS)


def test_a_row_passes_only_within_both_bounds():
    assert row()["passed"] is True
    assert row(error=0.1)["passed"] is False
    assert row(lse_error=0.1)["passed"] is False
    assert row(error=math.nan)["passed"] is False


def test_what_is_not_known_is_empty_and_never_zero():
    counters = {**dict.fromkeys(COUNTERS, 0), "conflicts_st": None}
    frame = to_frame([row(counters=counters), row(counters={}, time_ms=2.0)])
    assert frame["conflicts_st"].isna().all()
    assert frame["conflicts_ld"][0] == 0 and pd.isna(frame["conflicts_ld"][1])
    assert pd.isna(frame["time_ms"][0]) and frame["tflops"][1] == 4 * 2 * 4 * 4 * 32 / 2e-3 / 1e12
    rows = json.loads(to_json([row(counters=counters), row(error=math.nan)]))
    assert rows[0]["conflicts_st"] is None and rows[0]["conflicts"] == 0
    assert rows[1]["error"] is None


def test_operations_may_use_a_column_in_another_way():
    """A jagged batch has lengths where attention has one number."""
    hstu = get_operation("hstu")
    lengths = make_row("mine", "emulator", "sm_80", hstu.default_problem)
    assert list(to_frame([lengths], hstu)["N"]) == [hstu.row(hstu.default_problem)["N"]]


def test_types_do_not_depend_on_the_rows():
    full, empty = to_frame([row()]), to_frame([])
    assert list(full.dtypes) == list(empty.dtypes)
    assert full["conflicts"].dtype == "Int64" and full["Hkv"][0] == 1
