"""Texts of the kernels that the end-to-end tests and the examples compile, once per process and target.

Imported as `emitted`. Tests that say something of every emitted line go through them.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import products
from products import AMD, BM, BN, TILE, K, M, N

import wavedsl as wd

ROOT = Path(__file__).resolve().parents[2]


def copy(dtype: wd.DType, space: Any) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 32, BN: 32})
    def copy(a: wd.Memory[M, N, space, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(wd.read(a), b)

    return copy


def recast(source: wd.DType, to: wd.DType) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def recast(a: wd.Memory[M, N, source], b: wd.Memory[M, N, to]):
        wd.write(wd.cast(wd.read(a), to), b)

    return recast


def scaled(dtype: wd.DType, order: str) -> Any:
    """A block-scaled product; B as [N, K] or [K, N]."""
    first, last = (N, K) if order == "NK" else (K, N)

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 128)])
    def scaled(
        a: wd.Memory[M, K, wd.SHARED, dtype], a_scale: wd.Memory[M, K / 32, wd.f8e8m0],
        b: wd.Memory[first, last, wd.SHARED, dtype], b_scale: wd.Memory[N, K / 32, wd.f8e8m0],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.scaled_mma(wd.read(a), wd.read(a_scale), wd.read(b), wd.read(b_scale), acc)

        wd.write(loop, c)

    return scaled


def taken() -> Any:
    """Elements by their place, from other lanes and through shared memory."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0)])
    def taken(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        x = wd.read(a)
        wd.write(wd.shuffle(x, wd.index(N) ^ 5, N) * wd.extract(x, {N: 3}), b)

    return taken


@functools.cache
def texts(target: str) -> tuple[str, ...]:
    """Types, sizes, orders, spaces, waves, dynamic extents."""
    return tuple(_texts(target))


def _texts(target: str) -> Iterator[str]:
    square = dict(zip(TILE, (64, 64, 32, 32, 32)))
    for kind in products.kinds(target):
        ragged = {**square, M: 65, N: 63, K: 37}
        yield products.gemm(kind).compile(target=target, subs={**square, M: 128, N: 128, K: 128}).asm
        yield products.gemm(kind, b_order="KN").compile(target=target, subs={**square, M: 64, N: 64, K: 64}).asm
        yield products.gemm(kind, b_order="KN").compile(target=target, subs=ragged).asm
        yield products.gemm(kind, spaces=(wd.GLOBAL, wd.GLOBAL)).compile(target=target, subs=ragged).asm
        waves = dict(zip(TILE, (64, 64, 32, 16, 16)))
        yield products.gemm(kind).compile(target=target, subs={**waves, M: 100, N: 70, K: 96}).asm
        yield products.gemm(kind).compile(target=target, subs=square, dynamic=(M, N, K)).asm
    for dtype in (wd.i8, wd.f16, wd.f32, wd.f64):
        for space in (wd.GLOBAL, wd.SHARED):
            for m, n in ((64, 64), (33, 50)):
                yield copy(dtype, space).compile(target=target, subs={M: m, N: n}).asm
    for dtype in (wd.f4e2m1, wd.f6e3m2, wd.f8e8m0, wd.i4):
        yield recast(dtype, wd.f32).compile(target=target, subs={M: 64, N: 64}).asm
        yield recast(wd.f32, dtype).compile(target=target, subs={M: 64, N: 64}).asm
    for dtype, order in ((wd.f4e2m1, "NK"), (wd.f4e2m1, "KN"), (wd.f6e2m3, "KN")):
        yield scaled(dtype, order).compile(target=target, subs={M: 64, N: 64, K: 256}).asm
    yield taken().compile(target=target, subs={M: 64, N: 64}).asm
    if target in AMD:  # a pipeline of finer tiles, unrolled
        large = dict(zip(TILE, (256, 256, 64, 64, 128)))
        yield products.gemm(products.BF16).compile(target=target, subs={**large, M: 512, N: 512, K: 1024}).asm


def example(name: str) -> ModuleType:
    """The module examples/<name>.py under a name of its own: `copy` is the standard library's."""
    full = f"wavedsl_example_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, ROOT / "examples" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = sys.modules[full] = importlib.util.module_from_spec(spec)
        sys.path.append(str(ROOT / "examples"))  # where they find what they share; last, behind the standard library
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.pop()
    return sys.modules[full]


@functools.cache
def example_texts(target: str) -> tuple[str, ...]:
    """What the examples print with --asm, for their default sizes and some options."""
    found = []
    gemm, attention = example("gemm"), example("attention")
    sizes = dict.fromkeys("bh", 1) | {"m": 256, "n": 256, "d": 64, "e": 64}
    for name, (tiles, (m, n, k)) in gemm.TILES.items():
        kernel = gemm.gemm_kernel(wd.f16, tiles)
        found.append(kernel.compile(target=target, subs={gemm.M: m, gemm.N: n, gemm.K: k}).asm)
        assert name
    found.append(example("copy").copy_kernel(wd.f16).compile(target=target, subs={M: 16, N: 16}).asm)
    for variant in (
        attention.Variant(wd.f16),
        attention.Variant(wd.bf16, causal=True, cap=30.0, lse=True),
        attention.Variant(wd.f16, bias=True, alibi=True, sinks=True, window=100, causal=True),
    ):
        given = attention.arguments_of(variant, sizes)
        found.append(attention.attention_kernel(variant).compile(*given.values(), target=target).asm)
    return tuple(found)
