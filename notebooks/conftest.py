"""Lessons are tests: each is executed from top to bottom. Those of rungs that are not
tested whole are left to the nightly run.
"""

import pytest
from nightly import whole_rungs

from ladder.stages import discover


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "nbmake"):
        config.option.nbmake = True
        config.option.nbmake_timeout = 240


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        _, _, rung = item.path.stem.partition("_")
        if item.path.suffix == ".ipynb" and rung in {stage.name for stage in discover()} - whole_rungs():
            item.add_marker("nightly")
