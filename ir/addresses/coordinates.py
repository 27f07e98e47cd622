"""Sums that coordinates and addresses are made of: of ints and values, and of what the bits of a lane's number add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.kernel.linear import linear
from wavedsl.ir.layouts.bit_columns import combine_columns
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.layouts.plan_addresses import Field


def total(b: Builder, terms: Sequence[Any]) -> Any:
    """The sum of ints and values: an int if all are."""
    known = sum(t for t in terms if isinstance(t, int))
    out: Any = None
    for t in terms:
        if not isinstance(t, int):
            out = t if out is None else b.add(out, t)
    if out is None:
        return known
    return b.add(out, known) if known else out


def offset_of(b: Builder, terms: Sequence[Any]) -> Any:
    """The same of parts of an offset, without what they add and take away again: line and column of a pixel P of rows
    of 56 are P // 56 and P - 56 * (P // 56), and where lines follow each other P alone says where it lies."""
    values = [t for t in terms if not isinstance(t, int)]
    forms = [linear(v) for v in values]
    every: dict[Value, int] = {}
    for form in forms:
        for v, factor in form.terms.items():
            every[v] = every.get(v, 0) + factor
    if all(every.values()):
        return total(b, terms)
    constant = sum(t for t in terms if isinstance(t, int)) + sum(form.constant for form in forms)
    left = [b.mul(v, factor) for v, factor in every.items() if factor]
    return b.add_many([*left, constant], values[0].type)


def scaled(b: Builder, a: Any, s: Any) -> Any:
    """a * s for ints and values."""
    if isinstance(a, int) and isinstance(s, int):
        return a * s
    if (isinstance(s, int) and s == 0) or (isinstance(a, int) and a == 0):
        return 0
    return b.mul(a, s) if not isinstance(a, int) else b.mul(s, a)


def columns_of(fields: Sequence[Field], xor: bool) -> list[int]:
    """What each bit of a field's source adds."""
    width = max((f.mask.bit_length() for f in fields), default=0)
    columns = [0] * width
    for i in range(width):
        for f in fields:
            part = f(1 << i)
            columns[i] = columns[i] ^ part if xor else columns[i] + part
    return columns


def combine_fields(b: Builder, fields: Sequence[Field], source: Value, xor: bool = False) -> Any:
    """The sum (or XOR) of bit fields of `source`: the int 0 if there are none."""
    return combine_columns(b, columns_of(fields, xor), source, xor=xor, bare=bare_price(b, source))


def bare_price(b: Builder, source: Value) -> int:
    """Instructions that the source itself costs: the lane is cut out of the thread where there are several waves."""
    op = source.op
    return int(op is not None and op.name == "lane" and b.kernel.waves > 1)


def lane_coordinate(b: Builder, layout: Layout, dim: str) -> Any:
    """What a lane adds to the coordinate of `dim`."""
    return combine_columns(b, layout.lane_columns(dim), b.lane(), xor=True, bare=bare_price(b, b.lane()))
