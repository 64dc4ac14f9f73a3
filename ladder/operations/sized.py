"""Base classes of operations whose problem is a few sizes, a dtype and a kind of inputs."""

from __future__ import annotations

import itertools
import math
import shlex
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ladder.errors import InvalidProblem
from ladder.operations.base import (
    DTYPE_BYTES,
    DTYPES,
    AnyProblem,
    Operation,
    Tensors,
    check_dtype,
    check_size,
    parse_sizes,
    torch_dtypes,
)
from ladder.operations.pairwise import pairwise, product

#: Rounding error of fp32.
U = 2.0**-24
#: The number of standard deviations that a sum of normal terms exceeds only once in 4 * 10^11 times.
DEVIATIONS = 7.0
#: How often :meth:`SizedOperation.growing` doubles a size.
_DOUBLINGS = 6
_ROUNDING = {"f32": U, "f16": 2.0**-11, "bf16": 2.0**-8}
_F16_SUBNORMAL = 2.0**-25


@dataclass(frozen=True)
class SizedProblem(AnyProblem):
    """A problem of sizes, which subclasses add as fields. Raises :class:`InvalidProblem`."""

    #: The letter of each size, by field name.
    letters: ClassVar[Mapping[str, str]]
    #: The kinds of inputs, with the factor that each applies to standard normal values.
    kinds: ClassVar[Mapping[str, float]] = {"normal": 1.0}

    dtype: str | None = field(default=None, kw_only=True)
    inputs: str = field(default="normal", kw_only=True)

    def __post_init__(self) -> None:
        for name, letter in self.letters.items():
            check_size(letter, name, getattr(self, name))
        check_dtype(self.dtype)
        if self.inputs not in self.kinds:
            raise InvalidProblem(f"inputs {self.inputs!r} is none of {', '.join(self.kinds)}")

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes by field name."""
        return {name: getattr(self, name) for name in self.letters}

    @property
    def rounding(self) -> float:
        """Relative error of rounding to the dtype."""
        return _ROUNDING[self.dtype or "f32"]

    @property
    def underflow(self) -> float:
        """Absolute error of rounding the smallest numbers to the dtype."""
        return _F16_SUBNORMAL if self.dtype == "f16" else 0.0

    @property
    def command_options(self) -> str:
        words = ["--problem", ",".join(map(str, self.sizes.values()))]
        words += ["--dtype", self.dtype] if self.dtype else []
        words += ["--inputs", self.inputs] if self.inputs != "normal" else []
        return shlex.join(words)

    def __str__(self) -> str:
        words = [f"{self.letters[name]}={size}" for name, size in self.sizes.items()]
        words += [self.dtype] if self.dtype else []
        words += [f"{self.inputs} inputs"] if self.inputs != "normal" else []
        return " ".join(words)


class SizedOperation(Operation):
    """An operation on a :class:`SizedProblem`; subclasses define ``title``, problems and abstract methods."""

    problem: type[SizedProblem]
    #: The values of each size in the matrix, by field name.
    axes: Mapping[str, Sequence[int]]
    #: Values on both sides of the ends of tiles, for the sizes that need not be multiples of them.
    edges: Mapping[str, Sequence[int]]

    @abstractmethod
    def input_shapes(self, problem: Any) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs by name; all have the problem's dtype."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.problem.operation

    @property
    def columns(self) -> dict[str, str]:  # type: ignore[override]
        return {**dict.fromkeys(self.problem.letters.values(), "Int64"), "dtype": "string"}

    @property
    def size_text(self) -> tuple[str, str]:  # type: ignore[override]
        return ",".join(self.problem.letters.values()), self.size_of(self.default_problem)

    def parse(self, size: str, **fields: Any) -> SizedProblem:
        return self.problem(*parse_sizes(size, self.size_text), **fields)

    def size_of(self, problem: Any) -> str:
        return ",".join(map(str, problem.sizes.values()))

    def row(self, problem: SizedProblem) -> dict[str, Any]:
        sizes = {problem.letters[name]: size for name, size in problem.sizes.items()}
        return {**sizes, "dtype": problem.dtype}

    def arguments(self, problem: SizedProblem, tensors: Tensors) -> dict[str, Any]:
        return {**problem.sizes, "dtype": problem.dtype}

    def make_inputs(self, problem: SizedProblem, device: str = "cpu") -> dict[str, Any]:
        """Draws standard normal inputs, times the factor of their kind."""
        import torch

        generator = torch.Generator().manual_seed(0)
        dtype, factor = torch_dtypes()[problem.dtype or "f32"], problem.kinds[problem.inputs]
        return {
            name: (torch.randn(shape, generator=generator) * factor).to(device, dtype)
            for name, shape in self.input_shapes(problem).items()
        }

    def matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[SizedProblem]:
        return [self.problem(**row) for row in pairwise(self._all_axes(dtypes))]

    def full_matrix(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[SizedProblem]:
        return [self.problem(**row) for row in product(self._all_axes(dtypes))]

    def growing(self, dtype: str, head_dim: int) -> Iterator[list[SizedProblem]]:
        """Each size in turn, from its first value in the matrix on."""
        sizes: dict[str, Any] = {name: values[0] for name, values in self.axes.items()}
        for name, first in sizes.items():
            yield [self.problem(**{**sizes, name: first * 2**n}, dtype=dtype) for n in range(_DOUBLINGS)]

    def boundaries(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> dict[str, list[SizedProblem]]:
        """Problems with one size at an edge and the others at their first values in the matrix."""
        sizes: dict[str, Any] = {name: values[0] for name, values in self.axes.items()}
        turns = itertools.cycle(dtypes)
        problems = [
            self.problem(**{**sizes, name: edge}, dtype=next(turns))
            for name, edges in self.edges.items()
            for edge in edges
        ]
        return {"sizes": problems}

    def _all_axes(self, dtypes: Sequence[str]) -> dict[str, tuple[Any, ...]]:
        sizes = {name: tuple(values) for name, values in self.axes.items()}
        return {**sizes, "dtype": tuple(dtypes), "inputs": tuple(self.problem.kinds)}

    def refused(self, dtypes: Sequence[str], head_dims: Sequence[int]) -> list[SizedProblem]:
        sizes = [values[-1] for values in self.axes.values()]
        return [self.problem(*sizes, dtype=dtype) for dtype in DTYPES if dtype not in dtypes]

    def needed_bytes(self, problem: SizedProblem) -> int:
        """The bytes of the inputs in fp32, rounded and in float64, and of six tensors as large as the output
        for the reference and its bound.
        """
        item = DTYPE_BYTES[problem.dtype or "f32"]
        inputs = sum(map(math.prod, self.input_shapes(problem).values()))
        outputs = sum(math.prod(one.shape) for one in self.outputs(problem))
        return inputs * (4 + item + 8) + outputs * (item + 6 * 8)
