"""The interface of an operation: everything that the harness must know about what stages compute.

A new operation needs a module in this folder with a problem class and an :class:`Operation`, a line in
:mod:`ladder.operations.registry`, and on the C++ side a header with the problem struct,
``stages/include/ladder/<name>.h``, and its binding, ``stages/include/ladder/<name>_binding.cpp``.
``row_softmax`` is the shortest example. A stage then declares ``computes = "<name>"``, and all commands
accept it.

* Tensors are passed by name from here to the binding: those that :meth:`Operation.make_inputs` returns and
  :meth:`Operation.outputs` lists are the struct's pointers of the same names. They may have any number of
  dimensions and any dtype of :data:`TORCH_DTYPES`, for instance int32 offsets of jagged tensors. An optional
  tensor that a problem lacks is None here and a null pointer there.
* :meth:`Operation.arguments` are the struct's other fields, by name.
* Importing torch takes seconds, and ``ladder stages`` does not need it, so modules of operations import it
  inside the functions that use it.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from ladder.common.wording import said
from ladder.common.words import told_apart
from ladder.errors import InvalidProblem

if TYPE_CHECKING:
    import argparse

    import torch
    from torch import Tensor

DTYPES = ("f32", "f16", "bf16")
_DTYPE_ALIASES = {
    "fp32": "f32",
    "float32": "f32",
    "float": "f32",
    "fp16": "f16",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
}
#: Bytes per element.
DTYPE_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4}
#: The largest size: kernels hold sizes in an int.
LARGEST_SIZE = 2**31 - 1

Self = TypeVar("Self", bound="AnyProblem")
#: Tensors by name; None for an optional one that a problem lacks.
Tensors = Mapping[str, "Tensor | None"]


class AnyProblem(ABC):
    """A problem of some operation: a frozen dataclass with at least the fields ``dtype`` and ``inputs``.

    If ``dtype`` is None, each stage uses the first that it lists. ``inputs`` names the kind of inputs to
    draw.
    """

    #: The name of the operation.
    operation: ClassVar[str]
    dtype: str | None
    inputs: str

    @property
    @abstractmethod
    def flops(self) -> float:
        """The number of operations for quoting speeds."""

    @property
    @abstractmethod
    def command_options(self) -> str:
        """The command-line options that describe this problem."""

    @property
    def features(self) -> frozenset[str]:
        """The features that not every stage of the operation supports, by their names in stage.toml's
        ``takes`` and ``needs``.
        """
        return frozenset()

    @property
    def text(self) -> str:
        """The whole problem in one word: ``name=value&name=value``, for fields that are not defaults."""
        return "&".join(
            f"{field.name}={str(getattr(self, field.name)).replace(' ', '')}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        )

    @classmethod
    def from_text(cls: type[Self], text: str) -> Self:
        """Parses a :attr:`text`. Raises :class:`InvalidProblem`."""
        fields: dict[str, Any] = {}
        for word in text.split("&"):
            name, _, value = word.partition("=")
            try:
                fields[name] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                fields[name] = value
        try:
            return cls(**fields)
        except TypeError as error:
            raise InvalidProblem(f"{text!r} is no problem of {cls.operation}: {error}") from None


@dataclass(frozen=True)
class Output:
    """A tensor that a stage writes; ``dtype`` is one of :data:`DTYPE_BYTES`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Deviation(NamedTuple):
    """How far an output is off: its largest |error|; and the |error| and the bound of the element that comes
    nearest to its bound, or is furthest beyond it. NaN if the output contains NaN.
    """

    largest: float
    error: float
    bound: float
    #: The number of that element.
    place: int
    #: What is wrong with the errors of all elements together, in words.
    together: str = ""

    @property
    def is_allowed(self) -> bool:
        return self.error <= self.bound and not self.together


@dataclass(frozen=True)
class Spread:
    """How the errors of a correct kernel are distributed, for an output of rows (..., n).

    ``deviations`` has a standard deviation for each element; the mean of the squares of all errors, each in
    units of its deviation, is at most ``mean_square``. The mean of <error, row> / <row, row> over the rows
    that are ``certain`` (...), by which the output as a whole is too large or too small, is at most ``gain``.
    """

    deviations: Tensor
    mean_square: float
    certain: Tensor
    gain: float

    def objection(self, errors: Tensor, exact: Tensor) -> str:
        """What is wrong with these errors; "" if nothing is."""
        mean_square = float((errors / self.deviations).square().nan_to_num(nan=0.0).mean())
        if mean_square > self.mean_square:
            return (
                f"its errors are, in the mean, {math.sqrt(mean_square):.3g} times as large as roundings "
                f"explain; {math.sqrt(self.mean_square):.3g} times is allowed"
            )
        gains = ((errors * exact).sum(-1) / exact.square().sum(-1))[self.certain]
        gain = float(gains.mean()) if gains.numel() else 0.0
        if abs(gain) > self.gain:
            size = f"{1 + gain:.6f} times the exact ones"
            return f"its rows are, in the mean, {size}; {self.gain:.2g} off is allowed"
        return ""


@dataclass(frozen=True)
class Reference:
    """The exact outputs in float64, by name, with the limits of a correct kernel's |error|: of each output
    one for all of its elements, or a tensor with one for each. Of some outputs the errors together have a
    limit, too.
    """

    outputs: Mapping[str, Tensor]
    limits: Mapping[str, float | Tensor]
    spreads: Mapping[str, Spread] = field(default_factory=dict)

    @cached_property
    def bounds(self) -> dict[str, float]:
        """The largest limit of each output."""
        return {
            name: limit if isinstance(limit, float) else largest(limit) for name, limit in self.limits.items()
        }

    def errors(self, outputs: Mapping[str, Tensor]) -> dict[str, Deviation]:
        return {name: self.deviation(name, outputs[name]) for name in self.outputs}

    def error(self, name: str, output: Tensor) -> float:
        """max |output - reference| of this output; NaN if it contains NaN."""
        return largest(self._errors(name, output))

    def _errors(self, name: str, output: Tensor) -> Tensor:
        """output - reference, 0 where both are the same infinity."""
        exact = self.outputs[name]
        return (output.double() - exact).masked_fill(output == exact, 0.0)

    def deviation(self, name: str, output: Tensor) -> Deviation:
        import torch

        errors = self._errors(name, output)
        off = errors.abs()
        limits = torch.as_tensor(self.limits[name], dtype=off.dtype, device=off.device).expand_as(off)
        # Where nothing is allowed an error is infinitely too large, and none is none; NaN is never allowed.
        shares = off / limits
        allowed, others = shares.nan_to_num(nan=0.0), shares.nan_to_num(nan=math.inf)
        place = int(torch.where(off <= limits, allowed, others).argmax())
        spread = self.spreads.get(name)
        together = "" if spread is None else spread.objection(errors, self.outputs[name])
        return Deviation(
            largest(off), float(off.flatten()[place]), float(limits.flatten()[place]), place, together
        )

    def wrong(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Of each output with a wrong element, NaN included: which of its elements are wrong."""
        places = {
            name: ~(self._errors(name, outputs[name]).abs() <= self.limits[name]) for name in self.outputs
        }
        return {name: bad for name, bad in places.items() if bad.any()}

    def passed(self, errors: Mapping[str, Deviation]) -> bool:
        """Whether all errors are within their limits; NaN is not."""
        return all(errors[name].is_allowed for name in self.outputs)


def rest_is_right(reference: Reference, wrong: Collection[str]) -> list[str]:
    """Says which outputs are right, if some are: "dk and dv are right."."""
    right = [name for name in reference.outputs if name not in wrong]
    if not right:
        return []
    if len(right) == 1:
        return [said("{name} is right.", name=right[0])]
    return [said("{names} are right.", names=said(" and ").join(right))]


def is_wrong_text(name: str, bad: Tensor) -> str:
    """Says in how many elements an output is wrong."""
    return said(
        "{name} is wrong in {n:,} of {count:,} elements.", name=name, n=int(bad.sum()), count=bad.numel()
    )


def never_written(x: Tensor) -> Tensor:
    """Whether each element has exactly the bits that outputs are filled with: the largest integer, or a NaN
    that arithmetic does not produce.
    """
    import torch

    if not x.is_floating_point():
        return x == torch.iinfo(x.dtype).max
    bits = torch.int32 if x.element_size() == 4 else torch.int16
    return x.view(bits) == torch.full_like(x, math.nan).view(bits)


#: A factor so near to 1 explains nothing.
_SAME = 0.02


def known_values(got: Tensor, exact: Tensor, bad: Tensor) -> list[str]:
    """Describes what is wrong with an output's values if it is something simple."""
    unwritten = never_written(got)
    if bool(unwritten.any()):
        return [said("{n:,} of its elements are never written.", n=int(unwritten.sum()))]
    if not bool(got.isfinite().all()):
        return [said("{n:,} of its elements are NaN or infinite.", n=int((~got.isfinite()).sum()))]
    if not bool(got[bad].any()):
        return [said("The wrong elements are 0.")]
    factor = float((got.double() * exact).sum() / (exact * exact).sum())
    is_apart = abs(factor - 1) > _SAME
    if is_apart and float((got - factor * exact).abs().max()) <= 0.02 * abs(factor) * float(
        exact.abs().max()
    ):
        return [said("It is the right one times {factor:.4g}.", factor=factor)]
    return []


@dataclass(frozen=True)
class Huge:
    """A problem with tensors of more than 2**32 elements. The last ``blocks`` blocks of each launch, or the
    first ones, compute ``last``, whose tensors are the ends of these in each dimension; before them the
    inputs are zeros. ``rehearsal`` is the same on tensors that fit into memory, with more blocks than these.
    """

    problem: AnyProblem
    rehearsal: AnyProblem
    last: AnyProblem
    blocks: int = 1


class Operation(ABC):
    """Something that stages compute. Operations must define every attribute without a default."""

    name: str
    #: The display name, such as "attention".
    title: str
    problem: type[AnyProblem]
    #: The columns of the table that describe the problem, with their pandas types.
    columns: Mapping[str, str]
    #: The outputs' names. The first one's error is the column ``error``; the others have ``<name>_error``.
    output_names: tuple[str, ...]
    #: The inputs that may have strides; see the feature ``strides`` of stages.
    strided: tuple[str, ...] = ()
    #: The format of --problem and an example: ("B,H,N,M,d", "1,2,256,256,64").
    size_text: tuple[str, str]

    #: The default of ``ladder compare`` on the emulator: about a second of emulation.
    default_problem: AnyProblem
    #: The default on a GPU, large enough to fill one.
    default_gpu_problem: AnyProblem
    #: The default problems of ``ladder check``: sizes that are multiples of tiles, and sizes that are not.
    check_problems: Sequence[AnyProblem]
    #: Problems with at most one block per SM, so that the hardware's counters are exact.
    calibration_problems: Sequence[AnyProblem] = ()
    #: The problems that ``python -m tools.bench gpu`` measures.
    bench_problems: Sequence[AnyProblem] = ()

    @abstractmethod
    def parse(self, size: str, **fields: Any) -> AnyProblem:
        """Parses sizes in the format of :attr:`size_text`. Raises :class:`InvalidProblem`."""

    @abstractmethod
    def size_of(self, problem: Any) -> str:
        """Writes a problem's sizes in the format of :attr:`size_text`."""

    @abstractmethod
    def row(self, problem: Any) -> dict[str, Any]:
        """The values of :attr:`columns`."""

    @abstractmethod
    def arguments(self, problem: Any, tensors: Tensors) -> dict[str, Any]:
        """The fields of the C++ struct other than tensors, by name; ``tensors`` are inputs and outputs."""

    @abstractmethod
    def make_inputs(self, problem: Any, device: str = "cpu") -> dict[str, Tensor | None]:
        """Makes the inputs by name: contiguous, and the same on every machine."""

    @abstractmethod
    def outputs(self, problem: Any) -> Sequence[Output]:
        """The outputs of a stage, in the order of :attr:`output_names`."""

    @abstractmethod
    def reference(self, problem: Any, inputs: Mapping[str, Any]) -> Reference:
        """Computes the exact outputs for these inputs, on their device, with error bounds."""

    @abstractmethod
    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> Sequence[AnyProblem]:
        """A few dozen problems that cover every value of every axis, for a stage that takes these."""

    @abstractmethod
    def boundaries(
        self, dtypes: Sequence[str], head_dims: Sequence[int]
    ) -> Mapping[str, Sequence[AnyProblem]]:
        """Sizes on both sides of the ends of tiles, in named parts, for a stage that takes these."""

    def large(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> Sequence[AnyProblem]:
        """Problems with one large size each: long rows, many rows, many heads."""
        return ()

    def beyond(self, count: int, dtypes: Sequence[str], head_dims: Sequence[int]) -> Sequence[AnyProblem]:
        """Small problems with more than ``count`` of each thing that kernels number, such as sequences, heads
        with keys of their own, and work items; with each feature that a rung may need.
        """
        return ()

    def growing(self, dtype: str, head_dim: int) -> Iterator[Sequence[AnyProblem]]:
        """Series of problems that grow in one direction, by a factor of 2 from each to the next."""
        return iter(())

    def full_matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> Sequence[AnyProblem]:
        """Many more problems, for minutes to hours."""
        return self.matrix(dtypes, head_dims)

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> Sequence[AnyProblem]:
        """Problems that a stage that lists these, and its host code, must refuse."""
        return ()

    def beyond_32_bits(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> Sequence[Huge]:
        """Problems with tensors of more than 2**32 elements, for a stage that takes these."""
        return ()

    def input_shapes(self, problem: Any) -> Mapping[str, Sequence[int]]:
        """The shapes of the inputs of a problem of :meth:`beyond_32_bits`; none where it has none."""
        return {}

    def indices(self, problem: Any, last: Mapping[str, Tensor | None]) -> Mapping[str, Tensor]:
        """The inputs of such a problem that are small and needed whole, as those that say where others lie;
        ``last`` are those of its last blocks.
        """
        return {}

    def random(
        self, seed: int, dtypes: Sequence[str], head_dims: Sequence[int], largest: int
    ) -> Iterator[AnyProblem]:
        """An endless stream of problems for a stage that takes these, from the matrix or of any size up to
        ``largest``; the seed determines it.
        """
        chance = Random(seed)
        known = self.full_matrix(dtypes, head_dims)
        while True:
            yield chance.choice(known)

    def diagnose(
        self, problem: Any, outputs: Mapping[str, Tensor], reference: Reference, owner: str
    ) -> list[str]:
        """Describes in sentences what is wrong with the outputs; empty if they are right. ``owner`` says what
        holds a row: a ``thread``, or the ``fragments`` of a warp.
        """
        sentences = []
        for name, bad in reference.wrong(outputs).items():
            exact = reference.outputs[name]
            place = tuple(int(index) for index in bad.nonzero()[0])
            got, wanted = told_apart(float(outputs[name][place]), float(exact[place]))
            at = f"{name}[{', '.join(map(str, place))}]"
            first = said("The first: {at} is {got}, should be {wanted}.", at=at, got=got, wanted=wanted)
            sentences.append(f"{is_wrong_text(name, bad)} {first}")
            sentences += known_values(outputs[name], exact, bad)
        return sentences

    def needed_bytes(self, problem: Any) -> int:
        """The peak number of bytes while drawing the inputs, running a stage on them and checking it."""
        size = sum(math.prod(one.shape) * (DTYPE_BYTES[one.dtype] + 8) for one in self.outputs(problem))
        return 4 * size

    def title_of(self, row: Mapping[str, Any]) -> str:
        """Describes a row's problem for the table's title, without the dtype, in which stages differ."""
        words = []
        for name, kind in self.columns.items():
            if name == "dtype" or row[name] is None:
                continue
            if kind != "boolean":
                words.append(f"{name}={row[name]}")
            elif row[name]:
                words.append(name)
        return " ".join(words)

    def add_options(self, group: Any) -> None:  # noqa: B027 - most have none
        """Adds command-line options for a problem beyond --problem, --dtype and --inputs.

        Their defaults are None, to tell which are given; :meth:`fields_of` reads them. Options of the same
        name mean the same in all operations.
        """

    def fields_of(self, options: argparse.Namespace) -> dict[str, Any]:
        """The problem's fields that are given by the options of :meth:`add_options`."""
        return {}

    def baselines(self, problem: Any, inputs: Mapping[str, Any]) -> dict[str, Callable[[Any], Any]]:
        """Libraries' implementations on a GPU, by name: functions of the inputs, tried on ``inputs``."""
        return {}

    def part(self, problem: Any, tensors: Mapping[str, Any]) -> tuple[AnyProblem, Mapping[str, Any]]:
        """A part of the problem that is itself a problem, with its part of these inputs or outputs, to check
        when checking everything would take too long.
        """
        return problem, tensors

    def other_inputs(self, inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Makes inputs for timing with the same values in another order, elsewhere in memory."""
        return {
            name: tensor.roll(number, -2)
            if tensor is not None and tensor.is_floating_point() and tensor.dim() > 1
            else None
            if tensor is None
            else tensor.clone()
            for name, tensor in inputs.items()
        }

    @property
    def error_columns(self) -> dict[str, str]:
        """The column of each output's error."""
        first, *others = self.output_names
        return {first: "error", **{name: f"{name}_error" for name in others}}


@cache
def torch_dtypes() -> dict[str, torch.dtype]:
    """torch's dtypes by the names in :data:`DTYPE_BYTES`."""
    import torch

    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32}


def largest(x: Tensor) -> float:
    """max |x|; NaN if x contains NaN, 0 if it is empty."""
    return float(x.abs().max()) if x.numel() else 0.0


def parse_dtype(name: str) -> str:
    """Normalises a dtype's name: ``fp16``, ``float16`` and ``half`` become ``f16``, for instance."""
    short = name.lower().removeprefix("torch.")
    short = _DTYPE_ALIASES.get(short, short)
    if short not in DTYPES:
        raise InvalidProblem(f"dtype {name!r} is none of {', '.join(DTYPES)}")
    return short


def check_dtype(dtype: str | None) -> None:
    """Raises :class:`InvalidProblem` unless ``dtype`` is None or one of :data:`DTYPES`."""
    if dtype is not None and dtype not in DTYPES:
        raise InvalidProblem(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")


def check_size(letter: str, name: str, value: Any) -> None:
    """Raises :class:`InvalidProblem` unless ``value`` is an integer from 1 to :data:`LARGEST_SIZE`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LARGEST_SIZE:
        raise InvalidProblem(
            f"{letter} ({name}) is {value!r}; it must be a whole number from 1 to {LARGEST_SIZE:,}"
        )


def parse_sizes(text: str, size_text: tuple[str, str]) -> list[int]:
    """Parses the integers of ``--problem``. Raises :class:`InvalidProblem` for wrong values or a wrong
    number.
    """
    form, example = size_text
    count = form.count(",") + 1
    try:
        sizes = [int(word) for word in text.split(",")]
    except ValueError:
        sizes = []
    if len(sizes) != count:
        words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
        raise InvalidProblem(
            f"--problem {text!r} is not {words.get(count, str(count))} whole "
            f"number{'s' if count > 1 else ''}",
            f"It is {form}, for example --problem {example}",
        )
    return sizes
