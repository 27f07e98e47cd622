"""Physical registers for every tuple: coalesce copies, then give bundles registers first-fit.

In: a `Program` over virtual tuples and its `Liveness`. Out: `Reg.at` of every tuple, and how many registers of each
file are used. Raises `RegisterPressureError` naming what was live where registers ran out.

The one idea: a *bundle* is a run of consecutive registers into which tuples are laid at fixed offsets. A copy whose two
sides can share registers (their live points do not meet, but where they hold the same value) merges its two bundles, so
vectors built from parts, parts cut from vectors, accumulators (D = C) and loop-carried values cost no move.
Registers then remember the points at which they are taken, and a bundle goes to the lowest place where no bit meets:
holes in live ranges are used without splitting anything.

Invariant (LINEAR): two tuples that share a register are never live at the same point unless both hold the same value
there.
"""

from __future__ import annotations

from wavedsl.codegen.amdgcn.liveness import Liveness, runs
from wavedsl.codegen.amdgcn.machine import FILE_BASE, S_BASE, VCC, Program, Ref, Reg
from wavedsl.ir.cuts.register_file import LESS_PER_WAVE
from wavedsl.ir.errors import RegisterPressureError

MAX_BUNDLE = {"v": 128, "a": 256, "s": 16}
"""Widest bundle that coalescing may make: wider ones are hard to place."""
SGPRS = 102
_WIDE = 4
"""Registers of a descriptor."""
_FILE_SIZE = {"v": 256, "a": 256, "s": 128}
"""Registers that an instruction can name, those of the scalar file that have a meaning among them."""


class Bundle:
    """Consecutive registers of one file: per register the points where it is live and where it is written.

    `base` must be `residue` modulo `modulus`; `members` are (tuple, offset); `at` is fixed for precoloured bundles.
    """

    __slots__ = ("at", "live", "members", "modulus", "residue", "written")

    def __init__(self, reg: Reg, live: list[int], written: list[int]):
        self.members: list[tuple[Reg, int]] = [(reg, 0)]
        self.live = live
        self.written = written
        self.modulus = reg.align
        self.residue = 0
        self.at = reg.at if reg.fixed else -1


class Pressure(Exception):
    """A file is full: which one, the bundle that found no place, and all bundles."""

    def __init__(self, cls: str, bundle: Bundle, limit: int, bundles: list[Bundle]):
        super().__init__(cls)
        self.cls, self.bundle, self.limit, self.bundles = cls, bundle, limit, bundles


def allocate(program: Program, liveness: Liveness, limits: dict[str, int]) -> dict[str, int]:
    """Set `at` of every tuple. `limits` is registers per file. Returns the highest register of each file + 1.

    Raises `Pressure` when a file is too small.
    """
    bundles: list[Bundle | None] = []
    home: list[int] = []
    offset: list[int] = []
    for reg in program.regs:
        first = liveness.first[reg.id]
        if liveness.split[reg.id]:
            live = liveness.live[first : first + reg.n]
            written = liveness.written[first : first + reg.n]
        else:
            live = [liveness.live[first]] * reg.n
            written = [liveness.written[first]] * reg.n
        home.append(len(bundles))
        offset.append(0)
        bundles.append(Bundle(reg, live, written))
    _coalesce(program, liveness, bundles, home, offset)
    return _place([b for b in bundles if b is not None], limits)


def _coalesce(
    program: Program, liveness: Liveness, bundles: list[Bundle | None], home: list[int], offset: list[int]
) -> None:
    """Merge the bundles of both sides of every hint, inner loops first."""
    hints: list[tuple[int, int, int, Ref, Ref, bool]] = []
    for number, block in enumerate(program.blocks):
        for point, inst in enumerate(block.insts, liveness.starts[number]):
            if inst.hint is not None:
                dst, src = inst.hint
                if dst.reg.n != src.reg.n and (dst.reg.id in program.apart or src.reg.id in program.apart):
                    continue
                if dst.reg.id >= 0 and src.reg.id >= 0 and dst.reg.cls == src.reg.cls:
                    hints.append((-block.depth, len(hints), 2 * point, dst, src, inst.early))
    hints.sort(key=lambda h: (h[0], h[1]))
    fixed = [bundle for bundle in bundles if bundle is not None and bundle.at >= 0]
    for _, _, point, dst, src, early in hints:
        i, j = home[dst.reg.id], home[src.reg.id]
        # dst's register k is src's register k + shift (both counted within their bundles)
        shift = (offset[src.reg.id] + src.start) - (offset[dst.reg.id] + dst.start)
        if i == j:
            if shift == 0 and not early:
                bundle = bundles[i]
                assert bundle is not None
                own = offset[dst.reg.id] + dst.start
                _forget_write(bundle, own, dst.n, point)
            continue
        a, b = bundles[j], bundles[i]  # a keeps its numbering when shift >= 0
        assert a is not None and b is not None
        merged = _merge(a, b, shift, point, early, (offset[dst.reg.id] + dst.start, dst.n), dst.reg.cls)
        if merged is None:
            continue
        if a.at >= 0 or b.at >= 0:
            others = [bundle for bundle in fixed if bundle is not a and bundle is not b]
            if not _fits_there(merged, others):
                continue
            fixed = [*others, merged]
        down = min(0, shift)
        for reg, _ in a.members:
            offset[reg.id] -= down
        for reg, _ in b.members:
            offset[reg.id] += shift - down
            home[reg.id] = j
        merged.members = [(reg, offset[reg.id]) for reg, _ in a.members + b.members]
        bundles[j], bundles[i] = merged, None
        if not early:
            _forget_write(merged, offset[dst.reg.id] + dst.start, dst.n, point)


def _fits_there(bundle: Bundle, fixed: list[Bundle]) -> bool:
    """Whether a bundle that took over a fixed place lies in its file and beside or between the other fixed ones: with
    what it was merged with it has more registers, and more points, than the tuple that was fixed."""
    cls = bundle.members[0][0].cls
    size = len(bundle.live)
    if bundle.at < FILE_BASE[cls] or bundle.at - FILE_BASE[cls] + size > _FILE_SIZE[cls]:
        return False
    for other in fixed:
        if other.members[0][0].cls == cls:
            for k in range(max(0, other.at - bundle.at), min(size, other.at - bundle.at + len(other.live))):
                if bundle.live[k] & other.live[k + bundle.at - other.at]:
                    return False
    return True


def _forget_write(bundle: Bundle, start: int, n: int, point: int) -> None:
    """The copy at `point` writes the register it reads: it is no write any more."""
    keep = ~(3 << point)
    for k in range(start, start + n):
        bundle.written[k] &= keep


def _merge(a: Bundle, b: Bundle, shift: int, point: int, early: bool, dst: tuple[int, int], cls: str) -> Bundle | None:
    """The bundle of `a` and `b` laid over it at `shift`, or None where they get in each other's way.

    `dst` = (start, count) of the copied registers within b: there, the write at `point` is no conflict.
    """
    down = min(0, shift)
    size = max(len(a.live) - down, len(b.live) + shift - down)
    if size > max(MAX_BUNDLE[cls], len(a.live), len(b.live)):
        return None
    if a.at >= 0 and b.at >= 0:
        return None
    # alignment: base_a = base + (-down), base_b = base + (shift - down)
    small, large = (a, b) if a.modulus <= b.modulus else (b, a)
    where_small = -down if small is a else shift - down
    where_large = -down if large is a else shift - down
    residue = (large.residue - where_large) % large.modulus
    if (residue + where_small) % small.modulus != small.residue:
        return None
    at = -1
    if a.at >= 0 or b.at >= 0:
        at = a.at + down if a.at >= 0 else b.at - (shift - down)
        if at < 0 or at % large.modulus != residue:
            return None
    # A copy leaves both sides equal, so its source may live on. A matrix instruction changes the register that it
    # accumulates into: sharing is right only where the addend is read here for the last time.
    free = ~(1 << point) if early else ~(2 << point)
    for k in range(len(b.live)):
        i = k + shift
        if 0 <= i < len(a.live):
            hit_b = b.written[k] & a.live[i]
            if dst[0] <= k < dst[0] + dst[1]:
                hit_b &= free
            if hit_b or a.written[i] & b.live[k]:
                return None
    live, written = [0] * size, [0] * size
    for k, bits in enumerate(a.live):
        live[k - down] = bits
        written[k - down] = a.written[k]
    for k, bits in enumerate(b.live):
        live[k + shift - down] |= bits
        written[k + shift - down] |= b.written[k]
    merged = Bundle(a.members[0][0], live, written)
    merged.modulus, merged.residue, merged.at = large.modulus, residue, at
    return merged


def _place(bundles: list[Bundle], limits: dict[str, int]) -> dict[str, int]:
    """Fixed bundles first, then the widest, then by first point: the lowest registers whose points are free."""
    taken = {"v": [0] * limits["v"], "a": [0] * limits["a"], "s": [0] * _FILE_SIZE["s"]}
    top = {"v": 0, "a": 0, "s": 0}
    order = []
    for index, bundle in enumerate(bundles):
        union = 0
        for bits in bundle.live:
            union |= bits
        if bundle.at >= 0:
            cls = bundle.members[0][0].cls
            base = bundle.at - FILE_BASE[cls]
            for k, bits in enumerate(bundle.live):
                taken[cls][base + k] |= bits
            if union and bundle.at != VCC:
                top[cls] = max(top[cls], base + len(bundle.live))
            _assign(bundle, bundle.at)
        elif union:
            start = (union & -union).bit_length()
            order.append((-len(bundle.live), start, index, bundle))
        else:
            _assign(bundle, FILE_BASE[bundle.members[0][0].cls] + bundle.residue)
    order.sort(key=lambda o: o[:3])
    fixed = taken["s"].copy()
    for _, _, _, bundle in order:
        cls = bundle.members[0][0].cls
        if cls not in taken:
            continue
        limit = SGPRS if cls == "s" else limits[cls]
        place = _first_fit(bundle, taken[cls], limit)
        if place < 0 and cls == "s":
            scalars = _longest_first([b for _, _, _, b in order if b.members[0][0].cls == "s"], fixed, limit)
            if scalars:
                top["s"] = max(top["s"], scalars)
                del taken["s"]
                continue
        if place < 0:
            raise Pressure(cls, bundle, limit, bundles)
        if place < limit:
            top[cls] = max(top[cls], place + len(bundle.live))
        _assign(bundle, FILE_BASE[cls] + place)
    return top


def _longest_first(bundles: list[Bundle], taken: list[int], limit: int) -> int:
    """Another order for scalars: descriptors first, then what lives longest. By first points, pairs that come and go
    leave no register to what is live throughout. Returns the highest register + 1, or 0 where that order has no place
    for all, either."""
    order = sorted(bundles, key=lambda b: (len(b.live) < _WIDE, -sum(bits.bit_count() for bits in b.live)))
    places = [_first_fit(bundle, taken, limit) for bundle in order]
    if min(places) < 0:
        return 0
    for bundle, place in zip(order, places):
        _assign(bundle, FILE_BASE["s"] + place)
    return max((place + len(bundle.live) for bundle, place in zip(order, places) if place < limit), default=0)


def _first_fit(bundle: Bundle, rows: list[int], limit: int) -> int:
    """The lowest place below `limit` where a bundle meets nothing, or vcc; -1: none. `rows`: points at which each
    register of the file is taken, which then are the bundle's, too."""
    live, n = bundle.live, len(bundle.live)
    place = -1
    if n == 2 and bundle.members[0][0].cls == "s" and bundle.modulus == 2 and bundle.residue == 0:
        vcc = VCC - S_BASE
        if _only_masks(bundle) and not (rows[vcc] & live[0] or rows[vcc + 1] & live[1]):
            place = vcc
    if place < 0:
        step = bundle.modulus
        if n == 1:
            bits = live[0]
            for base in range(bundle.residue, limit, step):
                if not rows[base] & bits:
                    place = base
                    break
        else:
            base = bundle.residue
            while base + n <= limit:
                k = n - 1
                while k >= 0 and not rows[base + k] & live[k]:
                    k -= 1
                if k < 0:
                    place = base
                    break
                base += step
    if place >= 0:
        for k in range(n):
            rows[place + k] |= live[k]
    return place


def _only_masks(bundle: Bundle) -> bool:
    """Whether every member is a lane mask: those may live in vcc, which some encodings prefer."""
    return all(reg.name == "mask" for reg, _ in bundle.members)


def _assign(bundle: Bundle, at: int) -> None:
    for reg, offset in bundle.members:
        reg.at = at + offset


def pressure_error(program: Program, liveness: Liveness, failure: Pressure) -> RegisterPressureError:
    """The user's view of a full register file: what was live together, the largest first."""
    where = 0
    best = -1
    regs = [r for r in program.regs if r.cls == failure.cls]
    change: dict[int, int] = {}
    for reg in regs:  # where its number changes, for a long program has as many points as tuples
        first = liveness.first[reg.id]
        width, registers = (reg.n, 1) if liveness.split[reg.id] else (1, reg.n)
        for bits in liveness.live[first : first + width]:
            for start, stop in runs(bits):
                change[start] = change.get(start, 0) + registers
                change[stop] = change.get(stop, 0) - registers
    union = 0
    for bits in failure.bundle.live:
        union |= bits
    points = {point for first, stop in runs(union) for point in range(first, stop)}
    at_loc = None
    turns = iter(sorted(change))
    turn, total = next(turns, None), 0
    for b, block in enumerate(program.blocks):
        for i, inst in enumerate(block.insts):
            point = 2 * (liveness.starts[b] + i) + 1
            while turn is not None and turn <= point:
                total += change[turn]
                turn = next(turns, None)
            if point in points and total > best:
                best, where, at_loc = total, point, inst.loc
    groups: dict[str, int] = {}
    for reg in regs:
        first = liveness.first[reg.id]
        width = reg.n if liveness.split[reg.id] else 1
        amount = sum(liveness.live[first + k] >> where & 1 for k in range(width))
        if amount:
            registers = amount if liveness.split[reg.id] else reg.n
            label = reg.name or "temporaries"
            if reg.loc is not None:
                label += f" (line {reg.loc.line})"
            groups[label] = groups.get(label, 0) + registers
    parts = sorted(groups.items(), key=lambda g: (-g[1], g[0]))[:8]
    kind = {"v": "vector", "a": "accumulation", "s": "scalar"}[failure.cls]
    return RegisterPressureError(
        f"{program.name}: {best} {kind} registers are live together, {failure.limit} are available on {program.chip}"
        f"{' and scratch is full' if program.scratch_bytes else ''}; "
        "live: " + ", ".join(f"{label}: {n}" for label, n in parts),
        at_loc,
        f"{LESS_PER_WAVE}; or fewer pipeline stages, or a narrower accumulator",
    )
