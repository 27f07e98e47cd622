"""Where a kernel's registers go: machine code with live counts, liveness, allocation, and a plot. AMDGCN only.

    print(registers.text(compiled, "machine"))          # or "liveness", "allocation"
    registers.plot(compiled, "registers.svg")           # needs matplotlib: pip install 'wavedsl[plot]'
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wavedsl.codegen import is_amd
from wavedsl.ir.errors import LaunchError

VIEWS = ("machine", "liveness", "allocation")


def _allocated(compiled: Any) -> tuple[Any, dict[str, int], Any]:
    """(allocated program, registers by file, liveness), made anew from the kernel IR."""
    if not is_amd(compiled.target):
        raise LaunchError("only AMDGCN registers are allocated here", hint="ptxas -v and cuobjdump say it for NVIDIA")
    if compiled.kernel_ir is None:
        raise LaunchError("a kernel from a file or a cache has no kernel IR", hint="compile it: kernel.compile(…)")
    from wavedsl.codegen.amdgcn import liveness
    from wavedsl.codegen.amdgcn.emit import allocated
    from wavedsl.targets import get_target

    program, used, _ = allocated(compiled.kernel_ir, get_target(compiled.target))
    return program, used, liveness.analyse(program)


def text(compiled: Any, view: str) -> str:
    """One of `VIEWS` as text. Raises LaunchError for kernels whose registers are not ours to show."""
    from wavedsl.codegen.amdgcn.machine_text import allocation_text, liveness_text, program_text

    program, used, live = _allocated(compiled)
    if view == "machine":
        return program_text(program, live)
    if view == "liveness":
        return liveness_text(program, live)
    return allocation_text(program, used)


def plot(compiled: Any, path: str | Path) -> Path:
    """Live registers by file over the program, loops shaded, steps of occupancy as lines; the path.

    Any suffix that matplotlib knows. Raises ToolchainError where matplotlib is missing.
    """
    from wavedsl.analysis.plot import pyplot
    from wavedsl.codegen.amdgcn.machine_text import live_counts
    from wavedsl.targets import get_target

    plt = pyplot()
    program, _, live = _allocated(compiled)
    counts = live_counts(program, live)
    figure, axes = plt.subplots(figsize=(9, 4.5))
    number = range(len(counts.vector))
    both = [v + a for v, a in zip(counts.vector, counts.accumulation)]
    axes.step(number, counts.vector, where="mid", linewidth=1, label="vector")
    if any(counts.accumulation):
        axes.step(number, both, where="mid", linewidth=1, label="vector + accumulation")
    axes.step(number, counts.scalar, where="mid", linewidth=1, label="scalar")
    for i, loop in enumerate(program.loops):
        last = program.blocks[loop.last]
        end = live.starts[loop.last] + max(1, len(last.insts))
        axes.axvspan(live.starts[loop.first], end, alpha=0.1, color="gray", label="loops" if i == 0 else None)
    target = get_target(compiled.target)
    top = max([*both, 1])
    before = None
    for registers in range(512, 0, -8):
        waves = target.occupancy(registers, compiled.shared_bytes, program.block_threads)
        if waves and waves != before and registers <= 1.3 * top:
            axes.axhline(registers, linewidth=0.5, linestyle=":", color="black")
            axes.text(0, registers, f"{waves} wave{'s' * (waves != 1)}", fontsize=7, va="bottom")
        before = waves
    axes.set_xlabel("instruction")
    axes.set_ylabel("live registers")
    axes.set_title(f"{compiled.name} for {compiled.target}")
    axes.legend(loc="upper right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return Path(path)
