"""What the text of a program's gap may not do to the lines around it.

``main``, which compares the result, stands in the same file: a macro, or a brace that closes the kernel,
could change it. Rungs are compared by the judge, so their gaps need no such rule.
"""

from __future__ import annotations

import itertools
import re

from ladder.common.wording import said

#: Comments and literals, in which no brace and no directive counts; raw strings first.
_QUIET = re.compile(
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^\s*(?:#|%:|\?\?=)(?!\s*pragma\b)", re.MULTILINE)
_BRACES = {"{": 1, "<%": 1, "}": -1, "%>": -1}


def broken_rule(text: str, before: str = "") -> str:
    """The rule that the text of a gap breaks, in the reader's words; "" if it breaks none. ``before`` is the
    file's text up to the gap.
    """
    code = _without_quiet(text)
    if _DIRECTIVE.search(code):
        return said("A preprocessor line would change lines outside the markers, too.")
    if "/*" in code:
        return said("A comment that begins between the markers has to end between them.")
    depth = 0
    for brace in re.findall(r"[{}]|<%|%>", code):
        depth += _BRACES[brace]
        if depth < 0:
            return said("A brace is closed between the markers that was opened outside of them.")
    if depth:
        return said("A brace is opened between the markers and not closed there.")
    if re.search(r"\b(?:return|goto)\b", code) and _is_in_main(before):
        return said("main compares the result behind the markers, so it must not return between them.")
    return ""


def _without_quiet(text: str) -> str:
    return _QUIET.sub(" ", re.sub(r"\\\r?\n", "", text))


def _is_in_main(before: str) -> bool:
    """Whether ``before`` ends within the body of ``main``."""
    _, main, body = _without_quiet(before).rpartition("int main(")
    depths = itertools.accumulate(1 if brace == "{" else -1 for brace in re.findall(r"[{}]", body))
    return bool(main) and all(depths)
