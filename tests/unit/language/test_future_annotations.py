"""The language in a module with postponed annotations: names are resolved where the function was written."""

from __future__ import annotations

import numpy as np

import wavedsl as wd

M, N, K, BM, BK = wd.symbols("M N K BM BK")


def test_symbols_of_the_module() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0)], subs={BM: 4})
    def double(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(a) * 2, b)

    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    double.evaluate(a, b)
    assert np.array_equal(b, 2 * a)


def test_symbols_that_only_an_annotation_uses() -> None:
    """Local names of the enclosing function are in no closure when nothing but an annotation mentions them."""
    rows, columns = wd.symbols("rows columns")

    @wd.wave([])
    def copy(a: wd.Memory[rows, columns, wd.f32], b: wd.Memory[rows, columns, wd.f32]):
        wd.write(wd.read(a), b)

    assert copy.trace().arguments[0].dims == (wd.sym.rows, wd.sym.columns)


def test_loop_annotations_see_the_kernel_and_what_encloses_it() -> None:
    def make(dtype: wd.DType) -> wd.Kernel:
        Q = wd.sym.Q

        @wd.wave([wd.TilingConstraint(K, BK)], subs={BK: 2})
        def total(a: wd.Memory[Q, K, dtype], b: wd.Memory[Q, dtype]):
            own = dtype
            zero = wd.Register[Q, own](0)

            @wd.iterate(K, init_args=[zero])
            def loop(acc: wd.Register[Q, own]) -> wd.Register[Q, own]:
                return acc + wd.sum(wd.read(a), dim=K)

            wd.write(loop, b)

        return total

    a, b = np.arange(15, dtype=np.int32).reshape(3, 5), np.zeros(3, np.int32)
    make(wd.i32).evaluate(a, b)
    assert np.array_equal(b, a.sum(axis=1))
    assert make(wd.f32).trace().arguments[0].dtype is wd.f32


def test_quoted_annotations_are_resolved_too() -> None:
    @wd.wave([])
    def copy(a: "wd.Memory[M, wd.f32]", b: "wd.Memory[M, wd.f32]"):  # noqa: UP037
        wd.write(wd.read(a), b)

    assert copy.trace().arguments[1].dtype is wd.f32
