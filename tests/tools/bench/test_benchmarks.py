"""The benchmarks measure what they claim to measure."""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from rungs import named

from ladder.common import cache
from ladder.compile import EmulatorTarget, build_program
from ladder.course.exercises import exercises, get_exercise, solution_text
from ladder.operations import AnyProblem
from ladder.run.emulator import run_program
from ladder.stages import Stage, discover, root
from tools.bench import ceilings, gaps, mutants, operators, record
from tools.bench.__main__ import main as bench

WHERE = {"gpu": "a GPU", "sm_count": "4", "compiler": "nvcc", "date": "2026-01-01"}


def test_each_ceiling_does_the_work_that_its_rate_is_made_of(capfd: pytest.CaptureFixture[str]) -> None:
    program = build_program([ceilings.SOURCE], EmulatorTarget("sm_80"))
    result = run_program(program, ["2", "1"], "sm_80")
    assert result.exit_code == 0 and not result.fault
    work = {name: float(number) for name, number, *_ in map(split, capfd.readouterr().out.splitlines())}
    assert list(work) == list(ceilings.COUNTED)
    mma, ldmatrix = result.launches[:2]
    assert mma.counters["mma_instructions"] * 2 * 16 * 8 * 16 == work["mma.sync"]
    assert ldmatrix.counters["ldmatrix_instructions"] * 512 == work["ldmatrix"]
    # 128 bytes per wavefront: no conflicts.
    assert ldmatrix.counters["wavefronts_ld"] * 128 == work["ldmatrix"]
    assert mma.grid is not None
    threads_rounds_chains = mma.grid[0] * 512 * 2 * 8
    assert work["ex2.approx"] == threads_rounds_chains and work["fma"] == 2 * threads_rounds_chains
    assert work["shfl"] == work["max"] == threads_rounds_chains
    assert work["mma.sync f16"] == work["mma.sync"]
    read, written = result.launches[7:9]
    assert read.counters["global_sectors_ld"] * 32 == work["L2 read"]
    of_clocks = read.counters["global_sectors_st"]
    assert (written.counters["global_sectors_st"] - of_clocks) * 32 == work["L2 write"]
    assert result.launches[-1].launches == 200 and work["launch"] == 1


def split(line: str) -> list[str]:
    return line.split(",")


def test_the_program_says_what_it_takes(capfd: pytest.CaptureFixture[str]) -> None:
    program = build_program([ceilings.SOURCE], EmulatorTarget("sm_80"))
    assert run_program(program, ["0", "1"], "sm_80").exit_code == 2
    assert "ROUNDS LAUNCHES" in capfd.readouterr().err


def test_rates_of_ceilings() -> None:
    # 8e12 operations in 2 ms on 4 SMs of 2 GHz.
    rows = ceilings.frame("mma.sync,8e12,2,2\nfma,8e9,2,2\n", WHERE)
    assert list(rows["per_second"]) == [4e15, 4e12]
    assert list(rows["per_clock_and_sm"]) == [500_000, 500]
    assert list(rows["counted"]) == ["operations", "operations"]
    assert rows["gpu"][0] == "a GPU"


class Rulings:
    """Stands for running stages: some problems fail; after ``ends_after`` comes Ctrl-C."""

    def __init__(self) -> None:
        self.tried: list[AnyProblem] = []
        self.ends_after = math.inf

    def __call__(self, stage: Stage, problems: list[AnyProblem], backend: str) -> Iterator[object]:
        for problem in problems:
            if len(self.tried) >= self.ends_after:
                raise KeyboardInterrupt
            self.tried.append(problem)
            text = "it fell over" if problem.q_len % 5 == 3 else ""
            yield SimpleNamespace(passed=not text, text=text)


@pytest.fixture
def rulings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rulings:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("tools.bench.random.build", lambda stage, *_: tmp_path / stage.name / "stage.so")
    stand_in = Rulings()
    monkeypatch.setattr("tools.bench.random.evaluate_all", stand_in)
    return stand_in


RANDOM = ["random", named("v1"), named("v2"), "--largest", "40", "--seed", "7"]


def test_random_problems_print_seed_and_failures(
    rulings: Rulings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench([*RANDOM, "--problems", "121"]) == 1
    assert len(rulings.tried) == 121
    assert all(max(p.q_len, p.kv_len) <= 40 for p in rulings.tried)
    wrong = [problem for problem in rulings.tried if problem.q_len % 5 == 3]
    out = capsys.readouterr().out
    assert "--seed 7" in out and f"{len(wrong)} failed" in out
    for problem in wrong:
        assert f"{problem.command_options}\n  it fell over\n" in out


def test_random_problems_go_on_where_they_ended(rulings: Rulings, capsys: pytest.CaptureFixture[str]) -> None:
    """Interrupted once, then run to the end: each problem is tried once, and all failures are told."""
    rulings.ends_after = 77
    assert bench([*RANDOM, "--problems", "121"]) == 130
    assert "interrupted" in capsys.readouterr().err
    rulings.ends_after = math.inf
    assert bench([*RANDOM, "--problems", "121"]) == 1
    in_pieces = capsys.readouterr().out.rpartition("--seed")[2]
    tried = rulings.tried[:]
    assert len(tried) == 121
    rulings.tried.clear()
    shutil.rmtree(cache.root() / "random")
    assert bench([*RANDOM, "--problems", "121"]) == 1
    at_once = capsys.readouterr().out.rpartition("--seed")[2]
    assert sorted(map(repr, tried)) == sorted(map(repr, rulings.tried))
    assert sorted(in_pieces.splitlines()) == sorted(at_once.splitlines())


def test_random_problems_begin_anew_when_the_build_differs_or_the_record_is_damaged(
    rulings: Rulings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench([*RANDOM, "--problems", "2"])
    [*records] = (cache.root() / "random").iterdir()
    assert len(records) == 2 == len(rulings.tried)
    records[0].write_text('{"done": 1')
    bench([*RANDOM, "--problems", "2"])
    assert len(rulings.tried) == 3
    monkeypatch.setattr("tools.bench.random.build", lambda stage, *_: tmp_path / f"{stage.name}-2" / "x.so")
    bench([*RANDOM, "--problems", "2"])
    assert len(rulings.tried) == 5


SOURCE = """#include <cmath>
namespace {
__global__ void __launch_bounds__(64, 1) f(float *x, int n) {
  const int i = threadIdx.x + 7; // no mutant of i < 3 here
  if (i < n)
    x[i] = 2.f - x[i];
  __syncthreads();
  throw_if("1 + 1");
}
} // namespace
"""


def test_mutants_are_of_code_and_of_one_line_each() -> None:
    found = mutants.mutants("mine", SOURCE)
    assert len({mutant.name for mutant in found}) == len(found)
    assert {mutant.line for mutant in found} == {4, 5, 6, 7, 8}
    changes = {(mutant.line, mutant.kind, mutant.new.strip()) for mutant in found}
    assert (4, "arithmetic", "const int i = threadIdx.x - 7;") in changes
    assert (4, "constant", "const int i = threadIdx.x + 8;") in changes
    assert (5, "comparison", "if (i <= n)") in changes
    assert (6, "operands", "x[i] = x[i] - 2.f;") in changes
    assert (7, "dropped line", ";") in changes and (8, "dropped line", ";") in changes


ORDERED = """namespace {
__device__ void f(Ring &ring, Turn turn, int head, const float *x) {
  mma_wait(s);
  ring.release(turn);
  load(x, row, head);
  g(x);
  load(x, row, p.kv_head() * strides.head);
  mul(o, o, p.scale * share.p.v_descale[kv_head] * l);
}
"""


def test_mutants_of_order_of_places_and_of_items() -> None:
    found = {(mutant.kind, mutant.new) for mutant in mutants.mutants("mine", ORDERED)}
    lines = ORDERED.splitlines()
    assert ("swapped lines", f"{lines[3]}\n{lines[2]}") in found
    assert ("swapped lines", f"{lines[5]}\n{lines[4]}") not in found
    assert ("place", "  load(x, row + 1, head);") in found
    assert ("item", "  load(x, row, (head == 63 ? 0 : head));") in found
    assert ("wrap", "  load(x, row, (head % 8));") in found
    assert ("cap", "  load(x, row, (head < 64 ? head : 64));") in found
    of_head = "(p.kv_head() == 1 ? 0 : p.kv_head())"
    assert ("item", f"  load(x, row, {of_head} * strides.head);") in found
    assert {new for kind, new in found if kind == "scale"} == {
        "  mul(o, o, share.p.v_descale[kv_head] * l);",
        "  mul(o, o, p.scale * l);",
    }
    [swapped] = [mutant for mutant in mutants.mutants("mine", ORDERED) if mutant.new.startswith(lines[3])]
    assert swapped.changed(ORDERED) == ORDERED.replace(*(f"{lines[i]}\n{lines[5 - i]}" for i in (2, 3)))
    with pytest.raises(ValueError, match=r"kernel\.cu:3 is not"):
        swapped.changed("\n" + ORDERED)


def test_mutants_of_the_host_s_part() -> None:
    line = "  f<<<n, 64, 0, stream>>>(p.k, p.v_strides, p.d_o_strides, int64_t(p.dk), stream);"
    found = {(mutant.kind, mutant.new) for mutant in mutants.mutants("mine", f"namespace {{\n{line}\n}}\n")}
    for kind, old, new in (
        ("stream", ", stream>>>", ", 0>>>"),
        ("stream", ", stream)", ", 0)"),
        ("field", "p.k,", "p.v,"),
        ("field", "p.v_strides", "p.k_strides"),
        ("field", "p.d_o_strides", "p.k_strides"),
        ("field", "p.dk", "p.dv"),
        ("narrow", "int64_t", "int"),
    ):
        assert (kind, line.replace(old, new)) in found


def test_mutants_of_a_header_are_of_order_alone() -> None:
    header = ORDERED + '  asm("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(p));\n'
    found = operators.library_mutants("mine", "tiles/x.h", header)
    assert {(mutant.line, mutant.kind) for mutant in found} == {
        (3, "dropped line"),
        (4, "dropped line"),
        (10, "dropped line"),
        (10, "memory order"),
    }
    assert any("ld.relaxed.gpu" in mutant.new for mutant in found)


def test_mutants_of_the_rungs_suffice_and_the_equivalent_ones_are_there() -> None:
    found = {stage.name: mutants.rung_mutants(stage) for stage in discover() if stage.is_own}
    for name, of_rung in found.items():
        sample = mutants.sampled(of_rung, 30)
        assert len(sample) == 30 and {mutant.stage for mutant in sample} == {name}
        assert len({mutant.kind for mutant in sample}) >= min(8, len({mutant.kind for mutant in of_rung}))
    names = {mutant.name for of_rung in found.values() for mutant in of_rung}
    names |= {mutant.name for exercise in exercises() for mutant in gaps.gap_mutants(exercise)}
    assert [name for name in mutants.equivalent() if name not in names] == []


def test_code_is_the_same_but_for_lines_and_names_of_files(tmp_path: Path) -> None:
    kernel = (
        "namespace {{ __global__ void f(int *x) {{ *x = {}; }} }}\n{}void g() {{ f<<<1, {}>>>(nullptr); }}\n"
    )
    digests = []
    for number, values in enumerate([(1, "", 32), (1, "// one more line\n", 32), (2, "", 32), (1, "", 64)]):
        source = tmp_path / f"{number}" / "kernel.cu"
        source.parent.mkdir()
        source.write_text(kernel.format(*values))
        target = EmulatorTarget("sm_80")
        nvcc = [str(target.nvcc().path), *target.kernel_flags(target.flags())]
        subprocess.run([*nvcc, "-c", str(source), "-o", str(source.with_suffix(".o"))], check=True)
        digests.append(mutants.code_digest(source.with_suffix(".o")))
    assert digests[0] == digests[1] and len(set(digests)) == 3


def test_mutants_of_a_gap_are_of_its_lines() -> None:
    exercise = get_exercise(named("v6"))
    lines = exercise.sources(solved=True)["kernel.cu"].splitlines()
    found = gaps.gap_mutants(exercise)
    assert found and all(lines[mutant.line - 1] == mutant.old for mutant in found)
    gap = solution_text(exercise)
    assert all(mutant.old.strip() in gap for mutant in found)


def test_outcomes_of_mutants_are_saved_by_rung(tmp_path: Path) -> None:
    def mutant(stage: str, new: str) -> mutants.Mutant:
        return mutants.Mutant(stage, 1, "constant", "x", new)

    def saved(*outcomes: mutants.Outcome) -> dict[str, str]:
        record.save(tmp_path / "mutants.csv", outcomes, {mutant("v1", "4").name})
        rows = list(csv.DictReader((tmp_path / "mutants.csv").open()))
        assert {row["kind"] for row in rows} == {"constant"}
        return {row["mutant"]: row["outcome"] for row in rows}

    v1 = {number: mutant("v1", number) for number in "12345"}
    outcomes = [
        mutants.Outcome(v1["1"], {}),
        mutants.Outcome(v1["2"], {}, is_same=True),
        mutants.Outcome(v1["3"], {"check": False, "matrix": True}),
        mutants.Outcome(v1["4"], {"check": False, "matrix": False}),
        mutants.Outcome(v1["5"], {"check": False, "matrix": False}),
    ]
    assert saved(*outcomes) == {
        v1["1"].name: "does not build",
        v1["2"].name: "same code",
        v1["3"].name: "matrix",
        v1["4"].name: "equivalent",
        v1["5"].name: "not found",
    }
    other = mutants.Outcome(mutant("v2", "1"), {"check": True})
    assert len(saved(other)) == 6
    again = mutants.Outcome(v1["5"], {"check": False, "matrix": True})
    assert saved(again) == {v1["5"].name: "matrix", other.mutant.name: "check"}


def test_a_judge_that_takes_too_much_memory_has_found_the_mutant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(mutants, "_write", lambda *mutant, **how: "other")
    monkeypatch.setattr(mutants, "_MEMORY_BYTES", 2**30)
    monkeypatch.setitem(mutants.JUDGES, "check", bytearray_of_2_gib)
    mutant = mutants.mutants(named("v1"), discover()["v1"].kernel.read_text())[0]
    for _ in range(2):
        outcome = mutants.judge_mutant(mutant, ["check"], tmp_path / "mutant")
        assert outcome.killed == {"check": True}
        assert mutants.report([outcome], ["check"]) == []
        assert f"{mutant.name} ends check: it used more than 1 GiB of memory" in capsys.readouterr().out
        monkeypatch.setattr(mutants, "call", None)  # the second answer is a kept one


def test_a_mutant_whose_narrow_copy_alone_builds_does_not_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(mutants, "_write", lambda *mutant, narrow: "other" if narrow else "none")
    monkeypatch.setattr(mutants, "call", lambda *question, **how: False)
    mutant = mutants.mutants(named("v1"), discover()["v1"].kernel.read_text())[0]
    for judges, killed in ((["check"], {"check": False}), (["check", "pytest"], {}), (["check"], {})):
        assert mutants.judge_mutant(mutant, judges, tmp_path / "mutant").killed == killed


def test_a_judge_that_finds_the_rung_itself_wrong_is_no_judge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judge_all(mutant: mutants.Mutant, judges: list[str], folder: Path) -> mutants.Outcome:
        return mutants.Outcome(mutant, {"check": True}, {"check": "it fell over"})

    monkeypatch.setattr(mutants, "judge_mutant", judge_all)
    assert bench(["mutants", named("v1"), "--judge", "check", "--sample", "1"]) == 2
    assert f"check finds {named('v1')} wrong without any change: it fell over" in capsys.readouterr().err


def test_a_rung_that_does_not_build_has_no_mutants_to_judge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "judge_mutant", lambda mutant, judges, folder: mutants.Outcome(mutant, {}))
    assert bench(["mutants", named("v1"), "--judge", "check", "--sample", "1"]) == 2
    assert f"{named('v1')} does not build without any change" in capsys.readouterr().err


def bytearray_of_2_gib(stage: str) -> bool:
    return not bytearray(b"x" * 2**31)


@pytest.mark.full
def test_a_mutant_is_judged_once_and_its_end_is_no_pass(
    naive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a stage in v1's place, compare finds its wrong mutant, and does not report a harmless change."""
    kernel = (naive / "kernel.cu").read_text()
    stages = tmp_path / "stages"
    shutil.copytree(root() / "include", stages / "include")
    shutil.copytree(naive, stages / "naive")
    monkeypatch.setenv("LADDER_STAGES_ROOT", str(stages))
    monkeypatch.delenv("LADDER_STAGES")
    line = next(n for n, text in enumerate(kernel.splitlines(), 1) if "s *= p.scale" in text)
    old = kernel.splitlines()[line - 1]
    wrong = mutants.Mutant("naive", line, "arithmetic", old, "    s *= p.scale * 2;")
    ends = mutants.Mutant("naive", line, "arithmetic", old, '    s *= p.scale; asm("trap;");')
    same = mutants.Mutant("naive", line, "arithmetic", old, "    s = p.scale * s;")
    broken = mutants.Mutant("naive", line, "arithmetic", old, "    s *= p.scales;")
    folder = tmp_path / "mutants"
    harmless = mutants.Mutant("naive", line, "arithmetic", old, "    s *= p.scale * 1.0000001f;")
    judged = [mutants.judge_mutant(m, ["compare"], folder) for m in (wrong, ends, harmless, same, broken)]
    outcomes = [(outcome.killed, outcome.is_same) for outcome in judged]
    found, missed = {"compare": True}, {"compare": False}
    assert outcomes == [(found, False), (found, False), (missed, False), ({}, True), ({}, False)]
    monkeypatch.setattr(mutants, "call", None)
    assert mutants.judge_mutant(wrong, ["compare"], folder).killed == {"compare": True}
