"""``ladder verify``: right candidates pass, and wrong ones are refused with the reason."""

import json
import subprocess
import textwrap
import types
from pathlib import Path

import pytest
import torch

from ladder.call.torch import (
    NOT_JUDGED,
    RIGHT,
    WRONG,
    Limits,
    Verdict,
    launch_of,
    pairs,
    read_launch,
    verify,
)
from ladder.call.torch.device_library import cuda_home
from ladder.call.torch.shrinking import integer_constants, shrunk, smaller
from ladder.cli import main
from ladder.cli.verify import constants
from ladder.errors import InvalidProblem, UnsupportedProblem

REFERENCE = """
import torch

rows, columns = 5, 70


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).sum(dim=1)


def get_inputs():
    return [torch.randn(rows, columns)]
"""
CANDIDATE = """
import ctypes
import torch

library = ctypes.CDLL({library!r})


def launch(name, x, y):
    getattr(library, "launch_" + name)(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), *x.shape)
    return y


class ModelNew(torch.nn.Module):
    kept = {{}}

    def forward(self, x):
        {forward}
"""
USUAL = 'return launch("{}", x, torch.empty(x.shape[0], device="cuda"))'


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("built") / "verified.so"
    source = Path(__file__).parent / "verified.cu"
    nvcc = [
        str(cuda_home() / "bin" / "nvcc"),
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-o",
        str(built),
        str(source),
    ]
    subprocess.run(nvcc, check=True)
    return built


@pytest.fixture
def judge(tmp_path: Path):
    def run(candidate: str, reference: str = REFERENCE, **choices: object) -> Verdict:
        for name, text in (("candidate", candidate), ("reference", reference)):
            (tmp_path / f"{name}.py").write_text(text)
        return verify(tmp_path / "candidate.py", tmp_path / "reference.py", **choices)

    return run


def candidate(library: Path, forward: str) -> str:
    lines = textwrap.dedent(forward).strip()
    return CANDIDATE.format(library=str(library), forward=textwrap.indent(lines, " " * 8).lstrip())


def test_right(library, judge) -> None:
    found = judge(candidate(library, USUAL.format("right")), shapes=[{"columns": 64, "rows": 1}])
    assert (found.verdict, found.reasons) == (RIGHT, [])
    assert found.kernels == ["right(float const*, float*, int)"]
    assert found.torch_operations == ["empty"]
    assert [case.constants for case in found.cases[::6]] == [{"columns": 64, "rows": 1}]
    assert all(case.error <= case.limit for case in found.cases)


def test_torch_may_do_a_part(library, judge) -> None:
    found = judge(
        candidate(library, 'y = torch.empty(5, device="cuda")\nreturn launch("right", x * 2, y) / 2')
    )
    assert (found.verdict, found.reasons) == (RIGHT, [])
    assert found.torch_operations == ["div", "empty", "mul"]


WRONG_ONES = {
    "race": (USUAL.format("race"), "race in a warp"),
    "no tail": (USUAL.format("no_tail"), "output"),
    "past the end": (USUAL.format("past_the_end"), "fault"),
    "constant": (USUAL.format("constant"), "output"),
    "a row missing": (USUAL.format("one_row_missing"), "output"),
    "changes inputs": (USUAL.format("changes_inputs"), "inputs changed"),
    "second call": (USUAL.format("wrong_when_called_again"), "output"),
    "an order": (USUAL.format("needs_an_order"), "output"),
    "endless kernel": (USUAL.format("endless").replace("empty", "zeros"), "fault"),
    "torch alone": ("return torch.relu(x).sum(dim=1)", "no kernel"),
    "a kernel beside torch": (
        'launch("right", x, torch.empty(5, device="cuda"))\nreturn torch.relu(x).sum(dim=1)',
        "computed by the host",
    ),
    "kept by address": (
        "if x.data_ptr() not in self.kept:\n    self.kept[x.data_ptr()] = "
        + USUAL.format("right").removeprefix("return ")
        + "\nreturn self.kept[x.data_ptr()]",
        "output",
    ),
    "another shape": (USUAL.format("right") + "[:, None]", "shape"),
    "another dtype": (USUAL.format("right") + ".half()", "shape"),
    "no tensor": ('return "right"', "TypeError"),
    "exit": ("import os\nos._exit(0)", "process"),
    "exception": ('raise ValueError("mine")', "ValueError"),
    "a pipe for an output": (
        "import os\npath = os.path.join(os.environ['HOME'], 'out_0_0_0')\n"
        "if os.path.exists(path):\n    os.remove(path)\n    os.mkfifo(path)\n" + USUAL.format("right"),
        "answer",
    ),
}


#: Of the others, a run takes the same way to the same kinds of reasons.
FIRST = ("race", "constant", "past the end", "a kernel beside torch", "exit")


@pytest.mark.parametrize(
    "name",
    [*FIRST, *(pytest.param(name, marks=pytest.mark.full) for name in WRONG_ONES if name not in FIRST)],
)
def test_wrong(name: str, library, judge) -> None:
    forward, kind = WRONG_ONES[name]
    found = judge(candidate(library, forward))
    assert found.verdict == WRONG
    assert kind in {reason.kind for reason in found.reasons}, found.reasons


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("class Other: pass", "AttributeError", "ModelNew"),
        ("import nowhere_to_be_found", "ModuleNotFoundError", "nowhere_to_be_found"),
        ("def f(:\n", "SyntaxError", "invalid syntax"),
        ("import reference", "ModuleNotFoundError", "reference"),
    ],
)
def test_a_file_without_a_kernel(text: str, kind: str, words: str, judge) -> None:
    found = judge(text)
    assert (found.verdict, found.reasons[0].kind) == (WRONG, kind)
    assert words in found.reasons[0].message and "Traceback" not in found.as_json()


def test_a_limit_of_memory(judge) -> None:
    found = judge("x = b'x' * (2 << 30)", limits=Limits(memory_bytes=1 << 30))
    assert (found.verdict, found.reasons[0].kind) == (WRONG, "limit")
    assert "more than 1 GiB" in found.reasons[0].message


@pytest.mark.full
def test_a_limit_of_time(judge) -> None:
    found = judge("while True:\n    pass", limits=Limits(seconds=120))
    assert (found.verdict, found.reasons[0].kind) == (WRONG, "limit")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("torch.relu(x)", "torch.rand_like(x)", "something else in each call"),
        ("torch.relu(x)", "torch.full_like(x, 3)", "same for all inputs"),
        ("torch.relu(x)", "(x / 0)", "not finite"),
        ("class Model(", "class Other(", "AttributeError"),
    ],
)
def test_a_reference_that_judges_nothing(old: str, new: str, words: str, judge) -> None:
    found = judge("", REFERENCE.replace(old, new))
    assert (found.verdict, found.exit_code) == (NOT_JUDGED, 2)
    assert words in found.reasons[0].message


def test_the_command_prints_one_verdict(library, tmp_path, capfd) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "candidate.py").write_text(candidate(library, USUAL.format("no_tail")))
    words = ["verify", str(tmp_path / "candidate.py"), "--reference", str(tmp_path / "reference.py")]
    assert main([*words, "--with", "columns=33", "--tolerance", "1e-3"]) == 1
    verdict = json.loads(capfd.readouterr().out)
    assert verdict["verdict"] == WRONG and verdict["cases"][0]["constants"] == {"columns": 33}
    assert main(["verify", "nothing.py", "--reference", "nothing.py"]) == 2
    assert constants("N=65, M=3") == {"N": 65, "M": 3}
    with pytest.raises(InvalidProblem, match="'N' does not give"):
        constants("N")


NUMPY = """
import numpy as np

rows, columns = 5, 70


def reference(x):
    return np.maximum(x, 0).sum(axis=1)


def get_inputs():
    return [np.random.randn(rows, columns).astype(np.float32)]
"""
OF_A_KERNEL = {"kernel": "right", "grid": ["rows"], "block": [32], "arguments": ["x", "out", "x.shape[1]"]}
OF_A_FUNCTION = {
    "function": "launch_right",
    "arguments": ["x", "out", "rows", "columns"],
    "flags": ["-DIS_PART_OF_A_PROGRAM"],
}


@pytest.fixture
def judge_cu(tmp_path: Path):
    def run(launch: dict[str, object], **choices: object) -> Verdict:
        reference = tmp_path / "reference.py"
        reference.write_text(NUMPY)
        return verify(Path(__file__).parent / "verified.cu", reference, launch=launch_of(launch), **choices)

    return run


@pytest.mark.parametrize(
    ("launch", "shapes"),
    [(OF_A_KERNEL, [{}, {"columns": 33, "rows": 2}]), (OF_A_FUNCTION, [{"columns": 33, "rows": 2}])],
    ids=["kernel", "function"],
)
def test_a_cu_by_a_reference_in_numpy(launch, shapes, judge_cu) -> None:
    found = judge_cu(launch, shapes=shapes)
    assert (found.verdict, found.reasons) == (RIGHT, [])
    assert found.kernels == ["right(float const*, float*, int)"]
    assert [case.constants for case in found.cases[::6]] == shapes


def test_a_cu_whose_outputs_begin_as_something(judge_cu) -> None:
    # By the second block, needs_an_order has left a row at what it was.
    found = judge_cu({**OF_A_KERNEL, "kernel": "one_row_missing", "initial": {"out": "x[:, 0] * 0 + rows"}})
    assert {reason.kind for reason in found.reasons} == {"output"}
    assert "its error is" in found.reasons[0].message  # without an initial value it is not finite


@pytest.mark.parametrize(
    ("changed", "verdict", "kind", "words"),
    [
        ({"kernel": "no_tail"}, WRONG, "output", "its error is"),
        ({"arguments": ["x", "out"]}, WRONG, "RuntimeError", "another number of arguments"),
        ({"kernel": "nothing"}, WRONG, "RuntimeError", "nothing"),
        ({"block": [2048]}, WRONG, "fault", "at most 1024 are allowed"),
        ({"grid": ["height"]}, NOT_JUDGED, "reference", "'height' has no value"),
        ({"arguments": ["x", "out", "x.shape"]}, NOT_JUDGED, "reference", "neither a number"),
    ],
)
def test_a_cu_that_is_wrong(changed, verdict, kind, words, judge_cu) -> None:
    found = judge_cu({**OF_A_KERNEL, **changed})
    assert (found.verdict, found.reasons[0].kind) == (verdict, kind), found.reasons
    assert words in found.reasons[0].message


def test_a_launch_that_is_none(tmp_path) -> None:
    file = tmp_path / "launch.toml"
    file.write_text('kernel = "right"\ngrid = [5]\nblock = [32]\narguments = ["x", "out", 70]\n')
    assert read_launch(file) == launch_of({**OF_A_KERNEL, "grid": ["5"], "arguments": ["x", "out", "70"]})
    for text, words in {
        'kernel = "right"': "needs a grid and a block",
        'function = "a"\nkernel = "b"': "either a function or a kernel",
        "threads = 3": "threads is no key of a launch",
        'function = "a"\narguments = "x"': "arguments is no list",
        'function = "a"\ninitial = 0': "initial is no table",
        "kernel": "is not TOML",
    }.items():
        file.write_text(text)
        with pytest.raises(InvalidProblem, match=f"launch.toml.* {words}"):
            read_launch(file)
    with pytest.raises(InvalidProblem, match="needs a launch"):
        verify(Path(__file__).parent / "verified.cu", Path(__file__))


def test_sizes_shrink_and_keep_tails() -> None:
    assert [smaller(size, 128) for size in (511, 512, 640, 4096, 4097, 16777216 + 5)] == [
        *(511, 256, 384, 256, 257, 261)
    ]
    module = types.ModuleType("reference")
    module.__dict__.update(rows=4096, columns=1000, seed=4096, flag=True, name="4096")
    module.get_inputs = lambda: [torch.empty(module.rows, module.columns)]
    assert shrunk(module, integer_constants(module)) == {"rows": 256, "columns": 384 + 1000 % 128}
    assert (module.rows, module.columns) == (256, 488)
    module.get_inputs = lambda: [torch.empty(module.rows, module.columns, 4)]
    assert shrunk(module, {"rows": 4096, "columns": 1000}) == {"rows": 128, "columns": 192 + 1000 % 64}
    module.get_inputs = lambda: [torch.empty(1 << 20)]
    with pytest.raises(UnsupportedProblem, match="smallest form"):
        shrunk(module, {"rows": 4096})


def test_the_verdict_names_the_sizes(judge_cu) -> None:
    found = judge_cu(OF_A_KERNEL, shapes=[{"columns": 1030, "rows": 2}], shrink=True)
    assert (found.verdict, found.reasons) == (RIGHT, [])
    assert found.cases[0].constants == {"columns": 1030, "rows": 2}
    found = judge_cu({**OF_A_KERNEL, "kernel": "no_tail"}, shapes=[{"columns": 33}], shrink=True)
    assert (found.verdict, found.cases[0].constants) == (WRONG, {"columns": 33})


def test_the_layout_of_kernelbench(library, tmp_path, capfd) -> None:
    problems, mine = tmp_path / "KernelBench", tmp_path / "runs"
    for folder in (problems / "level1", problems / "level2", mine / "level1"):
        folder.mkdir(parents=True)
    large = REFERENCE.replace("5, 70", "4, 1030")
    (problems / "level1" / "23_RowSum.py").write_text(large)
    (problems / "level2" / "23_Other.py").write_text("")
    (mine / "level_1_problem_23_sample_0_kernel.py").write_text(candidate(library, USUAL.format("right")))
    (mine / "level1" / "23_RowSum.py").write_text(candidate(library, USUAL.format("no_tail")))
    (mine / "notes.py").write_text("")
    reference = problems / "level1" / "23_RowSum.py"
    assert pairs(problems, mine) == [
        (mine / "level1" / "23_RowSum.py", reference),
        (mine / "level_1_problem_23_sample_0_kernel.py", reference),
    ]
    assert main(["verify", str(mine), "--kernelbench", str(problems), "--shrink"]) == 1
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [one["verdict"] for one in found] == [WRONG, RIGHT]
    assert found[1]["reference"] == str(reference)
    assert found[1]["cases"][0]["constants"] == {"columns": 256 + 1030 % 128}
    with pytest.raises(InvalidProblem, match=r"no file in .* is named as a candidate"):
        pairs(problems, problems / "level2" / "nothing")
    (mine / "level_3_problem_1_sample_0_kernel.py").write_text("")
    with pytest.raises(InvalidProblem, match=r"no level3/1_\*\.py"):
        pairs(problems, mine)


INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void row_sum(const float *x, float *y, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += fmaxf(x[threadIdx.x * n + i], 0.f);
  y[threadIdx.x] = sum;
}
torch::Tensor launch(torch::Tensor x) {
  auto y = torch::empty({x.size(0)}, x.options());
  row_sum<<<1, x.size(0)>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""
module = load_inline("inline", "torch::Tensor launch(torch::Tensor x);", CUDA, functions=["launch"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.launch(x)
'''


@pytest.mark.full
def test_inline_cuda(judge) -> None:
    """Compiles torch's headers: minutes."""
    found = judge(INLINE, limits=Limits(seconds=1800))
    assert (found.verdict, found.reasons) == (RIGHT, [])
