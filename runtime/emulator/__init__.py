"""Instruction-level emulators of AMDGCN and PTX text.

`run` takes text, ours or anybody's, launches it on NumPy arrays in place and reports what a chip would hide: missing
waits, hazards, races, uninitialised and out-of-bounds accesses. AMDGCN runs in `amdgcn`, PTX in `ptx`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from wavedsl.codegen import is_amd
from wavedsl.runtime.emulator.report import EmulationReport, Finding
from wavedsl.runtime.tensor_map import TensorMap

__all__ = ["EmulationReport", "Finding", "TensorMap", "run"]


def run(
    asm: str,
    *,
    target: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    kernel: str | None = None,
    shared_bytes: int = 0,
    checks: bool | str = True,
    cluster: Sequence[int] | None = None,
    workgroups: int | None = None,
    first: int = 0,
    kept: Collection[int] = (),
) -> EmulationReport:
    """Run a kernel's text on the emulator of its target.

    `target`: gfx90a, gfx942, gfx950 or sm_80 to sm_90a. `grid` counts workgroups, `block` threads. `args`, in the
    order of the kernel's parameters: a NumPy array (by pointer, changed in place), a NumPy scalar (by value), bytes
    (raw, by value), a
    `TensorMap`, None (a null pointer). `kernel` names the entry where the text has several. `shared_bytes` is dynamic
    shared memory on top of what the text declares. `cluster`: CTAs per cluster of a launch on sm_90 whose text does not
    fix it. `workgroups`: run only so many of the grid, in whole clusters, from number `first` on (the clocks are still
    those of the whole grid). `kept`: numbers of the arguments that caches keep from the first access to the last: none
    of their bytes come from memory. `checks`: True raises `EmulationError` at the end of the run when there are
    findings, "report" only lists them, False runs as fast as it can. Raises LaunchError when arguments do not fit the
    kernel.
    """
    if is_amd(target):
        from wavedsl.codegen.amdgcn.isa import TARGETS
        from wavedsl.ir.errors import LaunchError
        from wavedsl.runtime.emulator.amdgcn.emulator import run_amdgcn

        if target not in TARGETS:
            raise LaunchError(f"no emulator for {target}: AMDGCN targets are {', '.join(TARGETS)}")
        return run_amdgcn(
            asm,
            target=target,
            grid=grid,
            block=block,
            args=args,
            kernel=kernel,
            shared_bytes=shared_bytes,
            checks=checks,
            workgroups=workgroups,
            first=first,
            kept=kept,
        )
    from wavedsl.runtime.emulator.ptx.emulator import run_ptx

    return run_ptx(
        asm,
        target=target,
        grid=grid,
        block=block,
        args=args,
        kernel=kernel,
        shared_bytes=shared_bytes,
        checks=checks,
        cluster=cluster,
        workgroups=workgroups,
        first=first,
        kept=kept,
    )
