"""Clocks from the kernel IR against clocks of the emitted text, which the emulator runs and the cycle model replays."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from tune_kernels import BK, BM, BN, K, M, N, gemm
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.analysis import played
from wavedsl.tuning.candidates import Candidate


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(N, BN)], subs={BM: 4, BN: 128})
def row_sum(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, wd.f32]):
    total = wd.Register[M, wd.f32](0.0)

    @wd.iterate(N, init_args=[total])
    def loop(total: wd.Register[M, wd.f32]):
        return total + wd.sum(wd.read(a), dim=N)

    wd.write(loop, b)


def both(kernel, target, subs, shapes):
    """(predicted clocks of the fullest unit, those of the text) of a launch whose first workgroup is emulated."""
    compiled = kernel.compile(target=target, subs=subs)
    report = sample(compiled, [np.zeros(shape, dtype) for shape, dtype in shapes])
    assert prod(compiled.grid) > 1
    return wd.analyze(compiled, subs=subs).clocks, report.cycles


def matrices(m, n, k):
    return [((m, k), np.float16), ((n, k), np.float16), ((m, n), np.float32)]


@pytest.mark.parametrize(
    ("target", "m", "k", "tiles"),
    [
        ("gfx942", 1024, 256, {BM: 64, BN: 64, BK: 64}),  # less than one workgroup per compute unit
        ("gfx950", 2048, 256, {BM: 32, BN: 64, BK: 128}),  # several that reside together
        ("gfx90a", 1024, 1024, {BM: 64, BN: 64, BK: 32}),  # a long loop, most of which is not played
    ],
)
def test_predicted_clocks_are_those_of_the_text(target, m, k, tiles):
    predicted, measured = both(gemm, target, {M: m, N: 1024, K: k, **tiles}, matrices(m, 1024, k))
    assert predicted == pytest.approx(measured, rel=0.12)


def test_units_do_as_much_however_many_workgroups_are_played_together(monkeypatch):
    """What most trips of a long loop, which are not played, keep units busy counts once for all workgroups."""
    subs = {M: 1024, N: 1024, K: 512, BM: 32, BN: 64, BK: 32}
    one = gemm.variant(Candidate((("BK", 32), ("BM", 32), ("BN", 64)), (("stages", 1),)))
    compiled = one.compile(target="gfx90a", subs=subs)
    found = []
    for together in (1, 4):
        monkeypatch.setattr(played, "TOGETHER", together)
        record = wd.analyze(compiled, subs=subs)
        found.append(record.utilisation["mfma"] * record.clocks)
    assert found[1] == pytest.approx(found[0], rel=0.02)  # waves are not at the same place when the trips are over


def test_lanes_that_ask_for_the_same_bytes_do_not_ask_l2_for_more():
    """Tiles of half as many vectors as the workgroup has lanes: a quarter of what lanes ask for are the same lines."""
    subs = {M: 1024, N: 1024, K: 512, BM: 32, BN: 64, BK: 32}
    one = gemm.variant(Candidate((("BK", 32), ("BM", 32), ("BN", 64)), (("stages", 1),)))
    record = wd.analyze(one.compile(target="gfx90a", subs=subs), subs=subs)
    assert record.seconds_by["l2"] <= record.seconds_by["issue"] == record.seconds


def test_a_loop_without_products_is_played_too():
    predicted, measured = both(row_sum, "gfx950", {M: 1024, N: 1024}, [((1024, 1024), np.float32), (1024, np.float32)])
    assert predicted == pytest.approx(measured, rel=0.3)


def test_the_clocks_of_a_sampled_workgroup_are_those_of_its_launch():
    subs = {M: 512, N: 512, K: 64, BM: 64, BN: 64, BK: 32}
    compiled = gemm.compile(target="gfx942", subs=subs)
    arrays = [np.zeros(shape, dtype) for shape, dtype in matrices(512, 512, 64)]
    whole = compiled.emulate(*arrays, checks=False)
    part = sample(compiled, arrays)
    assert part.cycles == pytest.approx(whole.cycles, rel=0.02)
    assert sum(part.instructions.values()) * 64 == sum(whole.instructions.values())
