"""Which pipe of NVIDIA's sub-cores an op of kernel IR takes, and for how many clocks.

In: an op, the clocks of a warp instruction by pipe. Out: (pipe, clocks). The rates are those of the chips' own table
(`SmModel.pipes`): f32 is 64 lanes per clock and SM on A100 and 128 on Hopper, integers and comparisons 64 on both, so
one price for both, as schedules are made with (`Target.costs`), is wrong for one of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from wavedsl.ir.kernel.kernel_ir import Op
from wavedsl.runtime.emulator.cycle_chips import SmModel, model_of

SLOW = frozenset({"exp2", "log2", "rcp", "rsqrt", "sqrt", "sqrt_approx", "sin", "cos"})
"""Ops of the transcendental unit, a quarter of the vector rate on both vendors' chips."""
MANY = {"fdiv": 8, "udiv": 20, "urem": 20, "pack": 1}
"""Vector instructions that one op expands into, roughly: the expansions of codegen/*/select_*.py."""


def pipes_of(target: str) -> Mapping[str, int]:
    """Clocks of a warp instruction by pipe of a chip's sub-core."""
    model = model_of(target)
    assert isinstance(model, SmModel), f"{target} has no pipes of NVIDIA's"
    return model.pipes


def pipe_of(op: Op, pipes: Mapping[str, int]) -> tuple[str, int]:
    """The pipe of an op that is neither memory, product nor control, and its clocks there."""
    words = max([1, *(r.type.n for r in op.results)]) * MANY.get(op.name, 1)
    if op.name in SLOW:
        pipe = "sfu"
    elif op.name[0] == "f" and any(v.type.kind == "f64" for v in (*op.results, *op.args)):
        pipe = "f64"
    else:
        pipe = "fma" if op.name[0] == "f" and op.name != "fcmp" else "alu"
    return pipe, pipes.get(pipe, 1) * words
