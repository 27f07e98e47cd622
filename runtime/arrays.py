"""Array arguments: what lies where in memory, whoever made it.

In comes any object that holds an array: NumPy's, or anything with DLPack or `__cuda_array_interface__` (torch, CuPy,
JAX, Numba), whose packages are never imported. Out comes an `ArrayRef`: pointer, extents, byte strides, element type,
place.
Everything that can be wrong with an argument before a launch is found here and named: dtype, rank, device, strides,
read-only outputs, outputs that overlap themselves or other arguments.

Invariant: nothing here reads or writes an element; a reference keeps its array's memory alive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.array_info import EMPTY, MASKED, is_masked
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime import dlpack, streams
from wavedsl.runtime.dlpack import a_class, row_major


@dataclass(frozen=True)
class ArrayRef:
    """Where one array lies. `strides` in bytes; `storage` is the NumPy dtype of its elements.

    `place` is `cpu`, `cuda` or `hip`, `index` the device's number there. `stream` is the producer's stream if it named
    one. `keep` is what keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: np.dtype
    place: str
    index: int
    readonly: bool
    stream: int | None = None
    keep: Any = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def extent_bytes(self) -> tuple[int, int]:
        """First byte and one past the last byte of any element; empty (pointer twice) without elements."""
        if self.size == 0:
            return self.pointer, self.pointer
        low = sum((n - 1) * s for n, s in zip(self.shape, self.strides) if s < 0)
        high = sum((n - 1) * s for n, s in zip(self.shape, self.strides) if s > 0)
        return self.pointer + low, self.pointer + high + self.storage.itemsize

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array over the same memory. Only for arrays in host memory."""
        if isinstance(self.keep, np.ndarray):
            return self.keep
        if self.place != "cpu":
            raise LaunchError(f"an array on {self.place}:{self.index} has no host memory")
        view = np.asarray(_Interface(self, f"|V{self.storage.itemsize}"))
        if self.readonly:
            view.flags.writeable = False
        return view.view(self.storage)


# ------------------------------------------------------------------------------------------------- where an array lies


def describe(value: Any, name: str = "array") -> ArrayRef:
    """The reference of `value`, which is argument `name`. LaunchError if it is no array.

    NumPy arrays first, then DLPack (it knows bfloat16, fp8 and the vendor), then `__cuda_array_interface__`.
    """
    if isinstance(value, np.ndarray):
        if is_masked(value):
            raise LaunchError(f"argument `{name}` is a masked array", hint=MASKED)
        interface = value.__array_interface__
        pointer, readonly = interface["data"]
        return ArrayRef(pointer, value.shape, value.strides, value.dtype, "cpu", 0, readonly, None, value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, name)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_cuda_interface(value, name)
    raise LaunchError(
        f"argument `{name}` is {a_class(type(value))}, not an array",
        hint="pass a NumPy array, or an object with DLPack or __cuda_array_interface__ (torch, CuPy, JAX, Numba)",
    )


def is_array(value: Any) -> bool:
    """Whether `describe` takes `value` for an array."""
    return (
        isinstance(value, np.ndarray)
        or (hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"))
        or hasattr(value, "__cuda_array_interface__")
    )


def _from_dlpack(value: Any, name: str) -> ArrayRef:
    """By DLPack. Arrays of packages that have a current stream are used there, others on the default stream."""
    ordered = bool(streams.package_of(type(value)))
    pointer, capsule, (shape, strides, storage, place, index, readonly) = dlpack.read(value, name, ordered)
    stream = _current_stream(value, place, index)
    return ArrayRef(pointer, shape, strides, storage, place, index, readonly, stream, (value, capsule))


def _from_cuda_interface(value: Any, name: str) -> ArrayRef:
    """By `__cuda_array_interface__`, versions 2 and 3."""
    try:
        interface = value.__cuda_array_interface__
    except Exception as error:
        raise LaunchError(f"argument `{name}`: {a_class(type(value))} does not export its memory: {error}") from error
    if interface.get("mask") is not None:
        raise LaunchError(f"argument `{name}` is a masked array", hint=MASKED)
    storage = np.dtype(interface["typestr"])
    if not storage.isnative:
        raise LaunchError(f"argument `{name}` has bytes in foreign order", hint="convert it to native byte order")
    shape = tuple(int(n) for n in interface["shape"])
    strides = interface.get("strides")
    strides = row_major(shape, storage.itemsize) if strides is None else tuple(int(s) for s in strides)
    pointer, readonly = interface["data"]
    index = device_number(value, int(pointer))
    stream = interface.get("stream")
    if stream is None:
        stream = _current_stream(value, "cuda", index)
    return ArrayRef(int(pointer), shape, strides, storage, "cuda", index, bool(readonly), stream, value)


def device_number(value: Any, pointer: int) -> int:
    """Where an array with `__cuda_array_interface__` lies: torch and CuPy have `.device` (an object with `.index` or
    `.id`), for others, such as Numba's, the driver is asked."""
    device = getattr(value, "device", None)
    index = getattr(device, "index", None)
    if index is None:
        index = getattr(device, "id", None)
    if index is None:
        from wavedsl.runtime import cuda

        return cuda.ordinal_of(pointer)
    return int(index)


def _current_stream(value: Any, place: str, index: int) -> int | None:
    """The current stream of the package that `value` comes from, if it is one that has such a thing."""
    current = None if place == "cpu" else streams.current_of(type(value), index)
    return None if current is None else current()


# ------------------------------------------------------------------------------------------- shapes, strides, signature


def is_contiguous(ref: ArrayRef) -> bool:
    """Whether the elements fill their bytes in row-major order (strides of extents below 2 do not matter)."""
    expected = row_major(ref.shape, ref.storage.itemsize)
    return ref.size == 0 or all(n < 2 or s == e for n, s, e in zip(ref.shape, ref.strides, expected))


def _in_words(storage: np.dtype) -> str:
    return storage.name if storage.isnative else f"{storage.name} in the other byte order ({storage.str})"


def check(ref: ArrayRef, name: str, dtype: DType, rank: int, location: Loc | None = None) -> None:
    """That `ref` can be argument `name` declared with `dtype` and `rank` dimensions. LaunchError names what differs."""
    flags = dtype is dt.u8 and ref.storage == np.bool_  # arrays of i1 are bytes
    if ref.storage != dtype.storage and not flags:
        packed = (
            f" ({dtype.name} is passed packed in bytes, lowest element in the lowest bits)" if dtype.bits < 8 else ""
        )
        raise LaunchError(
            f"argument `{name}` has dtype {_in_words(ref.storage)}, but the kernel declares {dtype.name}",
            location,
            f"pass an array of {dtype.storage.name}{packed}",
        )
    if len(ref.shape) != rank:
        raise LaunchError(
            f"argument `{name}` has {len(ref.shape)} dimensions {ref.shape}, but the kernel declares {rank}",
            location,
            f"pass an array with {rank} dimensions",
        )
    if rank and dtype.bits < 8 and dtype.kind != "bool":
        if ref.shape[-1] > 1 and ref.strides[-1] != 1 and 0 not in ref.shape:
            raise LaunchError(
                f"argument `{name}` holds packed {dtype.name} whose bytes lie {ref.strides[-1]} apart",
                location,
                "the last dimension of a packed array must be contiguous",
            )
        if ref.shape[-1] * 8 % dtype.bits:
            raise LaunchError(
                f"argument `{name}` has rows of {ref.shape[-1]} bytes, which hold no whole number of {dtype.name}",
                location,
                f"the last extent must be a multiple of {math.lcm(8, dtype.bits) // 8} bytes",
            )
    for axis, (extent, stride) in enumerate(zip(ref.shape, ref.strides)):
        if extent > 1 and stride % ref.storage.itemsize:
            raise LaunchError(
                f"argument `{name}` has a stride of {stride} bytes along dimension {axis}, "
                f"not a whole number of its {ref.storage.itemsize}-byte elements",
                location,
                "pass a copy, such as x.copy() makes",
            )
        if extent > 1 and stride < 0:
            raise LaunchError(
                f"argument `{name}` runs backwards along dimension {axis} (stride {stride} bytes)",
                location,
                "pass a copy, such as numpy.ascontiguousarray makes",
            )
    if not ref.pointer and ref.size:
        raise LaunchError(
            f"argument `{name}` has {ref.size} elements, but no memory: its address is 0",
            location,
            "pass an array with memory: this one's was freed, or never made",
        )
    if ref.pointer % ref.storage.itemsize and ref.size:
        raise LaunchError(
            f"argument `{name}` lies at {ref.pointer:#x}, not aligned to its {ref.storage.itemsize}-byte elements",
            location,
            "pass a copy, such as x.copy() makes",
        )


def extents(ref: ArrayRef, dtype: DType) -> tuple[int, ...]:
    """Extents in elements of `dtype` (the last one of a packed array counts several per byte)."""
    if dtype.bits >= 8 or dtype.kind == "bool" or not ref.shape:
        return ref.shape
    return (*ref.shape[:-1], ref.shape[-1] * 8 // dtype.bits)


def byte_strides(ref: ArrayRef) -> tuple[int, ...]:
    """Strides in bytes. A dimension of extent below 2 has the stride of a contiguous array, whatever the object says:
    its elements are the same, and kernels specialise less. So have all dimensions of an array without elements, of
    which NumPy says 0: there rows of none count as `EMPTY` elements, which no text for longer rows refuses."""
    natural = row_major(tuple(n or EMPTY for n in ref.shape), ref.storage.itemsize)
    return natural if 0 in ref.shape else tuple(e if n < 2 else s for n, s, e in zip(ref.shape, ref.strides, natural))


def element_strides(ref: ArrayRef, dtype: DType) -> tuple[int, ...]:
    """`byte_strides` in elements of `dtype`."""
    strides = byte_strides(ref)
    if dtype.bits >= 8 or dtype.kind == "bool":
        return tuple(s // ref.storage.itemsize for s in strides)
    return (*(s * 8 // dtype.bits for s in strides[:-1]), 1) if strides else ()


def divisibility(n: int) -> int:
    """The largest of 16, 8, 4, 2, 1 that divides `n`."""
    return 16 if n % 16 == 0 else n & -n


def signature(ref: ArrayRef, dtype: DType) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """What a kernel may rely on: extents and strides in elements, and how far the pointer is aligned (bytes)."""
    return extents(ref, dtype), element_strides(ref, dtype), divisibility(ref.pointer)


# ------------------------------------------------------------------------------------------------ overlap, one device


class _Interface:
    """An array of `typestr` at an address, by NumPy's array interface; making it touches no memory."""

    def __init__(self, ref: ArrayRef, typestr: str):
        self.keep = ref.keep
        self.__array_interface__ = {
            "version": 3,
            "shape": ref.shape,
            "strides": ref.strides,
            "typestr": typestr,
            "data": (ref.pointer, False),
        }


_OVERLAP_WORK = 10_000
"""Effort of the exact overlap test before two strided arrays with common bounds are taken to overlap."""


def overlap(a: ArrayRef, b: ArrayRef) -> bool:
    """Whether an element of `a` and one of `b` share a byte. Exact, but for strided arrays whose comparison would take
    long, which count as overlapping."""
    if (a.place, a.index) != (b.place, b.index):
        return False
    (a_low, a_high), (b_low, b_high) = a.extent_bytes(), b.extent_bytes()
    if a_high <= b_low or b_high <= a_low or a_low == a_high or b_low == b_high:
        return False
    if is_contiguous(a) and is_contiguous(b):
        return True
    left, right = (np.asarray(_Interface(ref, f"|V{ref.storage.itemsize}")) for ref in (a, b))
    solve: Any = np.shares_memory  # NumPy's stubs know only its two special values of max_work
    try:
        return bool(solve(left, right, max_work=_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(ref: ArrayRef) -> bool:
    """Whether two elements share a byte: a broadcast (stride 0) or a sliding window."""
    if ref.size < 2:
        return False
    reach = ref.storage.itemsize
    nested = True
    for stride, extent in sorted((abs(s), n) for n, s in zip(ref.shape, ref.strides) if n > 1):
        nested &= stride >= reach
        reach += (extent - 1) * stride
    if nested:
        return False
    low, high = ref.extent_bytes()
    if ref.size * ref.storage.itemsize > high - low:  # more bytes of elements than bytes
        return True
    offsets = np.zeros((), np.int64)
    for extent, stride in zip(ref.shape, ref.strides):
        offsets = np.add.outer(offsets, np.arange(extent, dtype=np.int64) * stride)
    ordered = np.sort(offsets, axis=None)
    return bool((np.diff(ordered) < ref.storage.itemsize).any())


def check_overlap(arguments: Sequence[tuple[str, ArrayRef, bool]], location: Loc | None = None) -> None:
    """That no written argument overlaps itself or another one, and that each can be written.

    `arguments` are (name, reference, written). LaunchError names both arguments.
    """
    for i, (name, ref, written) in enumerate(arguments):
        if not written:
            continue
        if ref.readonly:
            raise LaunchError(
                f"argument `{name}` is written by the kernel, but is read-only",
                location,
                "pass an array that can be written",
                name,
            )
        if overlaps_itself(ref):
            raise LaunchError(
                f"argument `{name}` is written by the kernel, but several of its elements share memory "
                f"(shape {ref.shape}, strides {ref.strides} bytes)",
                location,
                "pass an array with memory of its own for every element",
                name,
            )
        for j, (other, other_ref, other_written) in enumerate(arguments):
            if i == j or (other_written and j < i) or not overlap(ref, other_ref):
                continue
            verb = "written" if other_written else "read"
            raise LaunchError(
                f"argument `{name}` is written by the kernel and overlaps `{other}`, which is {verb}",
                location,
                f"pass a copy of `{other}`, or another array for `{name}`; a kernel that works in place reads and "
                "writes one argument",
                name,
            )


def common_place(arguments: Sequence[tuple[str, ArrayRef]]) -> tuple[str, int]:
    """(place, index) that all arguments share; `("cpu", 0)` without arguments. LaunchError names two that differ."""
    if not arguments:
        return "cpu", 0
    first_name, first = arguments[0]
    for name, ref in arguments[1:]:
        if (ref.place, ref.index) != (first.place, first.index):
            raise LaunchError(
                f"argument `{name}` lies on {_where(ref)}, but `{first_name}` on {_where(first)}",
                hint="put all arguments of a call on one device",
                argument=name,
            )
    return first.place, first.index


def _where(ref: ArrayRef) -> str:
    return "the host" if ref.place == "cpu" else f"{ref.place}:{ref.index}"


# ------------------------------------------------------------------------------------------------------------- scalars


def pack_scalar(value: Any, name: str, dtype: DType, size: int, location: Loc | None = None) -> bytes:
    """The bytes of scalar argument `name`, `size` of them (zeros above a narrower number). LaunchError if `value` is no
    number or does not fit an integer `dtype`."""
    if isinstance(value, (bool, np.bool_)):
        value = int(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, (int, float, np.number)) and type(value).__module__ != "ml_dtypes":
        raise LaunchError(
            f"argument `{name}` is {a_class(type(value))}, but the kernel declares a scalar {dtype.name}", location
        )
    if dtype.is_int or dtype.kind == "bool":
        low, high = (
            (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
        )
        if not isinstance(value, (int, np.integer)) or not low <= int(value) <= high:
            raise LaunchError(
                f"argument `{name}` is {value!r}, but the kernel declares a scalar {dtype.name}",
                location,
                f"pass an integer from {low} to {high}",
            )
        return int(value).to_bytes(size, "little", signed=dtype.kind == "int")
    number, finite = value, True
    if not isinstance(value, int):
        finite = np.isfinite(float(value))
    elif value.bit_length() > 63:  # wider than NumPy's integers
        number = float(value) if abs(value) < 1 << 1023 else math.inf
    with np.errstate(over="ignore"):
        packed = np.array(number).astype(dtype.storage)
    if finite and not np.isfinite(packed.astype(np.float64)):
        raise LaunchError(
            f"argument `{name}` is {value!r}, but the kernel declares a scalar {dtype.name}",
            location,
            "it is beyond the largest number of that type",
        )
    return packed.tobytes().ljust(size, b"\0")


def covering_bytes(ref: ArrayRef) -> np.ndarray:
    """The bytes from an array's first to its last, as a flat view; those between its elements included."""
    low, high = ref.extent_bytes()
    return ArrayRef(low, (high - low,), (1,), np.dtype(np.uint8), "cpu", 0, True, None, (ref.keep,)).numpy()


def view(ref: ArrayRef, data: np.ndarray) -> np.ndarray:
    """The array's elements in `data`, a copy of its covering bytes."""
    return np.ndarray(ref.shape, ref.storage, data, ref.pointer - ref.extent_bytes()[0], ref.strides)
