"""Compares wgmma with NumPy: every shape, type and shared-memory layout, and operands in registers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from warp_kernel import kernel_text

from ladder.run.emulator import FaultError, Module

RNG = np.random.default_rng(7)
THREADS = 128
SHARED = 150 * 1024
SHARED_BEGIN = 1024  # where a block's shared memory begins


# --- layouts of operands (CuTe's canonical layouts of GMMA descriptors, in bytes) ---------------------------

MODES = {"none": 0, "32": 3, "64": 2, "128": 1}
SPAN = {"none": 16, "32": 32, "64": 64, "128": 128}


def swizzle(offsets: np.ndarray, mode: str) -> np.ndarray:
    """Swizzle<B, 4, 3>: XORs bits 7 .. 7 + B - 1 into bits 4 .. 4 + B - 1."""
    bits = SPAN[mode] // 16 - 1
    return offsets ^ (offsets >> 3 & bits << 4)


@dataclass(frozen=True)
class Layout:
    """The placement in shared memory of an operand of ``rows`` (M or N) by ``k`` elements."""

    mode: str
    mn_major: bool
    leading: int
    stride: int
    start: int

    def offsets(self, rows: int, k: int, size: int) -> np.ndarray:
        """Byte offsets in shared memory, [rows, k]."""
        per = 16 // size
        r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
        span = SPAN[self.mode]
        if self.mn_major:
            if self.mode == "none":  # ((T,1,m),(8,k)):((1,T,SBO),(1T,LBO))
                place = r % per * size + r // per * self.stride + c % 8 * 16 + c // 8 * self.leading
            else:  # ((T,W,m),(8,k)):((1,T,LBO),(W T,SBO))
                wide = span // size
                place = r % wide * size + r // wide * self.leading + c % 8 * span + c // 8 * self.stride
        elif self.mode == "none":  # ((8,m),(T,2)):((1T,SBO),(1,LBO))
            place = r % 8 * 16 + r // 8 * self.stride + c % per * size + c // per * self.leading
        else:  # ((8,m),(T,2)):((W T,SBO),(1,T))
            place = r % 8 * span + r // 8 * self.stride + c * size
        return swizzle(self.start + place, self.mode)

    @property
    def descriptor(self) -> int:
        return (
            (self.start & 0x3FFFF) >> 4
            | (self.leading >> 4) << 16
            | (self.stride >> 4) << 32
            | MODES[self.mode] << 62
        )


def layout(mode: str, mn_major: bool, rows: int, start: int, step: int = 0) -> Layout:
    """A dense layout; ``step`` advances its start by k-steps within a swizzled row."""
    span = SPAN[mode]
    if mn_major:
        if mode == "none":
            return Layout(mode, True, leading=rows // 8 * 128 + 128, stride=128, start=start)
        return Layout(mode, True, leading=16 * span, stride=8 * span, start=start)
    if mode == "none":
        return Layout(mode, False, leading=128, stride=256 + 128, start=start)
    return Layout(mode, False, leading=16, stride=8 * span, start=start + step)


# --- the kernel -------------------------------------------------------------------------------------------


def vector(first: int, count: int, kind: str = "%f") -> str:
    return "{" + ", ".join(f"{kind}{first + i}" for i in range(count)) + "}"


def wgmma_kernel(
    shape: str,
    types: str,
    d_registers: int,
    immediates: str,
    a_in_registers: bool,
    after: str = "",
    middle: str = "",
) -> str:
    """p0: the image of shared memory; p1: D and p2: A by thread; p3: two descriptors and scale-d."""
    loads = "\n".join(f"  ld.global.b32 %x{i}, [%rd11+{4 * i}];" for i in range(d_registers))
    stores = "\n".join(f"  st.global.b32 [%rd11+{4 * i}], %x{i};" for i in range(d_registers))
    a = "{%r50, %r51, %r52, %r53}" if a_in_registers else "%rd20"
    d = vector(0, d_registers, "%x")
    body = f"""
  .reg .b32 %x<256>;
  mov.u64 %rd30, smem;
  mov.u32 %r10, %r0;
copy:
  mul.wide.u32 %rd10, %r10, 16;
  add.u64 %rd12, %rd0, %rd10;
  add.u64 %rd13, %rd30, %rd10;
  ld.global.v4.b32 {{%r11, %r12, %r13, %r14}}, [%rd12];
  st.shared.v4.b32 [%rd13], {{%r11, %r12, %r13, %r14}};
  add.u32 %r10, %r10, {THREADS};
  setp.lt.u32 %p10, %r10, {SHARED // 16};
  @%p10 bra copy;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  mul.wide.u32 %rd10, %r0, {4 * d_registers};
  add.u64 %rd11, %rd1, %rd10;
{loads}
  mul.wide.u32 %rd10, %r0, 16;
  add.u64 %rd12, %rd2, %rd10;
  ld.global.v4.b32 {{%r50, %r51, %r52, %r53}}, [%rd12];
  ld.global.b64 %rd20, [%rd3];
  ld.global.b64 %rd21, [%rd3+8];
  ld.global.b32 %r15, [%rd3+16];
  setp.ne.b32 %p11, %r15, 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.{shape}.{types} {d}, {a}, %rd21, %p11{immediates};
  wgmma.commit_group.sync.aligned;
{middle}
  wgmma.wait_group.sync.aligned 0;
{after}
{stores}
"""
    return kernel_text(body, 4, shared_bytes=SHARED, target="sm_90a", version="9.0").replace(
        ".align 128 .b8 smem", ".align 1024 .b8 smem"
    )


def image_of(*operands: tuple[Layout, np.ndarray]) -> np.ndarray:
    """The contents of shared memory: the operands, and noise elsewhere."""
    image = RNG.integers(0, 256, SHARED, dtype=np.uint8)
    for place, bits in operands:
        size = bits.dtype.itemsize
        offsets = place.offsets(*bits.shape, size) - SHARED_BEGIN
        for byte in range(size):
            image[offsets + byte] = (bits.astype(np.uint64) >> 8 * byte & 0xFF).astype(np.uint8)
    return image


def fragments_of(a: np.ndarray) -> np.ndarray:
    """Packs A (64 x k, as bits) into the registers of 128 threads, as in the PTX manual's figures."""
    per = 4 // a.dtype.itemsize
    registers = np.zeros((THREADS, 4), np.uint32)
    for thread in range(THREADS):
        warp, group, t = thread // 32, thread % 32 // 4, thread % 4
        for r in range(4):
            row, column = 16 * warp + group + 8 * (r % 2), per * t + 4 * per * (r // 2)
            registers[thread, r] = np.ascontiguousarray(a[row, column : column + per]).view(np.uint32)[0]
    return registers


def d_places(n: int) -> np.ndarray:
    """The index in D (64 x n, flat) of each thread's element i."""
    places = np.zeros((THREADS, n // 2), np.int64)
    for thread in range(THREADS):
        warp, group, t = thread // 32, thread % 32 // 4, thread % 4
        for i in range(n // 2):
            row = 16 * warp + group + 8 * (i // 2 % 2)
            places[thread, i] = row * n + 8 * (i // 4) + 2 * t + i % 2
    return places


# --- elements ---------------------------------------------------------------------------------------------


def bits_of(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind == "tf32":
        return values.astype(np.float32).view(np.uint32)
    if kind in ("s8", "u8"):
        return values.astype(np.int64).astype(np.uint8)
    # 8-bit floats: small integers, by their encodings
    mantissa_bits, bias = (3, 7) if kind == "e4m3" else (2, 15)
    table = {0: 0}
    for bits in range(1, 127):
        exponent, mantissa = bits >> mantissa_bits, bits & (1 << mantissa_bits) - 1
        if exponent:
            table[(1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)] = bits
    return np.vectorize(lambda v: table[abs(v)] | (0x80 if v < 0 else 0))(values).astype(np.uint8)


def values_of(shape: tuple[int, int], kind: str) -> np.ndarray:
    """Small integers, so that every sum is exact."""
    if kind == "u8":
        return RNG.integers(0, 256, shape)
    if kind == "s8":
        return RNG.integers(-128, 128, shape)
    most = 4 if kind == "e5m2" else 8
    return (
        RNG.integers(-most, most + 1, shape)
        if kind != "e5m2"
        else RNG.choice([-4, -2, -1, 0, 1, 2, 3, 4], shape)
    )


def run_product(
    kinds: tuple[str, str],
    d_kind: str,
    n: int,
    a_layout: Layout | None,
    b_layout: Layout,
    *,
    scale_d: bool = True,
    signs: tuple[int, int] = (1, 1),
) -> None:
    size = {"f16": 2, "bf16": 2, "tf32": 4}.get(kinds[0], 1)
    k = 32 // size
    a, b = values_of((64, k), kinds[0]), values_of((n, k), kinds[1])
    d = RNG.integers(-64, 65, (64, n))
    a_bits, b_bits = bits_of(a, kinds[0]), bits_of(b, kinds[1])
    operands = [(b_layout, b_bits)] + ([(a_layout, a_bits)] if a_layout else [])
    image = image_of(*operands)
    places = d_places(n)
    wide = d_kind == "f16"
    if d_kind == "s32":
        registers = d.reshape(-1)[places].astype(np.int32).view(np.uint32)
    elif wide:
        registers = np.ascontiguousarray(d.reshape(-1)[places].astype(np.float16)).view(np.uint32)
    else:
        registers = d.reshape(-1)[places].astype(np.float32).view(np.uint32)
    registers = np.ascontiguousarray(registers)
    immediates = "" if d_kind == "s32" else f", {signs[0]}, {signs[1]}"
    if size == 2:
        immediates += "" if a_layout is None else f", {int(a_layout.mn_major)}"
        immediates += f", {int(b_layout.mn_major)}"
    text = wgmma_kernel(
        f"m64n{n}k{k}", f"{d_kind}.{kinds[0]}.{kinds[1]}", registers.shape[1], immediates, a_layout is None
    )
    control = np.array([a_layout.descriptor if a_layout else 0, b_layout.descriptor, int(scale_d)], np.uint64)
    Module(text, "sm_90a").launch("k", 1, THREADS, [image, registers, fragments_of(a_bits), control])
    expected = signs[0] * signs[1] * (a.astype(np.int64) @ b.astype(np.int64).T) + (d if scale_d else 0)
    if d_kind == "s32":
        found = registers.view(np.int32)
    elif wide:
        found = registers.view(np.float16)
    else:
        found = registers.view(np.float32)
    np.testing.assert_array_equal(found.astype(np.int64), expected.reshape(-1)[places])


A_START, B_START = SHARED_BEGIN, SHARED_BEGIN + 40 * 1024


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_every_n(n: int) -> None:
    run_product(
        ("bf16", "bf16"), "f32", n, layout("128", False, 64, A_START), layout("128", False, n, B_START)
    )


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("a", "b"), list(product([None, *product(MODES, [False, True])], product(MODES, [False, True])))
)
def test_every_layout(kind: str, a: tuple[str, bool] | None, b: tuple[str, bool]) -> None:
    n = 136  # not a multiple of any swizzle's width
    a_layout = a and layout(a[0], a[1], 64, A_START)
    run_product((kind, kind), "f32", n, a_layout, layout(b[0], b[1], n, B_START))


@pytest.mark.parametrize("step", [32, 64, 96])
def test_steps_along_k_within_a_swizzled_row(step: int) -> None:
    a, b = layout("128", False, 64, A_START, step), layout("128", False, 64, B_START, step)
    run_product(("f16", "f16"), "f32", 64, a, b)


FORMS = [
    ("f16", "f16", "f16"),
    ("f16", "f16", "f32"),
    ("tf32", "tf32", "f32"),
    *product(["e4m3", "e5m2"], ["e4m3", "e5m2"], ["f16", "f32"]),
    *product(["s8", "u8"], ["s8", "u8"], ["s32"]),
]


@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize(("a", "b", "d"), FORMS)
def test_every_type(a: str, b: str, d: str, in_registers: bool) -> None:
    a_layout = None if in_registers else layout("64", False, 64, A_START)
    run_product((a, b), d, 24, a_layout, layout("32", False, 24, B_START))


@pytest.mark.parametrize("signs", [(1, -1), (-1, 1), (-1, -1)])
def test_signs(signs: tuple[int, int]) -> None:
    run_product(
        ("bf16", "bf16"),
        "f32",
        32,
        layout("none", False, 64, A_START),
        layout("none", False, 32, B_START),
        signs=signs,
    )


def test_scale_d_leaves_what_was_there_out() -> None:
    run_product(("f16", "f16"), "f32", 8, None, layout("128", False, 8, B_START), scale_d=False)


# --- when it reads and writes -----------------------------------------------------------------------------

ONES = np.ones((64, 16))


def run_timing(middle: str, after: str = "") -> np.ndarray:
    """D of ones times ones plus 0, with ``middle`` between the commit and the wait."""
    a_layout, b_layout = layout("128", False, 64, A_START), layout("128", False, 8, B_START)
    image = image_of((a_layout, bits_of(ONES, "bf16")), (b_layout, bits_of(np.ones((8, 16)), "bf16")))
    text = wgmma_kernel("m64n8k16", "f32.bf16.bf16", 4, ", 1, 1, 0, 0", False, after, middle)
    registers = np.zeros((THREADS, 4), np.float32)
    control = np.array([a_layout.descriptor, b_layout.descriptor, 1], np.uint64)
    Module(text, "sm_90a").launch(
        "k", 1, THREADS, [image, registers, np.zeros((THREADS, 4), np.uint32), control]
    )
    return registers


CLEAR_B = f"  st.shared.b32 [%rd30+{B_START - SHARED_BEGIN}], 0;\n"


def test_operands_in_shared_memory_are_read_at_the_wait() -> None:
    assert np.all(run_timing("") == 16)
    assert np.any(run_timing(CLEAR_B) != 16)


def test_a_change_after_the_wait_is_late() -> None:
    assert np.all(run_timing("", after=CLEAR_B) == 16)


def test_who_reads_an_accumulator_waits_for_it() -> None:
    """As with ptxas, the value is the product's, and what follows comes too late to change it."""
    touch = "  add.f32 %x0, %x0, 0f3F800000;\n"
    found = run_timing(touch + CLEAR_B)
    assert np.all(found[:, 0] == 17)
    assert np.all(found[:, 1:] == 16)


def test_a_in_registers_is_what_it_was() -> None:
    b_layout = layout("128", False, 8, B_START)
    image = image_of((b_layout, bits_of(np.ones((8, 16)), "bf16")))
    middle = "\n".join(f"  mov.b32 %r5{i}, 0;" for i in range(4))
    text = wgmma_kernel("m64n8k16", "f32.bf16.bf16", 4, ", 1, 1, 0", True, "", middle)
    registers = np.zeros((THREADS, 4), np.float32)
    control = np.array([0, b_layout.descriptor, 1], np.uint64)
    Module(text, "sm_90a").launch(
        "k", 1, THREADS, [image, registers, fragments_of(bits_of(ONES, "bf16")), control]
    )
    assert np.all(registers == 16)


def test_groups_complete_from_the_oldest() -> None:
    """Waiting for all but one of two groups completes the first."""
    second = f"""
  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {vector(100, 4, "%x")}, %rd20, %rd21, 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 1;
{CLEAR_B}"""
    after = "  add.f32 %x1, %x100, 0f00000000;\n"
    found = run_timing(second, after)
    assert np.all(found[:, [0, 2, 3]] == 16)
    assert np.any(found[:, 1] != 16)


# --- what is wrong ----------------------------------------------------------------------------------------


def launch_wrong(a: Layout, b: Layout, threads: int = THREADS, **changes: str) -> str:
    text = wgmma_kernel("m64n64k16", "f32.bf16.bf16", 32, ", 1, 1, 0, 0", False)
    for old, new in changes.items():
        text = text.replace(old, new)
    control = np.array([a.descriptor, b.descriptor, 1], np.uint64)
    image, registers = np.zeros(SHARED, np.uint8), np.zeros((256, 32), np.float32)
    with pytest.raises(FaultError) as error:
        Module(text, "sm_90a").launch(
            "k", 1, threads, [image, registers, np.zeros((256, 4), np.uint32), control]
        )
    return str(error.value)


GOOD = layout("128", False, 64, A_START), layout("128", False, 64, B_START)


def test_a_descriptor_out_of_shared_memory() -> None:
    message = launch_wrong(GOOD[0], layout("128", False, 64, SHARED_BEGIN + SHARED - 1024))
    assert "operand B of a wgmma extends beyond the block's shared memory" in message


def test_wgmma_by_three_warps() -> None:
    assert "wgmma in a warpgroup of 3 warps" in launch_wrong(*GOOD, threads=96)


def test_one_warp_of_the_four_does_not_come() -> None:
    message = launch_wrong(
        *GOOD, **{"  wgmma.fence.sync.aligned;": "  setp.ge.u32 %p20, %r0, 96;\n  @%p20 exit;"}
    )
    assert "warp 3" in message
    assert "must issue the same wgmma" in message


def test_descriptors_differ_between_warps() -> None:
    change = "  setp.ge.u32 %p20, %r0, 96;\n  @%p20 add.u64 %rd21, %rd21, 64;"
    message = launch_wrong(*GOOD, **{"  wgmma.fence.sync.aligned;": change})
    assert "a different matrix descriptor" in message


def test_only_code_for_sm_90a_may() -> None:
    assert "needs .target sm_90a" in launch_wrong(*GOOD, **{".target sm_90a": ".target sm_90"})
