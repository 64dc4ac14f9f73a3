"""A rung's page is read in a few minutes: at most 700 words beside the tables that a program writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rungs import named

from ladder.stages import Stage, discover

ROOT = Path(__file__).parents[2]
MOST = 700
#: Pages that are still longer, and their words: this becomes shorter.
LONGER = {named("b4g"): 829}
RUNGS = [stage for stage in discover() if stage.is_own]
_TABLE = re.compile(r"<!-- table [\w-]+ -->.*?<!-- end of table -->", re.DOTALL)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: rung.name)
def test_the_page_of_a_rung_has_700_words(rung: Stage) -> None:
    page = (rung.path / "README.md").read_text(encoding="utf-8")
    assert len(_TABLE.sub("", page).split()) <= LONGER.get(rung.name, MOST)


def test_the_first_page_has_150_lines() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 150
    head = page.partition("<!-- table rungs -->")[2].strip().splitlines()[0]
    assert "causal" in head
