"""Which butterflies one instruction stands for: whole ones of one operation, whose steps nobody else reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from wavedsl.codegen.ptx.lane_reductions import lane_reductions
from wavedsl.codegen.ptx.select import _count_uses
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import I32, Value

from wavedsl.targets import get_target

MASKS = (1, 2, 4, 8, 16)


def built(masks: Sequence[int], join: Callable[[Builder, int, Value, Value], Value], also: int = -1) -> tuple[int, int]:
    """(reductions found, values inside) of a butterfly; `also`: a step whose result is stored, too."""
    b = Builder(new_kernel(), get_target("sm_80"))
    v = b.load_shared(b.mul(b.lane(), 4), bytes=4, type=I32)
    for i, mask in enumerate(masks):
        v = join(b, i, v, b.shuffle_xor(v, mask))
        if i == also:
            b.store_shared(b.mul(b.lane(), 4), v, buffer="x")
    b.store_shared(b.mul(b.lane(), 4), v, buffer="x")
    kernel = b.finish()
    users: dict[int, Any] = {}
    _count_uses(kernel.body, users, {})
    found = lane_reductions(kernel.body.walk(), users)
    return len(found.starts), len(found.inside)


@pytest.mark.parametrize("name", ["add", "min_s", "max_s", "min_u", "max_u"])
def test_whole_butterflies(name: str) -> None:
    def join(b: Builder, i: int, x: Value, y: Value) -> Value:
        return getattr(b, name)(*((x, y) if i % 2 else (y, x)))

    assert built(MASKS, join) == (1, 9)  # five exchanges and four joins
    assert built(MASKS[::-1], join) == (1, 9)
    assert built(MASKS[:4], join) == (0, 0)
    assert built((1, 2, 4, 8, 8), join) == (0, 0)
    assert built(MASKS, join, also=2) == (0, 0)
    assert built(MASKS, join, also=4) == (1, 9)


def test_others() -> None:
    assert built(MASKS, lambda b, i, x, y: b.add(x, y) if i else b.max_s(x, y)) == (0, 0)
    assert built(MASKS, lambda b, i, x, y: b.sub(x, y)) == (0, 0)
    assert built(MASKS, lambda b, i, x, y: b.mul(x, y)) == (0, 0)
