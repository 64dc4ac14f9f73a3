"""wmma.load, wmma.store and wmma.mma. The layout of fragments is unspecified, so only results are tested, and
that elementwise work on a fragment reaches every element.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_matrix import from_bf16, to_bf16, to_tf32
from warp_kernel import run

from ladder.run.emulator import FaultError

RNG = np.random.default_rng(4)

SHAPES = {"m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16)}
#: registers of 16-bit fragments of A and B that hold each element once
NARROW = {"m16n16k16": (4, 4), "m32n8k16": (8, 2), "m8n32k16": (2, 8)}


def registers(first: int, count: int, kind: str = "%r") -> str:
    names = ", ".join(f"{kind}{first + i}" for i in range(count))
    return "{" + names + "}" if count > 1 else names


def stored(matrix: np.ndarray, layout: str, stride: int) -> np.ndarray:
    """The matrix in memory with rows (or columns) `stride` elements apart."""
    lines = matrix if layout == "row" else matrix.T
    memory = np.zeros((len(lines), stride), matrix.dtype)
    memory[:, : lines.shape[1]] = lines
    return memory


def fetched(memory: np.ndarray, shape: tuple[int, int], layout: str) -> np.ndarray:
    rows, columns = shape
    return memory[:rows, :columns] if layout == "row" else memory[:columns, :rows].T


def product(
    shape: str,
    types: str,
    loads: tuple[str, str, str],
    matrices: tuple[np.ndarray, np.ndarray, np.ndarray],
    d_type: type,
    counts: tuple[int, int, int, int],
    *,
    layouts: tuple[str, str, str, str] = ("row", "col", "row", "row"),
    between: str = "",
    kind: str = "%r",
    options: str = "",
) -> np.ndarray:
    """D of one wmma.mma; `loads` are the types of A, B and C, `counts` the registers of A, B, C and D."""
    a, b, _ = matrices
    pad = 16 // a.itemsize
    strides = [
        m.shape[1 if layout == "row" else 0] + pad for m, layout in zip(matrices, layouts, strict=False)
    ]
    memory = [stored(m, layout, s) for m, layout, s in zip(matrices, layouts, strides, strict=False)]
    m, n = len(a), b.shape[1]
    d_stride = (n if layouts[3] == "row" else m) + 16
    d = np.zeros((m if layouts[3] == "row" else n, d_stride), d_type)
    names = [registers(first, count, kind) for first, count in zip((20, 30, 40, 60), counts, strict=True)]
    c_kind = {np.float16: "f16", np.float32: "f32", np.int32: "s32", np.float64: "f64"}[d_type]
    body = "".join(
        f"  wmma.load.{which}.sync.aligned.{layout}.{shape}.global.{load} {name}, [%rd{i}], {stride};\n"
        for i, (which, layout, load, name, stride) in enumerate(
            zip("abc", layouts[:3], loads, names[:3], strides, strict=True)
        )
    )
    body += between
    body += f"""
  wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}{options}.{types}
    {names[3]}, {names[0]}, {names[1]}, {names[2]};
  wmma.store.d.sync.aligned.{layouts[3]}.{shape}.global.{c_kind} [%rd3], {names[3]}, {d_stride};
"""
    launch = run(body, *memory, d, arch="sm_90")
    assert launch.totals()["mma_instructions"] == 1
    assert launch.totals()["global_sectors_ld"] > 0
    return fetched(d, (m, n), layouts[3])


def close(d: np.ndarray, exact: np.ndarray, unit: float) -> bool:
    return bool(np.abs(d - exact).max() <= np.abs(exact).max() * unit)


@pytest.mark.parametrize(
    "layouts", [("row", "col", "row", "row"), ("col", "row", "col", "col"), ("row", "row", "row", "col")]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_f16(shape: str, layouts: tuple[str, str, str, str]) -> None:
    m, n, k = SHAPES[shape]
    a, b = RNG.standard_normal((m, k)).astype(np.float16), RNG.standard_normal((k, n)).astype(np.float16)
    for c_type in (np.float32, np.float16):
        for d_type in (np.float32, np.float16):
            c = RNG.standard_normal((m, n)).astype(c_type)
            names = {np.float32: "f32", np.float16: "f16"}
            sizes = {np.float32: 8, np.float16: 4}
            d = product(
                shape,
                f"{names[d_type]}.{names[c_type]}",
                ("f16", "f16", names[c_type]),
                (a, b, c),
                d_type,
                (8, 8, sizes[c_type], sizes[d_type]),
                layouts=layouts,
            )
            exact = a.astype(np.float64) @ b.astype(np.float64) + c
            assert close(d, exact, 2**-20 if d_type is np.float32 else 2**-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16(shape: str) -> None:
    m, n, k = SHAPES[shape]
    a, b = to_bf16(RNG.standard_normal((m, k))), to_bf16(RNG.standard_normal((k, n)))
    c = RNG.standard_normal((m, n)).astype(np.float32)
    d = product(
        shape, "f32.bf16.bf16.f32", ("bf16", "bf16", "f32"), (a, b, c), np.float32, (*NARROW[shape], 8, 8)
    )
    assert close(d, from_bf16(a).astype(np.float64) @ from_bf16(b) + c, 2**-20)


def test_tf32() -> None:
    a, b = RNG.standard_normal((16, 8)).astype(np.float32), RNG.standard_normal((8, 16)).astype(np.float32)
    c = RNG.standard_normal((16, 16)).astype(np.float32)
    d = product("m16n16k8", "f32.tf32.tf32.f32", ("tf32", "tf32", "f32"), (a, b, c), np.float32, (4, 4, 8, 8))
    assert close(d, to_tf32(a).astype(np.float64) @ to_tf32(b) + c, 2**-20)


@pytest.mark.parametrize("name", ["s8", "u8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_integers(shape: str, name: str) -> None:
    m, n, k = SHAPES[shape]
    info = np.iinfo(np.int8 if name == "s8" else np.uint8)
    a, b = (RNG.integers(info.min, info.max + 1, size).astype(info.dtype) for size in ((m, k), (k, n)))
    c = RNG.integers(-1000, 1000, (m, n)).astype(np.int32)
    counts = tuple(count // 2 for count in NARROW[shape])
    d = product(shape, f"s32.{name}.{name}.s32", (name, name, "s32"), (a, b, c), np.int32, (*counts, 8, 8))
    assert np.array_equal(d, a.astype(np.int64) @ b.astype(np.int64) + c)
    limit = np.full((m, n), 2**31 - 1, np.int32)
    d = product(
        shape,
        f"s32.{name}.{name}.s32",
        (name, name, "s32"),
        (a, b, limit),
        np.int32,
        (*counts, 8, 8),
        options=".satfinite",
    )
    exact = a.astype(np.int64) @ b.astype(np.int64) + limit
    assert np.array_equal(d, exact.clip(None, 2**31 - 1))


def test_f64() -> None:
    a, b, c = RNG.standard_normal((8, 4)), RNG.standard_normal((4, 8)), RNG.standard_normal((8, 8))
    d = product(
        "m8n8k4", "f64.f64.f64.f64", ("f64", "f64", "f64"), (a, b, c), np.float64, (1, 1, 2, 2), kind="%rd"
    )
    assert np.allclose(d, a @ b + c, rtol=0, atol=1e-14)


def test_elementwise_work_on_fragments() -> None:
    """Does what `for (i < frag.num_elements) frag.x[i] *= 2` does, on A and on the accumulator."""
    a, b = RNG.standard_normal((16, 16)).astype(np.float16), RNG.standard_normal((16, 16)).astype(np.float16)
    c = RNG.standard_normal((16, 16)).astype(np.float32)
    double_a = "".join(f"add.f16x2 %r{20 + i}, %r{20 + i}, %r{20 + i};\n" for i in range(8))
    double_c = "".join(
        f"mov.b32 %f10, %r{40 + i}; add.f32 %f10, %f10, %f10; mov.b32 %r{40 + i}, %f10;\n" for i in range(8)
    )
    d = product(
        "m16n16k16",
        "f32.f32",
        ("f16", "f16", "f32"),
        (a, b, c),
        np.float32,
        (8, 8, 8, 8),
        between=double_a + double_c,
    )
    assert close(d, 2 * (a.astype(np.float64) @ b + c), 2**-20)


@pytest.mark.parametrize("generic", [False, True])
def test_shared_memory_and_the_stride_that_is_left_out(generic: bool) -> None:
    source, result = RNG.standard_normal((16, 16)).astype(np.float32), np.zeros((16, 16), np.float32)
    where = "" if generic else ".shared"
    launch = run(
        f"""
  wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {registers(20, 8, "%f")}, [%rd0];
  mov.u64 %rd10, smem;
  {"cvta.shared.u64 %rd10, %rd10;" if generic else ""}
  wmma.store.d.sync.aligned.col.m16n16k16{where}.f32 [%rd10], {registers(20, 8, "%f")};
  wmma.load.c.sync.aligned.row.m16n16k16{where}.f32 {registers(30, 8, "%f")}, [%rd10];
  wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {registers(30, 8, "%f")};
""",
        source,
        result,
        shared_bytes=1024,
    )
    assert np.array_equal(result, source.T)
    assert launch.totals()["conflicts"] is not None


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {}, [%rd0+1024];", "out of bounds"),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {}, [%rd0+4];", "misaligned"),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {}, [%rd0], 17;", "misaligned"),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {}, [%rd0], 32;", "out of bounds"),
        ("wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {}, [%rd0], %r0;", "bad operand"),
        ("wmma.load.c.sync.aligned.row.m8n8k128.global.s32 {}, [%rd0];", "unsupported"),
        (
            "setp.eq.u32 %p1, %r0, 3; @%p1 wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {}, [%rd0];",
            "bad operand",
        ),
    ],
)
def test_refusals(instruction: str, kind: str) -> None:
    with pytest.raises(FaultError) as caught:
        run(instruction.format(registers(20, 8, "%f")), np.zeros((16, 16), np.float32))
    assert (
        caught.value.fault.kind in (kind, "deadlock")
        if "@%p1" in instruction
        else caught.value.fault.kind == kind
    )
