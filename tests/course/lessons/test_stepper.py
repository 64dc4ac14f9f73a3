"""``%%cuda --debug``: the steps of a warp as a widget."""

from __future__ import annotations

from typing import Any

import pytest

from ladder.course.lessons.stepper import debug_cell
from ladder.errors import LadderError

pytest.importorskip("anywidget")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

#: Lines count from 2 on, since the magic is the first.
PROGRAM = """\
__global__ void shift(float *out) {
  __shared__ float s[64];
  const int t = threadIdx.x;
  s[t] = 2.f * t;
  float next = s[(t + 32) % 64];
  out[t] = next;
}
int main() {
  float *out;
  cudaMalloc(&out, 256);
  shift<<<1, 64>>>(out);
  cudaDeviceSynchronize();
}
"""


def value(moment: dict[str, Any], name: str, lane: int) -> str:
    if name in (same := dict(moment["same"])):
        return str(same[name])
    return str(moment["lanes"][lane][moment["differing"].index(name)])


def test_each_line_of_each_warp_has_its_values() -> None:
    widget = debug_cell("--debug", PROGRAM)
    assert widget.warps == ["block 0, warp 0", "block 0, warp 1"]
    assert widget.source[1].startswith("__global__ void shift")
    first = list(widget.moments)
    assert [moment["line"] for moment in first] == [4, 5, 6, 7, 8, 0]
    assert first[-1]["reason"] == "the launch has ended"
    at_store = next(moment for moment in first if moment["line"] == 5)
    assert [value(at_store, "t", lane) for lane in (0, 31)] == ["0", "31"]

    widget.index, widget.warp = 3, 1
    assert widget.index == 0 and widget.moments != first
    at_store = next(moment for moment in widget.moments if moment["line"] == 5)
    assert value(at_store, "t", 0) == "32"


def test_it_begins_at_the_line_asked_for_and_stops_at_findings() -> None:
    widget = debug_cell("--debug --check --line 6 --steps 2", PROGRAM)
    assert [moment["line"] for moment in widget.moments] == [6, 6]
    assert "the sanitizer has found (uninitialised read)" in widget.moments[-1]["reason"]
    assert repr(widget).startswith("2 steps of block 0, warp 0, to line 6: the sanitizer")


@pytest.mark.parametrize(
    ("options", "said"),
    [("--debug --line", "expected one argument"), ("--debug --wait", "unrecognized arguments: --wait")],
)
def test_an_option_that_is_none_is_refused(options: str, said: str) -> None:
    with pytest.raises(LadderError, match=said):
        debug_cell(options, PROGRAM)


def test_a_notebook_keeps_the_widget() -> None:
    cells = ["%load_ext ladder.lessons", f"%%cuda --debug\n{PROGRAM}", "%%cuda --debug\nint main() {}"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    done = nbclient.NotebookClient(notebook, timeout=120).execute()
    kind = "application/vnd.jupyter.widget-view+json"
    [shown] = [data[kind] for output in done.cells[1].outputs if kind in (data := output.get("data", {}))]
    identity = shown["model_id"]
    state = done.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"][identity]["state"]
    assert len(state["moments"]) > 4 and len(state["moments"][0]["lanes"]) == 32
    assert "export default" in state["_esm"]
    assert "error: it has launched no kernel" in done.cells[2].outputs[-1].text
