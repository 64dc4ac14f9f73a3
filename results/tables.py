#!/usr/bin/env python3
"""Fills the tables of the lessons and the README from measurements and counts.

    python results/tables.py [--check]

A table is enclosed by ``<!-- table NAME -->`` and ``<!-- end of table -->``. With ``--check``, nothing is
written, and the exit code is 1 if a table does not match its data.
"""

from __future__ import annotations

import argparse
import io
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import measure_other_kernels as other
import pandas as pd
from rich.console import Console
from steps import changed_lines

from ladder import nsight
from ladder.evaluation import evaluate, run_comparison
from ladder.operations import DEFAULT_OPERATION, DEFAULT_PROBLEM, Problem
from ladder.render import comparison_tables, most_stalled
from ladder.stages import Stage, discover, of_today, root

ROOT = Path(__file__).resolve().parent.parent
H200 = ROOT / "results" / "h200"

#: The files that contain tables.
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "other_kernels.md",
    ROOT / "docs" / "sanitizer.md",
    *sorted((ROOT / "stages").glob("*/README.md")),
)


def measured_rows(name: str) -> pd.DataFrame:
    """A file of ``results/h200/``, under the names that the rungs have today."""
    rows = pd.read_csv(H200 / name)
    return of_today(rows, "contender" if "contender" in rows else "stage")


_TABLE = re.compile(r"(<!-- table (?P<name>\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def _markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def swizzle_parameters() -> str:
    """Conflicts of reads with each swizzle in every tile of v3_swizzle, counted by the emulator."""
    stage = discover()["v3_swizzle"]
    source = stage.kernel.read_text()
    rows = []
    for name, parameters in (("none", "0, 3, 3"), ("<3, 3, 3>", "3, 3, 3"), ("<3, 3, 4>", "3, 3, 4")):
        changed = source.replace("swizzle<B, M, S>(", f"swizzle<{parameters}>(")
        if changed == source:
            raise SystemExit(f"{stage.kernel} no longer calls swizzle<B, M, S>")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kernel.cu").write_text(changed)
            counted = []
            for head_dim in (64, 128):
                problem = Problem(1, 2, 256, 256, head_dim)
                result = evaluate(replace(stage, path=Path(folder)), problem, backend="emulator")
                counted.append(f"{result.row['conflicts_ld']:,}")
        rows.append([f"`{name}`" if name != "none" else name, *counted])
    return _markdown(["swizzle", "d = 64", "d = 128"], rows)


def arbitration() -> str:
    """Conflicts and lost arbitration at two grids: minimum and maximum over the launches."""
    frame = measured_rows("arbitration.csv")
    frame["conflicts"] = nsight.counters(frame)["conflicts"]
    rows = []
    for (stage, d, n), launches in frame.groupby(["stage", "d", "N"], sort=False):
        name = f"{stage}" if stage != "v3_swizzle_for_128" else "v3_swizzle with `<3, 3, 4>`"
        grid = "one block an SM" if n == frame.N.min() else "full"
        spans = [_span(launches[column]) for column in ("conflicts", nsight.ARBITRATION[0])]
        rows.append([name, d, grid, *spans])
    return _markdown(["kernel", "d", "grid", "conflicts", "lost arbitration"], rows)


def _span(values: pd.Series) -> str:
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def speed() -> str:
    """TFLOP/s of the rungs and of torch's backends, and the multiple of torch's flash backend."""
    frame = measured_rows("speed.csv")
    shown = (frame.N == 4096) | ((frame.dtype == "f32") & (frame.d == 64) & ~frame.causal.astype(bool))
    return _speeds_by_rung(frame[shown], DEFAULT_OPERATION, ("of_flash",))


def _speeds_by_rung(frame: pd.DataFrame, operation: str, ratios: Sequence[str]) -> str:
    """One row per rung and backend of torch, one column per problem: TFLOP/s, and multiples of torch's."""
    measured = frame[frame.N.notna() & (frame.contender != "torch efficient")].copy()
    measured["problem"] = [
        f"{row.dtype} N{row.N:.0f} d{row.d:.0f}{' causal' if row.causal in (True, 'True') else ''}"
        for row in measured.itertuples()
    ]
    rungs = [stage.name for stage in discover().computing(operation)]
    present = set(measured.contender)
    names = [*(name for name in rungs if name in present), *sorted(present - set(rungs))]
    rows = []
    for name in names:
        cells = {}
        for _, row in measured[measured.contender == name].iterrows():
            known = [f"{row[ratio]:.2f}" for ratio in ratios if pd.notna(row[ratio]) and row[ratio] != 1]
            cells[row.problem] = f"{row.tflops:.3g}" + (f" ({', '.join(known)})" if known else "")
        shown = name if name.startswith("torch") else f"`{name}`"
        rows.append([shown, *(cells.get(problem, "") for problem in measured.problem.unique())])
    return _markdown(["", *measured.problem.unique()], rows)


#: Heading and column of nsight.BOUNDS, for the units that may bound a rung.
_UNITS = (
    ("SMs with work", "sms"),
    ("shared memory and L1", "shared"),
    ("tensor cores", "tensor"),
    ("issue slots", "issue"),
    ("exp unit", "xu"),
    ("L2", "l2"),
    ("DRAM", "dram"),
    ("warps resident", "warps"),
)


def bounds(stage: str) -> str:
    """Utilisation of each unit in a rung and the one before, in percent, and the warps' stall reasons.

    Empty if the rung has not been measured; of the rung alone if the one before has not.
    """
    frame = measured_rows("bounds.csv") if (H200 / "bounds.csv").exists() else pd.DataFrame({"stage": []})
    measured = set(frame.stage)
    if stage not in measured:
        return ""
    names = [name for name in (discover()[stage].before, stage) if name in measured]
    launches = frame[frame.stage.isin(names)]
    shared = launches.groupby(["N", "d"]).filter(lambda group: group.stage.nunique() == len(names))
    # Of the problems that both were measured on, take the one with the most work, each rung in its own dtype.
    n, d = shared.assign(work=shared.N * shared.M * shared.d).sort_values("work").iloc[-1][["N", "d"]]
    chosen = shared[(n == shared.N) & (shared.d == d)].set_index("stage").loc[names]
    counted, shares = nsight.counters(chosen), nsight.bounds(chosen)
    units = [(heading, column) for heading, column in _UNITS if shares[column].notna().all()]
    rows = [[heading, *(f"{value:.0f}%" for value in shares[column])] for heading, column in units]
    if not discover()[stage].only_arch:  # whose factors wgmma reads
        extra = counted.conflicts / (counted.wavefronts_ld + counted.wavefronts_st)
        rows.append(["wavefronts that conflicts add", *(f"{value:.0%}" for value in extra)])
    rows.append(["warps wait for", *(", ".join(most_stalled(row)[:2]) for row in shares.to_dict("records"))])
    head = [f"B4 H16 N{int(n)} d{int(d)}", *(f"`{name}`" for name in names)]
    title = "On an H200, by Nsight Compute's counters ([what the words mean](../../docs/glossary.md)):\n\n"
    return title + _markdown(head, rows)


#: The steps of FlashAttention-2's Algorithm 1 (Dao 2023), by the beginning of a tile kernel's line.
_STEPS = (
    (r"load\(q,", " 3  load Q_i"),
    (r"zero\(o\)", " 5  O_i = 0"),
    (r"zero\(l\)", " 5  l_i = 0"),
    (r"neg_infty\(m\)", " 5  m_i = -inf"),
    (r"for \(int (key = 0; |part = )", " 6  for all j"),
    (r"block::load\(k_smem|fetch<A>\(kv_smem\[last", " 7  load K_j, V_j"),
    (r"mma_ABt\(s", " 8  S = Q_i K_j^T"),
    (r"row_max(_in_lane)?\(m_new", " 9  m_new = max(m, rowmax(S))"),
    (r"exp2\(s, s\)", " 9  P = exp(S - m)"),
    (r"row_sum(_in_lane)?\(l", " 9  l = exp(m_old - m) l + rowsum(P)"),
    (r"mul_row\(o, o, rescale\)", "10  O_i = diag(exp(m_old - m)) O_i"),
    (r"mma_AB\(o", "10  O_i = O_i + P V_j"),
    (r"div_row\(o, o, l\)", "12  O_i = diag(l)^-1 O_i"),
    (r"(block::)?store\(gmem\.o", "14  write O_i"),
    (r"add\(l, l, m\)", "13  L_i = m + log(l)"),
    (r"(block::)?store\(gmem\.lse", "15  write L_i"),
)


def _beside_the_algorithm(stage: str) -> str:
    """A rung's ``__global__`` function beside the algorithm's step that each line implements."""
    text = (ROOT / "stages" / stage / "kernel.cu").read_text()
    [kernel] = re.findall(r"^__global__.*?^}$", text, re.DOTALL | re.MULTILINE)
    lines, left = [], list(_STEPS)
    for line in kernel.splitlines():
        step = next((s for s in left if re.match(s[0], line.strip())), None)
        if step:
            left.remove(step)
        lines.append(f"{line:<92}// {step[1]}" if step else line)
    if left:
        raise SystemExit(f"{stage}: no line does {', '.join(text.strip() for _, text in left)}")
    return "```cpp\n" + "\n".join(lines) + "\n```\n"


def rungs(*operations: str) -> str:
    """Each rung of these operations, with its idea, its lines, its page and its lesson."""
    own = [stage for stage in discover() if stage.computes in operations and stage.path.parent == root()]
    rows = [[_rung_link(stage), stage.idea, _lines(stage), _lesson_links(stage)] for stage in own]
    table = _markdown(["rung", "the one idea", "lines", "lesson"], rows)
    return table.replace("| --- | ---: | ---: | ---: |", "| --- | --- | ---: | --- |")


def rungs_with_speeds() -> str:
    """:func:`rungs` of attention, with the speed of each on the H200, in the run that measured it."""
    rows = []
    for stage in discover().computing("attention"):
        if stage.path.parent == root():
            speeds = [rung_speed(stage.name, head_dim) for head_dim in (64, 128)]
            rows.append([_rung_link(stage), stage.idea, _lines(stage), *speeds, _lesson_links(stage)])
    table = _markdown(["rung", "the one idea", "lines", "d = 64", "d = 128", "lesson"], rows)
    return table.replace(
        "| --- | ---: | ---: | ---: | ---: | ---: |", "| --- | --- | ---: | ---: | ---: | --- |"
    )


def _rung_link(stage: Stage) -> str:
    page = "README.md" if (stage.path / "README.md").is_file() else "kernel.cu"
    return f"[`{stage.name}`](stages/{stage.name}/{page})"


def _lines(stage: Stage) -> str:
    """The lines of code that the rung adds to the one before it, and removes."""
    if stage.before is None:
        return ""
    added, removed = changed_lines(discover()[stage.before], stage)
    return f"+{added} -{removed}"


def _lesson_links(stage: Stage) -> str:
    """The links of a stage's lessons in notebooks/README.md."""
    listed = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8").splitlines()
    lessons = [re.search(r"\[(\w+)\]\((\S+)\)", line) for line in listed if f"`{stage.name}`" in line]
    return ", ".join(f"[{found[1]}](notebooks/{found[2]})" for found in lessons if found)


def rung_speed(stage: str, head_dim: int) -> str:
    """TFLOP/s at B4 H16 N4096 in bf16, and relative to cuDNN's attention in the same run."""
    measured = measured_rows("speed.csv")
    at = (measured.N == 4096) & (measured.d == head_dim) & (measured.causal.astype(str) == "False")
    same = measured[at & (measured.contender == stage) & (measured.dtype == "bf16")]
    return "" if same.empty else f"{same.tflops.median():.3g} ({same.of_cudnn.median():.2f})"


def climb() -> str:
    """TFLOP/s of the sm_90a rungs, and relative to cuDNN: median, least and most of several runs."""
    runs = measured_rows("climb.csv").dropna(subset="N")
    rungs = runs.contender.str.startswith("v")
    frame = pd.concat([runs[rungs], runs[runs.contender == "torch cuDNN"]])
    rows = []
    for name, of_contender in frame.groupby("contender", sort=False):
        cells = []
        for _, same in of_contender.groupby(["d", "causal"]):
            ratio = same.of_cudnn
            cells.append(
                f"{same.tflops.median():.0f} ({ratio.median():.2f}, {ratio.min():.2f}-{ratio.max():.2f})"
            )
        rows.append([f"`{name}`" if name.startswith("v") else name, *cells])
    return _markdown(["", "d64", "d64 causal", "d128", "d128 causal"], rows)


def climb_lengths() -> str:
    """TFLOP/s of the sm_90a rungs at other lengths and head dims, and relative to cuDNN."""
    frame = measured_rows("climb_lengths.csv").dropna(subset="N")
    frame = frame[frame.contender.str.startswith("v") | (frame.contender == "torch cuDNN")]
    rows = []
    for (b, n, d, causal), same in frame.groupby(["B", "N", "d", "causal"], sort=False):
        cells = same.set_index("contender")
        shown = {str(name): f"{cell.tflops:.0f} ({cell.of_cudnn:.2f})" for name, cell in cells.iterrows()}
        problem = f"B{b:.0f} N{n:.0f} d{d:.0f}" + (" causal" if causal else "")
        rows.append([problem, *(shown.get(name, "") for name in frame.contender.unique())])
    heads = (f"`{name}`" if name.startswith("v") else name for name in frame.contender.unique())
    return _markdown(["", *heads], rows)


def climb_ideas() -> str:
    """The speed of v11_persistent, and its losses without each of its ideas: medians of the runs."""
    frame = pd.read_csv(H200 / "climb_ideas.csv").dropna(subset="N")
    own = frame[frame.contender.str.startswith("v")]
    speeds = own.pivot_table(
        index="contender", columns=["d", "causal"], values="tflops", aggfunc="median", sort=False
    )
    whole = speeds.loc["v11_persistent"]
    rows = [["`v11_persistent`", *(f"{value:.0f}" for value in whole)]]
    for name in speeds.index.drop("v11_persistent"):
        idea = name.partition(":")[0].removeprefix("v11_without_").replace("_", " ")
        shown = f"`{name}`" if name == "v10_pingpong" else f"without {idea}"
        losses = (f"{v:.0f} ({v / w - 1:+.0%})" for v, w in zip(speeds.loc[name], whole, strict=True))
        rows.append([shown, *losses])
    return _markdown(["", "d64", "d64 causal", "d128", "d128 causal"], rows)


def gradient_speeds() -> str:
    """TFLOP/s of the gradients' rungs and of torch, and relative to torch's flash and cuDNN backends."""
    frame = measured_rows("backward.csv")
    return _speeds_by_rung(frame[frame.N == 4096], "attention_backward", ("of_flash", "of_cudnn"))


def hstu_speeds() -> str:
    """TFLOP/s of the HSTU rungs, over the elements that the mask shows."""
    frame = measured_rows("hstu.csv").dropna(subset="N")
    frame["problem"] = [
        f"`{row.N.count('/') + 1} x {row.N.partition('/')[0]} d{row.d:.0f} "
        + re.sub(r"\b(\d+)(/\1)+\b", r"\1", row.mask)  # the same in each sequence
        + (f" bias of {row.bias:.0f}" if row.bias else "")
        + (f" {row.M.partition('/')[0]} keys`" if row.M != row.N else "`")
        for row in frame.itertuples()
    ]
    return _speeds_by_problem(frame, lambda row: f"{row.tflops:.0f}")


def _speeds_by_problem(frame: pd.DataFrame, cell: Callable[[pd.Series], str]) -> str:
    """One row a problem, one column a contender: the medians of its runs."""
    names = list(frame.contender.unique())
    rows = []
    for problem, same in frame.groupby("problem", sort=False):
        measured = {name: cell(runs.median(numeric_only=True)) for name, runs in same.groupby("contender")}
        rows.append([problem, *(measured.get(name, "") for name in names)])
    return _markdown(["", *(name if name.startswith("torch") else f"`{name}`" for name in names)], rows)


def climb_arrangements() -> str:
    """The arrangements' speeds relative to cuDNN."""
    frame = pd.read_csv(H200 / "climb_arrangements.csv").dropna(subset="B")
    frame = frame[frame.contender.str.startswith("v")]
    table = frame.pivot_table(index="contender", columns=["d", "causal"], values="of_cudnn", sort=False)
    rows = [[f"`{name}`", *(f"{value:.2f}" for value in values)] for name, *values in table.itertuples()]
    return _markdown(["", "d64", "d64 causal", "d128", "d128 causal"], rows)


def output() -> str:
    """The output of ``ladder compare`` on a machine without a GPU, for the rungs that any GPU runs."""
    own = [s.name for s in discover().computing("attention") if s.path.parent == root() and not s.only_arch]
    console = Console(width=80, color_system=None, file=io.StringIO(), force_jupyter=False)
    comparison = run_comparison(DEFAULT_PROBLEM, own, backend="emulator")
    for table in comparison_tables(comparison, discover(), console.width):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().rstrip().splitlines()]
    # The allowed error depends on the rounding of torch's own attention, which differs between CPUs.
    shown = [line for line in lines if not line.startswith("   allowed")]
    return "\n".join(["```", *shown, "```", ""])


def sanitizer() -> str:
    """How many of the corpus's planted faults, by kind, and of its clean kernels are reported."""
    frame = pd.read_csv(ROOT / "results" / "sanitizer.csv")
    frame = frame[frame["compute-sanitizer"].notna()]
    told = frame[["ours", "compute-sanitizer"]] == "reported"
    kinds = told.groupby(frame.expected).sum()
    kinds.insert(0, "cases", frame.groupby("expected").size())
    planted = kinds.drop(index="clean").sort_values("cases", ascending=False, kind="stable")
    rows = [(kind, *counts) for kind, counts in zip(planted.index, planted.to_numpy(), strict=True)]
    rows.append(("all planted faults", *planted.sum()))
    rows.append(("clean kernels", *kinds.loc["clean"]))
    where = [" and ".join(sorted(frame[name].unique())) for name in ("gpu", "driver", "compiler", "date")]
    title = "compute-sanitizer on an {}, driver {}, {}, {}:\n\n".format(*where)
    return title + _markdown(["planted", "cases", "reported here", "by compute-sanitizer"], rows)


#: Headings of the counts that kernels of public repositories have.
_COUNTS = {
    "shared_load_instructions": "shared loads",
    "shared_store_instructions": "shared stores",
    "ldmatrix_instructions": "ldmatrix",
    "wavefronts_ld": "wavefronts ld",
    "wavefronts_st": "wavefronts st",
    "conflicts_ld": "conflicts ld",
    "conflicts_st": "conflicts st",
    "conflicts_atom": "conflicts of atomics",
    "mma_instructions": "mma",
    "global_sectors_ld": "sectors read",
    "global_sectors_st": "sectors written",
    "tma_load_instructions": "bulk loads",
    "tma_sectors_ld": "sectors of bulk loads",
}


def other_kernels() -> str:
    """The counts of kernels of public repositories; where GPU and emulator differ, both and the cause."""
    launches, counted = other.read()
    cells = other.differences(launches, counted)
    differing = {(cell.key, cell.column): cell for cell in cells}
    columns = [name for name in other.COLUMNS if counted[name].any()]
    rows = []
    for kernel in counted.to_dict("records"):
        key, shown, causes = tuple(kernel[name] for name in other.KEY), [], []
        for column in columns:
            cell = differing.get((key, column))
            shown.append(f"{kernel[column]:,}" if cell is None else f"{cell.measured} / {cell.emulated}")
            if cell and cell.cause not in causes:
                causes.append(cell.cause)
        sizes = " x ".join(str(math.prod(map(int, kernel[of].split("x")))) for of in ("grid", "block"))
        name = f"{kernel['repository'].partition('/')[2]} `{kernel['kernel']}`"
        rows.append([name, sizes, *shown, ", ".join(causes)])
    where = launches[["gpu", "driver", "compiler", "ncu", "date"]].drop_duplicates()
    [(gpu, driver, compiler, ncu, date)] = where.itertuples(index=False)
    title = f"{gpu} (driver {driver}), {compiler}, Nsight Compute {ncu}, {date}: "
    title += f"{other.summary(cells, len(counted))}.\n\n"
    head = ["kernel", "blocks x threads", *(_COUNTS[name] for name in columns), "cause"]
    return title + _markdown(head, rows).replace("---: |\n", "--- |\n", 1)


TABLES: dict[str, Callable[[], str]] = {
    "other-kernels": other_kernels,
    "sanitizer": sanitizer,
    "v4-kernel": lambda: _beside_the_algorithm("v4_tk_tiles"),
    "climb": climb,
    "climb-arrangements": climb_arrangements,
    "climb-lengths": climb_lengths,
    "climb-ideas": climb_ideas,
    "gradient-speeds": gradient_speeds,
    "hstu-speeds": hstu_speeds,
    "swizzle-parameters": swizzle_parameters,
    "arbitration": arbitration,
    "speed": speed,
    "rungs": rungs_with_speeds,
    "rungs-backward": lambda: rungs("attention_backward"),
    "rungs-hstu": lambda: rungs("hstu", "hstu_backward"),
    "output": output,
    **{f"bounds-{stage.name}": partial(bounds, stage.name) for stage in discover().computing("attention")},
}


def fill(text: str) -> str:
    """Regenerates the tables of a page."""
    return _TABLE.sub(lambda match: match[1] + TABLES[match["name"]]() + match[3], text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is out of date")
    options = parser.parse_args()
    stale = []
    for page in PAGES:
        before = page.read_text()
        after = fill(before)
        if after == before:
            continue
        stale.append(page)
        if not options.check:
            page.write_text(after)
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'out of date' if options.check else 'written'}")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
