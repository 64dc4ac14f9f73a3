#!/usr/bin/env python3
"""Checks commit messages: a subject of at most 72 characters, a blank line, then the reason.

    python tools/commit_message.py FILE             the message that git is about to use (the commit-msg hook)
    python tools/commit_message.py --since COMMIT   the messages of all commits since then

Exits with 1 if a message is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

SUBJECT_CHARACTERS = 72
#: Written by git, which puts another subject behind them.
BY_GIT = ("Merge ", 'Revert "', 'Reapply "', "fixup! ", "squash! ", "amend! ")
SCISSORS = "# ------------------------ >8 ------------------------"


def faults(message: str) -> list[str]:
    """What is wrong with a message; empty if nothing is. Comments of git's template do not count."""
    text = message.partition(SCISSORS)[0]
    lines = [line.rstrip() for line in text.strip("\n").split("\n") if not line.startswith("#")]
    subject, *body = lines or [""]
    found = []
    if not subject:
        found.append("the first line, the subject, is empty")
    if len(subject) > SUBJECT_CHARACTERS and not subject.startswith(BY_GIT):
        found.append(f"the subject has {len(subject)} characters; at most {SUBJECT_CHARACTERS} are allowed")
    if body and body[0]:
        found.append("the line after the subject must be blank; the reason follows below it")
    return found


def messages_since(commit: str) -> dict[str, str]:
    """Messages by abbreviated hash, from the oldest. The form of git's log has no comments."""
    command = ["git", "log", "--reverse", "--format=%h%x00%B%x01", f"{commit}..HEAD"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(entry.strip("\n").split("\0") for entry in text.split("\1") if entry.strip())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("file", nargs="?", type=Path)
    given.add_argument("--since", metavar="COMMIT")
    options = parser.parse_args(arguments)
    if options.file:
        messages = {"commit message": options.file.read_text(encoding="utf-8")}
    else:
        messages = messages_since(options.since)
    wrong = {name: found for name, text in messages.items() if (found := faults(text))}
    for name, found in wrong.items():
        print(f"{name}: {'; '.join(found)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
