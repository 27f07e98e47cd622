"""Lowering of `device_print` and `device_assert`: records in the log (see `device_log`)."""

from __future__ import annotations

from typing import Any

from wavedsl.ir.dataflow.device_log import HEADER, SOURCE, WORDS, log_sites
from wavedsl.ir.dataflow.graph import PART, Node
from wavedsl.ir.kernel.kernel_ir import B32, I32, PRED, Value, vector
from wavedsl.ir.layouts.bits import number_of
from wavedsl.ir.layouts.fragment import Fragment
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.lower_atomic import differing, one_workgroup, shared_dims
from wavedsl.ir.lower.lower_values import emitter, index_elements, inside_masks, one_writer, operand
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.schedule.steps import Context


@emitter("device_print", "device_assert")
def emit_report(low: Lowering, n: Node, layout: None, context: Context) -> None:
    """One record per element that has something to report, by the one lane that speaks for it."""
    b = low.b
    site = log_sites(low.graph)[1][n.id]
    if not n.inputs:
        _record(low, site, _hidden(low, n, context), None, _speaks(low, None, n))
    for position in range(len(n.inputs)):
        value = operand(low, n, position, context)
        own = value.layout
        names = [str(d) for d in n.inputs[position].dims]
        places = {d: index_elements(low, own, d, context) for d in own.dims}
        masks = [
            inside_masks(low, own, d, context)
            for d in own.dims
            if low.plans[d].ragged or dict(own.extents)[d] > low.plans[d].wave
        ]
        speaks = _speaks(low, value, n)
        for i in range(own.elements_per_lane if names else 1):
            mask = speaks
            for inside in masks:
                mask = b.pand(mask, inside[i])
            x = value.element(b, i)
            if n.op == "device_assert":
                mask, words = b.pand(mask, b.pnot(x)), None
            else:
                words = _words(low, x)
            _record(low, site + position, _hidden(low, n, context) + [places[d][i] for d in names], words, mask)


@emitter("fence")
def emit_fence(low: Lowering, n: Node, layout: None, context: Context) -> None:
    if low.writes.outlets:
        low.b.bulk_wait(0, reading=False)
    if n.attrs.get("scope") == "warp":
        low.b.warp_fence()
    else:
        low.b.fence(n.attrs.get("scope"), n.attrs.get("order"))


def _hidden(low: Lowering, n: Node, context: Context) -> list[Value]:
    """Where the workgroup is along index dimensions; which part of a loop it had says nothing of what comes after."""
    b = low.b
    base = {**low.base_at(context.iteration), **({PART: 0} if n.attrs.get("after_parts") else {})}
    found: list[Any] = [base.get(str(d), 0) for d in low.graph.index_dims]
    return [b.i32(x) if isinstance(x, int) else x for x in found]


def _speaks(low: Lowering, value: Fragment | None, n: Node) -> Value:
    """The first of the lanes, waves and workgroups that hold the same element; of workgroups that may come here without
    the first one, each."""
    b = low.b
    layout: Layout | None = None if value is None else value.layout
    dims = () if layout is None or not value or not layout.dims else layout.dims
    replicas = low.target.wave_size - 1
    if layout is not None and dims:
        replicas = sum(1 << number_of(x) for x in layout.replica_bits("l"))
    mask = b.cmp("eq", b.and_(b.lane(), replicas), 0) if replicas else b.true
    shared = shared_dims(low, dims)
    alone = differing(low, n, shared)
    for guard in (one_writer(low, dims), one_workgroup(low, [d for d in shared if d not in alone])):
        if guard is not None:
            mask = b.pand(mask, guard)
    return mask


def _words(low: Lowering, x: Value) -> Value:
    b = low.b
    if x.type is PRED:
        x = b.select(x, b.const(1, I32), b.const(0, I32))
    return b.bitcast(x, vector(x.type.words))


def _record(low: Lowering, site: int, indices: list[Value], value: Value | None, mask: Value) -> None:
    b = low.b
    index = low.dynamic[SOURCE]
    buffer = b.buffer(b.param(index), 4 * WORDS)
    words = [b.i32(site), *indices]
    size = len(words) + (0 if value is None else value.type.words)
    at = b.atomic_global(buffer, b.i32(0), "add", b.i32(size), mask=mask)
    room = b.pand(mask, b.cmp("ule", b.sub(at, HEADER), WORDS - HEADER - size))
    place = b.shl(at, 2)
    for i, word in enumerate(words):
        b.store_global(buffer, b.add(place, 4 * i), b.bitcast(word, B32), mask=room, split=False, bounded=True)
    for i in range(0 if value is None else value.type.words):
        assert value is not None
        part = b.slice(value, i) if value.type.n > 1 else value
        offset = 4 * (len(words) + i)
        b.store_global(buffer, b.add(place, offset), part, mask=room, split=False, bounded=True)


__all__ = ["emit_report"]
