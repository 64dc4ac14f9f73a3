"""Runs a stage on tensors, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from ladder.backends import get_backend
from ladder.build import build
from ladder.errors import UnsupportedProblem
from ladder.operations import AnyProblem, Tensors
from ladder.stages import Ladder, Stage, discover

#: Instead of a stage's name: the highest that takes the problem there. Of rungs, it is also the fastest.
AUTO = "auto"


def run_stage(
    problem: AnyProblem,
    inputs: Tensors,
    device: torch.device,
    *,
    stage: str,
    arch: str,
    options: Mapping[str, str] = {},
    deterministic: bool = False,
) -> dict[str, Tensor]:
    """Returns the outputs by name; ``stage`` may be :data:`AUTO`.

    CPU tensors run on the emulator, as the virtual GPU ``arch``; CUDA tensors on their GPU. With
    ``deterministic``, only a deterministic stage. Raises :class:`UnsupportedProblem` if the stage does not
    take the problem.
    """
    with nullcontext() if device.type == "cpu" else torch.cuda.device(device):
        backend = get_backend("emulator" if device.type == "cpu" else "cuda")
        target_of = partial(backend.target, arch=arch or None)
        if stage == AUTO:
            chosen = highest(problem, target_of, deterministic=deterministic)
        else:
            chosen = discover()[stage]
            _require_deterministic(chosen, deterministic)
        accepted = chosen.accept(problem)
        target = target_of(chosen)
        extension = build(chosen, target, chosen.chosen_options(options))
        detached = {name: None if tensor is None else tensor.detach() for name, tensor in inputs.items()}
        return backend.compute(extension, target, accepted, detached)


def highest(
    problem: AnyProblem,
    require: Callable[[Stage], object] = lambda stage: None,
    *,
    deterministic: bool = False,
) -> Stage:
    """The highest stage that takes the problem and that ``require`` does not refuse.

    With ``deterministic`` it is a deterministic one. Without, a rung that makes the one before it
    deterministic, and pays for that with speed, is left out. Raises :class:`UnsupportedProblem`, listing what
    each stage takes.
    """
    refusals = []
    ladder = discover()
    for stage in reversed(ladder.computing(problem.operation)):
        if not deterministic and _adds_determinism(stage, ladder):
            continue
        try:
            _require_deterministic(stage, deterministic)
            stage.accept(problem)
            require(stage)
            return stage
        except UnsupportedProblem as error:
            refusals.append(error.message)
    raise UnsupportedProblem("no stage takes this problem:\n" + "\n".join(refusals))


def _adds_determinism(stage: Stage, ladder: Ladder) -> bool:
    before = None if stage.before is None else ladder[stage.before]
    return (
        stage.deterministic
        and before is not None
        and before.computes == stage.computes
        and not before.deterministic
    )


def _require_deterministic(stage: Stage, deterministic: bool) -> None:
    if deterministic and not stage.deterministic:
        raise UnsupportedProblem(f"{stage.name} is not deterministic")


def require_backward(problem: AnyProblem) -> None:
    """Raises :class:`UnsupportedProblem` unless some stage computes the gradients of this problem."""
    try:
        highest(problem)
    except UnsupportedProblem as error:
        raise UnsupportedProblem(
            f"a tensor requires a gradient, and no backward stage takes the problem:\n{error.message}",
            "Call it under torch.no_grad(), or pass detached tensors.",
        ) from None
