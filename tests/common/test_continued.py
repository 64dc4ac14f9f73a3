"""``make test`` runs every rung: on the whole matrix, or one of its kernels."""

from __future__ import annotations

from continued import is_left_out, whole_rungs

from ladder.stages import discover


def test_every_rung_is_run_either_whole_or_with_one_kernel() -> None:
    for stage in discover():
        tests = {
            test
            for test in ("test_matrix", "test_one_kernel")
            if not is_left_out(stage, "test_matrix.py", test)
        }
        assert tests == {"test_matrix" if stage.name in whole_rungs() else "test_one_kernel"}, stage.name


def test_the_last_rungs_are_run_whole() -> None:
    hstu = {"h7_tile_scheduler", "h7d_bias"}
    last = {"v12c_end_aligned", "b4g_wide_adds", "b5g_sums_in_l2", "d5_variants", *hstu}
    assert last <= whole_rungs()
