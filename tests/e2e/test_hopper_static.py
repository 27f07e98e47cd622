"""What ptxas makes of warpgroup kernels: nothing is spilled, and matrix instructions overlap.

ptxas runs asynchronous matrix instructions one after the other where it cannot prove their registers safe, says so in a
warning, and marks every one of them as the end of a group. So per configuration: no spills, none of its warnings, and
exactly as many ends of groups in the machine code as groups in the text.
"""

from __future__ import annotations

import re
from typing import Any

import example_files
import hopper
import pytest
from hopper import tiles
from products import BF16, F16, F16_OUT, I8, TF32, K, Kind, M, N

import wavedsl as wd

FP8 = Kind("f8e4m3", wd.f8e4m3, wd.f32, wd.bf16)
FP8_OUT = Kind("f8e4m3-out", wd.f8e4m3, wd.f32, wd.f8e4m3)
F16_SUMS = Kind("f16-sums", wd.f16, wd.f16, wd.f16)
ALONE = wd.Schedule(specialize=False)

CONFIGURATIONS: dict[str, tuple[Kind, dict[Any, int], dict[str, Any]]] = {
    "bf16 128x256x64": (BF16, tiles(128, 256, 64, 64, 256), {}),
    "bf16 256x128x64": (BF16, tiles(256, 128, 64, 128, 128), {}),
    "bf16 256x128x64 four waves": (BF16, tiles(256, 128, 64, 64, 128), {}),
    "bf16 128x192x64": (BF16, tiles(128, 192, 64, 64, 192), {}),
    "bf16 192x192x64 three waves": (BF16, tiles(192, 192, 64, 64, 192), {}),
    "bf16 128x128x64": (BF16, tiles(128, 128, 64, 64, 128), {}),
    "bf16 128x128x128": (BF16, tiles(128, 128, 128, 64, 128), {}),
    "bf16 64x256x64 one wave": (BF16, tiles(64, 256, 64, 64, 256), {}),
    "bf16 128x176x64": (BF16, tiles(128, 176, 64, 64, 176), {}),
    "bf16 64x64x64": (BF16, tiles(64, 64, 64, 64, 64), {}),
    "bf16 128x256x32, swizzle of 64": (BF16, tiles(128, 256, 32, 64, 256), {}),
    "bf16 128x256x64 two stages": (BF16, tiles(128, 256, 64, 64, 256), {"schedule": wd.Schedule(stages=2)}),
    "bf16 128x128x64 one stage": (BF16, tiles(128, 128, 64, 64, 128), {"schedule": wd.Schedule(stages=1)}),
    "bf16 128x256x64 without roles": (BF16, tiles(128, 256, 64, 64, 256), {"schedule": ALONE}),
    "bf16 128x128x64 without roles, three stages": (
        BF16,
        tiles(128, 128, 64, 64, 128),
        {"schedule": wd.Schedule(specialize=False, stages=3)},
    ),
    "f16 128x256x64, f16 out": (F16_OUT, tiles(128, 256, 64, 64, 256), {}),
    "f16 sums 128x256x64": (F16_SUMS, tiles(128, 256, 64, 64, 256), {}),
    "f16 128x256x64, B along N": (F16, tiles(128, 256, 64, 64, 256), {"b_order": "KN"}),
    "f16 128x128x64, A along M, B along N": (F16, tiles(128, 128, 64, 64, 128), {"a_order": "KM", "b_order": "KN"}),
    "bf16 128x256x64 bias relu": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "bias relu"}),
    "bf16 128x128x64 alpha beta": (BF16, tiles(128, 128, 64, 64, 128), {"epilogue": "alpha beta"}),
    "bf16 128x256x64 alpha beta": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "alpha beta"}),
    "bf16 128x256x64 scales silu": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "scales silu"}),
    "bf16 128x192x64 gelu": (BF16, tiles(128, 192, 64, 64, 192), {"epilogue": "gelu"}),
    "bf16 128x256x64 gelu by tanh": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "gelu tanh"}),
    "bf16 128x256x64 gelu by tanh, fast": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "gelu tanh fast"}),
    "bf16 32x128x64 swapped": (BF16, tiles(32, 128, 64, 32, 64), {}),
    "bf16 32x256x64 swapped gelu": (BF16, tiles(32, 256, 64, 32, 128), {"epilogue": "gelu"}),
    "fp8 128x256x128, fp8 out": (FP8_OUT, tiles(128, 256, 128, 64, 256), {}),
    "fp8 128x128x128 block scales": (FP8, tiles(128, 128, 128, 64, 128), {"epilogue": "block scales"}),
    "fp8 128x256x128": (FP8, tiles(128, 256, 128, 64, 256), {}),
    "fp8 128x128x128 bias relu": (FP8, tiles(128, 128, 128, 64, 128), {"epilogue": "bias relu"}),
    "f16 128x256x64, A of i8": (F16, tiles(128, 256, 64, 64, 256), {"stored": (wd.i8, None)}),
    "f16 128x128x64, B of i8": (F16, tiles(128, 128, 64, 64, 128), {"stored": (None, wd.i8)}),
    "f16 128x256x64, B of i8": (F16, tiles(128, 256, 64, 128, 128), {"stored": (None, wd.i8)}),
    "f16 128x256x64, A and B of i8": (F16, tiles(128, 256, 64, 64, 256), {"stored": (wd.i8, wd.i8)}),
    "f16 128x128x64, A and B of bf16": (F16, tiles(128, 128, 64, 64, 128), {"stored": (wd.bf16, wd.bf16)}),
    "i8 128x256x128": (I8, tiles(128, 256, 128, 64, 256), {}),
    "i8 128x128x64": (I8, tiles(128, 128, 64, 64, 128), {}),
    "tf32 128x128x32": (TF32, tiles(128, 128, 32, 64, 128), {}),
}
QUICK = (0, 13, 18, 21, 24)


@pytest.mark.parametrize(
    "name", [n if i in QUICK else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(CONFIGURATIONS)]
)
def test_matrix_instructions_overlap_and_nothing_spills(name: str, oracle: Any) -> None:
    oracle("ptxas"), oracle("nvdisasm")
    kind, subs, options = CONFIGURATIONS[name]
    guard(hopper.gemm(kind, **options).compile(target="sm_90a", subs={**subs, M: 4096, N: 4224, K: 4096}).asm)


def guard(text: str) -> None:
    """Nothing is spilled, and groups of products overlap."""
    found = hopper.static(text)
    assert found.spills == 0 and not found.codes
    assert found.products > 0
    assert found.groups == len(re.findall(r"\bcommit_group\.sync", text))


@pytest.mark.parametrize("tile", [(128, 128, 32), pytest.param((128, 256, 32), marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["3xtf32", pytest.param("tf32", marks=pytest.mark.slow)])
def test_products_of_f32_overlap(precision: str, tile: tuple[int, int, int], oracle: Any) -> None:
    """One product of tf32, or three of operands that waves split."""
    oracle("ptxas"), oracle("nvdisasm")
    m, n, k = tile

    @wd.wave([wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k)])
    def gemm(a: wd.Memory[M, K, wd.f32], b: wd.Memory[N, K, wd.f32], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc, precision=precision)

        wd.write(loop, c)

    guard(gemm.compile(target="sm_90a", subs={M: 4096, N: 4096, K: 4096}).asm)


block_scaled = example_files.load("block_scaled_gemm")


@pytest.mark.parametrize("tile", [(128, 128), pytest.param((128, 64), marks=pytest.mark.slow)])
def test_block_scaled_products_overlap(tile: tuple[int, int], oracle: Any) -> None:
    """fp8 with scales per 128 of K, added up in registers beside the products."""
    oracle("ptxas"), oracle("nvdisasm")
    sizes = dict(zip((block_scaled.M, block_scaled.N, block_scaled.K), (4096, 4096, 4096)))
    blocks = {block_scaled.KB: 32, block_scaled.NB: 32}
    kernel = block_scaled.block_scaled_kernel(wd.f8e4m3, wd.bf16, tile)
    guard(kernel.compile(target="sm_90a", subs={**sizes, **blocks}).asm)


attention = example_files.load("attention")


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["full", "causal"])
@pytest.mark.parametrize("d", [pytest.param(64, marks=pytest.mark.slow), 128])
def test_attention_overlaps_and_nothing_spills(d: int, causal: bool, oracle: Any) -> None:
    """128 queries of two warpgroups, 128 keys; a causal loop is cut in two, with masks and without."""
    oracle("ptxas"), oracle("nvdisasm")
    kernel = attention.attention_kernel(attention.Variant(wd.f16, causal=causal), tile=(128, 128), waves=2)
    sizes = {attention.B: 2, attention.H: 16, attention.G: 16, attention.M: 4096, attention.N: 4096}
    text = kernel.compile(target="sm_90a", subs={**sizes, attention.D: d, attention.E: d}).asm
    found = hopper.static(text)
    assert found.spills == 0 and not found.codes
    assert found.groups == len(re.findall(r"\bcommit_group\.sync", text)) >= 2


def test_there_are_enough_configurations() -> None:
    assert len(CONFIGURATIONS) >= 24


def test_the_guard_notices_products_that_do_not_overlap(oracle: Any) -> None:
    """Two products whose sums lie in the same registers in another order cannot be in flight together."""
    oracle("ptxas"), oracle("nvdisasm")
    kind, subs, options = CONFIGURATIONS["bf16 64x64x64"]
    text = hopper.gemm(kind, **options).compile(target="sm_90a", subs={**subs, M: 64, N: 64, K: 256}).asm
    bad = re.sub(r"(mma_async\S+ )\{(%r\d+), (%r\d+), ", r"\1{\3, \2, ", text, count=1)
    assert bad != text
    found = hopper.static(bad)
    assert found.codes and found.groups > len(re.findall(r"\bcommit_group\.sync", bad))
