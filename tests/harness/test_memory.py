"""What a problem takes of memory is what is asked for, and too much of it is refused before the work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ladder import comparison, memory
from ladder.errors import InvalidProblem
from ladder.problem import Problem


def test_what_is_needed() -> None:
    # One head of 4096 x 4096 logits in float64 outweighs all else, and is there once however many heads.
    one, many = Problem(1, 1, 4096, 4096, 32, dtype="f16"), Problem(1, 8, 4096, 4096, 32, dtype="f16")
    assert 3 * 8 * 4096**2 < memory.needed(one) < memory.needed(many) < 1.2 * memory.needed(one)
    assert memory.needed(one, logits=False) < 4096**2
    # Many short heads: the inputs in fp32 and rounded, or q, o and the reference.
    keys = Problem(64, 64, 1, 4096, 64, dtype="bf16")
    assert memory.needed(keys) == 6 * (2 * 64 * 64 * 4096 * 64 + 64 * 64 * 64)


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
    problem = Problem(1, 1, 10_000, 10_000, 32, dtype="f32")
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    with pytest.raises(
        InvalidProblem, match=r"takes 2\.\d GB .* N \* M logits of a head; 1\.0 GB are available"
    ):
        memory.require(problem)
    memory.require(problem, logits=False)
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

    monkeypatch.setattr("ladder.inputs.make_inputs", fail)
    with pytest.raises(InvalidProblem, match="does not fit into memory"):
        comparison.evaluate("v2_warp_mma", Problem(1, 1, 16, 16, 32), backend="emulator")
    with pytest.raises(InvalidProblem, match="does not fit into memory"):
        comparison.run_comparison(Problem(1, 1, 16, 16, 32), ["v2_warp_mma"], backend="emulator", fresh=True)


def test_other_errors_are_no_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="something else"), memory.guarded(Problem(1, 1, 1, 1, 32)):
        raise RuntimeError("something else")
