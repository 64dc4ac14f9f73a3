"""Utilities that every package may use: files, the cache, child processes, progress, the terminal.

Import the modules directly; the package itself exports nothing.
"""
