"""Programs for those who work on the project. From its root: ``python -m tools.bench --help``."""
