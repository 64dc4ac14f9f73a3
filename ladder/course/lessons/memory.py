"""What lies where in the shared memory of a rung's block, as the debugger finds it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ladder.course.lessons.listing import line_of
from ladder.operations import Problem
from ladder.show.plots import Part
from ladder.stages import discover

if TYPE_CHECKING:
    from ladder.debugger import Session


@dataclass(frozen=True)
class _Declared:
    """The line before which a kernel has declared its shared memory; expressions for the parts, by name; and
    a name for what follows the last of them.
    """

    line: str
    parts: dict[str, str]
    rest: str = "unused"


_K_AND_V = {f"{name}[{buffer}]": f"{name}_smem[{buffer}]" for name in "kv" for buffer in (0, 1)}
_RINGS = {
    **{f"{name}[{buffer}]": f"smem.{name}.tiles[{buffer}]" for name in "kv" for buffer in (0, 1)},
    **{f"{name}.{kind}": f"smem.{name}.{kind}" for name in "qkv" for kind in ("full", "empty")},
}
_DECLARED = {
    "v5": _Declared("zero(l);", {**_K_AND_V, "q of warp 0": "q_smem"}, "q of warps 1 to 15"),
    "v8": _Declared("neg_infty(rows.m);", {"q": "smem.q.tiles", **_RINGS}),
}


def memory_map(stage: str, head_dim: int) -> list[Part]:
    """The parts of the shared memory of a block of ``stage``, in their order.

    A build for the debugger runs to the line behind the declarations, where the parts' addresses and types
    are known. Raises :class:`LadderError`.
    """
    from ladder.debugger import How, debug_stage

    rung = discover()[stage]
    declared = _DECLARED[rung.number]
    with (
        open(os.devnull, "wb") as nothing,
        debug_stage(rung, Problem(1, 1, 64, 64, head_dim), How(), output=nothing) as session,
    ):
        session.add_breakpoint("kernel.cu", line_of(stage, declared.line))
        session.go()
        total = len(session.ask("shared")["hex"]) // 2
        parts = [part for name, text in declared.parts.items() if (part := _part(session, name, text))]
    parts.sort(key=lambda part: part.begin)
    end = parts[-1].begin + parts[-1].bytes
    return [*parts, Part(declared.rest, end, total - end)] if end < total else parts


def _part(session: Session, name: str, text: str) -> Part | None:
    """The part with this name, unless it lies behind the end, where an allocator puts what has no room."""
    from ladder.debugger import NoValue

    try:
        place = session.ask("address", text=text)
    except NoValue:
        return None
    return Part(name, place["address"], place["bytes"])
