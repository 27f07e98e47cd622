"""What is known to divide a place in memory."""

from __future__ import annotations

from wavedsl.codegen.amdgcn.target import get_target
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.join_accesses import divisor
from wavedsl.ir.kernel.kernel_ir import I32, I64


def test_what_divides_a_place() -> None:
    b = Builder(new_kernel(), get_target("gfx942"))
    lane = b.lane()
    row = b.mul(lane, 108)
    for value, want in (
        (row, 108), (b.add(row, b.mul(b.wgid(0), 27 * 256)), 108), (b.add(row, 12), 12), (b.const(0, I32), 0),
        (b.mul(b.zext(b.mul(lane, 27)), b.const(4, I64)), 108), (lane, 1), (b.shl(lane, 3), 8),
    ):  # fmt: skip
        assert divisor(value) == want, value.op
