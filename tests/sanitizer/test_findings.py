"""Findings begin with the likeliest cause, not the first symptom, and the advice fits it."""

from __future__ import annotations

from ladder.emulator import Finding, Party, likeliest_first


def party(line: int, opcode: str = "ld.shared") -> Party:
    return Party((0, 0, 0), 0, (0,), "kernel.cu", line, "kernel.cu", line, opcode, line)


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


def test_advice_is_about_the_access() -> None:
    assert "ldmatrix" in finding("misaligned", party(3, "ldmatrix.sync")).advice
    assert "Is the index right?" in finding("misaligned", party(3)).advice
    copy = party(5, "cp.async.cg.shared.global")
    assert finding("race between warps", copy, READ).advice.startswith("Is that the buffer that is free?")
    assert finding("race between warps", READ, WRITE).advice == "Put __syncthreads() between the two lines."
