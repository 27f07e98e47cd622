"""Element types: names, widths, NumPy counterparts. One row per dtype; everyone reads it here.

Sub-byte arrays are stored as `uint8`, packed little-end first; `storage` is the NumPy type an array argument has.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class DType:
    """One element type. `bits` is its width, `kind` one of `float`, `int`, `uint`, `bool`, `scale`."""

    name: str
    bits: int
    kind: str
    numpy: Any = field(compare=False, repr=False)
    mantissa: int = 0
    """Explicit mantissa bits of a float (0 otherwise): unit roundoff is 2**-(mantissa + 1)."""

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "scale")

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def bytes(self) -> int:
        """Whole bytes of one element. Meaningless below 8 bits, where it raises ValueError."""
        if self.bits % 8:
            raise ValueError(f"{self.name} does not fill a byte")
        return self.bits // 8

    @property
    def slot(self) -> int:
        """Bits that one element takes in a register: its own width, but a byte for 6 bits, which tile no word."""
        return 8 if self.bits == 6 else self.bits

    @property
    def packed(self) -> bool:
        """Whether arrays hold several elements to a byte, or elements across bytes."""
        return self.bits < 8 and self.kind != "bool"

    @property
    def storage(self) -> np.dtype:
        """The NumPy dtype of an array argument with this element type."""
        return np.dtype(np.uint8) if self.packed else np.dtype(self.numpy)


f64 = DType("f64", 64, "float", np.float64, 52)
f32 = DType("f32", 32, "float", np.float32, 23)
tf32 = DType("tf32", 32, "float", np.float32, 10)
f16 = DType("f16", 16, "float", np.float16, 10)
bf16 = DType("bf16", 16, "float", ml_dtypes.bfloat16, 7)
f8e4m3 = DType("f8e4m3", 8, "float", ml_dtypes.float8_e4m3fn, 3)
f8e5m2 = DType("f8e5m2", 8, "float", ml_dtypes.float8_e5m2, 2)
f8e4m3fnuz = DType("f8e4m3fnuz", 8, "float", ml_dtypes.float8_e4m3fnuz, 3)
f8e5m2fnuz = DType("f8e5m2fnuz", 8, "float", ml_dtypes.float8_e5m2fnuz, 2)
f6e2m3 = DType("f6e2m3", 6, "float", ml_dtypes.float6_e2m3fn, 3)
f6e3m2 = DType("f6e3m2", 6, "float", ml_dtypes.float6_e3m2fn, 2)
f4e2m1 = DType("f4e2m1", 4, "float", ml_dtypes.float4_e2m1fn, 1)
f8e8m0 = DType("f8e8m0", 8, "scale", ml_dtypes.float8_e8m0fnu, 0)
i64 = DType("i64", 64, "int", np.int64)
i32 = DType("i32", 32, "int", np.int32)
i16 = DType("i16", 16, "int", np.int16)
i8 = DType("i8", 8, "int", np.int8)
i4 = DType("i4", 4, "int", ml_dtypes.int4)
u64 = DType("u64", 64, "uint", np.uint64)
u32 = DType("u32", 32, "uint", np.uint32)
u16 = DType("u16", 16, "uint", np.uint16)
u8 = DType("u8", 8, "uint", np.uint8)
u4 = DType("u4", 4, "uint", ml_dtypes.uint4)
i1 = DType("i1", 1, "bool", np.bool_)

INT4 = (i4, u4)
"""Integers of four bits, of which a byte holds two."""

ALL: dict[str, DType] = {d.name: d for d in list(globals().values()) if isinstance(d, DType)}


@lru_cache(maxsize=32)
def code_values(dtype: DType) -> np.ndarray:
    """The number that every bit pattern of a type of at most 16 bits stands for: f32 [2**bits]."""
    codes = np.arange(1 << dtype.bits).astype(np.uint8 if dtype.bits <= 8 else np.uint16)
    return codes.view(dtype.numpy).astype(np.float32)
