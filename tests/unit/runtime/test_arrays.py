"""References to arrays: the same memory is described the same way however it is exported; overlap is exact."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wavedsl.ir import dtypes
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime import arrays


class CudaArray:
    """An array on a GPU as `__cuda_array_interface__` shows it; no memory behind it."""

    def __init__(self, shape, typestr="<f4", pointer=0x7F00_0000_0000, strides=None, readonly=False, **more):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (pointer, readonly),
            "strides": strides,
            "version": 3,
            **more,
        }


class OnlyDlpack:
    """What a package that knows DLPack shows of a NumPy array."""

    def __init__(self, array, versioned=True):
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        if not self.versioned and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_dlpack_describes_the_same_memory(dtype, versioned):
    array = np.zeros((6, 10), dtype)[1::2, 2:9]
    direct, exported = arrays.describe(array), arrays.describe(OnlyDlpack(array, versioned))
    assert exported == direct
    view = exported.numpy()
    assert view.dtype == array.dtype and np.shares_memory(view, array)
    view[1, 3] = 1
    assert array[1, 3] == 1


def test_dlpack_read_only():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    try:
        array.__dlpack__(max_version=(1, 0))
    except TypeError:
        pytest.skip("NumPy before 2.1 exports no array that is read-only")
    ref = arrays.describe(OnlyDlpack(array))
    assert ref.readonly and not ref.numpy().flags.writeable


def test_a_reference_keeps_its_memory_alive():
    ref = arrays.describe(OnlyDlpack(np.arange(1000, dtype=np.int64)))
    filler = [np.full(1000, -1, np.int64) for _ in range(8)]
    assert (ref.numpy() == np.arange(1000)).all() and filler


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3, 5, dtype=torch.bfloat16).t()
    ref = arrays.describe(tensor)
    assert (ref.shape, ref.strides, ref.storage) == ((5, 3), (2, 10), np.dtype(ml_dtypes.bfloat16))
    assert ref.pointer == tensor.data_ptr()


def test_cuda_array_interface():
    ref = arrays.describe(CudaArray((4, 6), "<f2", 4096, stream=7))
    assert (ref.pointer, ref.shape, ref.strides, ref.place, ref.index) == (4096, (4, 6), (12, 2), "cuda", 0)
    assert ref.storage == np.float16 and ref.stream == 7 and not ref.readonly
    assert arrays.describe(CudaArray((4,), strides=(8,), readonly=True)).strides == (8,)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL.values() if d.bits >= 8])
def test_every_dtype_matches_its_own_arrays(dtype):
    array = np.zeros((2, 3), dtype.storage)
    ref = arrays.describe(array)
    arrays.check(ref, "a", dtype, 2)
    assert arrays.extents(ref, dtype) == (2, 3)
    assert arrays.element_strides(ref, dtype) == (3, 1)


def test_packed_elements_are_counted_in_elements():
    ref = arrays.describe(np.zeros((8, 6), np.uint8)[::2])
    for dtype, per_row in ((dtypes.f4e2m1, 12), (dtypes.i4, 12), (dtypes.f6e2m3, 8)):
        arrays.check(ref, "a", dtype, 2)
        assert arrays.extents(ref, dtype) == (4, per_row)
        assert arrays.element_strides(ref, dtype) == (2 * per_row, 1)


def test_strides_of_extent_one_do_not_specialise():
    one_row = np.zeros((8, 64), np.float16)[:1, :32]
    assert arrays.element_strides(arrays.describe(one_row), dtypes.f16) == (32, 1)


def test_divisibility():
    assert [arrays.divisibility(n) for n in (0, 1, 2, 12, 24, 48, 4096, 4100, 4098)] == [16, 1, 2, 4, 8, 16, 16, 4, 2]


def views(memory: np.ndarray):
    """Strategy: strided float32 views of `memory` (1-D, int8), through an offset, two extents and two strides."""

    def make(offset, shape, strides):
        last = sum((n - 1) * s for n, s in zip(shape, strides))
        if offset + last + 4 > memory.size:
            return None
        return np.ndarray(shape, np.float32, memory, offset, strides)

    small = st.integers(1, 6)
    return st.builds(
        make,
        st.integers(0, 64),
        st.tuples(small, small),
        st.tuples(st.integers(0, 12), st.integers(0, 24)),
    ).filter(lambda view: view is not None)


MEMORY = np.zeros(256, np.int8)


def bytes_of(view: np.ndarray) -> list[int]:
    base = MEMORY.__array_interface__["data"][0]
    start = view.__array_interface__["data"][0] - base
    return [
        start + sum(i * s for i, s in zip(index, view.strides)) + b
        for index in itertools.product(*(range(n) for n in view.shape))
        for b in range(view.itemsize)
    ]


@settings(max_examples=300)
@given(views(MEMORY), views(MEMORY))
def test_overlap_is_exact_on_small_arrays(a, b):
    assert arrays.overlap(arrays.describe(a), arrays.describe(b)) == bool(set(bytes_of(a)) & set(bytes_of(b)))


@settings(max_examples=300)
@given(views(MEMORY))
def test_overlap_with_itself_is_exact(a):
    touched = bytes_of(a)
    assert arrays.overlaps_itself(arrays.describe(a)) == (len(set(touched)) < len(touched))


def test_overlap_needs_the_same_device_and_works_on_devices():
    a = arrays.describe(CudaArray((64, 64), strides=(512, 4)))
    beside = arrays.describe(CudaArray((64, 64), strides=(512, 4), pointer=0x7F00_0000_0000 + 256))
    across = arrays.describe(CudaArray((64, 64), strides=(512, 4), pointer=0x7F00_0000_0000 + 252))
    host = arrays.describe(np.zeros((64, 64), np.float32))
    assert not arrays.overlap(a, beside) and arrays.overlap(a, across) and not arrays.overlap(a, host)
    assert not arrays.overlap(a, arrays.describe(CudaArray((0, 64))))


@pytest.mark.parametrize(
    ("value", "dtype", "size", "expected"),
    [
        (3, dtypes.i32, 4, b"\x03\0\0\0"),
        (-1, dtypes.i64, 8, b"\xff" * 8),
        (np.uint8(255), dtypes.u8, 4, b"\xff\0\0\0"),
        (1.5, dtypes.f32, 4, np.float32(1.5).tobytes()),
        (2, dtypes.f64, 8, np.float64(2).tobytes()),
        (1.0, dtypes.bf16, 4, b"\x80\x3f\0\0"),
        (ml_dtypes.bfloat16(1.0), dtypes.f32, 4, np.float32(1).tobytes()),
        (np.array(0.5), dtypes.f16, 2, np.float16(0.5).tobytes()),
        (True, dtypes.i1, 4, b"\x01\0\0\0"),
        (-(1 << 70), dtypes.bf16, 4, b"\x80\xe2\0\0"),
        (math.inf, dtypes.f16, 2, b"\0\x7c"),
    ],
)
def test_scalars(value, dtype, size, expected):
    assert arrays.pack_scalar(value, "s", dtype, size) == expected


@pytest.mark.parametrize(
    ("value", "dtype"), [(1 << 2000, dtypes.bf16), (-(1 << 1024), dtypes.f64), (65520, dtypes.f16)]
)
def test_numbers_beyond_a_dtype(value, dtype):
    with pytest.raises(LaunchError, match=r"argument `s` is -?[0-9]+, but the kernel declares a scalar"):
        arrays.pack_scalar(value, "s", dtype, 8)
