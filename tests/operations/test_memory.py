"""Memory estimates match actual use, and too large problems are refused before the work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ladder.errors import InvalidProblem
from ladder.operations import Problem, memory
from ladder.run.evaluation import comparison


def test_what_is_needed() -> None:
    # The reference holds part of one head's logits, however many heads there are.
    one, many = Problem(1, 1, 4096, 4096, 32, dtype="f16"), Problem(1, 8, 8192, 8192, 32, dtype="f16")
    assert 5 * 8 * 2**22 < memory.needed(one) < memory.needed(many) < 2 * memory.needed(one)
    # Many short heads: the inputs in fp32 and rounded, or three times with the outputs and the reference.
    keys = Problem(64, 64, 1, 4096, 64, dtype="bf16")
    inputs = 2 * 64 * 64 * 4096 * 64 + 64 * 64 * 64
    assert 6 * inputs <= memory.needed(keys) < 6.1 * inputs


def test_what_the_reference_takes_is_no_more(tmp_path: Path) -> None:
    """Measures the peak of a new process, since ``ru_maxrss`` of a fork starts with the parent's.

    The process returns freed memory at once: otherwise glibc keeps, by chance, up to twice what is in use.
    """
    program = """
import re, torch
from ladder.operations import Problem, make_inputs, memory, reference
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
problem = Problem(1, 1, 3000, 3000, 64, dtype="f16", is_causal=True)
reference(*make_inputs(Problem(1, 1, 8, 8, 64, dtype="f16")), is_causal=True, scale=1.0)
before = peak()
reference(*make_inputs(problem), is_causal=True, scale=1.0)
print((peak() - before) / memory.needed(problem))
"""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment
    )
    assert 0.4 < float(result.stdout) < 1.0


def test_what_is_available_is_less_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = memory.available()
    assert there is not None and there > 2**20
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    for name, text in (("max", "9000"), ("current", "5000"), ("stat", "anon 1\ninactive_file 1000\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.available() == 5000
    (tmp_path / "memory.max").write_text("max")
    assert (memory.available() or 0) > 2**20


def test_too_much_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(1, 64, 10_000, 10_000, 64, dtype="f32")
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    # 0.16 GB each for q, k, v and o: all of them three times, and eight times o's size in float64.
    with pytest.raises(InvalidProblem, match=r"takes 4\.6 GB of memory .*; 1\.0 GB are available"):
        memory.require(problem)
    monkeypatch.setattr(memory, "available", lambda: None)
    memory.require(problem)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes. Error 12"
        ),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB."),
        MemoryError(),
    ],
    ids=type,
)
def test_memory_that_runs_out_all_the_same(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("ladder.operations.attention.inputs.make_inputs", fail)
    with pytest.raises(InvalidProblem, match="does not fit into memory"):
        comparison.evaluate("v2", Problem(1, 1, 16, 16, 32), backend="emulator")


def test_other_errors_are_no_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="something else"), memory.guarded(Problem(1, 1, 1, 1, 32)):
        raise RuntimeError("something else")
