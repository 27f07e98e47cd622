"""Tiles that a condition leaves out keep copying warpgroups: whoever copies works the condition out as well.

Blocks of experts that are not used, batches that are done, tiles outside of a mask: text against NumPy, all checks on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wavedsl as wd

T, G, R, E, N, K, M, D, F = wd.symbols("T G R E N K M D F")
rng = np.random.default_rng(29)


def small(shape: tuple[int, ...], dtype: Any = np.float16) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(dtype)


def roles(compiled: Any) -> bool:
    found = compiled.kernel_ir.notes["lowering"].strategy
    return bool(found.specialize)


def experts(gathered: bool, **schedule: Any) -> Any:
    """A product per block of rows with its expert's matrix; blocks of no expert are left out."""
    cut = [wd.WorkgroupConstraint(G, 1, 2), wd.WorkgroupConstraint(R, 128, 0), wd.WorkgroupConstraint(N, 64, 1)]

    @wd.wave([*cut, wd.TilingConstraint(K, 64)], schedule=wd.Schedule(**schedule))
    def kernel(
        x: wd.Memory[T, K, wd.f16], w: wd.Memory[E, N, K, wd.f16], ids: wd.Memory[G, R, wd.i32],
        owner: wd.Memory[G, wd.i32], y: wd.Memory[G, R, N, wd.f32],
    ):  # fmt: skip
        mine = wd.read(owner)
        wd.exit_if(mine < 0)
        where = wd.IndexMapping((R, K), {T: wd.read(ids) if gathered else wd.index(R) + 128 * wd.index(G)})

        @wd.iterate(K, init_args=[wd.Register[R, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=where), wd.read(w, mapping=wd.IndexMapping((N, K), {E: mine})), acc)

        wd.write(loop, y)

    return kernel


@pytest.mark.parametrize("gathered", [True, False])
@pytest.mark.parametrize(
    "schedule", [{}, {"persistent": True}, {"persistent": True, "stages": 3}, {"persistent": False}], ids=str
)
def test_blocks_of_no_expert(schedule: dict[str, Any], gathered: bool) -> None:
    owner = np.array([-1, 2, 0, -1, -1, 1, 1, 2, -1], np.int32)
    x, w = small((9 * 128, 192)), small((3, 136, 192))
    ids = rng.permutation(9 * 128).reshape(9, 128).astype(np.int32) if gathered else np.arange(9 * 128).reshape(9, 128)
    y = np.full((9, 128, 136), 7, np.float32)
    kernel = experts(gathered, **schedule)
    given = (x, w, ids.astype(np.int32), owner, y)
    compiled = kernel.compile(*given, target="sm_90a")
    compiled.emulate(*given)
    assert roles(compiled)
    want = np.full_like(y, 7)
    for g, e in enumerate(owner):
        if e >= 0:
            want[g] = x[ids[g]].astype(np.float32) @ w[e].astype(np.float32).T
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("schedule", [{"cluster": (1, 2, 1)}, {"ping_pong": True, "persistent": True}], ids=str)
def test_what_others_count_on_is_refused(schedule: dict[str, Any]) -> None:
    """Of a tile that is left out nothing is copied for others of the cluster, and a team could not tell which slots it
    would have used."""
    given = small((9 * 128, 64)), small((3, 136, 64)), np.zeros((9, 128), np.int32), np.zeros(9, np.int32)
    y = np.zeros((9, 128, 136), np.float32)
    with pytest.raises(wd.ConstraintError, match="a condition says which tiles are computed"):
        experts(False, **schedule).compile(*given, y, target="sm_90a")


@pytest.mark.parametrize("persistent", [None, True])
def test_two_conditions_and_what_a_loop_does_not_change(persistent: bool | None) -> None:
    """Queries have a ring outside of the loop, inside of both branches; lengths also end the loop."""
    cut = [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(G, 1, 1), wd.TilingConstraint(N, 64)]

    @wd.wave(cut, schedule=wd.Schedule(persistent=persistent))
    def kernel(
        q: wd.Memory[G, M, D, wd.f16], k: wd.Memory[G, N, D, wd.f16], v: wd.Memory[G, N, F, wd.f16],
        lengths: wd.Memory[G, wd.i32], on: wd.Memory[G, wd.i32], y: wd.Memory[G, M, F, wd.f32],
    ):  # fmt: skip
        wd.exit_if(wd.read(on) == 0)
        keys = wd.read(lengths)
        wd.exit_if(wd.tile_start(M) >= keys)

        @wd.iterate(N, init_args=[wd.Register[M, F, wd.f32](0.0)], stop=keys)
        def loop(acc):
            scores = wd.mma(wd.read(q), wd.read(k), wd.Register[M, N, wd.f32](0.0))
            scores = wd.where(wd.index(N) < keys, scores, 0.0)
            return wd.mma(wd.cast(scores, wd.f16), wd.read(v), acc)

        wd.write(loop, y)

    q, k, v = (small((6, 192, 64)) for _ in range(3))
    lengths, on = np.array([192, 0, 64, 100, 1, 150], np.int32), np.array([1, 1, 0, 1, 1, 1], np.int32)
    y = np.full((6, 192, 64), 7, np.float32)
    compiled = kernel.compile(q, k, v, lengths, on, y, target="sm_90a")
    compiled.emulate(q, k, v, lengths, on, y)
    assert roles(compiled)
    want = np.full_like(y, 7)
    for g in range(6):
        n, rows = lengths[g], -(-lengths[g] // 64) * 64
        if on[g]:
            s = q[g, :rows].astype(np.float32) @ k[g, :n].astype(np.float32).T
            want[g, :rows] = s @ v[g, :n].astype(np.float32)
    np.testing.assert_array_equal(y, want)


def summed(schedule: wd.Schedule | None = None) -> Any:
    """A product whose batches are left out by the sum of a row, which nobody else knows."""
    cut = [wd.WorkgroupConstraint(G, 1, 2), wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1)]

    @wd.wave([*cut, wd.TilingConstraint(K, 32)], schedule=schedule)
    def kernel(
        x: wd.Memory[G, M, K, wd.f16], w: wd.Memory[N, K, wd.f16], weight: wd.Memory[G, D, wd.f32],
        y: wd.Memory[G, M, N, wd.f32],
    ):  # fmt: skip
        wd.exit_if(wd.sum(wd.read(weight), dim=D) == 0.0)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x), wd.read(w), acc)

        wd.write(loop, y)

    return kernel


def test_conditions_of_computed_values_keep_all_threads_together() -> None:
    x, w, weight = small((3, 100, 96)), small((64, 96)), np.ones((3, 40), np.float32)
    weight[1] = 0
    y = np.full((3, 100, 64), 7, np.float32)
    compiled = summed().compile(x, w, weight, y, target="sm_90a")
    compiled.emulate(x, w, weight, y)
    assert not roles(compiled)
    want = x.astype(np.float32) @ w.astype(np.float32).T
    want[1] = 7
    np.testing.assert_array_equal(y, want)
    with pytest.raises(wd.ConstraintError, match=r"depends on a value it computes \(wd.cond or wd.exit_if\)"):
        summed(wd.Schedule(specialize=True)).compile(x, w, weight, y, target="sm_90a")
