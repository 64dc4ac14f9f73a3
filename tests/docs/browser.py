"""Chromium without a window, driven over a pipe; and a static file server for its pages."""

from __future__ import annotations

import fcntl
import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The browser's program; skips the test if there is none."""
    found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    return found or pytest.skip("there is no chromium")


@contextmanager
def served(folder: Path, prefixes: Mapping[str, str] | None = None) -> Iterator[str]:
    """Serves the folder; yields its address. Files named in ``prefixes`` begin with these texts."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            prefix = (prefixes or {}).get(self.path.lstrip("/"))
            if prefix is None:
                return super().do_GET()
            body = prefix.encode() + (folder / self.path.lstrip("/")).read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/javascript")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


class Browser:
    """One tab, over Chromium's debugging protocol: messages of JSON that end in a zero byte."""

    def __init__(self, profile: Path) -> None:
        pipes = [*os.pipe(), *os.pipe()]
        # Above the numbers that the browser reads and writes.
        to_browser, self._write, self._read, from_browser = (
            fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in pipes
        )
        for one in pipes:
            os.close(one)
        command = [
            chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        # The shell gives the pipes the numbers that the browser expects.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=[to_browser, from_browser],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.call("Network.enable")
        self.call("Page.enable")

    def close(self) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(30)
        os.close(self._read)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._read, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 120) -> Any:
        """The expression's value once it is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.value(expression):
                return found
            time.sleep(0.1)
        raise AssertionError(
            f"{expression} has not come true; the page says {self.value('document.body.innerText')}"
        )

    def set_width(self, pixels: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=900, deviceScaleFactor=1, mobile=False
        )
