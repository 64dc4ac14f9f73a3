"""The site: lessons with their outputs, rungs with their annotated sources, the manual, in all languages.

    python docs/site.py [--into build/site]

Sphinx does the work (docs/site/conf.py). What it makes needs no network: open index.html.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import translations

from ladder.common.progress import steps
from ladder.evaluation import default_problem, evaluate
from ladder.lines import annotate, line_table
from ladder.render import page
from ladder.stages import Stage, discover, root

ROOT = Path(__file__).resolve().parent.parent
#: What the pages of docs/site/conf.py are made of: the texts, and their pictures.
_TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/pictures/*",
    "examples/README.md",
    "notebooks/*.ipynb",
    "notebooks/README.md",
    "stages/*/README.md",
    "results/README.md",
)


def rungs() -> list[Stage]:
    """The project's own, in the ladders' order."""
    return [stage for stage in discover() if stage.path.parent == root()]


def write_source_pages(stages: Iterable[Stage], folder: Path) -> None:
    """For each rung its source with what the emulator counts beside each line, as ``folder``/NAME.html.

    A page that is younger than the rung's sources stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shared = [*(root() / "include").rglob("*"), *(ROOT / "emulator").rglob("*")]
    stale = []
    for stage in stages:
        target = folder / f"{stage.name}.html"
        newest = max(path.stat().st_mtime for path in (*stage.path.iterdir(), *shared))
        if not target.exists() or target.stat().st_mtime < newest:
            stale.append((stage, target))
    with steps("Counting", len(stale)) as progress:
        for stage, target in stale:
            with progress.step(stage.name):
                run = evaluate(stage, default_problem(stage.name), backend="emulator")
                annotated = annotate(line_table(run.execution.launches))
                target.write_text(page(annotated, stage.name, run.problem, run.row["arch"]), encoding="utf-8")


def translated_tree(language: str, folder: Path) -> Path:
    """The texts of the site in another language, English where there is no translation yet."""
    for path in [path for pattern in _TEXTS for path in ROOT.glob(pattern)]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    translate = translations.translator(language)
    for source in translations.PAGES:
        # Links between pages stay as they are: the tree has the names of the English one.
        text = translations.translated((ROOT / source).read_text(encoding="utf-8"), translate)
        (folder / source).write_text(text, encoding="utf-8")
    for lesson in translations.LESSONS:
        translations.write_lesson(lesson, folder / lesson, translate)
    return folder


def run_sphinx(source: Path, target: Path, language: str) -> None:
    """Builds the site of one language. Raises CalledProcessError; Sphinx has said why."""
    command = [sys.executable, "-m", "sphinx", "-q", "-c", str(ROOT / "docs" / "site")]
    subprocess.run([*command, "-D", f"language={language}", str(source), str(target)], check=True)
    # The home page is what a folder shows.
    shutil.copyfile(target / "README.html", target / "index.html")


def main() -> int:
    parser = argparse.ArgumentParser(description="The site as a folder that needs no network.")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site", metavar="DIR")
    options = parser.parse_args()
    write_source_pages(rungs(), options.into / "lines")
    run_sphinx(ROOT, options.into, "en")
    for language in translations.LANGUAGES:
        # gettext and browsers write zh-CN, Sphinx zh_CN.
        code = language.replace("-", "_")
        run_sphinx(translated_tree(language, options.into.parent / "texts" / code), options.into / code, code)
    print(options.into / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
