"""Whether the compiler sees that an identity which comes second changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from wavedsl.ir.lower.identities import second_changes_nothing

import wavedsl as wd

N = wd.sym.N


def seen(function: Callable[[Any, Any], Any], identity: Any, *dtypes: wd.DType) -> bool:
    """What is seen of a function as a kernel's scan has it; the values are ones of these dtypes."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)], subs={N: 64})
    def kernel(out: wd.Memory[N, dtypes[0]]):
        values = tuple(wd.Register[N, dtype](1) for dtype in dtypes)
        found = wd.scan(values if len(values) > 1 else values[0], function, identity, dim=N)
        wd.write(found[0] if len(values) > 1 else found, out)

    (node,) = (n for n in kernel.trace().all_nodes() if n.op == "scan")
    return second_changes_nothing(node.attrs["body"], node.attrs["identity"])


RUNS = (lambda x, y: (y[0], wd.where(x[0] == y[0], x[1] + y[1], y[1])), (-1, 0.0), wd.i32, wd.f32)


@pytest.mark.parametrize(
    "case",
    [
        (lambda x, y: x + y, 0.0, wd.f32), (lambda x, y: y * x, 1, wd.i32), (lambda x, y: x & y, -1, wd.i32),
        (lambda x, y: x & y, (1 << 8) - 1, wd.u8), (lambda x, y: x | y, False, wd.i1),
        (wd_maximum := lambda x, y: wd.maximum(x, y), math.nan, wd.f32), (wd_maximum, -math.inf, wd.f32),
        (lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (1.0, 0.0), wd.f32, wd.f32),
        (lambda x, y: (x[0] * y[0], wd.fma(x[1], y[0], y[1])), (1.0, 0.0), wd.f32, wd.f32),
        (  # matrices of 2 x 2
            lambda x, y: (x[0] * y[0] + x[1] * y[2], x[0] * y[1] + x[1] * y[3],
                          x[2] * y[0] + x[3] * y[2], x[2] * y[1] + x[3] * y[3]),
            (1.0, 0.0, 0.0, 1.0), *[wd.f32] * 4,
        ),
        (lambda x, y: (x[0] | y[0], wd.where(y[0], y[1], x[1] + y[1])), (False, 0.0), wd.i1, wd.f32),
        (lambda x, y: wd.where(y == 0, x, y), 0, wd.i32), (lambda x, y: x - (3 - y), 3, wd.i32),
    ],
)  # fmt: skip
def test_seen(case: tuple[Any, ...]) -> None:
    assert seen(*case)


@pytest.mark.parametrize(
    "case",
    [
        RUNS, (lambda x, y: x + y, 1.0, wd.f32), (lambda x, y: y - x, 0, wd.i32), (lambda x, y: y, 0, wd.i32),
        (lambda x, y: x & y, 1, wd.i32), (lambda x, y: wd.where(x == 0, y, x), 1, wd.i32),
        (lambda x, y: (x[1] * y[0], x[0] + y[1]), (1.0, 0.0), wd.f32, wd.f32),
    ],
)  # fmt: skip
def test_not_seen(case: tuple[Any, ...]) -> None:
    assert not seen(*case)
