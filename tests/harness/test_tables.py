"""The tables of README and lessons are what the data and the emulator say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_tables_are_what_their_data_says() -> None:
    command = [sys.executable, str(ROOT / "results" / "tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
