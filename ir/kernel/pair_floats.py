"""Two f32 operations on neighbouring registers become one on a pair, for chips that add and multiply pairs.

In: a kernel whose float arithmetic is element by element. Out: a new kernel where two operations of one kind, whose
operands are neighbours (registers 2i and 2i + 1 of one tuple, or the two halves of a pair made here) or the same
number, are one operation on tuples of two. Exponentials have no paired form, but make pairs of pairs, so that what
follows them finds its operands side by side. INVARIANT: each result is computed by the same operations in the same
order; only their place changes, never across an effect that reads them.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import F32, I32, ROWS, Kernel, Op, Region, Value
from wavedsl.ir.kernel.kernel_passes import copy_op, copy_region, fresh_kernel, remove_dead_code
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

PAIRED = ("fadd", "fsub", "fmul", "ffma")
"""Operations with a packed form."""
FOLLOWING = ("exp2", "fneg", "rcp", "select", "cvt")
"""Operations that are done one by one, but whose results may lie side by side. So are selections, each by a condition
of its own: what masks scores must not take the packed arithmetic from what follows; and conversions of the integers of
a word, weights that a zero point is taken from and a scale multiplies."""

Place = tuple[int, int, int]
"""(id of the tuple, of the word of narrower elements, or of the first op of a pair; which pair of its registers or,
from `UNPACKED` down, of its elements; which half)."""
UNPACKED = -2
NEAR = 96
"""Operations that one moves up at most: as many as the longest functions have, which hold their steps meanwhile."""
TAKEN = ("slice", "unpack")
"""Operations that name a part of a value, and move up with what reads them."""


@dataclass
class Pair:
    """Two ops that become one; `operands` per position: the two values."""

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
    """The pairs of a region and of those inside it, by the op at whose place they are computed."""
    first_use: dict[Value, int] = {}
    made: dict[Value, int] = {}
    readers: dict[Value, list[int]] = {}
    for i, op in enumerate(region.ops):
        made.update(dict.fromkeys(op.results, i))
        for a in op.args:
            first_use.setdefault(a, i)
            readers.setdefault(a, []).append(i)
        for body in op.regions:
            for x in body.walk():
                for a in x.args:
                    first_use.setdefault(a, i)
    waiting: dict[Any, tuple[Op, int, list[Value]]] = {}
    done: set[Op] = set()
    for i, op in enumerate(region.ops):
        for body in op.regions:
            _find(body, pairs, places)
        if op.name == "slice" and op.results[0].type is F32:
            start = op.attrs["start"]
            places[op.results[0]] = (op.args[0].id, start >> 1, start & 1)
            continue
        if op.name == "unpack" and op.results[0].type in (F32, I32):
            index = op.attrs["index"]
            places[op.results[0]] = (op.args[0].id, UNPACKED - (index >> 1), index & 1)
            continue
        asked = _asked(op, places)
        for key, half, mine in asked:
            args, other = mine, waiting.get((key, 1 - half))
            if other is None or other[0] in done:
                continue
            place = op
            if first_use.get(other[0].results[0], i) < i:
                if i - other[1] > NEAR or not all(_there(a, other[1], made) for a in op.args):
                    continue
                place = other[0]
            break
        else:
            waiting.update({(key, half): (op, i, args) for key, half, args in asked})
            continue
        done |= {op, other[0]}
        low, high = (other[0], op) if half else (op, other[0])
        low_args, high_args = (other[2], args) if half else (args, other[2])
        pairs[place] = Pair(low, high, list(zip(low_args, high_args)))
        places[low.results[0]] = (op.results[0].id, -1, 0)
        places[high.results[0]] = (op.results[0].id, -1, 1)
        made[op.results[0]] = made[other[0].results[0]] = other[1] if place is not op else i
        for k in readers.get(other[0].results[0], ()) if place is not op else ():
            # What reads the first one and stands in front of the second waits for its like, too.
            for key, at, args in _asked(region.ops[k], places) if k < i else ():
                waiting.setdefault((key, at), (region.ops[k], k, args))


def _asked(op: Op, places: dict[Value, Place]) -> list[tuple[Any, int, list[Value]]]:
    """What the other op of a pair must share, which half of one this is, its operands in order: with all operands that
    have neighbours as halves, or else with one of them, the others the same number: half of a word, a scale, that
    multiplies both."""
    if op.name not in PAIRED and op.name not in FOLLOWING:
        return []
    result = op.results[0]
    if result.type is not F32 or result.uniform:
        return []
    args = list(op.args)
    if ROWS[op.name].commutes:
        args.sort(key=lambda a: _order(a, places))
    chosen = args[1:] if op.name == "select" else args
    halves = {a: p[2] for a in chosen if (p := places.get(a)) is not None}
    ways = [halves] if len({*halves.values()}) == 1 else []
    if len(halves) > 1:
        ways += [{a: half} for a, half in halves.items()]
    kind = op.name, op.attrs.get("unsigned")
    return [
        ((*kind, *(_key(a, places) if a in way else ("same", a.id) for a in chosen)), next(iter(way.values())), args)
        for way in ways
    ]


def _there(a: Value, at: int, made: dict[Value, int]) -> bool:
    """Whether a value is made in front of the op at a place of its region, or is a part of one that is."""
    if made.get(a, -1) < at:
        return True
    if a.op is None or a.op.name == "const":
        return a.op is not None
    return a.op.name in TAKEN and all(_there(x, at, made) for x in a.op.args)


def _order(a: Value, places: dict[Value, Place]) -> tuple[int, ...]:
    place = places.get(a)
    return (1, a.id, 0) if place is None else (0, place[0], place[1])


def _key(a: Value, places: dict[Value, Place]) -> tuple[Any, ...]:
    """What both values at one operand position must share that are halves of a pair."""
    place = places[a]
    return "pair", place[0], place[1]


def _take(b: Builder, a: Value, env: dict[Value, Value]) -> None:
    """Make an operand that stands further down."""
    if a not in env and a.op is not None and a.op.name != "const":
        for x in a.op.args:
            _take(b, x, env)
        copy_op(b, a.op, env)


def _emit(b: Builder, pair: Pair, env: dict[Value, Value]) -> None:
    for side in pair.operands:
        for a in side:
            _take(b, a, env)
    if pair.low.name == "select":
        made = b.emit("vec", [b.emit("select", [env[a] for a in side]) for side in zip(*pair.operands)])
    elif pair.low.name == "cvt":
        unsigned = pair.low.attrs["unsigned"]
        made = b.vec(*(b.cvt(env[a], F32, unsigned) for a in pair.operands[0]))
    else:
        made = b.emit(pair.low.name, [b.vec(env[low], env[high]) for low, high in pair.operands])
    env[pair.low.results[0]] = b.slice(made, 0)
    env[pair.high.results[0]] = b.slice(made, 1)
