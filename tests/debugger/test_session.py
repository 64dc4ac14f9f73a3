"""Sessions of the debugger on a small program: stops, steps forward and back, values."""

import io
import math
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from debugged import RACE, line_of, transcript

from ladder.cli import main
from ladder.common.terminal import SafeConsole
from ladder.debugger import How, NoValue, Prompt, Session, debug_program
from ladder.errors import ExecutionError


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("debugged") / "shift.cu"
    path.write_text(RACE.lstrip())
    return path


@pytest.fixture
def session(program: Path) -> Iterator[Session]:
    with debug_program([program], [], How()) as opened:
        yield opened


@pytest.fixture
def checked(program: Path) -> Iterator[Session]:
    with debug_program([program], [], How(check=True)) as opened:
        yield opened


def values(session: Session, text: str) -> list[float | None]:
    return list(session.ask("evaluate", text=text, focus=session.focus)["values"])


def test_it_stops_behind_the_head_of_the_kernel(session: Session) -> None:
    assert session.stop.at is not None
    assert (session.stop.at["line"], session.focus) == (line_of("t = threadIdx.x"), (0, 0, 0))


def test_next_goes_over_a_function_and_step_into_it(session: Session) -> None:
    called = line_of("s[t] = twice(t)")
    assert session.go("over").at["line"] == called  # type: ignore[index]
    assert session.go("over").at["line"] == called + 1  # type: ignore[index]
    session.go_to((1, 1))
    session.go("over"), session.go("over")
    inside = session.go("into").at
    assert inside is not None and (inside["function"], inside["line"]) == (
        "twice",
        line_of("const float result"),
    )
    frames = session.ask("stack", focus=session.focus)["frames"]
    assert [frame["function"] for frame in frames] == ["twice", "shift"]
    assert values(session, "value") == [float(lane) for lane in range(32)]
    assert session.go("out").at["function"] == "shift"  # type: ignore[index]


def test_a_breakpoint_has_a_condition_on_thread_and_variables(session: Session) -> None:
    session.add_breakpoint("", line_of("next = s[t] + count"), "threadIdx.x == 37 && s[t] > 73.f")
    stop = session.go()
    assert (stop.why, stop.hit, session.focus) == ("breakpoint", [1], (0, 1, 5))
    assert values(session, "t")[5] == 37
    assert session.go().why == "end"


def test_a_breakpoint_on_a_line_without_code_moves_to_the_next_and_says_so(session: Session) -> None:
    asked = line_of("t = threadIdx.x") + 1
    assert f"shift.cu:{asked + 1} (line {asked} has no code)" in transcript(session, f"break {asked}")
    assert session.go().at["line"] == asked + 1  # type: ignore[index]


@pytest.mark.parametrize("keep_s", [-1, 1000])
def test_back_returns_to_the_same_values(
    session: Session, monkeypatch: pytest.MonkeyPatch, keep_s: float
) -> None:
    """Whether the state is kept at each stop, or only at the first."""
    monkeypatch.setattr("ladder.debugger.session._KEEP_S", keep_s)

    def here() -> tuple[object, ...]:
        variables = session.ask("variables", focus=session.focus)["variables"]
        assert session.stop.at is not None
        return session.stop.moment, session.stop.at["line"], repr(variables)

    seen = []
    for _ in range(4):
        seen.append(here())
        session.go("over")
    for earlier in reversed(seen):
        session.back("over")
        assert here() == earlier


def test_back_works_from_the_end_of_the_program(session: Session) -> None:
    assert session.go().why == "end"
    assert session.go().why == "exit"
    with pytest.raises(NoValue, match="has ended"):
        session.go()
    assert session.back("over").at["line"] == line_of("out[t] = next;") + 1  # type: ignore[index]


def test_next_goes_from_the_end_of_a_launch_to_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "twice.cu"
    path.write_text(RACE.lstrip().replace("(out, 7);", "(out, 7);\n  shift<<<1, 64>>>(out, 8);"))
    with debug_program([path], [], How()) as session:
        assert session.go().why == "end"
        stop = session.go("over")
        assert (stop.launch["number"], stop.at["line"]) == (2, line_of("t = threadIdx.x"))  # type: ignore[index]
        assert values(session, "count") == [8] * 32
        session.go("over")
        assert session.back("over").moment == stop.moment
        earlier = session.back("over")
        assert earlier.launch["number"] == 1 and values(session, "count") == [7] * 32


def test_a_breakpoint_in_a_kernel_that_is_launched_later(tmp_path: Path) -> None:
    later = "__global__ void later(float *out) {\n  float doubled = 2 * out[threadIdx.x];\n"
    later += "  out[threadIdx.x] = doubled;\n}\n"
    path = tmp_path / "two.cu"
    program = RACE.lstrip().replace("int main", later + "int main")
    path.write_text(program.replace("(out, 7);", "(out, 7);\n  later<<<1, 64>>>(out);"))
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "= doubled" in text)
    with debug_program([path], [], How()) as session:
        assert session.add_breakpoint("", line, "doubled > 70 && threadIdx.x == 33").line == line
        assert session.add_breakpoint_in("later", "warp == 1").line == line - 1
        assert session.go().why == "end"
        for wanted in (line - 1, line):
            stop = session.go()
            assert stop.at is not None and (stop.launch["number"], stop.at["line"]) == (2, wanted)


def test_a_kernel_that_a_kernel_launches(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "launch.cu").write_text("""
__global__ void child(int *out, int what) {
  out[threadIdx.x] = what;
}
__global__ void parent(int *out) { child<<<1, 4>>>(out, 7); }
int main() {
  int *out;
  cudaMalloc(&out, 16);
  parent<<<1, 1>>>(out);
  return cudaDeviceSynchronize();
}
""")
    (tmp_path / "commands").write_text("break launch.cu:3\ncontinue\ncontinue\nprint what\n")
    words = ["debug", str(tmp_path / "launch.cu"), "--nvcc-flags=-rdc=true"]
    assert main([*words, "--script", str(tmp_path / "commands")]) == 0
    printed = capfd.readouterr().out
    assert "launch.cu:3 in child, block (0,0,0) warp 0 lane 0" in printed and "what = 7 (int)" in printed


_KERNEL = "__global__ void kernel(int *out, int count) {\n  const int t = threadIdx.x;\n  %s\n}\n"
_MAIN = "int main() {\n  int *out;\n  cudaMalloc(&out, 256);\n  kernel<<<1, 32>>>(out, 60);\n  %s\n}\n"


def opened(folder: Path, body: str, rest: str = "return cudaDeviceSynchronize();") -> Session:
    path = folder / "kernel.cu"
    path.write_text("#include <cstdlib>\n" + _KERNEL % body + _MAIN % rest)
    return debug_program([path], [], How())


def test_a_parameter_by_reference_has_its_value_in_a_callee(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text("""
struct Sizes { int rows; float scale; };
__device__ float scaled(const Sizes &sizes) {
  return sizes.rows * sizes.scale;
}
__global__ void kernel(const __grid_constant__ Sizes sizes) {
  __shared__ float s[1];
  s[0] = scaled(sizes);
}
int main() { kernel<<<1, 32>>>(Sizes{6, 0.5f}); return cudaDeviceSynchronize(); }
""")
    with debug_program([path], [], How()) as session:
        session.add_breakpoint("", 4)
        assert session.go().why == "breakpoint"
        assert values(session, "sizes.rows * sizes.scale") == [3] * 32
        assert values(session, "sizes") == [{"rows": 6, "scale": 0.5}] * 32


def test_what_the_compiler_has_optimised_away_is_called_that(tmp_path: Path) -> None:
    """Of a constant the compiler keeps the name alone, of an unused variable nothing."""
    body = "static const int seven = 7;\n  int unused;\n  int in = t + seven;\n  out[t] = in;"
    with opened(tmp_path, body) as session:
        session.add_breakpoint("", 7)
        session.go()
        assert values(session, "in") == [lane + 7 for lane in range(32)]
        shown = transcript(session, "info locals", "print seven", "watch seven", "print unused")
        assert re.search(r"^seven +optimised away", shown, re.MULTILINE)
        assert "seven: optimised away" in shown
        assert "unused: there is no unused here, or the compiler has optimised it away" in shown
        for name in ("seven", "unused"):
            with pytest.raises(NoValue, match=f"no {name} at kernel.cu:7, or the compiler has optimised"):
                session.add_breakpoint("", 7, f"{name} == 7")


def test_a_constant_has_the_number_of_its_type(tmp_path: Path) -> None:
    """nvcc keeps a float that never changes as a block of bytes."""
    numbers = "const float half = 0.5f;\n  const double third = 0.25;\n  const int seven = 7;\n"
    body = f"{numbers}  out[t] = half + third + seven;"
    with opened(tmp_path, body) as session:
        session.add_breakpoint("", 6)
        session.go()
        for name, number in (("half", 0.5), ("third", 0.25), ("seven", 7)):
            assert values(session, name) == [number] * 32


def test_a_fault_stops_where_it_happens(tmp_path: Path) -> None:
    with opened(tmp_path, "out[t + count] = t;") as session:
        fault = session.go()
        assert fault.why == "fault" and "a write of 4 bytes" in fault.fault
        assert fault.at is not None and fault.at["line"] == 4
        assert values(session, "t + count")[3:5] == [63, 64]
        assert session.back("over").at["line"] == 4  # type: ignore[index]
        assert session.back("over").at["line"] == 3  # type: ignore[index]
        assert session.go().why == "fault"
        ended = session.go()
        assert (ended.why, ended.message) == ("exit", "the program has returned 700")


def test_a_program_that_calls_exit_or_crashes_can_be_returned_to(tmp_path: Path) -> None:
    with opened(tmp_path, "out[t] = t;", "cudaDeviceSynchronize(); exit(3);") as session:
        assert session.go().why == "end"
        assert session.go().message == "the program has called exit(3)"
        assert session.back("over").at is not None
    with opened(tmp_path, "out[t] = t;", "cudaDeviceSynchronize(); abort();") as session:
        session.go()
        assert session.go().message == "the program was ended by SIGABRT"
        assert session.back("over").at is not None


def test_an_endless_loop_can_be_interrupted(tmp_path: Path) -> None:
    with opened(tmp_path, "while (count > 1)\n    count = count | 8;\n  out[t] = count;") as session:
        threading.Timer(1, session.interrupt).start()
        stop = session.go()
        assert stop.why == "interrupted" and stop.at is not None and stop.at["line"] in (4, 5)
        assert values(session, "count") == [60] * 32


def test_diverged_lanes_are_apart(session: Session) -> None:
    session.add_breakpoint("", line_of("next = s[(t + 33)"))
    stop = session.go()
    assert stop.at is not None and stop.at["lanes"] == 0x55555555
    shown = transcript(session, "info warps", "print next")
    assert "#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#." in shown


def test_a_watch_stops_at_a_change_and_names_who_made_it(session: Session) -> None:
    assert not session.add_watch("out[3]").is_shared
    stop = session.go()
    assert (stop.why, stop.by["warp"], stop.by["line"]) == ("watch", 0, line_of("out[t] = next"))
    watch = session.add_watch("s[33]")
    assert (watch.is_shared, watch.address, watch.bytes) == (True, 132, 4)
    stop = session.go()
    assert (stop.why, stop.watched, stop.by["warp"]) == ("watch", 1, 1)
    assert stop.by["line"] == line_of("s[t] = twice(t)")


def test_stepping_back_finds_a_race(checked: Session) -> None:
    """Warp 1 writes what warp 0 has read: going back shows the read, and that it came too early."""
    found = checked.go()
    while found.why == "finding" and "race" not in {one.kind.split()[0] for one in checked.findings()}:
        found = checked.go()
    race = next(one for one in checked.findings() if one.kind == "race between warps")
    assert race.who is not None and race.other is not None
    assert {race.who.line, race.other.line} == {line_of("s[t] = twice"), line_of("next = s[(t + 33)")}
    assert found.at is not None and found.at["warp"] == 1
    checked.add_breakpoint("", line_of("next = s[(t + 33)"), "warp == 0")
    uninitialised = checked.back("none")
    assert (uninitialised.why, uninitialised.at["warp"]) == ("finding", 0)  # type: ignore[index]
    read = checked.back("none")
    assert (read.why, read.hit, read.at["warp"]) == ("breakpoint", [1], 0)  # type: ignore[index]
    assert read.moment < uninitialised.moment < found.moment
    assert math.isnan(values(checked, "s[33]")[0] or 0)  # nobody has written it yet


def test_numbers_of_a_build_that_is_not_the_usual_one_have_a_label(session: Session) -> None:
    label = "built with nvcc -G: it executes more instructions than the usual build"
    assert label in transcript(session, "info launch")
    assert label in begun(session)


def begun(session: Session) -> str:
    console = SafeConsole(record=True, width=120, quiet=False, file=io.StringIO())
    Prompt(session, console).begin()
    return console.export_text()


def test_a_process_that_has_gone_is_an_error(session: Session) -> None:
    os.killpg(session._process.pid, signal.SIGKILL)
    session._process.wait()
    for _ in range(2):
        with pytest.raises(ExecutionError, match="the process that was debugged has gone"):
            session.ask("warps")


def test_a_build_with_lines_only_says_so(program: Path) -> None:
    with debug_program([program], [], How(lines_only=True)) as session:
        assert "nvcc -G" not in begun(session)
        assert session.stop.at is not None
        with pytest.raises(NoValue, match="lines but no variables"):
            session.ask("evaluate", text="t", focus=session.focus)
        assert "lines but no variables" in transcript(session, "info locals")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("nxt", "did you mean next?"),
        ("break 4000", "has no code at line 4000 or behind it"),
        ("break other.cu:3", "no code from other.cu; it has code from shift.cu"),
        ("break no_such", "the kernel calls no function no_such; there are shift, twice"),
        ("break 10 if t ==", "is no expression that the debugger reads"),
        ("break 14 if nxt > 3", "there is no nxt at shift.cu:14, or the compiler has optimised it away; did"),
        ("condition 7 t == 3", "there is no breakpoint 7"),
        ("print missing", "there is no missing here, or the compiler has optimised it away"),
        ("print twice(3)", "the debugger reads names, members, elements and operators"),
        ("print s[64]", "has no element 64"),
        ("watch t", "not in shared or global memory"),
        ("block 1", "the grid has no block 1; it is 1x1x1"),
        ("block one", "block takes a number, or x,y,z"),
        ("block 0 2", "2 is no number from 0 to 1"),
        ("goto 0", "goto takes the number of an instruction, from 1 on"),
        ("list 4000", "shift.cu ends at line"),
        ("shared 4000", "the block has 256 bytes of shared memory"),
        ('tile "', "is no expression that the debugger reads"),
        ("delete", "delete takes numbers of breakpoints and watches"),
        ("lane 40", "no number from 0 to 31"),
        ("delete 9", "there is no breakpoint and no watch 9"),
    ],
)
def test_a_bad_command_gets_one_clear_answer(session: Session, command: str, answer: str) -> None:
    assert answer in transcript(session, command)
