"""Whether the threads of a workgroup each keep to places of their own in shared memory.

In: accesses of a kernel. Out: whether no byte that one thread touches by the one is touched by another by the other. An
address that is made of the thread's number and constants alone is worked out for every thread; of others, and of
accesses in which lanes reach for each other's places (matrix loads, linear copies), nothing is known.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Value

Array = Any
LONGEST = 200
"""Values that are looked at for one address."""
CELLS = 1 << 20
"""Most cells that are told apart."""
MEANINGS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "lshr": operator.rshift,
}
"""Of whole numbers none of which is negative or wraps."""
PLACES = {"load.shared": 0, "store.shared": 0, "copy.async": 5}
"""Accesses by single lanes, and which of their arguments is the address."""


class OwnPlaces:
    """The addresses of a kernel's accesses, thread by thread."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self._values: dict[Value, Array] = {}
        self._starts: dict[Op, Array] = {}

    def apart(self, a: Op, b: Op, group: int) -> bool:
        """Whether no two threads of one group of `group` meet, one at `a` and the other at `b`."""
        first, second = self._start(a), self._start(b)
        if first is None or second is None:
            return False
        m, n = int(a.attrs["bytes"]), int(b.attrs["bytes"])
        step = math.gcd(m, n, int(np.gcd.reduce(first)), int(np.gcd.reduce(second)))
        low = int(min(first.min(), second.min()))
        reach = (int(max(first.max() + m, second.max() + n)) - low) // step
        thread = np.arange(self.kernel.block)
        base = thread // group * reach
        if (int(base[-1]) + reach) > CELLS:
            return False
        ours = (base + (first - low) // step)[:, None] + np.arange(m // step)
        theirs = (base + (second - low) // step)[:, None] + np.arange(n // step)
        owner = np.full(int(base[-1]) + reach, -1)
        owner[ours] = thread[:, None]
        if (owner[ours] != thread[:, None]).any():
            return False
        met = owner[theirs]
        return bool(((met < 0) | (met == thread[:, None])).all())

    def _start(self, op: Op) -> Array:
        """The first byte of every thread's access [threads], or None."""
        if op not in self._starts:
            self._starts[op] = self._places(op)
        return self._starts[op]

    def _places(self, op: Op) -> Array:
        at = PLACES.get(op.name)
        if at is None or op.attrs.get("atom", "vector") != "vector" or op.attrs.get("linear"):
            return None
        value = self._numbers(op.args[at])
        imm = op.attrs.get("simm" if op.name == "copy.async" else "imm", 0)
        return None if value is None else np.broadcast_to(value, self.kernel.block) + imm

    def _numbers(self, value: Value) -> Array:
        """What a value is in every thread, or None. (In steps: addresses may be long.)"""
        work = [value]
        for _ in range(LONGEST):
            if not work:
                break
            v = work[-1]
            missing = [a for a in v.op.args if a not in self._values] if v.op is not None else []
            if v in self._values or (missing and v.op is not None and v.op.name not in MEANINGS):
                self._values.setdefault(v, None)
                work.pop()
            elif missing:
                work += missing
            else:
                self._values[v] = self._number(v)
                work.pop()
        return self._values.get(value)

    def _number(self, v: Value) -> Array:
        op = v.op
        if op is None or op.regions:
            return None
        tid = np.arange(self.kernel.block, dtype=np.int64)
        if op.name == "const":
            return np.int64(v.const) if isinstance(v.const, int) else None
        if op.name in ("tid", "lane", "wave"):
            wave = self.kernel.wave_size
            return {"tid": tid, "lane": tid % wave, "wave": tid // wave}[op.name]
        if op.name not in MEANINGS or v.lo is None or v.lo < 0:
            return None
        args = [self._values[a] for a in op.args]
        if any(a is None for a in args):
            return None
        out = MEANINGS[op.name](*args)
        return out if (np.asarray(out) >= 0).all() and (np.asarray(out) < 1 << 31).all() else None


__all__ = ["PLACES", "OwnPlaces"]
