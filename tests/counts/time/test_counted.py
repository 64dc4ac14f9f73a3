"""A large problem's work is that of its parts."""

import pytest
from rungs import named

from ladder.compile import EmulatorTarget, build
from ladder.counts.time import LaunchWork, count_stage, load_gpu, scaling
from ladder.counts.time.least import kept_pairs, least_bytes, needed_operations
from ladder.errors import InvalidProblem
from ladder.operations import BackwardProblem, Problem, operation_of
from ladder.run.backends import EmulatorBackend, Treatment
from ladder.stages import discover


def counted(stage: str, problem: Problem) -> LaunchWork:
    (work,) = count_stage(discover()[stage], problem, load_gpu("h200"), fresh=True).launches
    return work


@pytest.mark.parametrize(("stage", "queries"), [(named("v3"), 128), (named("v12c"), 192)])
def test_parts_add_up_to_the_whole(stage: str, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two times whole tiles and what is left over, in each of four heads."""
    problem = Problem(2, 2, 2 * queries + 64, 96, 64, dtype="f16", inputs="equal")
    whole = counted(stage, problem)
    monkeypatch.setattr(scaling, "_WHOLE", 0)
    monkeypatch.setattr(scaling, "QUERIES", queries)
    assert [(part.q_len, times) for part, times in scaling.parts_of(problem)] == [(queries, 8), (64, 4)]
    parts = counted(stage, problem)
    exact = ("wgmma f32 f16", "mma f32 f16", "exponential", "minimum", "l2_write")
    assert {kind: parts.amounts.get(kind) for kind in exact} == {
        kind: whole.amounts.get(kind) for kind in exact
    }
    assert parts.grid == whole.grid
    product = next(kind for kind in exact if kind in parts.items)
    assert parts.items[product][0] == (20 if stage == named("v3") else 8)


def test_queries_that_no_tile_divides_count_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_WHOLE", 0)
    monkeypatch.setattr(scaling, "QUERIES", 96)  # one and a half of v3's tiles
    problem = Problem(1, 1, 288, 96, 64, dtype="f16", inputs="equal")
    work = counted(named("v3"), problem)
    assert work.amounts["mma f32 f16"] == 3 * 2 * 2 * 2 * 64 * 96 * 64
    monkeypatch.undo()
    counted(named("v3"), problem)  # what is kept is the whole


def test_launches_without_their_work() -> None:
    stage, problem = discover()["v3"], Problem(2, 2, 130, 96, 64, dtype="f16")
    extension = build(stage, EmulatorTarget("sm_90"), stage.chosen_options({}), only=problem)
    with EmulatorBackend().runner(extension, EmulatorTarget("sm_90")) as runner:
        inputs = operation_of(problem).make_inputs(problem)
        (launch,) = runner.run(problem, inputs, treatment=Treatment(skip_kernels=True)).launches
    assert (launch.grid, launch.totals()["shared_load_instructions"]) == ((2, 3, 2), 0)


def test_which_problems_have_parts() -> None:
    small, large = Problem(1, 2, 256, 256, 64), Problem(4, 16, 4096, 4096, 64)
    assert scaling.parts_of(small) == ((small, 1),)
    heads = Problem(16, 16, 1024, 1024, 64)
    assert scaling.parts_of(heads) == ((Problem(1, 1, 1024, 1024, 64), 256),)
    parts = scaling.parts_of(large)
    assert [(part.q_len, part.kv_len, times) for part, times in parts] == [(768, 4096, 320), (256, 4096, 64)]
    ((part, times),) = scaling.parts_of(Problem(1, 2, 16384, 16384, 128, is_causal=True))
    assert (part.q_len, part.is_causal, times) == (768, False, 2 * 16385 / 2 / 768)
    for problem in (BackwardProblem(4, 16, 4096, 4096, 64), Problem(4, 16, 4096, 4096, 64, softcap=30.0)):
        with pytest.raises(InvalidProblem, match="is too large to be emulated"):
            scaling.parts_of(problem)


def test_pairs_under_a_causal_mask() -> None:
    for queries, keys in ((3, 3), (5, 2), (2, 5)):
        problem = Problem(1, 1, queries, keys, 64, is_causal=True)
        pairs = sum(min(query + 1, keys) for query in range(queries))
        assert kept_pairs(problem) == pairs
        assert needed_operations(problem) <= 4 * 64 * pairs


def test_bytes_that_must_move() -> None:
    problem = Problem(2, 4, 100, 30, 64, kv_heads=2, dtype="bf16")
    q, k, o, lse = 2 * 4 * 100 * 64 * 2, 2 * 2 * 30 * 64 * 2, 2 * 4 * 100 * 64 * 2, 2 * 4 * 100 * 4
    assert least_bytes(problem) == (q + 2 * k, o + lse)
