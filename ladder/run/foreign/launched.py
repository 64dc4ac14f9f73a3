"""What a block of :func:`ladder.counting` launched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from ladder.run.emulator import Finding, Launch, Module


@dataclass
class Counted:
    """The launches of a block of :func:`counting`, in their order."""

    arch: str
    check: bool = False
    launches: list[Launch] = field(default_factory=list)

    @property
    def findings(self) -> list[Finding]:
        """What the sanitizer found in all launches, with ``check``."""
        return [finding for launch in self.launches for finding in launch.findings]

    def table(self) -> pd.DataFrame:
        """One row per launch: kernel, grid, block, smem_bytes and the counters, empty where unknown."""
        rows = [
            {
                "kernel": launch.kernel,
                "grid": launch.grid,
                "block": launch.block,
                "smem_bytes": launch.smem_bytes,
                **launch.totals(),
            }
            for launch in self.launches
        ]
        return pd.DataFrame(rows)

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[object],
        smem_bytes: int,
    ) -> None:
        """Runs a compiled kernel and keeps its launch; for the parts that know one language.

        Raises what :meth:`ladder.run.emulator.Module.launch` raises.
        """
        launch = module.launch(kernel, list(grid), list(block), arguments, smem_bytes, check=self.check)
        self.launches.append(launch)
