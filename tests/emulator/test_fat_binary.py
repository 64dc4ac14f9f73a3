"""Which PTX is chosen from a fat binary, and how broken ones fail."""

from __future__ import annotations

import struct
import subprocess

import pytest

from ladder import _emulator
from ladder.compile import toolchain

SOURCE = "__global__ void store(int *x) { x[threadIdx.x] = 1; }\n"
PLAIN = ["-Xfatbin", "--compress=false"]


@pytest.fixture(scope="module")
def fat_binary(tmp_path_factory):
    directory = tmp_path_factory.mktemp("fat")
    source = directory / "store.cu"
    source.write_text(SOURCE)
    made: dict[tuple[str, ...], bytes] = {}

    def make(*flags: str) -> bytes:
        if flags not in made:
            output = directory / f"{len(made)}.fatbin"
            nvcc = str(toolchain.pinned_nvcc().path)
            subprocess.run([nvcc, "-fatbin", *flags, str(source), "-o", str(output)], check=True)
            made[flags] = output.read_bytes()
        return made[flags]

    return make


def ptx_for(arch: int) -> str:
    return f"-gencode=arch=compute_{arch},code=compute_{arch}"


def test_the_highest_architecture_that_the_gpu_can_run_is_taken(fat_binary):
    binary = fat_binary(ptx_for(75), ptx_for(80), ptx_for(90), "-gencode=arch=compute_80,code=sm_80", *PLAIN)
    for gpu, wanted in [("sm_75", 75), ("sm_80", 80), ("sm_86", 80), ("sm_89", 80), ("sm_90", 90)]:
        ptx = _emulator.select_ptx(binary, gpu)
        assert f".target sm_{wanted}\n" in ptx and "store" in ptx
        assert ptx.rstrip().endswith("}")


def test_code_for_one_architecture_alone_runs_there_alone(fat_binary):
    binary = fat_binary("-gencode=arch=compute_90a,code=compute_90a", *PLAIN)
    assert ".target sm_90a" in _emulator.select_ptx(binary, "sm_90")
    with pytest.raises(ValueError, match="compute_90"):
        _emulator.select_ptx(binary, "sm_89")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([ptx_for(80)], ["compressed", "--compress=false"]),
        (["-gencode=arch=compute_80,code=sm_80", *PLAIN], ["machine code for sm_80", "code=compute_XX"]),
        ([ptx_for(90), *PLAIN], ["compute_90", "sm_80 cannot run", "LADDER_ARCH"]),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_way_out(fat_binary, flags, words):
    with pytest.raises(ValueError) as error:
        _emulator.select_ptx(fat_binary(*flags), "sm_80")
    for word in words:
        assert word in str(error.value)


def test_cut_off_anywhere_it_is_an_error(fat_binary):
    binary = fat_binary(ptx_for(75), ptx_for(80), *PLAIN)
    for size in range(len(binary)):
        with pytest.raises(ValueError):
            _emulator.select_ptx(binary[:size], "sm_80")


def test_sizes_that_lie_are_not_followed(fat_binary):
    binary = bytearray(fat_binary(ptx_for(80), *PLAIN))
    for place, size in [(8, 2**64 - 1), (8, 2**32), (16 + 8, 2**64 - 1), (16 + 8, len(binary))]:
        damaged = bytearray(binary)
        struct.pack_into("<Q", damaged, place, size)
        with pytest.raises(ValueError, match="truncated"):
            _emulator.select_ptx(bytes(damaged), "sm_80")
