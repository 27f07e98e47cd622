"""DLPack: where an array lies, read out of the capsule that its `__dlpack__` makes.

In comes an array of any package, out come address, extents, byte strides, dtype, place. `read` is the long way: it
checks everything and says what is wrong. `first`, `SHAPE` and `KEY` are the short way's: Python text that reads only
what tells calls apart, as the raw words of the header. Capsules are never consumed: their own destructors free them
with the last reference, and until then the producer keeps the memory.

The header (`dlpack.h`): `DLTensor` is data, device, rank and dtype, extents, strides, byte offset; it comes first in
`DLManagedTensor`, behind version, two pointers and flags in `DLManagedTensorVersioned`.

The C table that some packages publish for the same (`__dlpack_c_exchange_api__`) is not used: it knows neither
read-only arrays nor what `__dlpack__` refuses (torch: a gradient that is asked for, a lazy negation).
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.ir.errors import LaunchError

PLACES = {1: "cpu", 3: "cpu", 11: "cpu", 2: "cuda", 13: "cuda", 10: "hip"}
"""DLDeviceType of the DLPack header: kDLCPU, kDLCUDAHost, kDLROCMHost; kDLCUDA, kDLCUDAManaged; kDLROCM."""
NO_STREAM = -1
"""What a producer is told that has a current stream of its own, on which the launch goes."""
DEFAULT_STREAM = {"cuda": 1, "hip": 0}
"""How the array API spells the default stream to a producer, which makes it wait for what it has under way."""
VERSION = (1, 0)
"""The newest DLPack whose header is known here."""


_DTYPES: dict[tuple[int, int], np.dtype] = {
    **{(0, bits): np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(1, bits): np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{(2, bits): np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (6, 8): np.dtype(bool),
    (10, 8): np.dtype(ml_dtypes.float8_e4m3fn),
    (11, 8): np.dtype(ml_dtypes.float8_e4m3fnuz),
    (12, 8): np.dtype(ml_dtypes.float8_e5m2),
    (13, 8): np.dtype(ml_dtypes.float8_e5m2fnuz),
    (14, 8): np.dtype(ml_dtypes.float8_e8m0fnu),
}
"""(DLDataTypeCode, bits) of the DLPack header → storage."""

_HEADER = struct.Struct("QiiiBBHQQQ")
"""DLTensor: data, device type and number, rank, dtype code, bits and lanes, extents, strides, byte offset."""
_FLAGS, _BEHIND = 24, 32
"""Where `DLManagedTensorVersioned` has its flags and its DLTensor."""
_READ_ONLY = 1
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
"""Names of capsules that nobody has consumed."""

capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype = ctypes.c_void_p
capsule_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)

_ORIGIN = 1
memory: Any = (ctypes.c_char * (1 << 62)).from_address(_ORIGIN)
"""All memory from `_ORIGIN` on, as `struct` reads it, in a third of the time of a foreign call."""
def read(value: Any, name: str, ordered: bool) -> tuple[int, Any, tuple[Any, ...]]:
    """(pointer, capsule, (shape, byte strides, storage, place, index, readonly)) of argument `name`.

    `ordered`: the launch goes to the producer's current stream. LaunchError where it exports nothing that is known.
    """
    capsule = export(value, name, ordered)[0]
    readonly = False
    if _is_valid(capsule, VERSIONED):
        at = capsule_pointer(capsule, VERSIONED)
        readonly = bool(ctypes.c_uint64.from_address(at + _FLAGS).value & _READ_ONLY)
        at += _BEHIND
    elif _is_valid(capsule, PLAIN):
        at = capsule_pointer(capsule, PLAIN)
    else:
        raise LaunchError(f"argument `{name}`: {a_class(type(value))} exports no DLPack tensor")
    data, device, index, rank, code, bits, lanes, extents_at, strides_at, offset = _HEADER.unpack(
        ctypes.string_at(at, _HEADER.size)
    )
    place = PLACES.get(device)
    if place is None:
        raise LaunchError(
            f"argument `{name}` lies on a device of DLPack type {device}",
            hint="pass an array in host memory, or on a CUDA or HIP device",
        )
    storage = _DTYPES.get((code, bits)) if lanes == 1 else None
    if storage is None:
        raise LaunchError(
            f"argument `{name}` has elements of DLPack type code {code}, {bits} bits, "
            f"{lanes} lanes, which no dtype of this package is stored as",
            hint="sub-byte elements are passed packed, as uint8",
        )
    numbers = struct.Struct(f"{rank}q")
    shape = numbers.unpack(ctypes.string_at(extents_at, numbers.size)) if rank else ()
    size = storage.itemsize
    if strides_at and rank:
        strides = tuple([n * size for n in numbers.unpack(ctypes.string_at(strides_at, numbers.size))])
    else:
        strides = row_major(shape, size)
    return data + offset, capsule, (shape, strides, storage, place, index, readonly)


def export(value: Any, name: str, ordered: bool) -> tuple[Any, dict[str, Any]]:
    """A capsule of argument `name`, and the keywords by which its producer gives one."""
    place = PLACES.get(int(value.__dlpack_device__()[0]))
    stream = NO_STREAM if ordered else DEFAULT_STREAM.get(place or "", NO_STREAM)
    options: dict[str, Any] = {} if place in (None, "cpu") else {"stream": stream}
    newest = {**options, "max_version": VERSION}
    try:
        try:
            return value.__dlpack__(**newest), newest
        except TypeError:  # a producer from before DLPack 1.0 does not know max_version
            return value.__dlpack__(**options), options
    except Exception as error:
        # Producers refuse by any exception they like (torch: tensors that require a gradient, conjugate views).
        raise LaunchError(f"argument `{name}`: {a_class(type(value))} does not export its memory: {error}") from error


def row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Byte strides of a contiguous row-major array."""
    strides, step = [0] * len(shape), itemsize
    for i in range(len(shape) - 1, -1, -1):
        strides[i] = step
        step *= max(shape[i], 1)
    return tuple(strides)


def a_class(kind: type) -> str:
    """A type's name with its module, as in `a torch.Tensor`."""
    module = "" if kind.__module__ == "builtins" else kind.__module__ + "."
    name = f"{module}{kind.__qualname__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


# --------------------------------------------------------------------------------------------------------- short way

_CAPSULE = struct.Struct("=QQ")
"""What a capsule holds behind what every object begins with, in CPython: its pointer, and that of its name."""


def _a_capsule() -> tuple[type, int]:
    """The class of capsules, and where one of them has `_CAPSULE`; 0 where an interpreter has it elsewhere."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    target, name, behind = ctypes.create_string_buffer(1), ctypes.create_string_buffer(PLAIN), object.__basicsize__
    made = new(ctypes.addressof(target), ctypes.addressof(name), None)
    room = type(made).__basicsize__ >= behind + _CAPSULE.size
    wanted = ctypes.addressof(target), ctypes.addressof(name)
    known = room and _CAPSULE.unpack_from(memory, id(made) + behind - _ORIGIN) == wanted
    return type(made), behind if known else 0


_Capsule, _IN_CAPSULE = _a_capsule()

SHAPE = ("e{i}", "s{i}")
"""Bytes of the extents and strides of array `{i}`."""
GEOMETRY = "numbers(e{i}), numbers(s{i}, {size}) if s{i} else row_major(numbers(e{i}), {size})"
"""Extents and strides in bytes as numbers."""


def numbers(words: bytes | None, unit: int = 1) -> tuple[int, ...]:
    """The 64-bit numbers in `words`, times `unit`."""
    return tuple([unit * n for n in struct.unpack(f"{len(words) // 8}q", words)]) if words else ()


NAMES: dict[str, Any] = {
    "Capsule": _Capsule,
    "capsule": _CAPSULE.unpack_from,
    "capsule_pointer": capsule_pointer,
    "memory": memory,
    "plain": struct.Struct("=6Q").unpack_from,
    "versioned": struct.Struct("=7Q").unpack_from,
    "numbers": numbers,
    "row_major": row_major,
}
"""What the lines of `first` and `GEOMETRY` name. A DLTensor is read as data, device with its number, rank with dtype,
extents, strides, byte offset; flags stand in front of a versioned one."""


def first(value: Any, rank: int, ordered: bool) -> tuple[str, tuple[str, ...]]:
    """Lines that read array `{x}` of `rank` dimensions, number `{i}`, as `value` of the same class is read: pointer
    `p{i}`, capsule `c{i}` and what `SHAPE` names; and the names of what else tells calls apart: device, rank with
    dtype, flags. The lines fail where a producer answers otherwise."""
    capsule, options = export(value, "array", ordered)
    keywords = ", ".join(f"{k}={v!r}" for k, v in options.items())
    versioned = bool(_is_valid(capsule, VERSIONED))
    name = VERSIONED if versioned else PLAIN

    def at(place: str, skip: int = 0) -> str:
        return f"{place} + {skip - _ORIGIN}" if skip > _ORIGIN else f"{place} - {_ORIGIN - skip}"

    def copied(start: str, count: int) -> str:
        return f"memory[{at(start)} : {at(start, count)}]"

    tensor = f"b{{i}} = capsule_pointer(c{{i}}, {name!r})"
    if _IN_CAPSULE:
        # The name lies where it lay, and ends there: it is no other of the four that DLPack knows.
        lay = _CAPSULE.unpack_from(memory, id(capsule) + _IN_CAPSULE - _ORIGIN)[1]
        tensor = f"""if type(c{{i}}) is not Capsule: raise TypeError
        b{{i}}, l{{i}} = capsule(memory, {at("id(c{i})", _IN_CAPSULE)})
        if l{{i}} != {lay} or memory[{lay + len(name) - _ORIGIN}] != {bytes(1)!r}: {tensor}"""
    key: tuple[str, ...]
    fields, key = "p{i}, u{i}, t{i}, e{i}, s{i}, o{i}", ("u{i}", "t{i}")
    if versioned:
        header, key = f"w{{i}}, {fields} = versioned(memory, {at('b{i}', _FLAGS)})", (*key, "w{i}")
    else:
        header = f"{fields} = plain(memory, {at('b{i}')})"
    tensor_at = capsule_pointer(capsule, name) + (_BEHIND if versioned else 0)
    word = NAMES["plain"](memory, tensor_at - _ORIGIN)[2]
    lines = f"""c{{i}} = {{x}}.__dlpack__({keywords})
        {tensor}
        {header}
        if t{{i}} != {word} and t{{i}} & 0xFFFFFFFF != {rank}: raise IndexError
        e{{i}} = {copied("e{i}", 8 * rank) if rank else "None"}
        s{{i}} = {copied("s{i}", 8 * rank) + " if s{i} else None" if rank else "None"}
        if o{{i}}: p{{i}} += o{{i}}"""
    return lines, key
