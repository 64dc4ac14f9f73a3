"""A class on JupyterHub, simulated: students log in, change a kernel and check it in a terminal.

    HUB/bin/python classroom/hub/load_test.py --proxy CHP_BIN --ladder PYTHON [--students 15] [--checks 2]

``HUB`` is an environment with jupyterhub and jupyterlab, ``CHP_BIN`` the folder of configurable-http-proxy,
and ``PYTHON`` the interpreter of an environment with flash-ladder. Starts a hub of its own on this machine,
with a process and a home folder per student. Prints times of checks, memory per student, and an
extrapolation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

EXERCISES = ("v1_lse", "v1_rescale", "v2_row_max", "v3_xor", "cuda_vector_add")
TOKEN = "load-test"
CONFIG = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {port} + 1
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = ["{proxy}/configurable-http-proxy"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = "{folder}/homes/{{username}}"
c.Spawner.environment = {environment!r}
c.Spawner.args = ["--allow-root"]
c.Spawner.start_timeout = 600
c.Spawner.http_timeout = 600
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.services = [{{"name": "test", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "scopes": ["admin:users", "admin:servers", "access:servers"], "services": ["test"]}}
]
"""
#: What a student's check runs: another answer each time, so that the kernel is compiled.
CHECK = """
import json, os, random, resource, subprocess, sys, time
from pathlib import Path
from ladder.course.exercises import Workspace, fill_gap, get_exercise, solution_text
name = sys.argv[1]
exercise, workspace = get_exercise(name), Workspace(Path("my_exercises"), may_be_new=True)
if not workspace.is_started(exercise):
    workspace.start(exercise)
fill_gap(exercise, workspace.path(exercise), f"{solution_text(exercise)}\\n// {random.random()}")
began = time.monotonic()
command = [sys.executable, "-m", "ladder", "exercise", "check", name]
done = subprocess.run(command, capture_output=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
Path(sys.argv[2]).write_text(json.dumps({
    "exercise": name, "solved": done.returncode == 0, "wall_s": time.monotonic() - began,
    "cpu_s": used.ru_utime + used.ru_stime, "largest_process_mb": used.ru_maxrss / 1024,
}))
"""


class Hub:
    """The hub's REST API, and the students' servers behind it."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._headers = {"Authorization": f"token {TOKEN}", "Content-Type": "application/json"}

    async def ask(self, method: str, path: str) -> dict:
        body = "{}" if method == "POST" else None
        request = HTTPRequest(
            f"http://{self._host}{path}",
            method,
            self._headers,
            body,
            request_timeout=600,
            connect_timeout=600,
        )
        answer = await AsyncHTTPClient().fetch(request)
        return json.loads(answer.body) if answer.body else {}

    async def wait_until_up(self) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError, HTTPClientError):
                await self.ask("GET", "/hub/api/")
                return
            await asyncio.sleep(0.5)
        raise SystemExit("the hub has not started")

    async def start_server(self, user: str) -> None:
        await self.ask("POST", f"/hub/api/users/{user}")
        await self.ask("POST", f"/hub/api/users/{user}/server")
        while not (await self.ask("GET", f"/hub/api/users/{user}"))["servers"].get("", {}).get("ready"):
            await asyncio.sleep(1)

    async def type_into_terminal(self, user: str, command: str) -> None:
        """Opens a terminal through the proxy and types the command."""
        name = (await self.ask("POST", f"/user/{user}/api/terminals"))["name"]
        url = f"ws://{self._host}/user/{user}/terminals/websocket/{name}"
        socket = await websocket_connect(HTTPRequest(url, headers=self._headers, request_timeout=600))
        await socket.write_message(json.dumps(["stdin", f"{command}; exit\r"]))
        while await socket.read_message() is not None:
            pass


@dataclass
class Student:
    """Logs in, then checks changed kernels with pauses to think."""

    name: str
    home: Path
    server_start_s: float = 0.0
    checks: list[dict] = field(default_factory=list)
    peak_mb: float = 0.0

    async def work(self, hub: Hub, ladder: Path, checks: int, think_s: float) -> None:
        choice = random.Random(self.name)
        self.home.mkdir(parents=True)
        (self.home / "check.py").write_text(CHECK)
        began = time.monotonic()
        await hub.start_server(self.name)
        self.server_start_s = time.monotonic() - began
        for number in range(checks):
            await asyncio.sleep(choice.expovariate(1 / think_s))
            name, answer = choice.choice(EXERCISES), self.home / f"{number}.json"
            await hub.type_into_terminal(self.name, f"cd ~ && {ladder} check.py {name} {answer}")
            self.checks.append(json.loads(answer.read_text()))


def memory_mb(homes: Path) -> dict[str, float]:
    """Per student, the proportional share of memory of all processes with that home, in MB."""
    found: dict[str, float] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            home = re.search(
                rf"\0HOME={re.escape(str(homes))}/(\w+)\0".encode(), (process / "environ").read_bytes()
            )
            pss = re.search(r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE)
            if home and pss:
                name = home[1].decode()
                found[name] = found.get(name, 0.0) + int(pss[1]) / 1024
    return found


async def watch_memory(students: list[Student], homes: Path) -> None:
    while True:
        for name, used in memory_mb(homes).items():
            student = next(one for one in students if one.name == name)
            student.peak_mb = max(student.peak_mb, used)
        await asyncio.sleep(1)


async def simulate(options: argparse.Namespace, folder: Path) -> tuple[list[Student], dict[str, float]]:
    hub = Hub(options.port)
    await hub.wait_until_up()
    students = [
        Student(f"student{number}", folder / "homes" / f"student{number}")
        for number in range(options.students)
    ]
    watching = asyncio.ensure_future(watch_memory(students, folder / "homes"))
    await asyncio.gather(
        *(one.work(hub, options.ladder.absolute(), options.checks, options.think_s) for one in students)
    )
    watching.cancel()
    return students, memory_mb(folder / "homes")


def report(students: list[Student], idle: dict[str, float], options: argparse.Namespace) -> None:
    checks = [check for student in students for check in student.checks]
    wall = sorted(check["wall_s"] for check in checks)
    cpu = [check["cpu_s"] for check in checks]
    cores, load = os.cpu_count(), os.getloadavg()[1]
    print(
        f"{len(students)} students, {len(checks)} checks, {cores} cores, load average {load:.1f} at the end"
    )
    print(f"solved: {sum(check['solved'] for check in checks)} of {len(checks)}")
    starts = [student.server_start_s for student in students]
    print(f"server start:   median {statistics.median(starts):.1f} s, most {max(starts):.1f} s")
    p95 = wall[min(len(wall) - 1, round(0.95 * len(wall)))]
    print(f"time of check:  median {statistics.median(wall):.1f} s, p95 {p95:.1f} s")
    print(f"CPU of check:   mean {statistics.mean(cpu):.1f} s, most {max(cpu):.1f} s")
    print(f"memory, idle:   mean {statistics.mean(idle.values()):.0f} MB per student (proportional share)")
    peaks = [student.peak_mb for student in students]
    print(f"memory, peak:   mean {statistics.mean(peaks):.0f} MB, most {max(peaks):.0f} MB")
    busy = 40 * statistics.mean(cpu) / (16 * 180)
    print("Extrapolation, not measured: 40 students who check every 3 minutes keep 16 such cores")
    print(f"  {100 * busy:.0f}% busy, and take {40 * statistics.mean(idle.values()) / 1024:.0f} GB idle.")


def main() -> int:
    parser = argparse.ArgumentParser(description="A class on JupyterHub, simulated.")
    parser.add_argument("--proxy", type=Path, required=True, metavar="CHP_BIN")
    parser.add_argument("--ladder", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--students", type=int, default=15)
    parser.add_argument("--checks", type=int, default=2, help="per student")
    parser.add_argument("--think-s", type=float, default=60.0, help="mean pause before a check")
    parser.add_argument("--port", type=int, default=18000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        config = CONFIG.format(
            port=options.port,
            proxy_port=options.port + 2,
            proxy=options.proxy.absolute(),
            folder=folder,
            token=TOKEN,
            # As in the image: the compiler, and what is built, are the machine's.
            environment={
                "XDG_CACHE_HOME": cache,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
        )
        (folder / "config.py").write_text(config)
        command = [sys.executable, "-m", "jupyterhub", "-f", "config.py"]
        with (folder / "hub.log").open("wb") as log:
            hub = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
            try:
                students, idle = asyncio.run(simulate(options, folder))
            except BaseException:
                print((folder / "hub.log").read_text()[-6000:], file=sys.stderr)
                raise
            finally:
                hub.terminate()
                hub.wait()
    report(students, idle, options)
    if options.json:
        rows = [{"student": one.name, "peak_mb": one.peak_mb, "checks": one.checks} for one in students]
        options.json.write_text(json.dumps({"idle_mb": idle, "students": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
