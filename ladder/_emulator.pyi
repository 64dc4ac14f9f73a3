"""The compiled module; ladder.emulator is what gives it types."""

from typing import Any

def __getattr__(name: str) -> Any: ...
