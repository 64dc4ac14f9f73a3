"""``ladder torch``: scripts for CUDA, unchanged. Most build an extension, which takes minutes, once."""

import json
import textwrap
from pathlib import Path

import pytest

from ladder.call.torch import activate, run_script, scripts
from ladder.call.torch.process import hint
from ladder.cli import main
from ladder.errors import UnsupportedProblem
from ladder.run.emulator import ProgramResult

SCRIPTS = Path(__file__).parent / "scripts"
RIGHT = (
    "pybind",
    "library",
    "autograd",
    "training",
    "kernel_bench",
    "streams",
    "seeds",
    "transpose",
)

DEVICE = """
    import copy, sys, torch
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    x = torch.randn(8, 16, device="cuda")
    assert x.is_cuda and x.device == torch.device("cuda:0") and x.cpu().is_cpu
    assert torch.equal((x * 2 + 1).cpu(), x.cpu() * 2 + 1)
    x.view(4, 32).zero_()  # a view shares memory
    assert x.abs().sum().item() == 0
    out = torch.empty(0, device="cuda")
    torch.add(x, 1, out=out)  # resized
    assert out.shape == x.shape and out.sum().item() == 128
    linear = torch.nn.Linear(16, 4).cuda()
    linear(torch.ones(8, 16, device="cuda")).sum().backward()
    assert linear.weight.grad.is_cuda and (linear.weight.grad == 8).all()
    q = torch.randn(1, 2, 8, 16, device="cuda", requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert q.grad.is_cuda
    torch.manual_seed(3)
    drawn = torch.rand(3, device="cuda")
    torch.manual_seed(3)
    assert torch.equal(drawn.cpu(), torch.rand(3))
    torch.cuda.manual_seed(4)  # of the generator that draws for the device
    drawn = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(4)
    assert torch.equal(drawn, torch.rand(3, device="cuda"))
    copied = copy.deepcopy(linear)
    assert copied.weight.is_cuda and copied.weight.data_ptr() != linear.weight.data_ptr()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    held = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() == before + (4 << 20)
    del held
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() == before + (4 << 20)
    assert "Allocated memory" in torch.cuda.memory_summary()
    for layer in (torch.nn.LSTM(16, 4), torch.nn.GRU(16, 4)):
        expected, _ = layer(x.cpu())
        on_device = copy.deepcopy(layer).cuda()
        got, _ = on_device(x)
        assert got.is_cuda and torch.equal(got.cpu(), expected)
        got.sum().backward()
        expected.sum().backward()
        assert torch.equal(on_device.weight_hh_l0.grad.cpu(), layer.weight_hh_l0.grad)
    assert torch.nn.LSTMCell(16, 4).cuda()(x)[0].is_cuda
    probabilities = torch.randn(5, 1, 4, device="cuda").log_softmax(2)
    target, lengths = torch.ones(1, 2, dtype=torch.long), (torch.tensor([5]), torch.tensor([2]))
    loss = torch.nn.functional.ctc_loss
    assert torch.equal(
        loss(probabilities, target.cuda(), *lengths).cpu(), loss(probabilities.cpu(), target, *lengths)
    )
    with torch.cuda.nvtx.range("marked"):
        assert torch.compile(lambda a: a + 1)(x).is_cuda
    from torch._C import _cuda_CUDAAllocator_AllocatorState  # torch._dynamo.reset() does
    x.record_stream(torch.cuda.Stream())
    assert torch.cuda.ExternalStream(torch.cuda.Stream().cuda_stream).query()
    assert torch.nn.DataParallel(linear)(x).is_cuda
    torch.cuda.set_per_process_memory_fraction(0.5)
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as measured:
        x + 1
    rows = measured.key_averages()
    assert "aten::add" in {row.key for row in rows}
    rows.table(sort_by="cuda_time_total")
    assert torch.cuda.Stream(priority=-1).priority == -1
    for mistake, words in (
        (lambda: x + torch.randn(8, 16), "same device"),
        (lambda: torch.zeros(2, device="cuda:1"), "cuda:1"),
        (lambda: torch.cuda.get_device_name(1), "cuda:1"),
        (lambda: torch.ops.aten.cudnn_batch_norm(x, x, None, None, None, True, 0.1, 1e-5), "not emulated"),
        (lambda: x.numpy(), "cpu"),
        (lambda: x.to_sparse(), "Use dense tensors"),
        (lambda: torch.cuda.memory_snapshot(), "not emulated"),
    ):
        try:
            mistake()
        except (RuntimeError, TypeError, AttributeError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    sys.exit(7)
"""


def test_the_device(tmp_path, capfd):
    script = tmp_path / "device.py"
    script.write_text(textwrap.dedent(DEVICE))
    assert main(["torch", str(script)]) == 7, capfd.readouterr().err


def test_a_traceback_begins_in_the_script(tmp_path, capfd):
    script = tmp_path / "wrong.py"
    script.write_text("def fail():\n    raise ValueError('mine')\nfail()\n")
    assert main(["torch", str(script)]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ValueError: mine"
    assert [line.split('"')[1] for line in lines if line.startswith("  File")] == [str(script)] * 2


def test_torch_that_is_already_imported_keeps_its_devices():
    import torch

    del torch
    with pytest.raises(UnsupportedProblem, match="already imported"):
        activate()


def test_triton_on_the_device_gets_a_hint():
    assert "ladder.counting()" in hint(AssertionError("libcuda.so cannot found!\nPossible files"))
    assert hint(AssertionError("mine")) == ""


def test_a_script_that_ends_before_it_is_judged_is_not_clean(tmp_path, monkeypatch, capfd):
    script, rows = tmp_path / "gone.py", tmp_path / "rows.json"
    script.write_text("")
    for name in ("cuda_home", "device_library"):
        monkeypatch.setattr(scripts, name, lambda: None)
    monkeypatch.setattr(scripts, "run_counted", lambda *_, **__: ProgramResult(0, "sm_80", (), None))
    assert main(["torch", "--check", "--json", str(rows), str(script)]) == 1
    captured = capfd.readouterr()
    assert "not checked" in captured.err and "clean" not in captured.out and not rows.exists()
    assert main(["torch", str(script)]) == 0


def test_a_script_that_is_not_there(capfd):
    assert main(["torch", "nowhere.py"]) == 2
    assert "nowhere.py" in capfd.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("name", RIGHT)
def test_scripts_run_unchanged(name, capfd):
    assert main(["torch", str(SCRIPTS / f"{name}.py")]) == 0
    assert "right" in capfd.readouterr().out


@pytest.mark.full
def test_counts_of_each_launch_and_line(tmp_path, capfd):
    rows_file = tmp_path / "rows.json"
    script = str(SCRIPTS / "transpose.py")
    assert main(["torch", "--lines", "--json", str(rows_file), script]) == 0
    (row,) = json.loads(rows_file.read_text())
    capfd.readouterr()
    assert main(["torch", "--lines", "--json", "-", script]) == 0
    printed = capfd.readouterr().out
    assert printed.endswith(rows_file.read_text()) and "wavefronts ld" not in printed
    assert "transpose_kernel" in row["kernel"] and row["launches"] == 1 and row["block"] == [32, 32, 1]
    assert row["conflicts_ld"] == 32 * 31 and row["conflicts_st"] == 0
    source = (SCRIPTS / "kernels.cu").read_text().splitlines()
    (line,) = [line for line in row["lines"] if line["conflicts"]]
    assert "tile[threadIdx.x][threadIdx.y]" in source[line["kernel_line"] - 1]
    assert "tile[threadIdx.x][threadIdx.y]" in capfd.readouterr().out


@pytest.mark.full
def test_a_refused_launch_breaks_nothing_but_is_told(capfd):
    assert main(["torch", str(SCRIPTS / "refused_launch.py")]) == 1
    captured = capfd.readouterr()
    assert "right" in captured.out and "a block of 2048 x 1 x 1 threads" in " ".join(captured.err.split())


@pytest.mark.full
def test_a_fault_names_its_line(capfd):
    assert main(["torch", str(SCRIPTS / "fault.py")]) == 1
    captured = capfd.readouterr()
    assert "caught: CUDA error" in captured.out and "kernels.cu:" in captured.err


@pytest.mark.full
def test_a_crash_ends_the_scripts_process_alone(capfd):
    result = run_script(SCRIPTS / "crash.py")
    assert result.signal == "SIGSEGV" and [launch.launches for launch in result.launches] == [1]
    assert main(["torch", str(SCRIPTS / "crash.py")]) == 139
    assert "died: by SIGSEGV" in capfd.readouterr().err


@pytest.mark.full
def test_the_sanitizer_sees_torchs_memory():
    kinds = {finding.kind for finding in run_script(SCRIPTS / "race.py", check=True).findings}
    assert "race between warps" in kinds and "uninitialised read" in kinds
    assert run_script(SCRIPTS / "training.py", check=True).findings == ()


@pytest.mark.full
def test_an_extension_of_a_setup_script(tmp_path, monkeypatch, capfd):
    (tmp_path / "setup.py").write_text(
        textwrap.dedent(f"""
            from setuptools import setup
            from torch.utils.cpp_extension import BuildExtension, CUDAExtension
            kernels = CUDAExtension("kernels_of_setup", [{str(SCRIPTS / "kernels.cu")!r}])
            setup(name="kernels_of_setup", ext_modules=[kernels], cmdclass={{"build_ext": BuildExtension}})
        """)
    )
    (tmp_path / "use.py").write_text(
        "import torch, kernels_of_setup\nprint(kernels_of_setup.scale(torch.ones(2, device='cuda'), 2.0))\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["torch", "setup.py", "build_ext", "--inplace"]) == 0
    assert main(["torch", "use.py"]) == 0
    assert "tensor([2., 2.], device='cuda:0')" in capfd.readouterr().out


@pytest.mark.full
def test_an_extension_with_device_code_in_two_files_whose_kernels_launch_kernels(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "twice.cu").write_text("__device__ float twice(float x) { return 2 * x; }\n")
    (tmp_path / "scale.cu").write_text(
        textwrap.dedent("""
            #include <torch/extension.h>
            __device__ float twice(float x);
            __global__ void scale(float *x) { x[threadIdx.x] = twice(x[threadIdx.x]); }
            __global__ void launch(float *x, int n) { scale<<<1, n>>>(x); }
            void run(torch::Tensor x) { launch<<<1, 1>>>(x.data_ptr<float>(), x.numel()); }
            PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
        """)
    )
    (tmp_path / "setup.py").write_text(
        textwrap.dedent("""
            from setuptools import setup
            from torch.utils.cpp_extension import BuildExtension, CUDAExtension
            flags = {"cxx": [], "nvcc": ["-rdc=true"]}
            parts = CUDAExtension("parts", ["scale.cu", "twice.cu"], dlink=True, extra_compile_args=flags)
            setup(name="parts", ext_modules=[parts], cmdclass={"build_ext": BuildExtension})
        """)
    )
    (tmp_path / "use.py").write_text(
        "import torch, parts\nx = torch.ones(2, device='cuda')\nparts.run(x)\nprint(x)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["torch", "setup.py", "build_ext", "--inplace"]) == 0
    assert main(["torch", "use.py"]) == 0
    printed = capfd.readouterr().out
    assert "tensor([2., 2.], device='cuda:0')" in printed and "launch" in printed and "scale" in printed


@pytest.mark.full
def test_a_function_that_is_missing_is_named(tmp_path, capfd):
    script = tmp_path / "missing.py"
    script.write_text(
        textwrap.dedent("""
            from torch.utils.cpp_extension import load_inline
            source = '''
            extern "C" int cufftPlan1d(int *, int, int, int);
            int plan() { return cufftPlan1d(nullptr, 1, 2, 3); }
            '''
            load_inline("missing", source, functions=["plan"], with_cuda=True)
        """)
    )
    assert main(["torch", str(script)]) == 1
    assert "cufftPlan1d" in capfd.readouterr().err
