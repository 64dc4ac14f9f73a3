"""ld and st in every space: values, extension, vectors, sectors, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from warp_kernel import LANES, fault_of, kernel_text, lane_address, lanes, run

from ladder.run.emulator import FaultError, Module

RNG = np.random.default_rng(0)

#: PTX type, NumPy type, register type that can hold a loaded value
TYPES = [
    ("b8", np.uint8, "%rs10"),
    ("u8", np.uint8, "%r10"),
    ("s8", np.int8, "%r10"),
    ("u16", np.uint16, "%rs10"),
    ("s16", np.int16, "%r10"),
    ("b32", np.uint32, "%r10"),
    ("f32", np.float32, "%f10"),
    ("s32", np.int32, "%r10"),
    ("b64", np.uint64, "%rd20"),
    ("f64", np.float64, "%fd10"),
    ("s64", np.int64, "%rd20"),
]

#: name -> module-scope text, PTX that puts this lane's address into %rd11, given its byte offset in %rd12
SPACES = {
    "shared": "mov.u64 %rd11, smem; add.u64 %rd11, %rd11, %rd12;",
    "shared::cta": "mov.u64 %rd11, smem; add.u64 %rd11, %rd11, %rd12;",
    "local": "mov.u64 %rd11, stack; and.b64 %rd12, %rd12, 63; add.u64 %rd11, %rd11, %rd12;",
    "global": "add.u64 %rd11, %rd1, %rd12;",
}


def random(kind: type, *shape: int) -> np.ndarray:
    raw = RNG.integers(0, 256, (*shape, np.dtype(kind).itemsize), np.uint8)
    return raw.view(kind).reshape(shape)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.tobytes() == b.tobytes()


@pytest.mark.parametrize(
    ("space", "generic"),
    [(space, False) for space in SPACES] + [(space, True) for space in SPACES if "::" not in space],
)
@pytest.mark.parametrize(("name", "kind", "register"), TYPES)
def test_there_and_back(space: str, generic: bool, name: str, kind: type, register: str) -> None:
    size = np.dtype(kind).itemsize
    source, scratch, result = random(kind, 32), np.zeros(32, kind), np.zeros(32, kind)
    window = f"cvta.{space}.u64 %rd11, %rd11;" if generic and space != "global" else ""
    where = "" if generic else "." + space
    run(
        lane_address("%rd0", "%rd10", size)
        + lane_address("%rd2", "%rd13", size)
        + f"""
  ld.global.{name} {register}, [%rd10];
  mul.wide.u32 %rd12, %r0, {size};
  {SPACES[space]}
  {window}
  st{where}.{name} [%rd11], {register};
  ld{where}.{name} {register}, [%rd11];
  st.global.{name} [%rd13], {register};
""",
        source,
        scratch,
        result,
        shared_bytes=1024,
        local_bytes=64,
    )
    assert same_bits(result, source)
    if space == "global":
        assert same_bits(scratch, source)


@pytest.mark.parametrize(
    ("elements", "kind"), [(2, "8"), (4, "8"), (2, "16"), (4, "16"), (2, "32"), (4, "32"), (2, "64")]
)
@pytest.mark.parametrize("space", ["global", "shared", "local"])
def test_vectors(elements: int, kind: str, space: str) -> None:
    size = elements * int(kind) // 8
    prefix = {"8": "%rs", "16": "%rs", "32": "%f", "64": "%rd"}[kind]
    registers = "{" + ", ".join(f"{prefix}{30 + i}" for i in range(elements)) + "}"
    source, scratch, result = (
        random(np.uint8, 32 * size),
        np.zeros(32 * size, np.uint8),
        np.zeros(32 * size, np.uint8),
    )
    where = SPACES[space].replace("63", "0") if space == "local" else SPACES[space]
    run(
        lane_address("%rd0", "%rd10", size)
        + lane_address("%rd2", "%rd13", size)
        + f"""
  ld.global.v{elements}.b{kind} {registers}, [%rd10];
  mul.wide.u32 %rd12, %r0, {size};
  {where}
  st.{space}.v{elements}.b{kind} [%rd11], {registers};
  ld.{space}.v{elements}.b{kind} {registers}, [%rd11];
  st.global.v{elements}.b{kind} [%rd13], {registers};
""",
        source,
        scratch,
        result,
        shared_bytes=1024,
        local_bytes=16,
    )
    assert same_bits(result, source)


@pytest.mark.parametrize(
    ("source_type", "signed"),
    [("s8", True), ("u8", False), ("s16", True), ("u16", False), ("s32", True), ("u32", False)],
)
@pytest.mark.parametrize(("register", "bits"), [("%rs10", 16), ("%r10", 32), ("%rd20", 64)])
def test_extension(source_type: str, signed: bool, register: str, bits: int) -> None:
    width = int(source_type[1:])
    if width > bits:
        with pytest.raises(FaultError, match="narrower"):
            run(f"ld.global.{source_type} {register}, [%rd0];", np.zeros(32, np.int64))
        return
    source = random(np.dtype(f"{'i' if signed else 'u'}{width // 8}").type, 32)
    result = np.zeros(32, f"u{bits // 8}")
    run(
        lane_address("%rd0", "%rd10", width // 8)
        + lane_address("%rd1", "%rd11", bits // 8)
        + f"ld.global.{source_type} {register}, [%rd10]; st.global.b{bits} [%rd11], {register};",
        source,
        result,
    )
    assert np.array_equal(
        result, source.astype(result.dtype if not signed else f"i{bits // 8}").view(result.dtype)
    )


def test_stores_take_the_low_bits_of_wider_registers() -> None:
    result = np.full(32 * 8, 0xEE, np.uint8)
    run(
        lane_address("%rd0", "%rd10", 8)
        + """
  mov.u64 %rd20, 0x1122334455667788;
  st.global.u8 [%rd10], %rd20;
  st.global.u16 [%rd10+2], %rd20;
  st.global.u32 [%rd10+4], %rd20;
""",
        result,
    )
    assert np.array_equal(
        result.reshape(32, 8), np.tile([0x88, 0xEE, 0x88, 0x77, 0x88, 0x77, 0x66, 0x55], (32, 1))
    )


def test_sixteen_bytes_in_one_register() -> None:
    source, result = random(np.uint64, 64), np.zeros(64, np.uint64)
    run(
        ".reg .b128 %q;"
        + lane_address("%rd0", "%rd10", 16)
        + lane_address("%rd1", "%rd11", 16)
        + "ld.global.b128 %q, [%rd10]; st.global.b128 [%rd11], %q;",
        source,
        result,
        version="8.3",
    )
    assert np.array_equal(source, result)


def test_immediates_and_sinks() -> None:
    result = np.zeros((32, 4), np.uint32)
    source = np.arange(128, dtype=np.uint32).reshape(32, 4)
    run(
        lane_address("%rd0", "%rd10", 16)
        + lane_address("%rd1", "%rd11", 16)
        + "ld.global.v4.u32 {_, %r10, _, %r11}, [%rd11]; st.global.v4.u32 [%rd10], {%r10, 7, -1, %r11};",
        result,
        source,
    )
    expected = np.stack([source[:, 1], np.full(32, 7), np.full(32, 2**32 - 1), source[:, 3]], 1)
    assert np.array_equal(result, expected)


def test_only_active_lanes_are_touched() -> None:
    source, result = np.arange(32, dtype=np.uint32), np.full(32, 99, np.uint32)
    run(
        lane_address("%rd0", "%rd10", 4)
        + lane_address("%rd1", "%rd11", 4)
        + """
  and.b32 %r10, %r0, 1;
  setp.eq.u32 %p1, %r10, 1;
  mov.u32 %r11, 77;
  @!%p1 mov.u64 %rd10, 3;
  @!%p1 mov.u64 %rd11, 3;
  @%p1 ld.global.u32 %r11, [%rd10];
  @%p1 st.global.u32 [%rd11], %r11;
""",
        source,
        result,
    )
    assert np.array_equal(result, np.where(LANES % 2, LANES, 99))


def test_a_warp_may_mix_spaces() -> None:
    source, result = np.arange(32, dtype=np.uint32) + 1000, np.zeros(32, np.uint32)
    launch = run(
        lane_address("%rd0", "%rd10", 4)
        + lane_address("%rd1", "%rd11", 4)
        + """
  mul.wide.u32 %rd12, %r0, 4;
  mov.u64 %rd13, smem;
  add.u64 %rd14, %rd13, %rd12;
  st.shared.u32 [%rd14], %r0;
  mov.u64 %rd15, stack;
  add.u32 %r12, %r0, 2000;
  st.local.u32 [%rd15], %r12;
  cvta.shared.u64 %rd14, %rd14;
  cvta.local.u64 %rd15, %rd15;
  setp.lt.u32 %p1, %r0, 10;
  setp.lt.u32 %p2, %r0, 20;
  selp.b64 %rd16, %rd15, %rd14, %p2;
  selp.b64 %rd16, %rd10, %rd16, %p1;
  ld.u32 %r13, [%rd16];
  st.global.u32 [%rd11], %r13;
""",
        source,
        result,
        shared_bytes=128,
        local_bytes=16,
    )
    assert np.array_equal(result, np.where(LANES < 10, source, np.where(LANES < 20, LANES + 2000, LANES)))
    table = launch.instructions().set_index("ptx")
    row = table.loc[next(text for text in table.index if text.startswith("ld.u32"))]
    assert row.shared_load_instructions == 1
    assert row.wavefronts_ld == 1
    # Ten words of one array of any alignment.
    assert row.global_sectors_ld == (source.ctypes.data % 32 + 10 * 4 + 31) // 32


def test_constants_and_module_variables() -> None:
    result = np.zeros(32, np.float32)
    run(
        """
  cvt.u64.u32 %rd10, %r0;
  and.b64 %rd10, %rd10, 3;
  shl.b64 %rd10, %rd10, 2;
  mov.u64 %rd11, table;
  add.u64 %rd11, %rd11, %rd10;
  ld.const.f32 %f10, [%rd11];
  ld.const.f32 %f11, [table+8];
  ld.global.f32 %f12, [scale];
  add.f32 %f10, %f10, %f11;
  mul.f32 %f10, %f10, %f12;
"""
        + lane_address("%rd0", "%rd12", 4)
        + "st.global.f32 [%rd12], %f10;",
        result,
        before=".const .align 4 .f32 table[4] = {0f3F800000, 0f40000000, 0f40400000, 0f40800000};\n"
        ".global .align 4 .f32 scale = 0f41200000;",
    )
    assert np.array_equal(result, (np.array([1, 2, 3, 4], np.float32)[LANES % 4] + 3) * 10)


def test_parameters() -> None:
    """A struct by value, read at constant offsets and through a register."""
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .align 8 .b8 s[24], .param .u8 small)
{
  .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .b16 %rs<4>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd1, %r0, 16;
  add.u64 %rd0, %rd0, %rd1;
  ld.param.v2.u32 {%r1, %r2}, [s+8];
  ld.param.s8 %rs1, [small];
  cvt.s32.s16 %r4, %rs1;
  mov.b64 %rd2, s;
  and.b32 %r5, %r0, 1;
  mul.wide.u32 %rd3, %r5, 4;
  add.u64 %rd2, %rd2, %rd3;
  ld.param.u32 %r3, [%rd2+16];
  st.global.v4.u32 [%rd0], {%r1, %r2, %r3, %r4};
  ret;
}
"""
    result = np.zeros((32, 4), np.int32)
    struct = np.array([1, 2, 3, 4, 5, 6], np.uint32)
    Module(text).launch("k", 1, 32, [result, struct.tobytes(), -5])
    assert np.array_equal(
        result, np.stack([np.full(32, 3), np.full(32, 4), 5 + LANES % 2, np.full(32, -5)], 1)
    )


# --- counts -------------------------------------------------------------------------------------------------


def aligned(count: int, kind: type = np.uint32) -> np.ndarray:
    """An array aligned to 128 bytes."""
    raw = np.zeros(count * np.dtype(kind).itemsize + 128, np.uint8)
    begin = -raw.ctypes.data % 128
    return raw[begin : begin + count * np.dtype(kind).itemsize].view(kind)


@pytest.mark.parametrize(
    ("code", "sectors"),
    [
        ("ld.global.u32 %r10, [%rd1];", 0),
        (
            "ld.global.u32 %r10, [%rd1]; shfl.sync.idx.b32 %r11|%p1, %r10, 0, 31, -1; add.u32 %r12, %r11, 1;",
            0,
        ),
        ("ld.global.u64 %rd10, [%rd0]; ld.global.u32 %r10, [%rd10];", 0),
        ("ld.global.v2.u32 {%r10, %r11}, [%rd1]; st.global.u32 [%rd0], %r11;", 2),
        ("ld.global.u32 %r10, [%rd1]; setp.eq.u32 %p1, %r10, 7; @%p1 st.global.u32 [%rd0], 1;", 1),
        ("ld.global.u32 %r10, [%rd1]; setp.eq.u32 %p1, %r10, 7; @%p1 bra NEXT; bar.sync 0; NEXT:", 1),
        ("ld.volatile.global.u32 %r10, [%rd1];", 1),
        ("ld.acquire.gpu.global.u32 %r10, [%rd1];", 1),
    ],
)
def test_a_load_that_reaches_nothing_is_not_counted(code: str, sectors: int) -> None:
    """As ptxas drops it, and hardware counts nothing."""
    source = aligned(2, np.uint64)
    source[0] = source.ctypes.data
    launch = run(code.replace("; ", ";\n"), source, aligned(2))
    assert launch.totals()["global_sectors_ld"] == sectors


@pytest.mark.parametrize(
    ("size", "offsets", "sectors"),
    [
        (4, LANES * 4, 4),
        (4, LANES * 4 + 4, 5),
        (4, LANES * 32, 32),
        (4, LANES * 0, 1),
        (4, LANES[::-1] * 4, 4),
        (4, (LANES * 7 % 32) * 4, 4),
        (4, (LANES % 2) * 4096 + LANES * 4, 8),
        (1, LANES, 1),
        (2, LANES * 2 + 16, 3),
        (8, LANES * 8, 8),
        (8, LANES * 0, 2),
        (16, LANES * 16, 16),
        (16, LANES * 0, 4),
        (16, LANES // 4 * 16, 4),
    ],
)
def test_global_sectors(size: int, offsets: np.ndarray, sectors: int) -> None:
    """Distinct 32-byte sectors, in passes of 16 lanes for 8 bytes and 8 lanes for 16."""
    kind, registers = {
        1: ("u8", "%rs10"),
        2: ("u16", "%rs10"),
        4: ("u32", "%r10"),
        8: ("v2.u32", "{%r10, %r11}"),
        16: ("v4.u32", "{%r10, %r11, %r12, %r13}"),
    }[size]
    launch = run(
        lane_address("%rd1", "%rd10", 8)
        + f"""
  ld.global.u64 %rd11, [%rd10];
  add.u64 %rd11, %rd11, %rd0;
  ld.global.{kind} {registers}, [%rd11];
  st.global.{kind} [%rd11], {registers};
""",
        aligned(4096),
        offsets.astype(np.uint64),
    )
    table = launch.instructions()
    loads = table[table.ptx.str.contains("ld.global") & table.ptx.str.contains("%rd11]")]
    assert list(loads.global_sectors_ld) == [sectors]
    assert launch.totals()["global_sectors_st"] == sectors


def test_predicated_off_lanes_do_not_count() -> None:
    launch = run(
        lane_address("%rd0", "%rd10", 32) + "setp.lt.u32 %p1, %r0, 5; @%p1 ld.global.u32 %r10, [%rd10];"
        "st.global.u32 [%rd10], %r10;",
        aligned(4096),
    )
    assert launch.totals()["global_sectors_ld"] == 5


def test_generic_shared_accesses_count_as_shared() -> None:
    launch = run(
        """
  mul.wide.u32 %rd10, %r0, 128;
  mov.u64 %rd11, smem;
  add.u64 %rd11, %rd11, %rd10;
  cvta.shared.u64 %rd11, %rd11;
  st.u32 [%rd11], %r0;
  ld.u32 %r10, [%rd11];
  setp.ne.u32 %p1, %r10, %r0;
  @%p1 trap;
""",
        shared_bytes=4096,
    )
    totals = launch.totals()
    assert totals["conflicts_ld"] == totals["conflicts_st"] == 31
    assert totals["global_sectors_ld"] == totals["global_sectors_st"] == 0


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "register"),
    [("u16", "%rs10"), ("u32", "%r10"), ("u64", "%rd20"), ("v4.u32", "{%r10, %r11, %r12, %r13}")],
)
@pytest.mark.parametrize("space", ["global", "shared"])
def test_misaligned(kind: str, register: str, space: str) -> None:
    array = aligned(64)
    base = "mov.u64 %rd10, smem;" if space == "shared" else "mov.u64 %rd10, %rd0;"
    error = fault_of(
        run,
        f"""
  {base}
  setp.eq.u32 %p1, %r0, 9;
  @%p1 add.u64 %rd10, %rd10, 1;
  ld.{space}.{kind} {register}, [%rd10];
""",
        array,
        shared_bytes=64,
    )
    assert (error.kind, error.lane, error.warp) == ("misaligned", 9, 0)
    assert error.address is not None and error.address % 2 == 1
    assert "ld" in error.opcode


@pytest.mark.parametrize("write", [False, True])
def test_out_of_bounds_in_global_memory(write: bool) -> None:
    array = np.zeros(31, np.uint32)
    access = "st.global.u32 [%rd10], %r0;" if write else "ld.global.u32 %r10, [%rd10];"
    error = fault_of(run, lane_address("%rd0", "%rd10", 4) + access, array)
    assert (error.kind, error.lane) == ("out of bounds", 31)
    assert error.address == array.ctypes.data + 124
    assert error.thread == (31, 0, 0)


@pytest.mark.parametrize("address", [-8, 1024, 4096])
def test_out_of_bounds_in_shared_memory(address: int) -> None:
    error = fault_of(
        run,
        f"mov.u32 %r10, smem; add.s32 %r10, %r10, {address}; st.shared.v2.u32 [%r10], {{%r0, %r0}};",
        shared_bytes=1024,
    )
    assert error.kind == "out of bounds"
    assert error.lane == 0


def test_out_of_bounds_in_local_memory() -> None:
    error = fault_of(run, "mov.u64 %rd10, stack; st.local.u32 [%rd10+64], %r0;", local_bytes=64)
    assert (error.kind, error.lane) == ("out of bounds", 0)


def test_null_and_wild_pointers() -> None:
    assert fault_of(run, "mov.u64 %rd10, 0; ld.u32 %r10, [%rd10];").kind == "out of bounds"
    assert fault_of(run, "mov.u64 %rd10, 0xfff0000000000000; ld.u32 %r10, [%rd10];").kind == "out of bounds"
    assert fault_of(run, "mov.u64 %rd10, -8; ld.global.u64 %rd11, [%rd10];").kind == "out of bounds"


def test_read_only_memory() -> None:
    array = np.zeros(32, np.uint32)
    array.flags.writeable = False
    assert fault_of(run, "st.global.u32 [%rd0], %r0;", array).kind == "read only"
    constant = fault_of(run, "mov.u64 %rd10, c; st.global.u32 [%rd10], %r0;", before=".const .u32 c = 1;")
    assert constant.kind == "read only"


def test_unknown_modifiers_are_refused_by_name() -> None:
    for instruction in ("ld.global.sparse.u32 %r10, [%rd0];", "st.const.u32 [%rd0], %r10;"):
        error = fault_of(run, instruction, np.zeros(1, np.uint32))
        assert error.kind == "unsupported"


def test_caching_and_ordering_modifiers() -> None:
    array = np.arange(32, dtype=np.uint32)
    result = np.zeros(32, np.uint32)
    loads = [
        "ld.volatile.global.u32", "ld.relaxed.gpu.global.u32", "ld.acquire.sys.global.u32",
        "ld.weak.global.u32", "ld.global.nc.u32", "ld.global.ca.u32", "ld.global.cg.u32",
        "ld.global.cs.u32", "ld.global.lu.u32", "ld.global.nc.L1::no_allocate.u32",
        "ld.global.L2::128B.u32", "ld.global.L1::evict_last.u32", "ldu.global.u32",
    ]  # fmt: skip
    stores = [
        "st.volatile.global.u32",
        "st.release.gpu.global.u32",
        "st.global.wb.u32",
        "st.global.L1::no_allocate.u32",
    ]
    body = lane_address("%rd0", "%rd10", 4) + lane_address("%rd1", "%rd11", 4) + "mov.u32 %r11, 0;"
    body += "".join(f"{load} %r10, [%rd10]; add.u32 %r11, %r11, %r10;\n" for load in loads)
    body += "fence.acq_rel.gpu; membar.gl; fence.sc.sys; prefetch.global.L2 [%rd10]; prefetchu.L1 [%rd10];"
    body += "".join(f"{store} [%rd11], %r11;\n" for store in stores)
    run(body, array, result)
    assert np.array_equal(result, array * len(loads))


def test_shared_memory_of_a_launch() -> None:
    """The dynamic part follows the static one and has the size given at launch."""
    text = kernel_text(
        """
  mov.u32 %r10, dynamic;
  mov.u32 %r11, smem;
  sub.u32 %r12, %r10, %r11;
  shl.b32 %r13, %r0, 2;
  add.u32 %r14, %r10, %r13;
  st.shared.u32 [%r14], %r12;
  ld.shared.u32 %r15, [%r14];
"""
        + lane_address("%rd0", "%rd10", 4)
        + "st.global.u32 [%rd10], %r15;",
        shared_bytes=100,
        before=".extern .shared .align 16 .b8 dynamic[];",
    )
    result = np.zeros(32, np.uint32)
    module = Module(text)
    module.launch("k", 1, 32, [result], smem_bytes=128)
    assert (result == 112).all()
    fault = fault_of(module.launch, "k", 1, 32, [result], smem_bytes=124)
    assert (fault.kind, fault.lane) == ("out of bounds", 31)


@pytest.mark.parametrize(("mask", "offset"), [(0x0FFF, 4), (0xFFF0, -4), (0x00F0, -4), (0x0F0F, 4)])
def test_bytes_that_do_not_count_may_lie_outside_memory(mask: int, offset: int) -> None:
    """`used_bytes_mask` marks the bytes that a widened load needs; the others do not count as accessed."""
    words = np.arange(100, 104, dtype=np.uint32)
    result = np.zeros(4, np.uint32)
    # The 12 valid bytes are the last or the first 12 of the 16 that the load reads.
    source, skip = (words[:3].copy(), 0) if offset > 0 else (words[1:].copy(), 4)
    body = f"""
  .reg .b64 %at;
  sub.u64 %at, %rd0, {skip};
  .pragma "used_bytes_mask {mask}";
  ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%at];
  st.global.v4.u32 [%rd1], {{%r10, %r11, %r12, %r13}};
"""
    storage = np.zeros(64, np.uint32)
    begin = -(storage.ctypes.data // 4) % 4 + (1 if skip else 0)
    view = storage[begin : begin + 3]
    view[:] = source
    run(body, view, result, block=1)
    for i in range(4):
        if mask >> (4 * i) & 0xF:
            assert result[i] == words[i]


@pytest.mark.parametrize("threads", [1, 32])
def test_bytes_that_do_not_count_are_read_where_they_are(threads: int) -> None:
    """nvcc 13.0 uses registers whose bytes it has marked as unused."""
    words, result = np.arange(100, 104, dtype=np.uint32), np.zeros(4, np.uint32)
    body = """
  .pragma "used_bytes_mask 240";
  ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd0];
  st.global.v4.u32 [%rd1], {%r10, %r11, %r12, %r13};
"""
    run(body, words, result, block=threads)
    assert (result == words).all()


def test_without_the_mask_the_same_load_is_out_of_bounds() -> None:
    storage = np.zeros(64, np.uint32)
    begin = -(storage.ctypes.data // 4) % 4
    body = "  ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd0];\n"
    with pytest.raises(FaultError, match="16 bytes that no allocation holds"):
        run(body, storage[begin : begin + 3], block=1)


def test_system_shared_memory() -> None:
    """The reserved bytes before a block's own are zero, and usable once it reads their address."""
    use = """
  mad.lo.u32 %r21, %r0, 4, %r20;
  atom.shared.add.u32 %r11, [%r21], %r0;
  ld.shared.u32 %r10, [%r21];
"""
    asked = "mov.u32 %r20, %reserved_smem_offset_1;"
    assert np.array_equal(lanes(asked + use, shared_bytes=128), LANES)
    assert fault_of(lanes, "mov.u32 %r20, 0;" + use, shared_bytes=128).kind == "out of bounds"


@pytest.mark.parametrize("name", ["begin", "end", "cap", "0", "1"])
def test_where_system_shared_memory_is(name: str) -> None:
    """Expects an H200's answers."""
    expected = {"end": 288, "cap": 1024}.get(name, 0)
    assert set(lanes(f"mov.u32 %r10, %reserved_smem_offset_{name};", arch="sm_90")) == {expected}
