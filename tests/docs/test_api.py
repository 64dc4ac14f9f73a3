"""The reference of the package's exports is that of its docstrings, whose examples run."""

from __future__ import annotations

import doctest
import importlib.util
import inspect

import pytest
import torch

import ladder
from tools.pages import api

#: What an example needs besides torch.
NEEDS = {"counting": "numba", "register_attention": "transformers"}


def test_the_page_is_current() -> None:
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "run: python -m tools.pages.api"


@pytest.mark.parametrize("name", [*api.exports()])
def test_an_example_runs(name: str) -> None:
    one = api.exports()[name]
    examples = doctest.DocTestParser().get_doctest(
        inspect.getdoc(one) or "", {"torch": torch, "ladder": ladder}, name, None, None
    )
    assert examples.examples, "has no example"
    if name in NEEDS and not importlib.util.find_spec(NEEDS[name]):
        pytest.skip(f"{NEEDS[name]} is not installed")
    told: list[str] = []
    assert doctest.DocTestRunner().run(examples, out=told.append).failed == 0, "".join(told)
