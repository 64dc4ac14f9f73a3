"""Serves a folder of live pages, and a compiler for the sources that their readers edit.

* ``GET compiler.json``, beside the pages, says whether there is a compiler. The file of that name says no,
  and has what each kernel of the pages is compiled with.
* ``POST compile`` takes ``{"name": ..., "source": ...}`` and answers ``{"ptx": ...}``, or ``{"error": ...}``
  with the ``line`` of the source if the compiler has named one. With ``"steps": true`` the PTX is that of
  ``nvcc -G``, and the answer has ``tables`` for the steps of a warp.

It has neither TLS nor users: it is for a room, not for the internet.
"""

from __future__ import annotations

import json
import posixpath
import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ladder.course.serving.compiler import Busy, Compiler, Kernel, Limits
from ladder.errors import LadderError
from ladder.stages import discover

#: Beside the live pages.
COMPILER_FILE = "compiler.json"
#: A source as JSON may take so many times its own bytes.
_ESCAPES = 6
_MOST_DROPPED = 32 * 2**20


def pages_in(folder: Path) -> Path:
    """The folder of live pages: this one, or ``live`` in it, as in the site. Raises :class:`LadderError`."""
    for place in (folder / "live", folder):
        if (place / COMPILER_FILE).is_file():
            return place
    raise LadderError(
        f"{folder} has no live pages",
        "In the repository, make site builds them in build/site; it needs emscripten.",
    )


def kernels_of(pages: Path) -> dict[str, Kernel]:
    """The kernels of these pages, by the pages' names. Raises :class:`LadderError`."""
    ladder = discover()
    data = json.loads((pages / COMPILER_FILE).read_text(encoding="utf-8"))
    return {
        name: Kernel(ladder[one["rung"]] if one["rung"] else None, one["arch"], one["options"])
        for name, one in data["kernels"].items()
    }


class PageServer(ThreadingHTTPServer):
    """Serves until :meth:`shutdown`. Raises :class:`LadderError` without pages, without confinement for the
    compiler, or if the address is taken.
    """

    daemon_threads = True
    request_queue_size = 128  # a class that opens its pages at once

    def __init__(self, folder: Path, address: tuple[str, int], limits: Limits | None = None) -> None:
        self.folder = folder.resolve()
        self.pages = pages_in(self.folder)
        #: The pages' folder as it stands in addresses: / or /live/.
        self.prefix = "/live/" if self.pages != self.folder else "/"
        self.compiler = Compiler(kernels_of(self.pages), limits)
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            self.compiler.close()
            host, port = address
            raise LadderError(
                f"{host}:{port} cannot be served: {error.strerror}", "--port takes another number."
            ) from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that have gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        super().server_close()
        self.compiler.close()


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(SimpleHTTPRequestHandler):
    server: PageServer
    timeout = 30  # of a client that sends nothing

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, directory=str(arguments[2].folder))

    def log_message(self, *_: Any) -> None:
        """Logs nothing, so that no record of what readers do is kept."""

    def _asks_for(self, name: str) -> bool:
        path = posixpath.normpath(unquote(urlsplit(self.path).path))
        return path == self.server.prefix + name

    def do_GET(self) -> None:
        if self._asks_for(COMPILER_FILE):
            self._send(HTTPStatus.OK, {"is_here": True})
        else:
            super().do_GET()

    def do_POST(self) -> None:
        try:
            answer = self._compiled()
        except _Refused as refused:
            return self._send(refused.status, {"error": str(refused)})
        except Busy as error:
            return self._send(HTTPStatus.SERVICE_UNAVAILABLE, {"error": error.message})
        except LadderError as error:
            return self._send(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": error.message})
        self._send(HTTPStatus.OK, answer)

    def _compiled(self) -> dict[str, Any]:
        if not self._asks_for("compile"):
            raise _Refused(HTTPStatus.NOT_FOUND, "only compile takes a source")
        # A page of another site cannot send this type without being asked first.
        if self.headers.get_content_type() != "application/json":
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a source comes as application/json")
        match self._body():
            case {"name": str(name), "source": str(source), **others}:
                steps = others.get("steps") is True
                return self.server.compiler.answer(name, source, steps=steps).json()
        raise _Refused(HTTPStatus.BAD_REQUEST, "a request has a name and a source")

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a request names its length")
        most = _ESCAPES * self.server.compiler.limits.source_bytes
        if int(length) > most:
            self._drop(min(int(length), _MOST_DROPPED))
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {most:,} bytes")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, "the request is no JSON") from error

    def _drop(self, size: int) -> None:
        """Reads so much of a request: a client that still sends would not see the answer."""
        while size > 0 and (part := self.rfile.read(min(size, 1 << 16))):
            size -= len(part)

    def _send(self, status: HTTPStatus, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)
