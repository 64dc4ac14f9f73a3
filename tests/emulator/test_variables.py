"""The emulator's environment variables: an invalid one is an error before anything is built."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rungs import named

from ladder.cli import main
from ladder.errors import LadderError
from ladder.run.emulator import variables

WRONG = [
    ("LADDER_THREADS", "abc", "LADDER_THREADS is 'abc', not a number"),
    ("LADDER_THREADS", "²", "LADDER_THREADS is '²', not a number"),
    ("LADDER_THREADS", "-1", "LADDER_THREADS is '-1', not a number"),
    ("LADDER_THREADS", "100000", "LADDER_THREADS is 100000; it may be 1024 at most"),
    ("LADDER_WARP_INSTRUCTION_LIMIT", "1e6", "LADDER_WARP_INSTRUCTION_LIMIT is '1e6', not a number"),
    ("LADDER_WARP_INSTRUCTION_LIMIT", "9" * 5000, "it may be 9223372036854775807 at most"),
    ("LADDER_CHECK", "yes", "LADDER_CHECK is 'yes'"),
    ("LADDER_ARCH", "sm_12", "LADDER_ARCH 'sm_12' is none of sm_75"),
]


@pytest.mark.parametrize("name, value, message", WRONG)
def test_a_wrong_value(monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    with pytest.raises(LadderError, match=message):
        variables.validate()


@pytest.mark.parametrize(
    "command", [["emulate", "x.cu"], ["run", named("v1")]], ids=lambda command: command[0]
)
def test_commands_look_before_they_build(monkeypatch, capsys, tmp_path, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.cu").write_text("int main() {}")
    monkeypatch.setattr("ladder.common.processes.run", None)
    monkeypatch.setenv("LADDER_THREADS", "abc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main([*command, *(["--backend", "emulator"] if command[0] == "run" else [])]) == 2
    assert "error: LADDER_THREADS is 'abc'" in capsys.readouterr().err


def test_loading_the_library_is_no_traceback(monkeypatch):
    """The library reads the variables when it is loaded, and can then only fail the import."""
    monkeypatch.setenv("LADDER_THREADS", "abc")
    command = [sys.executable, "-m", "ladder", "bank", "ld", "lane * 4"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr.startswith("error: LADDER_THREADS is 'abc'")


def test_the_default_is_taken_where_nothing_is_said(monkeypatch):
    for name, value in (("LADDER_THREADS", ""), ("LADDER_CHECK", "0")):
        monkeypatch.setenv(name, value)
    variables.validate()
    assert variables.number(variables.THREADS, 7) == 7 and not variables.check_is_on()
    monkeypatch.setenv("LADDER_THREADS", "3")
    monkeypatch.setenv("LADDER_CHECK", "1")
    assert variables.number(variables.THREADS, 7) == 3 and variables.check_is_on()


def test_a_limit_within_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variables.INSTRUCTION_LIMIT, raising=False)
    with variables.instruction_limit(5):
        assert variables.most_instructions(9) == 5
        monkeypatch.setenv(variables.INSTRUCTION_LIMIT, "7")  # the user's takes precedence
        assert variables.most_instructions(9) == 7
    monkeypatch.delenv(variables.INSTRUCTION_LIMIT)
    assert variables.most_instructions(9) == 9
