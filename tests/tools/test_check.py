"""`make check`: which tests a changed file needs, and what it says where there is nothing to compare."""

import subprocess
from pathlib import Path

import pytest
from rungs import named

from ladder.stages import discover
from tools import changed_tests, check

ROOT = Path(__file__).parents[2]


def nearest(path: str) -> changed_tests.Nearest:
    return changed_tests.nearest(ROOT, path)


def rung(number: str) -> str:
    return str(discover()[number].path.relative_to(ROOT))


def test_a_rung_needs_one_kernel_its_step_and_its_childrens() -> None:
    found = nearest(f"{rung('v2')}/kernel.cu")
    assert found.first[:2] == (
        f"stages/test_matrix.py::test_one_kernel+{named('v2')}",
        f"tests/stages/test_steps.py::{named('v2')}",
    )
    assert f"tests/stages/test_steps.py::{named('v3')}" in found.first
    assert f"{rung('v2')}/test_{named('v2')}.py" in found.then
    assert "tests/course/exercises/test_exercises.py::v2_row_max" in found.then


def test_a_page_of_a_rung_compiles_no_kernel() -> None:
    found = nearest(f"{rung('v3')}/README.md")
    assert found.first == (f"tests/stages/test_steps.py::{named('v3')}", *changed_tests.PAGES)
    assert found.then == ()


def test_a_header_needs_a_rung_that_includes_it() -> None:
    found = nearest("stages/include/tiles/warpgroup.h")
    (kernel,) = (one for one in found.first if one.startswith("stages/"))
    name = kernel.partition("+")[2]
    assert '#include "tiles/warpgroup.h"' in (ROOT / rung(name) / "kernel.cu").read_text()
    assert all(one.startswith("tests/tiles/") for one in found.then)


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("tests/common/test_cache.py", "tests/common/test_cache.py"),
        ("ladder/common/cache.py", "tests/common/test_cache.py"),
        ("emulator/instructions/convert_integers.cpp", "tests/emulator/test_instructions_convert.py"),
        ("emulator/sanitizer/undefined.cpp", "tests/sanitizer/test_undefined.py"),
        ("exercises/v3_xor/answers.toml", "tests/course/exercises/test_exercises.py::v3_xor"),
        ("notebooks/03_v3_swizzle.py", "tests/course/lessons/test_notebooks.py::03_v3_swizzle"),
        ("docs/tiles.md", "tests/docs/test_translations.py"),
        ("tools/check.py", "tests/tools/test_check.py"),
    ],
)
def test_what_is_nearest(path: str, first: str) -> None:
    assert nearest(path).first[0] == first
    assert (ROOT / first.partition("::")[0]).is_file()


def test_a_changed_emulator_runs_a_rung_too() -> None:
    assert nearest("emulator/machine/bank_model.cpp").then[-1] == changed_tests.SMOKE


def test_no_test_mirrors_them() -> None:
    for path in ("LICENSE", "tests/common/test_deleted.py", "Makefile"):
        assert nearest(path) == changed_tests.Nearest()


def test_the_nearest_of_every_file_come_first_and_once() -> None:
    one, two = changed_tests.Nearest(("a",), ("b", "c")), changed_tests.Nearest(("d", "a"), ("c",))
    assert [*changed_tests.selectors([one, two])] == ["a", "d", "b", "c"]


@pytest.mark.parametrize(
    ("selector", "test", "selected"),
    [
        ("tests/a.py", "tests/a.py::test_x[1]", True),
        ("tests/a.py", "tests/b.py::test_x[1]", False),
        (f"a.py::test_x+{named('v3')}", f"a.py::test_x[{named('v3')}-emulator]", True),
        (f"a.py::test_x+{named('v3')}", f"a.py::test_x[emulator-{named('v3')}: B=1]", True),
        (f"a.py::test_x+{named('v3')}", f"a.py::test_y[{named('v3')}-emulator]", False),
        (f"a.py::{named('v3')}", f"a.py::test_x[{named('v3')}/kernel.cu]", True),
        (f"a.py::{named('b4')}", f"a.py::test_x[{named('b4')}_more]", False),
    ],
)
def test_words_choose_tests(selector: str, test: str, selected: bool) -> None:
    assert check.is_selected(test, check.by_file([selector])) is selected


def test_a_whole_file_wins_over_words_of_it() -> None:
    wanted = check.by_file([f"a.py::{named('v3')}", "a.py"])
    assert check.is_selected(f"a.py::test_x[{named('v2')}]", wanted)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A branch that has left main, with one commit and uncommitted changes; a file that git ignores."""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "-q", "-b", "main")
    for name in ("kept", "edited", "deleted"):
        (tmp_path / name).write_text("1\n")
    (tmp_path / ".gitignore").write_text("ignored\n")
    git("add", ".")
    git("commit", "-q", "-m", "First")
    git("switch", "-q", "-c", "branch")
    (tmp_path / "committed ü").write_text("1\n")
    git("add", ".")
    git("commit", "-q", "-m", "Second")
    git("branch", "-q", "elsewhere", "main")
    (tmp_path / "edited").write_text("2\n")
    (tmp_path / "deleted").unlink()
    (tmp_path / "new").write_text("")
    (tmp_path / "ignored").write_text("")
    return tmp_path


def test_what_has_changed(checkout: Path) -> None:
    base = changed_tests.main_commit(checkout)
    assert base
    assert changed_tests.changed_files(checkout, base) == ["committed ü", "deleted", "edited", "new"]
    assert changed_tests.changed_files(checkout, "HEAD") == ["deleted", "edited", "new"]


def test_it_says_what_it_runs(checkout: Path, tmp_path_factory: pytest.TempPathFactory, capsys) -> None:
    def said(root: Path, base: str | None = None) -> str:
        assert check.plan(root, base) == []
        return capsys.readouterr().out

    assert "  new: no test of its own" in said(checkout)
    assert said(checkout, "nothing").startswith("There is no nothing to compare with: only lint")
    subprocess.run(["git", "stash", "-q", "-u"], cwd=checkout, check=True)
    assert said(checkout, "HEAD").startswith("Nothing has changed since ")
    assert said(tmp_path_factory.mktemp("plain")).startswith("Not a git checkout: only lint")


def test_a_failing_test_fails_the_check_and_late_tests_are_left(tmp_path: Path, monkeypatch, capfd) -> None:
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    (tmp_path / "test_it.py").write_text("def test_right(): pass\ndef test_wrong(): assert False\n")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert check.run_tests(["test_it.py"], until=1e12) == 1
    capfd.readouterr()
    assert check.run_tests(["test_it.py::test_wrong"], until=0) == 0
    assert "1 skipped, 1 deselected" in capfd.readouterr().out
