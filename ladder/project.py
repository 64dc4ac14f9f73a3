"""The project's version and address, from the package's metadata."""

from __future__ import annotations

import importlib.metadata

DISTRIBUTION = "flash-ladder"


def version() -> str:
    """The installed version, or ``unknown``."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def url(path: str = "") -> str:
    """The project's address, or that of ``path`` below it. All displayed links are built here."""
    return _below(_addresses().get("Repository", ""), path)


def site(path: str = "") -> str:
    """The site's address, or that of ``path`` below it."""
    return _below(_addresses().get("Documentation", ""), path)


def _addresses() -> dict[str, str]:
    try:
        entries = importlib.metadata.metadata(DISTRIBUTION).get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        entries = []
    return dict(entry.split(", ", 1) for entry in entries)


def _below(base: str, path: str) -> str:
    return f"{base}/{path}" if path else base
