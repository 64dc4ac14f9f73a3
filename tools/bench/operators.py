"""The changes that mutants consist of: words of a line, whole lines, and two lines in the other order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

#: A factor of logits, of O or of gradients; factors per head, too.
_SCALE = r"(?:\w+\.)*(?:\w*scale|alpha|inv_length)\b(?:\[[^\]]*\])?"
#: For each kind of change, the pattern and its replacements.
_SWAPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("comparison", r"(?<![<\-=!>])<(?![<=])(?= )", ("<=",)),
    ("comparison", r"(?<= )<=(?= )", ("<",)),
    ("comparison", r"(?<= )>(?= )", (">=",)),
    ("comparison", r"(?<= )>=(?= )", (">",)),
    ("comparison", r"==", ("!=",)),
    ("comparison", r"!=", ("==",)),
    ("logic", r"&&", ("||",)),
    ("logic", r"\|\|", ("&&",)),
    ("arithmetic", r"(?<= )\+(?= )", ("-",)),
    ("arithmetic", r"(?<= )-(?= )", ("+",)),
    ("arithmetic", r"(?<= )\*(?= )", ("/",)),
    ("arithmetic", r"(?<= )/(?= )", ("*",)),
    ("arithmetic", r"(?<= )%(?= )", ("/",)),
    ("arithmetic", r"\+=", ("=", "-=")),
    ("arithmetic", r"\*=", ("=",)),
    ("function", r"\bmin\(", ("max(",)),
    ("function", r"\bfmaxf\(", ("fminf(",)),
    ("scale", rf" \* {_SCALE}|(?<![\w.]){_SCALE} \* ", ("",)),
    ("index", r"\bblockIdx\.x\b", ("blockIdx.y",)),
    ("index", r"\bblockIdx\.y\b", ("blockIdx.x", "blockIdx.z")),
    ("index", r"\bblockIdx\.z\b", ("blockIdx.y",)),
    ("index", r"\bkv_heads\b", ("heads",)),
    ("index", r"\bp\.heads\b", ("p.kv_heads",)),
    ("index", r"\bq_len\b", ("kv_len",)),
    ("index", r"\bkv_len\b", ("q_len",)),
    ("index", r"\bkBr\b", ("kBc",)),
    ("index", r"\bkBc\b", ("kBr",)),
    ("stream", r"(?<=, )stream(?=>>>|,|\))", ("0",)),
    ("field", r"(?<=\bp\.)k\b|\bk(?=_(?:strides?|descale|cache)\b)", ("v",)),
    ("field", r"(?<=\bp\.)v\b|\bv(?=_(?:strides?|descale|cache)\b)", ("k",)),
    ("field", r"\b(?:q|o|d_o)(?=_strides?\b)", ("k",)),
    ("field", r"\bp\.dk\b", ("p.dv",)),
    ("field", r"\bp\.dv\b", ("p.dk",)),
    ("narrow", r"\b(?:std::)?(?:u?int64_t|size_t)\b", ("int",)),
    ("narrow", r"(?<![\w<])(?:int|unsigned)(?= \w+ =)", ("short",)),
)
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: Lines that begin so do not affect what is computed.
_NO_CODE = ("#", "static_assert", "template", "__global__", "using", "namespace")
#: Operands to swap: of a subtraction, or of a call with two arguments.
_OPERANDS = re.compile(r"([\w.\[\]]+) - ([\w.\[\]]+)")
_STATEMENT = re.compile(
    r"^\s*(?!const|constexpr|using|return|static|template|typename|auto|dim3|break)\S.*;$"
)
_DECLARATION = re.compile(r"^\s*[\w:<>,]+ [*&]?\w+( = |\[|\{|;|\()")

#: Words of what orders threads, copies and products.
_ORDER = re.compile(r"wait|releas|acqui|arrive|(?<!a)sync|fence|commit|publish|pass|barrier|atomic")
#: An argument or a subscript that says where something is.
_PLACE = re.compile(
    r"(?<!int )(?<=[(\[ ])((?:\w+\.)*\w*(?:row|col|key|query|tile|head|begin|first|turn))(?=[,)\]])"
)
#: An expression that numbers a head, a sequence, a work item or a block.
_ITEM = re.compile(
    r"(?<!int )(?<![\w.])((?:\w+\.)*(?:(?:kv_)?head(?:\(\))?|number|item|sequence)|blockIdx\.[xyz])"
    r"(?=[,)\];]| [-+*/%<])"
)
#: Which one is taken for another: one of few, and one that only a large problem has.
_ITEMS = ((1, 0), (63, 0))
#: The memory orders of PTX that order anything.
_ORDERED = re.compile(r"(?<=\.)(?:acquire|release|acq_rel)(?=\.)")


@dataclass(frozen=True)
class Mutant:
    """One change to a line (1-based) of a stage's file, or to a line and the next."""

    stage: str
    line: int
    kind: str
    old: str
    new: str
    file: str = "kernel.cu"

    @property
    def name(self) -> str:
        """A name that describes the change without the line number, since lines move."""
        digest = hashlib.sha256(f"{self.old.strip()}\0{self.new.strip()}".encode()).hexdigest()[:8]
        return f"{self.stage}-{self.kind}-{digest}"

    def changed(self, source: str) -> str:
        """The file's text with the change. Raises :class:`ValueError` if the lines are others."""
        lines, old = source.splitlines(), self.old.splitlines()
        place = slice(self.line - 1, self.line - 1 + len(old))
        if lines[place] != old:
            raise ValueError(f"{self.name}: {self.stage}/{self.file}:{self.line} is not {self.old!r}")
        lines[place] = self.new.splitlines()
        return "\n".join(lines) + "\n"


def mutants(stage: str, source: str) -> list[Mutant]:
    """All mutants of a kernel.cu or of a rung's own header: changes below its first namespace, except in
    comments and directives.
    """
    lines = source.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith("namespace")), 0)
    places = range(first, len(lines))
    return [*mutants_of(stage, lines, places), *order_mutants(stage, lines, places)]


def mutants_of(stage: str, lines: Sequence[str], places: Iterable[int]) -> list[Mutant]:
    """The mutants of what is computed in the lines in these places, 0-based."""
    return _named(
        Mutant(stage, place + 1, kind, lines[place], new)
        for place in places
        if (code := _code(lines[place]))
        for kind, new in _changes(code)
    )


def order_mutants(stage: str, lines: Sequence[str], places: Iterable[int]) -> list[Mutant]:
    """The mutants of places, of single heads and work items, and of the order of two lines."""
    return _named(
        Mutant(stage, place + 1, kind, old, new)
        for place in places
        if (code := _code(lines[place]))
        for kind, old, new in _changes_of_order(lines, place, code)
    )


def library_mutants(stage: str, file: str, source: str) -> list[Mutant]:
    """The mutants of a header that a stage includes: one wait or fence less, or one that orders nothing."""
    found = []
    for place, line in enumerate(source.splitlines()):
        code = _code(line)
        if _is_statement(code) and is_of_order(code):
            found.append(Mutant(stage, place + 1, "dropped line", line, ";", file))
        for match in _ORDERED.finditer(code):
            new = _with(code, match, "relaxed")
            found.append(Mutant(stage, place + 1, "memory order", line, new, file))
    return _named(found)


def is_of_order(text: str) -> bool:
    """Whether the text has a word of what orders threads, copies and products."""
    return bool(_ORDER.search(text))


def _named(found: Iterable[Mutant]) -> list[Mutant]:
    by_name: dict[str, Mutant] = {}
    for mutant in found:
        by_name.setdefault(mutant.name, mutant)
    return list(by_name.values())


def _code(line: str) -> str:
    """The line without its comment; "" if there is no code that computes."""
    code = line.partition("//")[0].rstrip()
    return "" if code.lstrip().startswith(_NO_CODE) else code


def _changes(code: str) -> Iterator[tuple[str, str]]:
    strings = [match.span() for match in re.finditer(r'"[^"]*"', code)]

    def is_text(place: int) -> bool:
        return any(begin <= place < end for begin, end in strings)

    for kind, pattern, others in _SWAPS:
        for match in re.finditer(pattern, code):
            if not is_text(match.start()):
                for other in others:
                    yield kind, _with(code, match, other)
    for match in _NUMBER.finditer(code):
        if not is_text(match.start()):
            for value in {int(match[0]) + 1, max(0, int(match[0]) - 1)} - {int(match[0])}:
                yield "constant", _with(code, match, str(value))
    for match in _OPERANDS.finditer(code):
        yield "operands", _with(code, match, f"{match[2]} - {match[1]}")
    if _is_statement(code):
        yield "dropped line", ";"


def _changes_of_order(lines: Sequence[str], place: int, code: str) -> Iterator[tuple[str, str, str]]:
    """Yields kinds, and the old and the new text of the line, or of the line and the next."""
    line = lines[place]
    for match in _PLACE.finditer(code):
        yield "place", line, _with(code, match, f"{match[1]} + 1")
    for match in _ITEM.finditer(code):
        for one, other in _ITEMS[:1] if "blockIdx" in match[1] else _ITEMS:
            yield "item", line, _with(code, match, f"({match[1]} == {one} ? {other} : {match[1]})")
        yield "wrap", line, _with(code, match, f"({match[1]} % 8)")
        yield "cap", line, _with(code, match, f"({match[1]} < 64 ? {match[1]} : 64)")
    following = _code(lines[place + 1]) if place + 1 < len(lines) else ""
    if (
        _is_statement(code)
        and _is_statement(following)
        and _indent(code) == _indent(following)
        and is_of_order(code + following)
    ):
        yield "swapped lines", f"{line}\n{lines[place + 1]}", f"{lines[place + 1]}\n{line}"


def _with(code: str, match: re.Match[str], new: str) -> str:
    return code[: match.start()] + new + code[match.end() :]


def _is_statement(code: str) -> bool:
    return bool(_STATEMENT.match(code)) and not _DECLARATION.match(code)


def _indent(code: str) -> int:
    return len(code) - len(code.lstrip())
