"""Communication between the lanes of a warp: shfl, vote, match, redux, activemask and elect."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from ptx_kernels import run_forms, run_instruction
from warp_kernel import kernel_text, lane_address, run

from ladder.run.emulator import FaultError, Module, session

ALL = 0xFFFFFFFF
LANES = np.arange(32)


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The source lane and whether it is in range, according to the manual's pseudo-code."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    first = lane & segment
    last = first | (clamp & ~segment)
    if mode == "up":
        j = lane - b
        return (j, True) if j >= last else (lane, False)
    j = {"down": lane + b, "bfly": lane ^ b, "idx": first | (b & ~segment & 31)}[mode]
    return (j, True) if j <= last else (lane, False)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("sync", [".sync", ""])
def test_shuffles_in_all_segments(mode: str, sync: str) -> None:
    members = ", 0xffffffff" if sync else ""
    clamps = [0x1F, 0, 0x1E1F, 0x1C1F, 0x181F, 0x101F, 0x1800, 0x0F0F, 0x1C03]
    offsets = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 35]
    forms = {
        (b, c): f"shfl{sync}.{mode}.b32 %d|%p, %a, {b}, {c}{members};"
        for b, c in itertools.product(offsets, clamps)
    }
    a = np.random.default_rng(1).integers(0, 2**32, 64, dtype=np.uint32)
    got = run_forms(forms, {"a": ("b32", a)}, {"d": "b32", "p": "pred"})
    for b, c in forms:
        for thread in range(64):
            source, in_range = shuffled(mode, thread % 32, b, c)
            assert got[b, c]["d"][thread] == a[thread - thread % 32 + source], (mode, b, c, thread)
            assert got[b, c]["p"][thread] == in_range


def test_shuffles_with_operands_of_each_lane() -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(0, 2**32, 32, dtype=np.uint32)
    b, c = (
        rng.integers(0, 32, 32, dtype=np.uint32),
        rng.choice(np.array([0x1F, 0x1C1F, 0x101F], np.uint32), 32),
    )
    forms = {mode: f"shfl.sync.{mode}.b32 %d, %a, %b, %c, -1;" for mode in ("up", "down", "bfly", "idx")}
    got = run_forms(forms, {"a": ("b32", a), "b": ("b32", b), "c": ("b32", c)}, {"d": "b32"})
    for mode in forms:
        want = [a[shuffled(mode, lane, int(b[lane]), int(c[lane]))[0]] for lane in range(32)]
        assert got[mode]["d"].tolist() == want


def test_a_shuffle_may_overwrite_its_source() -> None:
    lines = [
        "mov.b32 %d, %a;",
        *(f"shfl.sync.bfly.b32 %d, %d, {step}, 31, -1;" for step in (1, 2, 4, 8, 16)),
        "shfl.sync.idx.b32 %e, %d, 5, 31, -1;",
    ]
    got = run_instruction(lines, {"a": ("b32", np.arange(32))}, {"d": "b32", "e": "b32"})
    assert got["d"].tolist() == (31 - LANES).tolist()
    assert set(got["e"].tolist()) == {26}


def test_a_reduction_by_shuffles_in_a_warp_that_is_not_full() -> None:
    lines = ["mov.b32 %d, %a;", ".reg .b32 %t;"]
    for step in (16, 8, 4, 2, 1):
        lines += [f"shfl.sync.bfly.b32 %t, %d, {step}, 31, 0xffffffff;", "add.u32 %d, %d, %t;"]
    a = np.arange(1, 21, dtype=np.uint32)
    got = run_instruction(lines, {"a": ("b32", a)}, {"d": "b32"}, threads=20)
    assert got["d"][0] <= a.sum()  # missing lanes have no defined value, but must not fail
    lines = ["mov.b32 %d, %a;", ".reg .b32 %t;"]
    for step in (8, 4, 2, 1):
        lines += [f"shfl.sync.down.b32 %t, %d, {step}, 31, 0xffff;", "add.u32 %d, %d, %t;"]
    got = run_instruction(lines, {"a": ("b32", np.ones(16, np.uint32))}, {"d": "b32"}, threads=16)
    assert got["d"][0] == 16


@pytest.mark.parametrize("sync", [".sync", ""])
def test_votes(sync: str) -> None:
    members = ", 0xffffffff" if sync else ""
    rng = np.random.default_rng(3)
    warps = [np.zeros(32), np.ones(32), LANES == 7, LANES != 7, rng.integers(0, 2, 32)]
    a = np.concatenate(warps).astype(np.uint32)
    votes = {
        (mode, no): f"vote{sync}.{mode}.pred %p, {no}%a{members}; mov.u32 %d, 0;"
        for mode in ("all", "any", "uni")
        for no in ("", "!")
    }
    votes |= {
        ("ballot", no): f"vote{sync}.ballot.b32 %d, {no}%a{members}; setp.ne.u32 %p, %d, 0;"
        for no in ("", "!")
    }
    got = run_forms(votes, {"a": ("pred", a)}, {"p": "pred", "d": "b32"})
    for mode, no in votes:
        for warp in range(len(warps)):
            lanes = slice(32 * warp, 32 * warp + 32)
            values = a[lanes] != (1 if no else 0)
            want = {
                "all": values.all(),
                "any": values.any(),
                "uni": values.all() or not values.any(),
                "ballot": values.any(),
            }[mode]
            assert set(got[mode, no]["p"][lanes].tolist()) == {int(want)}, (mode, no, warp)
            if mode == "ballot":
                bits = sum(1 << int(lane) for lane in LANES[values])
                assert set(got[mode, no]["d"][lanes].tolist()) == {bits}


@pytest.mark.parametrize("t", ["b32", "b64"])
def test_matches(t: str) -> None:
    rng = np.random.default_rng(4)
    warps = [np.full(32, 9), LANES, rng.integers(0, 5, 32), rng.integers(0, 2, 32) + 2]
    a = np.concatenate(warps).astype(np.uint64)
    if t == "b64":
        a |= a << np.uint64(40)
    a = a.astype(np.uint32 if t == "b32" else np.uint64)
    forms = {
        "any": f"match.any.sync.{t} %d, %a, 0xffffffff; setp.ne.u32 %p, %d, 0;",
        "all": f"match.all.sync.{t} %d|%p, %a, 0xffffffff;",
        "all without p": f"match.all.sync.{t} %d, %a, 0xffffffff; setp.ne.u32 %p, %d, 0;",
    }
    got = run_forms(forms, {"a": (t, a)}, {"d": "b32", "p": "pred"})
    for thread in range(a.size):
        warp = a[thread - thread % 32 :][:32]
        same = sum(1 << lane for lane in range(32) if warp[lane] == a[thread])
        assert got["any"]["d"][thread] == same
        for form in ("all", "all without p"):
            assert got[form]["d"][thread] == (ALL if same == ALL else 0)
            assert got[form]["p"][thread] == (same == ALL)


def test_reductions() -> None:
    rng = np.random.default_rng(5)
    a = np.concatenate([rng.integers(0, 2**32, 64), [0, ALL] * 16, [0x80000000, 0x7FFFFFFF] * 16]).astype(
        np.uint32
    )
    operations: dict[str, Callable[[int, int], int]] = {
        "add.u32": lambda x, y: x + y,
        "add.s32": lambda x, y: x + y,
        "min.u32": min,
        "max.u32": max,
        "min.s32": min,
        "max.s32": max,
        "and.b32": lambda x, y: x & y,
        "or.b32": lambda x, y: x | y,
        "xor.b32": lambda x, y: x ^ y,
    }
    forms = {op: f"redux.sync.{op} %d, %a, 0xffffffff;" for op in operations}
    got = run_forms(forms, {"a": ("b32", a)}, {"d": "b32"})
    for op, function in operations.items():
        for begin in range(0, a.size, 32):
            lanes = a[begin : begin + 32]
            values = (lanes.view(np.int32) if "s32" in op else lanes).tolist()
            assert set(got[op]["d"][begin : begin + 32].tolist()) == {reduce(function, values) & ALL}, op


def test_tiles_of_a_warp_name_their_own_members() -> None:
    lines = [
        ".reg .u32 %lane, %tile, %m, %t; .reg .pred %q;",
        "mov.u32 %lane, %laneid; and.b32 %tile, %lane, 24; shl.b32 %m, 255, %tile;",
        "redux.sync.add.u32 %s, %a, %m;",
        "setp.gt.u32 %q, %a, 40; vote.sync.ballot.b32 %v, %q, %m;",
        "match.any.sync.b32 %x, %v, %m;",
        "shfl.sync.bfly.b32 %y, %a, 3, 0x181f, %m;",
    ]
    rng = np.random.default_rng(6)
    a = rng.integers(0, 80, 32, dtype=np.uint32)
    got = run_instruction(lines, {"a": ("u32", a)}, {"s": "u32", "v": "b32", "x": "b32", "y": "b32"})
    for lane in range(32):
        tile = slice(lane // 8 * 8, lane // 8 * 8 + 8)
        assert got["s"][lane] == a[tile].sum()
        assert got["v"][lane] == sum(1 << i for i in range(32)[tile] if a[i] > 40)
        assert got["x"][lane] == 255 << lane // 8 * 8
        assert got["y"][lane] == a[lane ^ 3]


def test_lanes_that_come_later_are_waited_for() -> None:
    # Half of the lanes take a detour; the members reconverge at the vote.
    lines = [
        ".reg .pred %odd, %q; .reg .u32 %lane, %i;",
        "mov.u32 %lane, %laneid; and.b32 %i, %lane, 1; setp.ne.u32 %odd, %i, 0; mov.u32 %i, 0;",
        "@!%odd bra meet;",
        "around: add.u32 %i, %i, 1; setp.lt.u32 %q, %i, %lane; @%q bra around;",
        "meet: redux.sync.add.u32 %d, %a, -1; activemask.b32 %m;",
    ]
    a = np.arange(32, dtype=np.uint32)
    got = run_instruction(lines, {"a": ("u32", a)}, {"d": "u32", "m": "b32"})
    assert set(got["d"].tolist()) == {a.sum()}
    assert set(got["m"].tolist()) == {ALL}


SIDES = """
  and.b32 %r1, %r0, 1;
  setp.eq.u32 %p1, %r1, 0;
  add.u32 %r2, %r0, 100;
  add.u32 %r3, %r0, 200;
  mov.u32 %r5, 0;
  mov.u32 %r6, {rounds};
again:
  @%p1 bra even;
  {odd}
  add.u32 %r3, %r3, 1000;
  bra join;
even:
  {even}
  add.u32 %r2, %r2, 2000;
join:
  add.u32 %r5, %r5, %r4;
  sub.u32 %r6, %r6, 1;
  setp.ne.u32 %p2, %r6, 0;
  @%p2 bra again;
  {{ .reg .b64 %at; mad.wide.u32 %at, %r0, 4, %rd0; st.global.u32 [%at], %r5; }}
"""


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_shuffles_on_both_sides_of_a_branch_meet(rounds: int) -> None:
    # Each side passes its own register, and overwrites it before the other side reads.
    body = SIDES.format(
        rounds=rounds,
        odd="shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;",
        even="shfl.sync.bfly.b32 %r4, %r2, 1, 31, -1;",
    )
    out = np.zeros(32, np.uint32)
    run(body, out)
    for lane in range(32):
        given = (lane ^ 1) + (200 if lane % 2 == 0 else 100)
        step = 1000 if lane % 2 == 0 else 2000
        assert out[lane] == sum(given + step * i for i in range(rounds)), lane


@pytest.mark.parametrize(
    ("odd", "even"),
    [
        ("shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;", "shfl.sync.idx.b32 %r4, %r2, 1, 31, -1;"),
        ("shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;", "bar.warp.sync -1;"),
        ("vote.sync.ballot.b32 %r4, %p1, -1;", "vote.sync.ballot.b32 %r4, %p1, -1;"),
    ],
)
def test_what_does_not_meet_on_both_sides_is_said(odd: str, even: str) -> None:
    with pytest.raises(FaultError, match="The hardware allows that for instructions of one kind") as caught:
        run(SIDES.format(rounds=1, odd=odd, even=even), np.zeros(32, np.uint32))
    assert caught.value.fault.kind == "unsupported"


def findings_of(body: str) -> list[str]:
    out = np.zeros(32, np.uint32)
    module = Module(kernel_text(f"{body}\n{lane_address('%rd0', '%rd50', 4)}  st.global.u32 [%rd50], %r1;"))
    memory = [(out.ctypes.data, out.nbytes, "out", True)]
    with session("sm_80", memory, 1, check=True) as checked:
        module.launch("k", 1, 32, [out])
    return [finding.message for finding in checked.findings if finding.kind == "mask"]


@pytest.mark.parametrize(
    ("wrong", "right", "why"),
    [
        # A shuffle among 8 lanes reads beyond them, as the last lanes of a reduction may.
        (
            "setp.lt.u32 %p1, %r0, 8; @%p1 shfl.sync.bfly.b32 %r1, %r0, 8, 31, 0xff;",
            "setp.lt.u32 %p1, %r0, 8; @%p1 shfl.sync.down.b32 %r1, %r0, 4, 31, 0xff;",
            "lane 8, which the member mask does not name",
        ),
        # Segments that end with the mask.
        (
            "setp.lt.u32 %p1, %r0, 8; @%p1 shfl.sync.idx.b32 %r1, %r0, 20, 31, 0xff;",
            "setp.lt.u32 %p1, %r0, 8; @%p1 shfl.sync.idx.b32 %r1, %r0, 20, 0x181f, 0xff;",
            "lane 20, which the member mask does not name",
        ),
        # A lane in the mask does not execute the instruction.
        (
            "setp.ne.u32 %p1, %r0, 5; @%p1 shfl.sync.idx.b32 %r1, %r0, 5, 31, -1;",
            "setp.ne.u32 %p1, %r0, 5; @%p1 shfl.sync.idx.b32 %r1, %r0, 6, 31, -1;",
            "lane 5, which the member mask names but which does not execute the instruction",
        ),
        # A lane has exited.
        (
            "setp.eq.u32 %p1, %r0, 9; @%p1 exit; shfl.sync.idx.b32 %r1, %r0, 9, 31, -1;",
            "setp.eq.u32 %p1, %r0, 9; @%p1 exit; shfl.sync.bfly.b32 %r1, %r0, 0, 31, -1;",
            "lane 9, which the member mask names but which does not execute the instruction",
        ),
        # The lanes of the other side arrive later.
        (
            "setp.lt.u32 %p1, %r0, 16; @%p1 bra low; shfl.sync.bfly.b32 %r1, %r0, 16, 31, 0xffff0000;"
            " bra both; low: shfl.sync.bfly.b32 %r1, %r0, 1, 31, 0xffff; both:",
            "setp.lt.u32 %p1, %r0, 16; @%p1 bra low; shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;"
            " bra both; low: shfl.sync.bfly.b32 %r1, %r0, 16, 31, -1; both:",
            "lane 0, which the member mask does not name",
        ),
    ],
)
def test_a_lane_that_gives_nothing_is_found(wrong: str, right: str, why: str) -> None:
    prepare = "mov.u32 %r1, 0; "
    assert findings_of(prepare + wrong) == [f"reads the value of {why}"]
    assert findings_of(prepare + right) == []


def test_activemask_and_elect_in_a_branch() -> None:
    lines = [
        ".reg .pred %low, %q; .reg .u32 %lane, %members;",
        "mov.u32 %lane, %laneid; mov.u32 %m, 0; mov.u32 %leader, 99; mov.pred %p, 0;",
        "setp.lt.u32 %low, %lane, %a;",
        "@%low bra inside; bra.uni done;",
        "inside: activemask.b32 %m; elect.sync %leader|%p, %m; elect.sync _|%q, %m;",
        "done:",
    ]
    a = np.full(32, 12, np.uint32)
    got = run_instruction(lines, {"a": ("u32", a)}, {"m": "b32", "leader": "b32", "p": "pred"})
    assert got["m"].tolist() == [0xFFF] * 12 + [0] * 20
    assert got["leader"].tolist() == [0] * 12 + [99] * 20
    assert got["p"].tolist() == [1] + [0] * 31


def test_a_guarded_vote_counts_the_lanes_that_execute_it() -> None:
    lines = [
        ".reg .pred %low, %yes; .reg .u32 %lane;",
        "mov.u32 %lane, %laneid; mov.u32 %d, 0; setp.lt.u32 %low, %lane, %a; setp.ge.u32 %yes, %lane, 0;",
        "@%low vote.sync.ballot.b32 %d, %yes, 0xff;",
    ]
    got = run_instruction(lines, {"a": ("u32", np.full(32, 8, np.uint32))}, {"d": "b32"})
    assert got["d"].tolist() == [0xFF] * 8 + [0] * 24


OUTSIDE = {
    "shfl.sync.idx.b32 %d, %a, 20, 31, 0xffff;": 20,
    "vote.sync.ballot.b32 %d, 1, 0xffff;": 0xFFFFFFFF,
    "redux.sync.add.u32 %d, %a, 0xffff;": sum(range(32)),
}


@pytest.mark.parametrize("line", OUTSIDE)
def test_threads_outside_the_member_mask_take_part_where_the_warp_is_in_step(line: str) -> None:
    got = run_instruction(line, {"a": ("u32", np.arange(32, dtype=np.uint32))}, {"d": "u32"})
    assert got["d"].tolist() == [OUTSIDE[line]] * 32


@pytest.mark.parametrize("line", OUTSIDE)
def test_a_thread_outside_the_member_mask_is_a_fault_in_a_branch(line: str) -> None:
    lines = [
        ".reg .pred %high; .reg .u32 %lane;",
        "mov.u32 %lane, %laneid; mov.u32 %d, 0; setp.ge.u32 %high, %lane, 12;",
        f"@!%high bra done; {line}",
        "done:",
    ]
    with pytest.raises(FaultError, match="not in the member mask") as caught:
        run_instruction(lines, {"a": ("u32", np.zeros(32, np.uint32))}, {"d": "u32"})
    assert caught.value.fault.kind == "bad operand"
    assert caught.value.fault.lane == 16


#: Instructions with a full mask that lanes 16 to 31 skip.
SKIPPED = {
    "shfl.sync.bfly.b32 %d, %a, 1, 31, 0xffffffff;": [lane ^ 1 for lane in range(16)],
    "vote.sync.ballot.b32 %d, 1, 0xffffffff;": [0xFFFF] * 16,
    "redux.sync.add.u32 %d, %a, 0xffffffff;": [sum(range(16))] * 16,
    "bar.warp.sync 0xffffffff; mov.u32 %d, %lane;": list(range(16)),
}


@pytest.mark.parametrize("line", SKIPPED)
@pytest.mark.parametrize("loops", [False, True])
def test_members_that_skip_an_instruction_are_waited_for_until_they_exit(line: str, loops: bool) -> None:
    """They go on to the end, also where compilers and this emulator let both sides of a branch meet again."""
    branch = f"@!%low bra done; {line} done: xor.b32 %d, %d, 64;"
    loop = (
        "@%low mov.u32 %left, 1; again: setp.eq.u32 %p, %left, 0; @%p bra done; "
        f"{line} sub.u32 %left, %left, 1; bra again; done: xor.b32 %d, %d, 64;"
    )
    lines = [
        ".reg .pred %low, %p; .reg .u32 %lane, %left;",
        "mov.u32 %lane, %laneid; setp.lt.u32 %low, %lane, 16; mov.u32 %d, 7; mov.u32 %left, 0;",
        loop if loops else branch,
    ]
    got = run_instruction(lines, {"a": ("u32", np.arange(32, dtype=np.uint32))}, {"d": "u32"})
    assert got["d"].tolist() == [value ^ 64 for value in SKIPPED[line] + [7] * 16]


def test_members_that_skip_one_instruction_may_come_to_the_next() -> None:
    """Lanes at two shuffles of one kind give each other their values."""
    lines = [
        ".reg .pred %low; .reg .u32 %lane;",
        "mov.u32 %lane, %laneid; setp.lt.u32 %low, %lane, 16; mov.u32 %d, 7;",
        "@!%low bra done; shfl.sync.bfly.b32 %d, %a, 16, 31, -1;",
        "done: shfl.sync.bfly.b32 %d, %a, 16, 31, -1;",
    ]
    got = run_instruction(lines, {"a": ("u32", np.arange(32, dtype=np.uint32))}, {"d": "u32"})
    assert got["d"].tolist()[16:] == list(range(16))


def test_skipped_members_are_found() -> None:
    prepare, vote = "mov.u32 %r1, 0; setp.ge.u32 %p1, %r0, 20; ", "vote.sync.ballot.b32 %r1, 1, -1;"
    [found] = findings_of(f"{prepare} @%p1 bra done; {vote} done: xor.b32 %r1, %r1, 1;")
    assert "lanes 20-31" in found and "mask" in found
    assert findings_of(f"{prepare} @%p1 exit; {vote}") == []


def test_members_that_never_come_are_a_deadlock() -> None:
    lines = [
        ".reg .pred %low, %q; .reg .u32 %lane;",
        "mov.u32 %lane, %laneid; setp.lt.u32 %low, %lane, 16; mov.u32 %d, 0;",
        "@%low bra first; ",
        "bar.sync 0; bra.uni done;",
        "first: redux.sync.add.u32 %d, %a, 0xffffffff; bar.sync 0;",
        "done:",
    ]
    with pytest.raises(FaultError, match=r"redux|deadlock"):
        run_instruction(lines, {"a": ("u32", np.zeros(32, np.uint32))}, {"d": "u32"}, threads=32)


@pytest.mark.parametrize(
    ("line", "arch"),
    [
        ("redux.sync.add.u32 %d, %a, -1;", "sm_75"),
        ("redux.sync.min.f32 %d, %a, -1;", "sm_90"),
        ("elect.sync _|%p, -1;", "sm_80"),
        ("match.any.sync.b32 %d|%p, %a, -1;", "sm_80"),
        ("shfl.sync.idx.b32 %d, %a, 0, 31;", "sm_80"),
    ],
)
def test_what_does_not_exist_is_refused(line: str, arch: str) -> None:
    with pytest.raises(FaultError, match="not supported: " + line.split()[0].replace(".", r"\.")):
        run_instruction(
            [".reg .pred %p;", line], {"a": ("b32", np.zeros(32, np.uint32))}, {"d": "b32"}, arch=arch
        )
