"""The text of a source that the host's compilers depend on: without the bodies of device functions.

nvcc compiles a source twice, for the host and for the GPU. The host's compilers skip the bodies of functions
that are ``__device__`` or ``__global__`` alone.

**The invariant.** Sources with the same :func:`host_text` have the same object for the host, except for the
device code in it. A body that is kept needlessly costs a compilation; one that is left out wrongly gives a
wrong program. So a body is left out only if nothing in the source can make it the host's concern:

====================================================  ====================================================
what could                                            what is done about it
====================================================  ====================================================
brackets or "#" spelled otherwise, text that depends  ``_UNCLEAR``: there is no text
on places, times or other files
a directive that may redefine a word or open a brace  ``_is_unclear``: there is no text
words before the specifier: a macro, ``constexpr``    ``_MAY_PRECEDE`` has all others; the body is kept
a declaration that is no function, whose type is      ``_CONCERNS_HOST``: the body is kept
deduced from its body, or that is also the host's
a word of the declaration that may be a macro for     ``_LIKE_A_MACRO`` without ``_NO_MACROS``: the body is
one of these                                          kept
a directive within the declaration or the body        ``_behind_head``, ``_body``: the body is kept, except
                                                      for a pragma in it that is clear
====================================================  ====================================================

A change begins with a line in a parameter list of tests/compile/test_host_parts.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_TOKEN = re.compile(
    r"""
    //(?:\\\n|[^\n])* | /\*.*?\*/                       # comments
    | ^[ \t]*\#(?:                                      # a directive
        \\\n | //(?:\\\n|[^\n])* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | [^\n]
      )*
    | (?:u8|[uUL])?R"(?P<end>[^()\\\s]{0,16})\(.*?\)(?P=end)"
    | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
    | [A-Za-z_]\w* | \.?\d(?:[eEpP][+-]|[\w.']\b|\w|\.)* | :: | -> | \+\+ | -- | && | \S
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
#: What makes a source unclear: other spellings of brackets, of "#" and of line ends, macros that say where
#: they stand, what depends on files that are not read, and what the host's compilers do not have: they would
#: refuse it in a body.
_UNCLEAR = re.compile(
    r"<%|%>|%:|<:(?!:)|\?\?|\\[ \t\v\f]+\n|__FILE__|__LINE__|__COUNTER__|__TIME|__DATE__|source_location"
    r"|\bassert\b|__has_include|_Pragma|__CUDA_ARCH"
)
#: Directives that leave the meaning of words and braces as it is.
_DIRECTIVE = re.compile(
    r"\s*#\s*(?:(?:include|if|ifdef|ifndef|elif|else|endif|undef|error|warning|(?P<macro>define))\b"
    r"|pragma\s+(?:once|unroll|nounroll)\b)"
)
_PRAGMA = re.compile(r"\s*#\s*pragma\b")
#: What may stand before ``__device__`` in a declaration whose body is skipped.
_MAY_PRECEDE = {"static", "inline", "__inline__", "__forceinline__", "__noinline__", "explicit"}
#: In a function's declaration, these make its body the host's concern, or the declaration no function.
_CONCERNS_HOST = {
    *("__host__", "constexpr", "consteval", "auto", "decltype", "requires", "concept", "friend"),
    *("class", "struct", "union", "enum", "=", ":", "[", "->", "using", "typedef"),
}
_LIKE_A_MACRO = re.compile(r"_\w*|[A-Z][A-Z0-9]*_[A-Z0-9_]*")
#: Names in a declaration that look like macros, but are none that make its body the host's.
_NO_MACROS = {
    *("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__restrict__"),
    *("__inline__", "__forceinline__", "__noinline__"),
    *("__half", "__half2", "__nv_bfloat16", "__nv_bfloat162"),
}


def host_text(source: str) -> str | None:
    """The source as the host's compilers need it: its tokens, without bodies of device functions.

    None if it cannot be told what they are.
    """
    if _UNCLEAR.search(source):
        return None
    tokens = [one for one in (found[0] for found in _TOKEN.finditer(source)) if one[:2] not in ("//", "/*")]
    if any(_is_unclear(one) for one in tokens):
        return None
    kept: list[str] = []
    # Of the token at `place`: where its declaration begins, and how many parentheses are open.
    place = declaration = depth = 0
    while place < len(tokens):
        token = tokens[place]
        is_specifier = not depth and token in ("__device__", "__global__")
        if is_specifier and (body := _body(tokens, declaration, place)):
            kept += [*tokens[place : body.start], "}"]
            place = declaration = body.stop
            continue
        kept.append(token)
        depth += (token == "(") - (token == ")")
        place += 1
        if token in (";", "{", "}") or (declaration == place - 1 and _is_directive(token)):
            declaration = place
    return "\n".join(kept)


def _is_directive(token: str) -> bool:
    return token.lstrip()[:1] == "#"


def _is_unclear(token: str) -> bool:
    """Whether the token joins two lines, or is a directive that may change what others mean: with a macro
    that hides a brace or a specifier, say.
    """
    if not _is_directive(token):
        return token == "\\"
    whole = token.replace("\\\n", "")
    kind = _DIRECTIVE.match(whole)
    if kind is None or whole.count("{") != whole.count("}") or 'R"' in whole:
        return True
    if not kind["macro"]:
        return False
    words = re.findall(r"[A-Za-z_]\w*", whole[kind.end() :])
    return "##" in whole or any(word[0] == "_" or word in _CONCERNS_HOST for word in words)


def _body(tokens: Sequence[str], declaration: int, keyword: int) -> range | None:
    """The places between the braces of the function of which ``keyword`` is a specifier, and the closing one;
    None if that is no function, or one whose body may concern the host.
    """
    before = tokens[_behind_template(tokens, declaration, keyword) : keyword]
    begin = _behind_head(tokens, keyword) if _MAY_PRECEDE.issuperset(before) else None
    if begin is None:
        return None
    depth, place = 1, begin
    while place < len(tokens):
        token = tokens[place]
        if _is_directive(token) and not _PRAGMA.match(token):
            return None
        depth += (token == "{") - (token == "}")
        place += 1
        if not depth:
            return range(begin, place)
    return None


def _behind_head(tokens: Sequence[str], keyword: int) -> int | None:
    """The place behind the opening brace of the function; None as for :func:`_body`. What stands in
    parentheses, such as parameters, concerns the host whether or not the body does.
    """
    depth, place = 0, keyword + 1
    while place < len(tokens) and (depth or tokens[place] != "{"):
        token = tokens[place]
        if _is_directive(token) or (not depth and _may_concern_host(token)):
            return None
        depth += (token == "(") - (token == ")")
        place += 1
    is_function = place < len(tokens) and tokens[place - 1] == ")"
    return place + 1 if is_function else None


def _may_concern_host(token: str) -> bool:
    if token in _CONCERNS_HOST or token in (";", "}"):
        return True
    return token not in _NO_MACROS and bool(_LIKE_A_MACRO.fullmatch(token))


def _behind_template(tokens: Sequence[str], declaration: int, keyword: int) -> int:
    """The place behind ``template <...>``, if the declaration begins so and that ends before ``keyword``."""
    if tokens[declaration : declaration + 2] != ["template", "<"]:
        return declaration
    depth = 0
    for place in range(declaration + 1, keyword):
        depth += (tokens[place] == "<") - (tokens[place] == ">")
        if not depth:
            return place + 1
    return declaration
