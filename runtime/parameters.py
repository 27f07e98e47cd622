"""A kernel's parameters as drivers take them: bytes at their offsets, and an array of pointers to them.

Tensor maps are parameters of 128 bytes; drivers make them from an address and from what `tensor_map` says of an array.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from wavedsl.ir.kernel.kernel_ir import Param, TensorBoxes
from wavedsl.runtime import arrays
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.devices import Driver
from wavedsl.runtime.workspace import Room

STRIDE = 16
"""Bytes that a tensor map's strides are multiples of; also the width of an unswizzled row."""
FOUR = 4
"""Rows that a map with pairs of them counts as one."""
MAP_ALIGN = 64
"""Alignment of a tensor map among the parameters."""


def tensor_map(param: Param, ref: ArrayRef) -> dict[str, Any]:
    """Arguments of `TensorMap` for an array that a kernel reaches by bulk copies, but for the array itself."""
    boxes = param.map
    assert boxes is not None
    packed = param.dtype.bits < 8  # boxes count bytes
    extents = ref.shape if packed else arrays.extents(ref, param.dtype)
    dims, strides, shift = map_geometry(boxes, extents, arrays.byte_strides(ref))
    return {
        "box": boxes.box,
        "dims": dims,
        "strides": strides,
        "shift": shift,
        "dtype": "u8" if packed else param.dtype,
        "swizzle": boxes.span if boxes.span > STRIDE else 0,
    }


def map_geometry(
    boxes: TensorBoxes, extents: Sequence[int], byte_strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(sizes, strides, shift) of a tensor map for an array of these extents, in elements, and strides in bytes."""
    # The stride of a dimension of one element says nothing, and NumPy's own is arbitrary.
    axes = boxes.order if boxes.ended is None else (*boxes.order, boxes.ended)
    dims = [max(1, extents[i]) for i in axes]
    strides = [0] + [byte_strides[i] if extents[i] > 1 else STRIDE for i in axes[1:]]
    shift = 0 if boxes.ended is None else -strides[-1] * max(0, extents[boxes.ended] - 1)
    if boxes.paired is not None:
        at = axes.index(boxes.paired)
        row = strides[at]
        dims[at], strides[at] = dims[at] // FOUR, row * FOUR
        dims.insert(1, FOUR)
        strides.insert(1, row)
    return tuple(dims), tuple(strides[1:]), shift


class ParameterBlock:
    """The parameters' bytes at their offsets in `memory`; `address` is that of the array of pointers to them.

    `addresses` replaces the pointers of arrays that were copied to the device, by parameter position, and gives those
    of rooms. The driver makes tensor maps.
    """

    def __init__(
        self, params: Sequence[Param], values: Sequence[ArrayRef | bytes | Room], addresses: Mapping[int, int],
        driver: Driver,
    ):
        size = max((param.offset + param.size for param in params), default=0)
        whole = (ctypes.c_char * (size + MAP_ALIGN))()
        self.memory = (ctypes.c_char * size).from_buffer(whole, -ctypes.addressof(whole) % MAP_ALIGN)
        self.pointers = (ctypes.c_void_p * max(len(params), 1))()
        self._offsets = [param.offset for param in params]
        for i, (param, value) in enumerate(zip(params, values)):
            if isinstance(value, Room):
                value = struct.pack("<Q", addresses[i])
            elif isinstance(value, ArrayRef):
                address = addresses.get(i, value.pointer)
                if param.map is not None:
                    value = driver.tensor_map(address, **tensor_map(param, value))
                else:
                    value = struct.pack("<Q", address)
            struct.pack_into(f"{len(value)}s", self.memory, param.offset, value)
            self.pointers[i] = ctypes.addressof(self.memory) + param.offset
        self.address = ctypes.addressof(self.pointers)

    def write(self, position: int, address: int) -> None:
        """Change the pointer that is the parameter at `position`."""
        struct.pack_into("<Q", self.memory, self._offsets[position], address)
