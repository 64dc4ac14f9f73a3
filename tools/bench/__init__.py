"""Benchmarks of the project's own parts: ``python -m tools.bench emulator``."""
