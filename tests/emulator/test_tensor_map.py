"""Whatever the 128 bytes of a tensor map hold, TMA says what is wrong and where, or moves a box."""

from __future__ import annotations

import random
import re
import struct

import numpy as np
import pytest

from ladder.emulator import FaultError, Module

COPY = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[box], [%map, {%x, %x}], [bar];"
)
KERNEL = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_map)
{
  .reg .u32 %x; .reg .u64 %map; .reg .pred %done;
  .shared .align 1024 .b8 box[65536];
  .shared .align 8 .b64 bar;
  ld.param.u64 %map, [k_map];
  mov.u32 %x, 0;
  mbarrier.init.shared::cta.b64 [bar], 1;
  COPY
  mbarrier.test_wait.parity.shared::cta.b64 %done, [bar], 0;
  ret;
}
""".replace("COPY", COPY)
COPY_LINE = next(number for number, line in enumerate(KERNEL.splitlines(), 1) if "cp.async" in line)
RANDOM, LIKELY = 2000, 2000

#: The emulator's own form of a map: see TensorMap::store.
FORM = "<QQ4Q5I5H5B6B31x"


@pytest.fixture(scope="module")
def module() -> Module:
    return Module(KERNEL, "sm_90a")


@pytest.fixture(scope="module")
def aligned() -> np.ndarray:
    room = np.zeros(256, np.uint8)
    skipped = -room.ctypes.data % 64
    return room[skipped : skipped + 128]


def outcome(module: Module, place: np.ndarray, content: bytes) -> str:
    """The message of the fault that a load with this map ends in; "" if it moves a box."""
    place[:] = np.frombuffer(content, np.uint8)
    try:
        module.launch("k", 1, 1, [place])
    except FaultError as error:
        assert error.fault.ptx_line == COPY_LINE
        assert error.fault.kind in ("bad operand", "out of bounds")
        return error.fault.message
    return ""


def test_random_bytes_are_no_tensor_map(module: Module, aligned: np.ndarray) -> None:
    generator = random.Random(1)
    contents = [bytes(128), b"\xff" * 128, *(generator.randbytes(128) for _ in range(RANDOM))]
    assert {outcome(module, aligned, content) for content in contents} == {
        "the 128 bytes at this address are no tensor map: cuTensorMapEncodeTiled did not make them"
    }


def with_check(fields: bytes) -> bytes:
    """FNV-1a over what is in front of it."""
    found = 0xCBF29CE484222325
    for byte in fields:
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return fields + struct.pack("<Q", found)


def likely_map(generator: random.Random, tensor: int) -> bytes:
    """A map whose fields are right, or wrong by a little or much."""

    def some(*usual: int, bits: int) -> int:
        kind = generator.random()
        if kind < 0.03:
            return generator.getrandbits(bits)
        value = generator.choice(usual)
        return value if kind < 0.97 else min(2**bits - 1, max(0, value + generator.choice((-1, 1))))

    numbers = [
        0x70614D726F736E54,
        some(tensor, tensor + 64, bits=64),
        *(some(256, 16, 4096, bits=64) for _ in range(4)),
        *(some(63, 7, bits=32) for _ in range(5)),
        *(some(16, 8, 64, bits=16) for _ in range(5)),
        *(some(1, 2, bits=8) for _ in range(5)),
        some(0, 1, 6, 7, bits=8),  # type
        some(2, bits=8),  # rank
        some(0, bits=8),  # interleave
        some(0, 1, 2, 3, bits=8),  # swizzle
        some(0, bits=8),  # L2 promotion
        some(0, bits=8),  # fill
    ]
    fields = struct.pack(FORM, *numbers)
    if generator.random() < 0.1:
        place = generator.randrange(len(fields))
        fields = fields[:place] + generator.randbytes(1) + fields[place + 1 :]
    return with_check(fields)


def test_a_map_with_wrong_fields_names_the_rule(module: Module, aligned: np.ndarray) -> None:
    tensor = np.zeros(1 << 20, np.uint8)
    generator = random.Random(2)
    base = tensor.ctypes.data + -tensor.ctypes.data % 128
    found: dict[str, int] = {}
    for _ in range(LIKELY):
        message = outcome(module, aligned, likely_map(generator, base))
        rule = re.sub(r"\d+", "N", message)
        found[rule] = found.get(rule, 0) + 1
    assert all(message == "" or len(message) > 20 for message in found)
    assert sum("breaks a rule" in message for message in found) >= 10
    assert any("more than the N that are swizzled together" in message for message in found)
    assert any("no tensor map" in message for message in found)


@pytest.mark.parametrize(("shift", "message"), [(16, "no multiple of 64"), (1 << 40, "no allocation holds")])
def test_a_map_at_a_wrong_place(module: Module, aligned: np.ndarray, shift: int, message: str) -> None:
    text = KERNEL.replace(
        "ld.param.u64 %map, [k_map];", f"ld.param.u64 %map, [k_map]; add.u64 %map, %map, {shift};"
    )
    with pytest.raises(FaultError, match=message) as caught:
        Module(text, "sm_90a").launch("k", 1, 1, [aligned])
    assert caught.value.fault.ptx_line == COPY_LINE
