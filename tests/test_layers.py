"""The layering of the folders, in Python and in the emulator: no upward dependencies, and no cycles.

docs/architecture.md has the same order, from the top down.
"""

import ast
import graphlib
import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, EMULATOR = ROOT / "ladder", ROOT / "emulator"
#: Bottom up.
FOLDERS = (
    *(
        "common",
        "operations",
        "stages",
        "build",
        "emulator",
        "foreign",
        "backends",
        "evaluation",
        "functional",
    ),
    *("banks", "lines", "nsight", "profiling", "plots", "render", "torch", "distributed", "exercises"),
    *("classroom", "debugger", "lessons", "serving", "bench", "cli"),
)
EMULATOR_FOLDERS = (
    *("ptx", "program", "machine", "instructions", "sanitizer", "runtime", "libraries", "python"),
    "wasm",
)
#: Modules outside the folders, which all may use.
GROUND = {"doors", "errors", "project", "_emulator"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, modules: set[str]) -> Iterator[str]:
    """The package's modules that a module imports, anywhere in its code; a folder stands for its door."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "ladder")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ladder":
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                yield whole if whole in modules else str(node.module)


@cache
def python_graph() -> dict[str, set[str]]:
    paths = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    return {name: set(imports(path, set(paths))) - {name} for name, path in paths.items()}


def folder(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def upward(arrows: Mapping[str, set[str]], order: tuple[str, ...]) -> list[str]:
    """Describes the dependencies on folders that are not below."""
    return [
        f"{source} -> {target}"
        for source, targets in arrows.items()
        for target in targets
        if source != target and order.index(target) > order.index(source)
    ]


def test_every_folder_has_a_place() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(FOLDERS)
    assert {path.parent.name for path in EMULATOR.glob("*/*.cpp")} == set(EMULATOR_FOLDERS)


def test_no_arrow_points_up_in_python() -> None:
    arrows: dict[str, set[str]] = {}
    for module, targets in python_graph().items():
        if folder(module) in FOLDERS:
            arrows.setdefault(folder(module), set()).update(
                folder(target) for target in targets if folder(target) not in (GROUND | {""})
            )
    assert upward(arrows, FOLDERS) == []


def test_no_module_goes_round() -> None:
    graph = python_graph()
    # A door loads the modules behind it only on demand, so naming them is not a dependency.
    doors = {name for name in graph if (ROOT / Path(*name.split(".")) / "__init__.py").is_file()}
    modules = {name: targets - doors for name, targets in graph.items() if name not in doors}
    list(graphlib.TopologicalSorter(modules).static_order())  # raises CycleError, which names the cycle


def test_the_ground_knows_no_folder() -> None:
    known = {
        module: folder(target)
        for module, targets in python_graph().items()
        for target in targets
        if folder(module) in GROUND
    }
    assert not set(known.values()) & set(FOLDERS)


def test_others_use_what_the_door_names() -> None:
    """Names from another folder must be imported through its door, not from its modules."""
    inner = []
    for path in PACKAGE.rglob("*.py"):
        own = folder(module_of(path))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and re.match(r"ladder(\.\w+){2}", node.module or ""):
                other = folder(str(node.module))
                if other not in (own, "common", "") and path.name != "__init__.py":
                    inner.append(f"{path.relative_to(ROOT)}: {node.module}")
    assert inner == []


def test_every_name_of_a_door_is_there() -> None:
    """And no module has its name, which would replace it."""
    for package, targets in exports().items():
        modules = {path.stem for path in (ROOT / Path(*package.split("."))).glob("*.py")}
        assert not targets & modules, package
        loaded = importlib.import_module(package)
        assert all(hasattr(loaded, name) for name in targets), package


def exports() -> dict[str, set[str]]:
    """The names that each door offers."""
    doors: dict[str, set[str]] = {}
    for path in [PACKAGE / "__init__.py", *PACKAGE.glob("*/__init__.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.If):
                names = {
                    name.name for one in node.body if isinstance(one, ast.ImportFrom) for name in one.names
                }
                doors[module_of(path)] = names
    return doors


def test_no_arrow_points_up_in_the_emulator() -> None:
    arrows: dict[str, set[str]] = {name: set() for name in EMULATOR_FOLDERS}
    for path in EMULATOR.glob("*/*"):
        if path.parent.name in arrows and path.suffix in (".h", ".cpp", ".def"):
            found = re.findall(r'#include "(\w+)/', path.read_text(encoding="utf-8"))
            arrows[path.parent.name].update(name for name in found if name in EMULATOR_FOLDERS)
    assert upward(arrows, EMULATOR_FOLDERS) == []


def test_the_picture_has_the_same_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for folders, place in ((FOLDERS, "ladder/"), (EMULATOR_FOLDERS, "emulator/")):
        named = re.findall(rf"^\| `{place}(\w+)/` \|", text, re.MULTILINE)
        assert tuple(reversed(named)) == folders
