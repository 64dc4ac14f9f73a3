"""Findings begin with the likeliest cause, not the first symptom, and the advice fits it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ladder.run.emulator import Finding, Party, likeliest_first
from ladder.show.render.findings import finding_facts


def party(line: int, opcode: str = "ld.shared") -> Party:
    return Party((0, 0, 0), 0, (0,), "kernel.cu", line, "kernel.cu", line, line, opcode, line)


def finding(kind: str, who: Party, other: Party | None = None) -> Finding:
    return Finding(kind, "reads 4 bytes", "kernel", 1, who, other, "")


READ, WRITE = party(9), party(5, "st.shared")


def test_a_race_comes_before_the_reads_that_it_explains() -> None:
    unwritten = finding("uninitialised read", READ)
    lanes, warps = finding("race in a warp", READ, WRITE), finding("race between warps", READ, WRITE)
    elsewhere = finding("uninitialised read", party(20))
    assert likeliest_first([unwritten, lanes, elsewhere, warps])[:2] == [elsewhere, warps]
    assert likeliest_first([unwritten, lanes]) == [lanes, unwritten]
    assert likeliest_first([unwritten]) == [unwritten]


def test_one_barrier_between_loops_mends_the_races_of_all_their_lines() -> None:
    """Of a product in tiles: lanes of a warp share the rows of A's tile, warps the columns of B's."""
    lanes = finding("race in a warp", party(5, "st.shared"), READ)
    warps = finding("race between warps", party(6, "st.shared"), READ)
    assert likeliest_first([lanes, warps]) == [warps, lanes]


def test_one_barrier_mends_races_of_lanes_and_of_warps() -> None:
    lanes, warps = finding("race in a warp", READ, WRITE), finding("race between warps", READ, WRITE)
    first, second = likeliest_first([lanes, warps])
    assert first == warps and "__syncthreads()" in first.advice
    assert "__syncthreads()" in second.advice and "__syncwarp()" not in second.advice
    _, elsewhere = likeliest_first([lanes, finding("race between warps", READ, party(6))])
    assert "__syncwarp()" in elsewhere.advice


@pytest.mark.parametrize(
    "kind, who, other, part",
    [
        ("proxy fence", "cp.async.bulk.shared::cluster.global", "mbarrier.init.b64", "fence.mbarrier_init"),
        ("race between blocks", "mbarrier.arrive.b64", "mbarrier.init.b64", "fence.mbarrier_init"),
        ("race between blocks", "ld.shared::cluster.u32", "st.shared.u32", "cluster barrier"),
        ("copy not waited for", "ld.shared.u32", "cp.async.bulk.shared::cluster.global", "phase"),
        ("mask", "wgmma.mma_async.sync", "", "warpgroup"),
        ("barrier", "mbarrier.try_wait.b64", "", "mbarrier.init"),
    ],
)
def test_advice_names_what_asynchronous_instructions_need(kind: str, who: str, other: str, part: str) -> None:
    found = finding(kind, party(9, who), party(5, other) if other else None)
    assert part in replace(found, space="shared").advice
    assert part not in finding(kind, READ, WRITE).advice


def test_advice_for_blocks_that_wait_for_blocks() -> None:
    found = finding("barrier", party(9, "ld.acquire.gpu.global.b32"))
    message = "the block waits, like all 132 that fit on the GPU at once, while 138 more blocks cannot start"
    assert "atomic counter" in replace(found, message=message).advice
    assert "atomic counter" not in found.advice


def test_advice_is_about_the_access() -> None:
    assert "ldmatrix" in finding("misaligned", party(3, "ldmatrix.sync")).advice
    assert "If the index is right" in finding("misaligned", party(3)).advice
    copy = party(5, "cp.async.cg.shared.global")
    assert finding("race between warps", copy, READ).advice.startswith("Is this buffer free?")
    assert finding("race between warps", READ, WRITE).advice == "Put __syncthreads() between the two lines."


def test_a_negative_index_is_called_so() -> None:
    found = replace(finding("out of bounds", READ), object="shared memory", object_offset=-4)
    assert found.advice.startswith("The index is negative.")
    assert replace(found, object_offset=512).advice.startswith("Which index is too large, or negative?")


@pytest.mark.parametrize(
    "shape, warp, lanes, words",
    [
        (None, 7, (8,), "block (3, 0, 0), warp 7, lane 8"),
        ((256, 1, 1), 7, (8,), "block (3, 0, 0), thread 232, warp 7, lane 8"),
        ((256, 1, 1), 7, (0, 1, 4), "block (3, 0, 0), threads 224-225,228, warp 7, lanes 0-1,4"),
        ((16, 16, 1), 1, (2, 18), "block (3, 0, 0), threads (2, 2, 0), (2, 3, 0), warp 1, lanes 2,18"),
        ((4, 4, 4), 1, (0, 1, 3), "block (3, 0, 0), threads (0, 0, 2), (1, 0, 2), ..., warp 1, lanes 0-1,3"),
    ],
)
def test_threads_are_named_as_the_kernel_names_them(
    shape: tuple[int, int, int] | None, warp: int, lanes: tuple[int, ...], words: str
) -> None:
    who = replace(party(9), block=(3, 0, 0), warp=warp, lanes=lanes, block_shape=shape)
    facts = dict(finding_facts(finding("out of bounds", who)))
    assert facts["at"].plain.splitlines()[-1] == words
