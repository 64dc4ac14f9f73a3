"""Lessons are tests: each is executed from top to bottom."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "nbmake"):
        config.option.nbmake = True
        config.option.nbmake_timeout = 240
