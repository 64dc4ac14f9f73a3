"""The examples of docs/any_cuda.md run, and say what the page says."""

import importlib.util
import re
import runpy
from pathlib import Path

import pytest

from ladder.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "any_cuda.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def example(word: str) -> str:
    """The page's only example that imports a module."""
    (found,) = [text for text in EXAMPLES if re.search(rf"^(import|from) {word}\b", text, re.MULTILINE)]
    return found


@pytest.mark.parametrize(("module", "says"), [("triton", "0 conflicts"), ("numba", "conflicts in 1 line")])
def test_examples_of_python_kernels(module, says, tmp_path, capfd):
    if not importlib.util.find_spec(module):
        pytest.skip(f"{module} is not installed")
    script = tmp_path / "example.py"
    script.write_text(example(module))
    runpy.run_path(str(script))
    out = capfd.readouterr().out
    assert says in out and (says == "0 conflicts" or not out.startswith("0 "))


@pytest.mark.full
def test_the_example_of_an_extension(tmp_path, capfd):
    script = tmp_path / "softmax.py"
    (text,) = [text for text in EXAMPLES if text.startswith("# softmax.py")]
    script.write_text(text)
    assert main(["torch", str(script)]) == 0
    assert "softmax_kernel" in capfd.readouterr().out
