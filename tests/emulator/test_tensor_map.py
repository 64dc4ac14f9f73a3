"""Whatever the 128 bytes of a tensor map hold, TMA says what is wrong and where, or moves a box."""

from __future__ import annotations

import random
import re
import struct

import numpy as np
import pytest

from ladder.run.emulator import FaultError, InOut, Module

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
FORM = "<Q8BQ4Q5Q5H5B9x"


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
        "the 128 bytes at this address are not a tensor map made by cuTensorMapEncodeTiled"
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
        some(0, 1, 6, 7, bits=8),  # type
        some(2, bits=8),  # rank
        0,  # what programs clear
        some(0, bits=8),  # interleave
        some(0, 1, 2, 3, bits=8),  # swizzle
        some(0, bits=8),  # L2 promotion
        some(0, bits=8),  # fill
        0,
        some(tensor, tensor + 64, bits=64),
        *(some(256, 16, 4096, bits=64) for _ in range(4)),
        *(some(64, 8, bits=64) for _ in range(5)),
        *(some(16, 8, 64, bits=16) for _ in range(5)),
        *(some(1, 2, bits=8) for _ in range(5)),
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
    assert any("more than the swizzle span of N bytes" in message for message in found)
    assert any("not a tensor map" in message for message in found)


@pytest.mark.parametrize(
    ("shift", "message"), [(16, "not a multiple of 64"), (1 << 40, "no allocation holds")]
)
def test_a_map_at_a_wrong_place(module: Module, aligned: np.ndarray, shift: int, message: str) -> None:
    text = KERNEL.replace(
        "ld.param.u64 %map, [k_map];", f"ld.param.u64 %map, [k_map]; add.u64 %map, %map, {shift};"
    )
    with pytest.raises(FaultError, match=message) as caught:
        Module(text, "sm_90a").launch("k", 1, 1, [aligned])
    assert caught.value.fault.ptx_line == COPY_LINE


#: What Triton makes of a descriptor that a kernel creates: zeros in shared memory, each field replaced, and a
#: copy in global memory. A tensor of 16 x 32 floats, a box of 4 x 8.
FIELDS = """
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r_map + 0], %tensor;
  tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r_map + 0], 0x1;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r_map + 0], 0x0, 0x8;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r_map + 0], 0x1, 0x4;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r_map + 0], 0x0, %width;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r_map + 0], 0x1, 0x10;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r_map + 0], 0x0, %stride;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r_map + 0], 0x0, 0x1;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r_map + 0], 0x1, 0x1;
  tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r_map + 0], 0x7;
  tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r_map + 0], 0x0;
  tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r_map + 0], 0x0;
  tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r_map + 0], 0x0;
"""
REPLACED = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 k_tensor, .param .u64 k_map, .param .u64 k_out)
{
  .reg .b32 %r<8>; .reg .b32 %r_map, %width; .reg .b64 %map, %tensor, %stride, %out, %at; .reg .pred %p<3>;
  .shared .align 128 .b8 zeros[128];
  .shared .align 128 .b8 box[128];
  .shared .align 8 .b64 bar;
  ld.param.u64 %tensor, [k_tensor];
  ld.param.u64 %map, [k_map];
  ld.param.u64 %out, [k_out];
  mov.u32 %r0, %tid.x;
  setp.eq.u32 %p0, %r0, 0;
  mov.u32 %r_map, zeros;
  mad.lo.u32 %r1, %r0, 4, %r_map;
  mov.b32 %r2, 0;
  st.shared.b32 [%r1 + 0], %r2;
  bar.warp.sync 0xffffffff;
  mov.u32 %width, 32;
  mov.u64 %stride, 128;
  @!%p0 bra copied;
  FIELDS
copied:
  bar.warp.sync 0xffffffff;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
    [%map + 0], [%r_map + 0], 0x80;
  fence.proxy.tensormap::generic.acquire.gpu [%map + 0], 0x80;
  mov.u32 %r3, bar;
  @%p0 mbarrier.init.shared::cta.b64 [%r3], 1;
  fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
  mov.u32 %r4, box;
  mov.u32 %r5, 8;
  mov.u32 %r6, 2;
  @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r4], [%map, {%r5, %r6}], [%r3];
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;
  @!%p1 bra wait;
  mad.lo.u32 %r7, %r0, 4, %r4;
  ld.shared.b32 %r2, [%r7];
  mad.wide.u32 %at, %r0, 4, %out;
  st.global.b32 [%at], %r2;
  ret;
}
"""


def replaced(fields: list[str], aligned: np.ndarray) -> np.ndarray:
    """What a kernel loads with a map of these fields."""
    tensor = np.arange(16 * 32, dtype=np.float32).reshape(16, 32)
    out = np.zeros((4, 8), np.float32)
    module = Module(REPLACED.replace("FIELDS", "\n".join(fields)), "sm_90a")
    launch = module.launch("k", 1, 32, [InOut(tensor), InOut(aligned), out], check=True)
    if launch.findings:
        raise AssertionError(launch.findings[0].message)
    np.testing.assert_array_equal(out, tensor[2:6, 8:16])
    return out


def test_zeros_whose_fields_a_kernel_replaces_are_a_map(aligned: np.ndarray) -> None:
    fields = FIELDS.strip().splitlines()
    replaced(fields, aligned)
    replaced(fields[::-1], aligned)


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("global_address", "the global address is null"),
        ("global_dim", r"globalDim\[0\] is 0"),
        ("box_dim", r"boxDim\[0\] is 0"),
        ("element_stride", r"elementStrides\[0\] is 0"),
    ],
)
def test_a_field_that_is_left_out_is_named(field: str, rule: str, aligned: np.ndarray) -> None:
    fields = [line for line in FIELDS.strip().splitlines() if f".{field}." not in line]
    with pytest.raises(AssertionError, match=rule):
        replaced(fields, aligned)
