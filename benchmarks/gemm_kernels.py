"""Kernels of `gpu_gemm.py`: products with every kind of operand, epilogue and fused input, in the language."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

import wavedsl as wd

B, M, N, K, BM, BN, BK, WM, WN = wd.symbols("B M N K BM BN BK WM WN")


@dataclass(frozen=True)
class Form:
    """What a product computes. `a`, `b`: order of dimensions in memory; `epilogue`, `inputs`: what is fused;
    `precision`: of operands of f32; `hints`: the operand that is to stay in L2, `a` or `b`, while everything else
    streams; `dynamic`: whether M is a run-time extent."""

    dtype: wd.DType
    sums: wd.DType = wd.f32
    out: wd.DType = wd.bf16
    a: str = "MK"
    b: str = "NK"
    epilogue: str = ""
    inputs: str = ""
    batched: bool = False
    precision: str | None = None
    hints: str = ""
    dynamic: bool = False


@dataclass(frozen=True)
class Config:
    """Tiles of a workgroup along M, N, K, those of a wave along M and N, and choices for the compiler."""

    m: int
    n: int
    k: int
    wave_m: int
    wave_n: int
    schedule: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        more = "".join(f" {name}={value}" for name, value in self.schedule)
        return f"{self.m}x{self.n}x{self.k}/{self.wave_m}x{self.wave_n}{more}"


EPILOGUES = ("", "alpha beta", "bias relu", "bias gelu", "scales silu", "block scales", "silu", "in place")
INPUTS = ("", "a scaled", "b scaled")


@functools.cache
def product(form: Form, config: Config) -> Any:
    """The kernel: c = epilogue(inputs(a) b). Arguments: a, b, then `extras(form)`, then c; scalars last."""
    batch = (B,) if form.batched else ()
    a_type = wd.Memory[(*batch, *((M, K) if form.a == "MK" else (K, M)), wd.SHARED, form.dtype)]
    b_type = wd.Memory[(*batch, *((N, K) if form.b == "NK" else (K, N)), wd.SHARED, form.dtype)]
    c_type = wd.Memory[(*batch, M, N, form.out)]
    sums, dtype = form.sums, form.dtype
    constraints: list[Any] = [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        *([wd.WorkgroupConstraint(B, 1, 2)] if form.batched else []),
        wd.TilingConstraint(K, BK),
        wd.WaveConstraint(M, WM),
        wd.WaveConstraint(N, WN),
    ]
    decorate = wd.wave(
        constraints,
        subs={BM: config.m, BN: config.n, BK: config.k, WM: config.wave_m, WN: config.wave_n},
        schedule=wd.Schedule(**dict(config.schedule)) if config.schedule else None,
        **({"dynamic": [M]} if form.dynamic else {}),
    )
    of_a, of_b = ("keep" if form.hints == name else "stream" if form.hints else None for name in "ab")
    stream = "stream" if form.hints else None

    def left(a: Any, rows: Any = None) -> Any:
        if form.inputs != "a scaled":
            return wd.read(a, cache=of_a)
        return wd.cast(wd.maximum(wd.cast(wd.read(a), wd.f32) * wd.read(rows), 0.0), dtype)

    def right(b: Any, columns: Any = None) -> Any:
        if form.inputs != "b scaled":
            return wd.read(b, cache=of_b)
        return wd.cast(wd.cast(wd.read(b), wd.f32) * wd.read(columns), dtype)

    def product_of(a: Any, b: Any, rows: Any = None, columns: Any = None) -> Any:
        @wd.iterate(K, init_args=[wd.Register[M, N, sums](0)])
        def loop(acc):
            return wd.mma(left(a, rows), right(b, columns), acc, precision=form.precision)

        return loop

    def finish(x: Any) -> Any:
        return x if sums is form.out else wd.cast(x, form.out)

    if form.inputs:
        vector = wd.Memory[M, wd.f32] if form.inputs == "a scaled" else wd.Memory[N, wd.f32]

        @decorate
        def fused_input(a: a_type, b: b_type, scale: vector, c: c_type):
            wd.write(finish(product_of(a, b, scale, scale)), c)

        return fused_input
    if form.epilogue == "":

        @decorate
        def plain(a: a_type, b: b_type, c: c_type):
            wd.write(finish(product_of(a, b)), c, cache=stream)

        return plain
    if form.epilogue == "in place":

        @decorate
        def updated(a: a_type, b: b_type, c: c_type, alpha: wd.Scalar[wd.f32], beta: wd.Scalar[wd.f32]):
            wd.write(finish(product_of(a, b) * alpha + wd.cast(wd.read(c), wd.f32) * beta), c)

        return updated
    if form.epilogue == "silu":

        @decorate
        def activated(a: a_type, b: b_type, c: c_type):
            x = product_of(a, b)
            wd.write(finish(x * wd.sigmoid(x)), c)

        return activated
    if form.epilogue == "alpha beta":

        @decorate
        def scaled(a: a_type, b: b_type, d: c_type, c: c_type, alpha: wd.Scalar[wd.f32], beta: wd.Scalar[wd.f32]):
            wd.write(finish(product_of(a, b) * alpha + wd.cast(wd.read(d), wd.f32) * beta), c)

        return scaled
    if form.epilogue.startswith("bias"):

        @decorate
        def biased(a: a_type, b: b_type, bias: wd.Memory[N, wd.f32], c: c_type):
            x = product_of(a, b) + wd.read(bias)
            if form.epilogue == "bias relu":
                x = wd.maximum(x, 0.0)
            else:
                x = 0.5 * x * (1.0 + wd.tanh(GELU[0] * (x + GELU[1] * x * x * x)))
            wd.write(finish(x), c)

        return biased
    if form.epilogue == "scales silu":

        @decorate
        def silu(a: a_type, b: b_type, rows: wd.Memory[M, wd.f32], columns: wd.Memory[N, wd.f32], c: c_type):
            x = product_of(a, b) * wd.read(rows) * wd.read(columns)
            wd.write(finish(x * wd.sigmoid(x)), c)

        return silu
    assert form.epilogue == "block scales"

    @decorate
    def blocks(a: a_type, b: b_type, rows: wd.Memory[M, wd.f32], columns: wd.Memory[N, wd.f32], c: c_type):
        @wd.iterate(K, init_args=[wd.Register[M, N, sums](0)])
        def loop(acc):
            part = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, sums](0))
            return acc + part * wd.read(rows) * wd.read(columns)

        wd.write(finish(loop), c)

    return blocks


@functools.cache
def four_bits(config: Config) -> Any:
    """y = x ((q - 8) * scale)^T in f32: x [M, K] of f16, weights q [N, K] of 4 bits with a factor of f16 per row."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={BM: config.m, BN: config.n, BK: config.k, WM: config.wave_m, WN: config.wave_n},
        schedule=wd.Schedule(**dict(config.schedule)) if config.schedule else None,
    )
    def quantised(
        x: wd.Memory[M, K, wd.SHARED, wd.f16], q: wd.Memory[N, K, wd.SHARED, wd.u4], scale: wd.Memory[N, wd.f16],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.cast(wd.read(q), wd.f16) - 8.0, acc)

        wd.write(loop * wd.cast(wd.read(scale), wd.f32), y)

    return quantised


GELU = (0.7978845608028654, 0.044715)
"""sqrt(2 / pi) and the factor of the cube in the approximation of gelu by tanh."""


def reference(form: Form, a: np.ndarray, b: np.ndarray, extras: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What is to come out, in f64, and for each element the sum of the products' magnitudes, through the epilogue's
    slope: what errors of sums are relative to."""
    a = a if form.a == "MK" else a.swapaxes(-1, -2)
    b = b.swapaxes(-1, -2) if form.b == "NK" else b
    if form.inputs == "a scaled":
        a = np.maximum(a * extras[0][:, None], 0).astype(form.dtype.storage).astype(np.float64)
    if form.inputs == "b scaled":
        b = (b * extras[0][None]).astype(form.dtype.storage).astype(np.float64)
    x, size = a @ b, np.abs(a) @ np.abs(b)
    if form.epilogue in ("alpha beta", "in place"):
        return ALPHA * x + BETA * extras[0], abs(ALPHA) * size
    if form.epilogue == "bias relu":
        return np.maximum(x + extras[0], 0), size
    if form.epilogue == "bias gelu":
        x = x + extras[0]
        return 0.5 * x * (1 + np.tanh(GELU[0] * (x + GELU[1] * x**3))), 1.2 * size + np.abs(x)
    if form.epilogue == "silu":
        return x / (1 + np.exp(-x)), 1.2 * size + np.abs(x)
    if form.epilogue in ("scales silu", "block scales"):
        scale = extras[0][:, None] * extras[1]
        x, size = x * scale, size * np.abs(scale)
        return (x / (1 + np.exp(-x)), 1.2 * size + np.abs(x)) if form.epilogue == "scales silu" else (x, size)
    return x, size


ALPHA, BETA = 1.5, -0.5


def extras(form: Form, m: int, n: int) -> list[tuple[tuple[int, ...], wd.DType]]:
    """Shapes and dtypes of the arrays between b and c."""
    if form.inputs:
        return [((m if form.inputs == "a scaled" else n,), wd.f32)]
    return {
        "": [],
        "silu": [],
        "in place": [],
        "alpha beta": [((m, n), form.out)],
        "bias relu": [((n,), wd.f32)],
        "bias gelu": [((n,), wd.f32)],
        "scales silu": [((m,), wd.f32), ((n,), wd.f32)],
        "block scales": [((m,), wd.f32), ((n,), wd.f32)],
    }[form.epilogue]


def scalars(form: Form) -> tuple[float, ...]:
    return (ALPHA, BETA) if form.epilogue in ("alpha beta", "in place") else ()
