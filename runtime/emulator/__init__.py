"""Instruction-level emulators of AMDGCN and PTX text.

`run` takes text, ours or anybody's, launches it on NumPy arrays in place and reports what a chip would hide: missing
waits, hazards, races, uninitialised and out-of-bounds accesses. AMDGCN runs in `amdgcn`, PTX in `ptx`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from wavedsl.codegen import TARGETS, is_amd
from wavedsl.ir.called import door
from wavedsl.ir.errors import CompileError, LaunchError
from wavedsl.runtime.emulator.report import EmulationReport, Finding
from wavedsl.runtime.tensor_map import TensorMap

__all__ = ["EmulationReport", "Finding", "TensorMap", "run"]

CHECKS = (True, False, "report")
"""What `checks` may be."""


@door
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

    `target`: gfx90a, gfx942, gfx950 or sm_80 and later. `grid` counts workgroups, `block` threads. `args`, in the
    order of the kernel's parameters: a NumPy array (by pointer, changed in place), a NumPy scalar (by value), bytes
    (raw, by value), a `TensorMap`, None (a null pointer). `kernel` names the entry where the text has several.
    `shared_bytes` is dynamic shared memory on top of what the text declares. `cluster`: CTAs per cluster of a launch on
    sm_90 whose text does not fix it. `workgroups`: run only so many of the grid, in whole clusters, from number `first`
    on (the clocks are still those of the whole grid). `kept`: numbers of the arguments that caches keep from the first
    access to the last: none of their bytes come from memory. `checks`: True raises `EmulationError` at the end of the
    run when there are findings, "report" only lists them, False runs as fast as it can. Raises LaunchError when
    arguments, sizes or the target do not fit the kernel.
    """
    target = _target(target)
    _check_text(asm, target)
    grid, block = _sizes("grid", grid, 0), _sizes("block", block, 1)
    if checks not in CHECKS:
        raise LaunchError(f"checks={checks!r}", hint='True, False, or "report" to list what is found')
    if is_amd(target):
        from wavedsl.runtime.emulator.amdgcn.emulator import run_amdgcn

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


def _target(name: Any) -> str:
    """The name of a chip whose text the emulators run: of NVIDIA's any that is no older than the oldest that there is
    text for (a later one runs that text, too). LaunchError for another."""
    if isinstance(name, str):
        if name in TARGETS:
            return name
        from wavedsl.codegen.ptx.isa import parse_target
        from wavedsl.codegen.ptx.target import CHIPS

        with suppress(CompileError):
            if parse_target(name).number >= CHIPS[0].number:
                return name
    hint = f"one of {', '.join(TARGETS)}, or a later chip of NVIDIA's: sm_89, sm_90, sm_100, …"
    raise LaunchError(f"no emulator for target {name!r}", hint=hint)


def _check_text(asm: Any, target: str) -> None:
    """LaunchError for what is no text, or another vendor's."""
    if not isinstance(asm, str):
        raise LaunchError(f"asm is a {type(asm).__name__}, not text", hint="compiled.asm is a compiled kernel's text")
    ours, others = (".amdhsa_", ".visible") if is_amd(target) else (".visible", ".amdhsa_")
    if others in asm and ours not in asm:
        kinds = ("PTX", "AMDGCN") if is_amd(target) else ("AMDGCN", "PTX")
        raise LaunchError(f"the text is {kinds[0]}, but {target} runs {kinds[1]}", hint="give the text's own target")


def _sizes(what: str, given: Any, least: int) -> tuple[int, ...]:
    """A grid or a block as one to three whole numbers. LaunchError for what is none."""
    sizes = tuple(given) if isinstance(given, (tuple, list, np.ndarray)) else (given,)
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= least for n in sizes)
    if not whole or not 1 <= len(sizes) <= 3:
        raise LaunchError(f"{what}={given!r}", hint=f"one to three whole numbers from {least} on: {what}=(4, 2, 1)")
    return tuple(int(n) for n in sizes)
