"""The small GPT trains with the ladder's attention as with torch's, on the emulator."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

from ladder.stages.places import examples_root


def test_losses_are_those_with_torchs_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    specification = importlib.util.spec_from_file_location("train_gpt", examples_root() / "train_gpt.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "train_gpt", module)  # its dataclass looks there
    specification.loader.exec_module(module)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    sizes = {"--steps": 3, "--layers": 1, "--context": 16, "--out": tmp_path / "losses.csv"}
    monkeypatch.setattr(sys, "argv", ["train_gpt.py", *(str(x) for pair in sizes.items() for x in pair)])
    assert module.main() == 0
    losses = pd.read_csv(tmp_path / "losses.csv", index_col="step")
    assert [*losses] == ["ladder", "sdpa"] and len(losses) == 3
    assert (losses.ladder - losses.sdpa).abs().max() < 3e-6
    assert capsys.readouterr().out.count("tokens/s") == 2
