"""The problems of a check follow from the rung's buffers and grid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rungs import named
from warp_kernel import kernel_text

from ladder.compile import Target, build
from ladder.operations import AnyProblem, Problem, get_operation, operation_of
from ladder.run.backends import EmulatorBackend, EmulatorRunner, Treatment
from ladder.run.emulator import Finding, Launch, Module
from ladder.run.emulator.launches import Copies
from ladder.run.evaluation import is_faulty, sanitizing
from ladder.run.evaluation.reuse import MULTIPROCESSORS, busy_problem, largest_constant, reusing_problems
from ladder.stages import Stage, discover

#: Sixteen bytes to one place after the other, three of them, by thread 0 of each block.
RING = """
  .shared .align 8 .b64 bar;
  mov.u32 %r10, bar;
  mov.u32 %r11, smem;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra END;
  mbarrier.init.shared::cta.b64 [%r10], 1;
  fence.proxy.async.shared::cta;
  mov.u32 %r12, 0;
LOOP:
  rem.u32 %r13, %r12, 3;
  mad.lo.u32 %r13, %r13, 16, %r11;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 16;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r13], [%rd0], 16, [%r10];
  and.b32 %r14, %r12, 1;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r10], %r14;
  @!%p2 bra WAIT;
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p2, %r12, 7;
  @%p2 bra LOOP;
END:
"""


def launches_of(problem: AnyProblem, name: str, multiprocessors: int = 0) -> tuple[Launch, ...]:
    stage = discover()[name].narrowed([problem])
    backend, problem = EmulatorBackend(), stage.accept(problem)
    target = backend.target(stage, None)
    extension = build(stage, target, stage.chosen_options({}))
    treatment = Treatment(multiprocessors=multiprocessors)
    inputs = operation_of(problem).make_inputs(problem)
    with backend.runner(extension, target) as runner:
        return runner.run(problem, inputs, treatment=treatment, details=True).launches


def test_copies_of_the_first_block_are_counted_by_place() -> None:
    module = Module(kernel_text(RING, 1, shared_bytes=64, target="sm_90"), arch="sm_90")
    [copies] = module.launch("k", 2, 32, [np.zeros(64, np.uint8)]).copies().values()
    assert copies == Copies(count=7, places=3)


@pytest.mark.parametrize(("multiprocessors", "blocks"), [(0, 9), (1, 1), (5, 5)])
def test_a_gpu_of_so_many_multiprocessors(multiprocessors: int, blocks: int) -> None:
    [launch] = launches_of(Problem(1, 9, 1, 1, 64), named("v11"), multiprocessors)
    assert launch.grid == (blocks, 1, 1)


def chosen(name: str) -> list[AnyProblem]:
    stage = replace(discover()[name], head_dims=(64,), dtypes=("f16",))
    window = (40, 9) if "window" in stage.needs else None
    return reusing_problems_of(stage.narrowed([Problem(1, 1, 1, 1, 64, window=window)]))


def reusing_problems_of(stage: Stage) -> list[AnyProblem]:
    with runner_of(stage) as runner:
        return reusing_problems(stage, runner)


def runner_of(stage: Stage) -> EmulatorRunner:
    backend = EmulatorBackend()
    target = backend.target(stage, None)
    return backend.runner(build(stage, target, stage.chosen_options({})), target)


def test_a_persistent_rung_s_blocks_have_several_work_items() -> None:
    stage = replace(discover()["v11_persistent"], head_dims=(64,), dtypes=("f16",))
    with runner_of(stage.narrowed([Problem(1, 1, 1, 1, 64)])) as runner:
        found = busy_problem(stage, runner)
    assert found
    problem, blocks = found
    [launch] = launches_of(problem, "v11_persistent", 1000)
    assert blocks == MULTIPROCESSORS and launch.grid[0] >= 4 * blocks
    with runner_of(discover()["v1_minimal"]) as runner:
        assert busy_problem(discover()["v1_minimal"], runner) is None


def test_sizes_are_beyond_a_rung_s_own_constants(tmp_path: Path) -> None:
    text = 'int x = 0x999; // 500\n/* 600 */ f<7>("700", number < 65 ? 3 : 1024, 4096, x300, 2.500f);\n'
    (tmp_path / "kernel.cu").write_text(text)
    assert largest_constant(replace(discover()["v1_minimal"], path=tmp_path)) == 65


@pytest.mark.parametrize("name", ["attention", "attention_backward", "decoding", "hstu", "hstu_backward"])
def test_problems_have_more_than_so_many_of_everything(name: str) -> None:
    problems = get_operation(name).beyond(65, ("f16",), (64,))
    shapes = [
        {key: x.shape for key, x in operation_of(one).make_inputs(one).items() if x is not None}
        for one in problems
    ]
    for tensor in ("q", "k_cache" if name == "decoding" else "k"):
        # Batches or tokens, and heads.
        assert {max(shape[tensor][i] for shape in shapes if tensor in shape) > 65 for i in (0, 1)} == {True}


@pytest.mark.parametrize("name", [named("v5"), named("v8"), named("v11")])
def test_each_buffer_is_used_again_and_again(name: str) -> None:
    """Of K and V on one of the problems, and of what else a persistent kernel loads; and there are blocks."""
    problems = chosen(name)
    launches = [launches_of(problem, name, MULTIPROCESSORS) for problem in problems]
    uses = [
        max(copies.count / copies.places for launch in each for copies in launch.copies().values())
        for each in launches
    ]
    assert len(problems) == 4 and uses[0] >= 4
    assert all(
        sum(launch.grid[0] * launch.grid[1] * launch.grid[2] for launch in each) > 1 for each in launches[1:]
    )
    if name == named("v11"):
        least = [
            min(copies.count / copies.places for launch in each for copies in launch.copies().values())
            for each in launches[1:]
        ]
        assert min(least) >= 4


def test_a_rung_that_needs_a_window_reuses_its_buffers_with_one() -> None:
    [problem] = chosen(named("x2"))
    assert isinstance(problem, Problem) and problem.window == (40, 9)
    [launch] = launches_of(problem, named("x2"), MULTIPROCESSORS)
    assert launch.grid == (MULTIPROCESSORS, 1, 1) and problem.heads >= 4 * MULTIPROCESSORS


def test_the_last_block_comes_first_on_every_second_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[sanitizing._Try] = []
    found = [Problem(1, heads, 70, 140, 32, dtype="f32") for heads in (1, 2, 3)]
    monkeypatch.setattr(sanitizing, "reusing_problems", lambda stage, runner: found)
    monkeypatch.setattr(sanitizing, "_findings", lambda *words: asked.append(words[-1]) or [])
    assert not is_faulty(named("v1"))
    assert [one.backwards for one in asked if one.problem in found] == [True, False, True]
    assert not any(one.backwards for one in asked[: -len(found)])


def test_none_for_a_rung_without_asynchronous_copies() -> None:
    assert reusing_problems_of(discover()["v1"]) == []


def test_a_verdict_alone_ends_at_the_first_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AnyProblem] = []

    def findings(stage: Stage, extension: Path, target: Target, one: sanitizing._Try) -> list[Finding]:
        asked.append(one.problem)
        return [Finding("failure", "", "", 1, None, None, "")] if len(asked) == 2 else []

    monkeypatch.setattr(sanitizing, "_findings", findings)
    assert is_faulty(named("v1")) and len(asked) == 2
    asked += [asked[0]]
    assert not is_faulty(named("v1")) and len(asked) > 4
