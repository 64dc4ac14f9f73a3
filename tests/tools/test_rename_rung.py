"""What renaming a rung touches, and that all of it is renamed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.rename_rung import ALIASES, OTHERS, OWN, ROOT, Repository

#: Files with a rung's name besides its folder, the `before` of others, its lessons, exercises and results.
MOST = 12


def test_few_files_have_a_rungs_name() -> None:
    """Elsewhere its number stands: `named("v3")` in tests, `v3` in texts and commands."""
    touched = Repository().touched()
    many = {name: kinds[OTHERS] for name, kinds in touched.items() if len(kinds[OTHERS]) > MOST}
    assert many == {} and len(touched) > 60


def test_a_renamed_rung(tmp_path: Path) -> None:
    texts = {
        "stages/v3_old/kernel.cu": "// v3_old: a swizzle",
        "stages/v3_old/test_v3_old.py": 'NAME = "v3_old"',
        "stages/v3_old/stage.toml": "",
        "stages/v4_next/stage.toml": 'before = "v3_old"',
        "notebooks/README.md": "| [03](03_v3_old.ipynb) | `v3`: a swizzle |",
        "notebooks/03_v3_old.py": 'lessons.source("v3_old")',
        "exercises/v3_xor/exercise.toml": 'rung = "v3_old"',
        "results/speed.csv": "v3_old,1",
        "README.md": "[v3_old](stages/v3_old/README.md), [03](notebooks/03_v3_old.ipynb), v3_old_128, v3",
        "CHANGELOG.md": "v3_old is new",
        ALIASES: (ROOT / ALIASES).read_text(),
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    repository = Repository(tmp_path)
    touched = repository.touched()[repository.named("v3")]
    assert [len(touched[kind]) for kind in (*OWN, OTHERS)] == [2, 1, 1, 1, 1, 2]

    repository.rename("v3_old", "v3_new")
    assert (tmp_path / "stages/v3_new/kernel.cu").read_text() == "// v3_new: a swizzle"
    assert (tmp_path / "stages/v3_new/test_v3_new.py").read_text() == 'NAME = "v3_new"'
    for path in ("stages/v4_next/stage.toml", "exercises/v3_xor/exercise.toml", "results/speed.csv"):
        assert (tmp_path / path).read_text() == texts[path].replace("v3_old", "v3_new")
    assert (tmp_path / "notebooks/03_v3_old.py").read_text() == 'lessons.source("v3_new")'
    readme = "[v3_new](stages/v3_new/README.md), [03](notebooks/03_v3_old.ipynb), v3_old_128, v3"
    assert (tmp_path / "README.md").read_text() == readme
    assert (tmp_path / "CHANGELOG.md").read_text() == texts["CHANGELOG.md"]
    assert '"v3_old": "v3_new",' in (tmp_path / ALIASES).read_text()
