"""The rungs as folders: stage.toml, discovery, new rungs. Also the virtual GPUs that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.stages.discovery import Ladder, discover, ladder_pages, stage_and_options
    from ladder.stages.new import copy_sources, new_stage, stage_toml
    from ladder.stages.places import (
        OWN_EXERCISES,
        OWN_STAGES,
        examples_root,
        exercises_root,
        include_directory,
        is_repository,
        lessons_root,
        own_folder,
        require_own,
        results_root,
        root,
    )
    from ladder.stages.porting import Merge, port
    from ladder.stages.reading import read_stage
    from ladder.stages.renamed import FOLD, FOLDED, GONE, name_today, of_today
    from ladder.stages.stage import (
        ARCHITECTURES,
        BY_THE_MANUAL,
        DEFAULT_ARCH,
        OptionValue,
        Stage,
        arch_number,
        format_options,
        parse_options,
        require_arch,
    )

__getattr__ = door(__name__)
