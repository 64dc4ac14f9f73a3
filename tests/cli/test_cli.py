"""The command line, run in this process."""

import json
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rungs import named
from waiting import cpu_seconds, descendants, wait_for

from ladder.cli import main
from ladder.cli.output import say_written
from ladder.common import isolation
from ladder.run.evaluation import COLUMNS

SMALL = ["--problem", "1,2,20,9,32", "--backend", "emulator"]


def test_json_on_stdout_is_nothing_but_rows(naive, capsys):
    assert (
        main(["compare", "naive", *SMALL, "--kv-heads", "1", "--causal", "--scale", "-5e-1", "--json", "-"])
        == 0
    )
    rows = json.loads(capsys.readouterr().out)
    assert [list(row) for row in rows] == [list(COLUMNS)]
    assert (rows[0]["Hkv"], rows[0]["causal"], rows[0]["passed"], rows[0]["dtype"]) == (1, True, True, "f32")
    assert rows[0]["time_ms"] is None and rows[0]["tflops"] is None


def test_json_file_and_table(naive, capsys, tmp_path):
    assert main(["compare", "naive", *SMALL, "--json", str(tmp_path / "rows.json")]) == 0
    assert "naive" in capsys.readouterr().out
    assert json.loads((tmp_path / "rows.json").read_text())[0]["stage"] == "naive"


@pytest.mark.parametrize(
    "command",
    [
        ["compare", *SMALL, "--json"],
        ["run", "naive", *SMALL, "--json"],
        ["check", "naive", "--json"],
        ["lines", "naive", "--json"],
        ["lines", "naive", "--html"],
        ["report", "naive", "--out"],
        ["explain", "v2:1", "--picture"],
        ["bank", "ld", "lane * 4", "--picture"],
        ["profile", "--json"],
        ["profile", "--report"],
        ["plot", "fragments", "--out"],
        ["emulate", "prog.cu", "--json"],
        ["time", "naive", "--json"],
        ["time", "naive", "--picture"],
        ["exercise", "check", "--all", "--json"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_written_is_refused_before_the_work(command, naive, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for target, message in ((".", "is a directory"), ("no/x.png", "there is no directory no")):
        assert main([*command, target]) == 2
        captured = capsys.readouterr()
        assert message in captured.err and captured.out == "" and "Building" not in captured.err


def test_a_written_file_is_named_as_it_is(capsys):
    say_written(Path("course[/b]", "grades.csv"))
    assert capsys.readouterr().err == "wrote course[/b]/grades.csv\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("script", "is not UTF-8 text"), ("none", "cannot be read"), (".", "cannot be read")],
)
def test_a_script_of_the_debugger_is_read_before_the_build(name, message, capsys, tmp_path):
    (tmp_path / "script").write_bytes(b"\xff\0")
    assert main(["debug", "lacking.cu", "--script", str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("folder.cu", "error: folder.cu is a directory"),
        ("lacking.cu", "error: there is no file lacking.cu"),
        ("v1_minima", f"error: there is no stage 'v1_minima'; did you mean {named('v1')}?"),
    ],
)
def test_what_cannot_be_debugged_is_one_error_before_the_build(
    target, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.cu").mkdir()
    assert main(["debug", target]) == 2
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == message and "Building" not in captured.err + captured.out


def test_an_output_without_a_name(naive, capsys):
    assert main(["compare", "naive", *SMALL, "--json", ""]) == 2
    assert "--json has no name of a file" in capsys.readouterr().err


def test_two_outputs_in_one_file(naive, capsys, tmp_path):
    target = str(tmp_path / "x")
    assert main(["lines", "naive", "--json", target, "--html", target]) == 2
    assert "--json and --html both write" in capsys.readouterr().err


def test_rows_are_kept_and_fresh_computes_again(drop_stage, capsys):
    drop_stage("mine")
    main(["compare", "mine", *SMALL])
    assert "computed before" not in capsys.readouterr().err
    main(["compare", "mine", *SMALL])
    assert "1 row was computed before" in capsys.readouterr().err
    main(["compare", "mine", *SMALL, "--fresh"])
    assert "computed before" not in capsys.readouterr().err


def test_a_wrong_stage_is_exit_code_1(drop_stage, capsys):
    drop_stage("wrong", drop_stage.kernel.replace("m + logf(l)", "m"))
    assert main(["compare", "wrong", *SMALL]) == 1
    captured = capsys.readouterr()
    assert "NO" in captured.out and "not finite" not in captured.out
    assert f"ladder check wrong --problem {SMALL[1]}\n" in captured.err
    assert main(["run", "wrong", *SMALL]) == 1
    message = capsys.readouterr().err
    assert "|lse - ref|" in message and "ladder check wrong" in message


def test_the_command_alone_lists_the_commands_with_a_line_each(capsys) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "compare" and len(lines) > 20
    assert max(map(len, lines)) <= 80 and "--help" in lines[-1]


def test_a_letter_sets_one_size(naive, capsys) -> None:
    assert main(["compare", "naive", "--problem", "1,1,8,8,32", "--N", "16", "--d", "32", "--json", "-"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["N"], row["M"], row["d"]) == (16, 8, 32)
    assert main(["compare", "naive", "--K", "16"]) == 2
    assert "attention has no size K" in capsys.readouterr().err
    assert main(["compare", "naive", "--N", "many"]) == 2
    assert "is not five whole numbers" in capsys.readouterr().err


def test_an_error_that_is_nan_is_said(drop_stage, naive, capsys):
    drop_stage("nan", drop_stage.kernel.replace("m + logf(l)", "0.f / (l - l)"))
    assert main(["compare", "naive", "nan", *SMALL, "--scale", "0.5"]) == 1
    captured = capsys.readouterr()
    [row] = [line for line in captured.out.splitlines() if "error of lse" in line]
    assert row.endswith("not finite ") and "e-" in row
    assert f"nan is wrong; what and where: ladder check nan --problem {SMALL[1]} --scale 0.5" in captured.err
    assert "naive is wrong" not in captured.err


def test_what_a_kernels_host_code_refuses_is_left_out_as_what_stage_toml_refuses(naive, drop_stage, capsys):
    drop_stage("picky", drop_stage.kernel.replace("p.dtype != DType::f32 ||", "true ||"))
    assert main(["compare", "naive", "picky", *SMALL, "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert [row["stage"] for row in json.loads(captured.out)] == ["naive"]
    assert "picky is left out: naive takes f32 and d = 32" in captured.err and "error" not in captured.err
    for command in (["compare"], ["run"], ["check"]):
        problem = SMALL if command != ["check"] else SMALL[:2]
        assert main([*command, "picky", *problem]) == 2
        assert "naive takes f32 and d = 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    "stages, words, reason",
    [
        ([named("v2")], ["--dtype", "bf16", "--arch", "sm_75"], "compute capability 8.0"),
        (
            [named("v2"), named("v3"), named("v4")],
            ["--problem", "65536,1,1,1,32"],
            "too large for a grid",
        ),
    ],
)
def test_what_the_rungs_host_code_refuses(capsys, stages, words, reason):
    assert main(["compare", *stages, *words, "--backend", "emulator", "--json", "-"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count(reason) == len(stages)
    assert "no stage takes this problem" in captured.err and "anonymous" not in captured.err


def test_check_leaves_out_what_does_not_take_the_problem(naive, drop_stage, capsys):
    drop_stage("half", toml=drop_stage.toml.replace('"f32"', '"f16"'))
    assert main(["check", "half", "naive", "--problem", SMALL[1], "--dtype", "f32"]) == 0
    captured = capsys.readouterr()
    assert "half is left out: half takes f16, not f32" in captured.err and "naive" in captured.out


def test_a_broken_stage_leaves_the_others_standing(naive, drop_stage, capsys):
    drop_stage("broken", "int x = ;")
    assert main(["compare", "naive", "broken", *SMALL, "--json", "-"]) == 1
    captured = capsys.readouterr()
    rows = {row["stage"]: row for row in json.loads(captured.out)}
    assert rows["naive"]["passed"] and not rows["broken"]["passed"]
    assert rows["broken"]["conflicts"] is None
    assert "broken does not compile" in captured.err and "Traceback" not in captured.err


def test_a_kernel_that_faults_names_the_place(drop_stage, capsys):
    drop_stage("faulty", drop_stage.kernel.replace("p.lse[long(", "p.lse[(1l << 40) + long("))
    assert main(["compare", "faulty", *SMALL]) == 1
    message = capsys.readouterr().err
    line = 1 + drop_stage.kernel.split("p.lse[")[0].count("\n")
    assert f"kernel.cu:{line}" in message and "lane" in message and "block" in message


def runners(pid):
    """Which of the process and its descendants have loaded a stage's extension."""
    everyone = [pid, *descendants(pid)]
    return [one for one in everyone if "ladder_stage.so" in Path(f"/proc/{one}/maps").read_text()]


def test_an_endless_kernel_meets_a_limit_and_ctrl_c(drop_stage, capsys, monkeypatch):
    endless = "for (volatile int i = 0; i < 2; i = 0) {}"
    drop_stage("endless", drop_stage.kernel.replace("float s = 0;", f"float s = 0; {endless}"))
    monkeypatch.setenv("LADDER_WARP_INSTRUCTION_LIMIT", "100000")
    assert main(["compare", "endless", *SMALL]) == 1
    assert "kernel.cu:" in capsys.readouterr().err
    monkeypatch.setenv("LADDER_WARP_INSTRUCTION_LIMIT", str(10**15))
    process = subprocess.Popen(
        [sys.executable, "-m", "ladder.cli", "compare", "endless", *SMALL], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert any(line.startswith("Running endless") for line in process.stderr)
        # Once the process that has loaded the extension computes, the kernel runs.
        assert wait_for(lambda: bool(runners(process.pid)))
        (runner,) = runners(process.pid)
        begun = cpu_seconds(runner)
        assert wait_for(lambda: cpu_seconds(runner) > begun + 0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() == "interrupted\n"
    finally:
        process.kill()


def test_outputs_that_are_not_written_fail(drop_stage, capsys):
    drop_stage("lazy", drop_stage.kernel.replace("row >= p.q_len", "row >= p.q_len - 1"))
    assert main(["run", "lazy", *SMALL]) == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["compare", "--problem", "1,1,0,8,64"], "N (q_len) is 0"),
        (["compare", "--problem", "1,1,8"], "not five whole numbers"),
        (["compare", "--dtype", "fp8"], "none of f32, f16, bf16"),
        (["compare", "--kv-heads", "3"], "not a multiple"),
        (["compare", "--scale", "nan"], "finite"),
        (["compare", "--problem", "1,1,8,8,48", "naive"], "takes d = 32, not 48"),
        (["compare", "--dtype", "f16", "naive"], "takes f32, not f16"),
        (["compare", "--inputs", "odd", *SMALL, "naive"], "none of normal"),
        (["compare", "--backend", "emulator", "--arch", "sm_70"], "none of sm_75"),
        (["compare", "--problem", "1000000,1000,1000000,1000000,128"], "GB of memory to run and check"),
        (
            ["compare", "--problem", "1,1,2147483647,1,32", "--backend", "emulator"],
            "of memory to run and check",
        ),
        (["check", "naive", "--problem", "1,2147483647,1,1,32"], "GB are available"),
        (["compare", "--backend", "tpu"], "none of auto, emulator, cuda"),
        (["compare", "--option", "BR"], "has no value"),
        (["compare", "--option", "NOTHING=1"], "no option NOTHING"),
        (["compare", "--option", "=1"], "has no name"),
        (["compare", "--problem", ""], "not five whole numbers"),
        (["compare", "--dtype", ""], "none of f32, f16, bf16"),
        (["bank", "ld", "0", "--active", ""], "no set of lanes"),
        (["bank", "ld", "0", "--swizzle", ""], "is not B,M,S"),
        (["bank", "ld", "0", "--swizzle", f"{'9' * 5000},1,1"], "is not B,M,S"),
        (["explain", "naive:\N{SUPERSCRIPT TWO}"], "is not STAGE:LINE"),
        (["explain", f"naive:{'9' * 5000}"], "is not STAGE:LINE"),
        (["explain", "naive:3", "--backend", "cuda"], "only the emulator sees addresses"),
        (["lines", "naive", "--backend", "tpu"], "only the emulator counts line by line"),
        (["check", "--backend", "cuda"], "only the emulator sees every access"),
        (["profile", "naive", "--import", "x.csv"], "Leave out one of them"),
        (["profile", "--causal", "--import", "x.csv"], "Leave out one of them"),
        (["run", "nonsense"], "no stage 'nonsense'"),
        (["lines", "nonsense"], "no stage 'nonsense'"),
        (["build", "nonsense"], "no stage 'nonsense'"),
        (["emulate", "nothing.cu"], "no file nothing.cu"),
        (["time", "nothing.cu"], "no file nothing.cu"),
        (["time", "nonsense"], "no stage 'nonsense'"),
        (["time", "naive", "--gpu", "h10"], "no GPU 'h10'"),
        (["compare", "naive", "--time", "h10"], "no GPU 'h10'"),
        (["lines", "naive", "--time", "h10"], "no GPU 'h10'"),
        (["time", "naive", "--clock", "0"], "a clock of 0 MHz is none"),
        (["time", named("v7"), "--gpu", "a100"], f"{named('v7')} runs on sm_90a alone, not on sm_80"),
        (["emulate", "x.cu", "--arch", "sm_12"], "none of sm_75"),
        (["emulate", "/tmp"], "/tmp is a directory"),
        (["emulate", "/proc/self/status"], "is no .cu file"),
        (["profile", "--import", "/tmp"], "/tmp is a directory"),
        (["bank", "ld", "lane * 128", "--element", "3"], "--element 3 is no size"),
        (["plot", "--out", "x.png"], "none is named"),
        (["plot", "walk", "--targets", "3"], "the picture mask alone"),
        (["plot", "mask", "--tile", "0,4"], "--tile 0,4 is no tile"),
        (["plot", "mask", "--targets", "30"], "30 targets do not fit into a sequence of 24 tokens"),
        (["plot", "fragments", "--out", "x.gif"], "ends in none of .png"),
    ],
)
def test_bad_input_is_one_clear_error(naive, capsys, arguments, message):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err and captured.out == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["lines", "naive", "--context", "-5"], "'-5' is no whole number of at least 0"),
        (["lines", "naive", "--context", "5", "--all"], "not allowed with"),
        (["compare", "--scale", "x"], "'x' is no number"),
    ],
)
def test_what_no_option_can_be(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_an_arch_that_there_is_not_is_said_once(capsys):
    assert main(["compare", "--backend", "emulator", "--arch", "foo"]) == 2
    known = "sm_75, sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100a"
    assert capsys.readouterr().err == f"error: arch 'foo' is none of {known}\n"


def test_cuda_without_a_gpu(naive, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["compare", "--backend", "cuda"]) == 2
    assert "no CUDA GPU" in capsys.readouterr().err


def test_lines_adds_up_to_the_row(naive, capsys):
    assert main(["run", "naive", *SMALL, "--json", "-"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert main(["lines", "naive", *SMALL, "--json", "-"]) == 0
    lines = json.loads(capsys.readouterr().out)
    for column in ("global_sectors_ld", "global_sectors_st", "wavefronts_ld", "conflicts"):
        assert sum(line[column] for line in lines) == row[column]
    stored = next(
        n for n, text in enumerate((naive / "kernel.cu").read_text().splitlines(), 1) if "p.lse[" in text
    )
    assert any(line["kernel_line"] == stored and line["global_sectors_st"] > 0 for line in lines)


def test_build_prints_where(naive, capsys):
    assert main(["build", "naive", "--arch", "sm_75", "--backend", "emulator"]) == 0
    assert "sm_75" in capsys.readouterr().out


def test_stages_lists_them(naive, capsys):
    assert main(["stages"]) == 0
    assert "one thread a row" in capsys.readouterr().out


def test_doctor_names_what_is_missing(capsys, monkeypatch):
    assert main(["doctor"]) == 0
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "no-such-compiler is not there" in out and "apt-get install g++" in out
    monkeypatch.setattr("ladder.stages.is_repository", lambda: False)  # a wheel, whose rungs come compiled
    assert main(["doctor"]) == 0


def test_doctor_says_which_protections_are_on(capsys, monkeypatch, tmp_path):
    with isolation.Child(folder=tmp_path) as child:
        protections = child.protections
    assert main(["doctor"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "confinement" in line)
    assert (", ".join(protections) or "none") in line
    monkeypatch.setattr(isolation, "Child", lambda folder: nullcontext(SimpleNamespace(protections=[])))
    assert main(["doctor"]) == 0
    assert "What is checked may use the network and" in capsys.readouterr().out


def test_doctor_works_before_anything_is_installed() -> None:
    """With the standard library alone."""
    command = [sys.executable, "-S", "-m", "ladder", "doctor"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert result.returncode == 1 and result.stderr == ""
    for line in (
        "C\\+\\+ compiler +/",
        "torch +torch is not installed",
        "emulator +the emulator is not built",
    ):
        assert re.search(line, result.stdout), result.stdout
    assert f"stages                {named('v1')}, " in result.stdout


def test_doctor_says_where_nsight_compute_is(capsys, monkeypatch, tmp_path):
    ncu = tmp_path / "ncu"
    ncu.write_text("#!/bin/sh\n")
    ncu.chmod(0o755)
    monkeypatch.setenv("LADDER_NCU", str(ncu))
    assert main(["doctor"]) == 0
    assert f"{ncu}, for ladder profile" in capsys.readouterr().out


def test_version_and_help(capsys):
    for word in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([word])
        assert ended.value.code == 0
    assert "https://" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name, said, hint",
    [
        ("prog.cu", "prog.cu is a program, not a stage", "ladder emulate --check prog.cu"),
        ("{naive}/kernel.cu", "is the kernel of the stage naive", "ladder check naive"),
        ("v1_lse", "the exercise v1_lse has not been started", "ladder exercise start v1_lse"),
        ("nothing", "there is no stage 'nothing'", "Stages: "),
    ],
)
def test_check_says_what_to_do_about_what_is_no_stage(
    name: str, said: str, hint: str, naive, capsys, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", name.format(naive=naive)]) == 2
    error = capsys.readouterr().err
    assert said in error and hint in error


def test_check_of_an_exercise_finds_its_file(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("LADDER_STAGES", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["exercise", "start", "cuda_vector_add"]) == 0
    capsys.readouterr()
    assert main(["check", "cuda_vector_add"]) == 2
    program = tmp_path / "my_exercises" / "cuda_vector_add" / "program.cu"
    assert f"ladder emulate --check {program}" in capsys.readouterr().err
    assert main(["exercise", "start", "v1_lse"]) == 0
    assert main(["check", "v1_lse", "--problem", "1,1,40,50,32"]) == 1
    assert "wrong result" in capsys.readouterr().out


def test_pictures_without_matplotlib_are_one_message(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for words in (["plot", "mask"], ["plot", "softmax"], ["explain", "v1:60", "--picture", "x.png"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: pictures need matplotlib\n") and "extra notebooks" in said
