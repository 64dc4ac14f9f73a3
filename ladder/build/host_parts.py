"""The host's part of a rung: kept and used again while nothing but bodies of device functions change.

nvcc compiles a source twice, for the host and for the GPU. The host's compilers take half of the time, and
skip the bodies of ``__device__`` and ``__global__`` functions. So their object serves every source that
differs in such bodies alone, once it gets the new device code.

In doubt, a body counts as host code: if the function is ``constexpr``, say, or has a deduced type.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ladder.build import housekeeping
from ladder.common import cache

OBJECT = "kernel.o"
_FACTS = "facts.json"
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
#: In a function's declaration, these make its body the host's concern, or the declaration no function.
_CONCERNS_HOST = {
    *("__host__", "constexpr", "consteval", "auto", "decltype", "requires", "concept", "friend"),
    *("class", "struct", "union", "enum", "=", ":", "[", "->", "using", "typedef"),
}
#: What may stand before ``__device__`` in a declaration whose body is skipped.
_BEFORE = {"static", "inline", "__inline__", "__forceinline__", "__noinline__", "explicit"}
#: Names in a declaration that look like macros, but are none that make its body the host's.
_KNOWN = {
    *("__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__restrict__"),
    *("__inline__", "__forceinline__", "__noinline__"),
    *("__half", "__half2", "__nv_bfloat16", "__nv_bfloat162"),
}
_LIKE_A_MACRO = re.compile(r"_\w*|[A-Z][A-Z0-9]*_[A-Z0-9_]*")
#: Other spellings of brackets, of "#" and of line ends, macros that say where they stand, what depends on
#: files that are not read, and what the host's compilers do not have: they would refuse it in a body.
_UNCLEAR = re.compile(
    r"<%|%>|%:|<:(?!:)|\?\?|\\[ \t\v\f]+\n|__FILE__|__LINE__|__COUNTER__|__TIME|__DATE__|source_location"
    r"|\bassert\b|__has_include|_Pragma|__CUDA_ARCH"
)
_PRAGMA = re.compile(r"\s*#\s*pragma\b")
_DIRECTIVE = re.compile(
    r"\s*#\s*(?:(?:include|if|ifdef|ifndef|elif|else|endif|undef|error|warning|(?P<macro>define))\b"
    r"|pragma\s+(?:once|unroll|nounroll)\b)"
)
_MODULE = re.compile(r"_GLOBAL__N__[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}")
#: What the host registers of a module: its kernels with their parameters, and its variables.
_REGISTERED = re.compile(
    r"^\.(?:(?:visible|weak) \.)?entry [^)]*\)|^(?:\.\w+ )*?\.(?:global|const) [^$\n]*?;", re.MULTILINE
)


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
    if not _BEFORE.issuperset(before):
        return None
    depth, place = 0, keyword + 1
    while place < len(tokens) and (depth or tokens[place] != "{"):
        token = tokens[place]
        if _is_directive(token) or (not depth and _may_concern_host(token)):
            return None
        depth += (token == "(") - (token == ")")
        place += 1
    if place == len(tokens) or tokens[place - 1] != ")":
        return None
    begin = place + 1
    while place < len(tokens):
        token = tokens[place]
        if _is_directive(token) and not _PRAGMA.match(token):
            return None
        depth += (token == "{") - (token == "}")
        place += 1
        if not depth:
            return range(begin, place)
    return None


def _may_concern_host(token: str) -> bool:
    if token in _CONCERNS_HOST or token in (";", "}"):
        return True
    return token not in _KNOWN and bool(_LIKE_A_MACRO.fullmatch(token))


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


@dataclass(frozen=True)
class _Facts:
    """What is known of an object: a digest of its bytes, the name that nvcc gave its module, what it
    registers, and the shared headers that were read.
    """

    seal: str
    module: str
    registered: list[str]
    read: list[str]


@dataclass(frozen=True)
class HostPart:
    """The place of the object of one host's text."""

    path: Path

    @classmethod
    def of(
        cls, key: Iterable[str], folder: Path, own_files: Sequence[Path], shared: Iterable[str]
    ) -> HostPart | None:
        """The part for a rung with these files of its own in ``folder``; None if it cannot be used again.

        ``key`` and ``shared`` are what else the object depends on, such as flags and shared headers.
        """
        parts = [*key, *shared]
        for path in sorted(own_files):
            text = host_text(path.read_text(encoding="utf-8", errors="surrogateescape"))
            if text is None:
                return None
            parts += [str(path.relative_to(folder)), text]
        return cls(housekeeping.builds() / f"host-{cache.digest(parts)}")

    def put(self, directory: Path, ptx: Path) -> list[Path] | None:
        """Copies the object into ``directory`` and fits the PTX to it; returns the shared headers that it was
        made from. None if there is no object, or the PTX has other kernels or variables.
        """
        try:
            facts = _Facts(**json.loads((self.path / _FACTS).read_text()))
            data = (self.path / OBJECT).read_bytes()
        except (OSError, ValueError, TypeError):
            return None
        if cache.digest([data]) != facts.seal:
            shutil.rmtree(self.path, ignore_errors=True)
            return None
        module, registered = _described(text := ptx.read_text())
        if registered != facts.registered:
            return None
        (directory / OBJECT).write_bytes(data)
        ptx.write_text(text.replace(module, facts.module) if module and facts.module else text)
        housekeeping.mark_used(self.path)
        return [Path(one) for one in facts.read]

    def is_there(self) -> bool:
        return (self.path / _FACTS).is_file()

    def keep(self, directory: Path, ptx: Path, read: Iterable[Path]) -> None:
        """Keeps the object in ``directory``, compiled with this PTX from these shared headers."""
        module, registered = _described(ptx.read_text())
        if module is None or self.is_there():
            return
        facts = _Facts(
            cache.digest([(directory / OBJECT).read_bytes()]), module, registered, [*map(str, read)]
        )
        with cache.new_directory(self.path) as kept:
            shutil.copyfile(directory / OBJECT, kept / OBJECT)
            (kept / _FACTS).write_text(json.dumps(asdict(facts)))


def _described(ptx: str) -> tuple[str | None, list[str]]:
    """The name of the module in the PTX, "" if nothing is named after it and None if there are several; and
    what the host registers of it.
    """
    modules = {*_MODULE.findall(ptx)}
    registered = sorted(_MODULE.sub("", found) for found in _REGISTERED.findall(ptx))
    return (None if len(modules) > 1 else "".join(modules)), registered
