"""What a compiled PTX kernel uses: `CompiledKernel.resources` on NVIDIA chips.

In: counts from the printed text and a way to assemble it. Out: `PtxResources`, whose instruction and loop counts are
there at once and whose registers, spills and occupancy assemble the text when one of them is first asked for (PTX has
no physical registers: only ptxas knows). Without ptxas they are None, with one warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol

from wavedsl.codegen.ptx.text import LoopCount


class Assembled(Protocol):
    """What an assembler says of one entry; bytes per thread for spills and stack."""

    @property
    def registers(self) -> int: ...
    @property
    def spill_stores(self) -> int: ...
    @property
    def spill_loads(self) -> int: ...
    @property
    def stack(self) -> int: ...


Assemble = Callable[[str], "Assembled | None"]
"""PTX text to the assembler's account of it; None where there is no assembler."""


class PtxResources:
    """Counts of one kernel. `instructions` counts the entry's instruction lines, each in one class (`text.CLASSES`)."""

    vgprs = None
    agprs = None
    sgprs = None

    def __init__(
        self,
        text: str,
        instructions: dict[str, int],
        loops: list[LoopCount],
        shared_bytes: int,
        threads: int,
        occupancy: Callable[[int, int, int], int],
        assemble: Assemble | None,
    ):
        self.instructions = instructions
        self.loops = loops
        self.shared_bytes = shared_bytes
        self._text = text
        self._threads = threads
        self._occupancy = occupancy
        self._assemble = assemble
        self._report: Assembled | None = None
        self._asked = False

    def ask(self) -> None:
        """Have the text assembled, if there is an assembler."""
        if not self._asked:
            self._report = self._assemble(self._text) if self._assemble is not None else None
            self._asked = self._report is not None

    def _assembled(self) -> Assembled | None:
        if not self._asked:
            self.ask()
            self._asked = True
            if self._report is None:
                warnings.warn(
                    "registers, spills and occupancy of a PTX kernel need ptxas, which was not found", stacklevel=3
                )
        return self._report

    @property
    def registers(self) -> int | None:
        """Registers per thread."""
        report = self._assembled()
        return None if report is None else report.registers

    @property
    def spills(self) -> int | None:
        """Bytes per thread that ptxas stores to and loads from local memory because registers did not suffice."""
        report = self._assembled()
        return None if report is None else report.spill_stores + report.spill_loads

    @property
    def scratch_bytes(self) -> int | None:
        """Bytes of stack per thread."""
        report = self._assembled()
        return None if report is None else report.stack

    @property
    def occupancy(self) -> int | None:
        """Warps per SM after registers, shared memory and workgroup size."""
        report = self._assembled()
        return None if report is None else self._occupancy(report.registers, self.shared_bytes, self._threads)

    def __repr__(self) -> str:
        counted = ", ".join(f"{k} {v}" for k, v in self.instructions.items() if v)
        return f"PtxResources(shared {self.shared_bytes} B, instructions: {counted})"
