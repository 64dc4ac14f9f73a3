"""The Debug Adapter Protocol, with a client of our own on the command's standard streams."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from debugged import RACE, line_of

from ladder.debugger import Adapter
from ladder.errors import LadderError


class Client:
    """Sends requests and waits for answers and events, in the order in which they come."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ladder", "debug", "--dap"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._seen: list[dict[str, Any]] = []
        self._sent = 0

    def send(self, command: str, **arguments: Any) -> int:
        self._sent += 1
        message = {"seq": self._sent, "type": "request", "command": command, "arguments": arguments}
        data = json.dumps(message).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self._process.stdin.flush()
        return self._sent

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        number = self.send(command, **arguments)
        answer = self._wait(lambda one: one["type"] == "response" and one["request_seq"] == number)
        assert answer["success"], answer
        return dict(answer["body"])

    def refused(self, command: str, **arguments: Any) -> str:
        number = self.send(command, **arguments)
        answer = self._wait(lambda one: one["type"] == "response" and one["request_seq"] == number)
        assert not answer["success"]
        return str(answer["message"])

    def event(self, name: str) -> dict[str, Any]:
        return dict(self._wait(lambda one: one["type"] == "event" and one["event"] == name)["body"])

    def _wait(self, wanted: Any) -> dict[str, Any]:
        while True:
            for one in self._seen:
                if wanted(one):
                    self._seen.remove(one)
                    return one
            assert self._process.stdout is not None
            head = self._process.stdout.readline()
            assert head.startswith(b"Content-Length: "), head
            assert self._process.stdout.readline() == b"\r\n"
            self._seen.append(json.loads(self._process.stdout.read(int(head.split()[1]))))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def client() -> Iterator[Client]:
    opened = Client()
    assert opened.ask("initialize", adapterID="ladder")["supportsStepBack"]
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("debugged") / "shift.cu"
    path.write_text(RACE.lstrip())
    return path


def test_a_session_of_an_editor(client: Client, program: Path) -> None:
    client.ask("launch", target=str(program))
    client.event("initialized")
    wanted = [
        {"line": 1 + line_of("t = threadIdx.x")},
        {"line": line_of("next = s[t]"), "condition": "t == 37"},
    ]
    made = client.ask("setBreakpoints", source={"path": str(program)}, breakpoints=wanted)["breakpoints"]
    assert [one["line"] for one in made] == [line_of("s[t] = twice"), line_of("next = s[t]")]
    assert made[0]["message"] == f"line {wanted[0]['line']} has no code"
    client.ask("configurationDone")
    assert client.event("output")["output"].startswith("built with nvcc -G: it executes more instructions")
    assert client.event("stopped")["reason"] == "entry"
    assert "is being debugged already" in client.refused("launch", target=str(program))

    client.ask("continue", threadId=1)
    stopped = client.event("stopped")
    assert (stopped["reason"], stopped["hitBreakpointIds"]) == ("breakpoint", [made[0]["id"]])
    assert not any(one.get("event") == "terminated" for one in client._seen)
    threads = client.ask("threads")["threads"]
    assert [one["name"] for one in threads] == ["block (0,0,0) warp 0", "block (0,0,0) warp 1"]

    client.ask("stepIn", threadId=threads[0]["id"])
    client.event("stopped")
    frames = client.ask("stackTrace", threadId=threads[0]["id"])["stackFrames"]
    assert [one["name"] for one in frames] == ["twice", "shift"]
    scopes = client.ask("scopes", frameId=frames[0]["id"])["scopes"]
    assert [one["name"] for one in scopes] == ["Lane 0", "All lanes", "mbarriers"]
    own, lanes = (client.ask("variables", variablesReference=one["variablesReference"]) for one in scopes[:2])
    assert {one["name"]: one["value"] for one in own["variables"]}["value"] == "0"
    value = next(one for one in lanes["variables"] if one["name"] == "value")
    parts = client.ask("variables", variablesReference=value["variablesReference"])["variables"]
    assert (parts[9]["name"], parts[9]["value"]) == ("lane 9", "9")

    client.ask("stepOut", threadId=1)
    client.event("stopped")
    client.ask("stepBack", threadId=1)
    client.event("stopped")
    assert "an earlier stop" in client.refused("scopes", frameId=frames[0]["id"])
    reference = scopes[0]["variablesReference"]
    assert "an earlier stop" in client.refused("variables", variablesReference=reference)
    here = client.ask("stackTrace", threadId=1)["stackFrames"]
    assert here[0]["name"] == "shift" and here[0]["line"] == line_of("s[t] = twice")

    client.ask("setBreakpoints", source={"path": str(program)}, breakpoints=wanted[1:])
    client.ask("continue", threadId=1)
    client.event("stopped")
    table = client.ask("lanes")
    assert (table["warp"], table["lane"], table["lanes"]) == (1, 5, 0xAAAAAAAA)
    assert {one["name"]: one["values"][5] for one in table["variables"]}["t"] == "37"
    assert client.ask("evaluate", expression="s[t] * 2")["result"] == "148"
    assert "there is no missing here" in client.refused("evaluate", expression="missing")
    info = client.ask("dataBreakpointInfo", name="out[37]")
    client.ask("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])
    client.ask("continue", threadId=1)
    assert client.event("stopped")["reason"] == "data breakpoint"
    client.ask("setDataBreakpoints", breakpoints=[])
    client.ask("continue", threadId=1)
    client.event("stopped")  # the end of the launch
    client.ask("continue", threadId=1)
    client.event("terminated")
    client.ask("disconnect")


def test_a_launch_without_a_target_says_what_is_missing(client: Client) -> None:
    assert 'For example "target": "v1"' in client.refused("launch")
    client.event("terminated")
    assert "nothing has been launched" in client.refused("stackTrace", threadId=1)


def test_a_program_that_does_not_build_is_refused(client: Client, tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_text("__global__ void kernel() { nothing; }\n")
    assert "does not compile" in client.refused("launch", target=str(broken))


def answered(sent: bytes) -> bytes:
    """What an adapter that launches nothing answers."""
    written = io.BytesIO()
    Adapter(io.BytesIO(sent), written, lambda arguments, output: pytest.fail("launched")).serve()
    return written.getvalue()


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: x\r\n\r\n{}",
        b"Content-Length: 3\r\n\r\n{{{",
        b"Content-Length: 3\r\n\r\n[1]",
        b'Content-Length: 10\r\n\r\n{"seq": 1}',
        b"Content-Length: 9\r\n\r\n{}",
    ],
    ids=["no number", "no JSON", "no object", "no command", "cut off"],
)
def test_what_is_not_the_protocol_ends_the_adapter(sent: bytes) -> None:
    with pytest.raises(LadderError, match="no request of the Debug Adapter Protocol"):
        answered(sent)


def test_a_request_without_an_argument_is_refused_by_its_name() -> None:
    request = b'{"seq": 1, "command": "variables"}'
    assert b"the request has no variablesReference" in answered(
        b"Content-Length: %d\r\n\r\n%s" % (len(request), request)
    )
