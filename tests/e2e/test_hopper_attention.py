"""Attention on the emulated sm_90a, with every check on: three rings, roles, turns, packed and paged sequences."""

from __future__ import annotations

import re
from typing import Any

import example_files
import numpy as np
import pytest
from hopper import strategy
from selected import slow

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

attention = example_files.load("attention")


@pytest.mark.parametrize(
    ("options", "sizes", "tile"),
    [
        ({}, (2, 128, 128, 64), (128, 64)),
        ({"causal": True, "lse": True}, (1, 77, 130, 128), (64, 64)),
        ({"window": 40, "causal": True, "sinks": True}, (2, 64, 96, 64), (64, 32)),
        ({"group": 2, "order": "bshd", "bias": True, "cap": 20.0}, (4, 64, 64, 64), (64, 32)),
        ({}, (1, 64, 100, 64), (64, 32)),
        slow({"causal": True, "lse": True}, (2, 256, 96, 64), (64, 32)),
        slow({}, (1, 64, 160, 256), (64, 32)),
    ],
    ids=["plain", "causal", "window", "grouped", "ragged", "unseen", "wide"],
)
def test_attention(options: dict[str, Any], sizes: tuple[int, int, int, int], tile: tuple[int, int]) -> None:
    """Nothing of the roles knows what a kernel computes: Q, K and V are three rings, bounds are worked out twice."""
    variant = attention.Variant(wd.bf16, **options)
    heads, m, n, d = sizes
    given = attention.arguments_of(variant, {"b": 1, "h": heads, "m": m, "n": n, "d": d, "e": d}, m + n)
    compiled = attention.attention_kernel(variant, tile=tile).compile(**given, target="sm_90a")
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    assert strategy(compiled).specialize and set(strategy(compiled).why) >= {"copies", "roles", "stages"}
    assert strategy(compiled).overlapped == (n > tile[1])


@pytest.mark.parametrize(
    ("dtype", "options", "sizes", "tile", "waves"),
    [
        (wd.f8e4m3, {"v_order": "bhds", "causal": True}, (2, 128, 176, 64), (128, 64), 2),
        slow(wd.f8e5m2, {"v_order": "bhds", "lse": True}, (2, 64, 192, 128), (64, 96), 1),
        slow(wd.f8e4m3, {"v_order": "bshd", "order": "bhsd"}, (2, 64, 100, 64), (64, 32), 1),
        slow(wd.f8e4m3, {"v_order": "bhds", "group": 2}, (2, 256, 128, 64), (128, 64), 2),
    ],
    ids=["causal", "three-blocks", "transposed", "shared-heads"],
)
def test_attention_of_8_bits(
    dtype: wd.DType, options: dict[str, Any], sizes: tuple[int, int, int, int], tile: tuple[int, int], waves: int
) -> None:
    """Keys come in pairs, so that no weight leaves its lane; where V's keys lie along memory, by bulk copies."""
    variant = attention.Variant(dtype, out=wd.bf16, **options)
    heads, m, n, d = sizes
    given = attention.arguments_of(variant, {"b": 1, "h": heads, "m": m, "n": n, "d": d, "e": d}, m + n)
    kernel = attention.attention_kernel(variant, tile=tile, waves=waves)
    if m == 2 * tile[0]:
        kernel.schedule = wd.Schedule(cluster=(2, 1, 1))  # each brings the pairs of one half to both
    compiled = kernel.compile(**given, target="sm_90a")
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    assert compiled.asm.count("shfl") <= 8 * 4
    assert ("multicast" in compiled.asm) == (m == 2 * tile[0])
    assert strategy(compiled).overlapped == (variant.v_order == "bhds")
    assert "st.shared.u8" not in compiled.asm  # where threads transpose V, they do so in blocks


@pytest.mark.parametrize(
    "schedule", [slow({"persistent": True}), slow({"stages": 1}), slow({"stages": 3}), slow({"specialize": False})]
)
def test_attention_by_schedules(schedule: dict[str, Any]) -> None:
    """Some workgroups see no key, others one block or several; slots and parities agree between roles and tiles."""
    variant = attention.Variant(wd.bf16, causal=True, lse=True)
    given = attention.arguments_of(variant, {"b": 1, "h": 2, "m": 256, "n": 96, "d": 64, "e": 64})
    kernel = attention.attention_kernel(variant, tile=(64, 32), waves=1)
    kernel.schedule = wd.Schedule(**schedule)
    compiled = kernel.compile(**given, target="sm_90a")
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    assert strategy(compiled).overlapped == (schedule.get("stages") != 1 and schedule.get("specialize", True))


@pytest.mark.parametrize("options", [{}, slow({"causal": True}), slow({"causal": True, "window": 50})])
def test_warpgroups_start_products_in_turn(options: dict[str, Any]) -> None:
    """Two warpgroups of one workgroup: one computes its softmax while the other's products run. Turns are even when a
    tile ends, whether it had trips or not, so that the next tile may begin."""
    variant = attention.Variant(wd.bf16, **options)
    given = attention.arguments_of(variant, {"b": 1, "h": 2, "m": 384, "n": 200, "d": 64, "e": 64})
    kernel = attention.attention_kernel(variant, tile=(128, 32), waves=2)
    kernel.schedule = wd.Schedule(persistent=True)
    compiled = kernel.compile(**given, target="sm_90a")
    assert strategy(compiled).turns and re.search(r"bar\.arrive\s+%r\d+, 256", compiled.asm)
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0


varlen = example_files.load("attention_varlen")
paged = example_files.load("attention_decode")


@pytest.mark.parametrize(
    ("options", "lengths", "keys", "heads", "d"),
    [
        ({"causal": True, "lse": True}, [70, 0, 129, 1], [70, 5, 129, 40], 2, 64),
        slow({}, [70, 64], [100, 31], 2, 128),
        slow({"window": 30, "causal": True, "group": 2}, [150], [150], 2, 64),
    ],
)
def test_packed_sequences(options: dict[str, Any], lengths: list[int], keys: list[int], heads: int, d: int) -> None:
    """Rows that belong to the next sequence have to become zero: tensor maps end where sequences do."""
    variant = varlen.Variant(wd.bf16, **options)
    given, extents = varlen.arguments_of(variant, lengths, keys, heads, d)
    compiled = varlen.varlen_kernel(variant, tile=(64, 32), waves=1).compile(**given, target="sm_90a", subs=extents)
    assert strategy(compiled).specialize and strategy(compiled).overlapped
    compiled.emulate(**given)
    assert varlen.check(variant, given) == 0


def test_a_sequence_sees_nothing_of_its_neighbours() -> None:
    """Tiles reach into the next sequence; what it holds must not count, be it NaN or infinite."""
    variant = varlen.Variant(wd.bf16)
    given, extents = varlen.arguments_of(variant, [40, 33, 0, 20], [40, 33, 7, 20], 1, 64)
    kernel = varlen.varlen_kernel(variant, tile=(64, 32), waves=1)
    compiled = kernel.compile(**given, target="sm_90a", subs=extents)
    compiled.emulate(**given)
    clean = given["o"].copy()
    given["q"][40:73], given["k"][40:80], given["v"][40:80] = np.nan, np.nan, np.inf
    compiled.emulate(**given)
    assert np.isnan(given["o"][40:73].astype(np.float32)).all()
    others = np.r_[0:40, 73:93]
    np.testing.assert_array_equal(given["o"][others], clean[others])


@pytest.mark.parametrize(
    ("lengths", "page", "splits", "tile", "d"),
    [([200, 64, 1], 64, 3, 32, 64), slow([200, 64, 1], 32, 2, 32, 128), slow([300], 64, 1, 64, 64)],
)
def test_pages(lengths: list[int], page: int, splits: int, tile: int, d: int) -> None:
    """The copying thread looks pages up in the table and the ends of loops in the lengths."""
    variant = paged.Variant(wd.bf16, group=4)
    given = paged.arguments_of(variant, lengths, 8, d, page, splits)
    pages = given["table"].shape[1]
    split = paged.split_kernel(variant, page=page, pages=pages, splits=splits, rows=64, tile=tile)
    for kernel in (split, paged.combine_kernel(variant)):
        arguments = {p.name: given[p.name] for p in kernel.parameters}
        compiled = kernel.compile(**arguments, target="sm_90a")
        compiled.emulate(**arguments)
        if kernel is split:
            assert strategy(compiled).specialize and strategy(compiled).overlapped
    assert paged.check(variant, given) == 0


def test_pages_past_the_table_give_nan() -> None:
    """A page number that no page has: the copy brings zeros, the kernel says so by NaN, and touches nothing else."""
    variant = paged.Variant(wd.bf16, group=4)
    given = paged.arguments_of(variant, [100, 100], 8, 64, 64, 1)
    given["table"][0, 1] = 1000
    split = paged.split_kernel(variant, page=64, pages=2, splits=1, rows=64, tile=32)
    arguments = {p.name: given[p.name] for p in split.parameters}
    split.compile(**arguments, target="sm_90a").emulate(**arguments)
    assert np.isnan(given["partial"][0]).all() and np.isfinite(given["partial"][1]).all()


def test_a_loop_with_bounds_refuses_clusters() -> None:
    """Workgroups of a cluster hand slots over together, so they must run the same trips."""
    variant = attention.Variant(wd.bf16, causal=True)
    kernel = attention.attention_kernel(variant, tile=(64, 64))
    kernel.schedule = wd.Schedule(cluster=(2, 1, 1))
    sizes = {attention.B: 1, attention.H: 2, attention.G: 2, attention.M: 128, attention.N: 128}
    with pytest.raises(wd.ConstraintError, match="bounds that may differ between workgroups"):
        kernel.compile(target="sm_90a", subs={**sizes, attention.D: 64, attention.E: 64})


@pytest.mark.parametrize("asked", [None, (2, 1, 1)])
def test_workgroups_pair_up_where_somebody_asks(asked: tuple[int, int, int] | None) -> None:
    a = attention
    subs = {a.B: 4, a.H: 32, a.G: 32, a.M: 4608, a.N: 4608, a.D: 128, a.E: 128}
    schedule = wd.Schedule(cluster=asked)
    kernel = attention.attention_kernel(attention.Variant(wd.bf16), tile=(128, 128), waves=2, schedule=schedule)
    compiled = kernel.compile(target="sm_90a", subs=subs)
    assert (".reqnctapercluster 2" in compiled.asm) == (asked is not None)
    said = next(x for x in compiled.decisions.reasons if x.startswith("cluster"))
    assert ("none" if asked is None else "as asked for") in said


H, M, N, D = wd.symbols("H M N D")


@wd.wave(
    [
        wd.WorkgroupConstraint(H, 1, 1), wd.WorkgroupConstraint(M, 128, 0), wd.TilingConstraint(N, 128),
        wd.WaveConstraint(M, 128 // 4),
    ]
)  # fmt: skip
def by_quarters(
    q: wd.Memory[H, M, D, wd.f16], k: wd.Memory[H, N, D, wd.f16], v: wd.Memory[H, N, D, wd.f16],
    o: wd.Memory[H, M, D, wd.f32],
):  # fmt: skip
    start = [wd.Register[M, wd.f32](-1e30), wd.Register[M, wd.f32](0.0), wd.Register[M, D, wd.f32](0.0)]

    @wd.iterate(N, init_args=start)
    def over(top, total, acc):
        scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0)) * 0.125
        new_top = wd.maximum(top, wd.max(scores, dim=N))
        p, keep = wd.exp2(scores - new_top), wd.exp2(top - new_top)
        return new_top, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.f16), wd.read(v), acc * keep)

    _, total, acc = over
    wd.write(acc / total, o)


def test_waves_of_32_rows_are_warpgroups_in_pairs() -> None:
    """Four of them were one warpgroup of 128 rows, whose registers had no room for two products at a time:
    by the replay 2636104 clocks for 64 heads of 4096 rows instead of 1082571."""
    compiled = by_quarters.compile(target="sm_90a", subs={H: 64, M: 4096, N: 4096, D: 128})
    assert strategy(compiled).overlapped
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((2, n, 64)).astype(np.float16) for n in (150, 140, 140))
    o = np.zeros((2, 150, 64), np.float32)
    by_quarters.compile(q, k, v, o, target="sm_90a").emulate(q, k, v, o)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    weights = np.exp2(q @ k.swapaxes(1, 2) * 0.125)
    np.testing.assert_allclose(o, weights @ v / weights.sum(-1, keepdims=True), atol=2e-3)
