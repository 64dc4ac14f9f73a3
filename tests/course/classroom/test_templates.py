"""The templates for GitHub Classroom and the hub name exercises and files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from ladder.course.exercises import get_exercise

CLASSROOM = Path(__file__).parents[3] / "classroom"


def test_each_step_of_the_workflow_checks_its_exercise_and_is_reported() -> None:
    text = (CLASSROOM / "github" / ".github" / "workflows" / "classroom.yml").read_text(encoding="utf-8")
    [job] = yaml.safe_load(text)["jobs"].values()
    steps = {step["id"]: step["with"] for step in job["steps"] if "id" in step}
    for name, given in steps.items():
        assert get_exercise(name).name == given["test-name"]
        assert given["command"] == f"ladder exercise check {name}"
    reporter = job["steps"][-1]
    assert reporter["with"]["runners"].split(",") == list(steps)
    assert reporter["env"] == {
        f"{name.upper()}_RESULTS": f"${{{{ steps.{name}.outputs.result }}}}" for name in steps
    }
    readme = (CLASSROOM / "github" / "README.md").read_text(encoding="utf-8")
    assert set(steps) <= set(re.findall(r"`(\w+)`", readme))


def test_the_hub_starts_the_image_on_the_network_of_its_compose_file() -> None:
    compose = yaml.safe_load((CLASSROOM / "hub" / "compose.yml").read_text(encoding="utf-8"))
    config = (CLASSROOM / "hub" / "jupyterhub_config.py").read_text(encoding="utf-8")
    compile(config, "jupyterhub_config.py", "exec")
    hub = compose["services"]["hub"]
    assert (CLASSROOM / "hub" / hub["build"]["dockerfile"]).is_file()
    assert f'hub_connect_ip = "{hub["container_name"]}"' in config
    assert f'network_name = "{compose["networks"]["class"]["name"]}"' in config
    image = re.search(r"-t (\S+)", (CLASSROOM / "hub" / "Dockerfile").read_text(encoding="utf-8"))
    assert image and f'DockerSpawner.image = "{image[1].rstrip(".")}"' in config
