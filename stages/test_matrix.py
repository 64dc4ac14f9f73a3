"""Every rung on the shape matrix: all sizes, masks, dtypes and inputs that it says it takes.

Each problem is run twice on the emulator, the second time in another order and with other values where nobody
wrote, in processes that a rung's host code may end.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from ladder.compile import build
from ladder.errors import ExecutionError, UnsupportedProblem
from ladder.operations import DTYPES, AnyProblem, Huge, Problem, get_operation, operation_of
from ladder.run.backends import Treatment, get_backend
from ladder.run.evaluation import (
    MULTIPROCESSORS,
    busy_problem,
    check_stage,
    default_problem,
    evaluate_all,
    evaluate_misaligned,
    faults_beyond_32_bits,
    largest_constant,
    reference_of,
)
from ladder.stages import Stage, discover

LADDER = discover()


#: How many problems that fail are told of.
SHOWN = 3
#: Operations whose host code checks alignment itself; that of the others leaves it to the caller.
CHECK_ALIGNMENT = ("attention", "attention_backward", "decoding", "hstu", "hstu_backward")
#: How the host code of a stage refuses a tensor that begins at the wrong address.
REFUSED = re.compile(r"UnsupportedProblem: .* must be aligned to \d+ bytes")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "problem" in metafunc.fixturenames:
        cases = [(stage, problem) for stage in LADDER for problem in refused(stage)]
        metafunc.parametrize("stage, problem", cases, ids=[f"{stage.name}: {p}" for stage, p in cases])
    elif "huge" in metafunc.fixturenames:
        found = [(stage, huge) for stage in LADDER for huge in huge_problems(stage)]
        names = [f"{stage.name}: {huge.problem}" for stage, huge in found]
        metafunc.parametrize("stage, huge", found, ids=names)
    elif "aligned" in metafunc.fixturenames:
        tried = [(stage, typical(stage)) for stage in LADDER if stage.computes in CHECK_ALIGNMENT]
        metafunc.parametrize("stage, aligned", tried, ids=[stage.name for stage, _ in tried])
    elif "part" in metafunc.fixturenames:
        places = [(stage, part) for stage in LADDER for part in boundaries(stage)]
        metafunc.parametrize("stage, part", places, ids=[f"{stage.name}: {part}" for stage, part in places])
    elif "stage" in metafunc.fixturenames:
        metafunc.parametrize("stage", [*LADDER], ids=lambda stage: stage.name)


def boundaries(stage: Stage) -> Mapping[str, Sequence[AnyProblem]]:
    """The parts of which the stage takes a problem, with those that it takes."""
    parts = get_operation(stage.computes).boundaries(stage.dtypes, stage.head_dims)
    taken = {part: [*filter(stage.suits, problems)] for part, problems in parts.items()}
    return {part: problems for part, problems in taken.items() if problems}


def huge_problems(stage: Stage) -> Sequence[Huge]:
    found = get_operation(stage.computes).beyond_32_bits(stage.dtypes, stage.head_dims)
    return [huge for huge in found if stage.suits(huge.problem)]


def refused(stage: Stage) -> Sequence[AnyProblem]:
    return get_operation(stage.computes).refused(stage.dtypes, stage.head_dims)


def kernel_of(problem: AnyProblem) -> tuple[object, ...]:
    """What tells the kernels of a rung apart."""
    return problem.dtype, getattr(problem, "head_dim", 0)


def typical(stage: Stage) -> AnyProblem:
    """Of the problems of ``ladder check``, the one of middling work: several warps and tiles, yet quick."""
    operation = get_operation(stage.computes)
    checked = [*filter(stage.suits, operation.check_problems)]
    problems = checked or [*filter(stage.suits, operation.matrix(stage.dtypes, stage.head_dims))]
    return sorted(problems, key=lambda problem: problem.flops)[(len(problems) - 1) // 2]


def require_right(stage: Stage, problems: Sequence[AnyProblem], backend: str) -> None:
    wrong = (
        f"ladder run {stage.name} {found.problem.command_options}\n  {found.text}"
        for found in evaluate_all(stage, problems, backend=backend, thoroughly=True)
        if not found.passed
    )
    shown = list(itertools.islice(wrong, SHOWN))
    assert not shown, "\n".join(["wrong, some of all:", *shown])


def test_every_stage_folder_is_sound() -> None:
    assert {name: str(error) for name, error in LADDER.broken.items()} == {}


def test_matrix(stage: Stage, backend: str) -> None:
    problems = get_operation(stage.computes).matrix(stage.dtypes, stage.head_dims)
    require_right(stage, [*filter(stage.suits, problems)], backend)


def test_one_kernel(stage: Stage, backend: str) -> None:
    """A third of the matrix of the kernel for the rung's default problem, and a causal mask over several
    tiles; nothing else is compiled.
    """
    usual = stage.accept(default_problem(stage.name))
    problems = get_operation(stage.computes).matrix((usual.dtype,), stage.head_dims)
    same = [p for p in filter(stage.suits, problems) if kernel_of(stage.accept(p)) == kernel_of(usual)]
    causal: list[AnyProblem] = []
    if isinstance(usual, Problem) and not usual.features:
        causal = [replace(usual, q_len=150, kv_len=170, is_causal=True)]
    tried = [*same[::3], *filter(stage.suits, causal)]
    require_right(stage.narrowed([usual]), tried, backend)


def test_boundaries(stage: Stage, part: str, backend: str) -> None:
    require_right(stage, boundaries(stage)[part], backend)


def test_large_problems(stage: Stage, backend: str) -> None:
    """Those of the operation, and of the rung's own constants."""
    operation, sizes = get_operation(stage.computes), (stage.dtypes, stage.head_dims)
    problems = [*operation.large(*sizes), *operation.beyond(largest_constant(stage), *sizes)]
    if suitable := [*filter(stage.suits, problems)]:
        require_right(stage, suitable, backend)


def test_random_problems(stage: Stage, backend: str) -> None:
    """The same in each run of the tests; another LADDER_SEED gives others."""
    operation, seed = get_operation(stage.computes), int(os.environ["LADDER_SEED"])
    problems = operation.random(seed, stage.dtypes, stage.head_dims, largest=150)
    require_right(stage, list(itertools.islice(filter(stage.suits, problems), 12)), backend)


def test_indices_beyond_32_bits(stage: Stage, huge: Huge) -> None:
    """In reserved memory, of which the last blocks or the first ones use a little."""
    try:
        faults = faults_beyond_32_bits(stage, huge)
    except ExecutionError as error:
        if "instruction limit" not in str(error):
            raise
        pytest.skip("a block walks over all rows")
    except UnsupportedProblem:
        return  # a rung need not take more rows than a grid has blocks for
    except OSError as error:
        pytest.skip(f"the memory cannot be reserved: {error}")
    if faults is None:
        pytest.skip("neither its last blocks nor its first ones compute the last part alone")
    assert not faults, f"on {huge.problem}, of which only {huge.last} is computed: {faults}"


def test_no_race_or_other_fault(stage: Stage) -> None:
    """Results may be right in every order of whole warps between barriers although warps overwrite each
    other's memory: the sanitizer looks for that.
    """
    findings = check_stage(stage)
    shown = [f"{finding.kind}: {finding.message}" for finding in findings[:SHOWN]]
    assert not findings, "\n".join([f"ladder check {stage.name}", *shown])


def test_launches_follow_each_other(stage: Stage) -> None:
    """In one process, where what a launch leaves in the rung's own memory stays, on a GPU so small that each
    block has several work items: a counter is first wrong when as many launches as blocks have passed.
    """
    backend = get_backend("emulator")
    target, small = backend.target(stage, None), Treatment(multiprocessors=MULTIPROCESSORS)
    with backend.runner(build(stage, target, {}), target) as runner:
        problem, blocks = busy_problem(stage, runner) or (typical(stage), 1)
        problem = stage.accept(problem)
        inputs = operation_of(problem).make_inputs(problem)
        launches = [runner.run(problem, inputs, treatment=small).outputs for _ in range(2 + blocks)]
    expected = reference_of(problem, inputs)
    for outputs in launches:
        assert expected.passed(expected.errors(outputs)), f"on {problem}"
    if stage.deterministic:
        for name, output in launches[0].items():
            assert all(torch.equal(output, other[name]) for other in launches), f"{name} on {problem}"


def test_misaligned_tensors(stage: Stage, aligned: AnyProblem) -> None:
    """Each is refused with the alignment that the stage needs, unless the result is right: nothing faults."""
    outcomes = evaluate_misaligned(stage, aligned)
    wrong = {name: text for name, text in outcomes.items() if text and not REFUSED.match(text)}
    assert not wrong, f"on {aligned}, one element off: {wrong}"


@pytest.mark.full
def test_full_grid(stage: Stage, backend: str) -> None:
    problems = get_operation(stage.computes).full_matrix(stage.dtypes, stage.head_dims)
    require_right(stage, [*filter(stage.suits, problems)], backend)


def test_refuses_what_it_does_not_list(stage: Stage, problem: AnyProblem) -> None:
    """Through the kernel's own host code too, which must not trust the harness."""
    supported = stage.dtypes if problem.dtype not in stage.dtypes else stage.head_dims
    with pytest.raises(UnsupportedProblem, match=", ".join(map(str, supported))):
        list(evaluate_all(stage, [problem], backend="emulator"))
    head_dims = (*stage.head_dims, getattr(problem, "head_dim", 0))
    claims_everything = replace(stage, dtypes=DTYPES, head_dims=head_dims, needs=())
    [found] = evaluate_all(claims_everything, [problem], backend="emulator")
    assert found.text.startswith("UnsupportedProblem"), found.text
