"""Loops whose accesses repeat, move, change and skip lanes have the values and counts of single accesses."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.run.emulator import FaultError, Module, shared_access

BYTES = 8192
ROUNDS = 40

#: In each round r, an element of in_[where[r]] goes to shared memory at place[r], and from there to out[r];
#: lanes with a negative place are inactive.
TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry loop(
  .param .u64 in_, .param .u64 out, .param .u64 where, .param .u64 place, .param .u32 rounds)
{{
  .reg .pred %p<3>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<20>;
  .reg .{register} %v<10>;
  .shared .align 16 .b8 room[{room}];
  ld.param.u64 %rd1, [in_];
  ld.param.u64 %rd2, [out];
  ld.param.u64 %rd3, [where];
  ld.param.u64 %rd4, [place];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd5, %r2, 4;
  add.u64 %rd3, %rd3, %rd5;
  add.u64 %rd4, %rd4, %rd5;
  mul.wide.u32 %rd5, %r2, {bytes};
  add.u64 %rd2, %rd2, %rd5;
  mov.u32 %r3, room;
LOOP:
  ld.global.s32 %r4, [%rd3];
  ld.global.s32 %r5, [%rd4];
  setp.lt.s32 %p1, %r5, 0;
  @%p1 bra NEXT;
  cvt.s64.s32 %rd6, %r4;
  add.u64 %rd6, %rd1, %rd6;
  ld.global.{form} {values}, [%rd6];
  add.u32 %r6, %r3, %r5;
  st.shared.{form} [%r6], {values};
  ld.shared.{form} {values}, [%r6];
  st.global.{form} [%rd2], {values};
NEXT:
  add.u64 %rd3, %rd3, 128;
  add.u64 %rd4, %rd4, 128;
  add.u64 %rd2, %rd2, {row};
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra LOOP;
  ret;
}}
"""

#: form, register, bytes per element, elements
FORMS = [
    ("b8", "b16", 1, 1),
    ("b16", "b16", 2, 1),
    ("b32", "b32", 4, 1),
    ("b64", "b64", 8, 1),
    ("v2.b32", "b32", 4, 2),
    ("v4.b32", "b32", 4, 4),
    ("v2.b64", "b64", 8, 2),
]


def module(form: str, register: str, size: int, elements: int) -> Module:
    values = ", ".join(f"%v{i + 1}" for i in range(elements))
    text = TEXT.format(
        form=form,
        register=register,
        bytes=size * elements,
        row=32 * size * elements,
        room=BYTES,
        values=f"{{{values}}}" if elements > 1 else values,
    )
    return Module(text)


def patterns(width: int, rng: np.random.Generator) -> np.ndarray:
    """ROUNDS x 32 byte offsets; each round uses one of the usual arrangements of lanes, and most repeat."""
    lanes, most = np.arange(32), BYTES // width
    rounds = []
    while len(rounds) < ROUNDS:
        kind = rng.integers(5)
        lane = [
            lanes,  # consecutive
            lanes * 0,  # all the same
            lanes[::-1],
            lanes * 4,  # with conflicts
            rng.integers(0, 32, 32),
        ][kind]
        for _ in range(rng.integers(1, 6)):
            rounds.append((lane + rng.integers(0, most - 128)) * width)
    return np.array(rounds[:ROUNDS], np.int32)


@pytest.mark.parametrize(("form", "register", "size", "elements"), FORMS)
@pytest.mark.parametrize("divergent", [False, True])
def test_values_and_counts(form: str, register: str, size: int, elements: int, divergent: bool) -> None:
    width = size * elements
    rng = np.random.default_rng(width + 1000 * divergent)
    place, where = patterns(width, rng), patterns(width, rng)
    if divergent:
        place[rng.random((ROUNDS, 1)) * rng.random((ROUNDS, 32)) > 0.4] = -1
    source = rng.integers(0, 256, BYTES, np.uint8)
    out = np.zeros((ROUNDS, 32, width), np.uint8)
    launch = module(form, register, size, elements).launch(
        "loop", 1, 32, [source, out, where, place, ROUNDS], threads=1
    )

    expected = np.zeros_like(out)
    wavefronts = {"ld": 0, "st": 0}
    conflicts = {"ld": 0, "st": 0}
    for r in range(ROUNDS):
        active = place[r] >= 0
        if not active.any():
            continue
        room = np.zeros(BYTES, np.uint8)
        for lane in np.flatnonzero(active):  # of lanes with the same address, the last one wins
            room[place[r, lane] :][:width] = source[where[r, lane] :][:width]
        for lane in np.flatnonzero(active):
            expected[r, lane] = room[place[r, lane] :][:width]
        addresses = [int(p) if p >= 0 else None for p in place[r]]
        for op in ("ld", "st"):
            cost = shared_access(op, width, addresses)
            wavefronts[op] += cost.wavefronts
            conflicts[op] += cost.conflicts
    assert (out == expected).all()
    totals = launch.totals()
    assert totals["wavefronts_ld"] == wavefronts["ld"] and totals["wavefronts_st"] == wavefronts["st"]
    assert totals["conflicts_ld"] == conflicts["ld"] and totals["conflicts_st"] == conflicts["st"]


@pytest.mark.parametrize("beyond", [BYTES - 31 * 4, -4])
def test_a_pattern_that_moves_out_of_memory(beyond: int) -> None:
    """A pattern that was valid before must be checked again at its new place."""
    place = np.tile(np.arange(32, dtype=np.int32) * 4, (3, 1))
    where = place.copy()
    source, out = np.zeros(BYTES, np.uint8), np.zeros((3, 32, 4), np.uint8)
    where[2] += beyond
    with pytest.raises(FaultError, match="no allocation"):
        module("b32", "b32", 4, 1).launch("loop", 1, 32, [source, out, where, place, 3], threads=1)
    if beyond > 0:
        where[2] -= beyond
        place[2] += beyond
        with pytest.raises(FaultError, match="shared memory"):
            module("b32", "b32", 4, 1).launch("loop", 1, 32, [source, out, where, place, 3], threads=1)


#: In each round, a fragment is loaded and stored with lines stride[r] elements apart, at offset[r] of shared
#: memory, or of global memory where in_global[r].
FRAGMENTS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry loop(.param .u64 memory, .param .u64 offset, .param .u64 stride, .param .u64 in_global,
  .param .u32 rounds)
{{
  .reg .pred %p<3>;
  .reg .b32 %r<20>;
  .reg .f32 %f<20>;
  .reg .b64 %rd<20>;
  .shared .align 128 .b8 room[{room}];
  ld.param.u64 %rd1, [memory];
  ld.param.u64 %rd2, [offset];
  ld.param.u64 %rd3, [stride];
  ld.param.u64 %rd4, [in_global];
  ld.param.u32 %r1, [rounds];
  mov.u64 %rd5, room;
  cvta.shared.u64 %rd6, %rd5;
LOOP:
  ld.global.u64 %rd7, [%rd2];
  ld.global.u32 %r2, [%rd3];
  ld.global.u32 %r3, [%rd4];
  setp.ne.u32 %p1, %r3, 0;
  selp.b64 %rd8, %rd1, {base}, %p1;
  add.u64 %rd8, %rd8, %rd7;
  wmma.load.{fragment} {{{registers}}}, [%rd8], %r2;
  {store}
  add.u64 %rd2, %rd2, 8;
  add.u64 %rd3, %rd3, 4;
  add.u64 %rd4, %rd4, 4;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra LOOP;
  ret;
}}
"""


@pytest.mark.parametrize("space", ["shared", "global", ""])
@pytest.mark.parametrize("fragment", ["a.row", "a.col", "c.row", "c.col"])
def test_counts_of_fragments(space: str, fragment: str) -> None:
    which, layout = fragment.split(".")
    element, count, kind = ("f16", 8, "%r") if which == "a" else ("f32", 8, "%f")
    form = f"sync.aligned.{layout}.m16n16k16{space and '.' + space}.{element}"
    registers = ", ".join(f"{kind}{10 + i}" for i in range(count))
    text = FRAGMENTS.format(
        room=BYTES,
        fragment=f"{which}.{form}",
        registers=registers,
        base="%rd5" if space == "shared" else "%rd6",
        store=f"wmma.store.d.{form} [%rd8], {{{registers}}}, %r2;" if which == "c" else "",
    )
    offset = np.array([0, 128, 160, 0, 0, 32, 64, 64, 2048, 2048, 16, 0, 0], np.uint64)
    stride = np.array([16, 16, 16, 32, 64, 64, 64, 24, 24, 40, 40, 16, 0], np.uint32)
    in_global = {"shared": np.zeros, "global": np.ones}.get(space, np.zeros)(len(offset), np.uint32)
    if not space:
        in_global[[1, 4, 5, 8, 11]] = 1
    loop, memory = Module(text), np.zeros(BYTES, np.uint8)

    def counts(rounds: slice) -> dict[str, int | None]:
        chosen = [np.ascontiguousarray(each[rounds]) for each in (offset, stride, in_global)]
        totals = loop.launch("loop", 1, 32, [memory, *chosen, len(chosen[0])], threads=1).totals()
        return {name: n for name, n in totals.items() if name not in ("executed", "threads")}

    expected = [counts(slice(r, r + 1)) for r in range(len(offset))]
    assert counts(slice(None)) == {name: sum(each[name] or 0 for each in expected) for name in expected[0]}
