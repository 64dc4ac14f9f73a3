"""Workflows run on this machine as on GitHub, and what the project's workflows run is there."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tools import run_workflow

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SMALL = """
env: {A: workflow, B: "${{ matrix.b }}"}
jobs:
  first:
    strategy: {matrix: {b: [one, two]}}
    env: {A: job}
    steps:
      - uses: actions/checkout@v4
      - run: test "$A $B $C" = "job one step" && cat committed && mkdir made
        env: {C: "${{ nothing || given }}"}
      - run: |
          pwd
          false | true
          echo not reached
        working-directory: made
  second:
    steps:
      - run: test ! -e made
      - run: exit 9
        if: failure()
  third:
    uses: ./other.yml
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "committed").write_text("committed\n")
    (tmp_path / "small.yml").write_text(SMALL)
    git("add", ".")
    git("commit", "-q", "-m", "First")
    (tmp_path / "committed").write_text("not committed\n")
    return tmp_path


def run(repository: Path, *words: str) -> int:
    given = [str(repository / "small.yml"), "--source", str(repository), "--set", "given=step", *words]
    return run_workflow.main(given)


def test_steps_run_in_order_in_a_clean_clone(repository: Path, capfd) -> None:
    assert run(repository) == 1
    out, err = capfd.readouterr()
    assert "\ncommitted\n" in out
    assert re.search(r"^/.*/clone/made$", out, re.MULTILINE)
    assert "\nnot reached" not in out and "job second" not in out
    assert err == "error: the step ended with 1\n"


def test_jobs_do_not_share_a_clone_and_conditions_are_left_out(repository: Path, capfd) -> None:
    assert run(repository, "--job", "second", "--job", "third") == 0
    out = capfd.readouterr().out
    assert "-- left out: if: failure()" in out and "-- left out: uses ./other.yml" in out


def test_what_it_does_not_know_is_refused(repository: Path) -> None:
    with pytest.raises(SystemExit):
        run(repository, "--job", "fourth")
    with pytest.raises(ValueError, match=r"more than names"):
        run_workflow.filled("${{ a == 'b' }}", {})
    shell = {"jobs": {"one": {"steps": [{"run": "true", "shell": "python"}]}}}
    with pytest.raises(ValueError, match="shell, which is not known"):
        list(run_workflow.steps_of(shell, "one", {}))


def targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    rules = set(re.findall(r"^([\w-]+):(?!=)", text, re.MULTILINE))
    return set(phony.split()) & rules


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_make_target_or_a_script(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    known = targets()
    for name in workflow["jobs"]:
        for step in run_workflow.steps_of(workflow, name, {}):
            for line in step.commands.splitlines():
                program, word, *_ = [*line.split(), ""]
                assert (program == "make" and word in known) or (ROOT / program).is_file(), f"{name}: {line}"


def test_local_actions_and_workflows_are_there() -> None:
    used = {
        name for path in WORKFLOWS for name in re.findall(r"uses: \./(\S+)", path.read_text(encoding="utf-8"))
    }
    assert used
    for name in used:
        assert (ROOT / name).is_file() or (ROOT / name / "action.yml").is_file(), name
