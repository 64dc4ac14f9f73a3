"""Whole folders run on all cores and without nightly tests; narrow runs and explicit options as they say."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from rungs import named

ROOT = Path(__file__).parents[2]
ALL = (os.cpu_count() or 1) + 1
USUAL, WITHOUT_NIGHTLY = "not full", "not full and not nightly"


@pytest.mark.parametrize(
    ("arguments", "given", "workers", "marks"),
    [
        (["stages"], {}, ALL, WITHOUT_NIGHTLY),
        (["tests/../stages/", "tests"], {}, ALL, WITHOUT_NIGHTLY),
        (["."], {}, ALL, WITHOUT_NIGHTLY),
        (["-m", "not full"], {}, ALL, USUAL),
        (["stages"], {"numprocesses": 2}, 2, WITHOUT_NIGHTLY),
        (["stages"], {"keyword": named("v3")}, None, USUAL),
        (["stages"], {"usepdb": True}, None, USUAL),
        (["stages", "tests/common"], {}, None, USUAL),
        (["stages/test_matrix.py::test_one_kernel"], {}, None, USUAL),
    ],
)
def test_workers(arguments, given, workers, marks, monkeypatch) -> None:
    spec = importlib.util.spec_from_file_location("root_conftest", ROOT / "conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    monkeypatch.chdir(ROOT)
    usual = {"numprocesses": None, "dist": "no", "keyword": "", "usepdb": False, "markexpr": USUAL}
    config = SimpleNamespace(
        option=SimpleNamespace(**{**usual, **given}),
        args=["."] if "-m" in arguments else arguments,
        invocation_params=SimpleNamespace(args=arguments),
        rootpath=ROOT,
        getini=lambda name: ["tests", "stages", "notebooks"],
    )
    conftest.pytest_cmdline_main(config)
    assert (config.option.numprocesses, config.option.markexpr) == (workers, marks)
    assert config.option.dist == ("worksteal" if workers == ALL else "no")
