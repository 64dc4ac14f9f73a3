"""Kernels of a PTX text, launched on arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ladder.run.emulator.faults import Fault, FaultError, PtxError
from ladder.run.emulator.launches import Launch
from ladder.run.emulator.library import library
from ladder.run.emulator.sessions import DEFAULT_ARCH, MemoryRange, merged_memory, session

Size = int | Sequence[int]


_FORMATS = {
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "s8": "b", "s16": "h", "s32": "i", "s64": "q",
    "b8": "B", "b16": "H", "b32": "I", "b64": "Q", "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip


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
            self._module = library.Module(ptx_text, arch)
        except library.PtxError as error:
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
        """Runs a kernel to its end, and the kernels that its threads launch.

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
            except library.FaultError as error:
                library.raise_interrupt()
                raise FaultError(Fault(**error.args[0])) from None
        launch, *launch.children = opened.launches
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
