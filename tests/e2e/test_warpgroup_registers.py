"""What nobody fixed about warpgroups is chosen so that their values fit the registers they are dealt, and what a user
fixed that does not fit is said: ptxas is the witness of both.
"""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import example_files
import hopper
import numpy as np
import pytest
from wavedsl.runtime import spill_warning

import wavedsl as wd

B, M, N, D, E, K = wd.symbols("B M N D E K")


def attention(queries: int, keys: int, causal: bool = False):
    """Attention as one writes it first: nothing says which warpgroup has what."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 1), wd.WorkgroupConstraint(M, queries, 0), wd.TilingConstraint(N, keys)])
    def kernel(
        q: wd.Memory[B, M, D, wd.f16],
        k: wd.Memory[B, N, D, wd.f16],
        v: wd.Memory[B, N, E, wd.f16],
        o: wd.Memory[B, M, E, wd.f16],
        scale: wd.Scalar[wd.f32],
    ):
        top, total = wd.Register[M, wd.f32](-math.inf), wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, wd.Register[M, E, wd.f32](0.0)])
        def over_keys(top, total, acc):
            scores = wd.mma(wd.read(q), wd.read(k)) * (scale * math.log2(math.e))
            if causal:
                scores = wd.where(wd.index(N) <= wd.index(M), scores, -math.inf)
            new_top = wd.maximum(top, wd.max(scores, dim=N))
            p = wd.exp2(scores - new_top)
            keep = wd.exp2(top - new_top)
            return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.f16), wd.read(v), acc * keep)

        top, total, acc = over_keys
        wd.write(wd.cast(acc / total, wd.f16), o)

    return kernel


def guard(compiled: Any, warpgroups: int) -> None:
    """Nothing is spilled, products overlap, and so many warpgroups compute beside one that copies."""
    found = hopper.static(compiled.asm)
    assert (found.spills, found.codes) == (0, ())
    assert found.groups == len(re.findall(r"\bcommit_group\.sync", compiled.asm)) > 0
    assert compiled.block == (128 * (warpgroups + 1), 1, 1)


@pytest.mark.parametrize(
    ("queries", "keys", "d", "causal"),
    [
        (192, 128, 128, False),  # two warpgroups had 64 columns of v each, and all scores: 2888 bytes
        pytest.param(192, 96, 128, False, marks=pytest.mark.slow),  # 1112 bytes
        pytest.param(192, 80, 128, True, marks=pytest.mark.slow),
        pytest.param(192, 80, 64, True, marks=pytest.mark.slow),  # one warpgroup had all: 1720 bytes
    ],
)
def test_three_warpgroups_share_192_queries(queries: int, keys: int, d: int, causal: bool, oracle: Any) -> None:
    oracle("ptxas"), oracle("nvdisasm")
    subs = {B: 16, M: 1536, N: 1536, D: d, E: d}
    guard(attention(queries, keys, causal).compile(target="sm_90a", subs=subs), 3)


@pytest.mark.parametrize(
    ("queries", "keys", "d", "warpgroups"),
    [(192, 112, 128, 3), pytest.param(192, 144, 64, 3, marks=pytest.mark.slow)],
)
def test_products_do_not_run_on_where_that_takes_the_last_registers(
    queries: int, keys: int, d: int, warpgroups: int, oracle: Any
) -> None:
    """ptxas let each product wait for the one before it (C7512)."""
    oracle("ptxas"), oracle("nvdisasm")
    subs = {B: 16, M: 1536, N: 1680, D: d, E: d}
    guard(attention(queries, keys).compile(target="sm_90a", subs=subs), warpgroups)


def test_three_warpgroups_are_right() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, n, 128)).astype(np.float16) for n in (200, 150, 150))
    o, scale = np.zeros_like(q), np.float32(0.1)
    compiled = attention(192, 128).compile(q, k, v, o, scale, target="sm_90a")
    assert compiled.block == (512, 1, 1)
    compiled.emulate(q, k, v, o, scale, checks=True)
    s = (q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1)) * float(scale)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    assert np.abs(o - (p / p.sum(axis=-1, keepdims=True)) @ v.astype(np.float64)).max() < 4e-3


@pytest.mark.parametrize(
    ("tile", "warpgroups"),
    [
        ((256, 192), 2),  # four shared it for the epilogue's sake, in 112 registers: 1068 bytes
        pytest.param((192, 256), 2, marks=pytest.mark.slow),  # 752 bytes
        pytest.param((192, 192), 3, marks=pytest.mark.slow),
    ],
)
def test_epilogues_are_computed_part_by_part(tile: tuple[int, int], warpgroups: int, oracle: Any) -> None:
    oracle("ptxas"), oracle("nvdisasm")

    @wd.wave([wd.WorkgroupConstraint(M, tile[0], 0), wd.WorkgroupConstraint(N, tile[1], 1), wd.TilingConstraint(K, 64)])
    def gemm(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], bias: wd.Memory[N, wd.bf16],
        c: wd.Memory[M, N, wd.bf16],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        x = loop + wd.cast(wd.read(bias), wd.f32)
        wd.write(wd.cast(0.5 * x * (1 + wd.erf(x * 0.5**0.5)), wd.bf16), c)

    guard(gemm.compile(target="sm_90a", subs={M: 3072, N: 3072, K: 1024}), warpgroups)


@pytest.mark.parametrize(
    ("tile", "deep"),
    [
        ((256, 192), 64),  # 520 bytes with 128
        pytest.param((192, 192), 64, marks=pytest.mark.slow),  # 64 bytes in three warpgroups
        pytest.param((192, 256), 128, marks=pytest.mark.slow),
    ],
)
def test_less_of_k_is_turned_in_registers_where_they_lack(tile: tuple[int, int], deep: int, oracle: Any) -> None:
    """B of 8 bits as [K, N] passes through the registers of those that multiply; tiles of K are halved where it spills,
    and only there."""
    oracle("ptxas")

    m, n = tile

    @wd.wave([wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, 128)])
    def gemm(a: wd.Memory[M, K, wd.f8e4m3], b: wd.Memory[K, N, wd.f8e4m3], c: wd.Memory[M, N, wd.bf16]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.cast(loop, wd.bf16), c)

    compiled = gemm.compile(target="sm_90a", subs={M: 3072, N: 3072, K: 1024})
    assert not compiled.resources.spills
    (note,) = compiled.kernel_ir.notes["lowering"].loops
    assert note.trips == 1024 // deep


convolution = example_files.load("convolution")


@pytest.mark.parametrize(
    ("tile", "size", "channels"),
    [
        ((256, 128, 128), 3, 64),  # 616 bytes
        pytest.param((256, 64, 128), 3, 64, marks=pytest.mark.slow),  # 520 bytes
        pytest.param((192, 128, 128), 3, 64, marks=pytest.mark.slow),  # 136 bytes
        pytest.param((256, 128, 128), 3, 256, marks=pytest.mark.slow),  # 64 bytes
    ],
)
def test_a_pixel_alone_says_where_it_lies(tile: tuple[int, int, int], size: int, channels: int, oracle: Any) -> None:
    """A copying thread held line, column and offset of each of its 32 pixels in 104 registers."""
    oracle("ptxas"), oracle("nvdisasm")
    width, c = 28, convolution
    compiled = c.convolution_kernel(wd.f16, size, width, channels, tile).compile(
        target="sm_90a",
        subs={c.B: 8, c.H: width, c.W: width, c.C: channels, c.P: width**2, c.F: 256, c.K: size * size * channels},
    )
    guard(compiled, 2)


def test_what_spills_is_said_once(oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle("ptxas")
    monkeypatch.setattr(spill_warning, "_said", set())
    subs = {B: 16, M: 1536, N: 1536, D: 128, E: 128}
    kernel = attention(192, 144)
    with pytest.warns(wd.SpillWarning, match=r"for sm_90a spills: ptxas has each thread store \d+ bytes") as said:
        compiled = kernel.compile(target="sm_90a", subs=subs)
    assert [w.filename for w in said] == [__file__]
    assert compiled.resources.spills > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel.compile(target="sm_90a", subs=subs)
        assert not attention(192, 128).compile(target="sm_90a", subs=subs).resources.spills
