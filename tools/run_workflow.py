#!/usr/bin/env python3
"""Runs the steps of a GitHub workflow on this machine, in a clean directory.

    python tools/run_workflow.py .github/workflows/check.yml [--job JOB] [--set github.event.before=HEAD~1]

Clones the committed state of the repository for each job, and runs the job's `run:` steps there in order,
with their environment, as GitHub's shell does. Of a matrix it takes the first values. Steps that use an
action are named and left out, and so are jobs and steps with a condition. Exits with the status of the first
step that fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
#: What a step may say; any other key would change what its commands do.
_KEYS = {"name", "id", "run", "env", "working-directory", "timeout-minutes"}
_SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")


@dataclass(frozen=True)
class Step:
    """A step of a job: commands with their environment and folder, or the reason why it is left out."""

    commands: str = ""
    environment: Mapping[str, str] | None = None
    folder: str = "."
    left_out: str = ""


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its expressions replaced. Each is a name, or names joined by ``||``, of which the first
    that has a value counts. A name without a value is empty, as on GitHub.
    """

    def value(found: re.Match[str]) -> str:
        names = [name.strip() for name in found[1].split("||")]
        for name in names:
            if not re.fullmatch(r"[\w.-]+", name):
                raise ValueError(f"the expression {found[0]} is more than names joined by ||")
        return next((values[name] for name in names if values.get(name)), "")

    return _EXPRESSION.sub(value, text)


def first_of_matrix(job: Mapping[str, Any]) -> dict[str, str]:
    matrix = job.get("strategy", {}).get("matrix", {})
    return {f"matrix.{name}": str(given[0]) for name, given in matrix.items()}


def steps_of(workflow: Mapping[str, Any], name: str, values: Mapping[str, str]) -> Iterator[Step]:
    """The steps of a job, in order."""
    job = workflow["jobs"][name]
    if reason := f"if: {job['if']}" if "if" in job else f"uses {job['uses']}" if "uses" in job else "":
        yield Step(left_out=reason)
        return
    known = {**first_of_matrix(job), **values}
    for step in job["steps"]:
        if "uses" in step:
            yield Step(left_out=f"uses {step['uses']}")
        elif "if" in step:
            yield Step(left_out=f"if: {step['if']}")
        elif unknown := step.keys() - _KEYS:
            raise ValueError(
                f"a step of the job {name} has {', '.join(sorted(unknown))}, which is not known here"
            )
        else:
            given = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
            environment = {key: filled(str(value), known) for key, value in given.items()}
            folder = filled(step.get("working-directory", "."), known)
            yield Step(filled(step["run"], known), environment, folder)


def run_job(steps: Sequence[Step], source: Path) -> int:
    """Runs them in a clone of the repository at ``source``, and returns the first status that is not 0."""
    with tempfile.TemporaryDirectory(prefix="workflow-") as parent:
        clone = Path(parent, "clone")
        subprocess.run(["git", "clone", "-q", str(source), str(clone)], check=True)
        for step in steps:
            if step.left_out:
                print(f"-- left out: {step.left_out}", flush=True)
                continue
            print("\n".join(f"$ {line}" for line in step.commands.splitlines()), flush=True)
            environment = {**os.environ, "CI": "true", **(step.environment or {})}
            done = subprocess.run([*_SHELL, step.commands], cwd=clone / step.folder, env=environment)
            if done.returncode:
                print(f"error: the step ended with {done.returncode}", file=sys.stderr)
                return done.returncode
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workflow", type=Path)
    parser.add_argument(
        "--job", action="append", metavar="JOB", help="this job only; may be given several times"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a value for expressions"
    )
    parser.add_argument("--source", type=Path, default=ROOT, metavar="DIR", help="the repository to clone")
    options = parser.parse_args(arguments)
    workflow = yaml.safe_load(options.workflow.read_text(encoding="utf-8"))
    values = dict(pair.split("=", 1) for pair in options.set)
    for name in options.job or workflow["jobs"]:
        if name not in workflow["jobs"]:
            parser.error(f"there is no job {name}; there are {', '.join(workflow['jobs'])}")
        print(f"job {name}", flush=True)
        if status := run_job([*steps_of(workflow, name, values)], options.source):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
