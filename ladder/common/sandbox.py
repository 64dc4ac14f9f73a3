"""What a process gives up before it runs code that is not trusted.

* The network: a network namespace of its own, or where a user may not make one, no TCP (Landlock).
* Writing files outside one folder (Landlock, Linux 5.13 or newer).
* Large files, and core dumps.
* If the caller names folders that may be read: reading and executing anything else (Landlock).

Landlock and the namespace also keep the process from reading other processes' memory and descriptors in
/proc. Sources: landlock(7), user_namespaces(7), setrlimit(2).
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: The protections that a process may have, best first.
NO_NETWORK = "no network (namespace)"
NO_TCP = "no TCP (Landlock)"
NO_WRITES = "no writes outside its folder (Landlock)"
NO_READS = "no reads outside the folders that it needs (Landlock)"

_MOST_FILE_BYTES = 64 * 2**20
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REFER, _TRUNCATE = (1 << bit for bit in (0, 1, 2, 3, 13, 14))
#: Removing and making of all kinds.
_CHANGE = sum(1 << bit for bit in range(4, 13))
_TCP, _SCOPES = 0b11, 0b11


def enter(folder: Path, readable: Sequence[Path] | None = None) -> list[str]:
    """Gives up for good what is listed above, but may write in ``folder``; returns the protections in force.

    With ``readable``, it may read only these folders and its own, and execute programs only in these. The
    process must have one thread.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    has_namespace = libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0
    version = _landlock(libc, folder, readable)
    on = [NO_NETWORK] if has_namespace else [NO_TCP] if version >= 4 else []
    reads = [NO_READS] if version and readable is not None else []
    return [*on, *([NO_WRITES] if version else []), *reads]


def _landlock(libc: ctypes.CDLL, folder: Path, readable: Sequence[Path] | None) -> int:
    """Restricts the process; returns the version of Landlock, or 0 if it is not there."""
    version = _call(libc, _CREATE_RULESET, None, 0, _VERSION_FLAG)
    if version < 1:
        return 0
    writing = _WRITE_FILE | _CHANGE | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    reading, executing = (0, 0) if readable is None else (_READ_FILE | _READ_DIR, _EXECUTE)
    handled = struct.pack("<QQQ", writing | reading | executing, _TCP, _SCOPES)
    handled = handled[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _call(libc, _CREATE_RULESET, handled, len(handled), 0)
    if rules < 0:
        return 0
    try:
        allowed_in = [(folder, writing | reading), (Path(os.devnull), _WRITE_FILE | reading & _READ_FILE)]
        allowed_in += [(one, reading | executing) for one in readable or ()]
        for path, allowed in allowed_in:
            with _opened(path) as place:
                _call(libc, _ADD_RULE, rules, _PATH_BENEATH, struct.pack("<Qi", allowed, place), 0)
        return version if _call(libc, _RESTRICT_SELF, rules, 0) == 0 else 0
    finally:
        os.close(rules)


def _call(libc: ctypes.CDLL, number: int, *arguments: int | bytes | None) -> int:
    """A system call that libc has no function for; -1 if it fails."""
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in (number, *arguments)]
    return int(libc.syscall(*words))


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)


def missing(protections: Sequence[str]) -> list[str]:
    """Says what a process with these protections may still do."""
    found = []
    if NO_NETWORK not in protections:
        found.append("use the network" + (", but not TCP" if NO_TCP in protections else ""))
    if NO_WRITES not in protections:
        found.append("write files anywhere")
    return found
