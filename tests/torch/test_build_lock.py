"""The lock of builds: held by one process, and gone with it."""

import fcntl
import subprocess
import sys
import textwrap

import pytest

from ladder.torch.build_lock import BuildLock

HOLDER = """
    import sys, time
    from ladder.torch.build_lock import BuildLock
    lock = BuildLock(sys.argv[1])
    lock.try_acquire()
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_build_leaves_no_lock(tmp_path):
    path = tmp_path / "lock"
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout and holder.stdout.readline() == "held\n"
        with open(path) as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.kill()
    lock = BuildLock(str(path))
    assert lock.try_acquire()
    lock.release()
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
