"""Runs a stage on tensors that begin at other addresses than it may need."""

from __future__ import annotations

from ladder.compile import build
from ladder.errors import LadderError
from ladder.operations import AnyProblem, Tensors, memory, operation_of, torch_dtypes
from ladder.run.backends import Treatment, get_backend
from ladder.run.evaluation import verdict
from ladder.run.evaluation.references import reference_of
from ladder.stages import Stage


def evaluate_misaligned(stage: Stage, problem: AnyProblem) -> dict[str, str]:
    """What comes of it on the emulator when one tensor is misaligned: by input, and for the outputs together;
    "" if the result is right, or else the error.

    Such a tensor begins one element past a 64-byte boundary; the outputs, one of their smallest elements.

    Raises like :func:`ladder.run.evaluation.evaluate` before anything has run.
    """
    backend = get_backend("emulator")
    problem, target = stage.accept(problem), backend.target(stage, None)
    memory.require(problem)
    operation = operation_of(problem)
    inputs = operation.make_inputs(problem, backend.device)
    expected = reference_of(problem, inputs)
    with backend.runner(build(stage, target, stage.chosen_options({})), target) as runner:

        def result(inputs: Tensors, treatment: Treatment) -> str:
            try:
                outputs = runner.run(problem, inputs, treatment=treatment).outputs
            except LadderError as error:
                return f"{type(error).__name__}: {error}"
            return ", ".join(f"{name} is wrong" for name in expected.wrong(outputs))

        found = {
            name: result({**inputs, name: verdict.moved(tensor, tensor.element_size())}, Treatment())
            for name, tensor in inputs.items()
            if tensor is not None
        }
        element = min(torch_dtypes()[one.dtype].itemsize for one in operation.outputs(problem))
        return {**found, "outputs": result(inputs, Treatment(offset_bytes=element))}
