"""What the compiler refuses for cuts and layouts is known before a compile: the same candidates, in the same words."""

from __future__ import annotations

from typing import Any

import pytest
from tune_kernels import BK, BM, BN, K, M, N, free, gemm, measured, right
from wavedsl.ir.errors import WaveError

import wavedsl as wd
from wavedsl.tuning import tune
from wavedsl.tuning.candidates import check_space, enumerate_space
from wavedsl.tuning.misfits import Misfits
from wavedsl.tuning.tuner import Steps
from wavedsl.tuning.work import compile_candidate

D = wd.sym.D


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.TilingConstraint(N, BN)])
def triangle(a: wd.Memory[M, D, wd.SHARED, wd.f16], b: wd.Memory[N, D, wd.SHARED, wd.f16], c: wd.Memory[M, D, wd.f32]):
    """A loop whose end depends on the tile, as in causal attention."""
    acc = wd.Register[M, D, wd.f32](0.0)

    @wd.iterate(N, init_args=[acc], stop=wd.tile_start(M) + BM)
    def loop(acc: wd.Register[M, D, wd.f32]):
        x = wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0))
        return wd.mma(wd.cast(x, wd.f16), wd.read(b), acc)

    wd.write(loop, c)


WAVES = {BM: [32, 128], BN: [64], BK: [64], "specialize": [0, 1], "persistent": [0, 1], "cluster": [1, 2]}
TURNS = {
    BM: [64, 128], BN: [64, 256], BK: [32], "persistent": [1], "ping_pong": [0, 1],
    "registers": [None, (40, 232), (24, 240)],
}  # fmt: skip
RANGES = {BM: [64], BN: [64], "stages": [2], "ping_pong": [0, 1], "cluster": [1, 2], "persistent": [1]}
DIRECT = {BM: [16, 64], BN: [16], BK: [16, 128], "stages": [3], "direct_to_shared": [0, 1]}
PADDED = {BM: [64], BN: [16], BK: [128], "stages": [2, 3]}
SIZES = {M: 512, N: 512, K: 512}
LARGE = {M: 2048, N: 2048, K: 512}
"""Tiles enough that the compiler does not cut along K."""
LONG = {M: 64, N: 512, K: 8192}
"""Few tiles and many trips: it does, and where that cannot be it takes the whole loop."""
CASES = {
    "waves": (gemm, "sm_90a", SIZES, WAVES, "no product of the kernel is a warpgroup's"),
    "registers": (free, "sm_90a", SIZES, TURNS, "2 warpgroups start with 256 registers"),
    "turns": (free, "sm_90a", SIZES, TURNS, "a tile is computed by 2 warpgroups together"),
    "ranges": (triangle, "sm_90a", {M: 256, N: 256, D: 64}, RANGES, "a loop has a range of its own"),
    "clusters": (triangle, "sm_90a", {M: 256, N: 256, D: 64}, RANGES, "bounds that may differ between workgroups"),
    "copies": (gemm, "gfx942", LARGE, DIRECT, "cannot be copied without passing through registers"),
    "copies in parts": (gemm, "gfx942", LONG, DIRECT, "cannot be copied without passing through registers"),
    "padded parts": (gemm, "gfx942", LONG, PADDED, "exceeds the 16384 bytes"),
    "copies of 16 bytes": (free, "gfx950", LARGE, DIRECT, "cannot be copied without passing through registers"),
    "padded": (gemm, "gfx942", SIZES, PADDED, "exceeds the 16384 bytes"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_compiler_refuses_what_is_found_and_nothing_else(case: str) -> None:
    kernel, target, sizes, space, expected = CASES[case]
    misfits = Misfits(kernel, sizes, (), target)
    said, refused = {}, {}
    for c in enumerate_space(check_space(kernel, space)):
        said[c.key] = misfits.reason(c)
        try:
            kernel.variant(c).compile(target=target, subs={**sizes, **dict(c.subs)})
            refused[c.key] = ""
        except WaveError as error:
            refused[c.key] = error.message
    assert said == refused
    assert any(expected in reason for reason in said.values()) and not all(said.values())


def test_the_compiler_cuts_along_k() -> None:
    """Else "in parts" would be no case of its own."""
    one = {BM: 64, BN: 16, BK: 128}
    notes = gemm.compile(target="gfx942", subs={**LONG, **one}).kernel_ir.notes["decisions"].reasons
    assert any(r.startswith("split_k: ") and not r.startswith("split_k: 1 ") for r in notes)


def test_run_time_extents_stay_open() -> None:
    """What depends on an extent that a launch gives is no reason."""
    space = {BM: [64], BN: [64], BK: [64], "cluster": [1, 2], "persistent": [1]}
    (one, two) = enumerate_space(check_space(free, space))
    sizes = {M: 64, N: 512, K: 512}
    assert "1 tiles, no multiple of 2" in Misfits(free, sizes, (), "sm_90a").reason(two)
    assert Misfits(free, sizes, (), "sm_90a").reason(one) == ""
    assert Misfits(free, sizes, (M,), "sm_90a").reason(two) == ""


def test_no_slot_of_a_run_goes_to_them(tmp_path: Any) -> None:
    """One candidate of three can be compiled, and it is not the first by its key."""
    space = {**TURNS, BM: [64], BN: [64], "ping_pong": [0], "registers": [(24, 240), (40, 232), (56, 256)]}
    found = tune(
        free, subs=SIZES, space=space, target="sm_90a", results=tmp_path / "r.json", limit=1, workers=1,
        steps=Steps(compile_candidate, right, measured),
    )  # fmt: skip
    assert found.count("refused") == 0 and found.best is not None and "56:256" in found.best.key
    reasons = [e["reason"] for e in found.entries.values() if e["status"] == "pruned"]
    assert len(reasons) == 2 and all("2 warpgroups start with 256 registers" in r for r in reasons)
