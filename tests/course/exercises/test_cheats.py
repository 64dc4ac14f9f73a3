"""Ways to be graded "solved" without solving: none works, and a student's code harms nobody else.

docs/verdicts.md says what cannot be prevented while host code and emulator share a process.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rungs import named

from ladder.cli import main
from ladder.common import isolation
from ladder.compile import confining
from ladder.course.exercises import BEGIN, END, Workspace, get_exercise, programs
from ladder.run.backends import emulated

RUNG, PROGRAM = "v1_lse", "cuda_vector_add"
INCLUDE = Path(__file__).parents[3] / "stages" / "include"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of one's own."""
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(home: Path) -> Callable[[str], Path]:
    """Starts an exercise and returns its main file; the gap stays as it is."""

    def start(name: str) -> Path:
        assert main(["exercise", "start", name]) == 0
        return home / "my_exercises" / name / get_exercise(name).main_file

    return start


@pytest.fixture
def without_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a program's gap could hold anything: what is said below is the second line of defence."""
    monkeypatch.setattr("ladder.course.exercises.checking.broken_rule", lambda text, before: "")


def initialise(source: Path, code: str, before: str = "") -> None:
    """Ends the function of the gap, adds ``before`` and an initialiser that runs the code, and begins another
    function, all between the markers.
    """
    text, mark, after = source.read_text().partition(END)
    lines = text.splitlines(keepends=True)
    # What the gap's function or its namespace would have closed is closed by what begins here.
    whole = re.sub(r'#include "(others/.*)"', lambda other: (source.parent / other[1]).read_text(), text)
    depth = whole.count("{") - whole.count("}")
    namespaces = len(re.findall(r"^namespace [^;=]*{", whole, re.MULTILINE))
    ends = "}\n" * (depth - namespaces)
    begins = "__device__ void rest() {\n" + "{\n" * (depth - namespaces - 1)
    cheat = f"{ends}{before}const int cheat = [] {{\n{code}\nreturn 0;\n}}();\n{begins}"
    source.write_text("".join(lines[:-1]) + cheat + lines[-1] + mark + after)


def verdict(name: str, capfd: pytest.CaptureFixture[str]) -> str:
    """What the check says of an exercise that is not solved."""
    capfd.readouterr()
    assert main(["exercise", "check", name]) == 1
    assert not Workspace().progress(get_exercise(name)).solved
    out, err = capfd.readouterr()
    assert f"not yet {name}" in out and len(err) <= isolation.MOST_OUTPUT_BYTES
    return out


def test_a_header_of_ones_own_does_not_replace_the_project_s(start, capfd) -> None:
    """One with which the untouched gap would be right."""
    source = start(RUNG)
    header = source.parent / "ladder" / "launch.h"
    header.parent.mkdir()
    header.write_text(
        f'#pragma once\n#include "{INCLUDE}/ladder/launch.h"\n#define logf(x) (m_gmem[row] + logf(x))\n'
    )
    (source.parent / "notes.txt").write_text("mine")
    said = verdict(RUNG, capfd)
    assert "not the exercise's, and not used: ladder/launch.h, notes.txt" in said
    assert "lse is wrong in 80 of 80 rows" in said
    # So it would be.
    assert main(["run", RUNG, "--problem", "1,2,40,50,32", "--backend", "emulator"]) == 0


def test_files_that_are_not_the_exercise_s_do_not_matter(start, capfd) -> None:
    for name in (RUNG, PROGRAM):
        source = start(name)
        source.write_text(get_exercise(name).sources(solved=True)[source.name])
        (source.parent / "cmath").write_text("#error mine\n")
        (source.parent / ".hidden").write_text("")
        assert main(["exercise", "check", name]) == 0
        out = capfd.readouterr().out
        assert f"solved {name}" in out and "not used: cmath\n" in out


def test_a_verdict_says_what_the_code_could_not_do(start, home: Path, capfd) -> None:
    with isolation.Child(folder=home) as child:
        protections = child.protections
    for name in (RUNG, PROGRAM):
        start(name)
        capfd.readouterr()
        assert main(["exercise", "check", name, "--json", "-"]) == 1
        [row] = json.loads(capfd.readouterr().out)
        assert row["protections"] == protections and row["unused_files"] == []


EMPTY_KERNEL = "__global__ void empty() {}\n"


@pytest.mark.usefixtures("without_rules")
def test_an_initialiser_that_launches_and_exits(start, capfd) -> None:
    for name, said in (
        (RUNG, "exit code 0, before there was a result"),
        (PROGRAM, "before main had compared"),
    ):
        initialise(start(name), "empty<<<1, 1>>>();\ncudaDeviceSynchronize();\n::exit(0);", EMPTY_KERNEL)
        assert said in verdict(name, capfd)


@pytest.mark.usefixtures("without_rules")
def test_an_initialiser_that_ends_at_once(start, capfd) -> None:
    for name, said in ((RUNG, "exit code 0"), (PROGRAM, "has written no counts")):
        initialise(start(name), "empty<<<1, 1>>>();\n::_Exit(0);", EMPTY_KERNEL)
        assert said in verdict(name, capfd)


class Trap:
    """Leaves a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def test_an_initialiser_that_sends_a_verdict(start, home: Path, capfd) -> None:
    """Pickled, to whatever is open."""
    data = pickle.dumps(Trap(home / "sprung"))
    numbers = ", ".join(map(str, data))
    write = f"const unsigned char data[] = {{{numbers}}};\nfor (int to = 3; to < 64; to++)\n"
    initialise(
        start(RUNG),
        write + "if (write(to, data, sizeof data) < 0) continue;\n::_Exit(0);",
        '}\nextern "C" long write(int, const void *, unsigned long);\nnamespace {\n',
    )
    assert "no answer" in verdict(RUNG, capfd)
    assert not (home / "sprung").exists()


#: Answers in the place of the emulator: as if everything had run and cost nothing.
FORGED = """
import json, os, stat, sys, threading
frame = sys._getframe()
while "identity" not in frame.f_locals:
    frame = frame.f_back
launch = {"kernel": "k", "mangled": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "arch": "sm_80",
          "static_shared_bytes": 0, "dynamic_shared_bytes": 0, "answers": {"totals": {}}}
done = {"launches": [launch], "findings": "[]", "host_uses": [], "failure": None}
data = json.dumps(["returned", done]).encode()
for channel in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(channel).st_mode):
            os.write(channel, frame.f_locals["identity"] + len(data).to_bytes(8, "little") + data)
    except OSError:
        pass
os._exit(0)
"""
#: Replaces what would judge.
PATCHED = """
import ladder.run.evaluation.verdict, ladder.operations.base
ladder.run.evaluation.verdict.require_kernels = lambda *_: None
ladder.operations.base.Reference.passed = lambda *_: True
ladder.operations.base.Deviation.is_allowed = True
"""


@pytest.mark.parametrize(
    "python, said", [(FORGED, "never written"), (PATCHED, "lse is wrong in 80 of 80 rows")]
)
def test_an_initialiser_that_runs_python(start, capfd, python: str, said: str) -> None:
    """In the process of the student's code, which is not the judge's."""
    code = (
        'auto *run = reinterpret_cast<int (*)(const char *)>(dlsym(nullptr, "PyRun_SimpleString"));\n'
        f'if (!run || run(R"py({python})py") != 0)\n  __builtin_trap();'
    )
    initialise(start(RUNG), code, '}\nextern "C" void *dlsym(void *, const char *);\nnamespace {\n')
    assert said in verdict(RUNG, capfd)


@pytest.mark.usefixtures("without_rules")
def test_loops_of_the_host_end(start, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "_SECONDS", 1.0)
    monkeypatch.setattr(programs, "MOST_SECONDS", 1.0)
    for name in (RUNG, PROGRAM):
        initialise(start(name), "for (volatile int i = 0;; i = 1 - i);")
        assert re.search(r"ran for more than \d+ seconds", verdict(name, capfd))


@pytest.mark.usefixtures("without_rules")
def test_the_runs_of_a_check_share_a_minute(start, capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_SECONDS", 2.5)
    source = start(PROGRAM)
    source.write_text(get_exercise(PROGRAM).sources(solved=True)[source.name])
    initialise(source, "::usleep(2000000);", "#include <unistd.h>\n")
    assert re.search(r"On program.cu .*\n.*ran for more than 1 seconds", verdict(PROGRAM, capfd))


def fill(source: Path, text: str) -> None:
    """Puts a text between the markers."""
    before, mark, after = source.read_text().partition(END)
    lines = before.splitlines(keepends=True)
    begin = next(number for number, line in enumerate(lines) if BEGIN in line)
    source.write_text("".join(lines[: begin + 1]) + f"{text}\n" + lines[-1] + mark + after)


@pytest.mark.parametrize(
    "cheat",
    [
        "const_cast<float *>(a)[i] = const_cast<float *>(b)[i] = c[i] = 0.f;",
        'asm volatile("st.global.f32 [%0], 0f00000000;" ::"l"(a + i)); c[i] = b[i];',
    ],
)
def test_inputs_that_main_compares_with_are_not_changed(start, capfd, cheat: str) -> None:
    """Zeros are the sum of zeros."""
    fill(start(PROGRAM), f"const int i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < n) {{ {cheat} }}")
    assert "read-only" in verdict(PROGRAM, capfd)


DEEP = "".join(f"#define A{n + 1} A{n} A{n}\n" for n in range(40)) + "#define A0 x\nA40\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DEEP, "the compiler was stopped"),
        ('#include "/etc/passwd"\n', "/etc/passwd: Permission denied"),
        (f'#include "{INCLUDE.parent}/{named("v1")}/kernel.cu"\n', "Permission denied"),
    ],
)
def test_what_a_compiler_reads_and_takes_is_limited(
    start, capfd, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """A macro that expands without end, and files that are not the exercise's."""
    monkeypatch.setattr(confining, "SECONDS", 3)
    source = start(RUNG)
    before, mark, after = source.read_text().partition(END)
    lines = before.splitlines(keepends=True)
    source.write_text("".join(lines[:-1]) + text + lines[-1] + mark + after)
    assert said in verdict(RUNG, capfd)


def test_an_assembler_reads_what_a_compiler_does(start, capfd) -> None:
    initialise(start(RUNG), 'asm(".pushsection .rodata\\n.incbin \\"/etc/passwd\\"\\n.popsection");')
    assert "file not found: /etc/passwd" in verdict(RUNG, capfd)


def memory_bytes() -> int:
    found = re.search(r"^VmRSS:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return 1024 * int(found[1])


@pytest.mark.usefixtures("without_rules")
def test_too_much_output_ends_it(start, capfd) -> None:
    before = memory_bytes()
    for name in (RUNG, PROGRAM):
        initialise(
            start(name),
            'for (int i = 0; i < 1 << 17; i++) std::printf("%0999d\\n", 0);',
            "}\n#include <cstdio>\nnamespace {\n" * (name == RUNG),
        )
        assert "printed more than 16 MiB" in verdict(name, capfd)
    assert memory_bytes() < before + 2**28


def test_too_much_printf_of_a_kernel_ends_it(start, capfd) -> None:
    source = start(PROGRAM)
    text, mark, after = source.read_text().partition(END)
    source.write_text(f'{text}for (int i = 0; i < 1 << 7; i++) printf("%0999d\\n", 0);\n{mark}{after}')
    assert "printed more than 16 MiB" in verdict(PROGRAM, capfd)


@pytest.mark.usefixtures("without_rules")
def test_files_of_others_are_not_written(start, home: Path, capfd) -> None:
    """Such as the record of what is solved."""
    record = home / "my_exercises" / ".progress.json"
    for name in (RUNG, PROGRAM):
        source = start(name)
        before = record.read_text()
        code = (
            f'if (FILE *file = std::fopen("{record}", "w"))\n  std::fputs("{{}}", file), std::fclose(file);'
        )
        initialise(source, code, "}\n#include <cstdio>\nnamespace {\n" * (name == RUNG))
        verdict(name, capfd)
        assert record.read_text() == before.replace('"tries": 0', '"tries": 1')
