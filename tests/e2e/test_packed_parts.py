"""Parts of packed arrays: one matrix of several, some of the columns; read as operands and alone, and written."""

from __future__ import annotations

from typing import Any

import numpy as np
import packed
import pytest
from agree import TARGETS, agree
from products import K, M, N

import wavedsl as wd

E, Q, O = wd.symbols("E Q O")
PACKED = [wd.i4, wd.u4, wd.f4e2m1, wd.f6e3m2]
PARTS: list[Any] = [
    lambda b, e: b[1, :, :K], lambda b, e: b[e, :, 16 : 16 + K], lambda b, e: b[2, :, 32 : 32 + K],
]  # fmt: skip
"""Of `b[E, N, Q]`, `e` a number that the kernel reads: from the first column on, from another, up to the last."""


def stored(dtype: wd.DType, *shape: int) -> np.ndarray:
    return packed.operand(np.random.default_rng(3), dtype, shape)[0]


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dtype", PACKED, ids=str)
@pytest.mark.parametrize("part", range(3))
def test_parts_are_read(part: int, dtype: wd.DType, target: str) -> None:
    """Units lay as single elements do: each 4-bit one took the place of a byte, and starts counted bytes."""

    @wd.wave([wd.WorkgroupConstraint(N, 16, 0)], subs={K: 64})
    def kernel(b: wd.Memory[E, N, Q, dtype], which: wd.Memory[O, wd.i32], y: wd.Memory[N, K, wd.f32]):
        e = wd.read(which, mapping=wd.IndexMapping((), {O: 0}))
        wd.write(wd.cast(wd.read(PARTS[part](b, e)), wd.f32), y)

    b = stored(dtype, 3, 20, 96)
    agree(kernel, [b, np.array([2], np.int32), np.zeros((20, 64), np.float32)], target)


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
@pytest.mark.parametrize("dtype", [wd.i4, wd.u4, wd.f4e2m1], ids=str)
def test_operands_of_one_matrix_of_several(dtype: wd.DType, target: str) -> None:
    """Weights of experts, the table of which says whose: products along parts of their rows."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)])
    def kernel(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[E, N, K, dtype], which: wd.Memory[O, wd.i32],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        e = wd.read(which, mapping=wd.IndexMapping((), {O: 0}))

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            whole = wd.read(b, mapping=wd.IndexMapping((N, K), {E: e}))
            return wd.mma(wd.read(a), wd.cast(whole, wd.f16), acc)

        wd.write(loop, y)

    a = np.random.default_rng(0).integers(-2, 3, (40, 64)).astype(np.float16)
    given = [a, stored(dtype, 3, 40, 64), np.array([1], np.int32), np.zeros((40, 40), np.float32)]
    agree(kernel, given, target)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_parts_are_written(target: str) -> None:
    @wd.wave([wd.WorkgroupConstraint(N, 16, 0)], subs={K: 64})
    def kernel(x: wd.Memory[N, K, wd.i32], y: wd.Memory[E, N, Q, wd.u4]):
        wd.write(wd.cast(wd.read(x), wd.u4), y[1, :, 6 : 6 + K])

    x = np.random.default_rng(0).integers(0, 16, (20, 64)).astype(np.int32)
    agree(kernel, [x, stored(wd.u4, 3, 20, 96)], target)


@pytest.mark.parametrize("start, length", [(1, 64), (63, 33)])
def test_what_begins_or_ends_within_a_byte_is_refused(start: int, length: int) -> None:
    """A start of 63 read past the end of the array."""

    @wd.wave([wd.WorkgroupConstraint(N, 16, 0)], subs={K: length + length % 2})
    def kernel(b: wd.Memory[E, N, Q, wd.u4], y: wd.Memory[N, K, wd.i32]):
        wd.write(wd.cast(wd.read(b[1, :, start : start + K]), wd.i32), y)

    given = [stored(wd.u4, 3, 20, 96), np.zeros((20, length + length % 2), np.int32)]
    with pytest.raises(wd.ConstraintError, match="packed u4 cannot be read from any element along K on") as error:
        kernel.compile(*given, target="gfx942")
    assert "a multiple of 2" in str(error.value) and error.value.location is not None
