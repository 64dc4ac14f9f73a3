"""A launch and what the interpreter has counted and recorded of it, as objects and as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ladder.run.emulator.bank_model import SharedAccess
from ladder.run.emulator.findings import Finding
from ladder.run.emulator.library import library
from ladder.run.emulator.plain_data import of_type, require_table, whole_numbers

if TYPE_CHECKING:
    import pandas as pd

#: The counters of the emulator and the profiler, which are the columns of every table of counts. A cell whose
#: value a backend cannot know is empty, never 0.
COUNTERS: tuple[str, ...] = tuple(library.counters)


@dataclass(frozen=True)
class WorstAccess(SharedAccess):
    """Of all shared-memory accesses of one instruction, the one with the most conflicts."""

    instruction: int
    block: int
    warp: int


@dataclass(frozen=True)
class ProductOperand:
    """An operand of ``wgmma`` in shared memory: its descriptor's 64 bits, and how many rows it has."""

    descriptor: int
    mn_major: bool
    rows: int


@dataclass(frozen=True)
class Product:
    """The first product of one ``wgmma`` instruction in the lowest block; ``a`` is None in registers."""

    instruction: int
    block: int
    warp: int
    a: ProductOperand | None
    b: ProductOperand


@dataclass(frozen=True)
class TensorBox:
    """The first box of one instruction of TMA in the lowest block.

    ``elements`` and ``coordinates`` are by dimension, the innermost first; ``address`` is in shared memory;
    ``swizzle`` is 0, 32, 64 or 128 bytes.
    """

    instruction: int
    block: int
    warp: int
    address: int
    elements: tuple[int, ...]
    element_bytes: int
    swizzle: int
    coordinates: tuple[int, ...]


@dataclass(frozen=True)
class Copies:
    """How many asynchronous copies to or from shared memory (``cp.async``, TMA) an instruction has issued, by
    warps, and for how many distinct places.
    """

    count: int
    places: int


@dataclass(frozen=True)
class _Record:
    """A launch's record as plain data, from another process."""

    kernel: str
    mangled: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arch: str
    static_shared_bytes: int
    dynamic_shared_bytes: int
    answers: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.answers:
            raise AttributeError(f"the record has no {name}")
        return lambda: self.answers[name]


_FACTS = [field.name for field in fields(_Record) if field.name != "answers"]


#: What a record answers: the totals, and the details by instruction or line.
_TOTALS, _COLUMNS, _BY_INSTRUCTION = (
    "totals",
    ("instructions", "lines"),
    ("worst_accesses", "products", "boxes", "copies"),
)


class Launch:
    """One kernel launch and its counts.

    Of :meth:`Module.launch`, ``findings`` is what the sanitizer found with ``check``, and ``children`` are
    the launches by the kernel's threads and by theirs, in the order in which they ran.
    """

    findings: Sequence[Finding] = ()
    children: Sequence[Launch] = ()

    def __init__(self, record: Any) -> None:
        self._record = record
        self.kernel: str = record.kernel
        self.mangled: str = record.mangled
        self.grid: tuple[int, int, int] = record.grid
        self.block: tuple[int, int, int] = record.block
        self.arch: str = record.arch
        self.static_smem_bytes: int = record.static_shared_bytes
        self.dynamic_smem_bytes: int = record.dynamic_shared_bytes

    def as_data(self, *, details: bool) -> dict[str, Any]:
        """The launch as JSON can hold it: with ``details``, all that it can answer, otherwise its totals."""
        asked = (_TOTALS, *_COLUMNS, *_BY_INSTRUCTION) if details else (_TOTALS,)
        facts = {name: getattr(self._record, name) for name in _FACTS}
        return {**facts, "answers": {name: getattr(self._record, name)() for name in asked}}

    @classmethod
    def from_data(cls, data: Any) -> Launch:
        """The launch that :meth:`as_data` described. Raises some exception for anything else."""
        facts: dict[str, Any] = {name: whole_numbers(data[name], 3) for name in ("grid", "block")}
        for name in ("kernel", "mangled", "arch"):
            facts[name] = of_type(str, data[name])
        for name in ("static_shared_bytes", "dynamic_shared_bytes"):
            facts[name] = of_type(int, data[name])
        answers = dict(data["answers"])
        for count in answers[_TOTALS].values():
            of_type((int, type(None)), count)
        for name in answers.keys() & set(_COLUMNS):
            require_table(answers[name])
        for name in answers.keys() & set(_BY_INSTRUCTION):
            answers[name] = {int(index): one for index, one in answers[name].items()}
        launch = cls(_Record(**facts, answers=answers))
        for name in answers.keys() & set(_BY_INSTRUCTION):
            getattr(launch, name)()
        return launch

    @property
    def smem_bytes(self) -> int:
        """Shared memory per block, static and dynamic."""
        return self.static_smem_bytes + self.dynamic_smem_bytes

    def totals(self) -> dict[str, int | None]:
        """The counter columns summed over all instructions; None if an unmodelled access contributes."""
        return dict(self._record.totals())

    def instructions(self) -> pd.DataFrame:
        """One row per PTX instruction: index, ptx, ptx_line, file, line, kernel_file, kernel_line, own_line,
        counts.
        """
        return _frame(self._record.instructions())

    def lines(self) -> pd.DataFrame:
        """The counters summed by file, line, kernel_file, kernel_line, own_line."""
        return _frame(self._record.lines())

    def worst_accesses(self) -> list[WorstAccess]:
        """For each instruction that accessed shared memory, the access with the most conflicts."""
        worst = self._record.worst_accesses()
        return [
            WorstAccess(instruction=index, **{**access, "addresses": tuple(access["addresses"])})
            for index, access in sorted(worst.items())
        ]

    def products(self) -> list[Product]:
        """For each ``wgmma`` instruction, the operands of its first product."""

        def operand(values: tuple[int, bool, int]) -> ProductOperand:
            return ProductOperand(values[0], values[1], 8 * values[2])

        return [
            Product(index, one["block"], one["warp"], one["a"] and operand(one["a"]), operand(one["b"]))
            for index, one in sorted(self._record.products().items())
        ]

    def boxes(self) -> list[TensorBox]:
        """For each TMA instruction that loads or stores a box of a tensor, its first one."""
        return [
            TensorBox(
                instruction=index,
                **{**one, "elements": tuple(one["elements"]), "coordinates": tuple(one["coordinates"])},
            )
            for index, one in sorted(self._record.boxes().items())
        ]

    def copies(self) -> dict[int, Copies]:
        """The asynchronous copies of each instruction that has any, of the first block."""
        return {index: Copies(*numbers) for index, numbers in sorted(self._record.copies().items())}

    def __repr__(self) -> str:
        return f"<Launch {self.kernel} grid={self.grid} block={self.block} smem_bytes={self.smem_bytes}>"


def _frame(columns: Mapping[str, list[Any]]) -> pd.DataFrame:
    import pandas as pd

    text = {"ptx", "file", "kernel_file"}
    return pd.DataFrame(
        {name: pd.array(v, dtype="Int64") if name not in text else v for name, v in columns.items()}
    )
