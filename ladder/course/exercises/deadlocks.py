"""Who waits for what in a deadlock, with the lines, and what to look for there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ladder.common.wording import said
from ladder.run.emulator import retold

#: A wait in the emulator's words: the warps, what they wait for, and the kernel's line if it is known.
_WAIT = re.compile(r"warps? (?P<which>[\d, -]+): (?P<what>.*?)(?: \((?P<place>[^()\s]+:\d+)\))?")
_MISSING = re.compile(r"waits for (\d+) of (\d+) arrivals")
_BETWEEN = re.compile(r"[:;] (?=warps? \d)")
_SHOWN = 3
#: A wait for a buffer of a ring: ``smem.k.wait_empty(turn)`` or ``smem.q_empty[0].wait(0)``.
_EMPTY, _FULL = (re.compile(rf"wait_{state}\(|{state}(?:\[[^\]]*\])?\.wait\(") for state in ("empty", "full"))


def deadlock_lines(on: str, message: str, quoted: Callable[[str], str], otherwise: str) -> Iterator[str]:
    """Yields what is stuck, a line for each of the first waits, and what to look for: ``otherwise`` if the
    waits are for nothing that tells. ``quoted`` turns ``kernel.cu:12`` into that and its source.
    """
    what, waits = waits_of(message, quoted)
    yield said("On {on}: deadlock, {what}", on=on, what=what)
    yield from waits
    yield _advice("\n".join(waits), message) or otherwise


def waits_of(message: str, quoted: Callable[[str], str]) -> tuple[str, list[str]]:
    """What a message says before its waits, and at most three lines about these."""
    what, *waits = _BETWEEN.split(message)
    told = list(dict.fromkeys(_wait_line(wait, quoted) for wait in waits))
    if len(told) > _SHOWN:
        more = "  " + said("and {count} more", count=len(told) - _SHOWN + 1)
        told = [*told[: _SHOWN - 1], more]
    return retold(what), told


def _wait_line(wait: str, quoted: Callable[[str], str]) -> str:
    """``  warp 12: 8 of 12 arrivals are missing, at kernel.cu:102  smem.k.wait_empty(turn);``."""
    found = _WAIT.fullmatch(wait)
    if not found or not found["place"]:
        return f"  {retold(wait)}"
    line = said(
        "warps {which}" if re.search(r"[,-]", found["which"]) else "warp {which}", which=found["which"]
    )
    if missing := _MISSING.search(found["what"]):
        line += ": " + said("{n} of {count} arrivals are missing", n=missing[1], count=missing[2])
    return f"  {line}" + said(", at {place}", place=quoted(found["place"]))


def _advice(waits: str, message: str) -> str:
    """What to look for, by the calls on which warps wait: who waits for a free buffer is no consequence of a
    wait for a full one, which in turn is none of a wait for other warps.
    """
    if _EMPTY.search(waits):
        return said(
            "The wait for an empty buffer needs a release by each warp that the count of init includes: once "
            "per tile, also if a warp does not use the tile."
        )
    if _FULL.search(waits):
        return said(
            "The wait for a full buffer needs a load, or the arrival of the warps that write it: one for "
            "each tile that is waited for, in the same buffer and with the same parity."
        )
    if "mbarrier" in message:
        return said(
            "Which threads should arrive? Compare the count of init with the arrivals per phase, and the "
            "parity that is waited for with the phase."
        )
    return ""
