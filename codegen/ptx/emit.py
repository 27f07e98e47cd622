"""Kernel IR to a PTX module: select, widen, coalesce, print, verify. The back end's front door.

In: a `Kernel` and a `Target`. Out: a `PtxProgram`. Deterministic: the text depends on the kernel and the target alone.
"""

from __future__ import annotations

from functools import partial

from wavedsl.codegen.ptx.coalesce import coalesce
from wavedsl.codegen.ptx.machine import flatten
from wavedsl.codegen.ptx.resources import Assemble, PtxResources
from wavedsl.codegen.ptx.select import row, select
from wavedsl.codegen.ptx.text import STATIC_SHARED_LIMIT, moves, print_module
from wavedsl.codegen.ptx.verify import verify
from wavedsl.codegen.ptx.wide_words import wide_words
from wavedsl.ir import trail
from wavedsl.ir.cuts.register_file import LESS_PER_WAVE
from wavedsl.ir.errors import CompileError, ConstraintError, RegisterPressureError
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.kernel.read_beside import BESIDE
from wavedsl.ir.lower.late_regions import LONG_VALUES, STREAMED
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

THREAD_REGISTERS = 255
REGISTER_FILE = 65536
"""Registers of a thread and of all threads of a workgroup, on every chip from sm_80 on."""


@dataclass(frozen=True)
class PtxProgram:
    """One kernel as PTX. A launch passes `dynamic_shared_bytes`; other shared memory is declared in the text."""

    entry: str
    """The entry's name in the text."""
    text: str
    target: str
    block: int
    """Threads per workgroup."""
    dynamic_shared_bytes: int
    resources: PtxResources
    pressure: int
    """32-bit registers per lane that are live together as the code stands. ptxas may reorder pure code to need fewer;
    well above the chip's 255 it spills."""


def compile_kernel_ir(
    kernel: Kernel, target: Target, assemble: Assemble | None = None, *, check: bool = True
) -> PtxProgram:
    """PTX for a kernel. `assemble` is asked for registers and spills when they are first wanted; `check` verifies the
    text.

    Raises ConstraintError for a workgroup or shared memory the chip does not have, CompileError for what it cannot do.
    """
    if kernel.shared_bytes > target.shared_bytes:
        raise ConstraintError(
            f"{kernel.name} needs {kernel.shared_bytes} bytes of shared memory, "
            f"{target.name} has {target.shared_bytes} per workgroup",
            None, "use smaller tiles or fewer pipeline stages",
        )  # fmt: skip
    if kernel.block > target.max_threads:
        raise ConstraintError(
            f"{kernel.name} has {kernel.block} threads per workgroup, {target.name} allows {target.max_threads}"
        )
    _check_carried(kernel, target)
    code = select(kernel, target.name)
    flat = wide_words(flatten(code.body), partial(row, target.name), code.registers)
    lines, pressure = coalesce(flat, moves(target.name, row))
    trail.stage("selected", lambda: "\n".join(str(line) for line in lines))
    printed = print_module(kernel, target.name, code, lines, _together(kernel, target, pressure))
    if check:
        found = verify(printed.text)
        if found:
            raise CompileError("the PTX back end made an illegal program:\n  " + "\n  ".join(found[:5]))
    dynamic = kernel.shared_bytes > STATIC_SHARED_LIMIT
    trail.stage("text", lambda: printed.text)
    resources = PtxResources(
        printed.text, printed.instructions, printed.loops, kernel.shared_bytes, kernel.block, target.occupancy, assemble
    )
    return PtxProgram(
        printed.entry,
        printed.text,
        target.name,
        kernel.block,
        kernel.shared_bytes if dynamic else 0,
        resources,
        pressure,
    )


HALF = 1024
"""Threads of an SM, half of those it can have, beyond which more bring no more bytes on their way."""

AHEAD = 8
"""Registers of loads that ptxas starts earlier than the text where nothing waits for a sum: GeGLU's gradient, 63 by the
text, spilled with 64. Addresses beyond one an array, of 64 bits, come on top: with those of the 16 places around a
result of Winograd's transform, 75 by the text, it spilled with 96."""


def _together(kernel: Kernel, target: Target, pressure: int) -> int:
    """Workgroups on an SM that ptxas leaves registers for: as many as fit by the pressure of the text, where the kernel
    holds long rows until their sums are known, so that nothing else hides its loads' latency, or computes long values
    as it stores them. Told of one, ptxas takes what one may have: RMSNorm of 16384 columns in 8 warps got 135
    registers, of which 122 suffice, and an SM held one workgroup instead of two. Other kernels do get what one may
    have: ptxas puts several trips' loads and products in flight, and long chains of choices (sorts, scans) take up to
    twice the text's pressure in its order."""
    if BESIDE in kernel.notes:
        return int(kernel.notes[BESIDE])
    how = kernel.notes.get(LONG_VALUES)
    if how is None:
        return 1
    if how == STREAMED:
        loads = [op for op in kernel.body.walk() if op.name == "load.global" and not op.args[1].uniform]
        arrays = sum(p.kind == "pointer" for p in kernel.params)
        pressure += AHEAD + 2 * max(0, len({op.args[:3] for op in loads}) - arrays)
    warps = target.occupancy(pressure, kernel.shared_bytes, kernel.block)
    return max(1, min(HALF, warps * target.wave_size) // kernel.block)


def _check_carried(kernel: Kernel, target: Target) -> None:
    """Raise RegisterPressureError where what a loop carries from trip to trip alone exceeds the registers of a thread:
    no order of the code avoids that. What ptxas can still fit by reordering or a few spills is left to it."""
    budgets = [op.attrs["count"] for op in kernel.body.walk() if op.name == "registers"]
    limit = max(budgets, default=min(THREAD_REGISTERS, REGISTER_FILE // kernel.block))
    for op in kernel.body.walk():
        if op.name != "for":
            continue
        carried = sum(v.type.words for v in op.regions[0].args)
        if carried > limit:
            raise RegisterPressureError(
                f"{kernel.name}: a loop carries {carried} registers per thread from trip to trip, {target.name} has "
                f"{limit} with {kernel.block} threads in a workgroup",
                op.loc,
                LESS_PER_WAVE,
            )
