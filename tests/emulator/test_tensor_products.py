"""tcgen05.mma bit by bit: every kind, shape and layout, against the slow model of tensor_model.py."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tensor_model import FORMATS, dot
from test_tensor_memory import ALLOC, ARCH, DEALLOC, THREADS, row_transfers
from warp_kernel import kernel_text

from ladder.run.emulator import Fault, FaultError, Module

SHARED, SHARED_BEGIN = 192 * 1024, 1024
RNG = np.random.default_rng(11)


# --- operands in shared memory -----------------------------------------------------------------------------

MODES = {"none": (0, 16), "128/32": (1, 128), "128": (2, 128), "64": (4, 64), "32": (6, 32)}


@dataclass(frozen=True)
class Layout:
    """An operand of ``lines`` rows of A (or columns of B) by k elements, in bytes."""

    mode: str
    mn_major: bool
    leading: int
    stride: int
    start: int

    def byte(self, line: int, k: int, bits: int) -> int:
        """The first byte of an element, and of a chunk of 16 elements of fewer than 8 bits."""
        per = 128 // max(bits, 8)
        size = 16 // per
        along, across = (line, k) if self.mn_major else (k, line)
        span = MODES[self.mode][1]
        if self.mn_major and self.mode == "none":
            place = (
                along // per * self.stride + across // 8 * self.leading + across % 8 * 16 + along % per * size
            )
        elif self.mn_major:
            lines = 4 if self.mode == "128/32" else 8
            wide = span // size
            place = along // wide * self.leading + across // lines * self.stride
            place += across % lines * span + along % wide * size
        elif self.mode == "none":
            place = (
                across // 8 * self.stride + across % 8 * 16 + along // per * self.leading + along % per * size
            )
        else:
            place = across // 8 * self.stride + across % 8 * span + along * size
        at = self.start + place
        if self.mode == "128/32":
            return at ^ (at >> 7 & 3) << 5
        return at ^ (at >> 7 & span // 16 - 1) << 4

    @property
    def descriptor(self) -> int:
        mode = MODES[self.mode][0]
        fields = (self.start >> 4) | (self.leading >> 4) << 16 | (self.stride >> 4) << 32
        return fields | 1 << 46 | mode << 61


def dense(mode: str, mn_major: bool, lines: int, bits: int, start: int) -> Layout:
    """Without swizzle the groups of 8 rows are padded by 128 bytes."""
    span = MODES[mode][1]
    if mode == "none" and not mn_major:
        return Layout(mode, False, leading=128, stride=256 + 128, start=start)
    if not mn_major:
        return Layout(mode, False, leading=16, stride=8 * span, start=start)
    if mode == "none":
        return Layout(mode, True, leading=lines * max(bits, 8) + 128, stride=128, start=start)
    atom = (4 if mode == "128/32" else 8) * span
    return Layout(mode, True, leading=8 * atom, stride=atom, start=start)


def put(image: np.ndarray, layout: Layout, operand: np.ndarray, bits: int) -> None:
    lines, depth = operand.shape
    for line in range(lines):
        for k in range(depth):
            value = int(operand[line, k])
            if bits >= 8:
                first = layout.byte(line, k, bits) - SHARED_BEGIN
                image[first : first + bits // 8] = np.frombuffer(
                    value.to_bytes(bits // 8, "little"), np.uint8
                )
                continue
            # 16 elements are packed at the beginning of 16 bytes.
            along = line if layout.mn_major else k
            inner = along % 16
            chunk = layout.byte(
                line - inner if layout.mn_major else line, k if layout.mn_major else k - inner, bits
            )
            for bit in range(bits):
                place = inner * bits + bit
                at = chunk - SHARED_BEGIN + place // 8
                image[at] = int(image[at]) & ~(1 << place % 8) | (value >> bit & 1) << place % 8


# --- the instruction ---------------------------------------------------------------------------------------

CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}


@dataclass(frozen=True)
class Case:
    a: str
    b: str
    m: int = 64
    n: int = 16
    half: bool = False
    a_layout: tuple[str, bool] = ("128", False)
    b_layout: tuple[str, bool] = ("128", False)
    a_in_tensor: bool = False
    accumulates: bool = True
    negates: tuple[bool, bool] = (False, False)
    scale: int = 0
    masks: tuple[int, ...] = ()
    lane: int = 0

    @property
    def kind(self) -> str:
        return "f16" if self.a in ("f16", "bf16") else "tf32" if self.a == "tf32" else "f8f6f4"

    @property
    def k(self) -> int:
        return 256 // max(8, FORMATS[self.a].bits)

    @property
    def idesc(self) -> int:
        bits = (0 if self.half else 1) << 4 | CODES[self.a] << 7 | CODES[self.b] << 10
        bits |= (
            self.negates[0] << 13 | self.negates[1] << 14 | self.a_layout[1] << 15 | self.b_layout[1] << 16
        )
        return bits | self.n >> 3 << 17 | self.m >> 4 << 24


WAIT_FOR_COMMIT = """
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p12, [smem+8], 0;
  @!%p12 bra wait;
  tcgen05.fence::after_thread_sync;
"""


def kernel(case: Case, d_columns: int, wait: str = WAIT_FOR_COMMIT) -> str:
    """p0: shared memory; p1: tensor memory before; p2: after; p3: the descriptors of A and B."""
    a = f"[%r21+{d_columns}]" if case.a_in_tensor else "%rd20"
    mask = "".join(f", {{{', '.join(str(word) for word in case.masks)}}}" for _ in (1,) if case.masks)
    scale = f", {case.scale}" if case.scale else ""
    body = f"""
  mov.u64 %rd30, smem;
  mov.u32 %r10, %r0;
copy:
  mul.wide.u32 %rd10, %r10, 16;
  add.u64 %rd12, %rd0, %rd10;
  add.u64 %rd13, %rd30, %rd10;
  ld.global.v4.b32 {{%r11, %r12, %r13, %r14}}, [%rd12];
  st.shared.v4.b32 [%rd13], {{%r11, %r12, %r13, %r14}};
  add.u32 %r10, %r10, {THREADS};
  setp.lt.u32 %p11, %r10, {SHARED // 16};
  @%p11 bra copy;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p13, %r0, 0;
  @%p13 bra ready;
  mbarrier.init.shared::cta.b64 [smem+8], 1;
ready:
{ALLOC.format(columns=512)}
{row_transfers("%rd1", 512, loads=False)}
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @%p13 bra issued;
  ld.global.b64 %rd20, [%rd3];
  ld.global.b64 %rd21, [%rd3+8];
  mov.u32 %r20, {case.idesc};
  setp.{"eq" if case.accumulates else "ne"}.u32 %p14, %r0, 0;
  add.u32 %r21, %r91, {case.lane << 16};
  tcgen05.mma.cta_group::1.kind::{case.kind} [%r21], {a}, %rd21, %r20{mask}, %p14{scale};
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [smem+8];
issued:
{wait}
{row_transfers("%rd2", 512, loads=True)}
{DEALLOC}
"""
    text = kernel_text("  .reg .b32 %x<128>;\n" + body, 4, shared_bytes=SHARED, target=ARCH, version="8.8")
    return text.replace(".align 128 .b8 smem", ".align 1024 .b8 smem")


def random_bits(shape: tuple[int, int], name: str, spread: bool) -> np.ndarray:
    """Bits of values; without ``spread`` of similar magnitude, so that the window matters."""
    bits = RNG.integers(0, 2 ** FORMATS[name].bits, shape, dtype=np.int64)
    if not spread and name in ("f16", "bf16", "tf32", "f32"):
        form = FORMATS[name]
        low = 13 if name == "tf32" else 0
        exponents = form.bias + RNG.integers(-5, 5, shape)
        field = (1 << form.exponent_bits) - 1 << form.fraction_bits + low
        bits = bits & ~field | exponents << form.fraction_bits + low
    return bits


def run_case(case: Case, spread: bool = True) -> None:
    a = random_bits((case.m, case.k), case.a, spread)
    b = random_bits((case.n, case.k), case.b, spread)
    before = RNG.integers(0, 2**32, (128, 512), dtype=np.uint32)
    if not spread:
        before[:, : case.n] = random_bits((128, case.n), "f32", False)
    check(case, a, b, before, multiply(case, a, b, before))


def multiply(
    case: Case, a: np.ndarray, b: np.ndarray, before: np.ndarray, wait: str = WAIT_FOR_COMMIT
) -> np.ndarray:
    """Tensor memory after the product; ``before`` receives A if it is there."""
    a_bits, b_bits = FORMATS[case.a].bits, FORMATS[case.b].bits
    a_place = dense(*case.a_layout, case.m, a_bits, SHARED_BEGIN + 1024)
    b_place = dense(*case.b_layout, case.n, b_bits, SHARED_BEGIN + 96 * 1024)
    image = RNG.integers(0, 256, SHARED, dtype=np.uint8)
    put(image, b_place, b, b_bits)
    if case.a_in_tensor:
        for row in range(case.m):
            words = [int(value) << (2 if case.a == "e2m1" else 0) for value in a[row]]
            width = max(a_bits, 8)
            packed = sum(word << width * k for k, word in enumerate(words))
            columns = [packed >> 32 * i & 0xFFFFFFFF for i in range(8)]
            before[row_lane(case, row), case.n : case.n + 8] = columns
    else:
        put(image, a_place, a, a_bits)
    after = np.zeros_like(before)
    descriptors = np.array([a_place.descriptor, b_place.descriptor], np.uint64)
    Module(kernel(case, case.n, wait), ARCH).launch("k", 1, THREADS, [image, before, after, descriptors])
    return after


def row_lane(case: Case, row: int) -> int:
    return row if case.m == 128 else row // 16 * 32 + row % 16 + case.lane


def check(case: Case, a: np.ndarray, b: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
    flips = [
        1 << FORMATS[name].bits - 1 if on else 0
        for name, on in zip((case.a, case.b), case.negates, strict=True)
    ]
    expected = before.copy()
    columns = [[int(x) ^ flips[1] for x in b[n]] for n in range(case.n)]
    for row in range(case.m):
        lane = row_lane(case, row)
        if case.masks and case.masks[lane // 32] >> lane % 32 & 1:
            continue
        line = [int(x) ^ flips[0] for x in a[row]]
        for n in range(case.n):
            old = int(before[lane, n])
            c = None if not case.accumulates else old & 0xFFFF if case.half else old
            value = dot(line, columns[n], c, case.a, case.b, case.half, case.scale)
            expected[lane, n] = old & 0xFFFF0000 | value if case.half else value
    assert np.array_equal(after, expected)


# --- arithmetic --------------------------------------------------------------------------------------------

SMALL = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
PAIRS = [("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32"), *((a, b) for a in SMALL for b in SMALL)]


@pytest.mark.parametrize("spread", [False, True], ids=["near", "all bits"])
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_arithmetic(a: str, b: str, spread: bool) -> None:
    run_case(Case(a, b, n=24), spread)


@pytest.mark.parametrize("a", ["f16", *SMALL])
def test_results_of_f16(a: str) -> None:
    run_case(Case(a, a, half=True), spread=False)
    run_case(Case(a, a, half=True, accumulates=False))


@pytest.mark.parametrize(
    ("case"),
    [
        Case("bf16", "bf16", accumulates=False),
        Case("bf16", "bf16", scale=3),
        Case("tf32", "tf32", scale=15),
        Case("f16", "f16", negates=(True, False)),
        Case("e5m2", "e4m3", negates=(True, True)),
        Case("bf16", "bf16", masks=(0xF0F0F0F0, 0, 0xFFFFFFFF, 1)),
        Case("bf16", "bf16", m=128, n=8),
        Case("bf16", "bf16", lane=16),
        Case("e4m3", "e4m3", m=128, n=256),
    ],
)
def test_forms(case: Case) -> None:
    run_case(case, spread=False)


@pytest.mark.parametrize("m", [64, 128])
@pytest.mark.parametrize("a", ["f16", "bf16", "tf32", *SMALL])
def test_a_in_tensor_memory(a: str, m: int) -> None:
    run_case(Case(a, a, m=m, a_in_tensor=True, lane=16 if m == 64 else 0), spread=False)


K_MAJOR = [(mode, False) for mode in ("none", "32", "64", "128")]
MN_MAJOR = [(mode, True) for mode in ("none", "32", "64", "128")]


@pytest.mark.parametrize("layout", K_MAJOR + MN_MAJOR, ids=str)
@pytest.mark.parametrize("name", ["bf16", "e4m3", "e2m1"])
def test_layouts(name: str, layout: tuple[str, bool]) -> None:
    run_case(Case(name, name, m=128, n=48, a_layout=layout), spread=False)
    run_case(Case(name, name, m=64, n=96, b_layout=layout), spread=False)


@pytest.mark.parametrize("layout", [*K_MAJOR, ("128/32", True)], ids=str)
def test_layouts_of_tf32(layout: tuple[str, bool]) -> None:
    run_case(Case("tf32", "tf32", m=128, n=64, a_layout=layout, b_layout=layout), spread=False)


#: Words that a B200 computed (https://github.com/sf-tensor/tcgen05): A, B, C and D.
HARDWARE = {
    "tf32": (
        "1adccb0f e5394260 25a70552 1e3ce260 138b5984 a7c3a1c0 c0e52aed 5467820b",
        "5e6641cb a53fa0cc 0f9489e6 dcbe0111 33fc3422 94de84de 41c52ba7 6421e6d3",
        "fc36c805",
        "fc347e7c",
    ),
    "f16": (
        "f638 1b73 b103 20ac 9b70 85ff 4b2e 2ef5 bef1 68d1 dc66 bbb2 94ac b916 ac3a 6a3f",
        "3a00 c940 a841 928f c577 d3b3 9e19 3fb6 1608 5e7e 33db 9490 37f2 f226 b17e 9e4b",
        "82890b9b",
        "49776bba",
    ),
    "e4m3": (
        "09 2c 4f 7e 45 19 68 6b 0c 05 5c 55 3b 67 65 46 3d 50 10 74 1c 13 16 6e 42 17 05 44 30 04 12 3b",
        "14 1b 4f 38 0a 07 13 09 01 10 68 59 1f 0f 09 3c 4f 47 5b 35 50 6a 46 3d 44 18 5c 37 27 03 6b 61",
        "b1a13d98",
        "452af963",
    ),
    "e2m1": (
        "1 7 6 2 8 c 5 d f 2 8 1 3 c 4 f 9 0 d 8 1 7 6 a 4 5 6 9 3 7 8 7",
        "0 8 8 4 b 2 f 5 8 4 3 5 f 2 5 c 1 a 7 5 2 d 0 3 a 4 5 8 6 0 0 8",
        "890662b9",
        "c1fe0000",
    ),
}


@pytest.mark.parametrize("name", HARDWARE)
def test_words_of_a_b200(name: str) -> None:
    a_words, b_words, c, d = HARDWARE[name]
    case = Case(name, name, n=8)
    a, b = np.zeros((64, case.k), np.int64), np.zeros((8, case.k), np.int64)
    a[5] = [int(word, 16) for word in a_words.split()]
    b[3] = [int(word, 16) for word in b_words.split()]
    before = np.zeros((128, 512), np.uint32)
    before[5, 3] = int(c, 16)
    assert int(multiply(case, a, b, before)[5, 3]) == int(d, 16)


def one_and(word: int) -> dict[int, int]:
    return {0: 0x3F80} | dict.fromkeys(range(1, 16), word)


RULES = [
    ("tf32", {0: 0x7F800001}, {0: 0x3F800000}, 0, 0x7F800000),  # the NaN's payload is cut off
    ("bf16", {0: 0x0001}, {0: 0x3F80}, 0, 0x00010000),
    ("bf16", {}, {}, 0x80000000, 0),
    ("bf16", {0: 0x3F80}, {0: 0x3F80}, 0xB3000000, 0x3F7FFFFF),
    ("bf16", {0: 0x3F80}, {0: 0x3F80}, 0xB2800000, 0x3F800000),
    ("bf16", one_and(0x3980), one_and(0x3980), 0, 0x3F800007),  # 15 products of 2^-24
    ("bf16", one_and(0x3900), one_and(0x3900), 0, 0x3F800000),  # 15 products below the window
    ("bf16", {0: 0x4B80, 1: 0x4B80, 2: 0x3E80}, {0: 0x3F80, 1: 0xBF80, 2: 0x3F80}, 0, 0),
]


@pytest.mark.parametrize(("name", "a_words", "b_words", "c", "d"), RULES)
def test_words_from_the_rules(
    name: str, a_words: dict[int, int], b_words: dict[int, int], c: int, d: int
) -> None:
    case = Case(name, name, n=8)
    a, b = np.zeros((64, case.k), np.int64), np.zeros((8, case.k), np.int64)
    for k, word in a_words.items():
        a[5, k] = word
    for k, word in b_words.items():
        b[3, k] = word
    before = np.zeros((128, 512), np.uint32)
    before[5, 3] = c
    assert int(multiply(case, a, b, before)[5, 3]) == d


# --- when it lands -----------------------------------------------------------------------------------------


def test_a_product_lands_when_its_commit_is_observed() -> None:
    """Without a wait D is still what it was."""
    case = Case("bf16", "bf16")
    a, b = random_bits((64, 16), "bf16", False), random_bits((16, 16), "bf16", False)
    before = random_bits((128, 512), "f32", False).astype(np.uint32)
    assert np.array_equal(multiply(case, a, b, before, wait=""), before)


# --- what is rejected --------------------------------------------------------------------------------------


def rejected(case: Case, change: int = 0, descriptor: int = 0) -> Fault:
    """The fault of an instruction whose descriptor has these bits flipped."""
    a_place = dense(*case.a_layout, case.m, FORMATS[case.a].bits, SHARED_BEGIN + 1024)
    text = kernel(case, case.n).replace(
        f"mov.u32 %r20, {case.idesc};", f"mov.u32 %r20, {case.idesc ^ change};"
    )
    descriptors = np.array([a_place.descriptor, a_place.descriptor ^ descriptor], np.uint64)
    zeros = [np.zeros(SHARED, np.uint8), np.zeros((128, 512), np.uint32), np.zeros((128, 512), np.uint32)]
    with pytest.raises(FaultError) as caught:
        Module(text, ARCH).launch("k", 1, THREADS, [*zeros, descriptors])
    return caught.value.fault


PLAIN = Case("bf16", "bf16")


@pytest.mark.parametrize(
    ("case", "change", "descriptor", "message"),
    [
        (PLAIN, 1 << 2, 0, "the sparse bit (2)"),
        (PLAIN, 1 << 3, 0, "the saturate bit (3)"),
        (PLAIN, 1 << 10, 0, "A is bf16 and B is f16"),
        (PLAIN, 1 << 8, 0, "gives A the type 3, which .kind::f16 does not have"),
        (PLAIN, 1 << 4, 0, "gives D the type 0"),
        (PLAIN, 1 << 24, 0, "M = 80"),
        (PLAIN, 0b10 << 17, 0, "N = 0"),
        (PLAIN, 0, 1 << 46, "bits 46 to 48 of the matrix descriptor are 0"),
        (PLAIN, 0, 1 << 61, "the swizzle mode 3"),
        (PLAIN, 0, 1 << 52, "bit 52"),
        (PLAIN, 0, 0b11 << 61, "the swizzle mode 1 (128B with atoms of 32 bytes)"),
        (replace(PLAIN, lane=8), 0, 0, "D starts at lane 8"),
        (replace(PLAIN, m=128, lane=16), 0, 0, "with M = 128 it must be lane 0"),
        (Case("tf32", "tf32"), 1 << 16, 0, "an MN-major operand of tf32 needs the swizzle mode 1"),
        (PLAIN, 0, 0x3000, "operand B extends beyond the block's shared memory"),
    ],
)
def test_wrong_descriptors(case: Case, change: int, descriptor: int, message: str) -> None:
    assert message in rejected(case, change, descriptor).message


@pytest.mark.parametrize("word", ["sp", "ws"])
def test_what_is_not_modelled_is_named(word: str) -> None:
    text = kernel(PLAIN, 16).replace("tcgen05.mma.", f"tcgen05.mma.{word}.")
    with pytest.raises(FaultError, match=rf"tcgen05.mma with .{word}"):
        Module(text, ARCH).launch("k", 1, THREADS, [np.zeros(1, np.uint8)] * 4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", *SMALL])
def test_a_million_products(name: str) -> None:
    """Of all bit patterns."""
    case = Case(name, name, m=128, n=256)
    for _ in range(-(-1_000_000 // (case.m * case.n * case.k))):
        run_case(case)
