"""The version stands in three places, and the paper's figures are those of the data."""

import re
from pathlib import Path

import pandas as pd
import yaml

import ladder

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
PAPER = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")


def test_the_version_is_one_and_each_has_a_date() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    form = r"(\d+\.\d+\.\d+), (?:\d{4}-\d\d-\d\d|not released yet)"
    versions = [re.fullmatch(form, heading) for heading in headings]
    assert all(versions), headings
    assert versions[0] and versions[0][1] == ladder.__version__
    assert all("not released" not in heading for heading in headings[1:])
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == ladder.__version__


def test_the_paper_says_what_the_data_says() -> None:
    sanitizer = pd.read_csv(RESULTS / "sanitizer.csv")
    reported = sanitizer[sanitizer.ours == "reported"]
    assert "clean" not in set(reported.expected)
    theirs = (sanitizer["compute-sanitizer"] == "reported").sum()
    wrong = pd.read_csv(RESULTS / "wrong_rungs.csv")
    corpus = pd.read_csv(RESULTS / "corpus.csv")
    seconds = pd.read_csv(RESULTS / "checks.csv").kept_s
    rows = sum(len(pd.read_csv(path)) for path in RESULTS.glob("h*/counters.csv"))
    text = " ".join(PAPER.split())
    for claim in (
        f"On {len(sanitizer)} small programs with a known fault or with none, "
        f"the sanitizer reports {len(reported)},",
        f"compute-sanitizer, on the same programs and a GPU, reports {theirs} ",
        f"Of {len(wrong)} rungs in which one thing was made wrong on purpose, "
        f"the default checks find {(wrong.outcome == 'found').sum()} ",
        f"Of {len(corpus)} programs in three public repositories, "
        f"{(corpus.outcome == 'right').sum()} pass their own check on the emulator, "
        f"and {(corpus.outcome == 'ran').sum()} more run ",
        f"takes {seconds.median():.1f} s of processor time (median of {len(seconds)} exercises,",
        f"hardware counters for the rungs, {rows:,} in number,",
    ):
        assert claim in text, claim
    assert corpus.repository.nunique() == 3


def test_the_paper_has_the_journal_s_length_and_its_sources() -> None:
    """JOSE asks for 250 to 1,000 words."""
    body = PAPER.split("---", 2)[2]
    assert 250 <= len(body.split()) <= 1000
    keys = re.findall(
        r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(re.findall(r"@(\w+)", body)) == set(keys)
