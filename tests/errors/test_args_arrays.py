"""What a user reads who passes a wrong array: the argument's name, what is wrong, what would be right."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.loc import Loc
from wavedsl.runtime import arrays


def refusal(call, *parts: str) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)
    return caught.value


def check(array, dtype=dtypes.f16, rank=2):
    return lambda: arrays.check(arrays.describe(array, "weights"), "weights", dtype, rank)


def test_wrong_dtype():
    refusal(
        check(np.zeros((2, 2), np.float32)),
        "argument `weights` has dtype float32, but the kernel declares f16",
        "help: pass an array of float16",
    )


def test_wrong_dtype_of_packed_elements():
    refusal(check(np.zeros((2, 2), np.int8), dtypes.f4e2m1), "declares f4e2m1", "array of uint8", "passed packed")


def test_wrong_rank():
    refusal(
        check(np.zeros(4, np.float16)), "argument `weights` has 1 dimensions (4,)", "declares 2", "with 2 dimensions"
    )


def test_masked():
    refusal(
        check(np.ma.masked_array(np.zeros((2, 2), np.float16), mask=True)),
        "argument `weights` is a masked array",
        "help: kernels see no mask: pass x.filled(…), or the data and the mask as two arguments",
    )


def test_the_users_line_is_shown():
    here = Loc(__file__, 1, 0, 3)
    with pytest.raises(LaunchError) as caught:
        arrays.check(arrays.describe(np.zeros(4)), "weights", dtypes.f16, 1, here)
    assert f"{__file__}:1" in str(caught.value) and "^^^" in str(caught.value)


def test_stride_of_a_fraction_of_an_element():
    pair = np.zeros((4, 4), np.dtype([("value", np.float16), ("flag", np.int8)]))["value"]
    refusal(check(pair), "a stride of 3 bytes along dimension 1", "2-byte elements")


def test_backwards():
    refusal(check(np.zeros((4, 4), np.float16)[::-1]), "runs backwards along dimension 0", "ascontiguousarray")


def test_misaligned_pointer():
    raw = np.zeros(33, np.int8)
    shifted = np.ndarray((4, 4), np.float16, raw, 1)
    refusal(check(shifted), "not aligned to its 2-byte elements", ".copy()")  # ascontiguousarray gives it back as it is


def test_packed_rows_must_be_contiguous_and_whole():
    refusal(check(np.zeros((4, 8), np.uint8)[:, ::2], dtypes.i4), "bytes lie 2 apart", "must be contiguous")
    refusal(check(np.zeros((4, 7), np.uint8), dtypes.f6e2m3), "rows of 7 bytes", "multiple of 3 bytes")


def test_packed_rows_without_elements_lie_anywhere():
    """NumPy gives arrays without elements strides of 0."""
    for empty in (np.zeros((0, 8), np.uint8), np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (0, 8), (0, 0))):
        check(empty, dtypes.i4)()


def test_not_an_array():
    refusal(lambda: arrays.describe([1, 2], "weights"), "argument `weights` is a list, not an array", "NumPy array")


def test_an_export_that_is_refused():
    class Refusing:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **options):
            raise BufferError("it requires a gradient")

    refusal(lambda: arrays.describe(Refusing(), "weights"), "argument `weights`", "it requires a gradient")


def test_a_device_nobody_knows():
    class Elsewhere:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **options):
            return None

    refusal(lambda: arrays.describe(Elsewhere(), "weights"), "argument `weights`", "exports no DLPack tensor")


def test_complex_numbers_are_not_stored():
    class Complex:
        array = np.zeros(4, np.complex64)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

    refusal(lambda: arrays.describe(Complex(), "weights"), "argument `weights`", "code 5, 64 bits")


def test_a_masked_array():
    class Masked:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": (4,),
            "typestr": "<f4",
            "data": (4096, False),
            "version": 3,
            "mask": object(),
        }

    refusal(lambda: arrays.describe(Masked(), "weights"), "argument `weights` is a masked array")


def written(**named: np.ndarray):
    """check_overlap over the arguments; those whose name begins with `out` are written."""
    arguments = [(name, arrays.describe(array), name.startswith("out")) for name, array in named.items()]
    return lambda: arrays.check_overlap(arguments)


def test_output_overlaps_input():
    memory = np.zeros((8, 8), np.float32)
    refusal(
        written(a=memory[:5], out=memory[4:]),
        "argument `out` is written by the kernel and overlaps `a`, which is read",
        "a copy of `a`",
    )
    written(a=memory[:4], out=memory[4:])()
    written(a=memory[:, :4], out=memory[:, 4:])()
    written(a=memory, b=memory)()


def test_two_outputs_overlap():
    memory = np.zeros((8, 8), np.float32)
    refusal(written(out=memory, out2=memory[0]), "`out` is written by the kernel and overlaps `out2`, which is written")


def test_output_overlaps_itself():
    shared = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (4, 4), (0, 4))
    refusal(written(out=shared), "several of its elements share memory", "strides (0, 4) bytes")


def test_read_only_output():
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    refusal(written(out=frozen), "argument `out` is written by the kernel, but is read-only")


def test_arguments_on_two_devices():
    class OnGpu:
        __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}  # noqa: RUF012

    on_gpu, on_host = arrays.describe(OnGpu()), arrays.describe(np.zeros(4))
    refusal(
        lambda: arrays.common_place([("a", on_gpu), ("b", on_host)]),
        "argument `b` lies on the host, but `a` on cuda:0",
        "one device",
    )
    assert arrays.common_place([("a", on_gpu), ("b", on_gpu)]) == ("cuda", 0)


@pytest.mark.parametrize(
    ("value", "dtype", "parts"),
    [
        ("1", dtypes.f32, ("argument `scale` is a str", "scalar f32")),
        (1.5, dtypes.i32, ("argument `scale` is 1.5", "integer from -2147483648 to 2147483647")),
        (256, dtypes.u8, ("argument `scale` is 256", "from 0 to 255")),
        (-1, dtypes.u32, ("argument `scale` is -1", "from 0 to 4294967295")),
        (1 << 31, dtypes.i32, ("argument `scale` is 2147483648", "scalar i32")),
        (np.zeros(1), dtypes.f32, ("argument `scale` is a numpy.ndarray",)),
    ],
)
def test_scalars_that_do_not_fit(value, dtype, parts):
    refusal(lambda: arrays.pack_scalar(value, "scale", dtype, 4), *parts)
