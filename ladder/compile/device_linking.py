"""Links the device code of several files, which ``nvcc -rdc=true`` leaves open, for the emulator: their PTX
becomes one text. (nvlink links machine code alone.)

Each object calls a function ``__cudaRegisterLinkedBinary_<id>`` when it is loaded, so that its kernels and
variables are registered with the linked code.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.compile import toolchain
from ladder.compile.compiling import run
from ladder.compile.target import Target
from ladder.errors import BuildError

_REGISTERS = re.compile(rb"__cudaRegisterLinkedBinary(\w+)")
#: The container of device code in an object: magic number, version, bytes of the header and of the rest.
_CONTAINER = struct.Struct("<IHHQ")
_CONTAINER_MAGIC = b"\x50\xed\x55\xba"
#: An entry of it: kind, attributes, bytes of the header and of the payload.
_ENTRY = struct.Struct("<HHIQ")
_PTX_KIND = 1
#: With which the names of functions begin that launch kernels, and of those that go with them.
_DEVICE_RUNTIME = "__cudaCDP2"
_OF_THE_DRIVER = frozenset({"vprintf", "malloc", "free", "__assertfail"})

_STUB = """\
extern "C" {
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
extern const char ladder_device_code[];
}
asm(".section .nv_fatbin,\\"a\\"\\n.balign 8\\nladder_device_code:\\n.incbin \\"linked.fatbin\\"\\n.text\\n");
static void **linked() {
  static struct {
    int magic, version;
    const void *code, *more;
  } wrapper{0x466243b1, 1, ladder_device_code, 0};
  static void **const handle = [] {
    void **const registered = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFatBinaryEnd(registered);
    return registered;
  }();
  return handle;
}
"""
_REGISTER = """\
extern "C" void __cudaRegisterLinkedBinary%s(void (*add)(void **), void *, void *, void (*)(void *)) {
  add(linked());
}
"""


def link_device_code(
    objects: Sequence[str], name: str, directory: Path, target: Target, nvcc: toolchain.Nvcc
) -> list[str]:
    """Makes the object that completes relocatable ``objects``; none if they are not relocatable, or if
    ``target`` does not run PTX. ``name`` is for messages. Raises :class:`BuildError`.
    """
    images = [Path(path).read_bytes() for path in objects]
    identities = sorted({one.decode() for image in images for one in _REGISTERS.findall(image)})
    if target.backend == "cuda" or not identities:
        return []
    texts = [ptx for image in images if _REGISTERS.search(image) and (ptx := _ptx_of(image))]
    text = linked(texts, name)
    (directory / "linked.ptx").write_text(text)
    # ptxas does not know the functions of the device runtime, which the emulator has.
    relocatable = ["-rdc=true"] if _DEVICE_RUNTIME in text else []
    if relocatable:
        _refuse_undefined(text, name)
    command = [str(nvcc.path), *target.flags(), *relocatable, "-fatbin", "linked.ptx", "-o", "linked.fatbin"]
    run(command, directory, name, "does not link")
    (directory / "linked.cpp").write_text(_STUB + "".join(_REGISTER % one for one in identities))
    run([toolchain.gxx(), "-c", "-fPIC", "linked.cpp", "-o", "linked.o"], directory, name, "does not link")
    return [str(directory / "linked.o")]


def _refuse_undefined(text: str, name: str) -> None:
    for item in _items(text):
        known = item.name.startswith(_DEVICE_RUNTIME) or item.name in _OF_THE_DRIVER
        if item.linkage == "extern" and item.kind == "func" and not known:
            raise BuildError(f"{name} does not link: no file defines the function {item.name}")


def _ptx_of(image: bytes) -> str:
    """The PTX in an object; "" if it has none."""
    at = image.find(_CONTAINER_MAGIC)
    if at < 0:
        return ""
    _, _, header, rest = _CONTAINER.unpack_from(image, at)
    at, end = at + header, at + header + rest
    while at < end:
        kind, _, header, payload = _ENTRY.unpack_from(image, at)
        if kind == _PTX_KIND:
            return image[at + header : at + header + payload].split(b"\0", 1)[0].decode()
        at += header + payload
    return ""


@dataclass(frozen=True)
class _Item:
    """A statement outside functions. ``linkage`` is extern, visible, weak, common, or "" of what is the
    file's own; ``kind`` is func, entry, variable, or "" of one without a name.
    """

    text: str
    linkage: str
    kind: str
    name: str

    @property
    def is_declaration(self) -> bool:
        return self.linkage == "extern" or (self.kind in ("func", "entry") and "{" not in self.text)

    @property
    def head(self) -> str:
        """A function without its body: what declares it. A kernel's declaration has no directives."""
        text = self.text.partition("{")[0].rstrip("; \n")
        return (text[: text.rindex(")") + 1] if self.kind == "entry" else text) + ";\n"


_LINKAGE = r"\s*(?:\.(?P<linkage>extern|visible|weak|common)\s+)?"
_FUNCTION = re.compile(_LINKAGE + r"\.(?P<kind>func|entry)\s*(?:\([^)]*\)\s*)?(?P<name>[\w$%]+)")
_VARIABLE = re.compile(
    _LINKAGE + r"\.(?:global|const|shared|local)\b[^=;{]*?(?P<name>[\w$%]+)\s*(?:\[[^\]]*\]\s*)*[=;]"
)
_HEADER = re.compile(r"^\s*\.(version|target|address_size)\s+([^\n]*)\n", re.MULTILINE)
#: A comment, or a string, which may hold what looks like one.
_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|("[^"\n]*")', re.DOTALL)
#: What ends a statement outside functions, or begins or ends a body.
_STRUCTURE = re.compile(r'"[^"\n]*"|[{};]|^\s*\.file\b[^\n]*\n', re.MULTILINE)


def linked(texts: Sequence[str], name: str = "the program") -> str:
    """One PTX text of the PTX of several files. Raises :class:`BuildError` for what does not fit together."""
    headers = [dict(_HEADER.findall(text)) for text in texts]
    newest = max(headers, key=lambda header: tuple(map(int, header["version"].split("."))))
    items = [item for text in _with_own_names(texts) for item in _items(_HEADER.sub("", text))]
    definitions = _definitions(items, name)
    parts: dict[str, list[str]] = {"declarations": [], "variables": [], "functions": [], "others": []}
    for item in items:
        _place(item, definitions, parts)
    head = "".join(f".{key} {newest[key]}\n" for key in ("version", "target", "address_size"))
    return head + "".join("".join(dict.fromkeys(part)) for part in parts.values())


def _definitions(items: Sequence[_Item], name: str) -> dict[str, _Item]:
    """The definition of each name that files share."""
    definitions: dict[str, _Item] = {}
    for item in items:
        if item.is_declaration or not item.linkage:
            continue
        other = definitions.get(item.name)
        if other and other.linkage == item.linkage == "visible":
            raise BuildError(f"{name} does not link: {item.name} is defined in several files")
        if not other or item.linkage == "visible":
            definitions[item.name] = item
    variables = (item for item in items if item.kind == "variable" and ".shared" not in item.text)
    for item in variables:
        if item.is_declaration and item.name not in definitions:
            raise BuildError(f"{name} does not link: no file defines the variable {item.name}")
    return definitions


def _place(item: _Item, definitions: dict[str, _Item], parts: dict[str, list[str]]) -> None:
    """Adds the item to those of its kind, unless another file's takes its place."""
    defined = definitions.get(item.name) if item.name else None
    if not item.kind:
        parts["others"].append(item.text)
    elif item.is_declaration:
        # PTX wants functions declared before they are called, and variables only once.
        if not defined:
            _declare(item.text, parts["declarations"])
        elif defined.kind != "variable":
            parts["declarations"].append(defined.head)
    elif defined is None or defined is item:
        parts["variables" if item.kind == "variable" else "functions"].append(item.text)


def _declare(text: str, declarations: list[str]) -> None:
    """Adds the declaration of what no file defines. Dynamic shared memory has the largest alignment."""
    align = re.compile(r"\.align\s+(\d+)")
    shape = align.sub("", text)
    for i, other in enumerate(declarations):
        if align.sub("", other) == shape:
            declarations[i] = max(other, text, key=lambda one: int((align.findall(one) or [0])[0]))
            return
    declarations.append(text)


def _items(text: str) -> list[_Item]:
    """The statements outside functions, in order."""
    text = _COMMENT_OR_STRING.sub(lambda found: found[1] or "", text)
    items, begin, depth = [], 0, 0
    for found in _STRUCTURE.finditer(text):
        mark = found.group().strip()
        depth += (mark == "{") - (mark == "}")
        is_body = mark == "}" and not _VARIABLE.match(text[begin : found.start()])
        if depth == 0 and (mark == ";" or is_body or mark.startswith(".file")):
            items.append(_item(text[begin : found.end()].strip() + "\n"))
            begin = found.end()
    return items


def _item(text: str) -> _Item:
    function, variable = _FUNCTION.match(text), _VARIABLE.match(text)
    if function:
        return _Item(text, function["linkage"] or "", function["kind"], function["name"])
    if variable:
        return _Item(text, variable["linkage"] or "", "variable", variable["name"])
    return _Item(text, "", "", "")


def _with_own_names(texts: Sequence[str]) -> list[str]:
    """The texts, with what is each file's own renamed where others use the name too, and with the numbers of
    source files shifted.
    """
    items = [[item for item in _items(_HEADER.sub("", text)) if item.name] for text in texts]
    result, shift = [], 0
    for number, text in enumerate(texts):
        others = {item.name for i, some in enumerate(items) if i != number for item in some}
        own = {item.name for item in items[number] if not item.linkage}
        labels = set(re.findall(r"\$L__info_string\d+", text))
        renamed = _renamed(text, own & others | labels, f"_f{number}")
        result.append(_shifted(renamed, shift))
        shift += max(map(int, re.findall(r"^\s*\.file\s+(\d+)", text, re.MULTILINE)), default=0)
    return result


def _renamed(text: str, names: Collection[str], ending: str) -> str:
    return re.sub(r"[\w$%]+", lambda found: found[0] + ending * (found[0] in names), text)


def _shifted(text: str, by: int) -> str:
    """The text with all numbers of source files raised."""
    number = re.compile(r"(^\s*\.(?:file|loc)\s+|\binlined_at\s+)(\d+)", re.MULTILINE)
    return number.sub(lambda found: f"{found[1]}{int(found[2]) + by}", text)
