"""Fixtures for tests of gradients, and of what torch.compile compiles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ladder.call import forward, gradients, native, varlen


@pytest.fixture(params=["python", "c++"])
def both_functions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gradients by the function in Python, then by the one in C++, which is otherwise for GPUs alone."""
    if request.param == "c++" and native.module() is None:
        pytest.skip("no C++ compiler, or no headers of Python or torch")
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
