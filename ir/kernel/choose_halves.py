"""Two neighbouring halves, each chosen by a condition of its own, are bits of one word or of another.

In: a kernel in which a word's two numbers are unpacked, chosen from and packed again, as lowering element by element
leaves `wd.where(inside, x, 0.0)` of an operand. Out: a new kernel that chooses between words by a mask; what makes a
mask of two conditions is the same for all words that they choose from. INVARIANT: nobody else reads what was chosen as
a number: a value that is also computed with is in single numbers anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.half_pairs import HALVES, constant_word
from wavedsl.ir.kernel.kernel_ir import B32, I32, Kernel, Op, Value
from wavedsl.ir.kernel.kernel_passes import copy_region, fresh_kernel, remove_dead_code
from wavedsl.ir.target import Target

Side = tuple[Value, ...]
"""The word that two numbers were unpacked of, or the two constants."""


def choose_halves(kernel: Kernel, target: Target | None = None) -> Kernel:
    """The kernel with masks of words in place of choices between the numbers in them."""
    packs = [op for op in kernel.body.walk() if op.name == "pack" and op.attrs["dtype"].name in HALVES]
    if not packs:
        return kernel
    uses = Counter(a for op in kernel.body.walk() for a in op.args)
    groups: dict[tuple[Value, ...], dict[Op, tuple[Side, Side]]] = {}
    for op in packs:
        sides = _sides(op, uses)
        if sides is not None:
            groups.setdefault(tuple(v.op.args[0] for v in op.args if v.op is not None), {})[op] = sides
    chosen = Counter(v for group in groups.values() for op in group for v in _numbers(op))
    freed = {v for v, count in chosen.items() if uses[v] == count}
    found = {op: sides for key, group in groups.items() if _cheaper(key, group, freed) for op, sides in group.items()}
    if not found:
        return kernel
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    env: dict[Value, Value] = {}

    def hook(op: Op) -> bool:
        if op not in found:
            return False
        b.set_loc(op.loc)
        conditions = [env[choice.op.args[0]] for choice in op.args if choice.op is not None]
        first, second = (_word(b, side, env, op.attrs["dtype"]) for side in found[op])
        env[op.results[0]] = _chosen(b, conditions, first, second)
        return True

    copy_region(b, kernel.body, env, hook)
    fresh = b.finish()
    remove_dead_code(fresh)
    return fresh


def _sides(op: Op, uses: Counter[Value]) -> tuple[Side, Side] | None:
    """What the two numbers of a word are chosen from; None where they are no choices, or read by others too."""
    choices = [v.op for v in op.args if v.op is not None and v.op.name == "select" and uses[v] == 1]
    if len(choices) != 2 or len(op.args) != 2:
        return None
    first, second = (_side([c.args[i] for c in choices], op.attrs["dtype"]) for i in (1, 2))
    return None if first is None or second is None or len(first) == len(second) == 2 else (first, second)


def _numbers(op: Op) -> list[Value]:
    """What the choices of a word's numbers are between, constants apart."""
    return [v for choice in op.args if choice.op is not None for v in choice.op.args[1:] if v.const is None]


def _cheaper(conditions: tuple[Value, ...], group: dict[Op, tuple[Side, Side]], freed: Collection[Value]) -> bool:
    """Whether choices by the same conditions take fewer instructions as bits: of the mask three, and of a word one or,
    where the other one is not 0, three; else each takes two, to pack them one, and so does what is unpacked for these
    choices alone (`freed`)."""
    before = 3 * len(group) + len({v for op in group for v in _numbers(op)}.intersection(freed))
    after = 0
    for _, other in group.values():
        zero = len(other) == 2 and all(v.const == 0 for v in other)
        after += 1 if zero or conditions[0] is conditions[1] else 3
    return after + 3 * (conditions[0] is not conditions[1]) < before


def _side(pair: list[Value], dtype: Any) -> Side | None:
    if all(v.const is not None for v in pair):
        return tuple(pair)
    for i, v in enumerate(pair):
        if v.op is None or v.op.name != "unpack" or v.op.attrs != {"dtype": dtype, "index": i}:
            return None
    low, high = (v.op.args[0] for v in pair if v.op is not None)
    return (low,) if low is high else None


def _word(b: Builder, side: Side, env: dict[Value, Value], dtype: Any) -> Value:
    if len(side) == 1:
        word = env[side[0]]
        return word if word.type is B32 else b.bitcast(word, B32)
    found = constant_word(b, side, dtype)
    return found if found is not None else b.pack([env[v] for v in side], dtype)


def _chosen(b: Builder, conditions: list[Value], first: Value, second: Value) -> Value:
    """The bits of the first word where conditions hold, and of the second one elsewhere."""
    if conditions[0] is conditions[1]:
        return b.select(conditions[0], first, second)
    halves = [b.select(c, b.const(0xFFFF << 16 * i, B32), b.const(0, B32)) for i, c in enumerate(conditions)]
    low, high, x, y = (b.bitcast(word, I32) for word in (*halves, first, second))
    mask = b.or_(low, high)
    if second.const == 0:
        return b.bitcast(b.and_(x, mask), B32)
    return b.bitcast(b.xor(b.and_(b.xor(x, y), mask), y), B32)


__all__ = ["choose_halves"]
