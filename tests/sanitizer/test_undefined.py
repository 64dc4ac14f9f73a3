"""Undefined bits are followed exactly: they are those that change when the bytes nobody wrote do."""

from __future__ import annotations

import re
import zlib

import numpy as np
import pytest
from ptx_kernels import run_instruction

from ladder.run.emulator import Finding, Module

_LANES = 32
_DRAWS = 64
_RANDOM_BITS = 2**32

#: Reads a, b and c from shared memory, of which only the bytes that `written` names have been written; stores
#: each bit of d as a byte.
_KERNEL = """
.version 8.8
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pm, .param .u64 out) {{
  .reg .pred %p, %q; .reg .b32 %a, %b, %c, %d, %t, %i, %m, %s, %lo, %hi; .reg .b64 %at, %base, %w;
  .reg .b16 %h, %k;
  .shared .align 16 .b8 memory[1536];
  mov.u32 %i, %tid.x;
  ld.param.u64 %base, [pm];
  mad.wide.u32 %at, %i, 4, %base;
  ld.global.b32 %m, [%at];
  mov.u32 %s, memory;
  mad.lo.u32 %s, %i, 48, %s;
{fills}
  ld.shared.b32 %a, [%s];
  ld.shared.b32 %b, [%s+16];
  ld.shared.b32 %c, [%s+32];
  {operation}
  ld.param.u64 %base, [out];
  mad.wide.u32 %at, %i, 32, %base;
{stores}
  ret;
}}
"""


def _fill(number: int, parameter: str) -> str:
    """Stores the written bytes of one operand."""
    lines = [
        f"ld.param.u64 %base, [{parameter}];",
        "mad.wide.u32 %at, %i, 4, %base;",
        "ld.global.b32 %t, [%at];",
    ]
    for byte in range(4):
        bit = 4 * number + byte
        lines += [
            f"and.b32 %lo, %m, {1 << bit};",
            "setp.ne.u32 %p, %lo, 0;",
            f"@%p st.shared.u8 [%s+{16 * number + byte}], %t;",
            "shr.u32 %t, %t, 8;",
        ]
    return "\n".join(lines)


def _undefined_bits(operation: str, operands: np.ndarray, written: np.ndarray) -> int:
    """How many bits of all results the sanitizer takes for undefined."""
    fills = "\n".join(_fill(number, name) for number, name in enumerate(("pa", "pb", "pc")))
    stores = "\n".join(f"bfe.u32 %t, %d, {i}, 1;\nst.global.u8 [%at+{i}], %t;" for i in range(32))
    module = Module(_KERNEL.format(fills=fills, operation=operation, stores=stores))
    mask = sum(written[:, i].astype(np.uint32) << np.uint32(i) for i in range(12)).astype(np.uint32)
    inputs = [*(np.ascontiguousarray(one) for one in operands), mask]
    for one in inputs:
        one.flags.writeable = False
    launch = module.launch("kernel", 1, _LANES, [*inputs, np.zeros(32 * _LANES, np.uint8)], check=True)
    return sum(_count(finding) for finding in launch.findings)


def _count(finding: Finding) -> int:
    assert finding.kind == "uninitialised read", finding
    found = re.search(r"among them (\d+) of", finding.message)
    assert found, finding
    return int(found[1])


def _results(operation: str, operands: np.ndarray) -> np.ndarray:
    declared = ".reg .pred %p, %q; .reg .b64 %w; .reg .b16 %h, %k; .reg .b32 %lo, %hi;"
    inputs = {name: ("b32", values) for name, values in zip("abc", operands, strict=True)}
    return run_instruction(f"{{ {declared} {operation} }}", inputs, {"d": "b32"})["d"]


def _bits_that_change(operation: str, operands: np.ndarray, written: np.ndarray) -> int:
    """The same, by drawing the bytes that nobody wrote again and again."""
    random = np.random.default_rng(1)
    bytes_of_operands = [(written[:, 4 * i : 4 * i + 4] * 255).astype(np.uint8) for i in range(3)]
    fixed = np.ascontiguousarray(np.stack(bytes_of_operands)).view(np.uint32)[:, :, 0]
    first = _results(operation, operands)
    changed = np.zeros(_LANES, np.uint32)
    for _ in range(_DRAWS):
        drawn = random.integers(0, _RANDOM_BITS, operands.shape, dtype=np.uint32)
        changed |= first ^ _results(operation, (operands & fixed) | (drawn & ~fixed))
    return int(np.unpackbits(changed.view(np.uint8)).sum())


@pytest.mark.parametrize(
    "operation",
    [
        "mov.b32 %d, %a;",
        "not.b32 %d, %a;",
        "and.b32 %d, %a, %b;",
        "or.b32 %d, %a, %b;",
        "xor.b32 %d, %a, %b;",
        "lop3.b32 %d, %a, %b, %c, 0xca;",
        "lop3.b32 %d, %a, %b, %c, 0x1b;",
        "shl.b32 %d, %a, 5;",
        "shr.u32 %d, %a, 13;",
        "shr.s32 %d, %a, 13;",
        "shr.u32 %d, %a, 40;",
        "shf.l.wrap.b32 %d, %a, %b, 37;",
        "shf.r.clamp.b32 %d, %a, %b, 11;",
        "prmt.b32 %d, %a, %b, 0x7240;",
        "prmt.b32 %d, %a, %b, 0x5f91;",
        "bfe.u32 %d, %a, 6, 11;",
        "bfe.s32 %d, %a, 6, 11;",
        "bfi.b32 %d, %a, %b, 9, 10;",
        "mov.b32 {%h, %k}, %a; cvt.u32.u16 %d, %h;",
        "cvt.s32.s8 %d, %a;",
        "cvt.u32.u8 %d, %a;",
        "mov.b32 {%h, %k}, %a; mov.b32 %d, {%k, %h};",
        "mov.b64 %w, {%a, %b}; shr.u64 %w, %w, 24; cvt.u32.u64 %d, %w;",
        "mov.b64 %w, {%a, %b}; mov.b64 {%lo, %d}, %w;",
        "setp.eq.u32 %p, 1, 1; selp.b32 %d, %a, %b, %p;",
    ],
)
def test_bits_of_results_are_undefined_where_they_depend_on_undefined_ones(operation: str) -> None:
    random = np.random.default_rng(zlib.crc32(operation.encode()))
    operands = random.integers(0, _RANDOM_BITS, (3, _LANES), dtype=np.uint32)
    written = random.integers(0, 2, (_LANES, 12)).astype(bool)
    for number in range(3):  # what nobody has written at all is reported when it is loaded
        written[:, 4 * number + 3 - number] = True
    expected = _bits_that_change(operation, operands, written)
    assert (expected == 0) == (", 40;" in operation)
    assert _undefined_bits(operation, operands, written) == expected


@pytest.mark.parametrize("operation", ["add.u32 %d, %a, %b;", "mul.lo.u32 %d, %a, %b;", "popc.b32 %d, %a;"])
def test_one_undefined_bit_spoils_a_whole_sum(operation: str) -> None:
    operands = np.full((3, _LANES), 7, np.uint32)
    written = np.ones((_LANES, 12), bool)
    assert _undefined_bits(operation, operands, written) == 0
    written[3, 2] = written[9, 1] = False
    assert _undefined_bits(operation, operands, written) == 2 * 32
