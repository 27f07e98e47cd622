"""Warpgroups that pass by trips outside of the bounds of their own rows (`iterate(per_wave=True)`)."""

from __future__ import annotations

from typing import Any

import example_files
import numpy as np
import products
import pytest

import wavedsl as wd

attention = example_files.load("attention")
M, N, K, D, BM, BN = wd.symbols("M N K D BM BN")


def attend(sizes: dict[str, int], tile: tuple[int, int], waves: int, **options: Any) -> wd.CompiledKernel:
    """Attention on sm_90a, on the emulator with all checks, within the bound of float64; what was compiled."""
    schedule = options.pop("schedule", None)
    variant = attention.Variant(wd.bf16, **options)
    given = attention.arguments_of(variant, {"b": 1, "e": sizes["d"], **sizes})
    kernel = attention.attention_kernel(variant, tile=tile, waves=waves, schedule=schedule)
    compiled = kernel.compile(**given, target="sm_90a")
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    return compiled


def strategy(compiled: wd.CompiledKernel) -> Any:
    return compiled.kernel_ir.notes["lowering"].strategy


def passes(compiled: wd.CompiledKernel) -> int:
    """Loops in which slots are given back unread."""
    loops = [op for op in compiled.kernel_ir.body.walk() if op.name == "for"]
    return sum(op.attrs.get("label", "").startswith("pass_") for op in loops)


@pytest.mark.parametrize(
    ("options", "sizes", "loops"),
    [
        ({"causal": True}, {"h": 2, "m": 300, "n": 300, "d": 64}, 1),
        ({"causal": True, "lse": True}, {"h": 1, "m": 450, "n": 200, "d": 64}, 1),  # rows that see no key
        ({"causal": True}, {"h": 1, "m": 70, "n": 500, "d": 64}, 0),  # one tile: its trips are known
        ({"window": 50, "causal": True}, {"h": 1, "m": 400, "n": 420, "d": 64}, 2),
        ({"window": 130}, {"h": 1, "m": 330, "n": 420, "d": 64}, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("waves", [2, 3])
def test_masked_attention(options: dict[str, Any], sizes: dict[str, int], loops: int, waves: int) -> None:
    compiled = attend(sizes, (64 * waves, 32), waves, **options)
    assert strategy(compiled).turns == (waves == 2)
    assert passes(compiled) == loops
    assert any(line.startswith("trips: ") for line in strategy(compiled).lines()) == bool(loops)


@pytest.mark.parametrize("waves", [2, 3, 4, 6])
@pytest.mark.parametrize("options", [{"causal": True}, {"window": 50, "causal": True}, {}])
def test_products_in_turn(options: dict[str, Any], waves: int) -> None:
    """Asked for, also among more than two warpgroups, which run unlike trips; forbidden, among two."""
    for asked in (True, False):
        schedule = wd.Schedule(products_in_turn=asked)
        sizes = {"h": 3, "m": 70 * waves, "n": 80 * waves, "d": 64}
        compiled = attend(sizes, (64 * waves, 32), waves, schedule=schedule, **options)
        assert strategy(compiled).turns == asked
        names = {op.name for op in compiled.kernel_ir.body.walk()}
        assert names.issuperset({"turn.take", "turn.give"}) == asked


@pytest.mark.parametrize("cluster", [(1, 2), (1, 1)])
def test_workgroups_that_share_keys_give_slots_back_to_each_other(cluster: tuple[int, int]) -> None:
    sizes = {"h": 4, "m": 400, "n": 400, "d": 64}
    schedule = wd.Schedule(cluster=cluster)
    compiled = attend(sizes, (192, 32), 3, causal=True, group=4, schedule=schedule)
    assert strategy(compiled).cluster == cluster[1] and passes(compiled) == 1


def test_each_warpgroup_runs_the_blocks_of_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 x 64 rows and blocks of 64 keys the last warpgroup alone runs them all: at 512 keys 12 of 48 blocks lie
    behind all rows of their warpgroup."""

    def products_run() -> int:
        variant = attention.Variant(wd.bf16, causal=True)
        given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": 512, "n": 512, "d": 64, "e": 64})
        compiled = attention.attention_kernel(variant, tile=(256, 64), waves=4).compile(**given, target="sm_90a")
        report = compiled.emulate(**given)
        return sum(n for name, n in report.instructions.items() if name.startswith("wgmma.mma_async"))

    apart = products_run()
    monkeypatch.setattr(attention.Variant, "masks", False)
    assert apart / products_run() == (48 - 12) / 48


@wd.wave(
    [wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(N, BN), wd.WaveConstraint(M, BM / 2)],
    subs={BM: 128, BN: 32},
)
def masked_sums(
    q: wd.Memory[M, D, wd.SHARED, wd.f16], k: wd.Memory[N, D, wd.SHARED, wd.f16], y: wd.Memory[M, wd.f32]
):
    """Sums of scores over keys that are not behind their query; waves meet in each trip."""

    @wd.iterate(N, [wd.Register[M, wd.f32](0.0)], stop=wd.tile_stop(M), per_wave=True)
    def loop(total):
        scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0))
        hidden = wd.where(wd.index(N) <= wd.index(M), scores, 0.0)
        wd.fence()
        return total + wd.sum(hidden, dim=N)

    wd.write(loop, y)


def test_warpgroups_that_meet_in_a_trip_run_the_same_ones() -> None:
    rng = np.random.default_rng(0)
    q, k = (rng.integers(-3, 4, (300, 64)).astype(np.float16) for _ in range(2))
    y = np.full(300, np.nan, np.float32)
    compiled = masked_sums.compile(q, k, y, target="sm_90a")
    compiled.emulate(q, k, y)
    scores = q.astype(np.float64) @ k.T.astype(np.float64)
    assert np.array_equal(y, np.where(np.tri(300, dtype=bool), scores, 0).sum(1))
    assert strategy(compiled).specialize and not passes(compiled)


@pytest.mark.parametrize("target", products.TARGETS)
def test_elsewhere_waves_keep_step(target: str) -> None:
    variant = attention.Variant(wd.bf16, causal=True)
    given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": 200, "n": 200, "d": 64, "e": 64})
    compiled = attention.attention_kernel(variant, tile=(128, 32)).compile(**given, target=target)
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0 and not passes(compiled)


def test_without_bounds_there_is_nothing_to_take() -> None:
    def body(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
        @wd.iterate(N, per_wave=True)
        def loop():
            wd.write(wd.read(x), y)

    kernel = wd.wave([wd.TilingConstraint(N, 64)])(body)
    with pytest.raises(wd.TraceError, match="per_wave=True, but the loop has no bounds"):
        kernel.compile(np.zeros(64, np.float32), np.zeros(64, np.float32), target="gfx942")
