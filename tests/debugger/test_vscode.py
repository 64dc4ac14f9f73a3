"""The extension for VS Code: what its view shows, and what its package promises."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def test_the_package_names_what_is_there() -> None:
    package = json.loads((_ROOT / "editors" / "vscode" / "package.json").read_text())
    assert (_ROOT / "editors" / "vscode" / package["main"]).is_file()
    debugger = package["contributes"]["debuggers"][0]
    for configuration in debugger["initialConfigurations"]:
        known = {*debugger["configurationAttributes"]["launch"]["properties"], "type", "request", "name"}
        assert set(configuration) <= known


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_the_view_has_a_row_for_each_lane() -> None:
    variables = [
        {"name": "t", "type": "int", "values": [str(lane) for lane in range(32)]},
        {"name": "count", "type": "int", "values": ["<7>"] * 32},
    ]
    lanes = {"block": [0, 0, 0], "warp": 1, "lane": 5, "lanes": 0xAAAAAAAA, "line": 3, "instruction": 60}
    result = subprocess.run(
        ["node", str(Path(__file__).with_name("vscode_stub.js"))],
        input=json.dumps({**lanes, "variables": variables}),
        capture_output=True,
        text=True,
        check=True,
    )
    shown = json.loads(result.stdout)
    assert (shown["command"], shown["words"]) == ("ladder", ["debug", "--dap"])
    assert '<tr class="focus"><th>5</th><td>5</td></tr>' in shown["html"]
    assert '<tr class="away"><th>4</th><td>4</td></tr><tr class="focus">' in shown["html"]
    assert shown["html"].count("<tr class=") == 32
    assert "<dt>count</dt><dd>&lt;7></dd>" in shown["html"]
