"""Matrix products with a warpgroup as the wave for tests of sm_90a: kernels, and what ptxas and nvdisasm say of them.

Imported as `hopper` (pytest's `pythonpath` lists this folder).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import example_files
from products import BK, BM, BN, TILE, WM, WN, K, Kind, M, N
from wavedsl.runtime import toolchain

import wavedsl as wd

sass = example_files.load("sass", example_files.BENCHMARKS)
"""The reader of machine code."""


@lru_cache(maxsize=256)
def gemm(
    kind: Kind, a_order: str = "MK", b_order: str = "NK", epilogue: str = "", schedule: Any = None,
    lanes: int | None = 128, given: bool = True, stored: tuple[Any, Any] = (None, None),
) -> Any:  # fmt: skip
    """c[M, N] = epilogue(a b). `a_order`, `b_order`: how the operands lie in memory. `given`: the wave's tile is.
    `stored`: dtypes in memory of operands that are cast on the way to the product (None: they are not)."""
    a_in, b_in = (own or kind.dtype for own in stored)
    a_type = wd.Memory[(M, K, wd.SHARED, a_in) if a_order == "MK" else (K, M, wd.SHARED, a_in)]
    b_type = wd.Memory[(N, K, wd.SHARED, b_in) if b_order == "NK" else (K, N, wd.SHARED, b_in)]
    sums, out = kind.sums, kind.out
    constraints: list[Any] = [
        wd.WorkgroupConstraint(M, BM, 0),
        wd.WorkgroupConstraint(N, BN, 1),
        wd.TilingConstraint(K, BK),
    ]
    if given:
        constraints += [wd.WaveConstraint(M, WM), wd.WaveConstraint(N, WN)]
    if lanes is not None:
        constraints.append(wd.HardwareConstraint(threads_per_wave=lanes))

    def product(a: Any, b: Any) -> Any:
        zero = wd.Register[M, N, sums](0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, sums]):
            return wd.mma(operand(a, 0), operand(b, 1), acc)

        return loop

    def operand(array: Any, position: int) -> Any:
        return wd.read(array) if stored[position] is None else wd.cast(wd.read(array), kind.dtype)

    def finish(value: Any) -> Any:
        return value if sums is out else wd.cast(value, out)

    if epilogue == "":

        @wd.wave(constraints, schedule=schedule)
        def gemm(a: a_type, b: b_type, c: wd.Memory[M, N, out]):
            wd.write(finish(product(a, b)), c)

        return gemm
    if epilogue == "bias relu":

        @wd.wave(constraints, schedule=schedule)
        def gemm_bias(a: a_type, b: b_type, bias: wd.Memory[N, wd.f32], c: wd.Memory[M, N, out]):
            wd.write(finish(wd.maximum(product(a, b) + wd.read(bias), 0.0)), c)

        return gemm_bias
    if epilogue.startswith("gelu"):

        @wd.wave(constraints, schedule=schedule, fast_math=epilogue == "gelu tanh fast")
        def gemm_gelu(a: a_type, b: b_type, bias: wd.Memory[N, wd.f32], c: wd.Memory[M, N, out]):
            x = product(a, b) + wd.read(bias)
            if epilogue == "gelu":
                wd.write(finish(0.5 * x * (1.0 + wd.erf(x * 0.5**0.5))), c)
            else:
                wd.write(finish(0.5 * x * (1.0 + wd.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))), c)

        return gemm_gelu
    if epilogue == "silu" or epilogue.startswith("two"):
        # One result, or what the activation is given as well: silu, or gelu by erf.

        @wd.wave(constraints, schedule=schedule)
        def gemm_two(
            a: a_type, b: b_type, bias: wd.Memory[N, wd.f32], c: wd.Memory[M, N, out], d: wd.Memory[M, N, out]
        ):
            x = product(a, b) + wd.read(bias)
            if epilogue.startswith("two"):
                wd.write(finish(x), c)
            wd.write(finish(0.5 * x * (1.0 + wd.erf(x * 0.5**0.5)) if "erf" in epilogue else x * wd.sigmoid(x)), d)

        return gemm_two
    if epilogue == "scale bias addend":

        @wd.wave(constraints, schedule=schedule)
        def gemm_addend(
            a: a_type, b: b_type, columns: wd.Memory[N, wd.f32], bias: wd.Memory[N, wd.f32], c: wd.Memory[M, N, out],
            d: wd.Memory[M, N, out],
        ):  # fmt: skip
            x = product(a, b) * wd.read(columns) + wd.read(bias)
            wd.write(finish(x + wd.cast(wd.read(c), wd.f32)), d)

        return gemm_addend
    if epilogue == "scales silu":

        @wd.wave(constraints, schedule=schedule)
        def gemm_silu(
            a: a_type, b: b_type, rows: wd.Memory[M, wd.f32], columns: wd.Memory[N, wd.f32], c: wd.Memory[M, N, out]
        ):
            x = product(a, b) * wd.read(rows) * wd.read(columns)
            wd.write(finish(x * wd.sigmoid(x)), c)

        return gemm_silu
    if epilogue == "block scales":
        # One scale per row of A and per column of B for every tile of K: products of a tile are scaled, then added.
        @wd.wave(constraints, schedule=schedule)
        def gemm_blocks(
            a: a_type, b: b_type, rows: wd.Memory[M, wd.f32], columns: wd.Memory[N, wd.f32], c: wd.Memory[M, N, out]
        ):
            zero = wd.Register[M, N, sums](0)

            @wd.iterate(K, init_args=[zero])
            def loop(acc: wd.Register[M, N, sums]):
                part = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, sums](0))
                return wd.fma(part * wd.read(rows), wd.read(columns), acc)

            wd.write(finish(loop), c)

        return gemm_blocks
    if epilogue == "all":  # everything at once, and what the activation is given as a second result

        @wd.wave(constraints, schedule=schedule)
        def gemm_all(
            a: a_type, b: b_type, rows: wd.Memory[M, wd.f32], columns: wd.Memory[N, wd.f32], bias: wd.Memory[N, wd.f32],
            c: wd.Memory[M, N, out], before: wd.Memory[M, N, wd.f32], d: wd.Memory[M, N, out],
        ):  # fmt: skip
            x = product(a, b) * wd.read(rows) * wd.read(columns) + wd.read(bias) + wd.cast(wd.read(c), wd.f32)
            wd.write(x, before)
            wd.write(finish(0.5 * x * (1.0 + wd.erf(x * 0.5**0.5))), d)

        return gemm_all
    if epilogue == "in place":

        @wd.wave(constraints, schedule=schedule)
        def gemm_in_place(
            a: a_type, b: b_type, c: wd.Memory[M, N, out], alpha: wd.Scalar[wd.f32], beta: wd.Scalar[wd.f32]
        ):
            wd.write(finish(product(a, b) * alpha + wd.cast(wd.read(c), wd.f32) * beta), c)

        return gemm_in_place
    assert epilogue == "alpha beta"

    @wd.wave(constraints, schedule=schedule)
    def gemm_scaled(
        a: a_type, b: b_type, c: wd.Memory[M, N, out], d: wd.Memory[M, N, out],
        alpha: wd.Scalar[wd.f32], beta: wd.Scalar[wd.f32],
    ):  # fmt: skip
        wd.write(finish(product(a, b) * alpha + wd.cast(wd.read(c), wd.f32) * beta), d)

    return gemm_scaled


def tiles(*sizes: int) -> dict[Any, int]:
    """`subs` of a tile: workgroup M, N, loop K, wave M, N."""
    return dict(zip(TILE, sizes))


@dataclass(frozen=True)
class Static:
    """What the assembler made of a text: registers at entry, spilled bytes, codes of serialisation, matrix
    instructions, and how many of them end a group."""

    registers: int
    spills: int
    codes: tuple[str, ...]
    products: int
    groups: int


def spilled_or_serialised(text: str) -> tuple[int, tuple[str, ...]]:
    """Spilled bytes and codes of serialisation that the assembler speaks of: all that `static` knows of them, without a
    look at the machine code, which takes as long as making it."""
    return sass.said(toolchain.assemble_ptx(text, "sm_90a").log)[1:]


def static(text: str) -> Static:
    """Assemble for sm_90a and look at the machine code."""
    made = sass.assembled(text, "sm_90a")
    products = [one for one in made.instructions if one.kind == "product"]
    ends = sum("gsb0" in one.operands for one in products)
    return Static(made.registers, made.spills, made.codes, len(products), ends)


def strategy(compiled: wd.CompiledKernel) -> Any:
    """Who copies, how far ahead, in what order: what the compiler chose."""
    assert compiled.kernel_ir is not None
    return compiled.kernel_ir.notes["lowering"].strategy
