"""A build by pip alone, which gets nothing but what ``[build-system]`` requires."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from rungs import named

from ladder.compile import gxx, pinned_nvcc
from ladder.compile.toolchain import VERSION

ROOT = Path(__file__).parents[2]
EMULATOR = ROOT / "emulator"
INCLUDE = re.compile(r"^#include <(\S+)>", re.MULTILINE)


def required() -> dict[str, str]:
    """The packages that an isolated build gets, with their versions."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [listed] = re.findall(r"^requires = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    return dict(re.findall(r'"([\w-]+)([=><][^"]*)"', listed))


def headers_read(include: Path) -> set[Path]:
    """All headers of CUDA that the emulator's sources include, directly or through others."""
    sources = [path for path in EMULATOR.rglob("*") if path.suffix in (".cpp", ".h")]
    names = {name for path in sources for name in INCLUDE.findall(path.read_text(encoding="utf-8"))}
    text = "".join(f"#include <{name}>\n" for name in sorted(names) if (include / name).is_file())
    command = [gxx(), "-std=c++20", "-M", "-x", "c++", "-"]
    command += [f"-isystem{EMULATOR / 'headers'}", f"-isystem{include}"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = {Path(word).resolve() for word in done.stdout.split() if word.startswith("/")}
    return {path for path in read if path.is_relative_to(include.resolve())}


def test_the_headers_that_the_emulator_reads_are_required() -> None:
    nvcc = pinned_nvcc()
    if not nvcc.pinned:
        pytest.skip("LADDER_NVCC names a toolkit that no package has installed")
    packages = importlib.metadata.distributions(path=[str(nvcc.home.parents[1])])
    owner = {
        Path(str(one.locate_file(file))).resolve(): one.name for one in packages for file in one.files or ()
    }
    read = headers_read(nvcc.include)
    assert {"cuda_runtime_api.h", "cuda_fp16.h"} <= {path.name for path in read}
    owners = {owner[path] for path in read}
    assert {name: required().get(name) for name in owners} == dict.fromkeys(owners, f"=={VERSION}.*")


@pytest.mark.full
def test_pip_builds_an_sdist_in_isolation(tmp_path: Path) -> None:
    """As a release's sdist is made, from committed files alone, and built: without this environment's
    packages, settings and compiler caches. Minutes, and packages from an index.
    """
    (tmp_path / "source").mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", tmp_path / "source"], input=archive, check=True)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CMAKE_ARGS", "LADDER_CUDA_INCLUDE")
    }
    build = f"from scikit_build_core.build import build_sdist; build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path / "source", env=environment, check=True)
    [sdist] = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as contents:
        names = contents.getnames()
    assert any(name.endswith(f"/stages/{named('v1')}/kernel.cu") for name in names)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(sdist)]
    done = subprocess.run(pip, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert [*tmp_path.glob("flash_ladder-*.whl")]
