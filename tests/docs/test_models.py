"""The table of the architectures of transformers: every one runs again."""

from __future__ import annotations

from typing import Any

import pytest

transformers = pytest.importorskip("transformers")

from tools.pages import models  # noqa: E402  # it imports transformers


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    """All of them: minutes."""
    found: dict[str, Any] = models.judged(models.architectures())
    return found


@pytest.mark.full
def test_no_architecture_is_wrong(outcomes: dict[str, Any]) -> None:
    assert [name for name, found in outcomes.items() if models.WRONG in found.cases] == []
    assert outcomes["llama"].cases[0] == models.RIGHT


@pytest.mark.full
def test_the_table_is_current(outcomes: dict[str, Any]) -> None:
    text = models.PAGE.read_text(encoding="utf-8")
    if f"transformers {transformers.__version__}," not in text:
        pytest.skip("the table is of another version of transformers")
    assert models.page(outcomes) == text, "run: python -m tools.pages.models"


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "llama", "mixtral"])
def test_common_architectures_are_right(architecture: str) -> None:
    assert models.outcome(architecture).cases[0] == models.RIGHT


def test_a_lost_mask_is_found() -> None:
    found = models.outcome("llama", models.blind_attention)
    assert found.is_causal and found.cases[0] == models.WRONG
