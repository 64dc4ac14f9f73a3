"""Whole folders of tests run on all cores; narrow runs, and runs that say it, on as many as they ask for."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
ALL = (os.cpu_count() or 1) + 1


@pytest.mark.parametrize(
    ("arguments", "given", "workers"),
    [
        (["stages"], {}, ALL),
        (["tests/../stages/", "tests"], {}, ALL),
        (["."], {}, ALL),
        (["stages"], {"numprocesses": 2}, 2),
        (["stages"], {"keyword": "v3_swizzle"}, None),
        (["stages"], {"usepdb": True}, None),
        (["stages", "tests/common"], {}, None),
        (["stages/test_matrix.py::test_one_kernel"], {}, None),
    ],
)
def test_workers(arguments, given, workers, monkeypatch) -> None:
    spec = importlib.util.spec_from_file_location("root_conftest", ROOT / "conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    monkeypatch.chdir(ROOT)
    option = SimpleNamespace(**{"numprocesses": None, "dist": "no", "keyword": "", "usepdb": False, **given})
    config = SimpleNamespace(
        option=option, args=arguments, rootpath=ROOT, getini=lambda name: ["tests", "stages", "notebooks"]
    )
    conftest.pytest_cmdline_main(config)
    assert option.numprocesses == workers
    assert option.dist == ("worksteal" if workers == ALL else "no")
