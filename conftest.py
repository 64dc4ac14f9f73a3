"""What holds for all tests, and for the processes that they start."""

import os

import pytest

# pytest-xdist gives each core a worker; OpenMP's threads of several workers would spin on each other's cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests compare English texts, whatever the machine's language.
os.environ["LADDER_LANGUAGE"] = "en"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lessons first: one of these long tests at the end would leave the other workers without work."""
    items.sort(key=lambda item: item.path.suffix != ".ipynb")
