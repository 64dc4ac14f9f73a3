"""Finds the programs in checkouts of public repositories, and how each is built and run."""

from __future__ import annotations

import csv
import hashlib
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from ladder.errors import LadderError

#: Arguments that make a program's problem small enough; the programs not listed get their own.
ARGUMENTS = Path(__file__).parents[2] / "results" / "corpus" / "arguments.csv"
#: What is replaced in scripts whose own sizes and repetitions would take too long.
EDITS = Path(__file__).parents[2] / "results" / "corpus" / "edits.csv"
#: Compiler flags that change what a program does; the others (warnings, architectures) stay behind.
_KEPT = re.compile(
    r"-[DI]|-std=|--std=|--?use_fast_math|--extended-lambda|--expt-|-O[0-3]|-rdc=true|-maxrregcount|-l|-fopenmp"
)
_SOURCES = (".cu", ".cpp", ".cc", ".cxx")
#: Of scripts: they build an extension.
_LOADS = re.compile(r"\bload\(|\btry_load_\w+\(")


@dataclass(frozen=True)
class Checkout:
    """A repository ``name``, such as ``zjin-lcf/HeCBench``, checked out at ``commit`` in a folder."""

    name: str
    commit: str
    folder: Path


@dataclass(frozen=True)
class Program:
    """A program of a checkout: its folder, where it runs, and how it is built and run.

    ``sources`` are relative to ``folder``: ``.cu`` and C++ files, or one ``.py`` for ``ladder torch``.
    ``edits`` are patterns and their replacements in the script, in which PART stands for ``part``: the source
    that it builds, if the folder has many. ``refused`` says why it cannot be tried.
    """

    checkout: Checkout
    folder: Path
    sources: tuple[str, ...]
    flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    refused: str = ""
    edits: tuple[tuple[str, str], ...] = ()
    part: str = ""

    @property
    def path(self) -> str:
        """Its name in the table: the folder, its part of that, or for a script the file."""
        folder = self.folder.relative_to(self.checkout.folder)
        return str(folder / (self.part or self.sources[0])) if self.part or self.is_script else str(folder)

    @property
    def is_script(self) -> bool:
        return self.sources[:1] != () and self.sources[0].endswith(".py")

    def script(self) -> str:
        """The text of the script, with the edits."""
        text = (self.folder / self.sources[0]).read_text()
        for pattern, replacement in self.edits:
            text = re.sub(pattern, replacement.replace("PART", self.part), text, flags=re.MULTILINE)
        return text

    def absent_file(self) -> str:
        """The first argument that names a file, in a folder, which the checkout lacks; "" if none does."""
        named = (word for word in self.arguments if re.search(r"/[^/]*\.\w+$", word))
        return next((word for word in named if not (self.folder / word).exists()), "")

    def digest(self) -> str:
        """Hashes all files of the folder, the flags and the arguments."""
        how = (self.sources, self.flags, self.arguments, self.refused, *self.edits)
        how += (self.part,) if self.part else ()
        parts = hashlib.sha256(repr(how).encode())
        for file in sorted(self.folder.rglob("*")):
            if file.is_file() and file.suffix in (*_SOURCES, ".h", ".hpp", ".cuh", ".py", ".inl"):
                parts.update(file.name.encode() + file.read_bytes())
        return parts.hexdigest()[:16]


def open_checkout(text: str) -> Checkout:
    """Reads ``DIR`` or ``DIR@COMMIT``. Raises :class:`LadderError` if the repository is unknown."""
    place, _, commit = text.partition("@")
    folder = Path(place).resolve()
    for name, (mark, _) in _KNOWN.items():
        if (folder / mark).exists():
            return Checkout(name, commit or _commit(folder), folder)
    raise LadderError(
        f"{folder} is no checkout of {', '.join(_KNOWN)}", "Name the folder that has the README."
    )


def _commit(folder: Path) -> str:
    result = subprocess.run(["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True)
    if result.returncode:
        raise LadderError(f"{folder} is not a git checkout", f"Name its commit: {folder}@COMMIT")
    return result.stdout.strip()


def programs(checkout: Checkout) -> list[Program]:
    """All programs of a checkout, with the arguments of :data:`ARGUMENTS` and the edits of :data:`EDITS`."""
    chosen, edits = read_arguments(), read_edits()
    found = []
    for program in _KNOWN[checkout.name][1](checkout):
        names = (program.path, replace(program, part="").path)
        words = next((chosen[checkout.name, name] for name in names if (checkout.name, name) in chosen), None)
        if words is not None:
            program = replace(program, arguments=tuple(words))
        if program.is_script:
            own = (
                edit for name, path, *edit in edits if name == checkout.name and fnmatch(program.path, path)
            )
            program = replace(program, edits=tuple((pattern, new) for pattern, new in own))
        found.append(program)
    return found


def read_arguments(table: Path = ARGUMENTS) -> Mapping[tuple[str, str], Sequence[str]]:
    """The listed arguments of each program, by repository and path."""
    with table.open(newline="") as file:
        return {
            (row["repository"], row["path"]): shlex.split(row["arguments"]) for row in csv.DictReader(file)
        }


def read_edits(table: Path = EDITS) -> Sequence[tuple[str, str, str, str]]:
    """Repository, paths, pattern and replacement of each edit."""
    with table.open(newline="") as file:
        rows = csv.DictReader(file)
        return [(row["repository"], row["path"], row["pattern"], row["replacement"]) for row in rows]


def _hecbench(checkout: Checkout) -> Iterator[Program]:
    for folder in sorted((checkout.folder / "src").glob("*-cuda")):
        made = subprocess.run(["make", "-n", "run"], cwd=folder, capture_output=True, text=True)
        yield of_commands(checkout, folder, made.stdout.replace("\\\n", " ").splitlines())


def of_commands(checkout: Checkout, folder: Path, commands: Sequence[str]) -> Program:
    """The program that a makefile's commands compile, and its first run."""
    sources: list[str] = []
    flags: list[str] = []
    arguments: tuple[str, ...] | None = None
    for command in commands:
        words = _words(command)
        if words and re.search(r"nvcc|g\+\+", words[0]):
            sources += [w for w in words if w.endswith(_SOURCES) and w not in sources]
            flags += [
                w for w in _kept(words) if w not in flags and ("g++" not in words[0] or "-std" not in w)
            ]
        elif arguments is None and any(word.startswith("./") for word in words):
            first = next(number for number, word in enumerate(words) if word.startswith("./"))
            arguments = tuple(words[first + 1 :])
    missing = (
        "" if sources and arguments is not None else "its makefile has no plain compile and run commands"
    )
    return Program(checkout, folder, tuple(sources), tuple(flags), arguments or (), missing)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _kept(words: Sequence[str]) -> Iterator[str]:
    """The flags to keep, each as one word."""
    for number, word in enumerate(words):
        if word in ("-I", "-D", "-l") and number + 1 < len(words):
            yield word + words[number + 1]
        elif word == "-Xcompiler" and "-fopenmp" in words[number + 1 : number + 2]:
            yield "-Xcompiler=-fopenmp"
        elif _KEPT.match(word) and word not in ("-I", "-D", "-l", "-fopenmp", "-lineinfo"):
            yield word


def _samples(checkout: Checkout) -> Iterator[Program]:
    for listing in sorted((checkout.folder / "Samples").glob("[0-6]_*/*/CMakeLists.txt")):
        text, folder = listing.read_text(), listing.parent
        added = re.search(r"add_executable\(\s*\S+([^)]*)\)", text)
        sources = tuple(w for w in added[1].split() if w.endswith(_SOURCES)) if added else ()
        libraries = re.findall(r"CUDA::(\w+)", text)
        included = re.findall(r"target_include_directories\(\s*\S+\s+\w+([^)]*)\)", text)
        own = [folder / word for words in included for word in words.split() if (folder / word).is_dir()]
        flags = [f"-I{path}" for path in (checkout.folder / "Common", *own)] + ["--extended-lambda"]
        flags += [f"-l{name}" for name in libraries if name not in ("cudart", "cuda_driver")]
        flags += ["-Xcompiler=-fopenmp"] if "OpenMP::" in text else []
        # All samples ask for separable compilation; these launch kernels from kernels, which needs it.
        flags += ["-rdc=true"] if folder.name.startswith("cdp") else []
        flags += [f"-std=c++{year}" for year in re.findall(r"cxx_std_(\d+)", text)[:1]]
        missing = "" if sources else "its CMakeLists.txt names no source"
        yield Program(checkout, folder, sources, tuple(flags), (), missing)


def _leetcuda(checkout: Checkout) -> Iterator[Program]:
    for script in sorted((checkout.folder / "kernels").glob("*/*.py")):
        text = script.read_text()
        if script.name == "setup.py" or not _LOADS.search(text):
            continue
        # The script of attention has one kernel per source, and more of them than can be built in one run.
        parts = re.findall(r'"\./((?:mma/basic|mma/swizzle|cutlass)/\S+\.cu)"', text)
        for part in parts or [""]:
            yield Program(checkout, script.parent, (script.name,), part=part)
    for source in sorted((checkout.folder / "kernels").glob("*/*.cu")):
        if re.search(r"^int main\(", source.read_text(), re.MULTILINE):
            yield Program(checkout, source.parent, (source.name,), part=source.name)


#: Each repository: a file that only it has, and its programs.
_KNOWN = {
    "zjin-lcf/HeCBench": ("benchmarks.yaml", _hecbench),
    "NVIDIA/cuda-samples": ("Samples/0_Introduction", _samples),
    "xlite-dev/LeetCUDA": ("kernels/notes-v1.cu", _leetcuda),
}
