"""Byte strides of arrays that only the launch knows: parameters count elements.

In: an array's `ArrayInfo`, whose `counted` names the parameters. Out: bytes as a 32-bit number, for what a lane adds
inside a tile (a launch checks that it fits, `prepare.check_reach`), or as one of 64 bits, for where a tile starts: 2^30
elements of f32 are more bytes than 32 bits hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import I32, Value


def counted(info: ArrayInfo, dynamic: Mapping[str, int]) -> tuple[tuple[int, int] | None, ...]:
    """Per dimension (the parameter that holds the stride, bits of what it counts), or None. `dynamic`: the parameters
    of run-time arguments by name."""
    return tuple(
        (dynamic[f"stride {info.name}[{i}]"], info.dtype.bits if info.dtype.packed else 8 * info.elsize)
        if s is None
        else None
        for i, s in enumerate(info.strides)
    )


def narrow_stride(b: Builder, info: ArrayInfo, i: int) -> Any:
    """Bytes between neighbours along dimension i, in 32 bits."""
    known = info.strides[i]
    if known is not None:
        return known
    elements, bits = _elements(b, info, i)
    return b.lshr(b.mul(elements, bits), 3) if bits % 8 else b.mul(elements, bits // 8)


def wide_stride(b: Builder, info: ArrayInfo, i: int) -> Value:
    """Bytes between neighbours along dimension i, in 64 bits."""
    known = info.strides[i]
    if known is not None:
        return b.i64(known)
    elements, bits = _elements(b, info, i)
    wide = b.zext(elements)
    return b.lshr(b.mul(wide, b.i64(bits)), 3) if bits % 8 else b.mul(wide, b.i64(bits // 8))


def _elements(b: Builder, info: ArrayInfo, i: int) -> tuple[Value, int]:
    """(a run-time stride in elements, the bits of one)."""
    found = info.counted[i]
    assert found is not None, f"{info.name} has a stride that no parameter holds"
    index, bits = found
    multiple = 1 if bits % 8 else max(1, info.stride_multiple(i) * 8 // bits)
    return b.param(index, I32, lo=0, multiple=multiple), bits
