"""Values for symbols: from subs, from shapes, dynamic, expressions, packed arrays, foreign arrays."""

import numpy as np
from wavedsl.ir.symbols import DYNAMIC

import wavedsl as wd

M, N, K, BM = wd.symbols("M N K BM")


@wd.wave([wd.WorkgroupConstraint(M, BM, 0)], subs={BM: 16}, dynamic=[M])
def kernel(a: wd.Memory[M, K, wd.f16], b: wd.Memory[M, 2 * K, wd.f16], s: wd.Scalar[wd.i32] = 5):
    wd.write(wd.read(a), a)


class Foreign:
    """What torch's tensors look like from here: a dtype that is not NumPy's, and no buffer."""

    def __init__(self, shape: tuple, dtype: str):
        self.shape = shape
        self.dtype = type("dtype", (), {"__str__": lambda self: dtype})()


def test_from_shapes() -> None:
    arguments = kernel.bind_arguments((np.zeros((7, 3), np.float16),), {"b": np.zeros((7, 6), np.float16)})
    bound = kernel.binding(arguments)
    assert bound.dims == {BM: 16, K: 3, M: DYNAMIC}
    assert bound.extents == {M: 7} and list(bound.arguments) == ["a", "b", "s"] and bound.arguments["s"] == 5


def test_subs_over_the_decorators() -> None:
    assert kernel.binding(None, subs={BM: 32, K: 8}).dims == {BM: 32, K: 8, M: DYNAMIC}


def test_a_dynamic_dimension_can_be_bound() -> None:
    assert kernel.binding(None, subs={M: 64, K: 8}).dims == {BM: 16, M: 64, K: 8}
    assert kernel.binding(None, subs={M: 64}, dynamic=[K]).dims == {BM: 16, M: 64, K: DYNAMIC}


def test_entries_of_subs_may_use_each_other() -> None:
    assert kernel.merged({BM: M / 4, M: 2 * K, K: 32})[BM] == 16


def test_foreign_arrays() -> None:
    arguments = {"a": Foreign((7, 3), "torch.float16"), "b": Foreign((7, 6), "torch.float16"), "s": 1}
    assert kernel.binding(arguments).dims[K] == 3


def test_packed_arrays_count_elements() -> None:
    @wd.wave([])
    def packed(a: wd.Memory[M, K, wd.f4e2m1], b: wd.Memory[K, M, wd.i4]):
        wd.write(wd.read(a), a)

    arguments = {"a": np.zeros((6, 4), np.uint8), "b": np.zeros((8, 3), np.uint8)}
    assert packed.binding(arguments).dims == {M: 6, K: 8}


def test_zero_extents() -> None:
    arguments = {"a": np.zeros((0, 3), np.float16), "b": np.zeros((0, 6), np.float16), "s": 1}
    assert kernel.binding(arguments).extents == {M: 0}
