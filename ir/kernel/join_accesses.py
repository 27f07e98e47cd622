"""Accesses side by side become wide ones.

In: a kernel. Out: a new one in which loads of whole words, or stores, take the place of those of neighbouring parts;
the kernel itself where there are none. `x[:, i::8]` for i from 0 to 7 is read element by element, 16 bytes apart in
each lane, but what a lane reads is all there is; so is what it writes to bits or numbers that alternate.

(SIDE BY SIDE) Array, lane's and uniform offset, mask and guard are the same, immediates follow each other, and together
they fill 4, 8 or 16 bytes that begin at a multiple of as many. Where the array's end takes the place of a mask, its
size is such a multiple, too.
(BY WORDS) Loads of whole words on AMD's chips are of 8, 12 or 16 bytes from any word on: of the 27 words of a record
that each lane reads, seven. Where the array's end takes the place of a mask, such a load lies in one record: of a size
that divides the array's and the place of each lane.
(SAME MEMORY) Nothing that is not pure lies between the first load and the last but accesses to other arrays, and fences
of a warp where the kernel only reads the array; nor between the first store and the last but such fences, accesses to
other arrays, and other stores of the array only where they are joined as well.
(SAME ORDER) Lanes may write to the same places. Joined ones begin at multiples of their width in all lanes, so two of
them meet as a whole or not at all, and part by part; which is the later one is the same for all parts, and for both.
INVARIANT: a load stands where the first of its parts stood, a store where the last did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd
from typing import Any

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.facts import multiple_of
from wavedsl.ir.kernel.kernel_ir import B32, I32, ROWS, Kernel, Op, Region, Value
from wavedsl.ir.kernel.kernel_passes import copy_region, fresh_kernel, remove_dead_code
from wavedsl.ir.target import Target

WIDTHS = (16, 8, 4)
ALIGNED = "aligned"
"""Note of a kernel: bytes that the address of each array is a multiple of."""
LOAD, STORE = "load.global", "store.global"


def join_accesses(kernel: Kernel, target: Target | None = None) -> Kernel:
    """The kernel with wide loads and stores for those side by side."""
    aligned = kernel.notes.get(ALIGNED, {})
    twice: dict[int, list[Op]] = {}
    words = target is not None and target.loads_by_words
    joined = [run for region in list(kernel.body.regions()) for run in _runs(region, kernel, aligned, twice, words)]
    if not joined:
        return kernel
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    env: dict[Value, Value] = {}
    rest = {id(x) for run in joined for op in run for x in (op, *twice.get(id(op), ()))}
    order = {id(op): i for i, op in enumerate(kernel.body.walk())}
    at = {id((min if run[0].name == LOAD else max)(run, key=lambda op: order[id(op)])): run for run in joined}

    def hook(op: Op) -> bool:
        run = at.get(id(op))
        if run is not None:
            b.set_loc(op.loc)
            if op.name == STORE:
                _store(b, run, env)
            else:
                _load(b, run, env)
                for x in run:
                    env.update((other.results[0], env[x.results[0]]) for other in twice.get(id(x), ()))
        return id(op) in rest

    copy_region(b, kernel.body, env, hook)
    found = b.finish()
    remove_dead_code(found)
    return found


def _load(b: Builder, run: list[Op], env: dict[Value, Value]) -> None:
    """One load of what a run's loads bring, and each one's part of it."""
    first, size = run[0], run[0].attrs["bytes"]
    buf, voff, soff, mask, guard = (env[a] for a in first.args)
    wide = b.load_global(
        buf, voff, soff, bytes=size * len(run), mask=mask, guard=guard, imm=first.attrs["imm"], split=False,
        bounded=first.attrs.get("bounded", False),
    )  # fmt: skip
    for i, op in enumerate(run):
        word, part = divmod(i * size, 4)
        found = b.slice(wide, word, max(1, size // 4))
        if size < 4:
            found = b.bfe(b.bitcast(found, I32), 8 * part, 8 * size)
        env[op.results[0]] = b.bitcast(found, op.results[0].type)


def _store(b: Builder, run: list[Op], env: dict[Value, Value]) -> None:
    first, size = run[0], run[0].attrs["bytes"]
    buf, voff, soff, mask, guard, _ = (env[a] for a in first.args)
    words = [env[op.args[5]] for op in run]
    if size == 2:
        halves = [(v, op.attrs["high"]) for v, op in zip(words, run)]
        words = []
        for (lo, low_up), (hi, high_up) in zip(halves[::2], halves[1::2]):
            selector = (0x0302 if low_up else 0x0100) | (0x0706 if high_up else 0x0504) << 16
            words.append(b.permute_bytes(_word(b, hi), _word(b, lo), selector))
    b.store_global(
        buf, voff, b.vec(*(_word(b, v) for v in words)), soff, mask=mask, guard=guard, imm=first.attrs["imm"],
        split=False, bounded=first.attrs.get("bounded", False),
    )  # fmt: skip


def _word(b: Builder, v: Value) -> Value:
    return b.bitcast(v, B32)


def _runs(
    region: Region, kernel: Kernel, aligned: Mapping[str, int], twice: dict[int, list[Op]], words: bool = False
) -> list[list[Op]]:
    """Accesses of a region that become one, each in the order of their places. `twice`: loads that are equal to one of
    them, which it is given; `words`: loads begin at any word."""
    found: list[list[Op]] = []
    loads: dict[Any, dict[int, Op]] = {}
    stores: dict[Any, dict[int, Op]] = {}
    when: dict[int, tuple[int, int]] = {}
    """Per store how many fences are in front of it, and how many ops."""
    fences = 0

    def name(key: Any) -> str:
        return kernel.params[key[0].op.attrs["index"]].name

    def close(groups: dict[Any, dict[int, Op]], keys: Iterable[Any]) -> None:
        for key in list(keys):
            group = groups.pop(key)
            runs = _split(group, aligned.get(name(key), 1), words and groups is loads)
            if groups is loads or (sum(map(len, runs)) == len(group) and _in_order(runs, when)):
                found.extend(runs)

    def close_written() -> None:
        close(loads, [k for k in loads if kernel.params[k[0].op.attrs["index"]].access != "read"])

    for i, op in enumerate(region.ops):
        if op.name in (LOAD, STORE):
            array, place, imm = _array(op), op.args[:3], op.attrs["imm"]
            if array is None:
                close_written()
                close(stores, stores)
                continue
            alike = _small(op) and "cache" not in op.attrs
            key = (array, place, op.attrs["bytes"], op.args[3:5], op.attrs.get("bounded", False), alike or i)
            others = loads if op.name == STORE else stores
            close(others, [k for k in others if k[0] == array])
            if op.name == STORE:
                close(stores, [k for k in stores if k[0] == array and (k != key or imm in stores[k])])
                stores.setdefault(key, {})[imm] = op
                when[id(op)] = fences, i
            else:
                first = loads.setdefault(key, {}).setdefault(imm, op)
                if first is not op:
                    twice.setdefault(id(first), []).append(op)
        elif op.name == "warp.fence":
            fences += 1
            close_written()
        elif op.regions or not ROWS[op.name].pure:
            close(loads, loads)  # what comes behind would be held for long
            close(stores, stores)
    close(loads, loads)
    close(stores, stores)
    return found


def _in_order(runs: list[list[Op]], when: Mapping[int, tuple[int, int]]) -> bool:
    """Whether of each two runs one comes first in all parts, with fences between all or none of them."""
    for i, x in enumerate(runs):
        for y in runs[:i]:
            ways = set()
            for p, q in zip(sorted(when[id(op)] for op in x), sorted(when[id(op)] for op in y)):
                ways.add((p[0] - q[0] > 0, p[0] - q[0] < 0, p[1] > q[1]))
            parts = {when[id(p)] > when[id(q)] for p, q in zip(x, y)}
            if len(x) != len(y) or len(ways) > 1 or len(parts) > 1:
                return False
    return True


def _small(op: Op) -> bool:
    """Whether an access is of a word or a part of one; of stores, of half of one."""
    if op.name == LOAD:
        return op.attrs["bytes"] in (1, 2, 4) and op.results[0].type.words == 1
    return op.attrs["bytes"] in (2, 4) and op.args[5].type.words == 1


def _split(group: dict[int, Op], aligned: int, words: bool = False) -> list[list[Op]]:
    """The widest aligned runs of a group without gaps; of whole words, with `words`, such that begin at any."""
    first = next(iter(group.values()))
    if len(group) < 2 or not _small(first) or "cache" in first.attrs:
        return []
    size, (buf, voff, soff) = first.attrs["bytes"], first.args[:3]
    most = begins = min(multiple_of(voff), multiple_of(soff), aligned, *map(multiple_of, _moved(buf)))
    if first.attrs.get("bounded"):
        most = min(most, multiple_of(buf.op.args[1])) if buf.op is not None and buf.op.name == "buffer" else 1
    if words and size == 4 and not voff.uniform:  # what is a wave's is the scalar unit's, which has no three words
        return _by_words(group, first, most) if begins >= 4 else []
    found = []
    taken: set[int] = set()
    for width in (w for w in WIDTHS if w <= most):
        for imm in sorted(group):
            places = range(imm, imm + width, size)
            if imm % width == 0 and all(p in group and p not in taken for p in places):
                taken.update(places)
                found.append([group[p] for p in places])
    return found


def _by_words(group: dict[int, Op], first: Op, most: int) -> list[list[Op]]:
    """The longest runs of words without gaps; of an access that the array's end may mask, each within one of the
    records of which array and lane's place are multiples, or, of `most` bytes, aligned."""
    buf, voff, soff = first.args[:3]
    record = 0
    if first.attrs.get("bounded"):
        size = buf.op.args[1] if buf.op is not None and buf.op.name == "buffer" else None
        record = max(most, 0 if size is None else gcd(divisor(size), divisor(voff), divisor(soff)))
    found = []
    places = sorted(group)
    while places:
        run = [places[0]]
        while len(run) < WIDTHS[0] // 4 and run[-1] + 4 in group and run[-1] + 4 in places:
            run.append(run[-1] + 4)
        while record and run[0] // record != run[-1] // record:
            run.pop()
        if len(run) > 1:
            found.append([group[p] for p in run])
        places = [p for p in places if p not in run]
    return found


def divisor(v: Value) -> int:
    """A number that is known to divide an integer, 0 for zero."""
    if v.const is not None:
        return abs(int(v.const))
    op = v.op
    if op is not None and op.name == "mul":
        return divisor(op.args[0]) * divisor(op.args[1])
    if op is not None and op.name in ("add", "sub", "max_s"):
        return gcd(divisor(op.args[0]), divisor(op.args[1]))
    if op is not None and op.name == "shl" and op.args[1].const is not None:
        return divisor(op.args[0]) << int(op.args[1].const)
    if op is not None and op.name in ("zext", "sext"):
        return divisor(op.args[0])
    return multiple_of(v)


def _array(op: Op) -> Value | None:
    """The parameter that an access goes to, where its buffer may begin further on."""
    found = [v for v in _summands(op.args[0]) if v.op is not None and v.op.name == "param"]
    return found[0] if len(found) == 1 else None


def _moved(buffer: Value) -> list[Value]:
    """What is added to the parameter where a buffer begins."""
    return [v for v in _summands(buffer) if v.op is None or v.op.name != "param"]


def _summands(buffer: Value) -> list[Value]:
    """What the base of a buffer is the sum of."""
    made = buffer.op
    left, found = [made.args[0]] if made is not None and made.name == "buffer" else [], []
    while left:
        v = left.pop()
        if v.op is not None and v.op.name == "add":
            left += v.op.args
        else:
            found.append(v)
    return found


__all__ = ["join_accesses"]
