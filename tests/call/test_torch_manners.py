"""The ladder with tools of torch: deterministic algorithms, saved graphs, the profiler, type checkers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rungs import named
from torch import Tensor, nn

import ladder
from ladder.call import runs
from ladder.errors import UnsupportedProblem
from ladder.operations import BackwardProblem
from ladder.stages import discover

BACKWARD = BackwardProblem(1, 2, 16, 16, 32, dtype="f16")


def tensors(**shape: int) -> list[Tensor]:
    sizes = {"B": 1, "H": 2, "N": 16, "d": 32, **shape}
    return [torch.ones(*sizes.values(), dtype=torch.float16, requires_grad=True) for _ in range(3)]


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def chosen(monkeypatch: pytest.MonkeyPatch, **arguments: object) -> str:
    """The rung that computes the gradients."""
    names = []

    def highest(*problem: object, deterministic: bool = False) -> object:
        stage = actual(*problem, deterministic=deterministic)  # type: ignore[arg-type]
        names.append(stage.name)
        return stage

    actual = runs.highest
    monkeypatch.setattr(runs, "highest", highest)
    monkeypatch.setattr(runs, "_known", {})
    ladder.attention(*tensors(), **arguments)[0].sum().backward()  # type: ignore[arg-type]
    return names[-1]


@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert discover()[chosen(monkeypatch)].deterministic
    assert not runs.highest(BACKWARD).deterministic, "the test needs a rung that is not"


@pytest.mark.usefixtures("deterministic")
def test_a_rung_that_is_not_deterministic_is_refused() -> None:
    named = runs.highest(BACKWARD).name
    with pytest.raises(UnsupportedProblem, match=f"{named} is not deterministic"):
        ladder.attention(*tensors(), backward=named)


def test_warn_only_warns() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with pytest.warns(UserWarning, match="pass deterministic=True"):
            ladder.attention(*tensors())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ladder.attention(*(x.detach() for x in tensors()))
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_saved_graph_is_loaded_by_another_process(tmp_path: Path) -> None:
    class Model(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return ladder.attention(q, q, q)[0]

    saved = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Model(), (tensors()[0].detach(),)), saved)
    program = f"import torch, ladder; torch.export.load({str(saved)!r}); print('loaded')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "loaded\n", done.stderr


def test_all_operators_are_registered_at_import_and_torch_is_not_imported() -> None:
    operators = [name for name in dir(torch.ops.ladder) if "attention" in name or "norm_gate" in name]
    assert {"attention", "hstu_attention", "norm_gate", "varlen_attention_backward"} <= {*operators}
    names = "; ".join(f"torch.ops.ladder.{name}" for name in operators)
    for program in (
        f"import torch, ladder; {names}",
        "import ladder, sys; assert {*ladder.__all__} <= {*dir(ladder)} and 'torch' not in sys.modules",
    ):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert not done.returncode, done.stderr


def test_the_profiler_shows_rungs() -> None:
    with torch.profiler.profile() as profile:
        ladder.attention(*tensors(), stage="v2", backward="b1")[0].sum().backward()
    assert {f"ladder::{named('v2')}", f"ladder::{named('b1')}"} <= {
        event.key for event in profile.key_averages()
    }


def test_a_new_shape_with_gradients_reads_no_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    ladder.attention(*tensors(N=27))[0].sum().backward()  # a length of no other test
    monkeypatch.setattr(runs, "discover", lambda: pytest.fail("all rungs are read again"))
    ladder.attention(*tensors(N=19))[0].sum().backward()


def test_completion() -> None:
    assert {*ladder.__all__} <= {*dir(ladder)}
    for name in ladder.__all__:
        getattr(ladder, name)


@pytest.mark.nightly
def test_types(tmp_path: Path) -> None:
    """mypy reads all of torch."""
    package = Path(ladder.__file__).parent
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "ladder").symlink_to(package)
    assert (package / "py.typed").exists()
    script = tmp_path / "script.py"
    uses = "\n".join(f"ladder.{name}" for name in ladder.__all__)
    script.write_text(
        f"import torch\nimport ladder\n{uses}\nq = torch.ones(1, 2, 64, 64)\n"
        "o, lse = ladder.attention(q, q, q)\nreveal_type(o)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={"MYPYPATH": "packages"})
    assert "Success" in done.stdout and "torch._tensor.Tensor" in done.stdout, done.stdout + done.stderr
