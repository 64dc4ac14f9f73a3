"""The corpus runner: what a program's output says, what a makefile builds, and what is not run again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from ladder.errors import BuildError, LadderError
from tools.measure import corpus_outputs, corpus_programs, run_corpus
from tools.measure.corpus_outputs import Output
from tools.measure.corpus_programs import Checkout, Program
from tools.measure.run_corpus import Ended, Row

TESTED = """
#include <cstdio>
#include <cstdlib>
__global__ void twice(int *x) { x[threadIdx.x] *= 2; }
int main(int count, char **arguments) {
  int *x, wanted = count > 1 ? atoi(arguments[1]) : 0;
  cudaMallocManaged(&x, 32 * sizeof(int));
  for (int i = 0; i < 32; ++i) x[i] = i;
  twice<<<1, 32>>>(x);
  cudaDeviceSynchronize();
  printf("%s\\n", x[3] == wanted ? "PASS" : "FAIL");
  cudaFree(x);
}
"""


def outcome(output: str, code: int | None = 0, rows: int = 1) -> str:
    return run_corpus.outcome(Ended(code, output, 1.0, [{}] * rows))[0]


@pytest.mark.parametrize(
    ("output", "wanted"),
    [
        ("Test PASSED\n", "right"),
        ("Average time 3 ms\n", "ran"),
        ("PASS\nrow 2: FAIL\n", "wrong"),
        ("Result = mismatch at 4\n", "wrong"),
        ("0 mismatches\n", "right"),
        ("mismatches: 0\n", "right"),
        ("mismatches: 0.5\n", "wrong"),
        ("10 errors, 100 failures\n", "wrong"),
        ("the results are not correct\n", "wrong"),
        ("simpleTexture completed, returned OK\n", "right"),
        ("simpleTexture completed, returned ERROR!\n", "wrong"),
        ("fault: a read out of bounds\n", "fault"),
        ("Device assert failed as expected\nfault: assertion: `i < n` failed\n", "right"),
        ("Device assert failed as expected\nfault: out of bounds: a read\n", "fault"),
        ("fault: assertion: `i < n` failed\n", "fault"),
        ("fault: launch: only layered arrays are emulated: no cubemaps\n", "refused"),
        ("fault: not supported: sured.b.add (this form is not modelled)\n", "refused"),
        ("died: by SIGSEGV, in the host's code\n", "crashed"),
    ],
)
def test_the_output_of_a_program_says_whether_it_is_right(output: str, wanted: str) -> None:
    assert outcome(output) == wanted


def test_the_rows_after_a_program_s_output_are_not_its_output() -> None:
    assert run_corpus.split('Building a.cu ...\n[\n7\n[\n{"a": 1},\n{"a": 2}\n]\nfault: x\n') == (
        "[\n7\nfault: x",
        [{"a": 1}, {"a": 2}],
    )
    assert run_corpus.split("7\n[]\n") == ("7", [])


def test_rows_of_several_megabytes_are_read_whole(tmp_path: Path) -> None:
    ended = run_corpus.limited([sys.executable, "-c", "print('x' * (3 << 20))"], tmp_path, 60)
    assert ended.output == "x" * (3 << 20) + "\n"


def test_a_program_over_its_limit_is_slow() -> None:
    assert outcome("PASS\n", None) == "slow"


def test_a_program_without_its_data_is_not_wrong() -> None:
    assert outcome("Error: cannot open file graph.txt\n", 1) == "missing"
    assert outcome("usage: ./main <file>\n", 0, rows=0) == "missing"
    assert outcome("it ended\n", 3) == "wrong"
    assert outcome("error: main was ended by SIGABRT; nothing was counted\n", 2) == "crashed"


@pytest.mark.parametrize(
    ("repository", "code", "wanted"),
    [
        ("NVIDIA/cuda-samples", 2, ("missing", "Two GPUs are required")),
        ("NVIDIA/cuda-samples", 1, None),
        ("zjin-lcf/HeCBench", 2, None),
    ],
)
def test_a_sample_may_waive_its_run(tmp_path: Path, repository: str, code: int, wanted: object) -> None:
    program = Program(Checkout(repository, "0", tmp_path), tmp_path, ("main.cu",))
    assert run_corpus.waived(program, Ended(code, "Hello\nTwo GPUs are required\n\n", 1)) == wanted


def test_files_that_a_checkout_lacks_are_found_by_the_arguments(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "there.txt").touch()
    arguments = ("-n", "1/2", "0.5", "data/there.txt", "../data/gone.grd", "data/other.txt")
    program = Program(Checkout("a/b", "0", tmp_path), tmp_path, ("main.cu",), (), arguments)
    assert program.absent_file() == "../data/gone.grd"
    assert (
        Program(Checkout("a/b", "0", tmp_path), tmp_path, ("main.cu",), (), arguments[:4]).absent_file() == ""
    )


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (
            "a.cu calls what the emulated CUDA runtime does not have: cudaFoo, cudaBar",
            ("refused", "cudaFoo, cudaBar"),
        ),
        ("main.cu does not compile:\nx.h:3: fatal error: mpi.h: No such file", ("missing", "mpi.h")),
        ("main.cu does not link:\n/usr/bin/ld: cannot find -lgdal", ("missing", "library gdal")),
        ("main.cu does not link:\nmain.cpp: undefined reference to `glutMainLoop'", ("missing", "OpenGL")),
        (
            "main.cu does not compile:\nmain.cu(3): error: no instance of f",
            ("refused", "main.cu(3): error: no instance of f"),
        ),
    ],
)
def test_a_build_that_fails_names_what_is_missing(message: str, wanted: tuple[str, str]) -> None:
    assert run_corpus.unbuilt(BuildError(message)) == wanted


def test_a_makefile_s_commands_become_a_program(tmp_path: Path) -> None:
    checkout = Checkout("zjin-lcf/HeCBench", "0", tmp_path)
    commands = [
        "nvcc -std=c++17 -Xcompiler -Wall -Xcompiler -fopenmp -arch=sm_60 -I ../include -DN=2 -O3 -c main.cu",
        "g++ -std=c++11 -c help.cpp -o help.o",
        "nvcc main.o help.o -o main -lcufft",
        "./main 10 'a b'",
        "./main 20",
    ]
    program = corpus_programs.of_commands(checkout, tmp_path, commands)
    assert program.sources == ("main.cu", "help.cpp")
    assert program.flags == ("-std=c++17", "-Xcompiler=-fopenmp", "-I../include", "-DN=2", "-O3", "-lcufft")
    assert program.arguments == ("10", "a b")
    assert not program.refused
    assert corpus_programs.of_commands(checkout, tmp_path, ["python run.py"]).refused


def test_a_sample_s_cmake_file_becomes_a_program(tmp_path: Path) -> None:
    folder = tmp_path / "Samples" / "0_Introduction" / "one"
    (folder / "inc").mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text(
        "add_executable(one one.cu two.cpp)\n"
        "target_link_libraries(one PUBLIC CUDA::cudart CUDA::cublas OpenMP::OpenMP_CXX)\n"
        "target_compile_features(one PRIVATE cxx_std_17 cuda_std_17)\n"
        "target_include_directories(one PRIVATE\n    inc\n    ${CUDAToolkit_INCLUDE_DIRS}\n)\n"
    )
    checkout = corpus_programs.open_checkout(f"{tmp_path}@abc")
    (program,) = corpus_programs.programs(checkout)
    assert program.sources == ("one.cu", "two.cpp")
    own = f"-I{folder / 'inc'}"
    assert program.flags[1:] == (own, "--extended-lambda", "-lcublas", "-Xcompiler=-fopenmp", "-std=c++17")


def test_the_listed_arguments_are_of_programs_once() -> None:
    lines = corpus_programs.ARGUMENTS.read_text().splitlines()
    assert len(corpus_programs.read_arguments()) == len(lines) - 1
    assert lines[1:] == sorted(lines[1:])


def test_an_unknown_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LadderError, match="no checkout of"):
        corpus_programs.open_checkout(str(tmp_path))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one program, which says PASS if its argument is 6."""
    folder = tmp_path / "src" / "twice-cuda"
    folder.mkdir(parents=True)
    (tmp_path / "benchmarks.yaml").touch()
    (folder / "main.cu").write_text(TESTED)
    (folder / "Makefile").write_text(
        "main: main.cu\n\tnvcc -O3 -c main.cu -o main.o\nrun: main\n\t./main 6\n"
    )
    return tmp_path


def options(checkout: Path, **others: object) -> argparse.Namespace:
    given = {
        "checkouts": [f"{checkout}@abc"],
        "only": None,
        "seconds": 100.0,
        "arch": "sm_80",
        "check": False,
        "native": False,
        "jobs": 2,
    }
    return argparse.Namespace(**given | {"out": checkout / "table.csv"} | others)


def test_an_error_of_a_build_names_the_file_in_its_checkout(checkout: Path) -> None:
    (checkout / "src" / "twice-cuda" / "main.cu").write_text("int main() { return lacking; }\n")
    run_corpus.run(options(checkout))
    (row,) = run_corpus.read(checkout / "table.csv").values()
    assert (row.outcome, row.detail[:34]) == ("refused", "src/twice-cuda/main.cu(1): error: ")


def test_a_program_is_run_once_until_it_changes(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_corpus.run(options(checkout))
    (row,) = run_corpus.read(checkout / "table.csv").values()
    assert (row.outcome, row.detail, row.path, row.commit) == ("right", "PASS", "src/twice-cuda", "abc")
    assert row.instructions is not None and row.instructions > 0 and row.findings is None
    assert "right    src/twice-cuda" in capsys.readouterr().out
    run_corpus.run(options(checkout))
    assert capsys.readouterr().out == "zjin-lcf/HeCBench: 1 programs: 1 right\n"
    run_corpus.run(options(checkout, check=True))
    (row,) = run_corpus.read(checkout / "table.csv").values()
    assert (row.outcome, row.findings, row.places) == ("right", 0, "")
    makefile = checkout / "src" / "twice-cuda" / "Makefile"
    makefile.write_text(makefile.read_text().replace("./main 6", "./main 7"))
    run_corpus.run(options(checkout))
    (row,) = run_corpus.read(checkout / "table.csv").values()
    assert (row.outcome, row.arguments) == ("wrong", "7")


def test_a_slow_program_is_tried_again_with_more_time(tmp_path: Path) -> None:
    program = Program(Checkout("a/b", "0", tmp_path), tmp_path, ("main.cu",))
    row = Row("a/b", "0", ".", "slow", seconds=60.0, program=program.digest(), emulator="e")
    rows = {("a/b", "."): row}
    assert run_corpus.is_current(rows, program, "e", options(tmp_path, seconds=60.0))
    assert not run_corpus.is_current(rows, program, "e", options(tmp_path, seconds=600.0))
    assert not run_corpus.is_current(rows, program, "f", options(tmp_path, seconds=60.0))
    assert not run_corpus.is_current({}, program, "e", options(tmp_path, seconds=60.0))


def test_only_the_listed_programs_run(tmp_path: Path) -> None:
    checkout = Checkout("a/b", "0", tmp_path)
    found = [Program(checkout, tmp_path / "src" / name, ("main.cu",)) for name in ("one", "two", "three")]
    (tmp_path / "names").write_text("two\nsrc/three\n")
    assert run_corpus.chosen(found, tmp_path / "names") == found[1:]
    assert run_corpus.chosen(found, None) == found


def test_an_output_is_compared_without_the_lines_of_the_clock() -> None:
    output = "sum =  -1.50e+2\nAverage kernel time 3.2 (us)\n\nmoved 12 GB/s\n"
    assert corpus_outputs.lasting(output) == "sum = -1.50e+2"
    assert corpus_outputs.tells("sum = -1.50e+2") and not corpus_outputs.tells("done")
    assert not corpus_outputs.tells("1 " * corpus_outputs.LONGEST)


def test_of_two_runs_the_lines_that_both_print_are_kept() -> None:
    assert corpus_outputs.repeated("sum 1.00001\ncopy 625\n", "sum 1\ncopy 640\n") == "sum 1.00001"
    assert corpus_outputs.repeated("sum 1\n", "sum 1\nsum 1\n") == ""


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("sum = -150.001 of 3", True),
        ("sum = -150.1 of 3", False),
        ("sum = -150 of 4", False),
        ("total = -150 of 3", False),
        ("sum = -150", False),
        ("sum 3\nsum = -150 of 3\ncopy 7", True),
        ("sum = nan of 3", False),
    ],
)
def test_outputs_agree_in_words_and_in_numbers_within_the_tolerance(text: str, same: bool) -> None:
    assert corpus_outputs.agree(text, "sum = -1.50e+2 of 3") is same
    assert corpus_outputs.agree("error -nan", "error nan") and not corpus_outputs.agree(
        "error 0", "error nan"
    )


def test_error_bars_are_not_compared() -> None:
    assert corpus_outputs.agree("r = 0.84321 +- nan", "r = 0.84320 +- 0.000114")
    assert not corpus_outputs.agree("r = 0.85 +- nan", "r = 0.84320 +- 0.000114")
    assert not corpus_outputs.agree("r = 0.84320", "r = 0.84320 +- 0.000114")


@pytest.mark.parametrize(("printed", "outcome"), [("7\n", "right"), ("8\n", "wrong")])
def test_a_program_that_checks_nothing_is_compared_with_a_gpu(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, printed: str, outcome: str
) -> None:
    source = checkout / "src" / "twice-cuda" / "main.cu"
    source.write_text(TESTED.replace('"%s\\n", x[3] == wanted ? "PASS" : "FAIL"', '"%d\\n", x[3] + 1'))
    (program,) = corpus_programs.programs(corpus_programs.open_checkout(f"{checkout}@abc"))
    gpu = Output(program.checkout.name, program.path, program.digest(), "H100", printed)
    corpus_outputs.write([gpu], checkout / "outputs.csv")
    outputs = corpus_outputs.read(checkout / "outputs.csv")
    monkeypatch.setattr(corpus_outputs, "read", lambda: outputs)
    run_corpus.run(options(checkout))
    (row,) = run_corpus.read(checkout / "table.csv").values()
    assert row.outcome == outcome


def test_a_script_s_sizes_and_repetitions_are_edited(tmp_path: Path) -> None:
    edits = (
        (r"\b(warmup|iters): int = \d+", r"\1: int = 1"),
        (r"^(\w+) = \[(\d+)(?:, \d+)+\]", r"\1 = [\2]"),
    )
    (tmp_path / "relu.py").write_text("def run(iters: int = 1000): ...\nSs = [64, 128]\n    Ss = [64, 128]\n")
    program = Program(Checkout("a/b", "0", tmp_path), tmp_path, ("relu.py",), edits=edits)
    assert program.script() == "def run(iters: int = 1): ...\nSs = [64]\n    Ss = [64, 128]\n"
    assert program.digest() != Program(program.checkout, tmp_path, ("relu.py",)).digest()


def test_each_source_of_a_script_with_many_is_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "kernels" / "attn" / "attn.py"
    script.parent.mkdir(parents=True)
    script.write_text('lib = load(sources=["./mma/basic/a.cu", "./mma/swizzle/b.cu", "./bind.cc"])\n')
    (tmp_path / "kernels" / "notes-v1.cu").touch()
    (tmp_path / "kernels" / "attn" / "alone.cu").write_text("int main() {}\n")
    name, one = "xlite-dev/LeetCUDA", "kernels/attn/attn.py"
    edits = [(name, "kernels/attn/*", r"=\[.*\]", '=["PART"]')]
    monkeypatch.setattr(corpus_programs, "read_edits", lambda: edits)
    monkeypatch.setattr(corpus_programs, "read_arguments", lambda: {(name, one): ["--N", "64"]})
    found = corpus_programs.programs(corpus_programs.open_checkout(f"{tmp_path}@abc"))
    assert [program.path for program in found] == [
        "kernels/attn/mma/basic/a.cu",
        "kernels/attn/mma/swizzle/b.cu",
        "kernels/attn/alone.cu",
    ]
    assert found[1].script() == 'lib = load(sources=["mma/swizzle/b.cu"])\n'
    assert [program.arguments for program in found] == [("--N", "64"), ("--N", "64"), ()]
    assert found[0].digest() != found[1].digest()


RULE = "-" * 85


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("out_f32: ['0.5 ', '2.0'], time:1ms\nout_f32_th: ['0.50001', '2.0'], time:1ms", "right"),
        ("out_f32: ['0.6', '2.0'], time:1ms\nout_f32_th: ['0.5', '2.0'], time:1ms", "wrong"),
        ("out_f32: ['0.5', '2.0'], time:1ms", None),
        (f"out_f16: 1.01, time:1ms\nout_f16_th: 1.0, time:1ms\n{RULE}\nout_f32: 3, time:1ms", "right"),
        (f"out_f32: 3, time:1ms\n{RULE}\nout_f32_th: 3, time:1ms", None),
        ("out_hgemv: 1.01, time:1ms\nout_f16_th: 1.0, time:1ms", "right"),
        ("out_tf32: 1.01, time:1ms\nout_f32_th: 1.0, time:1ms", "right"),
        (f"out_f16: {[0.004] * 8}\nout_f16_th: {[0.00401] * 8}", "right"),
        (f"out_f16: {[0.005] * 8}\nout_f16_th: {[0.004] * 8}", "wrong"),
    ],
)
def test_values_are_compared_with_torch_s_of_their_section(lines: str, wanted: str | None) -> None:
    found = corpus_outputs.beside_torch(lines)
    assert (found and found[0]) == wanted
