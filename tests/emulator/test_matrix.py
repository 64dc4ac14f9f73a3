"""Compares ldmatrix, stmatrix, movmatrix and mma with NumPy, in the layouts of the PTX manual's figures."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import LANES, fault_of, lane_address, run

from ladder.run.emulator import FaultError

RNG = np.random.default_rng(1)
GROUP, THREAD = LANES // 4, LANES % 4


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Rounds to nearest even; returns the bits."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_tf32(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)


# --- ldmatrix, stmatrix, movmatrix --------------------------------------------------------------------------


def tile_registers(tiles: np.ndarray, trans: bool) -> np.ndarray:
    """Lane l's register i holds elements 2t, 2t + 1 of row g (with .trans, column g) of tile i."""
    out = np.zeros((len(tiles), 32), np.uint32)
    for i, tile in enumerate(tiles):
        for lane in range(32):
            g, t = divmod(lane, 4)
            low, high = (
                (tile[2 * t, g], tile[2 * t + 1, g]) if trans else (tile[g, 2 * t], tile[g, 2 * t + 1])
            )
            out[i, lane] = int(low) | int(high) << 16
    return out


def registers(first: int, count: int, kind: str = "%r") -> str:
    return "{" + ", ".join(f"{kind}{first + i}" for i in range(count)) + "}"


@pytest.mark.parametrize("generic", [False, True])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix(count: int, trans: bool, generic: bool) -> None:
    tiles = RNG.integers(0, 2**16, (4, 8, 8)).astype(np.uint16)
    order = RNG.permutation(32)  # the position of each row in shared memory
    memory = np.zeros((32, 8), np.uint16)
    memory[order] = tiles.reshape(32, 8)
    result = np.zeros((count, 32), np.uint32)
    stores = "\n".join(f"st.global.u32 [%rd14+{128 * i}], %r{20 + i};" for i in range(count))
    form = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}{'' if generic else '.shared'}.b16"
    launch = run(
        lane_address("%rd0", "%rd10", 16)
        + lane_address("%rd1", "%rd11", 4)
        + lane_address("%rd2", "%rd14", 4)
        + f"""
  mov.u64 %rd12, smem;
  mul.wide.u32 %rd13, %r0, 16;
  add.u64 %rd13, %rd12, %rd13;
  ld.global.v4.u32 {registers(20, 4)}, [%rd10];
  st.shared.v4.u32 [%rd13], {registers(20, 4)};
  ld.global.u32 %r11, [%rd11];
  mul.wide.u32 %rd13, %r11, 16;
  add.u64 %rd13, %rd12, %rd13;
  {"cvta.shared.u64 %rd13, %rd13;" if generic else ""}
  bar.sync 0;
  {form} {registers(20, count)}, [%rd13];
  {stores}
""",
        memory,
        order.astype(np.uint32),
        result,
        shared_bytes=512,
    )
    assert np.array_equal(result, tile_registers(tiles[:count], trans))
    assert launch.totals()["ldmatrix_instructions"] == 1
    assert launch.totals()["shared_load_instructions"] == 0


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix(count: int, trans: bool) -> None:
    tiles = RNG.integers(0, 2**16, (4, 8, 8)).astype(np.uint16)
    order = RNG.permutation(32)
    fragment = tile_registers(tiles[:count], trans)
    result = np.zeros((32, 8), np.uint16)
    loads = "\n".join(f"ld.global.u32 %r{20 + i}, [%rd10+{128 * i}];" for i in range(count))
    run(
        lane_address("%rd0", "%rd10", 4)
        + lane_address("%rd1", "%rd11", 4)
        + lane_address("%rd2", "%rd14", 16)
        + f"""
  mov.u64 %rd12, smem;
  mul.wide.u32 %rd15, %r0, 16;
  add.u64 %rd15, %rd12, %rd15;
  st.shared.v4.u32 [%rd15], {{0, 0, 0, 0}};
  bar.sync 0;
  {loads}
  ld.global.u32 %r11, [%rd11];
  mul.wide.u32 %rd13, %r11, 16;
  add.u64 %rd13, %rd12, %rd13;
  stmatrix.sync.aligned.m8n8.x{count}{".trans" if trans else ""}.shared.b16 [%rd13], {registers(20, count)};
  bar.sync 0;
  ld.shared.v4.u32 {registers(20, 4)}, [%rd15];
  st.global.v4.u32 [%rd14], {registers(20, 4)};
""",
        fragment,
        order.astype(np.uint32),
        result,
        shared_bytes=512,
        arch="sm_90",
    )
    assert np.array_equal(result[order][: 8 * count].reshape(count, 8, 8), tiles[:count])
    assert not result[order][8 * count :].any()


def test_movmatrix() -> None:
    tile = RNG.integers(0, 2**16, (8, 8)).astype(np.uint16)
    result = np.zeros(32, np.uint32)
    run(
        lane_address("%rd0", "%rd10", 4)
        + lane_address("%rd1", "%rd11", 4)
        + """
  ld.global.u32 %r10, [%rd10];
  movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10;
  st.global.u32 [%rd11], %r11;
""",
        tile_registers(tile[None], False)[0],
        result,
    )
    assert np.array_equal(result, tile_registers(tile[None], True)[0])


def test_matrix_rows_are_checked() -> None:
    row = "mov.u32 %r10, smem; mad.lo.u32 %r10, %r0, {}, %r10; "
    load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r10];"
    assert fault_of(run, row.format(8) + load, shared_bytes=512).kind == "misaligned"
    outside = fault_of(run, row.format(32) + load, shared_bytes=512)
    assert (outside.kind, outside.lane) == ("out of bounds", 16)
    # Addresses of lanes that name no row are ignored.
    run(row.format(32) + load.replace("x4", "x2").replace(", %r22, %r23", ""), shared_bytes=512)
    part = fault_of(run, row.format(16) + "setp.ne.u32 %p1, %r0, 3; @%p1 " + load, shared_bytes=512)
    assert part.kind in ("bad operand", "deadlock")


# --- mma ----------------------------------------------------------------------------------------------------


def a_place(elements_a_register: int, register: int, element: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of A in each lane ("Matrix fragments for mma.m16n8k..."), M = 16 or 8."""
    p = elements_a_register
    return GROUP + 8 * (register % 2), THREAD * p + element + (register // 2) * 4 * p


def b_place(elements_a_register: int, register: int, element: int) -> tuple[np.ndarray, np.ndarray]:
    p = elements_a_register
    return THREAD * p + element + register * 4 * p, GROUP


def pack(matrix: np.ndarray, place, count: int, rows: int = 16) -> np.ndarray:
    """Packs a matrix of elements of 8, 16, 32 or 64 bits into registers [count, 32]."""
    size = matrix.dtype.itemsize
    p = max(1, 4 // size)
    kind = np.uint64 if size == 8 else np.uint32
    out = np.zeros((count, 32), kind)
    bits = matrix.view(f"u{size}").astype(kind)
    for register in range(count):
        for element in range(p):
            if place is a_place and rows == 8:
                row, column = GROUP, THREAD * p + element + register * 4 * p
            else:
                row, column = place(p, register, element)
            out[register] |= bits[row, column] << kind(8 * size * element)
    return out


def c_pack(matrix: np.ndarray) -> np.ndarray:
    """Packs columns 2t, 2t + 1 of rows g and g + 8, one per register, or two for f16."""
    size = matrix.dtype.itemsize
    rows = range(0, len(matrix), 8)
    bits = matrix.view(f"u{size}")
    pairs = [(bits[GROUP + r, 2 * THREAD], bits[GROUP + r, 2 * THREAD + 1]) for r in rows]
    if size == 2:
        return np.stack([low.astype(np.uint32) | high.astype(np.uint32) << 16 for low, high in pairs])
    return np.stack([half for pair in pairs for half in pair])


def c_unpack(packed: np.ndarray, kind: type, rows: int) -> np.ndarray:
    out = np.zeros((rows, 8), kind)
    bits = out.view(f"u{out.itemsize}")
    for i in range(rows // 8):
        low, high = (packed[i] & 0xFFFF, packed[i] >> 16) if out.itemsize == 2 else packed[2 * i : 2 * i + 2]
        bits[GROUP + 8 * i, 2 * THREAD], bits[GROUP + 8 * i, 2 * THREAD + 1] = low, high
    return out


def run_mma(form: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Runs an mma on a [M, K], b [K, 8] and c [M, 8], whose 16-bit elements are given as bits."""
    m, k = a.shape
    p = max(1, 4 // a.itemsize)
    wide = a.itemsize == 8
    ra = pack(a, a_place, m * k // (32 * p), m)
    rb = pack(b, b_place, k * 8 // (32 * p))
    rc = c_pack(c)
    kind, step, name = ("b64", 256, "%rd") if wide else ("b32", 128, "%r")
    out = np.zeros_like(rc)

    def move(op: str, pointer: str, first: int, count: int) -> str:
        lines = ""
        for i in range(count):
            place, register = f"[{pointer}+{step * i}]", f"{name}{first + i}"
            lines += (
                f"  {op}.global.{kind} {register}, {place};\n"
                if op == "ld"
                else f"  st.global.{kind} {place}, {register};\n"
            )
        return lines

    size = step // 32
    body = "".join(lane_address(f"%rd{i}", f"%rd{10 + i}", size) for i in range(4))
    body += (
        move("ld", "%rd10", 40, len(ra)) + move("ld", "%rd11", 50, len(rb)) + move("ld", "%rd12", 60, len(rc))
    )
    body += f"""
  {form} {registers(70, len(rc), name)}, {registers(40, len(ra), name)}, {registers(50, len(rb), name)},
    {registers(60, len(rc), name)};
"""
    body += move("st", "%rd13", 70, len(rc))
    launch = run(body, ra, rb, rc, out, arch="sm_90")
    assert launch.totals()["mma_instructions"] == 1
    return c_unpack(out, c.dtype.type, m)


SHAPES = [("f16", 16), ("f16", 8), ("bf16", 16), ("bf16", 8), ("tf32", 8), ("tf32", 4)]


def float_inputs(kind: str, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Random elements as held in registers, and their values."""
    values = RNG.standard_normal(shape).astype(np.float32)
    if kind == "f16":
        halves = values.astype(np.float16)
        return halves, halves.astype(np.float64)
    if kind == "bf16":
        bits = to_bf16(values)
        return bits, from_bf16(bits).astype(np.float64)
    return values, to_tf32(values).astype(np.float64)


@pytest.mark.parametrize(("kind", "k"), SHAPES)
def test_mma_f32(kind: str, k: int) -> None:
    a, a_values = float_inputs(kind, 16, k)
    b, b_values = float_inputs(kind, k, 8)
    c = RNG.standard_normal((16, 8)).astype(np.float32)
    d = run_mma(f"mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32", a, b, c)
    assert np.abs(d - (a_values @ b_values + c)).max() <= 2**-21 * k


@pytest.mark.parametrize(("kind", "k"), SHAPES)
def test_mma_places(kind: str, k: int) -> None:
    """Multiplies every element of A by every element of B, as exact small integers."""
    a_values = RNG.integers(-8, 9, (16, k)).astype(np.float32)
    b_values = RNG.integers(-8, 9, (k, 8)).astype(np.float32)
    convert = {"f16": lambda x: x.astype(np.float16), "bf16": to_bf16, "tf32": lambda x: x}[kind]
    c = RNG.integers(-100, 100, (16, 8)).astype(np.float32)
    d = run_mma(
        f"mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32", convert(a_values), convert(b_values), c
    )
    assert np.array_equal(d, a_values @ b_values + c)


@pytest.mark.parametrize("k", [8, 16])
def test_mma_f16(k: int) -> None:
    a, a_values = float_inputs("f16", 16, k)
    b, b_values = float_inputs("f16", k, 8)
    c = RNG.standard_normal((16, 8)).astype(np.float16)
    d = run_mma(f"mma.sync.aligned.m16n8k{k}.row.col.f16.f16.f16.f16", a, b, c)
    exact = a_values @ b_values + c
    assert np.abs(d - exact).max() <= np.abs(exact).max() * 2**-10


def float8_values(kind: str) -> np.ndarray:
    """The values of all 256 bit patterns, from the format's definition."""
    exponent_bits, mantissa_bits = {"e4m3": (4, 3), "e5m2": (5, 2)}[kind]
    bias = 2 ** (exponent_bits - 1) - 1
    values = []
    for bits in range(256):
        exponent, mantissa = bits >> mantissa_bits & (2**exponent_bits - 1), bits & (2**mantissa_bits - 1)
        if kind == "e4m3" and bits & 127 == 127:
            value = np.nan
        elif kind == "e5m2" and exponent == 31:
            value = np.nan if mantissa else np.inf
        else:
            significand = mantissa + (2**mantissa_bits if exponent else 0)
            value = significand * 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
        values.append(-value if bits & 128 else value)
    return np.array(values, np.float64)


@pytest.mark.parametrize("accumulator", ["f32", "f16"])
@pytest.mark.parametrize("types", [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")])
@pytest.mark.parametrize("k", [16, 32])
def test_mma_float8(k: int, types: tuple[str, str], accumulator: str) -> None:
    form = f"mma.sync.aligned.m16n8k{k}.row.col.{accumulator}.{types[0]}.{types[1]}.{accumulator}"
    kind = {"f32": np.float32, "f16": np.float16}[accumulator]
    tables = [float8_values(name) for name in types]
    # Small multiples of 1/4, so that every sum is exact in both accumulators.
    small = [
        np.array([bits for bits, v in enumerate(t) if abs(v) <= 2 and v * 4 % 1 == 0], np.uint8)
        for t in tables
    ]
    a, b = RNG.choice(small[0], (16, k)), RNG.choice(small[1], (k, 8))
    c = RNG.integers(-100, 100, (16, 8)).astype(kind)
    assert np.array_equal(run_mma(form, a, b, c), tables[0][a] @ tables[1][b] + c)
    if accumulator == "f16":
        return
    # Every bit pattern, one per row at a time.
    for first in range(0, 256, 16):
        a = np.zeros((16, k), np.uint8)
        a[np.arange(16), RNG.integers(0, k, 16)] = np.arange(first, first + 16)
        b = np.full((k, 8), np.flatnonzero(tables[1] == 1)[0], np.uint8)
        d = run_mma(form, a, b, np.zeros((16, 8), np.float32))
        expected = np.repeat(tables[0][first : first + 16, None], 8, axis=1)
        assert np.array_equal(d, expected, equal_nan=True)


def test_mma_float8_needs_a_newer_gpu() -> None:
    with pytest.raises(FaultError, match="needs sm_89 or newer"):
        run(
            f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {registers(10, 4, '%f')},"
            f" {registers(10, 4)}, {registers(14, 2)}, {registers(10, 4, '%f')};"
        )


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("types", [("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8")])
@pytest.mark.parametrize(("m", "k"), [(16, 16), (16, 32), (8, 16)])
def test_mma_integers(m: int, k: int, types: tuple[str, str], saturate: bool) -> None:
    def draw(name: str, *shape: int) -> np.ndarray:
        return (
            RNG.integers(-128, 128, shape).astype(np.int8)
            if name == "s8"
            else RNG.integers(0, 256, shape).astype(np.uint8)
        )

    a, b = draw(types[0], m, k), draw(types[1], k, 8)
    c = RNG.choice([0, 5, 2**31 - 1000, -(2**31) + 1000], (m, 8)).astype(np.int32)
    name = (
        f"mma.sync.aligned.m{m}n8k{k}.row.col{'.satfinite' if saturate else ''}.s32.{types[0]}.{types[1]}.s32"
    )
    d = run_mma(name, a, b, c)
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    expected = exact.clip(-(2**31), 2**31 - 1) if saturate else exact
    assert np.array_equal(d, expected.astype(np.int32))


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_mma_f64(m: int, k: int) -> None:
    a, b, c = RNG.standard_normal((m, k)), RNG.standard_normal((k, 8)), RNG.standard_normal((m, 8))
    d = run_mma(f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64", a, b, c)
    assert np.allclose(d, a @ b + c, rtol=0, atol=1e-13)


def test_special_values() -> None:
    """Infinities and NaNs propagate as in arithmetic; subnormal inputs are not flushed."""
    a = np.zeros((16, 16), np.float16)
    b = np.zeros((16, 8), np.float16)
    a[0, 0], b[0, 0] = np.inf, 1
    a[1, 1], b[1, 1] = np.inf, -1
    a[2, 2], b[2, 2] = np.nan, 1
    a[3, 3], b[3, 3] = 2**-24, 2**-24
    d = run_mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", a, b, np.zeros((16, 8), np.float32))
    assert d[0, 0] == np.inf
    assert d[1, 1] == -np.inf
    assert np.isnan(d[2, 2])
    assert d[3, 3] == 2**-48
    assert np.isnan(d[0, 1])  # inf * 0
    assert d[15, 7] == 0


def test_unknown_shapes_are_refused_by_name() -> None:
    c, a, b = registers(10, 4, "%f"), registers(10, 4), registers(14, 2)
    with pytest.raises(FaultError, match="m16n8k32") as caught:
        run(f"mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {c}, {a}, {b}, {c};")
    assert caught.value.fault.kind == "unsupported"


def test_a_partial_warp_is_refused() -> None:
    mma = (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f10, %f11, %f12, %f13}, {%r10, %r11}, {%r12},"
        " {%f10, %f11, %f12, %f13};"
    )
    assert fault_of(run, mma, block=16).kind == "bad operand"
