"""What every folder may use: files, the cache, child processes, progress, the terminal.

Each module is its own door.
"""
