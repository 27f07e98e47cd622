"""Carried values that turn out to differ between lanes: what was built of them inside the loop is marked again.

In: a closed region, and its arguments that are not uniform after all. Out: `uniform` of the values inside. Invariant:
an op's result is uniform only if what its row asks for is.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.kernel_ir import ROWS, Region, Value


def demote(region: Region, args: Sequence[Value]) -> None:
    """Mark carried values per lane and re-derive what depends on them inside the loop, until nothing changes.

    Raises CompileError where an operand that must be uniform is not any more.
    """
    for a in args:
        a.uniform = False
    changed = True
    while changed:
        changed = False
        for op in region.walk():
            row = ROWS[op.name]
            if op.name == "for":
                inner = op.regions[0]
                for arg, init, out, r in zip(inner.args[1:], op.args[3:], inner.ops[-1].args, op.results):
                    if arg.uniform and not (init.uniform and out.uniform):
                        arg.uniform = r.uniform = False
                        changed = True
            elif op.name == "if":
                for k, r in enumerate(op.results):
                    if r.uniform and not all(body.ops[-1].args[k].uniform for body in op.regions):
                        r.uniform = False
                        changed = True
            elif row.uniform == "args":
                for r in op.results:
                    if r.uniform and not all(a.uniform for a in op.args):
                        r.uniform = False
                        changed = True
            for at in uniform_operands(op.name):
                if at < len(op.args) and not op.args[at].uniform:
                    raise CompileError(
                        f"operand {at} of {op.name} must be uniform over the wave, but depends on a per-lane carry",
                        op.loc,
                    )
        last = region.ops[-1]
        for a, v in zip(region.args[1:], last.args):
            if a.uniform and not v.uniform:
                a.uniform = False
                changed = True


_uniform_at: dict[str, tuple[int, ...]] = {}


def uniform_operands(name: str) -> tuple[int, ...]:
    """Positions of the operands that a row marks `u:`."""
    found = _uniform_at.get(name)
    if found is None:
        found = tuple(i for i, a in enumerate(ROWS[name].args.split()) if a.startswith("u:"))
        _uniform_at[name] = found
    return found
