"""Fixtures for the tests of gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ladder.functional import forward, gradients, native, varlen


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
