"""Reads reports: ``.ncu-rep`` files, through ncu or NVIDIA's Python module, and CSV pages."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.common import files
from ladder.counts.nsight.cells import read_text
from ladder.counts.nsight.ncu import check_messages, find_ncu, import_command, run
from ladder.counts.nsight.raw import base_unit, read_raw
from ladder.counts.nsight.source import SOURCE_COLUMNS, opcode, read_source
from ladder.errors import LadderError

#: How a .ncu-rep begins.
_MAGIC = b"NVR\0"


@dataclass(frozen=True)
class Report:
    """A report's raw page, source page or both, as returned by ``read_raw`` and ``read_source``.

    ``has_leaves`` tells whether an inlined instruction is attributed to every line of its inlining chain,
    innermost included; otherwise it has only the outermost known line.
    """

    raw: pd.DataFrame | None
    source: pd.DataFrame | None
    has_leaves: bool = True


def load(path: Path) -> Report:
    """Reads a report (``.ncu-rep``) or a CSV page of one.

    Raises :class:`LadderError`, which names the file.
    """
    files.require_file(path)
    try:
        return _load_report(path) if path.suffix == ".ncu-rep" else _load_page(path)
    except csv.Error as error:
        raise LadderError(f"{path} is no page of Nsight Compute: {error}") from error
    except LadderError as error:
        if path.name in error.message:
            raise
        raise type(error)(f"{path}: {error.message}", error.hint) from error


def _load_page(path: Path) -> Report:
    text = read_text(path)
    check_messages(text)
    if re.search(r'^"?(Kernel Name|File Path|File Name)"?,', text, flags=re.MULTILINE):
        return Report(None, read_source(text))
    return Report(read_raw(text), None)


def _load_report(path: Path) -> Report:
    """Loads a report through ncu, which knows the most, or else through NVIDIA's Python module."""
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
    if begin != _MAGIC:
        raise LadderError(f"{path} is no report of Nsight Compute" if begin else f"{path} is empty")
    try:
        return _through_ncu(path, find_ncu())
    except LadderError as error:
        reason = error
    try:
        import ncu_report
    except ImportError:
        raise LadderError(
            f"{path.name} needs Nsight Compute to be read: {reason.message}",
            "pip install ncu-report reads reports without it; or export the pages where they were made: "
            f"ncu --import {path.name} --csv --page raw",
        ) from reason
    try:
        return _through_module(ncu_report.load_report(str(path)))
    except (RuntimeError, OSError, ValueError) as error:
        raise LadderError(f"{path} cannot be read: {error}", "Is it a report of a newer version?") from error


def _through_ncu(path: Path, ncu: Path) -> Report:
    raw = read_raw(run(import_command(path, "raw", ncu=ncu)))
    words = import_command(path, "source", "--print-source", "cuda,sass", ncu=ncu)
    try:
        return Report(raw, read_source(run(words), len(raw)))
    except LadderError:  # collected without per-instruction counts, or by an older ncu
        return Report(raw, None)


def _through_module(context: Any) -> Report:
    """Reads a report loaded by ncu_report, which knows only the outermost line of an inlined instruction."""
    actions = [
        action
        for index in range(context.num_ranges())
        for action in (
            context.range_by_idx(index)[i] for i in range(context.range_by_idx(index).num_actions())
        )
    ]
    raw = [_module_launch(number, action) for number, action in enumerate(actions)]
    source = [
        frame
        for number, action in enumerate(actions)
        if (frame := _module_source(number, action)) is not None
    ]
    frame = pd.DataFrame([values for values, _ in raw])
    frame.attrs["units"] = {name: unit for _, units in raw for name, unit in units.items()}
    return Report(frame, pd.concat(source, ignore_index=True) if source else None, has_leaves=False)


def _module_launch(number: int, action: Any) -> tuple[dict[str, Any], dict[str, str]]:
    metrics = {name: action.metric_by_name(name) for name in action.metric_names()}

    def value(name: str) -> Any:
        return metrics[name].value() if name in metrics else ""

    def sizes(what: str) -> str:
        return "({}, {}, {})".format(*(value(f"launch__{what}_dim_{axis}") for axis in "xyz"))

    state = action.nvtx_state()
    domains = [state.domain_by_id(i) for i in state.domains()] if state is not None else []
    launch: dict[str, Any] = {
        "ID": number,
        "Push/Pop_Range": " ".join(f"{d.name()}:{name}" for d in domains for name in d.push_pop_ranges()),
        "Kernel Name": action.name(action.NameBase_DEMANGLED),
        "Block Size": sizes("block"),
        "Grid Size": sizes("grid"),
        "CC": f"{value('device__attribute_compute_capability_major')}."
        f"{value('device__attribute_compute_capability_minor')}",
    }
    units = {}
    for name, metric in metrics.items():
        found = metric.value()
        if isinstance(found, int | float):
            factor, units[name] = base_unit(metric.unit())
            found = found * factor
        launch[name] = found
    return launch, units


def _module_source(number: int, action: Any) -> pd.DataFrame | None:
    executed = action.metric_by_name("inst_executed")
    if executed is None or not executed.has_correlation_ids():
        return None
    addresses = executed.correlation_ids()
    rows = []
    for i in range(executed.num_instances()):
        address = addresses.value(i)
        place = action.source_info(address)
        sass = action.sass_by_pc(address).strip()
        rows.append(
            {
                "launch": number,
                "kernel": action.name(action.NameBase_DEMANGLED),
                "instruction": i,
                "sass": sass,
                "opcode": opcode(sass),
                "file": place.file_name() if place else pd.NA,
                "line": place.line() if place else pd.NA,
                "Address": address,
            }
        )
    frame = pd.DataFrame(rows).astype({"file": "string", "line": "Int64"})
    for name, (_, metric_name) in SOURCE_COLUMNS.items():
        metric = action.metric_by_name(metric_name)
        counts: dict[int, int] = {}
        if metric is not None and metric.has_correlation_ids():
            ids = metric.correlation_ids()
            counts = {ids.value(i): int(metric.value(i)) for i in range(metric.num_instances())}
        # A metric has instances only where it is not 0.
        missing = pd.NA if metric is None else 0
        frame[name] = pd.array([counts.get(a, missing) for a in frame["Address"]], dtype="Int64")
    return frame.sort_values("Address", ignore_index=True).assign(instruction=range(len(frame)))
