"""``ladder lab``: the lessons in a folder of one's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from ladder.cli import lab, main
from ladder.stages import lessons_root


def test_lessons_are_copied_and_changes_are_kept(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "mine"
    assert main(["lab", str(folder), "--copy"]) == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in lessons_root().glob("*.ipynb"))
    assert f"{len(names)} lessons copied" in capsys.readouterr().out
    changed, lost = folder / names[0], folder / names[1]
    changed.write_text("my notes")
    lost.unlink()
    assert lab.copy_lessons(folder) == [lost]
    assert changed.read_text() == "my notes"


def test_links_lead_to_the_project(tmp_path: Path) -> None:
    lab.copy_lessons(tmp_path)
    for path in tmp_path.iterdir():
        text = "".join(line for cell in json.loads(path.read_text())["cells"] for line in cell["source"])
        assert "](../" not in text
        assert ("/blob/main/stages/" in text) == ("](../stages" in (lessons_root() / path.name).read_text())


def test_jupyterlab_is_named_if_it_is_missing(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: None)
    assert main(["lab", str(tmp_path)]) == 2
    assert "pip install 'flash-ladder[notebooks]'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["DIR"]])
def test_what_is_opened(words: list[str], tmp_path: Path, monkeypatch) -> None:
    started = []

    def execv(program: str, command: list[str]) -> NoReturn:
        started.append((program, command))
        raise SystemExit

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(lab.os, "execv", execv)
    with pytest.raises(SystemExit):
        main(["lab", *words])
    [(program, [python, *command])] = started
    root, lesson = Path(command[2]), command[3].partition("=/lab/tree/")[2]
    assert program == python == sys.executable
    assert root == (tmp_path / "DIR" if words else lessons_root().parent)
    assert (root / lesson).is_file()
