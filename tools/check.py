#!/usr/bin/env python3
"""Checks a change in at most two minutes on two cores, once the project is built.

    make check [BASE=COMMIT]

Runs `make lint`, checks the messages of new commits, and runs the import rules with the tests nearest to the
files that differ from BASE, uncommitted changes included. BASE is by default the commit at which the branch
left main. The nearest tests begin first, until the time is up. What is left is counted; `make test` runs it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tools.changed_tests import changed_files, git, main_commit, nearest, selectors

ROOT = Path(__file__).parents[1]
#: After these, no further test begins; the last ones then have half a minute to end.
SECONDS = 90
LAYERS = "tests/test_layers.py"
#: For this module as a plugin of pytest: the selectors, and the time at which no further test begins.
SELECTORS, UNTIL = "LADDER_CHECK_SELECTORS", "LADDER_CHECK_UNTIL"


def by_file(chosen: Sequence[str]) -> dict[str, list[frozenset[str]]]:
    """Selectors by file. An empty set of words stands for the whole file."""
    found: dict[str, list[frozenset[str]]] = {}
    for selector in chosen:
        file, _, words = selector.partition("::")
        found.setdefault(file, []).append(frozenset(words.split("+")) - {""})
    return found


def is_selected(test: str, wanted: Mapping[str, Sequence[frozenset[str]]]) -> bool:
    """Whether a selector names the test, given by its node id."""
    file, _, name = test.partition("::")
    words = set(re.split(r"::|[][:/ -]", name))
    return any(needed <= words for needed in wanted.get(file, ()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = by_file(os.environ[SELECTORS].split("\n"))
    config.hook.pytest_deselected(items=[item for item in items if not is_selected(item.nodeid, wanted)])
    items[:] = [item for item in items if is_selected(item.nodeid, wanted)]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ[UNTIL]) and not item.nodeid.startswith(LAYERS):
        pytest.skip("no time left: make test runs it")


def plan(root: Path, base: str | None) -> list[str]:
    """Says what has changed and what that needs, and returns the selectors."""
    commit = base or main_commit(root)
    if git(root, "rev-parse", "--git-dir") is None:
        print("Not a git checkout: only lint and the import rules run.")
        return []
    if commit is None or git(root, "rev-parse", "-q", "--verify", f"{commit}^{{commit}}") is None:
        name = base or "a branch main"
        print(f"There is no {name} to compare with: only lint and the import rules run.")
        return []
    paths = changed_files(root, commit)
    if not paths:
        print(f"Nothing has changed since {commit[:12]}: only lint and the import rules run.")
        return []
    print(f"{len(paths)} files changed since {commit[:12]}:")
    found = {path: nearest(root, path) for path in paths}
    for path, tests in found.items():
        print(f"  {path}: {', '.join(tests.first) or ('its folder' if tests.then else 'no test of its own')}")
    return [*selectors(found.values())]


def run_tests(chosen: Sequence[str], until: float) -> int:
    """Runs them on all cores, in this order; 0 if all that ran have passed."""
    files = list(by_file(chosen))
    environment = {**os.environ, SELECTORS: "\n".join(chosen), UNTIL: str(until)}
    workers = str(os.cpu_count()) if len(chosen) > 1 else "0"
    options = [
        "-q",
        "-p",
        "tools.check",
        "-n",
        workers,
        "-m",
        "not full",
        "--durations=5",
        "--durations-min=5",
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, env=environment
    ).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", metavar="COMMIT", help="compare with this commit")
    options = parser.parse_args(arguments)
    until = time.time() + SECONDS
    chosen = [LAYERS, *plan(ROOT, options.base)]
    sys.stdout.flush()
    failed = [subprocess.run(["make", "--no-print-directory", "lint"], cwd=ROOT).returncode]
    if len(chosen) > 1:
        since = options.base or str(main_commit(ROOT))
        messages = [sys.executable, "tools/commit_message.py", "--since", since]
        failed.append(subprocess.run(messages, cwd=ROOT).returncode)
    failed.append(run_tests(chosen, until))
    return 1 if any(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
