"""Which files have a rung's name, and a rung renamed.

    python -m tools.rename_rung v3            # the files that renaming v3 touches
    python -m tools.rename_rung v3 v3_xor     # renames it in this work tree, which must be clean

Everything else writes the rung's number, which stays. The folder is moved, the name replaced in all tracked
files except the changelog, and the old name becomes an alias. A lesson's file keeps its name, to which pages
elsewhere link. An exercise keeps its name, too: where it is the rung's, look at the diff.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
ALIASES = "ladder/stages/renamed.py"
#: What is not rewritten: the history, and what has the names of exercises, which may be those of rungs.
LEFT = ("CHANGELOG.md", "exercises/counts.json", "tools/expected_advice.toml")
#: What a rename touches besides the files that :func:`others` finds.
OWN = ("its folder", "before of the next rungs", "its lessons", "its exercises", "results")
OTHERS = "other files"
_LESSON = re.compile(r"^\| \[\w+\]\((\w+)\.ipynb\) \| ([^:]*)", re.MULTILINE)


class Repository:
    """The rungs in a work tree, and which of its files name them."""

    def __init__(self, root: Path = ROOT) -> None:
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=root, text=True).split("\0")
        self.root = root
        self.files = [Path(name) for name in listed if name and (root / name).is_file()]
        self.folders = {
            path.parent.name: path.parent
            for path in self.files
            if path.parts[0] == "stages" and path.name == "stage.toml"
        }

    def named(self, word: str) -> str:
        """The rung with this name or number. Exits if there is none."""
        for name in self.folders:
            if word in (name, name.partition("_")[0]):
                return name
        raise SystemExit(f"there is no rung {word!r} in stages/")

    def touched(self) -> dict[str, dict[str, list[Path]]]:
        """By rung and kind, the files that have its name. The aliases get a new one in any case."""
        found: dict[str, dict[str, list[Path]]] = {
            name: defaultdict(list, {OTHERS: [Path(ALIASES)]}) for name in self.folders
        }
        lessons = self._lessons()
        pattern = _pattern("|".join(self.folders))
        for path, text in self.texts():
            for name in {match[0] for match in pattern.finditer(text)}:
                if str(path) not in (ALIASES, *LEFT):
                    found[name][self._kind(path, name, text, lessons[name])].append(path)
        return found

    def texts(self) -> Iterator[tuple[Path, str]]:
        for path in self.files:
            try:
                yield path, (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue

    def _kind(self, path: Path, name: str, text: str, lessons: list[str]) -> str:
        own, before, lesson, exercise, results = OWN
        if path.is_relative_to(self.folders[name]):
            return own
        if path.name == "stage.toml" and tomllib.loads(text).get("before") == name:
            return before
        if path.parts[0] == "notebooks" and path.stem in lessons:
            return lesson
        return {"exercises": exercise, "results": results}.get(path.parts[0], OTHERS)

    def _lessons(self) -> dict[str, list[str]]:
        """By rung the files of its lessons, by the list in notebooks/README.md."""
        listed = (self.root / "notebooks" / "README.md").read_text(encoding="utf-8")
        numbers = {name.partition("_")[0]: name for name in self.folders}
        found = defaultdict(list)
        for file, about in _LESSON.findall(listed):
            for number in re.findall(r"`(\w+)`", about):
                if number in numbers:
                    found[numbers[number]].append(file)
        return found

    def rename(self, old: str, new: str) -> None:
        """Moves the folder and the tests in it, replaces the name, and makes the old one an alias."""
        if new.partition("_")[0] != old.partition("_")[0] or not re.fullmatch(r"\w+", new):
            raise SystemExit(f"{new} cannot be the name: the number of {old} stays")
        for path, text in self.texts():
            if str(path) not in LEFT and (changed := _pattern(old).sub(new, text)) != text:
                (self.root / path).write_text(changed, encoding="utf-8")
        aliases = self.root / ALIASES
        begin = "OTHER_NAMES: dict[str, str] = {"
        aliases.write_text(aliases.read_text().replace(begin, f'{begin}\n    "{old}": "{new}",\n', 1))
        folder = self.folders[old]
        for file in (self.root / folder).glob(f"*{old}*"):
            file.rename(file.with_name(file.name.replace(old, new)))
        (self.root / folder).rename(self.root / folder.with_name(new))


def _pattern(name: str) -> re.Pattern[str]:
    """The name as a word, or behind ``test_``; not in a lesson's file name, behind ``03_`` or ``01b_``."""
    return re.compile(rf"(?<![A-Za-z0-9])(?<!\d_)(?<!\d[a-z]_)(?:{name})(?![A-Za-z0-9_])")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rung", help="its name or number")
    parser.add_argument("new", nargs="?", help="its name from now on")
    options = parser.parse_args(words)
    repository = Repository()
    name = repository.named(options.rung)
    touched = repository.touched()[name]
    for kind in (*OWN, OTHERS):
        print(f"{kind}: {len(touched[kind])}")
    print(*(f"  {path}" for path in sorted(touched[OTHERS])), sep="\n")
    if options.new:
        if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
            raise SystemExit("the work tree has changes; commit them first, so that the rename can be seen")
        repository.rename(name, options.new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
