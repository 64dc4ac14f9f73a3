"""atom and red: the memory afterwards, and what each lane gets back, in lane order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from warp_kernel import LANES, fault_of, lane_address, run

RNG = np.random.default_rng(2)

Operation = Callable[[object, object], object]


def wrap(bits: int) -> Callable[[int], int]:
    return lambda value: value & (2**bits - 1)


#: name -> (NumPy type, new value from memory and operand)
FORMS: dict[str, tuple[type, Callable[[int, int], int]]] = {
    "add.u32": (np.uint32, lambda m, b: wrap(32)(m + b)),
    "add.s32": (np.int32, lambda m, b: wrap(32)(m + b)),
    "add.u64": (np.uint64, lambda m, b: wrap(64)(m + b)),
    "min.u32": (np.uint32, min),
    "max.u32": (np.uint32, max),
    "min.s32": (np.int32, min),
    "max.s32": (np.int32, max),
    "min.u64": (np.uint64, min),
    "max.u64": (np.uint64, max),
    "min.s64": (np.int64, min),
    "max.s64": (np.int64, max),
    "and.b32": (np.uint32, lambda m, b: m & b),
    "or.b32": (np.uint32, lambda m, b: m | b),
    "xor.b32": (np.uint32, lambda m, b: m ^ b),
    "and.b64": (np.uint64, lambda m, b: m & b),
    "or.b64": (np.uint64, lambda m, b: m | b),
    "xor.b64": (np.uint64, lambda m, b: m ^ b),
    "exch.b32": (np.uint32, lambda m, b: b),
    "exch.b64": (np.uint64, lambda m, b: b),
    "inc.u32": (np.uint32, lambda m, b: 0 if m >= b else m + 1),
    "dec.u32": (np.uint32, lambda m, b: b if m == 0 or m > b else m - 1),
}

REGISTERS = {2: ("b16", "%rs"), 4: ("b32", "%r"), 8: ("b64", "%rd")}


def launch_form(
    opcode: str, form: str, space: str, memory: np.ndarray, slots: np.ndarray, *operands: np.ndarray
):
    """Lets each lane act on memory[slots[lane]]; returns the memory, the lanes' results and the launch."""
    size = memory.itemsize
    kind, r = REGISTERS[size]
    result = np.zeros(32, memory.dtype)
    final = memory.copy()
    sources = ", ".join(f"{r}{30 + i}" for i in range(len(operands)))
    loads = "".join(
        lane_address(f"%rd{3 + i}", "%rd20", size) + f"ld.global.{kind} {r}{30 + i}, [%rd20];\n"
        for i in range(len(operands))
    )
    where = "" if space == "generic" else f".{space}"
    shared = space in ("shared", "generic")
    base = "mov.u64 %rd21, smem;" if shared else "mov.u64 %rd21, %rd0;"
    act = f"{opcode}{where}.{form} {f'{r}40, ' if opcode.startswith('atom') else ''}[%rd23], {sources};"
    copy_in = f"ld.global.{kind} {r}41, [%rd26]; st.shared.{kind} [%rd27], {r}41; bar.warp.sync -1;"
    copy_out = f"bar.warp.sync -1; ld.shared.{kind} {r}41, [%rd27]; st.global.{kind} [%rd26], {r}41;"
    launch = run(
        loads
        + lane_address("%rd1", "%rd22", 4)
        + lane_address("%rd2", "%rd25", size)
        + lane_address("%rd0", "%rd26", size)
        + f"""
  {base}
  mul.wide.u32 %rd27, %r0, {size};
  mov.u64 %rd28, smem;
  add.u64 %rd27, %rd28, %rd27;
  setp.lt.u32 %p1, %r0, {len(memory)};
  {copy_in if shared else ""}
  ld.global.u32 %r10, [%rd22];
  mul.wide.u32 %rd23, %r10, {size};
  add.u64 %rd23, %rd21, %rd23;
  {"cvta.shared.u64 %rd23, %rd23;" if space == "generic" else ""}
  {act}
  {f"st.global.{kind} [%rd25], {r}40;" if opcode.startswith("atom") else ""}
  {copy_out if shared else ""}
""",
        final,
        slots.astype(np.uint32),
        result,
        *operands,
        shared_bytes=1024,
        arch="sm_90",
        version="8.6",
    )
    return final, result, launch


SLOTS = {
    "apart": LANES,
    "pairs": LANES // 2,
    "all_one": LANES * 0 + 5,
    "scattered": RNG.integers(0, 32, 32),
}


def draw(kind: type, count: int) -> np.ndarray:
    info = np.iinfo(kind)
    return RNG.choice(np.array([0, 1, 2, 7, info.max, info.min, 12345], kind), count)


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize("form", FORMS)
def test_integers(form: str, space: str) -> None:
    kind, operation = FORMS[form]
    for slots in SLOTS.values():
        memory, b = draw(kind, 32), draw(kind, 32)
        final, result, _ = launch_form("atom", form, space, memory, slots, b)
        reduced, _, _ = (
            launch_form("red", form, space, memory, slots, b) if "exch" not in form else (final, 0, 0)
        )
        expected, returned = memory.copy(), np.zeros(32, kind)
        for lane in range(32):
            old = int(expected[slots[lane]])
            returned[lane] = old
            new = int(operation(old, int(b[lane])))
            expected[slots[lane]] = np.array(
                [new & (2 ** (8 * memory.itemsize) - 1)], f"u{memory.itemsize}"
            ).view(kind)[0]
        assert np.array_equal(final, expected)
        assert np.array_equal(result, returned)
        assert np.array_equal(reduced, expected)


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_compare_and_swap(bits: int, space: str) -> None:
    kind = np.dtype(f"u{bits // 8}").type
    for slots in SLOTS.values():
        memory = RNG.integers(0, 3, 32).astype(kind)
        b, c = RNG.integers(0, 3, 32).astype(kind), RNG.integers(0, 3, 32).astype(kind)
        final, result, _ = launch_form("atom", f"cas.b{bits}", space, memory, slots, b, c)
        expected, returned = memory.copy(), np.zeros(32, kind)
        for lane in range(32):
            returned[lane] = expected[slots[lane]]
            if returned[lane] == b[lane]:
                expected[slots[lane]] = c[lane]
        assert np.array_equal(final, expected)
        assert np.array_equal(result, returned)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("form", "kind"), [("add.f32", np.float32), ("add.f64", np.float64), ("add.noftz.f16", np.float16)]
)
def test_floats(form: str, kind: type, space: str) -> None:
    for slots in SLOTS.values():
        memory, b = RNG.standard_normal(32).astype(kind), RNG.standard_normal(32).astype(kind)
        final, result, _ = launch_form("atom", form, space, memory, slots, b)
        expected, returned = memory.copy(), np.zeros(32, kind)
        for lane in range(32):
            returned[lane] = expected[slots[lane]]
            expected[slots[lane]] = returned[lane] + b[lane]
        assert np.array_equal(final, expected)
        assert np.array_equal(result, returned)


def test_subnormals_are_flushed_in_global_memory_only() -> None:
    tiny = np.full(32, 1e-40, np.float32)
    in_global, _, _ = launch_form("atom", "add.f32", "global", tiny, LANES, tiny)
    in_shared, _, _ = launch_form("atom", "add.f32", "shared", tiny, LANES, tiny)
    assert not in_global.any()
    assert np.array_equal(in_shared, tiny + tiny)


@pytest.mark.parametrize("space", ["global", "shared"])
def test_packed_halves(space: str) -> None:
    halves, addends = RNG.standard_normal((2, 64)).astype(np.float16)
    final, result, _ = launch_form(
        "atom", "add.noftz.f16x2", space, halves.view(np.uint32), LANES, addends.view(np.uint32)
    )
    assert np.array_equal(final.view(np.float16), halves + addends)
    assert np.array_equal(result.view(np.float16), halves)


def test_bfloat() -> None:
    """1 + 2^-8 rounds to even, that is down; 1 + 3 * 2^-8 rounds up."""
    one, sums = 0x3F80, {0x3F80: 0x4000, 0x3B80: 0x3F80, 0x3C40: 0x3F82}
    for addend, expected in sums.items():
        memory, b = np.full(32, one, np.uint16), np.full(32, addend, np.uint16)
        final, _, _ = launch_form("atom", "add.noftz.bf16", "global", memory, LANES, b)
        assert (final == expected).all()
        pair = np.full(32, one | one << 16, np.uint32)
        final, _, _ = launch_form(
            "atom", "add.noftz.bf16x2", "global", pair, LANES, np.full(32, addend << 16, np.uint32)
        )
        assert (final == (one | expected << 16)).all()


def test_vectors() -> None:
    memory = RNG.standard_normal((32, 4)).astype(np.float32)
    b = RNG.standard_normal((32, 4)).astype(np.float32)
    final, result = memory.copy(), np.zeros_like(memory)
    run(
        "".join(lane_address(f"%rd{i}", f"%rd{10 + i}", 16) for i in range(3))
        + """
  ld.global.v4.f32 {%f10, %f11, %f12, %f13}, [%rd11];
  atom.global.add.v4.f32 {%f10, %f11, %f12, %f13}, [%rd10], {%f10, %f11, %f12, %f13};
  st.global.v4.f32 [%rd12], {%f10, %f11, %f12, %f13};
  red.global.add.v4.f32 [%rd10], {%f10, %f11, %f12, %f13};
""",
        final,
        b,
        result,
        arch="sm_90",
        version="8.1",
    )
    assert np.array_equal(result, memory)
    assert np.array_equal(final, memory + b + memory)


def test_scopes_and_orders() -> None:
    counter = np.zeros(1, np.uint32)
    forms = [
        "atom.relaxed.gpu.global.add.u32",
        "atom.acq_rel.sys.global.add.u32",
        "atom.acquire.cta.global.add.u32",
    ]
    run(
        "".join(f"{form} %r10, [%rd0], 1;\n" for form in forms) + "red.release.gpu.global.add.u32 [%rd0], 1;",
        counter,
    )
    assert counter[0] == 4 * 32


@pytest.mark.parametrize("threads", [1, 4])
def test_blocks_share_global_memory(threads: int) -> None:
    """Every ticket is handed out exactly once, whatever the number of host threads."""
    counter, tickets, total = np.zeros(1, np.uint32), np.zeros(64 * 64, np.uint32), np.zeros(1, np.float32)
    run(
        """
  atom.global.add.u32 %r10, [%rd0], 1;
  mul.wide.u32 %rd10, %r10, 4;
  add.u64 %rd10, %rd1, %rd10;
  red.global.add.u32 [%rd10], 1;
  red.global.add.f32 [%rd2], 0f3F800000;
""",
        counter,
        tickets,
        total,
        grid=64,
        block=64,
        threads=threads,
    )
    assert counter[0] == 64 * 64
    assert (tickets == 1).all()
    assert total[0] == 64 * 64


# --- counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "form", "conflicts"),
    [
        ("atom", "add.u32", 31),
        ("atom", "cas.b32", 31),
        ("atom", "add.s32", None),
        ("atom", "min.u32", None),
        ("atom", "exch.b32", None),
        ("red", "add.u32", None),
    ],
)
def test_what_is_measured_is_counted(opcode: str, form: str, conflicts: int | None) -> None:
    zeros = np.zeros(32, np.int32 if "s32" in form else np.uint32)
    operands = [zeros] * (2 if "cas" in form else 1)
    _, _, launch = launch_form(opcode, form, "shared", zeros, LANES * 0, *operands)
    totals = launch.totals()
    assert totals["conflicts_atom"] == conflicts
    assert totals["conflicts"] == conflicts


def test_results_that_nobody_reads_were_not_measured() -> None:
    launch = run("mov.u32 %r11, smem; atom.shared.add.u32 %r10, [%r11], %r0;", shared_bytes=128)
    assert launch.totals()["conflicts_atom"] is None
    launch = run(
        "mov.u32 %r11, smem; atom.shared.add.u32 %r10, [%r11], 1; mov.u32 %r12, %r10;", shared_bytes=128
    )
    assert launch.totals()["conflicts_atom"] is None


def test_global_atomics_have_no_bank_conflicts() -> None:
    zeros = np.zeros(32, np.uint32)
    _, _, launch = launch_form("atom", "min.u32", "global", zeros, LANES * 0, zeros)
    assert launch.totals()["conflicts"] == 0


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("atom.global.add.u32 %r10, [%rd0+2], 1;", "misaligned"),
        ("atom.global.add.u32 %r10, [%rd0+4], 1;", "out of bounds"),
        ("mov.u64 %rd10, stack; cvta.local.u64 %rd10, %rd10; atom.add.u32 %r10, [%rd10], 1;", "bad operand"),
        ("atom.global.cas.b128 %r10, [%rd0], %r11, %r12;", "unsupported"),
        ("atom.global.inc.u64 %rd10, [%rd0], %rd11;", "unsupported"),
        ("atom.global.min.f32 %f10, [%rd0], %f11;", "unsupported"),
    ],
)
def test_refusals(instruction: str, kind: str) -> None:
    assert fault_of(run, instruction, np.zeros(1, np.uint32), local_bytes=16).kind == kind
