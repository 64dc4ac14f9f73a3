"""What holds for all tests, and for the processes that they start."""

import os
from pathlib import Path

import pytest

# pytest-xdist gives each core a worker. OpenMP's threads of several workers would spin on each other's cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests compare English texts, whatever the machine's language.
os.environ["LADDER_LANGUAGE"] = "en"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lessons first: one of these long tests at the end would leave the other workers without work."""
    items.sort(key=lambda item: item.path.suffix != ".ipynb")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Whole folders run without the tests that are left to the nightly run, and on all cores, unless the
    command says otherwise. A narrow run has all tests, and would only wait for workers to start. One more
    worker than cores: tests wait for builds and for limits of time.
    """
    options = config.option
    if options.usepdb or options.keyword or hasattr(config, "workerinput"):
        return
    named = {Path(argument).resolve() for argument in config.args}
    if not named <= {config.rootpath, *(config.rootpath / folder for folder in config.getini("testpaths"))}:
        return
    if "-m" not in config.invocation_params.args:
        options.markexpr = f"{options.markexpr} and not nightly"
    if getattr(options, "numprocesses", 0) is None:
        options.numprocesses, options.dist = (os.cpu_count() or 1) + 1, "worksteal"
