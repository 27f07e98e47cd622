"""Tensor maps: how a bulk copy finds a box of a tensor in global memory, described once for emulator and driver.

In: an array, a box and how it should lie in shared memory. Out: `TensorMap`, checked by the rules of
`cuTensorMapEncodeTiled`; `driver_arguments` gives that call's arguments in order. Dimensions are innermost first, as
the driver and PTX coordinates have them. Sizes count elements, strides bytes; the stride of dimension 0 is one element.

Shared memory holds the box densely, innermost dimension first. With a swizzle, address bits 4… of each 16-byte chunk
are exclusive-or'ed with address bits 7… (one bit for 32 bytes, two for 64, three for 128). Elements outside the tensor
are filled on loads and dropped on stores; a load always counts the bytes of the whole box.

Facts: the docstring of `cuTensorMapEncodeTiled` in cuda-bindings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.quick_dataclass import dataclass

BYTES = 128
"""Size of a `CUtensorMap`; it is passed by value in parameter space."""
ALIGNMENT = 64
"""Alignment of a `CUtensorMap`."""
MAX_RANK = 5
MAX_BOX = 256
MAX_ELEMENT_STRIDE = 8

# The driver's enumerations.
DATA_TYPES: dict[str, int] = {
    "u8": 0,
    "u16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 8,
    "bf16": 9,
    "f32_ftz": 10,
    "tf32": 11,
    "tf32_ftz": 12,
}
SWIZZLES: dict[int, int] = {0: 0, 32: 1, 64: 2, 128: 3}
"""Swizzle span in bytes (0: none) -> enumeration. Matrix descriptors number them otherwise."""
INTERLEAVES: dict[int, int] = {0: 0, 16: 1, 32: 2}
PROMOTIONS: dict[int, int] = {0: 0, 64: 1, 128: 2, 256: 3}
PROMOTION = 128
"""Bytes that L2 fetches around what a copy touches: a row of most boxes, and what CUTLASS and Triton ask for."""
FILLS: dict[str, int] = {"zero": 0, "nan": 1}

_ITEM = {"8": 1, "16": 2, "32": 4, "64": 8}
_SAME = {
    "i8": "u8",
    "i16": "u16",
    "f8e4m3": "u8",
    "f8e5m2": "u8",
    "f8e8m0": "u8",
    "i1": "u8",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "uint8": "u8",
    "int8": "u8",
    "uint16": "u16",
    "int16": "u16",
    "uint32": "u32",
    "int32": "i32",
    "uint64": "u64",
    "int64": "i64",
    "float8_e4m3fn": "u8",
    "float8_e5m2": "u8",
}
"""Names of the DSL's and NumPy's types that the driver lacks or spells otherwise."""


def item_size(data_type: str) -> int:
    """Bytes of one element of a tensor map's data type."""
    return _ITEM[data_type.split("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz")]


def data_type(dtype: DType | str) -> str:
    """The tensor map's name of a dtype, ours or NumPy's: types that the driver lacks go by their width."""
    name = dtype if isinstance(dtype, str) else dtype.name
    name = _SAME.get(name, name)
    if name not in DATA_TYPES:
        raise LaunchError(f"a tensor map cannot hold {dtype}", hint=f"its types are {', '.join(DATA_TYPES)}")
    return name


@dataclass(frozen=True)
class TensorMapSpec:
    """A tensor map but for its address. Raises LaunchError where `cuTensorMapEncodeTiled` would refuse it.

    `dims` and `box` in elements (the box along a strided dimension counts elements of the tensor, of which every
    `element_strides`-th is copied), `strides` in bytes for dimensions 1…; `swizzle` and `interleave` in bytes (0:
    none), `promotion` the L2 promotion in bytes (0: none), `fill` `zero` or `nan`.
    """

    data_type: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    interleave: int = 0
    swizzle: int = 0
    promotion: int = PROMOTION
    fill: str = "zero"

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * len(self.dims))
        for broken in self._broken_rules():
            raise LaunchError(f"no tensor map: {broken}")

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def item_size(self) -> int:
        return item_size(self.data_type)

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements of a box along each dimension in shared memory."""
        steps = (1, *self.element_strides[1:])
        return tuple(-(-b // s) for b, s in zip(self.box, steps))

    @property
    def box_bytes(self) -> int:
        """Bytes that a load of one box brings and counts, those outside the tensor included."""
        n = self.item_size
        for c in self.counts:
            n *= c
        return n

    def _broken_rules(self) -> Iterator[str]:
        """The driver's rules that do not hold, first things first."""
        rank, size = len(self.dims), item_size(data_type(self.data_type))
        inner = self.box[0] * size if self.box else 0
        if not 1 <= rank <= MAX_RANK:
            yield f"its rank is 1 to {MAX_RANK}, not {rank}"
        if self.interleave and rank < 3:
            yield f"an interleaved one has rank 3 to {MAX_RANK}, not {rank}"
        if len(self.strides) != rank - 1:
            yield f"{len(self.strides)} strides for rank {rank}: dimension 0 has none"
        if len(self.box) != rank:
            yield f"{len(self.box)} box sizes for rank {rank}"
        if len(self.element_strides) != rank:
            yield f"{len(self.element_strides)} element strides for rank {rank}"
        if not all(1 <= n <= 1 << 32 for n in self.dims):
            yield f"sizes {self.dims} are not 1 to 2**32"
        if not all(1 <= n <= MAX_BOX for n in self.box):
            yield f"box {self.box} is not 1 to {MAX_BOX} in each dimension"
        if not all(1 <= n <= MAX_ELEMENT_STRIDE for n in self.element_strides):
            yield f"element strides {self.element_strides} are not 1 to {MAX_ELEMENT_STRIDE}"
        if self.swizzle not in SWIZZLES:
            yield f"swizzle {self.swizzle} is none of {list(SWIZZLES)}"
        if self.interleave not in INTERLEAVES:
            yield f"interleave {self.interleave} is none of {list(INTERLEAVES)}"
        if self.promotion not in PROMOTIONS:
            yield f"L2 promotion {self.promotion} is none of {list(PROMOTIONS)}"
        if self.fill not in FILLS:
            yield f"fill {self.fill!r} is none of {list(FILLS)}"
        if self.fill != "zero" and self.data_type[0] not in "fbt":
            yield f"fill 'nan' is for floating-point types, not {self.data_type}"
        if self.interleave == 32 and self.swizzle != 32:
            yield "with an interleave of 32 bytes the swizzle is 32"
        if not self.interleave and inner % 16:
            yield f"the box's inner extent is {inner} bytes, a multiple of 16 is needed"
        if not self.interleave and self.swizzle and inner > self.swizzle:
            yield f"the box's inner extent is {inner} bytes, more than the swizzle span of {self.swizzle}"
        unit = 32 if self.interleave == 32 else 16
        for d, s in enumerate(self.strides):
            if s % unit:
                yield f"stride {s} of dimension {d + 1} is not a multiple of {unit} bytes"
            if not 0 <= s < 1 << 40:
                yield f"stride {s} of dimension {d + 1} is not below 2**40 bytes"

    def check_address(self, address: int) -> None:
        """Raises LaunchError unless the tensor may start at an address."""
        unit = 32 if self.interleave == 32 else 16
        if address % unit:
            raise LaunchError(f"no tensor map: address {address:#x} is not a multiple of {unit} bytes")

    def driver_arguments(self, address: int) -> tuple[Any, ...]:
        """What `cuTensorMapEncodeTiled` takes after the map itself, in its order: data type, rank, address, sizes,
        strides, box, element strides, interleave, swizzle, L2 promotion, fill."""
        self.check_address(address)
        return (
            DATA_TYPES[self.data_type],
            self.rank,
            address,
            self.dims,
            self.strides,
            self.box,
            self.element_strides,
            INTERLEAVES[self.interleave],
            SWIZZLES[self.swizzle],
            PROMOTIONS[self.promotion],
            FILLS[self.fill],
        )


class TensorMap:
    """A tensor map as an argument of a kernel: an array and how boxes of it are copied.

    `box` in elements, innermost dimension first. `dims` (elements) and `strides` (bytes, without dimension 0's) default
    to the array's own, innermost first; `dtype` to the array's. `swizzle` is the span in bytes (0, 32, 64, 128). The
    coordinates 0 lie `shift` bytes from the array's first element, not always inside of it. Raises LaunchError for what
    `cuTensorMapEncodeTiled` refuses.
    """

    def __init__(
        self,
        array: Any,
        box: tuple[int, ...],
        *,
        dims: tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
        dtype: DType | str | None = None,
        element_strides: tuple[int, ...] = (),
        swizzle: int = 0,
        interleave: int = 0,
        promotion: int = PROMOTION,
        fill: str = "zero",
        shift: int = 0,
    ):
        kind = data_type(dtype if dtype is not None else array.dtype.name)
        if dims is None:
            dims = tuple(array.shape[::-1])
        if strides is None:
            if array.strides[-1] != array.dtype.itemsize:
                raise LaunchError(
                    f"no tensor map: the array's inner stride is {array.strides[-1]} bytes, not one element"
                )
            strides = tuple(array.strides[-2::-1])
        self.array, self.shift = array, shift
        self.spec = TensorMapSpec(
            kind,
            tuple(map(int, dims)),
            tuple(map(int, strides)),
            tuple(map(int, box)),
            tuple(map(int, element_strides)),
            interleave,
            swizzle,
            promotion,
            fill,
        )

    def __repr__(self) -> str:
        return f"TensorMap({self.spec})"


# ---------------------------------------------------------------- the emulator's 128 bytes

_MAGIC = 0x70614D726F736E54
_LAYOUT = struct.Struct("<QQ4Q5I5H5B6B")
"""Magic, address, strides, sizes - 1, box, element strides, rank, then the enumerations; each field is aligned."""


def encode(spec: TensorMapSpec, address: int) -> bytes:
    """The emulator's form of a tensor map: 128 bytes. The driver's own form is not documented."""
    spec.check_address(address)
    pad = MAX_RANK - spec.rank
    return _LAYOUT.pack(
        _MAGIC,
        address,
        *spec.strides,
        *[0] * pad,
        *(n - 1 for n in spec.dims),
        *[0] * pad,
        *spec.box,
        *[0] * pad,
        *spec.element_strides,
        *[0] * pad,
        spec.rank,
        DATA_TYPES[spec.data_type],
        INTERLEAVES[spec.interleave],
        SWIZZLES[spec.swizzle],
        PROMOTIONS[spec.promotion],
        FILLS[spec.fill],
    ).ljust(BYTES, b"\0")


_FIELDS = {
    "global_address": (8, 8, 0),
    "global_dim": (48, 4, -1),
    "global_stride": (16, 8, 0),
    "box_dim": (68, 2, 0),
    "element_stride": (78, 1, 0),
    "rank": (83, 1, 1),
    "elemtype": (84, 1, 0),
    "interleave_layout": (85, 1, 0),
    "swizzle_mode": (86, 1, 0),
    "fill_mode": (88, 1, 0),
}
"""Field of `_LAYOUT` -> its first byte, bytes per value, and what is added to a value."""


def patch(field: str, dim: int, value: int) -> list[tuple[int, bytes]]:
    """(offset, bytes) to write so that a field of the emulator's form has a value, numbered as the driver does."""
    at, size, add = _FIELDS[field]
    data = ((value + add) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    return [(0, _MAGIC.to_bytes(8, "little")), (at + dim * size, data)]


def decode(data: bytes) -> tuple[TensorMapSpec, int] | None:
    """Description and address that `encode` wrote, or None if these bytes are no tensor map."""
    fields = _LAYOUT.unpack_from(data)
    if fields[0] != _MAGIC:
        return None
    # Raises LaunchError for a description that `tensormap.replace` left without sense.
    rank, kind, interleave, swizzle, promotion, fill = fields[21:27]

    def back(table: dict[Any, int], code: int) -> Any:
        return next((k for k, v in table.items() if v == code), code)

    spec = TensorMapSpec(
        back(DATA_TYPES, kind),
        tuple(n + 1 for n in fields[6 : 6 + rank]),
        fields[2 : 1 + rank],
        fields[11 : 11 + rank],
        fields[16 : 16 + rank],
        back(INTERLEAVES, interleave),
        back(SWIZZLES, swizzle),
        back(PROMOTIONS, promotion),
        back(FILLS, fill),
    )
    return spec, fields[1]
