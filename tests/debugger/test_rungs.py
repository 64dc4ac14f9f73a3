"""The same scripted session on every rung of the forward ladder."""

from dataclasses import replace

import pytest
from debugged import transcript
from rungs import named

from ladder.debugger import How, Session, debug_stage
from ladder.operations import get_operation
from ladder.stages import discover

#: Others take a few seconds each to compile; these show all that differs: scalar code, mma, wgmma, TMA.
_FAST = (named("v1"), named("v2"), named("v7"), named("v11"))
_RUNGS = [
    pytest.param(stage.name, marks=[] if stage.name in _FAST else [pytest.mark.full])
    for stage in discover().stages
    if stage.name.startswith("v")
]


def opened(name: str, sizes: str = "1,1,64,64,64") -> Session:
    operation = get_operation("attention")
    problem = replace(operation.parse(sizes), is_causal=True)
    return debug_stage(discover()[name], problem, How())


@pytest.mark.parametrize("name", _RUNGS)
def test_a_session_on_a_rung(name: str) -> None:
    with opened(name) as session:
        kernel = str(discover()[name].kernel)
        start = session.stop
        assert start.at is not None and start.at["file"] == kernel and start.has_variables

        lines = [session.go("over").at for _ in range(3)]
        assert all(at is not None and at["file"] == kernel for at in lines)
        shown = transcript(session, "info locals", "info stack", "info warps", "list", "instruction")
        assert "optimised away" not in shown.partition("(ladder) info stack")[0].partition("\n")[0]

        barrier = session.go("barrier")
        assert barrier.at is not None
        assert any(word in barrier.at["ptx"] for word in ("bar", "fence", "cp.async", "wgmma")), barrier.at[
            "ptx"
        ]
        moment, frames = barrier.moment, session.ask("stack", focus=session.focus)
        variables = session.ask("variables", focus=session.focus)

        session.go("over")
        assert session.stop.moment > moment
        assert session.go_to(moment).moment == moment
        assert session.ask("stack", focus=session.focus) == frames
        assert session.ask("variables", focus=session.focus) == variables

        while session.go().why != "exit":
            assert session.stop.why == "end", session.stop
        assert session.stop.message == ""
        last = session.back("over")
        assert last.at is not None and last.moment > moment


def test_variables_keep_their_values_behind_their_last_use() -> None:
    with opened("v1", "1,2,64,64,64") as session:
        lines = discover()["v1"].kernel.read_text().splitlines()
        last = next(number for number, line in enumerate(lines, 1) if "l_tile += weight" in line)
        session.add_breakpoint("", last, "blockIdx.y == 1 && threadIdx.x == 40")
        assert session.go().at["lane"] == 8  # type: ignore[index]
        for text, value in (("head", 1), ("batch", 0), ("first_row", 64), ("first_key", 64), ("keys", 32)):
            assert session.ask("evaluate", text=text, focus=session.focus)["values"] == [value] * 32
