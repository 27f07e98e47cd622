"""What is 0 beyond the ends of arrays, and which reads an operand is made of: found in one look at each value."""

from __future__ import annotations

from typing import Any

import pytest
from wavedsl.ir.dataflow.graph import Region
from wavedsl.ir.dataflow.walks import postorder
from wavedsl.ir.inference.mma_options import _sources
from wavedsl.ir.inference.retile import _fresh
from wavedsl.ir.lower.zeros_beyond import zero_beyond_the_end

import wavedsl as wd

(N,) = wd.symbols("N")


def value(change: Any) -> Any:
    """The node of what `change` makes of x[N]."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
        wd.write(change(wd.read(x)), y)

    return next(n for n in kernel.trace().all_nodes() if n.op == "write").inputs[0]


def threefold(x: Any) -> Any:
    """x, by 60 steps that each use the one before three times: 3^60 ways lead back to it."""
    for _ in range(60):
        x = (x + x) - x
    return x


@pytest.mark.parametrize(
    ("change", "zero"),
    [
        (lambda x: -x + x, True), (lambda x: x + 1.0, False), (lambda x: wd.exp2(x) - x, False),
        (lambda x: wd.cast(wd.cast(x, wd.f16), wd.f32), True), (threefold, True),
        (lambda x: threefold(x + 1.0), False),
    ],
)  # fmt: skip
def test_sums_of_zeros_are_zero(change: Any, zero: bool) -> None:
    assert zero_beyond_the_end(value(change), "N") == zero


def test_the_reads_of_an_operand_are_found_once() -> None:
    assert [n.op for n in _sources(value(threefold))] == ["read"]


def test_an_operand_of_many_ways_is_looked_at_once() -> None:
    """Whether a loop adds products alone is asked of every loop whose operands pass through shared memory."""
    found = value(threefold)
    region = Region(N, list(postorder(found, lambda x: x.inputs, ())), [], (), None)
    assert _fresh(found, region)
