"""What a test does in a live page, and what the native emulator has to have counted and found there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from browser import Browser

from ladder.course.lessons import changed_copy
from ladder.stages import Stage, read_stage


def open_page(browser: Browser, folder: str, name: str) -> None:
    """Opens a page of the folder at this address, and waits until its script has begun."""
    address = f"{folder}/{name}.html"
    browser.open(address)
    browser.wait_for(f"window.live && location.href === {address!r}")


def press(browser: Browser, button: str, **choices: Any) -> dict[str, Any]:
    """What the page has after the button, with these values of its controls."""
    for name, value in choices.items():
        what = "checked" if isinstance(value, bool) else "selectedIndex" if name == "program" else "value"
        browser.value(f"document.getElementById({name!r}).{what} = {json.dumps(value)}; 0")
    browser.value(f"window.live = {{}}; document.getElementById({button!r}).click()")
    return dict(browser.wait_for("Object.keys(window.live).length && window.live"))


def text_of(browser: Browser, name: str) -> str:
    return str(browser.value(f"document.getElementById({name!r}).textContent"))


def edit(browser: Browser, old: str, new: str) -> None:
    """Replaces a text of the editor's source, which has it once."""
    source = browser.value("document.getElementById('source').value")
    assert source.count(old) == 1
    browser.value(f"document.getElementById('source').value = {json.dumps(source.replace(old, new))}; 0")


def changed_rung(stage: Stage, offered: Any, kernel: str) -> Stage:
    """The rung with another text of its kernel, compiled for these problems."""
    return read_stage(changed_copy(stage, kernel, "changed")).narrowed(offered)


def comparable(found: list[Mapping[str, Any]]) -> list[Any]:
    """What is the same wherever the memory lies."""
    lines = [(one["who"]["own_line"], one["other"] and one["other"]["own_line"]) for one in found]
    return [(one["kind"], one["message"], one["count"], *at) for one, at in zip(found, lines, strict=True)]


def _by_line(rows: Any) -> dict[Any, Any]:
    """Counts by place; the page's files have no folders."""
    places = ("file", "line", "kernel_file", "kernel_line", "own_line")
    counted: dict[Any, Any] = {}
    for row in rows:
        at = tuple(Path(row[name]).name if isinstance(row[name], str) else row[name] for name in places)
        assert at not in counted
        counted[at] = {name: count for name, count in row.items() if name not in places}
    return counted


def assert_same_counts(kernels: Any, native: Any) -> None:
    """Whether a page has counted what the native emulator has, in total and by line."""
    assert [one["totals"] for one in kernels] == [launch.totals() for launch in native.counted]
    for kernel, launch in zip(kernels, native.counted, strict=True):
        lines = launch.lines().astype(object)
        wanted = _by_line(lines.where(lines.notna(), None).to_dict("records"))
        assert _by_line(kernel["lines"]) == wanted
