"""Benchmarks of the project's own parts: ``python -m ladder.bench emulator``."""
