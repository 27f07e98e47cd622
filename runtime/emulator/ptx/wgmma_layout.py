"""Where a warpgroup's matrices lie: operands in shared memory by their descriptor, A and D in registers.

In: descriptors, register words, bit patterns. Out: addresses, matrices, numbers. Nothing here knows what an instruction
does.
"""

from __future__ import annotations

import numpy as np
from wavedsl.codegen.ptx.isa_wgmma import Descriptor
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType, code_values
from wavedsl.runtime.emulator.ptx.bulk import swizzled
from wavedsl.runtime.emulator.ptx.machine import Array

WARPS = 4
"""Warps of a warpgroup."""


def words_of_matrix(matrix: Array, dtype: DType) -> Array:
    """D [warpgroups, 64, n] as register words [registers, warps, 32]: lane 4 r + q of a warp holds pairs q of rows r
    and r + 8 of every block of 8 columns."""
    n = len(matrix)
    parts = matrix.reshape(n, WARPS, 2, 8, matrix.shape[2] // 8, 4, 2)
    if dtype == dt.f16:
        words = np.ascontiguousarray(parts.astype(np.float16).transpose(4, 2, 0, 1, 3, 5, 6)).view(np.uint32)
    else:
        words = np.ascontiguousarray(parts.transpose(4, 2, 6, 0, 1, 3, 5)).view(np.uint32)
    return words.reshape(-1, n * WARPS, 32)


def matrix_of_words(words: Array, dtype: DType) -> Array:
    """The inverse: D [warpgroups, 64, n], of f32 (f16 and f32) or i32, from register words [registers, warps, 32]."""
    words = np.ascontiguousarray(words)
    n = words.shape[1] // WARPS
    if dtype == dt.f16:
        parts = words.view(np.float16).reshape(-1, 2, n, WARPS, 8, 4, 2).transpose(2, 3, 1, 4, 0, 5, 6)
    else:
        kind = np.int32 if dtype == dt.i32 else np.float32
        parts = words.view(kind).reshape(-1, 2, 2, n, WARPS, 8, 4).transpose(3, 4, 1, 5, 0, 6, 2)
    return parts.reshape(n, 64, -1)


def operand_of_words(words: Array, dtype: DType) -> Array:
    """A [warpgroups, 64, k] from its registers [4, warps, 32], as numbers."""
    n, per = words.shape[1] // WARPS, 32 // dtype.bits
    parts = np.ascontiguousarray(words).view(f"u{dtype.bits // 8}").reshape(2, 2, n, WARPS, 8, 4, per)
    flat = np.ascontiguousarray(parts.transpose(2, 3, 1, 4, 0, 5, 6)).reshape(n, 64, -1)
    return numbers(flat, dtype)


def addresses(d: Descriptor, item: int, extent: int, k: int, mn_major: bool) -> Array:
    """Window addresses of an operand's 16-byte chunks: K-major by (row, chunk of k), MN-major by (chunk of rows, k).

    `item` bytes per element. Atoms of 8 rows by one span (K-major), or one span by 8 k (MN-major), lie `stride` apart
    along the rows (K-major) or along k (MN-major), `leading` apart the other way; without swizzle an atom is 8 rows of
    16 bytes, and MN-major swaps the two. A pattern that starts off its alignment is counted from there (`base_offset`).
    """
    per = 16 // item
    if not mn_major:
        row, chunk = np.meshgrid(np.arange(extent), np.arange(k // per), indexing="ij")
        if d.swizzle:
            at = row // 8 * d.stride + row % 8 * d.swizzle + chunk * 16
        else:
            at = row // 8 * d.stride + row % 8 * 16 + chunk * d.leading
    else:
        chunk, depth = np.meshgrid(np.arange(extent // per), np.arange(k), indexing="ij")
        if d.swizzle:
            wide = d.swizzle // 16
            at = chunk // wide * d.leading + chunk % wide * 16 + depth // 8 * d.stride + depth % 8 * d.swizzle
        else:
            at = chunk * d.stride + depth // 8 * d.leading + depth % 8 * 16
    where = (d.start + at.reshape(-1)).astype(np.int64)
    shift = d.base_offset << 7
    return swizzled(where - shift, d.swizzle) + shift


def numbers(flat: Array, dtype: DType) -> Array:
    """Bit patterns as float32."""
    if dtype == dt.f16:
        return flat.view(np.float16).astype(np.float32)
    if dtype == dt.bf16:
        return (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == dt.tf32:
        return (flat & np.uint32(0xFFFFE000)).view(np.float32)
    if dtype == dt.i8:
        return flat.view(np.int8).astype(np.float32)
    if dtype == dt.u8:
        return flat.astype(np.float32)
    return code_values(dtype).take(flat)
