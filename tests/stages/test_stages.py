import shutil
from dataclasses import replace

import pytest
from rungs import named

from ladder import stages
from ladder.compile import CudaTarget
from ladder.errors import InvalidProblem, StageError, UnsupportedProblem
from ladder.operations import Problem

GOOD = """
title = "Mine"
idea = "an idea"
min_compute_capability = "8.0"
dtypes = ["f16", "bf16"]
head_dims = [32, 64]
[options]
BR = [64, 128]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of user stages with one valid stage, ``mine``."""
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path))
    add(tmp_path, "mine", GOOD)
    return tmp_path


def add(folder, name, toml, kernel="// a kernel"):
    (folder / name).mkdir(parents=True)
    if toml is not None:
        (folder / name / "stage.toml").write_text(toml)
    if kernel is not None:
        (folder / name / "kernel.cu").write_text(kernel)


def test_a_dropped_folder_is_a_stage(folder):
    stage = stages.discover()["mine"]
    assert stage.path == folder / "mine"
    assert stage.dtypes == ("f16", "bf16") and stage.head_dims == (32, 64)
    assert stage.default_arch == "sm_80"


def test_a_stage_of_one_architecture_is_built_for_it_alone(folder):
    add(folder, "hopper", GOOD.replace('min_compute_capability = "8.0"', 'arch = "90a"'))
    stage = stages.discover()["hopper"]
    assert stage.default_arch == stage.arch("sm_90") == stage.arch("sm_90a") == "sm_90a"
    assert stage.min_compute_capability == (9, 0)
    with pytest.raises(UnsupportedProblem, match="hopper runs on sm_90a alone, not on sm_80"):
        stage.arch("sm_80")
    assert CudaTarget("sm_90a").flags()[-1] == "-gencode=arch=compute_90a,code=sm_90a"
    assert 'arch = "90a"' in stages.stage_toml(stage, "Mine", "an idea")


def test_a_single_stage_folder_can_be_named_itself(folder, monkeypatch):
    monkeypatch.setenv("LADDER_STAGES", str(folder / "mine"))
    assert stages.discover()["mine"].path == folder / "mine"


@pytest.mark.parametrize(
    "toml, kernel, message",
    [
        (None, "", "no stage.toml"),
        (GOOD, None, "no kernel.cu"),
        ("title = ", "", "not TOML"),
        (GOOD.replace('idea = "an idea"\n', ""), "", "has no idea"),
        (GOOD.replace('"an idea"', "3"), "", "idea = 3"),
        (GOOD.replace('"bf16"', '"fp8"'), "", "dtypes = .*some of f32, f16, bf16"),
        (GOOD.replace("[32, 64]", "64"), "", "head_dims = 64"),
        (GOOD.replace("[32, 64]", "[]"), "", "head_dims"),
        (GOOD.replace('"8.0"', '"8.1"'), "", "min_compute_capability = '8.1'"),
        ('arch = "90"\n' + GOOD, "", "arch = '90'; known is \"90a\""),
        (GOOD.replace("BR =", "br ="), "", "option br"),
        (GOOD.replace("[64, 128]", "64"), "", "BR = 64.*list of values"),
        ('colour = "red"\n' + GOOD, "", "unknown key colour"),
        ("most_rows = true\n" + GOOD, "", "most_rows = True; it must be a whole number"),
        ("timed = 1\n" + GOOD, "", "timed = 1; it must be true or false"),
        (GOOD.replace("title", 'before = "nowhere"\ntitle'), "", "'nowhere' is no stage"),
        (GOOD.replace("title", 'before = "bad"\ntitle'), "", "circle"),
    ],
)
def test_a_broken_stage_fails_alone(folder, toml, kernel, message):
    add(folder, "bad", toml, kernel)
    ladder = stages.discover()
    assert ladder["mine"].title == "Mine"
    assert "bad" not in [stage.name for stage in ladder]
    with pytest.raises(StageError, match=message):
        ladder["bad"]


def test_folders_that_are_no_stages_are_passed_over(folder):
    for name in ("include", ".git", "__pycache__", "empty"):
        (folder / name).mkdir()
    (folder / "include" / "x.h").touch()
    (folder / "notes.txt").touch()
    assert set(stages.discover().broken) & {"include", ".git", "__pycache__", "empty"} == set()


def test_a_second_stage_of_a_name_is_refused_and_the_first_stays(folder, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(folder / "mine", other / "mine")
    monkeypatch.setenv("LADDER_STAGES", f"{folder}:{other}")
    ladder = stages.discover()
    assert ladder["mine"].path == folder / "mine"
    assert any("has the name of the stage" in str(error) for error in ladder.broken.values())


def test_rungs_come_lowest_first(folder):
    add(folder, "a_top", GOOD.replace("title", 'before = "b_middle"\ntitle'))
    add(folder, "b_middle", GOOD.replace("title", 'before = "mine"\ntitle'))
    names = [stage.name for stage in stages.discover()]
    assert names.index("mine") < names.index("b_middle") < names.index("a_top")


def test_a_side_branch_comes_before_the_branch_that_goes_on(folder):
    """Whatever their names: the shorter branch is the side branch."""
    for name, before in (("a_trunk", "mine"), ("b_trunk", "a_trunk"), ("c_top", "b_trunk")):
        add(folder, name, GOOD.replace("title", f'before = "{before}"\ntitle'))
    for name, before in (("x_side", "mine"), ("y_side", "x_side")):
        add(folder, name, GOOD.replace("title", f'before = "{before}"\ntitle'))
    names = [stage.name for stage in stages.discover() if stage.path.parent == folder]
    assert names == ["mine", "x_side", "y_side", "a_trunk", "b_trunk", "c_top"]


def test_variants_do_not_come_first_for_being_fewer(folder):
    for name, before in (("a_trunk", "mine"), ("b_trunk", "a_trunk")):
        add(folder, name, GOOD.replace("title", f'before = "{before}"\ntitle'))
    add(folder, "x_variant", GOOD.replace("title", 'before = "mine"\nneeds = ["window"]\ntitle'))
    names = [stage.name for stage in stages.discover() if stage.path.parent == folder]
    assert names == ["mine", "a_trunk", "b_trunk", "x_variant"]


def test_a_folder_of_rungs_is_a_ladder(folder):
    """Its rungs are found without being named anywhere else; a broken one affects no other."""
    add(folder / "mine_too", "of_a_ladder", GOOD.replace("title", 'before = "mine"\ntitle'))
    add(folder / "mine_too", "broken_there", "title =")
    (folder / "mine_too" / "README.md").write_text("# A ladder\n")
    ladder = stages.discover()
    assert ladder["of_a_ladder"].path == folder / "mine_too" / "of_a_ladder"
    assert "broken_there" in ladder.broken and "mine_too" not in ladder.broken


def test_a_folder_without_any_rung_is_a_broken_rung(folder):
    (folder / "notes").mkdir()
    (folder / "notes" / "README.md").write_text("# Notes\n")
    assert "has no kernel.cu" in str(stages.discover().broken["notes"])


def test_the_main_ladder_alone_stands_in_stages():
    own = [stage for stage in stages.discover() if stage.is_own or stage.is_by_the_manual]
    assert {stage.computes for stage in own if stage.path.parent == stages.root()} == {"attention"}
    ladders = {page.parent for page in stages.ladder_pages()}
    assert {stage.path.parent for stage in own} == {stages.root(), *ladders}


def test_a_rung_above_a_broken_one_stands(folder):
    add(folder, "below", "title =")
    add(folder, "above", GOOD.replace("title", 'before = "below"\ntitle'))
    assert stages.discover()["above"].before == "below"


def test_unknown_stage_names_a_near_one(folder):
    with pytest.raises(StageError, match="did you mean mine"):
        stages.discover()["mime"]


def test_ladder_stages_must_be_a_directory(monkeypatch):
    monkeypatch.setenv("LADDER_STAGES", "/nowhere/at/all")
    with pytest.raises(StageError, match="/nowhere/at/all"):
        stages.discover()


def test_accept_names_what_is_supported(folder):
    stage = stages.discover()["mine"]
    assert stage.accept(Problem(1, 1, 1, 1, 64)).dtype == "f16"
    assert stage.accept(Problem(1, 1, 1, 1, 64, dtype="bf16")).dtype == "bf16"
    with pytest.raises(UnsupportedProblem, match="f16, bf16, not f32"):
        stage.accept(Problem(1, 1, 1, 1, 64, dtype="f32"))
    with pytest.raises(UnsupportedProblem, match="d = 32, 64, not 128"):
        stage.accept(Problem(1, 1, 1, 1, 128))
    few = replace(stage, most_rows=65_535)
    assert few.suits(Problem(1, 1, 65_535, 1, 64))
    with pytest.raises(UnsupportedProblem, match="at most 65,535 rows, not 65,536"):
        few.accept(Problem(1, 1, 65_536, 1, 64))
    with pytest.raises(UnsupportedProblem, match=r"8\.0 or higher, not sm_75"):
        stage.arch("sm_75")
    assert stage.arch("sm_90") == "sm_90"


def test_options(folder):
    stage = stages.discover()["mine"]
    assert stage.chosen_options({}) == {"BR": 64}
    assert stage.chosen_options({"BR": "128"}) == {"BR": 128}
    with pytest.raises(UnsupportedProblem, match="BR is 64, 128, not 32"):
        stage.chosen_options({"BR": "32"})
    with pytest.raises(UnsupportedProblem, match="no option BC"):
        stage.chosen_options({"BC": "32"})


def test_options_as_text() -> None:
    options = {"WARPS": "8", "NAME": "a"}
    assert stages.parse_options(stages.format_options(options)) == options
    assert stages.parse_options("") == {}
    with pytest.raises(InvalidProblem, match="option WARPS has no value"):
        stages.parse_options("NAME=a,WARPS")


def test_a_stage_with_options_as_text(folder) -> None:
    stage, options = stages.stage_and_options("mine:BR=128")
    assert stage == stages.discover()["mine"] and options == {"BR": 128}
    assert stages.stage_and_options(named("v2"))[1] == stages.discover()["v2"].chosen_options({})
