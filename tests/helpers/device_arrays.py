"""Arrays as packages for GPUs have them, over memory of the stand-in drivers: `torch`, `cupy`, DLPack alone, and
`__cuda_array_interface__` alone.

`module("torch")` and `module("cupy")` are modules to be put into `sys.modules`: as much of them as an array's
attributes and the current stream are. What the classes answer is what the packages document.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import struct
import types
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)

CODES = {"float32": (2, 32), "float16": (2, 16), "int32": (0, 32), "bfloat16": (4, 16)}


class _DLManaged(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


@dataclass
class Dlpack:
    """An array of memory at `pointer` that gives itself away by DLPack. Strides in elements."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any = "float32"
    index: int = 0
    device_type: int = 2
    keep: list[Any] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    """What `__dlpack__` was told of the consumer's stream."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, self.index

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        self.told.append(stream)
        rank = len(self.shape)
        numbers = (ctypes.c_int64 * (2 * rank))(*self.shape, *self.strides)
        at = ctypes.addressof(numbers)
        code, bits = CODES[str(self.dtype).rsplit(".", 1)[-1]]
        managed = _DLManaged(
            self.pointer, self.device_type, self.index, rank, code, bits, 1, at, at + 8 * rank, 0, None, None
        )
        self.keep[:] = [numbers, managed]
        return _capsule_new(ctypes.addressof(managed), b"dltensor", None)


@dataclass
class Versioned(Dlpack):
    """The same by DLPack 1.0, with flags: 1 is read-only."""

    flags: int = 0

    def __dlpack__(self, **options: Any) -> Any:
        super().__dlpack__(**options)
        numbers, managed = self.keep
        tensor = bytes(managed)[: _DLManaged.manager.offset]
        whole = ctypes.create_string_buffer(struct.pack("<IIQQQ", 1, 0, 0, 0, self.flags) + tensor)
        self.keep[:] = [numbers, whole]
        return _capsule_new(ctypes.addressof(whole), b"dltensor_versioned", None)


class Interface:
    """An array that gives itself away by `__cuda_array_interface__` alone, as Numba's. Strides in elements."""

    def __init__(self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any = "float32",
                 stream: int | None = None, readonly: bool = False):  # fmt: skip
        self.pointer, self.shape, self.dtype = pointer, shape, np.dtype(dtype)
        self.strides = tuple(s * self.dtype.itemsize for s in strides)
        self.stream, self.readonly = stream, readonly

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self.pointer, self.readonly),
            "stream": self.stream,
            "version": 3,
        }


@dataclass(frozen=True)
class Device:
    type: str
    index: int


@dataclass(frozen=True)
class TorchDtype:
    name: str

    def __str__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """As `torch.Tensor`: what tells where its elements lie."""

    def __init__(
        self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any = "float32",
        index: int = 0, requires_grad: bool = False, negative: bool = False, device_type: int = 2,
    ):  # fmt: skip
        self.shape, self._strides, self._pointer = shape, strides, pointer
        self.dtype = DTYPES[dtype]
        self.device = Device("cuda", index)
        self.requires_grad, self._negative, self._device_type = requires_grad, negative, device_type

    def data_ptr(self) -> int:
        return self._pointer

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def is_neg(self) -> bool:
        return self._negative

    def numel(self) -> int:
        return math.prod(self.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device_type, self.device.index

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        if self.requires_grad or self._negative:
            raise BufferError("Can't export tensors that require gradient or are negated")
        self._exported = Dlpack(self._pointer, self.shape, self._strides, self.dtype, self.device.index,
                                self._device_type)  # fmt: skip
        return self._exported.__dlpack__(stream=stream)


    def t(self) -> Tensor:
        return self._like(shape=self.shape[::-1], strides=self._strides[::-1])

    def _neg_view(self) -> Tensor:
        return self._like(negative=not self._negative)

    def _like(self, **changed: Any) -> Tensor:
        own = {"pointer": self._pointer, "shape": self.shape, "strides": self._strides, "dtype": self.dtype.name,
               "index": self.device.index, "requires_grad": self.requires_grad, "negative": self._negative}  # fmt: skip
        other = Tensor(**{**own, **changed})
        other.device = self.device
        return other

    def _facts(self) -> tuple[Any, ...]:
        return type(self), self.dtype, self.device, self.shape, self._strides, self.requires_grad, self._negative


class TensorGuards:
    """As `torch._C._dynamo.guards.TensorGuards`: whether tensors are what those were that it was made of."""

    made: ClassVar[list[TensorGuards]] = []

    def __init__(self, *tensors: Tensor, dynamic_dims_sizes: Any, dynamic_dims_strides: Any):
        assert [list(x.shape) for x in tensors] == dynamic_dims_sizes
        assert [list(x.stride()) for x in tensors] == dynamic_dims_strides
        self._facts = [x._facts() for x in tensors]
        self.told = 0
        TensorGuards.made.append(self)

    def check(self, *tensors: Tensor) -> bool:
        same = len(set(map(id, tensors))) == len(tensors) and [x._facts() for x in tensors] == self._facts
        self.told += same
        return same


def _empty(shape: tuple[int, ...], dtype: Any = None, device: str = "cpu", requires_grad: bool = False) -> Tensor:
    made = Tensor(0, shape, row_major(shape), dtype.name if dtype else "float32", requires_grad=requires_grad)
    made.device = Device(device, -1)
    return made


class ndarray(Dlpack):
    """As `cupy.ndarray`; strides in bytes."""

    def __init__(self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any = "float32",
                 index: int = 0):  # fmt: skip
        super().__init__(pointer, shape, strides, np.dtype(dtype), index)
        self._elements = strides
        self.strides = tuple(s * self.dtype.itemsize for s in strides)
        self.data = types.SimpleNamespace(ptr=pointer, device_id=index)
        self.device = types.SimpleNamespace(id=index)

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        exported = Dlpack(self.pointer, self.shape, self._elements, self.dtype, self.index)
        self.keep.append(exported)
        return exported.__dlpack__(stream=stream)


DTYPES = {name: TorchDtype(name) for name in CODES}
STREAMS: dict[tuple[str, int], int] = {}
"""(package, device) → its current stream; 0 where there is none."""


def module(name: str) -> Any:
    """The module: its array class and its current stream, which is `STREAMS[name, device]`."""
    made = types.ModuleType(name)
    if name == "torch":
        Tensor.__module__ = "torch"
        made.Tensor = Tensor
        guards = types.SimpleNamespace(TensorGuards=TensorGuards)
        made._C = types.SimpleNamespace(
            _cuda_getCurrentRawStream=lambda index: STREAMS.get((name, index), 0),
            _dynamo=types.SimpleNamespace(guards=guards),
        )
        made.float32, made.float16, made.version = DTYPES["float32"], DTYPES["float16"], types.SimpleNamespace(hip=None)
        made.empty, made.enable_grad, made.no_grad = _empty, contextlib.nullcontext, contextlib.nullcontext
        made.inference_mode = contextlib.nullcontext
    else:
        ndarray.__module__ = "cupy"
        made.ndarray = ndarray
        made.cuda = types.SimpleNamespace(
            get_current_stream=lambda index=0: types.SimpleNamespace(ptr=STREAMS.get((name, index), 0))
        )
    return made


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))
