"""The lock of builds: held by one process, and gone with it or when it is released."""

import fcntl
import subprocess
import sys
import textwrap

import pytest

from ladder.call.torch.build_lock import BuildLock

HOLDER = """
    import sys, time
    from ladder.call.torch.build_lock import BuildLock
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
    assert not path.exists(), "torch's own lock would wait until it is gone"


def test_a_file_that_the_process_before_removes_is_no_lock(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    locks = []

    def flock(file, operation):
        locks.append(operation)
        if len(locks) == 1:
            path.unlink()

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        lock = BuildLock(str(path))
        assert lock.try_acquire() and len(locks) == 2 and path.exists()
    lock.release()
