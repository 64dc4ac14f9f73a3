"""The CUDA emulator's Python interface: PTX in, results and counts out.

:class:`Module` launches kernels of a PTX text on arrays; :func:`session` records the launches of an extension
linked to the emulated CUDA runtime; :func:`shared_access` asks the bank model about one access.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ladder.emulator import variables
from ladder.emulator.findings import Finding, parse_findings
from ladder.errors import ExecutionError, LadderError

variables.validate()  # the library reads them when it is loaded
from ladder import _emulator  # noqa: E402

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_ARCH = "sm_80"

#: The counters of the emulator and the profiler, which are the columns of every table of counts. A cell whose
#: value a backend cannot know is empty, never 0.
COUNTERS: tuple[str, ...] = tuple(_emulator.counters)

Size = int | Sequence[int]
#: (address, bytes, name for messages, whether kernels may write to it).
MemoryRange = tuple[int, int, str, bool]

_FORMATS = {
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "s8": "b", "s16": "h", "s32": "i", "s64": "q",
    "b8": "B", "b16": "H", "b32": "I", "b64": "Q", "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip


class PtxError(LadderError, ValueError):
    """The PTX is malformed at ``line`` (1-based); ``text`` says how."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"PTX line {line}: {text}" if line else text)
        self.line = line
        self.text = text


@dataclass(frozen=True)
class Fault:
    """An operation of a kernel that a GPU rejects or leaves undefined, and its place.

    ``file`` and ``line`` locate the instruction, ``kernel_file`` and ``kernel_line`` the kernel's line that
    it was inlined into, ``own_line`` the innermost line in ``kernel_file``; without ``-lineinfo`` they are
    empty and 0. ``warp`` and ``lane`` are -1 if no single one is to blame; ``address`` is None if none is
    involved.
    """

    kind: str
    message: str
    kernel: str
    block: tuple[int, int, int]
    warp: int
    lane: int
    thread: tuple[int, int, int]
    address: int | None
    opcode: str
    file: str
    line: int
    kernel_file: str
    kernel_line: int
    own_line: int
    ptx_line: int
    text: str

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Fault:
        """The fault that ``vars(fault)`` described, by way of JSON; some exception for anything else."""
        checked: dict[str, Any] = {name: _whole_numbers(data[name], 3) for name in ("block", "thread")}
        for name in data.keys() - checked:
            checked[name] = _of_type((int, str, type(None)), data[name])
        return cls(**checked)

    def __str__(self) -> str:
        return self.text


class FaultError(ExecutionError):
    """A launch ended in ``fault``."""

    def __init__(self, fault: Fault, hint: str = "") -> None:
        super().__init__(fault.text, hint)
        self.fault = fault


@dataclass(frozen=True)
class SharedAccess:
    """The cost of one access of a warp to shared memory.

    ``wavefronts`` is the hardware's count for the access, ``passes`` the number of groups that its lanes are
    served in, ``conflicts`` the wavefronts added by bank conflicts, ``ideal`` the wavefronts that its
    distinct bytes would fill at 128 each.
    """

    op: str
    width: int
    addresses: tuple[int | None, ...]
    wavefronts: int
    passes: int
    conflicts: int
    ideal: int


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

    ``findings`` is what the sanitizer found, for :meth:`Module.launch` with ``check``.
    """

    findings: Sequence[Finding] = ()

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
        facts: dict[str, Any] = {name: _whole_numbers(data[name], 3) for name in ("grid", "block")}
        for name in ("kernel", "mangled", "arch"):
            facts[name] = _of_type(str, data[name])
        for name in ("static_shared_bytes", "dynamic_shared_bytes"):
            facts[name] = _of_type(int, data[name])
        answers = dict(data["answers"])
        for count in answers[_TOTALS].values():
            _of_type((int, type(None)), count)
        for name in answers.keys() & set(_COLUMNS):
            _require_table(answers[name])
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


def _of_type(kind: type | tuple[type, ...], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind}")
    return value


def _require_table(columns: Mapping[str, list[Any]]) -> None:
    """Raises ValueError or TypeError unless the columns are equally long and hold numbers and texts."""
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("columns of different lengths")
    for name, column in columns.items():
        # By type, since there are a hundred thousand cells.
        if not {*map(type, column)} <= {int, bool, str, type(None)}:
            raise TypeError(f"{name} holds something else than numbers and texts")


def _whole_numbers(values: Any, count: int) -> tuple[Any, ...]:
    if len(values) != count:
        raise ValueError(f"{values!r} are not {count} numbers")
    return tuple(_of_type(int, value) for value in values)


def _frame(columns: Mapping[str, list[Any]]) -> pd.DataFrame:
    import pandas as pd

    text = {"ptx", "file", "kernel_file"}
    return pd.DataFrame(
        {name: pd.array(v, dtype="Int64") if name not in text else v for name, v in columns.items()}
    )


@dataclass
class Session:
    """The launches since :func:`session` began; once it has ended, also the sanitizer's findings."""

    arch: str
    _session: Any = field(repr=False)

    @property
    def launches(self) -> list[Launch]:
        return [Launch(record) for record in self._session.launches()]

    @property
    def findings_json(self) -> str:
        """What the sanitizer says, faults and remarks, for :func:`ladder.emulator.parse_findings`; empty
        until the session has ended.
        """
        return str(self._session.findings())

    @property
    def findings(self) -> list[Finding]:
        """The findings of a session with ``check``; empty until the session has ended."""
        return parse_findings(self.findings_json)[0]

    @property
    def host_uses(self) -> list[tuple[str, str]]:
        """What the program's own code did with device memory in a session with ``watch_host``: the memory's
        name, "" if the program allocated it, and ``touched``, ``copied to the host`` or ``copied from the
        host``. Empty until the session has ended.
        """
        return list(self._session.host_uses())


#: A process has one device, so sessions of other threads wait. One thread may nest sessions.
_one_at_a_time = threading.RLock()


@contextmanager
def session(
    arch: str = DEFAULT_ARCH,
    memory: Sequence[MemoryRange] = (),
    threads: int | None = None,
    check: bool = False,
    backwards: bool = False,
    unwritten: int = 0xFF,
    skip_kernels: bool = False,
    first_blocks: int = 0,
    last_blocks: int = 0,
    multiprocessors: int = 0,
    watch_host: bool = False,
    instruction_limit: int = 0,
    filled: Sequence[tuple[int, int]] = (),
) -> Iterator[Session]:
    """Gives the process a virtual GPU of this architecture for the duration of the block.

    ``memory`` lists the memory that kernels may use besides CUDA allocations: (address, bytes, name,
    writable). ``threads`` is the number of host threads (None: ``LADDER_THREADS``, else all cores); results
    do not depend on it. ``check`` turns the sanitizer on: it records faults, lets kernels continue where
    possible, and takes all writable memory for outputs that must be written. ``backwards`` runs blocks, and
    the warps of each block, from last to first, but interrupts every second block soon after its start until
    the next one has run; it uses one host thread, so that the order is the same on every machine.
    ``unwritten`` is the value of every byte that has not been written (0xFF is NaN in every format). A
    correct kernel's results depend on neither. ``skip_kernels`` validates launches without running them, so
    that only the host writes. Unless both are 0, only so many ``first_blocks`` or ``last_blocks`` (or
    clusters) of a launch run, and the GPU has a multiprocessor for each block. Unless it is 0, the GPU has so
    many ``multiprocessors``. ``watch_host`` closes ``memory``, whose pages must hold nothing else, and what
    the program allocates on the device to the program's own code. A warp that has executed
    ``instruction_limit`` instructions ends its launch (0: see :func:`ladder.emulator.instruction_limit`).
    ``filled`` lists the parts of ``memory``, as (address, bytes), whose contents count as written before the
    first launch.

    Starting a session clears an earlier fault. Ctrl-C during a launch ends it and raises KeyboardInterrupt
    here. The call waits for sessions of other threads.

    Raises ValueError for an unknown architecture, or for memory ranges that partly overlap.
    """
    with _one_at_a_time:
        handle = _emulator.Session(
            arch=arch,
            memory=list(memory),
            threads=variables.number(variables.THREADS, 0) if threads is None else threads,
            instruction_limit=instruction_limit
            or variables.most_instructions(_emulator.default_instruction_limit),
            check=check,
            backwards=backwards,
            unwritten=unwritten,
            skip_kernels=skip_kernels,
            first_blocks=first_blocks,
            last_blocks=last_blocks,
            multiprocessors=multiprocessors,
            watch_host=watch_host,
            filled=list(filled),
        )
        try:
            yield Session(arch, handle)
        finally:
            handle.end()
            _emulator.raise_interrupt()


def last_fault() -> Fault | None:
    """The fault of the last faulty launch, or None if there was none since the session began."""
    found = _emulator.last_fault()
    return Fault(**found) if found else None


@dataclass(frozen=True)
class InOut:
    """An argument of :meth:`Module.launch`: an array whose contents the kernel reads, and then overwrites.

    It may have any strides; the kernel may use the memory from its first to its last element. To ``check``
    its contents count as written, whereas it takes any other array that may be written for an output, so that
    reading it before it is written is a fault.
    """

    array: Any


class Module:
    """The kernels of a PTX text.

    Raises :class:`PtxError` if it is malformed. A kernel's instructions are checked at launch.
    """

    def __init__(self, ptx_text: str, arch: str = DEFAULT_ARCH) -> None:
        self.arch = arch
        try:
            self._module = _emulator.Module(ptx_text, arch)
        except _emulator.PtxError as error:
            raise PtxError(*error.args) from None

    @property
    def kernels(self) -> list[str]:
        """The (mangled) names of the PTX's entries."""
        return list(self._module.kernels())

    def launch(
        self,
        name: str,
        grid: Size,
        block: Size,
        args: Sequence[Any] = (),
        smem_bytes: int = 0,
        threads: int | None = None,
        check: bool = False,
    ) -> Launch:
        """Runs a kernel to its end.

        ``args`` has one value per parameter: an int or float, bytes for a struct, or a NumPy array or CPU
        tensor, whose memory the kernel may read and, unless it is read-only, write during the call.
        ``smem_bytes`` is the amount of dynamic shared memory. With ``check`` the sanitizer records faults in
        the launch's ``findings``, and the kernel goes on where possible; it takes every array that may be
        written for an output, whose contents are undefined, unless it is given as :class:`InOut`.

        Raises :class:`FaultError`, KeyError for an unknown kernel, TypeError or ValueError for arguments that
        do not fit.
        """
        parameters = self._module.parameters(name)
        if len(args) != len(parameters):
            raise TypeError(f"{name} takes {len(parameters)} arguments, not {len(args)}")
        block_of_arguments = bytearray(self._module.parameter_bytes(name))
        memory: list[MemoryRange] = []
        filled: list[tuple[int, int]] = []
        for number, (value, (kind, size, offset)) in enumerate(zip(args, parameters, strict=True)):
            what, arrays = f"argument {number} of {name}", len(memory)
            in_out = isinstance(value, InOut)
            data = _argument(value.array if in_out else value, kind, size, what, memory, any_strides=in_out)
            if in_out and len(memory) == arrays:
                raise TypeError(f"{what} is InOut of {type(value.array).__name__}, which is no array")
            if in_out:
                filled.append(memory[-1][:2])
            block_of_arguments[offset : offset + size] = data
        # Views of one array may overlap, so merge them into one range.
        with session(self.arch, merged_memory(memory), threads, check, filled=filled) as opened:
            try:
                self._module.launch(name, _size(grid), _size(block), bytes(block_of_arguments), smem_bytes)
            except _emulator.FaultError as error:
                _emulator.raise_interrupt()
                raise FaultError(Fault(**error.args[0])) from None
        launch = opened.launches[-1]
        launch.findings = opened.findings
        return launch


def _size(size: Size) -> tuple[int, int, int]:
    values = (size,) if isinstance(size, int) else tuple(int(n) for n in size)
    if not 1 <= len(values) <= 3 or any(not 0 <= n < 2**32 for n in values):
        raise ValueError(f"{size!r} is no size of a grid or block")
    padded = (*values, 1, 1)[:3]
    return (padded[0], padded[1], padded[2])


def _argument(
    value: Any, kind: str, size: int, what: str, memory: list[MemoryRange], any_strides: bool
) -> bytes:
    """Encodes one argument; adds the memory of an array to ``memory``."""
    if isinstance(value, bytes | bytearray):
        if len(value) != size:
            raise ValueError(f"{what} has {size} bytes, not {len(value)}")
        return bytes(value)
    found = _array_memory(value, what, any_strides)
    if found is not None:
        if size != 8:
            raise TypeError(f"{what} is a .{kind} of {size} bytes, not a pointer")
        memory.append(found)
        return struct.pack("<Q", found[0])
    if hasattr(value, "item"):
        value = value.item()
    layout = _FORMATS.get(kind)
    if layout is None or struct.calcsize(layout) != size:
        raise TypeError(f"{what} is a .{kind} of {size} bytes; give it as bytes")
    if isinstance(value, float) and layout in "BHIQbhiq":
        raise TypeError(f"{what} is a .{kind}, not a float")
    if layout in "BHIQ" and isinstance(value, int) and value < 0:
        value += 1 << (8 * size)
    if layout in "bhiq" and isinstance(value, int) and value >= 1 << (8 * size - 1):
        value -= 1 << (8 * size)
    try:
        return struct.pack("<" + layout, value)
    except struct.error as error:
        raise ValueError(f"{what} is a .{kind}; {value!r} does not fit: {error}") from None


def _array_memory(value: Any, what: str, any_strides: bool = False) -> MemoryRange | None:
    """The memory of a NumPy array or CPU tensor; None for other values."""
    if hasattr(value, "data_ptr"):
        if value.device.type != "cpu":
            raise ValueError(f"{what} is on {value.device}; the emulator takes CPU tensors")
        if not value.is_contiguous() and not any_strides:
            raise ValueError(f"{what} is not contiguous")
        item = value.element_size()
        return (value.data_ptr(), _extent(value.shape, value.stride(), item, what, item), what, True)
    if hasattr(value, "__array_interface__") and getattr(value, "ndim", 0) > 0:
        if not value.flags.c_contiguous and not any_strides:
            raise ValueError(f"{what} is not contiguous")
        extent = _extent(value.shape, value.strides, value.itemsize, what)
        return (value.ctypes.data, extent, what, bool(value.flags.writeable))
    return None


def _extent(shape: Sequence[int], strides: Sequence[int], item_bytes: int, what: str, unit: int = 1) -> int:
    """Bytes from the first element to the end of the last; ``strides`` count in ``unit`` bytes."""
    if 0 in shape:
        return 0
    if any(stride < 0 for size, stride in zip(shape, strides, strict=True) if size > 1):
        raise ValueError(f"{what} has a negative stride; copy it first")
    return unit * sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + item_bytes


def merged_memory(memory: Sequence[MemoryRange]) -> list[MemoryRange]:
    """Merges ranges that overlap, as those of several views of one tensor may."""
    merged: list[MemoryRange] = []
    for address, size, name, writable in sorted(memory):
        if merged and address < merged[-1][0] + merged[-1][1]:
            begin, known, first, may_write = merged[-1]
            end = max(begin + known, address + size)
            merged[-1] = (
                begin,
                end - begin,
                first if name == first else f"{first}, {name}",
                may_write or writable,
            )
        else:
            merged.append((address, size, name, writable))
    return merged


def shared_access(op: str, width: int, addresses: Sequence[int | None]) -> SharedAccess:
    """The cost of one access of a warp to shared memory, by the interpreter's own model.

    ``op`` is ld, st, ldmatrix, stmatrix, atom.add, atom.cas or cp.async; ``width`` is the number of bytes per
    lane or, for ldmatrix and stmatrix, of 8x8 tiles (1, 2 or 4; lanes 8i to 8i+7 address the rows of tile i);
    ``addresses`` holds the byte addresses of the 32 lanes, None for inactive ones.

    Raises ValueError for an invalid access, or one that the model does not cover (cp.async of 4 and 8 bytes).
    """
    lanes = _lane_addresses(addresses)
    wavefronts, passes, conflicts, ideal = _emulator.shared_access(op, width, list(lanes))
    return SharedAccess(op, width, lanes, wavefronts, passes, conflicts, ideal)


def shared_passes(op: str, width: int, addresses: Sequence[int | None]) -> list[tuple[int, int]]:
    """The passes that serve such an access, in order: (mask of lanes, wavefronts).

    Raises ValueError like :func:`shared_access`.
    """
    return list(_emulator.shared_passes(op, width, list(_lane_addresses(addresses))))


def operand_chunks(descriptor: int, mn_major: bool, groups: int) -> list[tuple[int, int]]:
    """Where a product finds an operand in shared memory: (address without the swizzle, address) of each 16
    bytes, a chunk.

    ``descriptor`` is the matrix descriptor of ``wgmma``; ``groups`` the operand's rows over 8. The chunks
    come by group, then by the two along k, then by the 8 rows; MN-major by group of 8 elements, then by 8
    lines along k, then by line.
    """
    return list(_emulator.operand_chunks(descriptor, mn_major, groups))


def box_chunks(
    address: int, elements: Sequence[int], element_bytes: int, swizzle: int
) -> list[tuple[int, int]]:
    """Where TMA keeps a box in shared memory: (address without the swizzle, address) of each 16 bytes of it.

    ``elements`` are by dimension, the innermost first; ``swizzle`` is 0, 32, 64 or 128 bytes.

    Raises ValueError with the rule that the box breaks.
    """
    numbers = (address, element_bytes, swizzle, *elements)
    if any(not 0 <= number < 2**32 for number in numbers):
        raise ValueError(f"{max(numbers, key=abs)} is no number of 32 bits")
    return list(_emulator.box_chunks(address, list(elements), element_bytes, swizzle))


def _lane_addresses(addresses: Sequence[int | None]) -> tuple[int | None, ...]:
    lanes = tuple(None if address is None else int(address) for address in addresses)
    if any(address is not None and not 0 <= address < 2**32 for address in lanes):
        raise ValueError("an address in shared memory is a number of 32 bits")
    return lanes


@dataclass(frozen=True)
class VirtualGpu:
    """A GPU that can be emulated."""

    arch: str
    name: str
    multiprocessors: int
    shared_bytes_per_block: int
    shared_bytes_per_block_opt_in: int
    shared_bytes_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    registers_per_multiprocessor: int


def virtual_gpus() -> list[VirtualGpu]:
    """The GPUs that can be named as ``arch``."""
    names = [f.name for f in fields(VirtualGpu)]
    return [VirtualGpu(**{name: gpu[name] for name in names}) for gpu in _emulator.gpus()]
