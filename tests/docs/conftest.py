"""The live pages, built and served, and a browser that opens them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium, served

from ladder.course.serving import PageServer
from tools.pages import live_pages

ROOT = Path(__file__).parents[2]
FOLDER, BUILD = ROOT / "build" / "site" / "live", ROOT / "build" / "wasm"


def _need_tools() -> None:
    """Skips a test where there is no browser, or nothing that compiles for it."""
    chromium()
    if not shutil.which("emcmake"):
        pytest.skip("there is no emscripten")


@pytest.fixture(scope="module")
def pages() -> Path:
    """The folder of the pages; they are built into the folders of `make site`, once."""
    _need_tools()
    live_pages.write_pages(FOLDER, BUILD)
    return FOLDER


@pytest.fixture(scope="module")
def banks_page() -> Iterator[str]:
    """The address of the page of accesses, which needs little of the build."""
    _need_tools()
    path = live_pages.write_banks_page(FOLDER, BUILD)
    with served(path.parent) as at:
        yield f"{at}/{path.name}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def address(pages: Path) -> Iterator[str]:
    with served(pages) as at:
        yield at


@pytest.fixture(scope="module")
def compiling(pages: Path) -> Iterator[str]:
    """The address of the pages where a server compiles."""
    with PageServer(pages.parent, ("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/live"
        server.shutdown()
