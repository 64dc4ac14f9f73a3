import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ladder.compile import toolchain
from ladder.errors import ToolchainError


def test_an_override_that_cannot_be_run(monkeypatch):
    monkeypatch.setenv("LADDER_NVCC", "/nowhere/nvcc")
    with pytest.raises(ToolchainError, match="LADDER_NVCC names /nowhere/nvcc"):
        toolchain.pinned_nvcc()


def test_a_missing_host_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainError, match="no-such-compiler is not there") as caught:
        toolchain.gxx()
    assert "apt-get install g++" in caught.value.hint


def test_a_download_that_fails_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("LADDER_NVCC", raising=False)
    monkeypatch.setattr(toolchain, "REQUIREMENT", "no-such-compiler==13.0.*")
    with pytest.raises(ToolchainError, match="could not be fetched") as caught:
        toolchain.pinned_nvcc()
    assert "pip install" in caught.value.hint and "'no-such-compiler==13.0.*'" in caught.value.hint
    assert [path.name for path in tmp_path.rglob("*") if not path.name.endswith(".lock")] == ["flash-ladder"]


def test_a_download_that_is_ended_leaves_nothing(tmp_path):
    program = (
        "import time; from ladder.compile import toolchain\n"
        "toolchain._pip_install = lambda target: (print(target, flush=True), time.sleep(60))\n"
        "toolchain.pinned_nvcc()"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "LADDER_NVCC": ""}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        half = Path(process.stdout.readline().decode().strip())
        assert half.is_dir()
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM and not half.exists()
    finally:
        process.kill()


def test_system_compiler_is_that_of_cuda_home(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text('#!/bin/sh\necho "Cuda compilation tools, release 12.4, V12.4.131"\n')
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = toolchain.system_nvcc()
    assert found is not None and found.path == nvcc and not found.pinned
    assert found.version == "12.4.131"


def test_g_plus_plus_is_found():
    assert "g++" in toolchain.gxx()
    assert toolchain.gxx_version()


@pytest.mark.parametrize(
    "override, message",
    [
        ("/bin", "LADDER_NVCC names /bin, which cannot be run"),
        ("/bin/true", "/bin/true is no nvcc: its --version names no release"),
        ("{tmp}/data", "{tmp}/data cannot be run: Exec format error"),
    ],
)
def test_an_override_that_is_no_nvcc(monkeypatch, tmp_path, override, message):
    (tmp_path / "data").write_bytes(b"\x00\x01")
    (tmp_path / "data").chmod(0o755)
    monkeypatch.setenv("LADDER_NVCC", override.format(tmp=tmp_path))
    with pytest.raises(ToolchainError, match=message.format(tmp=tmp_path)):
        print(toolchain.pinned_nvcc().version)


def test_the_host_compiler_may_have_options(monkeypatch):
    from ladder.compile import EmulatorTarget

    monkeypatch.delenv("CXX", raising=False)
    plain = toolchain.gxx()
    for text, flags in (("", []), (" ", []), ("g++ -m64", ["-m64"]), ("ccache g++ '-DA=1 2'", ["-DA=1 2"])):
        monkeypatch.setenv("CXX", text)
        assert toolchain.gxx() == plain and toolchain.gxx_flags() == flags
        assert [word for word in EmulatorTarget("sm_80").flags() if word in ("-m64", "-DA=1 2")] == flags
    monkeypatch.setenv("CXX", "g++ '")
    with pytest.raises(ToolchainError, match=r"CXX is .*quot"):
        toolchain.gxx()
