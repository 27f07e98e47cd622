"""Values of other lanes that cost no trip through LDS: DPP patterns, and what lanes that agree allow.

In: a `shuffle_xor` of kernel IR. Out: the DPP pattern that carries it out, if any.

The steps of a butterfly reduction leave the same number in more and more lanes. Where lanes l and l ^ 3 agree, the
value of lane l ^ 4 is that of lane l ^ 7, and that is a pattern (a half row mirrored); l ^ 4 itself is none. Where l
and l ^ 8 agree, it is that of lane l - 4 of the row.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import ROWS, Op, Value

_ROWS_OF_16 = {7: "row_half_mirror", 8: "row_ror:8", 15: "row_mirror"}
_QUAD = {1: "[1,0,3,2]", 2: "[2,3,0,1]", 3: "[3,2,1,0]"}
HALF_WAVE = 32
DEPTH = 12
"""Operations that are looked through for lanes that agree: the steps of a butterfly, two operations each."""


def dpp_pattern(op: Op) -> str | None:
    """The DPP pattern that gives every lane what a `shuffle_xor` does, None where there is none."""
    mask = op.attrs["mask"]
    if mask == 4 and agrees(op.args[0], 1) and agrees(op.args[0], 2):
        mask = 7
    elif mask == 4 and agrees(op.args[0], 8):
        return "row_ror:4"
    return f"quad_perm:{_QUAD[mask]}" if mask in _QUAD else _ROWS_OF_16.get(mask)


def agrees(v: Value, mask: int, depth: int = DEPTH) -> bool:
    """Whether lanes l and l ^ mask are known to hold the same value: it is uniform, or a step of a butterfly with that
    mask has made it, or values of which that is true."""
    op = v.op
    if v.uniform or v.const is not None:
        return True
    if op is None or not depth:
        return False
    if op.name == "shuffle_xor":
        return agrees(op.args[0], mask, depth - 1)
    if not ROWS[op.name].commutes or len(op.args) != 2:
        return False
    return is_step(op, mask) or all(agrees(a, mask, depth - 1) for a in op.args)


def halves_agree(v: Value) -> bool:
    """Whether all lanes of either half of the wave hold the same value."""
    return all(agrees(v, 1 << i) for i in range(HALF_WAVE.bit_length() - 1))


def is_step(op: Op, mask: int) -> bool:
    """Whether an operation combines a value with that of lane ^ mask, in either order."""
    for moved, own in (op.args, op.args[::-1]):
        source = moved.op
        if source is not None and source.name == "shuffle_xor" and source.attrs["mask"] == mask:
            if source.args[0] is own:
                return True
    return False
