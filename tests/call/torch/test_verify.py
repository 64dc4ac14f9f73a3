"""``ladder verify``: right candidates pass, and wrong ones are refused with the reason."""

import json
import subprocess
import textwrap
from pathlib import Path

import pytest

from ladder.call.torch import Limits, Verdict, verify
from ladder.call.torch.device_library import cuda_home
from ladder.call.torch.judging import NOT_JUDGED, RIGHT, WRONG
from ladder.cli import main
from ladder.cli.verify import constants
from ladder.errors import InvalidProblem

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
    found = judge(candidate(library, USUAL.format("right")), shapes=[{}, {"columns": 64, "rows": 1}])
    assert (found.verdict, found.reasons) == (RIGHT, [])
    assert found.kernels == ["right(float const*, float*, int)"]
    assert found.torch_operations == ["empty"]
    assert [case.constants for case in found.cases[::5]] == [{}, {"columns": 64, "rows": 1}]
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
        "computed by torch",
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
