"""Fixtures for tests of gradients, and of what torch.compile compiles."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ladder.call import forward, gradients, native, varlen


@pytest.fixture(autouse=True)
def no_calls_in_cpp() -> Iterator[None]:
    """C++ knows no call of an earlier test."""
    native.forget()
    yield
    native.forget()


@pytest.fixture(params=["operator", "c++"])
def both_functions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gradients by the operator, then by the function in C++, which is otherwise for GPUs alone."""
    if request.param == "c++":
        if not Path(sysconfig.get_path("include"), "Python.h").is_file():
            pytest.skip("no headers of Python")
        assert native.module() is not None  # or autograd.cpp does not compile
    monkeypatch.setattr(native, "_DEVICES", {"cpu", "cuda"} if request.param == "c++" else set())
    for known in (forward._runs, gradients._runs, varlen._calls):
        known.clear()  # type: ignore[attr-defined]
    yield
    for known in (forward._runs, gradients._runs, varlen._calls):
        known.clear()  # type: ignore[attr-defined]


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Nothing is compiled yet, and nothing is left."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
