"""The commit-msg hook, on messages, and in a repository as git runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools import commit_message

LONG = "x" * 73


@pytest.mark.parametrize(
    "message",
    [
        "x" * 72 + "\n",
        "Subject\n\nThe reason.\n# a comment of git's template\n",
        "# a comment\nSubject\n",
        f"fixup! {LONG}\n",
        f"Subject\n{commit_message.SCISSORS}\nthe diff\n",
    ],
)
def test_right(message):
    assert commit_message.faults(message) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (f"{LONG}\n", "the subject has 73 characters; at most 72"),
        (f"# a comment\n{LONG}\n", "the subject has 73 characters"),
        ("Subject\nThe reason.\n", "the line after the subject must be blank"),
        ("\n# only a comment\n", "is empty"),
    ],
)
def test_wrong(message, fault):
    (found,) = commit_message.faults(message)
    assert fault in found


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True)


def test_git_refuses_what_the_hook_refuses(tmp_path, monkeypatch, capsys):
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "First")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", LONG)
    monkeypatch.chdir(tmp_path)
    assert commit_message.main(["--since", "HEAD~1"]) == 1
    assert "73 characters" in capsys.readouterr().err
    assert commit_message.main(["--since", "HEAD"]) == 0

    hook = tmp_path / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f'#!/bin/sh\nexec {sys.executable} {commit_message.__file__} "$1"\n')
    hook.chmod(0o755)
    refused = git(tmp_path, "commit", "--allow-empty", "-m", LONG)
    assert refused.returncode == 1 and "73 characters" in refused.stderr
    assert git(tmp_path, "commit", "--allow-empty", "-m", "Short", "-m", "Why.").returncode == 0
