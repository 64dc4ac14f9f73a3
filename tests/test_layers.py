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
#: Bottom up: the rooms, and the packages within a room, each named by its door.
PACKAGES = (
    *("common", "operations", "stages", "compile"),
    *("run.emulator", "run.foreign", "run.backends", "run.evaluation"),
    *("counts.banks", "counts", "counts.nsight", "counts.profiling", "counts.time"),
    *("show.plots", "show.render"),
    *("call", "call.torch", "call.distributed"),
    "debugger",
    *("course.exercises", "course.classroom", "course.lessons", "course.serving"),
    "cli",
)
EMULATOR_FOLDERS = (
    *("ptx", "program", "machine", "instructions", "sanitizer", "timing", "runtime", "libraries", "python"),
    "wasm",
)
#: Modules outside the folders, which all may use.
GROUND = {"doors", "errors", "moved", "project", "_emulator"}


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


def package_of(module: str) -> str:
    """The package that a module is in, or what it is called itself if it is in none."""
    parts = module.split(".")[1:]
    names = (".".join(parts[:length]) for length in (2, 1))
    return next((name for name in names if name in PACKAGES), parts[0] if parts else "")


def upward(arrows: Mapping[str, set[str]], order: tuple[str, ...]) -> list[str]:
    """Describes the dependencies on folders that are not below."""
    return [
        f"{source} -> {target}"
        for source, targets in arrows.items()
        for target in targets
        if source != target and order.index(target) > order.index(source)
    ]


def test_every_folder_has_a_place() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == {name.split(".")[0] for name in PACKAGES}
    assert exports().keys() - {"ladder"} | {"ladder.common"} == {f"ladder.{name}" for name in PACKAGES}
    assert {path.relative_to(EMULATOR).parts[0] for path in EMULATOR.rglob("*.cpp")} == set(EMULATOR_FOLDERS)


def test_no_arrow_points_up_in_python() -> None:
    arrows: dict[str, set[str]] = {}
    for module, targets in python_graph().items():
        if package_of(module) in PACKAGES:
            arrows.setdefault(package_of(module), set()).update(
                package_of(target) for target in targets if package_of(target) not in (GROUND | {""})
            )
    assert upward(arrows, PACKAGES) == []


def test_no_module_goes_round() -> None:
    graph = python_graph()
    # A door loads the modules behind it only on demand, so naming them is not a dependency.
    doors = {name for name in graph if (ROOT / Path(*name.split(".")) / "__init__.py").is_file()}
    modules = {name: targets - doors for name, targets in graph.items() if name not in doors}
    list(graphlib.TopologicalSorter(modules).static_order())  # raises CycleError, which names the cycle


def test_the_ground_knows_no_folder() -> None:
    known = {
        module: package_of(target)
        for module, targets in python_graph().items()
        for target in targets
        if package_of(module) in GROUND
    }
    assert not set(known.values()) & set(PACKAGES)


def test_others_use_what_the_door_names() -> None:
    """Names from another package must be imported through its door, not from its modules."""
    inner = []
    for path in PACKAGE.rglob("*.py"):
        own = package_of(module_of(path))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and re.match(r"ladder(\.\w+){2}", node.module or ""):
                other = package_of(str(node.module))
                through_door = node.module == f"ladder.{other}" or other in (own, "common", "")
                if not through_door and path.name != "__init__.py":
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
    for path in [PACKAGE / "__init__.py", *PACKAGE.rglob("*/__init__.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.If):
                names = {
                    name.name for one in node.body if isinstance(one, ast.ImportFrom) for name in one.names
                }
                doors[module_of(path)] = names
    return doors


def test_no_arrow_points_up_in_the_emulator() -> None:
    arrows: dict[str, set[str]] = {name: set() for name in EMULATOR_FOLDERS}
    for path in EMULATOR.rglob("*"):
        layer = path.relative_to(EMULATOR).parts[0]
        if layer in arrows and path.suffix in (".h", ".cpp", ".def"):
            found = re.findall(r'#include "(\w+)/', path.read_text(encoding="utf-8"))
            arrows[layer].update(name for name in found if name in EMULATOR_FOLDERS)
    assert upward(arrows, EMULATOR_FOLDERS) == []


def test_only_programs_call_the_entry_points_of_cuda() -> None:
    folders = {path.parent.name for path in (EMULATOR / "runtime").rglob("*.cpp")}
    assert folders == {"api", "observe", "work"}
    callers = [
        path
        for path in EMULATOR.rglob("*")
        if path.suffix in (".h", ".cpp") and '#include "runtime/api/' in path.read_text(encoding="utf-8")
    ]
    assert {path.parent.name for path in callers} == {"api"}


def test_the_picture_has_the_same_order() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for folders, place in ((PACKAGES, "ladder/"), (EMULATOR_FOLDERS, "emulator/")):
        named = re.findall(rf"^\| `{place}([\w/]+)/` \|", text, re.MULTILINE)
        assert tuple(name.replace("/", ".") for name in reversed(named)) == folders
