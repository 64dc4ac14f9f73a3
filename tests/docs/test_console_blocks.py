"""What the pages show of a terminal: their commands exist, and print what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ladder.cli.command_line import command_line
from ladder.course.exercises import exercises
from ladder.stages import discover

ROOT = Path(__file__).parents[2]
_FOLDERS = ("", "docs/", "notebooks/", "stages/**/", "examples/", "exercises/**/", "classroom/**/")
PAGES = sorted({page for folder in _FOLDERS for page in ROOT.glob(f"{folder}*.md")} - {ROOT / "CHANGELOG.md"})
_RUNG = re.compile(r"[bdhrvx]\d+[a-z]?_\w+")


def commands(page: Path) -> list[list[str]]:
    """The words of each command ``ladder ...``: lines of blocks up to a comment, and code in the text."""
    text = page.read_text(encoding="utf-8")
    lines = re.findall(r"^(?: {4})?(?:\$ )?(ladder [^#\n|]*?) *\\?(?: #.*)?$", text, re.MULTILINE)
    code = re.findall(r"`(ladder [^`]*)`", text)
    return [shlex.split(line.partition(" (")[0].partition(" -- ")[0]) for line in [*lines, *code]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its options, and the rungs and exercises that it names. Its arguments may be missing."""
    wrong, parser, found = [], command_line(), commands(page)
    names = {one.name for one in (*discover(), *exercises())}
    names |= {words[2] for words in found if words[1:2] == ["new"] and len(words) > 2}
    for words in found:
        wrong += [(words, word) for word in words if _RUNG.fullmatch(word) and word not in names]
        try:
            parser.parse_args(words[1:])
        except SystemExit:
            said = capsys.readouterr().err.strip().splitlines()[-1]
            if "required: " not in said and "expected one argument" not in said:
                wrong.append((words, said))
    assert wrong == []


def shown(lines: Sequence[str]) -> list[str]:
    """The lines that have text, with one space where there are several."""
    return [" ".join(line.split()) for line in lines if line.strip()]


def in_order(expected: Sequence[str], printed: Sequence[str]) -> list[str]:
    """The expected lines that the output does not have behind those before them. ``...`` skips lines."""
    missing, place = [], 0
    for line in expected:
        if line == "...":
            continue
        if line in printed[place:]:
            place = printed.index(line, place) + 1
        else:
            missing.append(line)
    return missing


def ladder(folder: Path, *words: str) -> list[str]:
    """What ``ladder`` prints in ``folder`` on a terminal of 100 columns."""
    environment = {**os.environ, "COLUMNS": "100", "LADDER_STAGES": str(folder)}
    command = [sys.executable, "-m", "ladder", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return shown(done.stdout.splitlines())


SESSIONS = [
    [line.removeprefix("    ") for line in block.splitlines()]
    for block in re.findall(
        r"^    \$ ladder debug.*\n(?:(?:    .*)?\n)+",
        (ROOT / "docs" / "debugger.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
]


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session[0].split()[3])
def test_a_session_of_the_debugger_goes_as_shown(session: list[str], tmp_path: Path) -> None:
    my_v1 = tmp_path / "my_v1"  # as the page says: v1 without the barrier after the loads of K and V
    shutil.copytree(discover()["v1"].path, my_v1)
    kernel = (my_v1 / "kernel.cu").read_text(encoding="utf-8")
    head, rest = kernel.split("    __syncthreads();\n", 1)
    assert head.splitlines()[-2].strip().startswith("v_smem[i] = v_gmem")
    (my_v1 / "kernel.cu").write_text(head + rest, encoding="utf-8")
    prompt = "(ladder) "
    typed = [line.removeprefix(prompt) for line in session if line.startswith(prompt)]
    (tmp_path / "commands.txt").write_text("\n".join(typed), encoding="utf-8")
    printed = ladder(tmp_path, *shlex.split(session[0])[2:], "--script", "commands.txt")
    assert len(typed) > 5 and in_order(shown(session[1:]), printed) == []
