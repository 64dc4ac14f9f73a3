"""Runs a stage on tensors, wherever they are.

What a call needs besides its tensors is found once and kept for the process: which rung takes such problems,
its build, loaded, and the fields of the problem's C++ struct. A rung whose sources change meanwhile is built
anew by the next process, and by ``ladder run``, ``ladder compare`` and the tests, which do not come here.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler

from ladder.call import waves
from ladder.common.words import listed
from ladder.compile import build
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import AnyProblem, Output, Tensors, address_of, in_memory, operation_of, torch_dtypes
from ladder.run.backends import LaunchFunction, Loaded, get_backend
from ladder.stages import Ladder, Stage, discover, format_options

#: Instead of a stage's name: the highest that takes the problem there and that has been timed; on a GPU with
#: few work items the one of :mod:`ladder.call.waves`.
AUTO = "auto"
#: Of a launch that torch's profiler does not see.
_UNRECORDED = nullcontext()


@dataclass(frozen=True)
class Choice:
    """The stage that a caller wants: its name or :data:`AUTO`, as the virtual GPU ``arch`` on the CPU ("" is
    the stage's own), with its options; with ``deterministic``, only a deterministic one.
    """

    stage: str = AUTO
    arch: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    deterministic: bool = False

    def __post_init__(self) -> None:
        _require_name("stage", self.stage)


def _require_name(argument: str, given: Any) -> None:
    if not isinstance(given, str):
        raise InvalidProblem(
            f"{argument} is {given!r}; it must be a name", f'"{AUTO}" is the highest that takes the problem.'
        )


class Run:
    """All that a call needs besides its tensors. Calling it with the inputs, in the order in which they were
    prepared, returns the outputs, in the operation's order; each owns its storage, as a compiled graph
    assumes. On a GPU it only launches, on the current stream, and waits for nothing. torch's profiler shows
    it as ``name``.

    ``copied`` are the inputs that are copied first, because the stage takes only contiguous ones, or because
    memory has their negatives (torch's negative bit).
    ``plan`` and ``in_cpp`` are those of :mod:`ladder.call.native`; the plan is ``...`` until one is wanted.
    """

    __slots__ = (
        *("copied", "device", "in_cpp", "inputs", "kinds", "launch", "name", "outputs", "places", "plan"),
    )

    def __init__(
        self,
        name: str,
        launch: LaunchFunction,
        inputs: Sequence[str],
        copied: Sequence[str],
        outputs: Sequence[Output],
        device: torch.device,
    ) -> None:
        self.name, self.launch = name, launch
        self.inputs, self.copied, self.outputs = inputs, copied, outputs
        self.plan: Any = ...
        self.in_cpp: Any = None
        self.device = device
        self.places = [inputs.index(name) for name in copied]
        dtypes = torch_dtypes()
        # As torch.empty_strided takes them, in a third of the time of torch.empty.
        self.kinds = [(one.shape, _contiguous(one.shape), dtypes[one.dtype]) for one in outputs]

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        outputs = self.empty_outputs()
        tensors = [*inputs, *outputs]
        try:
            for place in self.places:
                address_of(inputs[place])  # type: ignore[arg-type] # torch copies from any address
                tensors[place] = _copy(inputs[place])  # type: ignore[arg-type]
            with profiler.record_function(self.name) if profiler._is_profiler_enabled else _UNRECORDED:
                self.launch(tensors)
        except RuntimeError:  # a tensor without an address, or torch's of one without storage
            found = all_in_memory(self.inputs, inputs)
            if all(map(operator.is_, found, inputs)):
                raise
            return self(*found)
        return (*outputs,)

    def empty_outputs(self) -> list[Tensor]:
        """Uninitialised outputs."""
        device, empty = self.device, torch.empty_strided
        return [empty(size, stride, dtype=dtype, device=device) for size, stride, dtype in self.kinds]


def prepare(problem: AnyProblem, inputs: Tensors, device: torch.device, choice: Choice) -> Run:
    """The run of a problem on inputs like these, in their order.

    CPU tensors run on the emulator, CUDA tensors on their GPU. Raises :class:`UnsupportedProblem` if the
    stage does not take the problem.
    """
    operation = operation_of(problem)
    stage, loaded = _loaded(problem, device, choice)

    def is_taken(name: str, x: Tensor) -> bool:
        lies_well = name not in operation.strided or x.is_contiguous()
        return not x.is_neg() and (lies_well or ("strides" in stage.takes and lies_in_rows(x)))

    copied = [name for name, x in inputs.items() if x is not None and not is_taken(name, x)]
    taken = {name: _copy(x) if name in copied and x is not None else x for name, x in inputs.items()}
    outputs = operation.outputs(problem)
    launch = loaded([*inputs], [one.name for one in outputs], operation.arguments(problem, taken))
    return Run(f"ladder::{stage.name}", launch, [*inputs], copied, outputs, device)


def all_in_memory(names: Sequence[str], tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Tensors of these names, zero tensors as zeros. Raises :class:`InvalidProblem` for others without
    memory.
    """
    return [x if x is None else in_memory(name, x) for name, x in zip(names, tensors, strict=True)]


def _copy(tensor: Tensor) -> Tensor:
    return tensor.resolve_neg().contiguous()


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(math.prod(shape[dimension + 1 :]) for dimension in range(len(shape)))


def lies_in_rows(tensor: Tensor) -> bool:
    """Whether TMA takes a tensor as it lies: see ``tensor_map`` in stages/include/tiles/tensor_map.h. Rows
    are contiguous and begin at multiples of 16 bytes from each other; heads lie a multiple of 64 elements
    apart, or of a row if that is shorter. ``padded_map``, for rows of other lengths, takes heads as rows.
    """
    *sizes, columns = tensor.shape
    *strides, last = tensor.stride()
    is_whole_blocks = columns == 32 or columns % 64 == 0
    if is_whole_blocks and sizes[1] > 1 and strides[1] % min(columns, 64):
        return False
    return last == 1 and all(
        size == 1 or (stride >= columns and stride * tensor.element_size() % 16 == 0)
        for size, stride in zip(sizes, strides, strict=True)
    )


_known: dict[tuple[Any, ...], tuple[Stage, Loaded]] = {}


def _loaded(problem: AnyProblem, device: torch.device, choice: Choice) -> tuple[Stage, Loaded]:
    """The stage that is chosen for problems like this, with its build."""
    by_waves = _by_waves(problem, device, choice)
    key = (*_told_apart(problem), device, choice, by_waves)
    found = _known.get(key)
    if found is None:
        with nullcontext() if device.type == "cpu" else torch.cuda.device(device):
            backend = get_backend("emulator" if device.type == "cpu" else "cuda")
            target_of = partial(backend.target, arch=choice.arch or None)
            stage = _chosen(problem, target_of, choice)
            if by_waves is not None and stage == discover()[waves.LAST]:
                stage = discover()[by_waves]
            target = target_of(stage)
            extension = build(stage, target, stage.chosen_options(dict(choice.options)), only=problem)
            found = _known[key] = stage, backend.loaded(extension, target, device)
    return found


def _by_waves(problem: AnyProblem, device: torch.device, choice: Choice) -> str | None:
    """The rung that is fastest for a problem of this size on this GPU, in place of the last one."""
    if choice.stage != AUTO or device.type != "cuda":
        return None
    return waves.fastest(problem, torch.cuda.get_device_properties(device).multi_processor_count)


def _told_apart(problem: AnyProblem) -> tuple[Any, ...]:
    """All by which the choice of a stage tells problems apart, and where stages are looked for."""
    head_dim = getattr(problem, "head_dim", None)
    folders = os.environ.get("LADDER_STAGES")
    return (problem.operation, problem.dtype, head_dim, problem.features, folders)


def _chosen(problem: AnyProblem, require: Callable[[Stage], object], choice: Choice) -> Stage:
    if choice.stage == AUTO:
        return highest(problem, require, deterministic=choice.deterministic)
    stage = discover()[choice.stage]
    _require_deterministic(stage, choice.deterministic)
    stage.accept(problem)
    return stage


def highest(
    problem: AnyProblem,
    require: Callable[[Stage], object] = lambda stage: None,
    *,
    deterministic: bool = False,
) -> Stage:
    """The highest stage that takes the problem, that has been timed and that ``require`` does not refuse.

    With ``deterministic`` it is a deterministic one. Without, a rung that makes the one before it
    deterministic, and pays for that with speed, is left out. Raises :class:`UnsupportedProblem`, with
    the head dims that such a stage takes, or else with the reasons of two stages, first of those that are
    left out for other reasons than the problem.
    """
    ladder = discover()
    stage, refusals = _search(problem, ladder, require, deterministic)
    if stage is not None:
        return stage
    besides = [message for suits, message in refusals if suits]
    _require_head_dim(problem, ladder, besides, lambda one: _search(one, ladder, require, deterministic)[0])
    lines = [*besides, *(message for suits, message in refusals if not suits)]
    if len(lines) > 2:
        lines[2:] = [f"nor does any of {len(lines) - 2} other stages"]
    having = f", which has {listed(sorted(problem.features))}" if problem.features else ""
    raise UnsupportedProblem(f"no stage takes this problem{having}:\n" + "\n".join(lines))


def _search(
    problem: AnyProblem, ladder: Ladder, require: Callable[[Stage], object], deterministic: bool
) -> tuple[Stage | None, list[tuple[bool, str]]]:
    """The stage of :func:`highest`, if any; and why those above it are left out, with whether they would suit
    the problem.
    """
    refusals: list[tuple[bool, str]] = []
    for stage in reversed(ladder.computing(problem.operation)):
        if not deterministic and _adds_determinism(stage, ladder):
            continue
        try:
            _require_timed(stage)
            _require_deterministic(stage, deterministic)
            stage.accept(problem)
            require(stage)
            return stage, refusals
        except UnsupportedProblem as error:
            refusals.append((stage.suits(problem), error.message))
    return None, refusals


def _require_head_dim(
    problem: AnyProblem,
    ladder: Ladder,
    besides: Sequence[str],
    search: Callable[[AnyProblem], Stage | None],
) -> None:
    """Raises :class:`UnsupportedProblem` if the problem's head dim, which no stage takes, is what is wrong:
    with other ones ``search`` finds a stage. ``besides`` says why a stage that takes it is left out.
    """
    head_dim = getattr(problem, "head_dim", None)
    known = {one for stage in ladder.computing(problem.operation) for one in stage.head_dims}
    taken = [one for one in sorted(known) if search(replace(problem, head_dim=one))]  # type: ignore[type-var]
    if head_dim is None or not taken:
        return
    having = f" with {listed(sorted(problem.features))}" if problem.features else ""
    larger = [one for one in taken if one > head_dim]
    every_8 = taken == [*range(8, taken[-1] + 1, 8)]
    dims = f"multiples of 8 up to {taken[-1]}" if every_8 else ", ".join(map(str, taken))
    raise UnsupportedProblem(
        "\n".join([f"no stage takes d = {head_dim}{having}; stages take {dims}", *besides[:1]]),
        f"Fill the tensors with zeros to d = {larger[0]}, and pass scale={head_dim} ** -0.5."
        if larger and problem.operation != "hstu"
        else "",
    )


def _adds_determinism(stage: Stage, ladder: Ladder) -> bool:
    before = None if stage.before is None else ladder[stage.before]
    return (
        stage.deterministic
        and before is not None
        and before.computes == stage.computes
        and not before.deterministic
    )


def _require_timed(stage: Stage) -> None:
    if not stage.timed:
        raise UnsupportedProblem(f"{stage.name} has not been timed, so it must be chosen by name")


def _require_deterministic(stage: Stage, deterministic: bool) -> None:
    if deterministic and not stage.deterministic:
        raise UnsupportedProblem(f"{stage.name} is not deterministic")


def option_words(options: Mapping[str, Any] | None) -> str:
    """Options as ``NAME=VALUE,...``. Raises :class:`InvalidProblem` if they are no mapping."""
    if not options:
        return ""
    if not isinstance(options, Mapping):
        raise InvalidProblem(f"options are {options!r}; they must be a mapping", 'For example {"KEYS": 32}.')
    return format_options(options)


@cache
def require_backward_name(stage: str) -> None:
    """Raises :class:`LadderError` if there is no such stage. Operators require it when they run, since only
    their gradients use it.
    """
    if stage != AUTO:
        discover()[stage]


_differentiable: set[tuple[Any, ...]] = set()


def require_backward(problem: AnyProblem, stage: str, deterministic: bool) -> None:
    """Raises :class:`UnsupportedProblem` unless this stage, or with :data:`AUTO` some stage, computes the
    gradients of this problem; :class:`LadderError` if there is no such stage.
    """
    _require_name("backward", stage)
    key = (*_told_apart(problem), stage, bool(deterministic))
    if key not in _differentiable:
        _look_for_backward(problem, stage, deterministic)
        _differentiable.add(key)


def _look_for_backward(problem: AnyProblem, stage: str, deterministic: bool) -> None:
    if stage != AUTO:
        _chosen(problem, lambda stage: None, Choice(stage, deterministic=deterministic))
        return
    try:
        highest(problem, deterministic=deterministic)
    except UnsupportedProblem as error:
        raise UnsupportedProblem(
            f"a tensor requires a gradient, and no backward stage takes the problem:\n{error.message}",
            error.hint or "Call it under torch.no_grad(), or pass detached tensors.",
        ) from None
