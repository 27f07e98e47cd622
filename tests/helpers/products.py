"""Matrix products for end-to-end tests: kernels, operands, exact answers and error bounds, and what assemblers say.

A `Kind` is one combination of element types; `kinds(target)` lists those a chip has. `gemm` makes the kernel,
`operands` its arguments, `expect_product` compares with NumPy under the bounds of docs/numerics.md, `assemble` asks
LLVM or ptxas.
Imported as `products` (pytest's `pythonpath` lists this folder).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

import wavedsl as wd

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80")
AMD = TARGETS[:3]

M, N, K, BM, BN, BK, WM, WN = wd.symbols("M N K BM BN BK WM WN")
SPACE_A, SPACE_B = wd.symbols("SPACE_A SPACE_B")
TILE = (BM, BN, BK, WM, WN)
"""Symbols of a tile: the workgroup's extents along M, N, K, then the wave's along M and N."""

SENTINEL = 77
"""What outputs hold before a kernel runs: a whole number that every type of output has."""


@dataclass(frozen=True)
class Kind:
    """Element types of a product: operands, sums, output."""

    name: str
    dtype: wd.DType
    sums: wd.DType
    out: wd.DType

    def __str__(self) -> str:
        return self.name


F16 = Kind("f16", wd.f16, wd.f32, wd.f32)
F16_OUT = Kind("f16-out-f16", wd.f16, wd.f32, wd.f16)
BF16 = Kind("bf16", wd.bf16, wd.f32, wd.bf16)
F32 = Kind("f32", wd.f32, wd.f32, wd.f32)
TF32 = Kind("tf32", wd.tf32, wd.f32, wd.f32)
F64 = Kind("f64", wd.f64, wd.f64, wd.f64)
I8 = Kind("i8", wd.i8, wd.i32, wd.i32)
_FNUZ = (Kind("f8e4m3fnuz", wd.f8e4m3fnuz, wd.f32, wd.f32), Kind("f8e5m2fnuz", wd.f8e5m2fnuz, wd.f32, wd.f32))
_OCP = (Kind("f8e4m3", wd.f8e4m3, wd.f32, wd.f32), Kind("f8e5m2", wd.f8e5m2, wd.f32, wd.f32))
_EVERYWHERE = (F16, F16_OUT, BF16, F32, F64, I8)
_MORE = {"gfx942": (TF32, *_FNUZ), "gfx950": _OCP, "sm_80": (TF32,), "sm_90a": (TF32, *_OCP)}


def kinds(target: str) -> tuple[Kind, ...]:
    """The combinations of element types that a chip multiplies."""
    return (*_EVERYWHERE, *_MORE.get(target, ()))


@lru_cache(maxsize=256)
def gemm(kind: Kind, *, b_order: str = "NK", spaces: tuple[Any, Any] = (wd.SHARED, wd.SHARED), **options: Any) -> Any:
    """The kernel c[M, N] = a[M, K] b[N, K]ᵀ (or b[K, N] with `b_order="KN"`); tiles are bound by `subs`.

    `spaces`: the address spaces of a and b, None where the compiler is to decide. `options` go to `wd.wave`.
    """
    dims_b = (N, K) if b_order == "NK" else (K, N)
    a_type = _memory((M, K), spaces[0], kind.dtype)
    b_type = _memory(dims_b, spaces[1], kind.dtype)
    sums, out = kind.sums, kind.out

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        **options,
    )
    def gemm(a: a_type, b: b_type, c: wd.Memory[M, N, out]):
        zero = wd.Register[M, N, sums](0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, sums]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop if sums is out else wd.cast(loop, out), c)

    return gemm


def _memory(dims: Sequence[Any], space: Any, dtype: wd.DType) -> Any:
    return wd.Memory[(*dims, dtype)] if space is None else wd.Memory[(*dims, space, dtype)]


def numbers(shape: tuple[int, ...], dtype: wd.DType, seed: int, values: str = "whole") -> np.ndarray:
    """`whole`: integers from -3 to 3, of which every type holds sums of products exactly. `normal`: normal numbers.

    No normal number lies half way between two of tf32, which chips round differently.
    """
    rng = np.random.default_rng(seed)
    if values == "whole" or dtype.is_int:
        return rng.integers(-3, 4, shape).astype(dtype.storage)
    found = rng.standard_normal(shape).astype(dtype.storage)
    if dtype is wd.tf32:
        found.view(np.uint32)[...] |= 1
    return found


def operands(
    kind: Kind, m: int, n: int, k: int, *, b_order: str = "NK", values: str = "whole"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a, b and an output that holds SENTINEL; the seed is made of the sizes."""
    seed = (m * 1009 + n) * 1009 + k
    a = numbers((m, k), kind.dtype, seed, values)
    b = numbers((n, k) if b_order == "NK" else (k, n), kind.dtype, seed + 1, values)
    return a, b, np.full((m, n), SENTINEL).astype(kind.out.storage)


def inside(x: np.ndarray, shape: tuple[int, int], where: Any) -> np.ndarray:
    """The elements of x as a view of a larger array whose other elements would spoil any sum."""
    around = np.full(shape, 101).astype(x.dtype)
    view = around[where]
    assert view.shape == x.shape
    view[...] = x
    return view


def rounded(values: np.ndarray, dtype: wd.DType) -> np.ndarray:
    """Operands as the matrix unit takes them, in f64: tf32 keeps 11 significant bits, rounded to nearest even."""
    wide = values.astype(np.float64)
    if dtype is not wd.tf32:
        return wide
    mantissa, exponent = np.frexp(wide)
    return np.ldexp(np.rint(np.ldexp(mantissa, 11)), exponent - 11)


def exact(a: np.ndarray, b: np.ndarray, kind: Kind, b_order: str = "NK") -> tuple[np.ndarray, np.ndarray]:
    """The product and the product of absolute values, in f64; K must come last in a and, for "NK", in b."""
    wide_a, wide_b = rounded(a, kind.dtype), rounded(b, kind.dtype)
    if b_order == "NK":
        wide_b = wide_b.T
    return wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b)


def expect_equal(got: np.ndarray, want: np.ndarray, kind: Kind) -> None:
    """For whole numbers: every element is exactly the product, rounded to the output's type."""
    want = want.astype(kind.out.storage)
    if not np.array_equal(got, want):
        wrong = np.argwhere(got != want)
        first = tuple(int(i) for i in wrong[0])
        raise AssertionError(f"{len(wrong)} of {got.size} wrong, the first at {first}: {got[first]}, not {want[first]}")


def expect_product(got: np.ndarray, want: np.ndarray, magnitude: np.ndarray, k: int, kind: Kind) -> None:
    """For any numbers: within (K + 8) units of the sums' rounding, plus the output's own rounding."""
    unit = 2.0 ** -(kind.sums.mantissa + 1) if kind.sums.is_float else 0.0
    bound = (k + 8) * unit * magnitude
    if kind.out is not kind.sums:
        smallest = float(np.finfo(np.float16).smallest_subnormal) if kind.out is wd.f16 else 0.0
        bound = bound + (np.abs(want) + bound) * 2.0 ** -(kind.out.mantissa + 1) + smallest
    error = np.abs(got.astype(np.float64) - want)
    if not (error <= bound).all():
        at = np.unravel_index(np.argmax(error - bound), error.shape)
        raise AssertionError(
            f"at {tuple(int(i) for i in at)}: {got[at]}, not {want[at]}; off by {error[at]:.3g}, "
            f"allowed {bound[at]:.3g}"
        )


def assemble(compiled: wd.CompiledKernel, oracle: Callable[[str], str]) -> None:
    """LLVM's assembler takes the text, or ptxas does without spilling a register, on every chip it is meant for."""
    if compiled.target.startswith("gfx"):
        assemble_amdgcn(compiled.asm, compiled.target, oracle("llvm-mc"))
    else:
        own = (compiled.target,) if compiled.target.endswith("a") else ("sm_80", "sm_90", "sm_100")
        for arch in own:
            assemble_ptx(compiled.asm, arch, oracle("ptxas"))


def assemble_amdgcn(text: str, target: str, llvm_mc: str) -> None:
    command = [llvm_mc, "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj", "-o", "/dev/null"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, f"llvm-mc for {target}:\n{done.stderr}"


def assemble_ptx(text: str, arch: str, ptxas: str) -> None:
    command = [ptxas, "-v", f"-arch={arch}", "-o", "/dev/null", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"ptxas for {arch}:\n{done.stderr}{done.stdout}"
    said = done.stderr + done.stdout
    assert "0 bytes spill stores, 0 bytes spill loads" in said, f"ptxas for {arch}:\n{said}"
