"""Whether the ranges and known-zero bits of integers hold: all of them are computed for random samples.

In: a kernel whose ops are well formed. Out: findings in the `Check`. Lanes, workgroups, parameters, loaded data and
trips are sampled, extremes among them, with NumPy alone. A carried value is sampled where its value can be computed
from the trip (init + trip × constant); elsewhere its declared range is assumed, and shown to be kept by the next
value.
"""

from __future__ import annotations

import functools
from random import Random
from typing import Any

import numpy as np
from wavedsl.ir.kernel.kernel_ir import F32, I32, I64, PRED, Op, Region, Type, Value
from wavedsl.ir.kernel.kernel_meaning import CHEAP, NUMPY, OF_INVERSES
from wavedsl.ir.kernel.verify_ops import Check

SAMPLES = 64


class Samples:
    """Computes every integer and predicate of the kernel for random situations, then compares with the facts."""

    def __init__(self, state: Check):
        self.state = state
        self.kernel = state.kernel
        self.rng = Random(0)
        self.values: dict[Value, Any] = {}
        self.seen: list[tuple[Value, Any, Op]] = []
        self.masks: list[tuple[int, int, Any]] = []
        """Runs of `seen` (from, to) of which only some samples are executed, and which those are."""

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self.region(self.kernel.body, None)
        self.compare()

    def compare(self) -> None:
        """All samples against all facts in three array operations."""
        if not self.seen:
            return
        numbers = np.empty((len(self.seen), SAMPLES), np.int64)
        for row, (_, sample, _) in zip(numbers, self.seen):
            row[:] = sample
        lows = np.array([v.lo for v, _, _ in self.seen], np.int64)[:, None]
        highs = np.array([v.hi for v, _, _ in self.seen], np.int64)[:, None]
        zeros = np.array([v.zeros for v, _, _ in self.seen], np.uint64).view(np.int64)[:, None]
        bad = (numbers < lows) | (numbers > highs) | ((numbers & zeros) != 0)
        for first, last, on in self.masks:
            bad[first:last] &= on
        for i in map(int, np.flatnonzero(bad.any(axis=1))):
            v, sample, op = self.seen[i]
            number = int(numbers[i][bad[i]][0])
            self.state.find(
                "range", op, f"{v} can be {number}, but is said to be in {v.lo}..{v.hi}, zeros {v.zeros:#x}"
            )

    def note(self, v: Value, sample: Any, op: Op, on: Any) -> None:
        """Remember a sample; where the op is not executed any number will do."""
        self.values[v] = sample
        if v.lo is not None:
            at = len(self.seen)
            self.seen.append((v, sample, op))
            if on is not None:
                if self.masks and self.masks[-1][2] is on and self.masks[-1][1] == at:
                    at = self.masks.pop()[0]
                self.masks.append((at, len(self.seen), on))

    def noise(self) -> Any:
        """Random 64-bit words. (`numpy.random` would take 7 ms to import.)"""
        return np.frombuffer(self.rng.randbytes(8 * SAMPLES), np.uint64)

    def bools(self) -> Any:
        return (self.noise() & np.uint64(1)).astype(bool)

    def random(self, lo: int, hi: int, t: Type = I32, multiple: int = 1) -> Any:
        """Samples in lo..hi: the ends first, half of the rest small."""
        first = -(-lo // multiple)
        last = max(hi // multiple, first)
        noise = self.noise()
        span = last - first + 1
        out = noise.view(np.int64).copy() if span >> 63 else (noise % np.uint64(span)).view(np.int64) + first
        near = min(last, max(first, 0) + 300)
        start = max(first, near - 600)
        half = SAMPLES // 2
        out[2:half] = (noise[half : 2 * half - 2] >> np.uint64(7)) % np.uint64(near - start + 1)
        out[2:half] += start
        out[0], out[1] = first, last
        return (out * multiple).astype(NUMPY[t.kind])

    def leaf(self, op: Op) -> Any:
        """Samples of an op whose result is not computed from integers, or None."""
        name, k, t = op.name, self.kernel, op.results[0].type
        if name == "const":
            return _constant(op.attrs["value"], t.kind)
        if name in ("lane", "wave", "tid"):
            if not hasattr(self, "lanes"):
                self.lanes = self.random(0, k.wave_size - 1)
                self.waves = self.random(0, k.waves - 1)
            return {"lane": self.lanes, "wave": self.waves, "tid": self.waves * np.int32(k.wave_size) + self.lanes}[
                name
            ]
        if name == "wgid":
            count = k.grid[op.attrs["axis"]]
            return self.random(0, max(0, count - 1) if isinstance(count, int) and count >= 0 else (1 << 31) - 2)
        if name == "wgcount":
            count = k.grid[op.attrs["axis"]]
            return self.random(1, max(1, count) if isinstance(count, int) and count >= 0 else (1 << 31) - 1)
        if name == "cluster.rank":
            return self.random(0, k.cluster - 1)
        bits = 64 if t is I64 else 32
        lo, hi = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        if name == "param":
            at = op.attrs["index"]
            if at < len(k.params) and k.params[at].source.startswith("extent"):
                lo = 0
            return self.random(op.attrs.get("lo", lo), op.attrs.get("hi", hi), t, op.attrs.get("multiple", 1))
        if name.startswith("load.") and op.attrs["bytes"] < 4:
            return self.random(0, (1 << 8 * op.attrs["bytes"]) - 1, t)
        if name == "unpack" and op.attrs["dtype"].bits < 32:
            d, word = op.attrs["dtype"], op.args[0].op
            known = self.values.get(word.args[0]) if word is not None and word.name == "bitcast" else None
            if d.kind in ("uint", "bool") and known is not None:
                return known >> op.attrs["index"] * d.bits & (1 << d.bits) - 1
            return self.random(-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1) if d.kind == "int" else (
                self.random(0, (1 << d.bits) - 1)
            )  # fmt: skip
        return self.random(lo, hi, t)

    def region(self, region: Region, on: Any) -> tuple[Any, ...]:
        values = self.values
        for op in region.ops:
            name = op.name
            if name == "yield":
                return tuple(values.get(a) for a in op.args)
            if name == "for":
                self.loop(op, on)
                continue
            if name == "if":
                self.branch(op, on)
                continue
            if not op.results:
                continue
            r = op.results[0]
            t = r.type
            if t is not I32 and t is not I64 and t is not PRED:
                if t is F32 and r.uniform and name in OF_INVERSES:
                    self.inverse(op)
                continue
            sample = None
            rule = CHEAP.get(name)
            if rule is not None:
                args: list[Any] = [op]
                for a in op.args:
                    known = values.get(a)
                    if known is None:
                        break
                    args.append(known)
                else:
                    sample = rule(*args)
            elif name in ("readfirst", "shuffle_xor", "shuffle_index"):
                # Another lane's value: any of the operand's samples.
                sample = values.get(op.args[0])
            if sample is None:
                sample = self.bools() if t is PRED else self.leaf(op)
            values[r] = sample
            if r.lo is not None and name != "const":
                if on is not None:
                    self.note(r, sample, op, on)
                else:
                    self.seen.append((r, sample, op))
        return ()

    def inverse(self, op: Op) -> None:
        """Samples of a float of which an integer's inverse is made (`divide.py`), where its operands have some."""
        args = [self.before(a) if a.type is not F32 or a.const is None else np.float32(a.const) for a in op.args]
        if all(a is not None for a in args):
            self.values[op.results[0]] = OF_INVERSES[op.name](op, *args)

    def loop(self, op: Op, on: Any) -> None:
        """One random trip of every sample's loop; samples without a trip are off inside."""
        body = op.regions[0]
        lo, hi, step = (self.values[a].astype(np.int64) for a in op.args[:3])
        trips = np.maximum(-((lo - hi) // np.maximum(step, 1)), 0)
        trip = (self.noise() % np.maximum(trips, 1).astype(np.uint64)).astype(np.int64)
        trip[0] = 0
        trip[1] = max(trips[1] - 1, 0)
        inside = trips > 0
        if on is not None:
            inside &= on
        mask = None if inside.all() else inside
        self.note(body.args[0], (lo + trip * step).astype(np.int32), op, mask)
        steps: dict[Value, Any] = {}
        for a, init, out in zip(body.args[1:], op.args[3:], body.ops[-1].args):
            if a.lo is None:
                if a.type is PRED:
                    self.values[a] = self.bools()
                continue
            by = self.increment(a, out)
            start = self.values.get(init)
            if by is not None and start is not None:
                steps[a] = (start, by)
                with np.errstate(all="ignore"):
                    self.note(a, start + (trip * by).astype(start.dtype), op, mask)
            else:
                sample = self.random(a.lo, a.hi if a.hi is not None else a.lo, a.type) & ~np.asarray(
                    a.zeros - (1 << 64) if a.zeros >> 63 else a.zeros
                ).astype(NUMPY[a.type.kind])
                self.values[a] = sample
                if start is not None:
                    self.seen.append((a, start if mask is None else np.where(mask, start, sample), op))
        outs = self.region(body, mask)
        again = inside & (trip + 1 < trips)
        for i, (a, r) in enumerate(zip(body.args[1:], op.results)):
            if r.type not in (I32, I64, PRED):
                continue
            start, out = self.values.get(op.args[3 + i]), outs[i]
            if a in steps:
                start, by = steps[a]
                sample = start + (trips * by).astype(start.dtype)
            elif start is None or out is None:
                sample = self.random(r.lo, r.hi, r.type) if r.lo is not None and r.hi is not None else out
            else:
                if a.lo is not None and again.any():
                    self.seen.append((a, np.where(again, out, out[again.argmax()]), op))
                sample = np.where(inside, out, start)
            if sample is not None:
                self.note(r, sample, op, on)

    def increment(self, a: Value, out: Value) -> Any:
        """Samples of out - a where out is `a` plus and minus what was there before the loop; None otherwise.

        The builder moves constants outwards: `a + (d + 16)` is `(a + d) + 16`.
        """
        by: Any = NUMPY[a.type.kind](0)
        while out is not a:
            op = out.op
            if op is None or op.name not in ("add", "sub"):
                return None
            x, y = op.args
            if op.name == "add" and x is not a and self.before(x) is not None:
                x, y = y, x
            more = self.before(y)
            if more is None:
                return None
            by = by + more if op.name == "add" else by - more
            out = x
        return by

    def before(self, v: Value) -> Any:
        """Samples of a value that the body of the loop at hand does not compute, or None."""
        return _constant(v.const, v.type.kind) if v.const is not None else self.values.get(v)

    def branch(self, op: Op, on: Any) -> None:
        cond = self.values.get(op.args[0])
        if cond is None:
            cond = self.bools()
        base = np.ones(SAMPLES, bool) if on is None else on
        first, second = self.region(op.regions[0], base & cond), self.region(op.regions[1], base & ~cond)
        for r, a, b in zip(op.results, first, second):
            if a is not None and b is not None:
                self.note(r, np.where(cond, a, b), op, on)


@functools.lru_cache(4096)
def _constant(value: int | bool, kind: str) -> Any:
    """Samples of a constant; not to be written to."""
    return np.full(SAMPLES, value, NUMPY[kind])
