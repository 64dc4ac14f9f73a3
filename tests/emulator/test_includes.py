"""Each source of the emulator includes what it uses of the standard library: it then compiles without
precompiled headers, and with emscripten's library, whose headers include fewer others than GCC's."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

EMULATOR = Path(__file__).parents[2] / "emulator"
SOURCES = [
    path
    for path in sorted(EMULATOR.rglob("*"))
    if path.suffix in (".cpp", ".h") and EMULATOR / "headers" not in path.parents
]
#: Headers, with what the emulator uses of them. Names that several headers have are left out.
HEADERS = {
    "algorithm": (
        "all_of any_of clamp copy copy_n count_if equal fill fill_n find find_if for_each lower_bound max "
        "max_element min minmax none_of ranges remove remove_if replace reverse rotate search sort "
        "stable_sort transform unique upper_bound"
    ),
    "array": "array",
    "atomic": "atomic atomic_flag atomic_ref atomic_thread_fence memory_order memory_order_acquire "
    "memory_order_relaxed memory_order_release memory_order_seq_cst",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_one countr_zero endian has_single_bit "
    "popcount rotl rotr",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": (
        "abs ceil copysign cos exp exp2 fabs floor fma fmax fmin fmod fpclassify frexp isfinite isinf isnan "
        "ldexp log log2 nearbyint nextafter pow remainder rint round scalbn signbit sin sqrt tanh trunc"
    ),
    "complex": "complex conj polar",
    "condition_variable": "condition_variable cv_status",
    "cstdint": "int16_t int32_t int64_t int8_t intptr_t uint16_t uint32_t uint64_t uint8_t uintptr_t",
    "cstdio": "FILE fclose fflush fopen fprintf fputs fwrite perror printf puts snprintf",
    "cstdlib": (
        "abort atexit calloc exit free getenv malloc quick_exit realloc strtod strtol strtoul strtoull"
    ),
    "cstring": "memchr memcmp memcpy memmove memset strchr strcmp strcpy strlen strncmp strrchr strstr",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception terminate",
    "fstream": "fstream ifstream ofstream",
    "functional": (
        "bit_and bit_not bit_or bit_xor divides function greater greater_equal hash identity invoke less "
        "less_equal minus multiplies plus"
    ),
    "iterator": "back_inserter istreambuf_iterator make_move_iterator move_iterator",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "addressof enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock",
    "new": "bad_alloc nothrow",
    "numbers": "numbers",
    "numeric": "accumulate gcd iota lcm reduce",
    "optional": "make_optional nullopt nullopt_t optional",
    "queue": "priority_queue",
    "random": "mt19937 mt19937_64 poisson_distribution uniform_int_distribution",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "invalid_argument length_error logic_error out_of_range runtime_error",
    "string": "getline stod stoi stol stoul stoull string to_string",
    "string_view": "string_view",
    "thread": "jthread this_thread thread",
    "tuple": "apply make_tuple tie tuple",
    "type_traits": (
        "common_type_t conditional_t decay_t enable_if_t invoke_result_t is_floating_point_v is_integral_v "
        "is_same_v is_signed_v is_trivially_copyable_v is_unsigned_v make_signed_t make_unsigned_t "
        "remove_cvref_t underlying_type_t"
    ),
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "as_const exchange index_sequence make_index_sequence make_pair move pair swap",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in HEADERS.items() for name in names.split()}


@functools.cache
def included(path: Path) -> frozenset[str]:
    """The standard headers that a source includes, itself or through headers of the emulator."""
    text = path.read_text(encoding="utf-8")
    found = set(re.findall(r"^#include <(\w+)>", text, re.MULTILINE))
    for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE):
        for place in (EMULATOR / name, path.parent / name):
            if place.is_file():
                found |= included(place)
    return frozenset(found)


def missing(path: Path) -> dict[str, str]:
    """What a source uses without its header: the headers by name."""
    code = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    used = set(re.findall(r"\bstd::(\w+)", code)) & HEADER_OF.keys()
    return {name: HEADER_OF[name] for name in sorted(used) if HEADER_OF[name] not in included(path)}


def sources_of_pages() -> list[Path]:
    """What emulator/wasm/CMakeLists.txt compiles."""
    text = (EMULATOR / "wasm" / "CMakeLists.txt").read_text(encoding="utf-8")
    [layers] = re.findall(r"foreach\(layer (.*?)\)", text)
    [parts] = re.findall(r"foreach\(part (.*?)\)", text, re.DOTALL)
    found = [path for layer in (*layers.split(), "wasm") for path in sorted((EMULATOR / layer).glob("*.cpp"))]
    return [*found, *(EMULATOR / "runtime" / f"{part}.cpp" for part in parts.split())]


@pytest.mark.parametrize("layer", sorted({path.relative_to(EMULATOR).parts[0] for path in SOURCES}))
def test_a_source_includes_what_it_uses(layer: str) -> None:
    found = {
        str(path.relative_to(EMULATOR)): missing(path) for path in SOURCES if EMULATOR / layer in path.parents
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_the_prelude_of_pages_has_each_range_algorithm() -> None:
    """clang 14's library has none."""
    used = {
        name
        for path in sources_of_pages()
        for name in re.findall(r"std::ranges::(\w+)", path.read_text(encoding="utf-8"))
    }
    prelude = (EMULATOR / "wasm" / "prelude.h").read_text(encoding="utf-8")
    [ranges] = re.findall(
        r"^namespace ranges \{(.*?)^\} // namespace ranges", prelude, re.DOTALL | re.MULTILINE
    )
    assert used <= set(re.findall(r"\b(\w+)\(Range &&range", ranges))


@pytest.mark.full
def test_sources_of_pages_compile_with_libcxx() -> None:
    clang = shutil.which("clang++")
    if not clang:
        pytest.skip("there is no clang++")
    flags = ["-std=c++20", "-stdlib=libc++", "-fsyntax-only", "-Wno-c++11-narrowing", f"-I{EMULATOR}"]
    command = [clang, *flags, "-include", str(EMULATOR / "wasm" / "prelude.h")]

    def errors(*what: str) -> str:
        return subprocess.run([*command, *what], input="", capture_output=True, text=True).stderr

    if reason := errors("-x", "c++", "-"):
        pytest.skip(f"no libc++ that the prelude is for: {reason.splitlines()[0]}")
    # The entry points of pages need emscripten's headers.
    sources = [str(path) for path in sources_of_pages() if EMULATOR / "wasm" not in path.parents]
    with ThreadPoolExecutor() as pool:
        found = [*pool.map(errors, sources)]
    assert [text for text in found if "error:" in text] == []
