"""Which part of the output one block of a persistent kernel computes: the order of its work items."""

from __future__ import annotations

from ladder.compile import build
from ladder.operations import AnyProblem, operation_of
from ladder.run.backends import EmulatorBackend, Treatment
from ladder.stages import Stage


def rows_of_first_block(stage: Stage, problem: AnyProblem, multiprocessors: int) -> dict[int, list[int]]:
    """The rows of the first output, by head (counted over all batches), that block 0 writes on a virtual GPU
    of so many multiprocessors. The output has the shape (batch, heads, rows, ...).

    Raises :class:`UnsupportedProblem`, :class:`BuildError`, :class:`ExecutionError`.
    """
    backend, problem = EmulatorBackend(), stage.accept(problem)
    target = backend.target(stage, None)
    operation = operation_of(problem)
    treatment = Treatment(first_blocks=1, multiprocessors=multiprocessors)
    with backend.runner(build(stage, target, stage.chosen_options({})), target) as runner:
        outputs = runner.run(problem, operation.make_inputs(problem), treatment=treatment).outputs
    is_written = ~outputs[operation.outputs(problem)[0].name].isnan()
    rows = is_written.flatten(0, 1).flatten(2).any(-1)
    return {head: row.nonzero().flatten().tolist() for head, row in enumerate(rows) if row.any()}
