"""Determines which lane holds which element after ldmatrix and in mma by running the instructions.

A one-warp kernel loads fragments from a shared tile whose elements are their own indices, and writes out what
each lane received.
"""

from __future__ import annotations

import numpy as np

from ladder.counts.banks import LANES
from ladder.run.emulator import Module
from ladder.show.plots import Fragment

_SIDE = 16  # rows and columns of the tile

#: Loads a 16x16 tile of 16-bit elements into shared memory, and from there into four registers per lane,
#: three times: with ldmatrix.x4, with .trans, and with the addresses for K, where the two halves of a row are
#: the two registers of one B fragment. Then multiplies a (16x16, as loaded) by b (16x8, whose two registers
#: are given) and writes the four accumulators.
_PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry fragments(.param .u64 tile, .param .u64 b, .param .u64 plain, .param .u64 transposed,
                          .param .u64 keys, .param .u64 product)
{
  .shared .align 16 .b8 smem[512];
  .reg .u64 %p<8>;
  .reg .u32 %r<40>;
  .reg .f32 %f<4>;
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %p0, %r0, 16;
  ld.param.u64 %p1, [tile];
  add.u64 %p1, %p1, %p0;
  ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%p1];
  shl.b32 %r5, %r0, 4;
  mov.u32 %r6, smem;
  add.u32 %r7, %r6, %r5;
  st.shared.v4.u32 [%r7], {%r1, %r2, %r3, %r4};
  bar.sync 0;
  // row lane % 16, column lane / 16 * 8
  and.b32 %r8, %r0, 15;
  shl.b32 %r8, %r8, 5;
  shr.u32 %r9, %r0, 4;
  shl.b32 %r9, %r9, 4;
  add.u32 %r10, %r8, %r9;
  add.u32 %r10, %r10, %r6;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r10];
  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r15, %r16, %r17, %r18}, [%r10];
  // row lane % 8 + lane / 16 * 8, column lane / 8 % 2 * 8
  and.b32 %r21, %r0, 7;
  shl.b32 %r21, %r21, 5;
  shr.u32 %r22, %r0, 4;
  shl.b32 %r22, %r22, 8;
  add.u32 %r21, %r21, %r22;
  and.b32 %r22, %r0, 8;
  shl.b32 %r22, %r22, 1;
  add.u32 %r21, %r21, %r22;
  add.u32 %r21, %r21, %r6;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r23, %r24, %r25, %r26}, [%r21];
  ld.param.u64 %p7, [keys];
  add.u64 %p7, %p7, %p0;
  st.global.v4.u32 [%p7], {%r23, %r24, %r25, %r26};
  ld.param.u64 %p2, [plain];
  add.u64 %p2, %p2, %p0;
  st.global.v4.u32 [%p2], {%r11, %r12, %r13, %r14};
  ld.param.u64 %p3, [transposed];
  add.u64 %p3, %p3, %p0;
  st.global.v4.u32 [%p3], {%r15, %r16, %r17, %r18};
  mul.wide.u32 %p4, %r0, 8;
  ld.param.u64 %p5, [b];
  add.u64 %p5, %p5, %p4;
  ld.global.v2.u32 {%r19, %r20}, [%p5];
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, 0f00000000;
  mov.f32 %f2, 0f00000000;
  mov.f32 %f3, 0f00000000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r11, %r12, %r13, %r14},
      {%r19, %r20}, {%f0, %f1, %f2, %f3};
  ld.param.u64 %p6, [product];
  add.u64 %p6, %p6, %p0;
  st.global.v4.f32 [%p6], {%f0, %f1, %f2, %f3};
  ret;
}
"""


def measure_fragments() -> dict[str, Fragment]:
    """Measures the fragments of ``ldmatrix``, of ``ldmatrix`` for K, of ``ldmatrix.trans`` (each a 16x16
    tile) and of ``mma`` (16x8 accumulators).

    Runs on the emulator; each lane reports the indices of the elements that it received.
    """
    numbers = np.arange(_SIDE * _SIDE, dtype=np.uint16).reshape(_SIDE, _SIDE)
    no_b = np.zeros((LANES, 2, 2), dtype=np.float16)
    plain, transposed, keys, _ = _run(numbers, no_b)

    # Let ldmatrix distribute b: load it as a fragment of the transposed tile. Column 0 of a is 8 * row and
    # column 1 is 1; row 0 of b is 1 and row 1 is the column, so the product a b holds the element indices.
    a = np.zeros((_SIDE, _SIDE), dtype=np.float16)
    a[:, 0], a[:, 1] = 8 * np.arange(_SIDE), 1
    b_transposed = np.zeros((_SIDE, _SIDE), dtype=np.float16)
    b_transposed[:8, 0], b_transposed[:8, 1] = 1, np.arange(8)
    b = _run(b_transposed, no_b)[0].view(np.float16)[:, [0, 2]]  # tiles 0 and 2: rows 0-7, both halves of k
    product = _run(a, np.ascontiguousarray(b))[3]
    return {
        "ldmatrix": _holders(plain, (_SIDE, _SIDE)),
        "ldmatrix of K": _holders(keys, (_SIDE, _SIDE)),
        "ldmatrix.trans": _holders(transposed, (_SIDE, _SIDE)),
        "mma": _holders(product.astype(np.int64)[:, :, None], (_SIDE, 8)),
    }


def _run(tile: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns plain, transposed and keys (lane, register, half), of 16 bits, and accumulators (lane,
    register).
    """
    plain = np.zeros((LANES, 4, 2), dtype=np.uint16)
    transposed, keys = np.zeros_like(plain), np.zeros_like(plain)
    product = np.zeros((LANES, 4), dtype=np.float32)
    arguments = [np.ascontiguousarray(tile), b, plain, transposed, keys, product]
    Module(_PTX).launch("fragments", 1, LANES, arguments)
    return plain, transposed, keys, product


def _holders(received: np.ndarray, shape: tuple[int, int]) -> Fragment:
    """Inverts ``received``, which holds the element index of each (lane, register, half)."""
    lane = np.full(shape, -1)
    register = np.full(shape, -1)
    for (who, which, _), number in np.ndenumerate(received):
        row, column = divmod(int(number), shape[1])
        lane[row, column], register[row, column] = who, which
    return Fragment(lane, register)
