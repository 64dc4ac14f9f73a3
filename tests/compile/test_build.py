import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rungs import named
from waiting import wait_for

from ladder.common import cache, processes
from ladder.compile import EmulatorTarget, build, build_all, build_program, emulator_library, shortened
from ladder.errors import BuildError, CacheError, LadderError
from ladder.operations import Problem
from ladder.run.evaluation import evaluate
from ladder.stages import discover

TARGET = EmulatorTarget("sm_80")
PROBLEM = Problem(1, 2, 20, 9, 32, kv_heads=1, is_causal=True)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache that is empty except for the compiler."""
    compiler = EmulatorTarget("sm_80").nvcc().path
    monkeypatch.setenv("LADDER_NVCC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache.root()


def test_a_dropped_stage_is_built_run_and_right(naive):
    result = evaluate("naive", PROBLEM, backend="emulator")
    assert result.passed, result.text
    assert result.row["wavefronts_ld"] == result.row["conflicts"] == 0
    assert result.row["global_sectors_ld"] > 0


def test_a_build_is_kept_until_something_changes(drop_stage):
    folder = drop_stage("mine")
    first = build(discover()["mine"], TARGET)
    made = first.stat().st_mtime_ns
    (folder / "README.md").write_text("a lesson")
    assert build(discover()["mine"], TARGET) == first and first.stat().st_mtime_ns == made
    (folder / "helper.cuh").write_text("// new")
    assert build(discover()["mine"], TARGET) != first


def test_whatever_the_compiler_reads_counts(drop_stage, tmp_path):
    """A changed header above the stage, with an unusual name, or behind a link causes a rebuild."""
    above = tmp_path / "stages" / "above.h"
    (tmp_path / "elsewhere").mkdir()
    linked = tmp_path / "elsewhere" / "linked.h"
    includes = '#include "../above.h"\n#include "table.inc"\n#include "more/linked.h"\n'
    folder = drop_stage("mine", includes + drop_stage.kernel)
    (folder / "more").symlink_to(linked.parent)
    for path in (above, folder / "table.inc", linked):
        path.write_text("// as it was\n")
    builds = [build(discover()["mine"], TARGET)]
    for path in (above, folder / "table.inc", linked):
        path.write_text("// changed\n")
        builds.append(build(discover()["mine"], TARGET))
    assert len(set(builds)) == 4
    assert build(discover()["mine"], TARGET) == builds[-1]


def test_flags_of_the_environment_count(naive, monkeypatch):
    from ladder.compile import extensions

    def planned():
        return extensions._plan(discover()["naive"], TARGET, {}).extension

    plain = planned()
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-DSOMETHING")
    assert planned() != plain
    monkeypatch.delenv("NVCC_APPEND_FLAGS")
    assert planned() == plain


@pytest.mark.parametrize(
    "damage", [lambda so: so.write_bytes(b""), lambda so: so.unlink()], ids=["cut", "gone"]
)
def test_a_damaged_build_is_made_again(drop_stage, damage):
    drop_stage("mine")
    extension = build(discover()["mine"], TARGET)
    whole = extension.read_bytes()
    damage(extension)
    assert build(discover()["mine"], TARGET) == extension and len(extension.read_bytes()) == len(whole)


def test_a_damaged_list_of_dependencies_is_made_again(drop_stage):
    from ladder.compile import extensions

    drop_stage("mine")
    extension = build(discover()["mine"], TARGET)
    listing = extensions._plan(discover()["mine"], TARGET, {}).dependencies
    whole = listing.read_bytes()
    listing.write_bytes(b"\0\xff\n/nowhere\n")
    assert build(discover()["mine"], TARGET) == extension and listing.read_bytes() == whole


def test_options_are_macros(drop_stage):
    toml_options = "\n[options]\nWRONG = [0, 1]\n"
    folder = drop_stage("mine", drop_stage.kernel.replace("o[x] / l", "o[x] / l + WRONG"))
    with open(folder / "stage.toml", "a") as file:
        file.write(toml_options)
    assert evaluate("mine", PROBLEM, backend="emulator").passed
    wrong = evaluate("mine", PROBLEM, backend="emulator", options={"WRONG": "1"})
    assert not wrong.passed and abs(wrong.errors["o"].largest - 1) < 1e-3


def test_one_problem_compiles_what_it_needs_unless_all_is_there(drop_stage):
    drop_stage("mine")
    stage = discover()["mine"]
    narrow = build(stage, TARGET, only=PROBLEM)
    assert build_all([stage], {"mine": TARGET}, only={"mine": PROBLEM}) == {"mine": narrow}
    assert narrow == build(stage, TARGET, stage.needed_options([PROBLEM]))
    assert stage.narrowed([PROBLEM]).needed_options([PROBLEM]) == {}
    whole = build(stage, TARGET)
    assert narrow != whole == build(stage, TARGET, only=PROBLEM)


def test_a_kernel_that_does_not_compile_fails_alone(drop_stage):
    drop_stage("undeclared", "void f() { undeclared_thing(); }\n")
    stages = [discover()[name] for name in ("naive", "undeclared")]
    results = build_all(stages, {stage.name: TARGET for stage in stages})
    assert results["naive"].is_file()
    error = results["undeclared"]
    assert isinstance(error, BuildError)
    assert "undeclared_thing" in error.message and "undeclared does not compile" in error.message
    command = error.hint.removeprefix("To repeat: ")
    assert "nvcc" in command and "kernel.cu" in command
    again = subprocess.run(command, shell=True, cwd=cache.root(), capture_output=True, text=True)
    assert again.returncode != 0 and "undeclared_thing" in again.stderr
    assert not any(path.is_dir() for path in (cache.root() / "build").glob("*undeclared-emulator*"))


def test_a_kernel_without_launch_does_not_link_quietly(drop_stage):
    drop_stage("empty", "__global__ void f() {}\n")
    with pytest.raises(Exception, match="launch"):
        evaluate("empty", PROBLEM, backend="emulator")


def test_an_entry_point_that_the_emulator_lacks_is_refused(drop_stage):
    """It would otherwise bind to the CUDA runtime that torch may have loaded."""
    call = "cudaNotInAnyRuntime(); naive<<<"
    declared = 'extern "C" int cudaNotInAnyRuntime();\n' + drop_stage.kernel
    drop_stage("mine", declared.replace("naive<<<", call))
    with pytest.raises(BuildError, match="does not have: cudaNotInAnyRuntime"):
        build(discover()["mine"], TARGET)


def test_a_decoy_runtime_in_the_process_is_not_reached(naive, tmp_path):
    """torch's CUDA build loads libcudart with RTLD_GLOBAL; none of our calls may bind to it."""
    archive = str(emulator_library().entry_points)
    symbols = subprocess.run(["nm", archive], capture_output=True, text=True, check=True).stdout
    names = sorted(set(re.findall(r" T ((?:__)?cuda\w+)$", symbols, re.MULTILINE)))
    assert "cudaLaunchKernel" in names and "__cudaRegisterFatBinary" in names
    decoy = tmp_path / "libcudart.c"
    decoy.write_text(
        "#include <stdlib.h>\n" + "".join(f"void {name}(void) {{ _Exit(77); }}\n" for name in names)
    )
    library = tmp_path / "libcudart.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(decoy)], check=True)
    program = f"""
        import ctypes
        decoy = ctypes.CDLL({str(library)!r}, mode=ctypes.RTLD_GLOBAL)
        from ladder.run.evaluation import evaluate
        from ladder.operations import Problem
        result = evaluate("naive", {PROBLEM!r}, backend="emulator")
        assert result.passed, result.text
        decoy.cudaGetLastError()
    """
    code = subprocess.run([sys.executable, "-c", textwrap.dedent(program)]).returncode
    assert code == 77, "the decoy must have been callable, and be reached by its own call alone"


def test_a_file_in_the_way_of_the_cache(naive, own_cache):
    own_cache.parent.mkdir(parents=True)
    own_cache.write_text("in the way")
    with pytest.raises(CacheError, match="a file stands"):
        build(discover()["naive"], TARGET)


def test_a_full_disk_while_compiling_is_one_error(naive, own_cache, monkeypatch):
    run = processes.run

    def full(command, *places):
        result = run(command, *places)
        if "-c" in command:
            return subprocess.CompletedProcess(command, 1, "", "fatal error: No space left on device")
        return result

    monkeypatch.setattr(processes, "run", full)
    with pytest.raises(CacheError, match="full"):
        build(discover()["naive"], TARGET)
    left = [path for path in own_cache.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    assert left == []


SLOW_COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "Cuda compilation tools, release 13.0, V13.0.1"; exit;; esac
sleep 600 & echo $! >> "$(dirname "$0")/children"
wait
"""


@pytest.mark.parametrize(
    "command",
    [["build", "--backend", "emulator", "naive", named("v1")], ["emulate"]],
    ids=["build", "emulate"],
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_compilers_and_leaves_nothing(hello, naive, tmp_path, command, number):
    compiler = tmp_path / "bin" / "nvcc"
    compiler.parent.mkdir()
    compiler.write_text(SLOW_COMPILER)
    compiler.chmod(0o755)
    environment = {**os.environ, "LADDER_NVCC": str(compiler), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = [*command, str(hello)] if command == ["emulate"] else command
    process = subprocess.Popen([sys.executable, "-m", "ladder.cli", *words], env=environment)
    children = compiler.parent / "children"
    try:
        assert wait_for(lambda: children.exists() and children.read_text().endswith("\n"))
        process.send_signal(number)
        assert process.wait(timeout=30) == 128 + number
    finally:
        process.kill()
    assert wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children.read_text().split()))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_dir() and "emulator" in path.name]


def test_message_is_shortened_to_its_errors():
    noise = [f"note {n}" for n in range(30)]
    errors = [f"x.cu({n}): error: number {n}" for n in range(20)]
    lines = shortened("\n".join([*noise, *errors])).splitlines()
    assert lines[0] == errors[0] and lines[-1] == "... and 8 more lines" and len(lines) == 13
    assert shortened("one line") == "one line"


HELLO = """
#include "greeting.h"
#include <cstdio>
__global__ void hello(int *out) { out[threadIdx.x] = GREETING + threadIdx.x; }
int main(int argc, char **argv) {
  int *out;
  cudaMallocManaged(&out, 32 * sizeof(int));
  hello<<<1, 32>>>(out);
  if (cudaDeviceSynchronize() != cudaSuccess) return 9;
  std::printf("%d %d\\n", out[31], argc);
  return argc > 1 ? 3 : 0;
}
"""


@pytest.fixture
def hello(tmp_path):
    (tmp_path / "hello.cu").write_text(HELLO)
    (tmp_path / "greeting.h").write_text("#define GREETING 100\n")
    time.sleep(0.05)  # otherwise the header may look newly written, and everything is recompiled
    return tmp_path / "hello.cu"


def test_a_program_is_built_again_when_a_header_changes(hello):
    first = build_program([hello], TARGET)
    assert build_program([hello], TARGET) == first
    assert subprocess.run([first], capture_output=True, text=True).stdout == "131 1\n"
    (hello.parent / "greeting.h").write_text("#define GREETING 200\n")
    second = build_program([hello], TARGET)
    assert subprocess.run([second], capture_output=True, text=True).stdout == "231 1\n"
    (hello.parent / "greeting.h").write_text("#define GREETING 100\n")
    assert build_program([hello], TARGET) == first


def test_a_line_directive_may_name_a_file_that_is_not_there(hello):
    hello.write_text(f'#line 1 "generated.y"\n{hello.read_text()}')
    first = build_program([hello], TARGET)
    assert build_program([hello], TARGET) == first


def test_a_program_is_built_again_when_a_library_changes(hello):
    folder = hello.parent
    hello.write_text('#include <cstdio>\nint number();\nint main() { std::printf("%d", number()); }\n')

    def output(number):
        (folder / "number.cpp").write_text(f"int number() {{ return {number}; }}\n")
        subprocess.run(["g++", "-c", "number.cpp"], cwd=folder, check=True)
        subprocess.run(["ar", "rcs", "libnumber.a", "number.o"], cwd=folder, check=True)
        program = build_program([hello], TARGET, [f"-L{folder}", "-lnumber"])
        return subprocess.run([program], capture_output=True, text=True).stdout

    assert [output(1), output(2), output(1)] == ["1", "2", "1"]


def test_relative_paths_of_the_environment_begin_in_the_working_directory(hello, tmp_path, monkeypatch):
    hello.write_text('#include <greeting.h>\n#include <cstdio>\nint main() { std::printf("%d", GREETING); }')
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-Ihere")
    said = []
    for number in (1, 2):
        headers = tmp_path / f"{number}" / "here"
        headers.mkdir(parents=True)
        (headers / "greeting.h").write_text(f"#define GREETING {number}\n")
        monkeypatch.chdir(headers.parent)
        program = build_program([hello], TARGET)
        said.append(subprocess.run([program], capture_output=True, text=True).stdout)
    assert said == ["1", "2"]


def test_special_functions_are_there_if_they_are_used(tmp_path):
    """Without them sources compile in less time, so that is tried first."""
    source = tmp_path / "zeta.cu"
    source.write_text(
        "#include <cmath>\n#include <cstdio>\n__global__ void kernel() {}\n"
        'int main() { kernel<<<1, 1>>>(); std::printf("%.4f", std::riemann_zeta(2.0)); }\n'
    )
    program = build_program([source], TARGET)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "1.6449"


def test_a_program_in_a_folder_of_any_name(hello, tmp_path):
    folder = tmp_path / "l'été (2) #1, ладья"
    folder.mkdir()
    for name in ("hello.cu", "greeting.h"):
        (tmp_path / name).rename(folder / name)
    first = build_program([folder / "hello.cu"], TARGET)
    assert subprocess.run([first], capture_output=True, text=True).stdout == "131 1\n"
    (folder / "greeting.h").write_text("#define GREETING 200\n")
    assert build_program([folder / "hello.cu"], TARGET) != first


def test_a_cache_whose_path_the_compiler_would_split_is_refused(hello, tmp_path, monkeypatch):
    monkeypatch.setattr("ladder.compile.housekeeping.builds", lambda: tmp_path / "a, b")
    with pytest.raises(BuildError, match=r"has a comma.*split"):
        build_program([hello], TARGET)


def test_a_program_whose_name_the_compiler_would_split_is_refused(hello, tmp_path):
    with pytest.raises(BuildError, match=r"'a,b\.cu' has a comma.*split"):
        build_program([hello.rename(tmp_path / "a,b.cu")], TARGET)


@pytest.mark.parametrize("name", ["$(touch made).cu", "a`b`.cu", 'a"b.cu', "a\\b.cu"])
def test_a_name_that_a_shell_would_obey_is_refused(hello, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = hello.rename(tmp_path / name)
    with pytest.raises(BuildError, match="which the compiler's shell would obey"):
        build_program([path], TARGET)
    assert not (tmp_path / "made").exists()


def test_a_stage_in_a_folder_that_a_shell_would_obey_is_refused(drop_stage, tmp_path, monkeypatch):
    drop_stage("mine")
    (tmp_path / "stages").rename(tmp_path / "$HOME")
    monkeypatch.setenv("LADDER_STAGES", str(tmp_path / "$HOME"))
    with pytest.raises(BuildError, match="would obey"):
        build(discover()["mine"], TARGET)


@pytest.fixture
def saved_while_compiling(monkeypatch):
    """Saves a file with each of the given texts while the compiler runs. Returns the runs."""

    def save(path, *texts):
        run, left, compiled = processes.run, list(texts), []

        def slow(command, *places):
            result = run(command, *places)
            if {"-c", "-ptx"} & {*command} and not any("binding" in word for word in command):
                compiled.append(command)
                if left:
                    path.write_text(left.pop(0))
                    time.sleep(0.05)  # more than a step of the clock of file times
            return result

        monkeypatch.setattr(processes, "run", slow)
        return compiled

    return save


def test_a_program_is_never_filed_under_what_was_saved_while_it_compiled(hello, saved_while_compiling):
    header = hello.parent / "greeting.h"
    compiled = saved_while_compiling(header, "#define GREETING 300\n")
    first = build_program([hello], TARGET)
    assert len(compiled) == 2 and subprocess.run([first], capture_output=True, text=True).stdout == "331 1\n"
    header.write_text("#define GREETING 100\n")
    second = build_program([hello], TARGET)
    assert subprocess.run([second], capture_output=True, text=True).stdout == "131 1\n"


def test_a_save_that_is_taken_back_while_a_program_compiles(hello, saved_while_compiling):
    """The compiler saw contents that differ from those before and after its run."""
    compiled = saved_while_compiling(hello, hello.read_text())
    assert build_program([hello], TARGET).exists() and len(compiled) == 2


def test_a_program_that_is_saved_all_the_time_is_an_error(hello, saved_while_compiling):
    saved_while_compiling(hello, *(HELLO + f"// {number}\n" for number in range(9)))
    with pytest.raises(BuildError, match=r"hello\.cu was written each of the 3 times"):
        build_program([hello], TARGET)


def test_a_stage_is_never_filed_under_what_was_saved_while_it_compiled(drop_stage, saved_while_compiling):
    kernel = drop_stage("mine") / "kernel.cu"
    changed = drop_stage.kernel + "// saved\n"
    saved_while_compiling(kernel, changed)
    extension = build(discover()["mine"], TARGET)
    assert kernel.read_text() == changed
    assert build(discover()["mine"], TARGET) == extension
    kernel.write_text(drop_stage.kernel)
    assert build(discover()["mine"], TARGET) != extension


def test_programs_built_at_once_wait_for_each_other(hello, saved_while_compiling):
    compiled = saved_while_compiling(hello)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: build_program([hello], TARGET), range(2))
    assert first == second and len(compiled) == 1


def test_a_program_that_is_there_is_only_read(hello, monkeypatch):
    """A cache may be read-only."""
    first = build_program([hello], TARGET)

    def refuse(*_):
        raise CacheError("read-only")

    for writer in ("lock", "unfinished", "write_text"):
        monkeypatch.setattr(cache, writer, refuse)
    assert build_program([hello], TARGET) == first


def test_dependencies_are_those_of_now_and_no_others(hello, tmp_path):
    """A header that is no longer included does not matter any more."""
    build_program([hello], TARGET)
    hello.write_text(HELLO.replace('#include "greeting.h"', "#define GREETING 1"))
    first = build_program([hello], TARGET)
    (tmp_path / "greeting.h").write_text("#define GREETING 7\n")
    assert build_program([hello], TARGET) == first


def test_only_the_system_itself_is_left_out_of_the_dependencies():
    from ladder.compile.compiling import dependencies_of

    nvcc = TARGET.nvcc()
    rule = (
        f"x: /a/x.cu /usr/include/stdio.h /usr/include2/a.h /usr/libfoo/b.h \\\n"
        f" /usr/lib/c.h {nvcc.home}/include/d.h {nvcc.home}x/e.h"
    )
    names = [path.name for path in dependencies_of(rule, Path("/"), nvcc)]
    assert names == ["x.cu", "a.h", "b.h", "e.h"]


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(LadderError, match=r"no file .*nothing\.cu"):
        build_program([tmp_path / "nothing.cu"], TARGET)


def test_a_program_whose_names_the_standard_took_is_compiled_as_it_was(hello):
    """As CUDA's samples do, whose helper_math.h has a lerp; std::lerp is C++20's."""
    hello.write_text(
        "#include <cmath>\n#include <cstdio>\nusing namespace std;\n"
        "inline float lerp(float a, float b, float t) { return a + t * (b - a); }\n"
        'int main() { std::printf("%g %ld\\n", lerp(1.f, 2.f, 0.5f), __cplusplus); }\n'
    )
    program = build_program([hello], TARGET)
    assert subprocess.run([program], capture_output=True, text=True).stdout == "1.5 201703\n"


def test_a_missing_header_is_shown(hello):
    (hello.parent / "greeting.h").unlink()
    with pytest.raises(BuildError, match=r"greeting\.h"):
        build_program([hello], TARGET)
