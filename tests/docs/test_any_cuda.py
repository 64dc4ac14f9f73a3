"""The examples of docs/any_cuda.md run, and say what the page says."""

import importlib.util
import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path

import pytest

from ladder.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "any_cuda.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def example(word: str) -> str:
    """The page's only example that imports a module."""
    (found,) = [text for text in EXAMPLES if re.search(rf"^(import|from) {word}\b", text, re.MULTILINE)]
    return found


def said(language: str, counts: Mapping[str, int]) -> bool:
    """Whether the page's table has these counts for the softmax in this language."""
    columns = ("shared_load_instructions", "shared_store_instructions", "conflicts")
    return " | ".join(["", language, *(str(counts[column]) for column in columns), ""]).strip() in PAGE


@pytest.mark.parametrize(
    ("module", "says"), [("triton", "0 conflicts"), ("numba", "360 conflicts in 1 line")]
)
def test_examples_of_python_kernels(module, says, tmp_path, capfd):
    if not importlib.util.find_spec(module):
        pytest.skip(f"{module} is not installed")
    script = tmp_path / "example.py"
    script.write_text(example(module))
    launch = runpy.run_path(str(script))["launch"]
    assert capfd.readouterr().out == f"{says}\n"
    assert said(module.capitalize(), launch.totals())


@pytest.mark.full
def test_the_example_of_an_extension(tmp_path, capfd):
    script = tmp_path / "softmax.py"
    (text,) = [text for text in EXAMPLES if text.startswith("# softmax.py")]
    script.write_text(text)
    assert main(["torch", "--json", str(tmp_path / "rows.json"), str(script)]) == 0
    assert "softmax_kernel" in capfd.readouterr().out
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert said("CUDA", row)
