"""Lessons are tests: each is executed from top to bottom. All but the first ones are left to the nightly run."""

import pytest
from nightly import FIRST


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "nbmake"):
        config.option.nbmake = True
        config.option.nbmake_timeout = 240


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        number, _, rung = item.path.stem.partition("_")
        if item.path.suffix == ".ipynb" and rung not in FIRST and not number.startswith("00"):
            item.add_marker("nightly")
