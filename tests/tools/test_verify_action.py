"""The GitHub Action: its last step, run as GitHub does with a program in the place of ``ladder``."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "verify" / "action.yml"
LADDER = '#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\nexit $CODE\n'


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_step_passes_options_and_the_exit_code(code: int, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "ladder"
    program.parent.mkdir()
    program.write_text(LADDER)
    program.chmod(0o755)
    action = yaml.safe_load(ACTION.read_text())
    step = action["runs"]["steps"][-1]
    given = {"candidate": "my kernel.py", "reference": "model.py", "options": "--with N=65 --shrink"}
    inputs = {name: given.get(name, one.get("default")) for name, one in action["inputs"].items()}
    values = {
        name: inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")]
        for name, text in step["env"].items()
    }
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]

    def run(**changed: str) -> int:
        environment = {**os.environ, **values, **changed, "PATH": path, "CODE": str(code)}
        return subprocess.run(shell, cwd=tmp_path, env=environment).returncode

    assert run() == code
    words = "[verify]\n[my kernel.py]\n[--reference]\n[model.py]\n[--with]\n[N=65]\n[--shrink]\n"
    assert (tmp_path / "verdict.json").read_text() == words
    assert run(REFERENCE="", OPTIONS="--kernelbench problems", VERDICT="all.json") == code
    assert (tmp_path / "all.json").read_text() == "[verify]\n[my kernel.py]\n[--kernelbench]\n[problems]\n"
