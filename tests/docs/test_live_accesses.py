"""The live page of accesses: what it computes, refuses and advises is what ``ladder bank`` does."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from expressions import REFUSED, UNDEFINED, WRITTEN, random_expression

from ladder.cli import main
from ladder.counts import banks
from ladder.counts.banks.explorer import lane_addresses, swizzled
from ladder.errors import LadderError
from tools.pages import live_pages

ROOT = Path(__file__).parents[2]

#: Access, width, address, swizzle, lanes, as the page of accesses takes them.
ACCESSES = [
    ("ld", 4, "lane * 4", "", ""),
    ("ld", 4, "lane * 128", "", ""),
    ("ld", 4, "lane * 128", "5,2,5", ""),
    ("ld", 4, "lane * 132", "", "0-15,20"),
    ("ld", 4, "lane * 128 + (lane ^ lane >> 3 & 7) * 4", "", "0x0000ffff"),
    ("ld", 4, "lane * 0x8000000u", "", ""),
    ("ld", 1, "lane * 33", "", ""),
    ("ld", 2, "lane / 2 * 130", "", ""),
    ("ld", 8, "lane % 8 * 256 + lane / 8 * 8", "", ""),
    ("ld", 8, "lane / 2 * 128", "", ""),
    ("ld", 16, "lane * 128", "", ""),
    ("ld", 16, "(lane & ~1) * 64", "", ""),
    ("ld", 4, "0", "", ""),
    ("st", 1, "lane % 4 * 128 + lane / 4", "", ""),
    ("st", 4, "lane % 2 * 128 + lane / 2 * 4", "", "0b1010101"),
    ("st", 8, "lane * 128", "4,3,4", ""),
    ("st", 16, "lane * 16", "", ""),
    ("st", 16, "lane * 272", "", ""),
    ("ldmatrix", 1, "(7 - lane) * 16", "", ""),
    ("ldmatrix", 2, "lane % 8 * 256 + lane / 8 * 16", "", ""),
    ("ldmatrix", 4, "lane % 16 * 256 + lane / 16 * 16", "3,4,4", ""),
    ("ldmatrix", 4, "lane % 16 * 256 + lane / 16 * 16", "3,4,3", ""),
    ("stmatrix", 4, "lane * 144", "", ""),
    ("atom.add", 4, "lane % 2 * 128", "", ""),
    ("atom.cas", 4, "lane % 4 * 4", "", ""),
    # What is refused.
    ("ld", 4, "lane * ", "", ""),
    ("ld", 4, "warp * 4", "", ""),
    ("ld", 4, "lane // 2", "", ""),
    ("ld", 4, "1 / lane", "", ""),
    ("ld", 4, "lane - 1", "", ""),
    ("ld", 4, "lane * 2", "", ""),
    ("st", 16, "lane * 16 + 8", "", "3"),
    ("ld", 4, "1l << 40", "", ""),
    ("ldmatrix", 4, "lane * 16", "", "0-30"),
    ("ld", 4, "lane * 4", "3,4", ""),
    ("ld", 4, "lane * 4", "3,4,2", ""),
    ("ld", 4, "lane * 128", "3,0,7", ""),
    ("ld", 4, "lane * 4", "", "5-32"),
    ("ld", 4, "lane * 4", "", "x"),
    ("ld", 4, "lane * 4", "", "0x0"),
]


def _explored(op: str, width: int, address: str, swizzle: str, active: str) -> dict[str, Any]:
    """What ``ladder bank`` finds, as the page of accesses has it."""
    try:
        found = banks.explore(
            op,
            address,
            width=width,
            swizzle=banks.Swizzle.parse(swizzle) if swizzle else None,
            active=banks.parse_mask(active) if active else 2**32 - 1,
        )
    except LadderError as error:
        return {"error": str(error)}
    service = found.service

    def bits(one: banks.Swizzle) -> dict[str, int]:
        return {"bits": one.bits, "base": one.base, "shift": one.shift}

    return {
        "wavefronts": service.wavefronts,
        "conflicts": service.conflicts,
        "ideal": service.ideal,
        "passes": [
            {
                "lanes": [*one.lanes],
                "wavefronts": one.wavefronts,
                "cells": [
                    {
                        "wavefront": cell.wavefront,
                        "bank": cell.first_bank,
                        "banks": cell.banks,
                        "address": cell.address,
                        "lanes": [*cell.lanes],
                    }
                    for cell in one.cells
                ],
            }
            for one in service.passes
        ],
        "remedies": [bits(one) for one in found.remedies],
        "best": found.best and {**bits(found.best[0]), "conflicts": found.best[1]},
    }


def _type(browser: Browser, **fields: Any) -> dict[str, Any]:
    """What the page of accesses has after these inputs."""
    for name, value in fields.items():
        browser.value(
            f"{{ const field = document.getElementById({name!r}); field.value = {json.dumps(value)};"
            " field.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
    return dict(browser.value("window.live"))


@pytest.mark.full
def test_an_access_costs_what_ladder_bank_says(browser: Browser, banks_page: str) -> None:
    browser.open(banks_page)
    browser.wait_for("window.live && document.getElementById('op')")
    for one in ACCESSES:
        op, width, address, swizzle, active = one
        shown = _type(browser, op=op, width=width, address=address, swizzle=swizzle, active=active)
        shown.pop("text", None)
        assert shown == _explored(*one), one
        drawings = "document.querySelectorAll('#result:not([hidden]) svg[role=img] rect').length"
        assert browser.value(drawings) == sum(len(each["cells"]) for each in shown.get("passes", ())), one


@pytest.mark.full
def test_the_page_of_accesses_speaks_chinese(browser: Browser, banks_page: str) -> None:
    """Its own words and what it computes; the table has every text of the pages' templates."""
    browser.open(banks_page.replace("banks.html", "zh_CN/banks.html"))
    browser.wait_for("window.live && document.getElementById('said').textContent.includes('wavefront')")
    shown = browser.value("[document.title, document.querySelector('h1').textContent, said.textContent]")
    assert shown[0] == "在浏览器中计算一次访存的 bank conflict" and shown[1] == "一次访存的 bank conflict"
    assert "4 个 pass 中 32 个 wavefront" in shown[2] and "28 个 conflict" in shown[2]
    assert browser.value("document.querySelector('nav a:last-child').href") == banks_page


@pytest.mark.full
def test_the_examples_are_ladder_bank_s_commands(
    browser: Browser, banks_page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.open(banks_page)
    browser.wait_for("window.live && document.getElementById('op')")
    conflicts = []
    for number in range(len(live_pages.PRESETS)):
        browser.value(
            f"{{ const field = document.getElementById('preset'); field.selectedIndex = {number};"
            " field.dispatchEvent(new Event('change', { bubbles: true })); }"
        )
        shown = browser.value("window.live")
        conflicts.append(shown["conflicts"])
        command = browser.value("document.getElementById('command').textContent")
        assert main(shlex.split(command)[1:]) == 0
        assert (
            shown["text"].split()
            == capsys.readouterr().out.partition("\n\n")[0].split()[-len(shown["text"].split()) :]
        )
        titles = browser.value("[...document.querySelectorAll('svg title')].map((one) => one.textContent)")
        assert len(titles) == len(shown["passes"]) and all("Wavefront 1: lane" in one for one in titles)
    assert conflicts == [28, 0, 28, 0, 31, 0, 0, 0]


@pytest.mark.full
def test_the_page_of_accesses_fits_a_phone_and_offers_the_remedy(browser: Browser, banks_page: str) -> None:
    for width in (390, 1280):
        browser.set_width(width)
        browser.open(banks_page)
        browser.wait_for("window.live && document.getElementById('op')")
        assert browser.value("document.documentElement.scrollWidth <= window.innerWidth")
    assert _type(browser, op="ldmatrix", address="lane % 8 * 128", swizzle="")["conflicts"] > 0
    browser.value("document.querySelector('#advice button').click()")
    assert browser.value("document.getElementById('swizzle').value") == "3,4,3"
    assert browser.value("window.live.conflicts") == 0


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_page_reads_an_access_as_ladder_bank_does(tmp_path: Path) -> None:
    """Values, addresses and errors; without the bank model, which is the emulator's."""
    rng = random.Random(33)
    texts = [*WRITTEN, *REFUSED, *UNDEFINED, *(random_expression(rng, 4) for _ in range(300))]
    texts += ["min(lane, 7) - abs(-lane)", "max(lane - 5, 2u)", " lane // 2", "é + lane", "1'000", "0x"]
    texts += ["- " * depth + "lane" for depth in (59, 60)]
    for name in ("access.js", "expression.js"):
        shutil.copyfile(ROOT / "docs" / "live" / name, tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "read.js").write_text("""
        import { readFileSync } from "node:fs";
        import { accessOf } from "./access.js";
        import { expression, Refusal } from "./expression.js";
        const tried = (work) => {
          try {
            return work();
          } catch (error) {
            if (error instanceof Refusal) return error.message;
            throw error;
          }
        };
        const { texts, accesses } = JSON.parse(readFileSync(0, "utf-8"));
        console.log(JSON.stringify({
          values: texts.map((text) => tried(() => {
            const value = expression(text);
            return [0, 1, 5, 31].map((lane) => String(value(lane)));
          })),
          accesses: accesses.map(([op, width, address, swizzle, active]) =>
            tried(() => accessOf({ op, width, address, swizzle, active }).access.addresses)),
        }));
    """)
    done = subprocess.run(
        ["node", str(tmp_path / "read.js")],
        input=json.dumps({"texts": texts, "accesses": ACCESSES}),
        capture_output=True,
        text=True,
        check=True,
    )
    read = json.loads(done.stdout)
    for text, shown in zip(texts, read["values"], strict=True):
        assert shown == _values(text), text
    for one, shown in zip(ACCESSES, read["accesses"], strict=True):
        assert shown == _addresses(*one), one


def _values(text: str) -> Any:
    try:
        value = banks.Expression(text)
        return [str(value(lane=lane)) for lane in (0, 1, 5, 31)]
    except LadderError as error:
        return str(error)


def _addresses(op: str, width: int, address: str, swizzle: str, active: str) -> Any:
    """Of the lanes that take part, swizzled."""
    try:
        chosen = banks.Swizzle.parse(swizzle) if swizzle else None
        mask = banks.parse_mask(active) if active else 2**32 - 1
        given = lane_addresses(address)
        access = banks.Access(
            op, width, tuple(at if mask >> lane & 1 else None for lane, at in enumerate(given))
        )
        return [*(swizzled(access, chosen) if chosen else access).addresses]
    except LadderError as error:
        return str(error)
