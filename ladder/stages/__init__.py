"""The rungs as folders: stage.toml, discovery, new rungs. Also the virtual GPUs that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.stages.discovery import (
        ARCHITECTURES,
        DEFAULT_ARCH,
        OWN_EXERCISES,
        OWN_STAGES,
        Ladder,
        OptionValue,
        Stage,
        arch_number,
        discover,
        exercises_root,
        format_options,
        include_directory,
        own_folder,
        parse_options,
        read_stage,
        require_arch,
        require_own,
        root,
        stage_and_options,
    )
    from ladder.stages.new import (
        copy_sources,
        new_stage,
        stage_toml,
    )

_NAMES = {
    "ARCHITECTURES": "discovery",
    "DEFAULT_ARCH": "discovery",
    "Ladder": "discovery",
    "OWN_EXERCISES": "discovery",
    "OWN_STAGES": "discovery",
    "OptionValue": "discovery",
    "Stage": "discovery",
    "arch_number": "discovery",
    "copy_sources": "new",
    "discover": "discovery",
    "exercises_root": "discovery",
    "format_options": "discovery",
    "include_directory": "discovery",
    "new_stage": "new",
    "own_folder": "discovery",
    "parse_options": "discovery",
    "read_stage": "discovery",
    "require_arch": "discovery",
    "require_own": "discovery",
    "root": "discovery",
    "stage_and_options": "discovery",
    "stage_toml": "new",
}

__getattr__ = door(__name__, _NAMES)
