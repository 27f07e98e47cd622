"""Lowering of `random`: Philox 4x32-10 in 32-bit integers, counted by the element's own index (see `philox`)."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import F32, I32, I64, Value, vector
from wavedsl.ir.layouts.fragment import Fragment, Lazy, from_elements
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.late_numbers import is_late_number
from wavedsl.ir.lower.lower_values import emitter, index_at, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.philox import MULTIPLIERS, ROUNDS, WEYL
from wavedsl.ir.schedule.steps import Context

Words = tuple[Value, Value]


@emitter("random")
def emit_random(low: Lowering, n: Node, layout: Layout, context: Context) -> Fragment:
    b = low.b
    seed, offset = (_words(b, operand(low, n, i, context).element(b, 0), n.inputs[i].dtype) for i in (0, 1))
    counter = _counters(low, n, layout, context)

    def number(i: int) -> Value:
        with b.loc(n.loc):
            word = _philox(b, (*counter(i), *offset), seed)
            return word if n.dtype is dt.u32 else _uniform(b, word)

    if is_late_number(low, n):
        return Lazy(layout, n.dtype, number, b)
    return from_elements(b, layout, n.dtype, [number(i) for i in range(layout.elements_per_lane)])


def _words(b: Builder, x: Value, dtype: DType) -> Words:
    """Low and high half of a whole number in 64 bits."""
    if x.type is not I64:
        x = b.zext(x) if dtype.kind == "uint" else b.sext(x)
    return b.trunc(x), b.trunc(b.lshr(x, 32))


def _counters(low: Lowering, n: Node, layout: Layout, context: Context) -> Callable[[int], Words]:
    """What gives an element's row-major number over the node's dimensions, in 64 bits, where it is asked for: those of
    all elements would take two registers each until the last of them is used."""
    b = low.b
    dims = [str(d) for d in n.attrs["dims"]]
    extents = [low.plans[d].extent for d in dims]
    wide = any(e is None for e in extents) or prod(e or 0 for e in extents) >= 1 << 31
    base = low.base_at(context.iteration)
    own = {d: index_at(low, layout, d, base) for d in layout.dims}

    def counter(i: int) -> Words:
        total: Value = b.const(0, I64 if wide else I32)
        for d in dims:
            place = own[d](i) if d in own else base.get(d, 0)
            at: Value = b.i32(place) if isinstance(place, int) else place
            extent = low.extent(d)
            size: Value = b.i32(extent) if isinstance(extent, int) else extent
            if wide:
                total = b.add(b.mul(total, b.zext(size)), b.zext(at))
            else:
                total = b.add(b.mul(total, size), at)
        return (b.trunc(total), b.trunc(b.lshr(total, 32))) if wide else (total, b.i32(0))

    return counter


def _philox(b: Builder, counter: tuple[Value, Value, Value, Value], key: Words) -> Value:
    """The first word."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = _product(b, c0, MULTIPLIERS[0]), _product(b, c2, MULTIPLIERS[1])
        c0, c1, c2, c3 = b.xor(high1, b.xor(c1, k0)), low1, b.xor(high0, b.xor(c3, k1)), low0
        k0, k1 = b.add(k0, b.i32(WEYL[0])), b.add(k1, b.i32(WEYL[1]))
    return c0


def _product(b: Builder, x: Value, multiplier: int) -> Words:
    """Upper and lower word of a product: one instruction where it is different in each lane."""
    if x.uniform:
        return b.mulhi_u(x, b.i32(multiplier)), b.mul(x, b.i32(multiplier))
    whole = b.bitcast(b.mul_wide_u(x, b.i32(multiplier)), vector(2))
    return b.bitcast(b.slice(whole, 1), I32), b.bitcast(b.slice(whole, 0), I32)


def _uniform(b: Builder, word: Value) -> Value:
    """The upper 24 bits as an f32 in [0, 1)."""
    return b.fmul(b.cvt(b.lshr(word, 8), F32), b.const(2.0**-24, F32))


__all__ = ["emit_random"]
