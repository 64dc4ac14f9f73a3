"""From a rung to the next one there is one idea and little code, and every function fits on a page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rungs import named

from ladder.compile import build
from ladder.run.backends import get_backend
from ladder.stages import Stage, discover, include_directory
from tools.measure import steps

#: The most lines of code that a rung adds to the one before it, with the lines of the shared headers that it
#: is the first to use, in the order of `ladder stages`.
LIMIT = 60
#: Steps that need more, each with its reason.
LONGER = {
    named("v2"): (115, "from scalar arithmetic to fragments: nothing of the loops' inside stays"),
    named("v3b"): (155, "the tile library arrives: most of these lines are its own"),
    named("v8"): (80, "the library's mbarriers, rings and TMA loads arrive"),
    named("b5d"): (
        105,
        "tiles that leave no room for the rings' padding have barriers of their own; exponentials are in two "
        "parts, dK under the first, dQ under the second",
    ),
    named("b5f"): (
        125,
        "work items and the number that roles read, and each role's loop over the items, with its turns",
    ),
    named("b5g"): (
        130,
        "work items round shares of sums, with TMA stores from the memory of dS; and a ring with counters, "
        "for which the producer and the store warps wait",
    ),
    named("x1b"): (
        95,
        "row statistics of padded sequences, a third of these lines; tile numbers; and jagged tensors' TMA, "
        "also of dQ",
    ),
    named("d4"): (
        130,
        "work items that find their sequence, blocks that count themselves in, and a merge within the loop, "
        "whose loads are issued together",
    ),
    named("d6"): (70, "the library's operands in e4m3 arrive, half of these lines"),
    named("h2"): (85, "the mask arrives: a third of these lines is its header"),
    named("h3b"): (
        130,
        "HSTU attention's gradients instead of attention's: jagged batches, masks and silu's slope",
    ),
    named("h3c"): (
        95,
        "the bias arrives: the library's matrices with a stride of their own, and zeros where the mask hides",
    ),
    named("h5b"): (130, "HSTU attention instead of attention: jagged batches, and silu"),
    named("h6"): (105, f"the masks of {named('h2')}, and the visits by which the producer tells of them"),
    named("h7"): (
        105,
        "v12's tile scheduler: work items beside Q, tiles that end with the last query, groups of heads",
    ),
    named("h8a"): (
        130,
        "HSTU attention's gradients instead of attention's: silu's slope, tiles of one sequence, and factors",
    ),
    named("h8"): (
        130,
        "the masks of h2: the producer searches the mask, all warps follow its visits, consumers hide",
    ),
}
#: The most lines of code of a function.
PAGE = 80
#: One thread issues what all others wait for, so these kernels are read in one piece.
WHOLE = {named("n1"): 92, named("n2"): 90, named("n3"): 90}


def own_stages() -> list[Stage]:
    return [stage for stage in discover() if stage.is_own]


@pytest.mark.parametrize("stage", [s for s in own_stages() if s.before], ids=lambda stage: stage.name)
def test_a_step_is_one_idea(stage: Stage) -> None:
    step = steps.step_of(stage)
    limit, reason = LONGER.get(stage.name, (LIMIT, "as every step"))
    added = f"{step.added} lines added to {step.before}, {step.library} lines of the library first used"
    assert step.added + step.library <= limit, f"{added}; at most {limit}, {reason}"


def test_no_exception_outlives_its_step() -> None:
    for name in LONGER:
        step = steps.step_of(discover()[name])
        assert step.added + step.library > LIMIT, f"{name} needs no exception any more"


def test_the_count_does_not_depend_on_what_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of the kernels that the problem needs, also where all kernels have been built."""
    stage = discover()["v1"]
    target = get_backend("emulator").target(stage, None)
    whole = build(stage, target, stage.chosen_options({}))
    read: list[Path] = []
    monkeypatch.setattr(steps, "build", lambda *asked, **more: read.append(build(*asked, **more)) or read[-1])
    steps.library_lines.__wrapped__(named("v1"))
    assert read != [whole]


def sources() -> list[Path]:
    headers = [include_directory() / name for name in ("ladder", "tiles")]
    folders = [*(stage.path for stage in discover()), *headers]
    return [path for folder in folders for path in folder.iterdir() if path.suffix in (".cu", ".h", ".cpp")]


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_functions_fit_a_page(path: Path) -> None:
    most = WHOLE.get(path.parent.name, PAGE)
    found = {f"line {f.line}": f.lines for f in steps.functions(path.read_text()) if f.lines > most}
    assert not found


@pytest.mark.parametrize("stage", own_stages(), ids=lambda stage: stage.name)
def test_snippets_of_a_readme_are_in_the_source(stage: Stage) -> None:
    """Its own source or the library's; ``...`` stands for lines left out."""
    headers = [path for path in sources() if path.parent.parent == include_directory()]
    own = [path for path in stage.path.iterdir() if path.suffix in (".cu", ".h")]
    code = "".join("".join(steps.code_lines(path.read_text())) for path in [*own, *headers])
    readme = (stage.path / "README.md").read_text()
    for snippet in re.findall(r"^```cpp\n(.*?)^```", readme, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\s*\.\.\..*$", snippet, flags=re.MULTILINE):
            assert "".join(steps.code_lines(part)) in code, part


SOURCE = """
namespace a { // {
struct B : C {
  int f() const { return g("}"); } /* void h() {
  } */
  B(int x) : x_{x}, y(x) {}
};
template <int k>
void h(int a,
       int b) {
  if (a) { // nothing

    b++;
  }
}
void declared(int);
constexpr auto made = [](int x) { return x; };
enum E { one };
} // namespace a
"""


def test_functions_are_found() -> None:
    found = [(function.line, function.lines) for function in steps.functions(SOURCE)]
    assert found[:3] == [(4, 1), (6, 1), (8, 7)]


def test_lines_are_compared_without_comments_space_and_name(tmp_path: Path) -> None:
    def stage(name: str, **files: str) -> Stage:
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / f"{file}.h").write_text(text)
        return replace(discover()["v1"], name=name, path=tmp_path / name)

    before = stage("one", kernel='a();\n  b();  // c\nfail("one: d");\n', gone="x;\ny;\n")
    after = stage("two", kernel='\nb( );\nfail("two: d"); /* e\n f */ g();\nnew_line();\n', new="z;\n")
    assert steps.changed_lines(before, after) == (3, 3)
