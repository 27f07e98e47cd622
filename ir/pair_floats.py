"""Two f32 operations on neighbouring registers become one on a pair, for chips that add and multiply pairs.

In: a kernel whose float arithmetic is element by element. Out: a new kernel where two operations of one kind, whose
operands are neighbours (registers 2i and 2i + 1 of one tuple, or the two halves of a pair made here) or the same
number, are one operation on tuples of two. Exponentials have no paired form, but make pairs of pairs, so that what
follows them finds its operands side by side. INVARIANT: each result is computed by the same operations in the same
order; only their place changes, never across an effect that reads them.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.builder import Builder
from wavedsl.ir.kernel_ir import F32, ROWS, Kernel, Op, Region, Value
from wavedsl.ir.kernel_passes import copy_region, fresh_kernel, remove_dead_code
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

PAIRED = ("fadd", "fsub", "fmul", "ffma")
"""Operations with a packed form."""
FOLLOWING = ("exp2", "fneg", "select")
"""Operations that are done one by one, but whose results may lie side by side. So are selections, each by a condition
of its own: what masks scores must not take the packed arithmetic from what follows."""

Place = tuple[int, int, int]
"""(id of the tuple, of the word of narrower elements, or of the first op of a pair; which pair of its registers or,
from `UNPACKED` down, of its elements; which half)."""
UNPACKED = -2


@dataclass
class Pair:
    """Two ops that become one at the place of the later; `operands` per position: the two values."""

    low: Op
    high: Op
    operands: list[tuple[Value, Value]]


def pair_floats(kernel: Kernel, target: Target | None = None) -> Kernel:
    """The kernel with packed f32 arithmetic, where the target has it."""
    if target is None or not target.packed_f32:
        return kernel
    pairs: dict[Op, Pair] = {}
    _find(kernel.body, pairs, {})
    if not any(p.low.name in PAIRED for p in pairs.values()):
        return kernel
    later = {p.low if q is p.high else p.high for q, p in pairs.items()}
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    env: dict[Value, Value] = {}

    def hook(op: Op) -> bool:
        pair = pairs.get(op)
        if pair is not None:
            b.set_loc(op.loc)
            _emit(b, pair, env)
            return True
        return op in later

    copy_region(b, kernel.body, env, hook)
    fresh = b.finish()
    remove_dead_code(fresh)
    return fresh


def _find(region: Region, pairs: dict[Op, Pair], places: dict[Value, Place]) -> None:
    """The pairs of a region and of those inside it, by their later op."""
    first_use: dict[Value, int] = {}
    for i, op in enumerate(region.ops):
        for a in op.args:
            first_use.setdefault(a, i)
        for body in op.regions:
            for x in body.walk():
                for a in x.args:
                    first_use.setdefault(a, i)
    waiting: dict[Any, tuple[Op, int, list[Value]]] = {}
    for i, op in enumerate(region.ops):
        for body in op.regions:
            _find(body, pairs, places)
        if op.name == "slice" and op.results[0].type is F32:
            start = op.attrs["start"]
            places[op.results[0]] = (op.args[0].id, start >> 1, start & 1)
            continue
        if op.name == "unpack" and op.results[0].type is F32:
            index = op.attrs["index"]
            places[op.results[0]] = (op.args[0].id, UNPACKED - (index >> 1), index & 1)
            continue
        if op.name not in PAIRED and op.name not in FOLLOWING:
            continue
        result = op.results[0]
        if result.type is not F32 or result.uniform:
            continue
        args = list(op.args)
        if ROWS[op.name].commutes:
            args.sort(key=lambda a: _order(a, places))
        halves = {p[2] for a in args if (p := places.get(a)) is not None}
        if len(halves) != 1:
            continue
        half = halves.pop()
        chosen = args[1:] if op.name == "select" else args
        key = (op.name, *(_key(a, places) for a in chosen))
        other = waiting.get((key, 1 - half))
        if other is None or first_use.get(other[0].results[0], i) < i:
            waiting[key, half] = (op, i, args)
            continue
        del waiting[key, 1 - half]
        low, high = (other[0], op) if half else (op, other[0])
        low_args, high_args = (other[2], args) if half else (args, other[2])
        pairs[op] = Pair(low, high, list(zip(low_args, high_args)))
        places[low.results[0]] = (result.id, -1, 0)
        places[high.results[0]] = (result.id, -1, 1)


def _order(a: Value, places: dict[Value, Place]) -> tuple[int, ...]:
    place = places.get(a)
    return (1, a.id, 0) if place is None else (0, place[0], place[1])


def _key(a: Value, places: dict[Value, Place]) -> tuple[Any, ...]:
    """What both values at one operand position must share."""
    place = places.get(a)
    return ("same", a.id) if place is None else ("pair", place[0], place[1])


def _emit(b: Builder, pair: Pair, env: dict[Value, Value]) -> None:
    if pair.low.name == "select":
        made = b.emit("vec", [b.emit("select", [env[a] for a in side]) for side in zip(*pair.operands)])
    else:
        made = b.emit(pair.low.name, [b.vec(env[low], env[high]) for low, high in pair.operands])
    env[pair.low.results[0]] = b.slice(made, 0)
    env[pair.high.results[0]] = b.slice(made, 1)
