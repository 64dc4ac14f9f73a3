"""mov in all its forms, generic addresses and special registers."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_kernels import element_type, run_forms, run_instruction

from ladder.run.emulator import FaultError, Module


@pytest.mark.parametrize("t", ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"))
def test_registers_are_copied_bit_for_bit(t: str) -> None:
    element = np.dtype(element_type(t))
    a = np.frombuffer(np.random.default_rng(1).bytes(37 * element.itemsize), element)
    got = run_instruction(f"mov.{t} %d, %a;", {"a": (t, a)}, {"d": t})
    assert got["d"].tobytes() == a.tobytes()


def test_immediates() -> None:
    forms = {
        "mov.u32 %d, 0xdeadbeef; mov.u64 %e, 0;": (0xDEADBEEF, 0),
        "mov.s32 %d, -1; mov.s64 %e, -2;": (0xFFFFFFFF, 2**64 - 2),
        "mov.f32 %d, 0f3FC00000; mov.f64 %e, 0dBFF0000000000000;": (0x3FC00000, 0xBFF0000000000000),
        "mov.f32 %d, 0.5; mov.f64 %e, 0.25;": (0x3F000000, 0x3FD0000000000000),
        ".reg .u16 %h; mov.u16 %h, -1; cvt.u32.u16 %d, %h; mov.b64 %e, 1;": (0xFFFF, 1),
        ".reg .b16 %h; mov.b16 %h, 0x3C00; mov.b32 %d, {%h, %h}; mov.b64 %e, {%d, 7};": (
            0x3C003C00,
            0x73C003C00,
        ),
    }
    got = run_forms({line: line for line in forms}, {}, {"d": "b32", "e": "b64"})
    for line, (d, e) in forms.items():
        assert set(got[line]["d"].tolist()) == {d} and set(got[line]["e"].tolist()) == {e}, line


def test_packing_and_unpacking() -> None:
    rng = np.random.default_rng(2)
    x = rng.integers(0, 2**64, 40, dtype=np.uint64)
    lines = {
        "b64 two": ".reg .b32 %x, %y; mov.b64 {%x, %y}, %a; mov.b64 %d, {%y, %x};",
        "b64 four": ".reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b64 %d, {%h3, %h2, %h1, %h0};",
        "b32 two": """.reg .b32 %x, %y; .reg .b16 %h<2>; mov.b64 {%x, %y}, %a;
                      mov.b32 {%h0, %h1}, %x; mov.b32 %x, {%h1, %h0}; mov.b64 %d, {%x, %y};""",
        "b32 four": """.reg .b32 %x, %y; .reg .b8 %c<4>; mov.b64 {%x, %y}, %a;
                       mov.b32 {%c0, %c1, %c2, %c3}, %x;
                       mov.b32 %x, {%c3, %c2, %c1, %c0}; mov.b64 %d, {%x, %y};""",
        "b16": """.reg .b16 %h<4>; .reg .b8 %c<2>; mov.b64 {%h0, %h1, %h2, %h3}, %a;
                  mov.b16 {%c0, %c1}, %h0; mov.b16 %h0, {%c1, %c0}; mov.b64 %d, {%h0, %h1, %h2, %h3};""",
        "sinks": """.reg .b32 %x; .reg .b16 %h; mov.b64 {_, %x}, %a; mov.b32 {%h, _}, %x;
                    mov.b32 %x, {%h, 0}; mov.b64 %d, {%x, 1};""",
        "b128": """.reg .b128 %q, %r; .reg .b64 %x, %y; mov.b64 %x, 5;
                   mov.b128 %q, {%a, %x}; mov.b128 %r, %q; mov.b128 {%x, %y}, %r; xor.b64 %d, %x, %y;""",
        "b128 four": """.reg .b128 %q; .reg .b32 %x, %y, %z, %w; mov.b64 {%x, %y}, %a;
                        mov.b128 %q, {1, %y, %x, 2}; mov.b128 {%x, %y, %z, %w}, %q; mov.b64 %d, {%z, %y};""",
        "in place": ".reg .b32 %x, %y; mov.b64 %d, %a; mov.b64 {%x, %y}, %d; mov.b64 %d, {%y, %x};",
    }
    got = run_forms(lines, {"a": ("b64", x)}, {"d": "b64"})
    low, high = x & 0xFFFFFFFF, x >> np.uint64(32)
    quarters = x.view(np.uint16).reshape(-1, 4)
    octets = x.view(np.uint8).reshape(-1, 8)
    swapped = low << np.uint64(32) | high

    def joined(parts: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(parts).view(np.uint64).ravel()

    expected = {
        "b64 two": swapped,
        "b64 four": joined(quarters[:, ::-1]),
        "b32 two": joined(quarters[:, [1, 0, 2, 3]]),
        "b32 four": joined(octets[:, [3, 2, 1, 0, 4, 5, 6, 7]]),
        "b16": joined(octets[:, [1, 0, 2, 3, 4, 5, 6, 7]]),
        "sinks": (high & 0xFFFF) | np.uint64(1 << 32),
        "b128": x ^ np.uint64(5),
        "b128 four": x,
        "in place": swapped,
    }
    for form in lines:
        assert got[form]["d"].tolist() == expected[form].tolist(), form


def test_special_registers() -> None:
    registers = [f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"]
    registers += ["laneid", "warpid", *(f"lanemask_{order}" for order in ("eq", "lt", "le", "gt", "ge"))]
    registers += ["dynamic_smem_size"]
    stores = "\n".join(
        f"mov.u32 %v, %{register}; st.global.u32 [%at+{4 * i}], %v;" for i, register in enumerate(registers)
    )
    width = len(registers)
    module = Module(f"""
        .version 8.8
        .target sm_80
        .address_size 64
        .visible .entry specials(.param .u64 out) {{
          .reg .u32 %x, %y, %z, %n, %v; .reg .u64 %at;
          mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %ctaid.y;
          mov.u32 %n, %ntid.x; mad.lo.u32 %x, %y, %n, %x; mov.u32 %n, %ctaid.x; mad.lo.u32 %n, %z, 3, %n;
          mad.lo.u32 %x, %n, 40, %x;
          ld.param.u64 %at, [out]; mad.wide.u32 %at, %x, {4 * width}, %at;
          {stores}
          ret;
        }}""")
    grid, block = (3, 2, 1), (8, 5, 1)
    out = np.zeros((2, 3, 5, 8, width), np.uint32)
    module.launch("specials", grid, block, [out], smem_bytes=48)
    for (cy, cx, ty, tx), values in zip(np.ndindex(2, 3, 5, 8), out.reshape(-1, width), strict=True):
        lane = (ty * 8 + tx) % 32
        bit = 1 << lane
        want = [tx, ty, 0, *block, cx, cy, 0, *grid, lane, (ty * 8 + tx) // 32]
        want += [bit, bit - 1, bit | (bit - 1), 2**32 - 1 & ~(bit | (bit - 1)), 2**32 - 1 & ~(bit - 1), 48]
        assert values.tolist() == want


def test_clocks_only_go_forward() -> None:
    lines = [
        ".reg .u64 %s, %t; .reg .u32 %x, %y; .reg .pred %p;",
        "mov.u64 %s, %clock64; mov.u32 %x, %clock; mov.u32 %y, %clock_hi; mov.u64 %t, %clock64;",
        "setp.lt.u64 %p, %s, %t; selp.u32 %d, 1, 0, %p;",
        "mov.u64 %s, %globaltimer; mov.u32 %x, %globaltimer_lo; mov.u64 %t, %globaltimer;",
        "setp.le.u64 %p, %s, %t; selp.u32 %e, 1, 0, %p;",
    ]
    got = run_instruction(lines, {}, {"d": "u32", "e": "u32"})
    assert got["d"].all() and got["e"].all()


def test_generic_addresses_lead_back_to_their_space() -> None:
    declare = ".global .u32 g = 11; .const .u32 c[2] = {22, 33};"
    local = ".local .align 4 .b8 stack[16]; .shared .align 4 .b8 tile[64];"
    common = local + " .reg .u64 %s, %t; .reg .u32 %x;"
    # Stores through the space's own address and loads through the generic one, or the other way.
    forms = {
        "shared": """mov.u64 %s, tile; st.shared.u32 [%s+4], 5; cvta.shared.u64 %t, %s; ld.u32 %d, [%t+4];
                     isspacep.shared %p, %t;""",
        "shared::cta": """cvta.shared.u64 %t, tile; st.u32 [%t+8], 6; cvta.to.shared.u64 %s, %t;
                          ld.shared.u32 %d, [%s+8]; isspacep.shared::cta %p, %t;""",
        "shared 32": """mov.u64 %s, tile; cvt.u32.u64 %x, %s; st.shared.u32 [%x], 7; ld.shared.u32 %d, [%s];
                        setp.eq.u32 %p, %d, 7;""",
        "local": """mov.u64 %s, stack; st.local.u32 [%s+4], %a; cvta.local.u64 %t, %s; ld.u32 %d, [%t+4];
                    isspacep.local %p, %t;""",
        "local back": """cvta.local.u64 %t, stack; st.u32 [%t], %a; cvta.to.local.u64 %s, %t;
                         ld.local.u32 %d, [%s]; isspacep.local %p, %t;""",
        "global": "mov.u64 %s, g; cvta.global.u64 %t, %s; ld.u32 %d, [%t]; isspacep.global %p, %t;",
        "global back": """cvta.global.u64 %t, g; cvta.to.global.u64 %s, %t; ld.global.u32 %d, [%s];
                          isspacep.global %p, %t;""",
        "const": "mov.u64 %s, c+4; cvta.const.u64 %t, %s; ld.u32 %d, [%t]; setp.eq.u32 %p, 0, 0;",
        "const back": """cvta.const.u64 %t, c; cvta.to.const.u64 %s, %t; ld.const.u32 %d, [%s];
                         setp.eq.u32 %p, 0, 0;""",
    }
    a = np.arange(70, dtype=np.uint32)
    got = run_forms(
        {k: common + v for k, v in forms.items()},
        {"a": ("u32", a)},
        {"d": "u32", "p": "pred"},
        declare=declare,
    )
    expected = {
        "shared": 5, "shared::cta": 6, "shared 32": 7, "global": 11, "global back": 11,
        "const": 33, "const back": 22,
    }  # fmt: skip
    for form in forms:
        want = [expected[form]] * a.size if form in expected else a.tolist()
        assert got[form]["d"].tolist() == want, form
        assert got[form]["p"].all(), form


def test_a_generic_address_is_in_one_space_only() -> None:
    local = ".local .align 4 .b8 stack[16]; .shared .align 4 .b8 tile[64]; .reg .u64 %t;"
    addresses = {
        "shared": "cvta.shared.u64 %t, tile;",
        "local": "cvta.local.u64 %t, stack;",
        "global": "cvta.global.u64 %t, g;",
    }
    forms = {
        (space, asked): f"{local} {line} isspacep.{asked} %p, %t;"
        for space, line in addresses.items()
        for asked in ("shared", "local", "global", "param")
    }
    got = run_forms(forms, {}, {"p": "pred"}, declare=".global .u32 g;")
    for space, asked in forms:
        assert set(got[space, asked]["p"].tolist()) == {int(space == asked)}, (space, asked)


def test_local_variables_of_a_called_function_are_its_own() -> None:
    declare = """
    .func (.param .u32 result) sum(.param .u32 value) {
      .local .align 8 .b8 stack[16];
      .reg .u64 %s, %t; .reg .u32 %v, %w;
      mov.u64 %s, stack; cvta.local.u64 %t, %s;
      ld.param.u32 %v, [value]; st.local.u32 [%s+8], %v; ld.u32 %w, [%t+8];
      add.u32 %w, %w, 100; st.param.u32 [result], %w; ret;
    }"""
    lines = [
        ".local .align 8 .b8 mine[16]; .reg .u64 %s; .reg .u32 %v;",
        "mov.u64 %s, mine; st.local.u32 [%s+8], 7;",
        "{ .param .u32 to; .param .u32 from; st.param.u32 [to], %a; call (from), sum, (to);",
        "ld.param.u32 %d, [from]; }",
        "ld.local.u32 %v, [%s+8]; mad.lo.u32 %d, %v, 1000, %d;",
    ]
    a = np.arange(40, dtype=np.uint32)
    got = run_instruction(lines, {"a": ("u32", a)}, {"d": "u32"}, declare=declare)
    assert got["d"].tolist() == (7100 + a).tolist()


def test_the_address_of_a_kernel_parameter() -> None:
    module = Module("""
        .version 8.8
        .target sm_80
        .address_size 64
        .visible .entry copy(.param .u64 out, .param .align 8 .b8 values[16]) {
          .reg .u64 %o, %s, %t; .reg .u32 %x; .reg .pred %p;
          ld.param.u64 %o, [out];
          mov.b64 %s, values; cvta.param.u64 %t, %s;
          ld.u32 %x, [%t+4]; st.global.u32 [%o], %x;
          ld.param.u32 %x, [%s+8]; st.global.u32 [%o+4], %x;
          isspacep.param %p, %t; selp.u32 %x, 1, 0, %p; st.global.u32 [%o+8], %x;
          isspacep.global %p, %t; selp.u32 %x, 1, 0, %p; st.global.u32 [%o+12], %x;
          ret;
        }""")
    out = np.zeros(4, np.uint32)
    module.launch("copy", 1, 1, [out, np.arange(10, 14, dtype=np.uint32).tobytes()])
    assert out.tolist() == [11, 12, 1, 1]


@pytest.mark.parametrize(
    "line", ["mov.u64 %d, %a;", "mov.b32 {%d, %d, %d}, %d;", "isspacep.const %p, %e;", "cvta.u64 %e, %e;"]
)
def test_what_does_not_exist_is_refused(line: str) -> None:
    with pytest.raises(FaultError, match="not supported: " + line.split()[0]):
        run_instruction(
            [".reg .pred %p; .reg .u64 %e;", line], {"a": ("u32", np.zeros(32, np.uint32))}, {"d": "u32"}
        )
