"""Calls with run-time dimensions: one compile serves every size that divides alike, and vectors stay wide."""

from __future__ import annotations

import numpy as np
from wavedsl.runtime import launch

import wavedsl as wd

M, N, K = wd.symbols("M N K")


def test_run_time_sizes_share_a_compile(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path))

    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)],
        dynamic=[M, N, K],
    )
    def gemm(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    random = np.random.default_rng(11)
    for m, n, k, compiles in ((64, 64, 64, 1), (70, 192, 96, 1), (65, 71, 63, 2), (48, 80, 32, 2)):
        a, b = (random.integers(-4, 5, (rows, k)).astype(np.float16) for rows in (m, n))
        c = np.full((m, n), 7, np.float32)
        gemm(a, b, c)
        np.testing.assert_array_equal(c, a.astype(np.float32) @ b.T.astype(np.float32))
        assert len(launch._COMPILED[gemm]) == compiles
    first = next(iter(launch._COMPILED[gemm].values()))
    assert "buffer_load_dwordx4" in first.asm
    assert first.divisors["a"] == ((1, 16), (16, 1))


def test_one_row_of_a_wider_array(monkeypatch, tmp_path) -> None:
    """The stride of one row means nothing, so a call with one says nothing of calls with more. NumPy's number for it
    was a part of what calls were told apart by, but not of what the text relied on: later calls were refused."""
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path))

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 32, 1)], dynamic=[M])
    def double(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        wd.write(wd.read(a) * 2, b)

    whole = np.arange(20 * 80, dtype=np.float16).reshape(20, 80)
    for rows in (1, 20, 1, 3):
        for a in (whole[:rows, :40], whole[:rows, ::2], whole[:rows, 3:43]):
            b = np.zeros((rows, 80), np.float16)
            double(a, b[:, 8:48])
            np.testing.assert_array_equal(b[:, 8:48], 2 * a)
            assert not b[:, :8].any() and not b[:, 48:].any()
