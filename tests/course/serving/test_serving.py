"""The server of live pages: what its compiler answers, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rungs import named

from ladder.cli import main
from ladder.common import sandbox
from ladder.common.isolation import Child
from ladder.compile import EmulatorTarget
from ladder.course.serving import Limits, PageServer
from ladder.errors import LadderError
from ladder.operations import Problem
from ladder.stages import discover
from tools.pages import live_recording

ROOT = Path(__file__).parents[3]
V1 = named("v1")
SOURCE = (ROOT / "stages" / V1 / "kernel.cu").read_text()
PROGRAM = "cuda_map"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pages, of which the compiler needs only what rungs are compiled with."""
    made = tmp_path_factory.mktemp("site")
    stage = discover()[V1].narrowed([Problem(1, 1, 64, 64, 64)])
    kernels = {
        V1: {"rung": V1, "arch": stage.arch(None), "options": stage.chosen_options({})},
        PROGRAM: {"rung": None, "arch": "sm_80", "options": {}},
    }
    (made / "compiler.json").write_text(json.dumps({"is_here": False, "kernels": kernels}))
    (made / "page.html").write_text("a page")
    return made


@contextmanager
def serving(folder: Path, limits: Limits | None = None) -> Iterator[PageServer]:
    with Child(folder=folder, readable=[]) as child:
        if sandbox.NO_READS not in child.protections:
            pytest.skip("this system has no Landlock")
    with PageServer(folder, ("127.0.0.1", 0), limits) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PageServer]:
    with serving(folder) as served:
        yield served


def asked(
    server: PageServer, method: str, path: str, body: str | None = None, kind: str = "application/json"
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=300)
    try:
        connection.request(method, path, body, {"Content-Type": kind})
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if "json" in answer.headers["Content-Type"] else data
    finally:
        connection.close()


def compiled(server: PageServer, source: str, name: str = V1, **more: Any) -> tuple[int, Any]:
    return asked(server, "POST", "/compile", json.dumps({"name": name, "source": source, **more}))


def test_a_source_is_compiled_as_the_rung_is(server: PageServer) -> None:
    recorded = live_recording.record_run
    problem = Problem(1, 1, 64, 64, 64)
    stage = discover()[V1].narrowed([problem])
    native = recorded(stage, EmulatorTarget(stage.arch(None)), stage.accept(problem)).ptx
    status, answer = compiled(server, SOURCE)
    assert (status, set(answer)) == (200, {"ptx"})
    assert _without_names(answer["ptx"]) == _without_names(native)
    assert str(ROOT) not in answer["ptx"] and "ladder-" not in answer["ptx"]


def _without_names(ptx: str) -> list[str]:
    """The lines of code without what depends on the source's place: hashes, folders, times of files."""
    text = re.sub(r"_GLOBAL__N__[0-9a-f]{8}_(\w+?)_[0-9a-f]{8}", r"\1", ptx)
    text = re.sub(r'(\.file\s+\d+\s+)".*?([^/"]+)".*', r"\1\2", text)
    return [*filter(None, (" ".join(line.partition("//")[0].split()) for line in text.splitlines()))]


def test_a_changed_source_gives_another_kernel(server: PageServer) -> None:
    barriers = [ptx.count("bar.sync") for ptx in (_ptx(server, SOURCE), _ptx(server, _without_barrier()))]
    assert barriers[1] == barriers[0] - 1


def _without_barrier() -> str:
    return SOURCE.replace("__syncthreads();", "", 1)


def _ptx(server: PageServer, source: str) -> str:
    status, answer = compiled(server, source)
    assert status == 200, answer
    return str(answer["ptx"])


def test_steps_come_with_their_tables(server: PageServer) -> None:
    """As the debugger has them: the lines of the source, and its variables by name."""
    status, answer = compiled(server, "\n" + SOURCE, steps=True)
    assert (status, set(answer)) == (200, {"ptx", "tables"})
    [(kernel, table)] = answer["tables"].items()
    assert kernel in answer["ptx"] and "flash_attention_1" in kernel
    lines = ["", *SOURCE.splitlines()]
    first = next(number for number, text in enumerate(lines, 1) if "float part = 0" in text)
    [at] = table["starts"][str(first)]
    file, line, _, scope = table["places"][at]
    assert (table["files"][file], line) == ("kernel.cu", first)
    names = {name for name, *_ in table["scopes"][scope]}
    assert {"q_row", "k_smem", "j0"} <= names
    # The same source without steps is another answer.
    assert set(compiled(server, "\n" + SOURCE)[1]) == {"ptx"}


def test_a_program_is_compiled_without_its_main(server: PageServer) -> None:
    source = (ROOT / "exercises" / PROGRAM / "program.cu").read_text()
    status, answer = compiled(server, source, PROGRAM)
    assert status == 200 and answer["ptx"].count(".entry") == 1
    assert "tables" in compiled(server, source, PROGRAM, steps=True)[1]
    assert "nothing" in compiled(server, source.replace("2 * x[i]", "nothing"), PROGRAM)[1]["error"]


def test_an_error_has_its_line(server: PageServer) -> None:
    line = next(number for number, text in enumerate(SOURCE.splitlines(), 1) if "s * p.scale" in text)
    status, answer = compiled(server, SOURCE.replace("s * p.scale", "s * p.scales"))
    assert (status, answer["line"]) == (200, line)
    assert answer["error"].startswith(f"kernel.cu({line}): error: class") and "p.scales" in answer["error"]
    assert str(ROOT) not in answer["error"]
    assert compiled(server, "\n#include <nothing.h>\n")[1]["line"] == 2


@pytest.mark.parametrize(
    "source",
    [
        '#include "/etc/passwd"\n',
        '#include "/proc/self/environ"\n',
        '#line 1 "/etc/passwd"\n#error\n',
        f'#include "{ROOT}/stages/{named("v2")}/kernel.cu"\n',
    ],
)
def test_other_files_are_not_shown(server: PageServer, source: str) -> None:
    assert "root:" in Path("/etc/passwd").read_text()
    status, answer = compiled(server, source)
    assert status == 200 and "error" in answer
    for secret in ("root:", "PATH=", "[build-system]", ".entry"):
        assert secret not in json.dumps(answer)


def test_what_is_no_source_is_refused(server: PageServer) -> None:
    refusals = {
        "/other": (json.dumps({"name": V1, "source": ""}), 404, "only compile takes a source"),
        "/compile": ("no JSON", 400, "the request is no JSON"),
        "/./compile": (json.dumps({"name": V1}), 400, "a request has a name and a source"),
    }
    for path, (body, status, error) in refusals.items():
        assert asked(server, "POST", path, body) == (status, {"error": error})
    assert asked(server, "POST", "/compile", "[" * 10**5)[0] == 400
    assert asked(server, "POST", "/compile", "rung=v1", "application/x-www-form-urlencoded")[0] == 415
    assert compiled(server, SOURCE, named("v2")) == (
        422,
        {"error": f"there is no kernel '{named('v2')}' here"},
    )
    assert compiled(server, SOURCE, f"../{V1}")[0] == 422


def test_a_large_source_is_refused(server: PageServer) -> None:
    most = server.compiler.limits.source_bytes
    assert compiled(server, "/" * (most + 1)) == (422, {"error": f"the source has more than {most:,} bytes"})
    status, answer = compiled(server, "\0" * most + " ")
    assert (status, answer["error"]) == (413, f"a request has at most {6 * most:,} bytes")


def test_what_a_compiler_takes_is_limited(folder: Path) -> None:
    many = "template <int N> struct A { A<N + 1> a; };\n#include __FILE__\n#include __FILE__\n"
    deep = "".join(f"#define A{n + 1} A{n} A{n}\n" for n in range(40)) + "#define A0 x\nA40\n"
    with serving(folder, Limits(seconds=5)) as server:
        for source in (many, deep):
            status, answer = compiled(server, source)
            assert status in (200, 422) and answer["error"]
    with serving(folder, Limits(ptx_bytes=100)) as server:
        assert compiled(server, SOURCE) == (422, {"error": "its PTX has more than 100 bytes"})
    with serving(folder, Limits(memory_bytes=2**25)) as server:
        assert compiled(server, SOURCE)[1]["error"]


def test_forty_browsers_are_answered_and_the_same_source_is_compiled_once(folder: Path) -> None:
    sources = [f"{SOURCE}// {number}\n" for number in range(3)]
    counted: Counter[bytes] = Counter()
    with serving(folder) as server:
        compiles = server.compiler._compile

        def count(kernel: Any, source: bytes, steps: bool) -> Any:
            counted[source] += 1
            return compiles(kernel, source, steps)

        server.compiler._compile = count  # type: ignore[method-assign]
        with ThreadPoolExecutor(40) as browsers:
            answers = [*browsers.map(lambda number: compiled(server, sources[number % 3]), range(40))]
    assert all(status == 200 and ".entry" in answer["ptx"] for status, answer in answers)
    assert answers[0] == answers[3] != answers[1]
    assert counted == {source.encode(): 1 for source in sources}


def test_too_many_sources_are_told_to_come_again(folder: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    with serving(folder, Limits(jobs=1, waiting=0)) as server:
        compiles = server.compiler._compile

        def wait(kernel: Any, source: bytes, steps: bool) -> Any:
            begun.set()
            go_on.wait(60)
            return compiles(kernel, source, steps)

        server.compiler._compile = wait  # type: ignore[method-assign]
        with ThreadPoolExecutor(1) as browsers:
            first = browsers.submit(compiled, server, SOURCE)
            begun.wait(60)
            status, answer = compiled(server, _without_barrier())
            go_on.set()
            assert (status, first.result()[0]) == (503, 200)
        assert "try again soon" in answer["error"]
        assert compiled(server, _without_barrier())[0] == 200


def test_a_client_that_goes_is_no_error(server: PageServer, capfd: pytest.CaptureFixture[str]) -> None:
    for body in (b"{", b'{"name": "%b", "source": "#error"}' % V1.encode()):
        with socket.create_connection(("127.0.0.1", server.server_address[1])) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets it
            head = b"POST /compile HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 42\r\n\r\n"
            client.sendall(head + body)
    assert compiled(server, "#error")[0] == 200  # behind those
    assert capfd.readouterr().err == ""


def test_who_waits_when_the_server_is_closed_is_told(folder: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    with serving(folder, Limits(jobs=1)) as server, ThreadPoolExecutor(2) as browsers:

        def wait(kernel: Any, source: bytes, steps: bool) -> Any:
            begun.set()
            go_on.wait(60)
            raise LadderError("no matter")

        server.compiler._compile = wait  # type: ignore[method-assign]
        browsers.submit(compiled, server, "1")
        begun.wait(60)
        second = browsers.submit(compiled, server, "2")
        while len(server.compiler._answers) < 2:
            time.sleep(0.01)
        threading.Timer(0.2, go_on.set).start()
        server.compiler.close()
        assert second.result() == (503, {"error": "the server is being closed"})


def test_only_so_many_answers_are_kept(folder: Path) -> None:
    with serving(folder, Limits(kept=2)) as server:
        for number in range(4):
            compiled(server, f"#error {number}\n")
        assert len(server.compiler._answers) <= 3


def test_pages_are_served_and_say_that_there_is_a_compiler(server: PageServer, folder: Path) -> None:
    assert asked(server, "GET", "/page.html") == (200, b"a page")
    assert asked(server, "GET", "/compiler.json") == (200, {"is_here": True})
    assert asked(server, "GET", "/../../etc/passwd")[0] == 404
    assert json.loads((folder / "compiler.json").read_text())["is_here"] is False


def test_the_site_s_pages_are_in_its_folder_live(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "live").symlink_to(folder)
    with serving(tmp_path) as server:
        assert asked(server, "GET", "/live/compiler.json") == (200, {"is_here": True})
        assert asked(server, "POST", "/live/compile", "{}")[0] == 400
        assert asked(server, "POST", "/compile", "{}")[0] == 404


def test_where_reading_cannot_be_confined_there_is_no_compiler(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladder.course.serving.compiler.Child.ask", lambda self, *_: [sandbox.NO_WRITES])
    with pytest.raises(LadderError, match="cannot confine what a compiler reads"):
        PageServer(folder, ("127.0.0.1", 0))


def test_what_a_compiler_may_do_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for protections, gaps in (([sandbox.NO_NETWORK], []), ([], ["use the network"])):
        found = [*protections, sandbox.NO_WRITES, sandbox.NO_READS]
        monkeypatch.setattr("ladder.course.serving.compiler.Child.ask", lambda self, *_, found=found: found)
        with PageServer(folder, ("127.0.0.1", 0)) as server:
            assert server.compiler.gaps == gaps


def test_the_command_says_what_is_missing(
    server: PageServer, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path)]) == 2
    assert "has no live pages" in capsys.readouterr().err
    assert main(["serve", str(folder), "--port", str(server.server_address[1])]) == 2
    assert "cannot be served: Address already in use" in capsys.readouterr().err
