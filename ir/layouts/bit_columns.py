"""Address arithmetic of one lane: a function that is linear in the bits of a number, with few instructions.

In: what each bit of a source (the lane, the thread) adds to an address, `columns`, combined by addition or by XOR. Out:
the integer ops that compute it.

The one idea: bits that move by the same distance form a field, `(x & mask) << shift`. There are many ways to write a
sum of fields down; a handful of them are built as small expression trees, each is priced by what it costs after
three-operand fusion (`codegen/amdgcn/fuse.py`; NVIDIA's `lea`, `lop3` and `bfe` are much the same), and the cheapest is
emitted. `16 a + 256 b` of a thread's low and high digits, for example, is `(x + (x & -8)) << 4`: two instructions, not
four. Ways that are tried: a common shift taken out; neighbouring bits cut out with one instruction; overlapping XOR
fields under one mask; and of two fields that hold all bits, one taken without a mask and the other multiplied by what
is missing.

INVARIANT: every tree equals the columns' definition for all values of the source in its range (a test enumerates
them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.bits import column_fields

Tree = tuple[Any, ...]
"""("x",), ("and" | "shl" | "lshr" | "mul", tree, constant) or ("add" | "xor", tree, tree)."""

_X: Tree = ("x",)
_MOST_FIELDS = 5
"""Sums of more fields are written down as they are."""


def combine_columns(b: Builder, columns: Sequence[int], source: Value, *, xor: bool = False, bare: int = 0) -> Any:
    """The XOR (`xor`) or sum of `columns[i]` over the bits i that are set in `source`: the int 0 if there are none.

    `bare` is the price of the source itself, without a mask around it.
    """
    width = source.hi.bit_length() if source.hi is not None and source.lo is not None and source.lo >= 0 else 32
    cols = list(columns[:width])
    while cols and not cols[-1]:
        cols.pop()
    if not cols:
        return 0
    return _emit(b, cheapest(tuple(cols), width, xor, bare), source)


def _emit(b: Builder, t: Tree, x: Value) -> Value:
    if t[0] == "x":
        return x
    left = _emit(b, t[1], x)
    right = t[2] if t[2].__class__ is int else _emit(b, t[2], x)
    return _METHODS[t[0]](b, left, right)


_METHODS: dict[str, Any] = {
    "and": Builder.and_, "shl": Builder.shl, "lshr": Builder.lshr, "mul": Builder.mul, "add": Builder.add,
    "xor": Builder.xor,
}  # fmt: skip


def evaluate(t: Tree, x: int) -> int:
    """What a tree computes; for checks."""
    if t[0] == "x":
        return x
    left = evaluate(t[1], x)
    right = t[2] if t[2].__class__ is int else evaluate(t[2], x)
    match t[0]:
        case "and":
            return left & right
        case "shl":
            return left << right
        case "lshr":
            return left >> right
        case "mul":
            return left * right
        case "add":
            return left + right
        case _:
            return left ^ right


@lru_cache(4096)
def cheapest(columns: tuple[int, ...], width: int, xor: bool, bare: int = 0) -> Tree:
    """The cheapest tree that was found; `width` bits of the source may be set."""
    total = 0
    disjoint = True
    for c in columns:
        disjoint &= not total & c
        total |= c
    best: tuple[int, int, Tree] | None = None
    for number, t in enumerate(_trees(columns, width, xor, disjoint)):
        price = (cost(t, bare), number)
        if best is None or price < best[:2]:
            best = (*price, t)
    assert best is not None
    return best[2]


Term = tuple[int, int, int]
"""(mask, shift, scale): `((x & mask) << shift) * scale`."""


def _trees(columns: tuple[int, ...], width: int, xor: bool, disjoint: bool) -> Iterator[Tree]:
    """Ways to write a sum (or XOR) of columns down: fields joined under one mask, a shift taken out, two fields as
    one product."""
    found = column_fields(columns, xor or disjoint)
    fields: list[Term] = sorted((mask, shift, scale) for (shift, scale), mask in found.items())
    full = (1 << width) - 1
    plain = all(scale == 1 for _, _, scale in fields)
    shifts = sorted({max(0, s) for _, s, _ in fields} | {0}) if plain else [0]
    if len(fields) > _MOST_FIELDS:
        shifts = [0]
    for taken in shifts:
        moved = [(m, s - taken, scale) for m, s, scale in fields]
        if any(s < 0 and m & ((1 << -s) - 1) for m, s, _ in moved):
            continue
        joinable = plain and (xor or disjoint) and len(fields) <= _MOST_FIELDS
        for groups in _partitions(moved) if joinable else [[[f] for f in moved]]:
            parts: list[tuple[Tree, int]] | None = []
            for group in groups:
                part = _field(group[0], full) if len(group) == 1 else _under_one_mask(group, width)
                if part is None:
                    parts = None
                    break
                assert parts is not None
                parts.append((part, _reach(group)))
            if parts is not None:
                yield _shifted(_sum(parts, xor), taken)
    if xor and not disjoint:
        return
    for f, g in combinations(fields, 2):
        if f[0] | g[0] != full or f[0] & g[0]:
            continue
        for whole, rest in ((f, g), (g, f)):
            step = _weight(rest) - _weight(whole)
            if step < 0 or step.denominator != 1 or _weight(whole).denominator != 1:
                continue
            others = [h for h in fields if h not in (f, g)]
            mask = ~whole[0] if (rest[0] & -rest[0]) > 1 and rest[0] == full & ~whole[0] else rest[0]
            low = step.numerator & -step.numerator
            taken = min(low.bit_length() - 1, max(0, whole[1])) if whole[2] == 1 and not others else 0
            multiple = _times(("and", _X, mask), step.numerator >> taken)
            base = _times(_X, _weight(whole).numerator >> taken)
            t = _shifted(("add", base, multiple), taken)
            for h in others:
                part = _field(h, full)
                if part is None:
                    break
                t = ("add", t, part)
            else:
                yield t


class _Ratio(tuple):
    """A power of two times an integer, exactly."""

    __slots__ = ()

    def __new__(cls, numerator: int, shift: int) -> _Ratio:
        return super().__new__(cls, (numerator << shift, 1) if shift >= 0 else (numerator, 1 << -shift))

    @property
    def numerator(self) -> int:
        return self[0]

    @property
    def denominator(self) -> int:
        return self[1]

    def __sub__(self, other: _Ratio) -> _Ratio:
        bits = max(self[1], other[1])
        value = self[0] * (bits // self[1]) - other[0] * (bits // other[1])
        while bits > 1 and not value & 1:
            value, bits = value >> 1, bits >> 1
        return tuple.__new__(_Ratio, (value, bits))

    def __lt__(self, other: Any) -> bool:
        return self[0] < other * self[1] if other.__class__ is int else tuple.__lt__(self, other)


def _weight(f: Term) -> _Ratio:
    return _Ratio(f[2], f[1])


def _times(t: Tree, c: int) -> Tree:
    if c & (c - 1):
        return ("mul", t, c)
    return _shifted(t, c.bit_length() - 1)


def _shifted(t: Tree, by: int) -> Tree:
    return ("shl", t, by) if by else t


def _field(f: Term, full: int) -> Tree | None:
    """One field as a tree; None where a right shift would lose bits that it needs."""
    mask, shift, scale = f
    if shift >= 0:
        t = _shifted(_X if mask == full else ("and", _X, mask), shift)
    else:
        if mask & ((1 << -shift) - 1):
            return None
        t = ("lshr", _X, -shift)
        if mask != full >> -shift << -shift:
            t = ("and", t, mask >> -shift)
    return ("mul", t, scale) if scale != 1 else t


def _under_one_mask(group: Sequence[Term], width: int) -> Tree | None:
    """Fields XORed without masks of their own, and one mask around them: where it lets the same bits through."""
    mask = _reach(group)
    t: Tree | None = None
    for m, s, _ in group:
        everything = (1 << width) - 1
        seen = everything << s if s >= 0 else everything >> -s
        kept = seen & mask
        own = m << s if s >= 0 else m >> -s
        if kept != own:
            return None
        part: Tree = _shifted(_X, s) if s >= 0 else ("lshr", _X, -s)
        t = part if t is None else ("xor", t, part)
    assert t is not None
    return ("and", t, mask)


def _reach(group: Sequence[Term]) -> int:
    """Bits that fields may set."""
    out = 0
    for m, s, scale in group:
        if scale != 1:
            return -1
        out |= m << s if s >= 0 else m >> -s
    return out


def _sum(parts: Sequence[tuple[Tree, int]], xor: bool) -> Tree:
    """Parts that share bits joined by XOR where that is meant, everything else by addition, what ends in no shift
    first."""
    clusters: list[tuple[Tree, int]] = []
    for t, reach in parts:
        joined, bits = t, reach
        rest = []
        for other, its in clusters:
            if xor and its & bits:
                joined, bits = ("xor", other, joined), bits | its
            else:
                rest.append((other, its))
        clusters = [*rest, (joined, bits)]
    clusters.sort(key=lambda c: c[0][0] == "shl")
    total = clusters[0][0]
    for t, _ in clusters[1:]:
        total = ("add", total, t)
    return total


def _partitions(items: Sequence[Term]) -> Iterator[list[list[Term]]]:
    """Every way to put the items in groups."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in _partitions(rest):
        yield [[first], *smaller]
        for i, group in enumerate(smaller):
            yield [*smaller[:i], [first, *group], *smaller[i + 1 :]]


def cost(t: Tree, bare: int = 0) -> int:
    """Instructions after fusion, each distinct part counted once; a bare source costs `bare` the first time."""
    seen: set[Tree] = set()
    return _cost(t, seen) + (bare if _is_bare(t) else 0)


def _is_bare(t: Tree) -> bool:
    if t[0] == "x":
        return True
    if t[0] == "and" and (t[1] == _X or (t[1][0] == "lshr" and t[1][1] == _X)):
        return False
    return _is_bare(t[1]) or (t[2].__class__ is not int and _is_bare(t[2]))


def _cost(t: Tree, seen: set[Tree]) -> int:
    """Instructions of a tree, after three-operand fusion; what has been `seen` is there already."""
    if t in seen or t[0] == "x":
        return 0
    seen.add(t)
    kind, left, right = t
    if kind == "and" and left[0] == "lshr" and not right & (right + 1):
        return 1 + _cost(left[1], seen)
    if kind == "shl" and left[0] == "add":
        return 1 + _cost(left[1], seen) + _cost(left[2], seen)
    if kind == "add":
        for fused, other in ((right, left), (left, right)):
            if fused not in seen and (
                fused[0] in ("shl", "xor", "add") or (fused[0] == "mul" and 0 < fused[2] <= 64)
            ):
                seen.add(fused)
                inner = 0 if fused[2].__class__ is int else _cost(fused[2], seen)
                return 1 + _cost(fused[1], seen) + inner + _cost(other, seen)
    below = 0 if right.__class__ is int else _cost(right, seen)
    return 1 + _cost(left, seen) + below
