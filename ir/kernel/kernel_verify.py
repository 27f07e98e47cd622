"""The verifier of kernel IR: re-derives from the ops alone what builder and passes promise. Returns findings.

What holds of every kernel:

* Every value is defined once, before its uses, in the same region or one around it; a region ends with `yield`.
* Operands and results have the types of the op's row; loads and stores move as many bytes as their registers hold.
* A loop's inits, carried values, next values and results agree in type; both branches of an `if` do.
* A value marked uniform depends on uniform values only; operands marked `u:` in the row are uniform.
* Ranges and known-zero bits hold: all integers are computed for random samples of lanes, workgroups, parameters, loaded
  data and trips, extremes among them, with NumPy alone. A carried value is sampled where its value can be computed from
  the trip (init + trip × constant); elsewhere its declared range is assumed, and shown to be kept by the next value.
* With a target: immediates, widths of copies, matrix and load atoms, shared memory are the target's.
* Before shared memory is read, at least one group of asynchronous copies into that buffer has been committed and waited
  for and, with several waves, passed a barrier; no barrier stands where some waves of a workgroup do not come.
* A launch that may begin before the one in front has ended touches global memory behind its `grid.wait` alone.
* If asked for, every op has a location.

INVARIANT: shares no code with builder, facts or fold rules.
"""

from __future__ import annotations

from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.kernel.verify_copies import check_barriers, check_copies
from wavedsl.ir.kernel.verify_launch import check_launch
from wavedsl.ir.kernel.verify_ops import Check, Finding
from wavedsl.ir.kernel.verify_ranges import Samples
from wavedsl.ir.target import Target


def verify(kernel: Kernel, target: Target | None = None, *, locations: bool = False, after: str = "") -> None:
    """Raise CompileError with the first finding (and how many more) of `check`; `after` names the pass to blame."""
    found = check(kernel, target, locations=locations)
    if found:
        first = found[0]
        blame = f"after {after}: " if after else ""
        more = f" ({len(found) - 1} more findings)" if len(found) > 1 else ""
        raise CompileError(
            f"{blame}kernel IR of {kernel.name}: '{first.fact}' does not hold: {first.message}{more}",
            first.loc,
            "this is a defect of the compiler, not of the kernel",
        )


def check(kernel: Kernel, target: Target | None = None, *, locations: bool = False) -> list[Finding]:
    """All findings, in the order of the rules above."""
    state = Check(kernel, target, locations)
    state.region(kernel.body, 0)
    if state.findings:
        return state.findings  # the rules below rely on well-formed ops
    if target is not None:
        state.target_limits()
    if "copy.async" in state.names:
        check_copies(state)
    check_barriers(state)
    if "grid.wait" in state.names:
        check_launch(state)
    Samples(state).run()
    return state.findings
