"""The C++ unit tests of the layers ``ptx`` and ``program``, compiled without the rest of the emulator."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).parent
EMULATOR = TESTS.parents[1] / "emulator"
UNITS = ["test_ptx", "test_program", "test_registers"]
# The standard library's assertions detect reads past the end of a vector or a string.
FLAGS = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-D_GLIBCXX_ASSERTIONS", f"-I{EMULATOR}"]


def run(command: list[str]) -> None:
    """Runs a command; if it fails, fails the test with its output."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert result.returncode == 0, " ".join(command) + "\n" + result.stdout


def test_cpp_units(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX", "g++")
    # A unity build takes a third of the time.
    sources = [source for layer in ("ptx", "program") for source in sorted((EMULATOR / layer).glob("*.cpp"))]
    layers = tmp_path / "layers.cpp"
    layers.write_text("".join(f'#include "{source}"\n' for source in sources))
    texts = [layers, *(TESTS / "cpp" / f"{unit}.cpp" for unit in UNITS)]

    def compile_one(text: Path) -> None:
        run([compiler, *FLAGS, "-c", str(text), "-o", str(tmp_path / f"{text.stem}.o")])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, texts))
    for unit in UNITS:
        program = tmp_path / unit
        run([compiler, str(tmp_path / f"{unit}.o"), str(tmp_path / "layers.o"), "-o", str(program)])
        run([str(program), str(TESTS / "data")])
