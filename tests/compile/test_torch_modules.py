"""A module of torch's C++ interface is built once, and says what its compiler says."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from ladder.compile import torch_module, torch_modules
from ladder.errors import BuildError


def test_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "answer.cpp"
    source.write_text(
        "#include <Python.h>\n#include <c10/macros/Macros.h>\n"
        'extern "C" C10_EXPORT int answer() { return PY_MAJOR_VERSION; }\n'
    )
    built = torch_module(source)
    assert ctypes.CDLL(str(built)).answer() == 3

    def run_again(*_: object) -> None:
        raise AssertionError("compiled again")

    with monkeypatch.context() as patched:
        patched.setattr(torch_modules.processes, "run", run_again)
        assert torch_module(source) == built
    source.write_text(source.read_text().replace("PY_MAJOR_VERSION", "42"))
    assert ctypes.CDLL(str(torch_module(source))).answer() == 42


def test_what_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "wrong.cpp"
    source.write_text("#include <no_such_header.h>\n")
    with pytest.raises(BuildError, match=r"wrong\.cpp does not compile:[\s\S]*no_such_header"):
        torch_module(source)
