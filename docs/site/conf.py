"""How Sphinx makes the site: of the repository's own texts, where they lie. tools/pages/site.py calls it."""

from __future__ import annotations

import functools
import html
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from docutils.nodes import SkipNode, Text, image

from ladder.stages import discover, ladder_pages, root

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools.pages import translations
from tools.pages.formulas import mathml
from tools.pages.quizzes import unfold_predictions

project = "flash-ladder"
root_doc = "README"
exclude_patterns = ["README.zh-CN.md"]
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "examples/README.md",
    "notebooks/*.ipynb",
    "notebooks/README.md",
    "stages/**/README.md",
    "results/README.md",
]
extensions = ["myst_nb"]
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
# Texts link to folders and to files that are no page of the site but are there in the repository.
suppress_warnings = ["myst.xref_missing", "myst.header", "mystnb.unknown_mime_type"]
templates_path = ["."]

html_theme = "furo"
# In every language: parts of words are found, too, which Chinese needs, and Sphinx 9.0's script for Chinese
# names a stemmer that it does not bring.
html_search_language = "en"
html_title = "flash-ladder"
html_math_renderer = "mathml"
html_show_copyright = False
html_copy_source = False
html_show_sphinx = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

_LANGUAGES = {"en": "English", "zh_CN": "中文"}
#: What the site itself says, in other languages.
_WORDS = {
    "zh_CN": {
        "Lessons": "课程",
        "Rungs": "各级",
        "Ladders": "其他阶梯",
        "Manual": "手册",
        "The source with its counts, line by line": "逐行带计数的源码",
        "Run it in the browser": "在浏览器中运行",
        "This site was built without the live pages.": "本站点构建时未包含可在浏览器中运行的页面。",
        "Try answers in the browser": "在浏览器中试各种答案",
        "Exercises in the browser": "浏览器中的练习",
        "Bank conflicts of an access, in the browser": "在浏览器中计算一次访存的 bank conflict",
        "This page is not translated.": "本页尚未翻译，以下为英文原文。",
        "Hint": "提示",
        "Answer": "答案",
        "*Run this lesson to see the measurement.*": "*运行本课即可看到测量结果。*",
    }
}

#: What an SVG says of itself in words.
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
#: A cell that shows an exercise.
_EXERCISE = re.compile(r"%exercise (\w+)")
_LANGUAGE_LINKS = re.compile(r"^\[English\].*$", re.MULTILINE)

#: The pages that speak of ``ladder bank``, which a live page does too.
_ABOUT_ACCESSES = ("docs/commands", "docs/live")

_ROOT = root().parent
#: The names of the project's rungs.
_RUNGS = frozenset(stage.name for stage in discover() if stage.is_own)
#: Headings of the contents, and the pages below each.
_CONTENTS = {
    "Lessons": ("notebooks/README", "notebooks/00a_*", "notebooks/*"),
    "Rungs": tuple(str((stage.path / "README").relative_to(_ROOT)) for stage in discover() if stage.is_own),
    "Ladders": tuple(str(page.with_suffix("").relative_to(_ROOT)) for page in ladder_pages()),
    "Manual": ("docs/glossary", "docs/*", "examples/README", "results/README", "CONTRIBUTING"),
}


#: Reading a catalogue takes a second.
_translator = functools.cache(translations.translator)


def _in_language_of(app: Any, words: str) -> str:
    return _WORDS.get(app.config.language, {}).get(words, words)


def _add_contents(app: Any, docname: str, source: list[str]) -> None:
    """The home page is the README, which knows nothing of Sphinx: its contents are added here. Rungs get a
    link to their source with its counts, texts about accesses one to the live page that counts an access."""
    if docname == root_doc:
        source[0] = _LANGUAGE_LINKS.sub("", source[0])  # the sidebar has them, of every page
        for heading, pages in _CONTENTS.items():
            lines = "\n".join(pages)
            caption = _in_language_of(app, heading)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{lines}\n```\n"
    elif docname.startswith("stages/"):
        *folders, rung, _ = docname.split("/")
        if rung not in _RUNGS:
            return
        title, _, rest = source[0].partition("\n")
        up = "../" * (len(folders) + 1) + ("" if app.config.language == "en" else "../")
        words = _in_language_of(app, "The source with its counts, line by line")
        link = f"<p><a href='{up}lines/{rung}.html'>{words}</a></p>"
        link += _live_link(app, up, rung, "Run it in the browser")
        source[0] = f"{title}\n\n{link}\n{rest}"
    elif docname in _ABOUT_ACCESSES:
        up = "../" if app.config.language == "en" else "../../"
        link = _live_link(app, up, "banks", "Bank conflicts of an access, in the browser")
        title, _, rest = source[0].partition("\n")
        source[0] = f"{title}\n{link}\n{rest}"
    elif docname == "examples/README":
        up = "../" if app.config.language == "en" else "../../"
        for name in sorted(path.parent.name for path in root().parent.glob("examples/*/kernel.cu")):
            source[0] += _live_link(app, up, name, "Run it in the browser", f": {name}")
    elif docname == "notebooks/README":
        up = "../" if app.config.language == "en" else "../../"
        source[0] += _live_link(app, up, "exercises", "Exercises in the browser")


def _live_link(app: Any, up: str, name: str, words: str, behind: str = "") -> str:
    """A paragraph with a link to a live page, which says these words and what comes ``behind``; "" if there
    is no such page. On a site without live pages the paragraph says so where each site with them has a link.
    """
    site = Path(app.outdir) if app.config.language == "en" else Path(app.outdir).parent
    if not (site / "live" / f"{name}.html").is_file():
        absent = _in_language_of(app, "This site was built without the live pages.")
        return f"\n<p>{absent}</p>\n" if name in ("banks", "exercises") else ""
    folder = "live" if app.config.language == "en" else f"live/{app.config.language}"
    return f"\n<p><a href='{up}{folder}/{name}.html'>{_in_language_of(app, words)}{behind}</a></p>\n"


def _unfold_predictions(app: Any, docname: str, source: list[str]) -> None:
    """Readers of the site cannot run a lesson's cells: what a prediction asks unfolds."""
    if not str(app.env.doc2path(docname)).endswith(".ipynb"):
        return
    words = ("Hint", "Answer", "*Run this lesson to see the measurement.*")
    notebook = nbformat.reads(source[0], as_version=4)
    translate = _translator(app.config.language.replace("_", "-"))
    unfold_predictions(notebook, *(_in_language_of(app, word) for word in words), translate)
    source[0] = nbformat.writes(notebook)


def _link_exercises(app: Any, docname: str, source: list[str]) -> None:
    """Below each exercise of a lesson a link to its live page."""
    if not str(app.env.doc2path(docname)).endswith(".ipynb"):
        return
    notebook = nbformat.reads(source[0], as_version=4)
    up = "../" if app.config.language == "en" else "../../"
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        if found := _EXERCISE.match(cell.source):
            link = _live_link(app, up, f"exercise_{found[1]}", "Try answers in the browser")
            cells += [nbformat.v4.new_markdown_cell(link.strip())] if link else []
    notebook.cells = cells
    source[0] = nbformat.writes(notebook)


def _inline_math(writer: Any, node: Any) -> None:
    writer.body.append(mathml(node.astext()))
    raise SkipNode


def _block_math(writer: Any, node: Any) -> None:
    writer.body.append(f'<div class="math">{mathml(node.astext(), display="block")}</div>')
    raise SkipNode


def _drop_remote_pictures(app: Any, doctree: Any) -> None:
    """Badges come from elsewhere, where the site is not to look: their text stays."""
    for picture in list(doctree.findall(image)):
        if "://" in picture["uri"]:
            picture.replace_self(Text(picture.get("alt", "")))


def _name_drawings(app: Any, doctree: Any) -> None:
    """The text of a lesson's drawing is inside it: readers who do not see it need it on the page."""
    for picture in doctree.findall(image):
        path = Path(app.srcdir, picture["uri"])
        if "alt" not in picture and path.suffix == ".svg" and path.is_file():
            title = _TITLE.search(path.read_text(encoding="utf-8"))
            picture["alt"] = html.unescape(title[1]) if title else ""


def _name_languages(app: Any, config: Any) -> None:
    """English lies at the top, each other language in a folder of its own: where from here the others are."""
    up = "" if config.language == "en" else "../"
    folders = {code: up if code == "en" else f"{up}{code}/" for code in _LANGUAGES}
    # Templates know the language as browsers write it.
    config.html_context["languages"] = [
        (code.replace("_", "-"), _LANGUAGES[code], folders[code]) for code in _LANGUAGES
    ]


def _say_what_is_untranslated(app: Any, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """A page of another language that stands in English, all of it, says so."""
    shown = (*translations.PAGES, *translations.LESSONS, *translations.RUNGS)
    translated = {source.rpartition(".")[0] for source in shown}
    if app.config.language != "en" and page not in translated and "body" in context:
        note = _in_language_of(app, "This page is not translated.")
        context["body"] = f"<p><em>{note}</em></p>{context['body']}"


def setup(app: Any) -> None:
    """Browsers know MathML, so that formulas need no script and no fonts from elsewhere."""
    app.connect("config-inited", _name_languages)
    app.connect("doctree-read", _drop_remote_pictures)
    app.connect("doctree-read", _name_drawings)
    app.connect("html-page-context", _say_what_is_untranslated)
    app.connect("source-read", _add_contents)
    app.connect("source-read", _unfold_predictions)
    app.connect("source-read", _link_exercises)
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
