"""Arrays of packed elements for tests: codes to bytes and back, by other code than is tested. Imported as `packed`."""

from __future__ import annotations

import ml_dtypes
import numpy as np

import wavedsl as wd

FLOATS = {
    "f4e2m1": ml_dtypes.float4_e2m1fn, "f6e2m3": ml_dtypes.float6_e2m3fn, "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes, one to an element, as bytes: the last dimension packed, little end first."""
    every = np.unpackbits(codes[..., None].astype(np.uint8), axis=-1, bitorder="little")[..., :bits]
    return np.packbits(every.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def unpack(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The codes of packed bytes."""
    every = np.unpackbits(data, axis=-1, bitorder="little")[..., : count * bits].reshape(*data.shape[:-1], count, bits)
    return (every.astype(np.uint8) << np.arange(bits, dtype=np.uint8)).sum(-1, dtype=np.uint8)


def numbers(codes: np.ndarray, dtype: wd.DType) -> np.ndarray:
    """What codes mean, as f64."""
    if dtype.name in FLOATS:
        return codes.astype(np.uint8).view(FLOATS[dtype.name]).astype(np.float64)
    signed = codes.astype(np.int64)
    return np.where((signed >= 8) & (dtype.kind == "int"), signed - 16, signed).astype(np.float64)


def operand(rng: np.random.Generator, dtype: wd.DType, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(an array argument of random codes that are small numbers, its numbers as f64)."""
    codes = rng.integers(0, 1 << dtype.bits, shape, dtype=np.uint8)
    value = numbers(codes, dtype)
    if dtype.bits == 8:
        codes = np.where(np.isfinite(value) & (np.abs(value) <= 8), codes, 0x3C).astype(np.uint8)
        return codes.view(FLOATS[dtype.name]), numbers(codes, dtype)
    return pack(codes, dtype.bits), value


def scales(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(an array of f8e8m0 around 1, its numbers)."""
    codes = rng.integers(120, 135, shape, dtype=np.uint8)
    return codes.view(FLOATS["f8e8m0"]), np.ldexp(1.0, codes.astype(np.int32) - 127)
