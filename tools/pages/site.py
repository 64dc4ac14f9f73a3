"""The site: lessons with their outputs, rungs with their annotated sources, the manual, in all languages.

    python -m tools.pages.site [--into build/site]

Sphinx does the work (docs/site/conf.py). What it makes needs no network: open index.html.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ladder.common import cache, files
from ladder.common.progress import steps
from ladder.counts import annotate, line_table
from ladder.run.evaluation import default_problem, evaluate
from ladder.show.render import page
from ladder.stages import Stage, discover, root
from tools.pages import live_pages, translations

ROOT = Path(__file__).resolve().parents[2]
#: What the pages of docs/site/conf.py are made of: the texts, and their pictures.
_TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/pictures/*",
    "examples/README.md",
    "notebooks/*.ipynb",
    "notebooks/README.md",
    "stages/**/README.md",
    "results/README.md",
)


#: The parts of the harness that a source's page comes from. The emulator's counts are held by tests.
_MAKERS = ("run/emulator", "counts", "show/render", "operations")


def rungs() -> list[Stage]:
    """The project's own, in the ladders' order."""
    return [stage for stage in discover() if stage.is_own]


def write_source_pages(stages: Iterable[Stage], folder: Path) -> None:
    """For each rung its source with what the emulator counts beside each line, as ``folder``/NAME.html.

    A page stays while the digest beside it is that of everything that it was made from.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shared = _digest([root() / "include", *(ROOT / "ladder" / name for name in _MAKERS)])
    digests = {stage.name: cache.digest([shared, _digest([stage.path])]) for stage in stages}
    stale = [stage for stage in stages if _digest_beside(folder, stage.name) != digests[stage.name]]
    with steps("Counting", len(stale)) as progress:
        for stage in stale:
            with progress.step(stage.name):
                problem = default_problem(stage.name)
                # Compiled for this problem alone, in half the time; the instance that runs is the same.
                run = evaluate(stage.narrowed([problem]), problem, backend="emulator")
                annotated = annotate(line_table(run.execution.launches))
                text = page(annotated, stage.name, run.problem, run.row["arch"])
                (folder / f"{stage.name}.html").write_text(text, encoding="utf-8")
                _beside(folder, stage.name).write_text(digests[stage.name])


def write_live_pages(folder: Path) -> None:
    """The rungs that run in the browser. If emscripten is missing or fails, the site has none, those of an
    earlier build included; the reason is printed, and conf.py puts a sentence in their place.
    """
    try:
        live_pages.write_pages(folder, ROOT / "build" / "wasm")
    except live_pages.NoEmulator as error:
        print(f"No live pages: {error}")
        shutil.rmtree(folder, ignore_errors=True)


def _digest(places: Iterable[Path]) -> str:
    """A digest of the contents of these folders' files."""
    paths = sorted(path for place in places for path in files.walk(place) if path.suffix != ".pyc")
    return cache.digest(part for path in paths for part in (str(path), path.read_bytes()))


def _beside(folder: Path, name: str) -> Path:
    return folder / f".{name}.digest"


def _digest_beside(folder: Path, name: str) -> str:
    """The digest of what the page was made from; "" if there is no page."""
    path = _beside(folder, name)
    return path.read_text() if path.is_file() and (folder / f"{name}.html").is_file() else ""


def translated_tree(language: str, folder: Path) -> Path:
    """The texts of the site in another language, English where there is no translation yet.

    A file whose contents are as they were is left alone, since Sphinx reads again what was written.
    """
    with tempfile.TemporaryDirectory() as name:
        fresh = Path(name)
        _translate_into(fresh, language)
        for path in files.walk(fresh):
            target = folder / path.relative_to(fresh)
            if not target.is_file() or target.read_bytes() != path.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        for path in [*files.walk(folder)]:
            if not (fresh / path.relative_to(folder)).is_file():
                path.unlink()
    return folder


def _translate_into(folder: Path, language: str) -> None:
    for path in [path for pattern in _TEXTS for path in ROOT.glob(pattern)]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    translate = translations.translator(language)
    pages = (*translations.PAGES, *translations.RUNGS)
    for source in pages:
        # Links between pages stay as they are: the tree has the names of the English one.
        text = translations.translated_text(source, translate, among=pages)
        (folder / source).write_text(text, encoding="utf-8")
    for picture in translations.PICTURES:
        svg = (ROOT / picture).read_text(encoding="utf-8")
        (folder / picture).write_text(translations.translated_drawing(svg, translate), encoding="utf-8")
    for lesson in translations.LESSONS:
        translations.write_lesson(lesson, folder / lesson, translate)


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
    write_live_pages(options.into / "live")
    run_sphinx(ROOT, options.into, "en")
    for language in translations.LANGUAGES:
        # gettext and browsers write zh-CN, Sphinx zh_CN.
        code = language.replace("-", "_")
        run_sphinx(translated_tree(language, options.into.parent / "texts" / code), options.into / code, code)
    print(options.into / "index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
