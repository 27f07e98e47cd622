"""Atomics of lanes that may hit the same address, in whatever memory.

In: positions, data and the row's `Mem`; how words are loaded and stored. Out: memory updated as if lane by lane, and
the old words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Mem
from wavedsl.codegen.amdgcn.isa_memory import ATOMICS
from wavedsl.runtime.emulator.amdgcn.state import (
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
)


def combine(old: np.ndarray, data: np.ndarray, mem: Mem) -> np.ndarray:
    """New words [k, n] from old words and data; compare-and-swap data is (new, compare)."""
    kind = {"u32": U32, "i32": I32, "u64": U64, "i64": I64, "f32": F32, "f64": F64}[mem.dtype]
    fn = ATOMICS[mem.function]
    if mem.bytes == 4:
        o = np.ascontiguousarray(old[0])
        if mem.function == "cmpswap":
            return np.where(o == data[1], data[0], o)[None]
        d = np.ascontiguousarray(data[0])
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(fn(o.view(kind), d.view(kind))).view(U32)[None]
    o = _wide(old)
    if mem.function == "cmpswap":
        out = np.where(o == _wide(data[2:4]), _wide(data[0:2]), o)
    else:
        out = np.asarray(fn(o.view(kind), _wide(data[0:2]).view(kind))).view(U64)
    return np.stack((out.astype(U32), (out >> U64(32)).astype(U32)))


def _wide(words: np.ndarray) -> np.ndarray:
    return words[0].astype(U64) | (words[1].astype(U64) << U64(32))


def apply_atomic(
    key: np.ndarray,
    data: np.ndarray,
    mem: Mem,
    load: Callable[[np.ndarray], np.ndarray],
    store: Callable[[np.ndarray, np.ndarray], None],
    order: np.ndarray | None,
) -> np.ndarray:
    """Sequential semantics over lanes that may hit the same address: rounds of distinct addresses.

    `load(positions)`, `store(positions, words)` act on lanes by position. Returns the old words per lane. `order`
    permutes the lanes: any order is legal.
    """
    n = key.shape[0]
    old = np.zeros((mem.bytes // 4, n), U32)
    rest = np.arange(n) if order is None else order
    while rest.size:
        _, first = np.unique(key[rest], return_index=True)
        now = rest[first] if first.size < rest.size else rest
        before = load(now)
        old[:, now] = before
        store(now, combine(before, data[:, now], mem))
        if first.size == rest.size:
            break
        keep = np.ones(rest.size, bool)
        keep[first] = False
        rest = rest[keep]
    return old


_REDUCE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduce_atomic(key: np.ndarray, data: np.ndarray, mem: Mem, load: Any, store: Any) -> bool:
    """Integer atomics that return nothing, at once: one reduction per address. False when the row is not one of
    those.
    """
    fn = _REDUCE.get(mem.function)
    if fn is None or mem.returns or mem.dtype not in ("u32", "i32"):
        return False
    kind = U32 if mem.dtype == "u32" else I32
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    start = np.flatnonzero(np.concatenate(([True], sorted_key[1:] != sorted_key[:-1])))
    total = fn.reduceat(data[0][order].view(kind), start, dtype=kind)
    at = order[start]
    old = load(at)
    store(at, fn(old[0].view(kind), total).view(U32)[None])
    return True
