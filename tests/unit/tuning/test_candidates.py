"""The search space: derived values, refused ones, and what is dropped before anything is compiled."""

from __future__ import annotations

import json

import pytest
from tune_kernels import BK, BM, BN, K, M, N, centred, double, free, gemm, grouped

import wavedsl as wd
from wavedsl.analysis import product_named
from wavedsl.find_kernel import parse_space
from wavedsl.targets import get_target
from wavedsl.tuning.candidates import (
    SCHEDULE,
    Candidate,
    check_space,
    derive_space,
    enumerate_space,
    estimate,
    tile_symbols,
)

SIZES = {M: 1024, N: 1024, K: 1024}


def judge(kernel, target, sizes=SIZES, **choice):
    fixed = {name: choice.pop(name) for name in SCHEDULE if name in choice}
    candidate = Candidate(tuple(sorted(choice.items())), tuple(sorted(fixed.items())))
    return estimate(kernel, candidate, sizes, get_target(target), product_named(None, target))


def test_the_derived_space_covers_tiles_and_stages():
    space = derive_space(gemm, SIZES, get_target("gfx942"))
    assert tile_symbols(gemm) == [BM, BN, BK]
    assert space == {
        BM: (16, 32, 64, 128, 256),
        BN: (16, 32, 64, 128, 256),
        BK: (16, 32, 64, 128),
        "stages": (1, 2, 3, 4),
        "direct_to_shared": (0, 1),
    }
    assert len(enumerate_space(space)) == 5 * 5 * 4 * 4 * 2


def test_the_derived_space_has_what_a_chip_leaves_open():
    """Roles, clusters and persistent workgroups where warpgroups have the matrix instructions."""
    choices = {"specialize": (0, 1), "cluster": (1, 2, (2, 2)), "persistent": (0, 1)}
    space = derive_space(gemm, SIZES, get_target("sm_90a"))
    assert {k: v for k, v in space.items() if k in choices} == choices
    for kernel, target in ((gemm, "sm_80"), (double, "sm_90a"), (double, "gfx950")):
        names = {k for k in derive_space(kernel, SIZES, get_target(target)) if isinstance(k, str)}
        assert names <= {"stages"}


def test_choices_of_the_schedule_reach_the_kernel():
    (c,) = enumerate_space(
        check_space(gemm, {BM: [64], "cluster": [(2, 1, 1)], "specialize": [True], "prefetch": [2]})
    )  # fmt: skip
    assert c.key == "BM=64 cluster=2 prefetch=2 specialize=1" and Candidate.from_json(c.to_json()) == c
    assert gemm.variant(c).schedule == wd.Schedule(cluster=(2, 1, 1), specialize=True, prefetch=2)


def test_clusters_along_both_axes_are_choices():
    """Pairs beside numbers; what either axis shares is read once, which counts where tiles are narrow."""
    values = [1, (2, 1, 1), (1, 2, 1), (2, 2), [4, 2]]
    found = enumerate_space(check_space(gemm, {BM: [64], "cluster": values}))
    assert [c.key for c in found] == [f"BM=64 cluster={x}" for x in ("1", "1:2", "2", "2:2", "4:2")]
    assert all(Candidate.from_json(json.loads(json.dumps(c.to_json()))) == c for c in found)
    shapes = [gemm.variant(c).schedule.cluster for c in found]
    assert shapes == [(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (4, 2, 1)]
    tile = {"BM": 16, "BN": 128, "BK": 64, "stages": 4, "specialize": 1, "persistent": 1}
    seconds = [judge(gemm, "sm_90a", **tile, cluster=n).seconds for n in ((2, 2), 2, 1)]
    assert seconds[0] < seconds[1] < seconds[2]


def test_turns_shared_trips_and_registers_are_choices_too():
    space = {"ping_pong": [True, False], "stream_k": [False, True, 66], "registers": [None, (40, 232)]}
    found = {c.key: c for c in enumerate_space(check_space(gemm, {BM: [64], **space}))}
    assert len(found) == 12
    c = found["BM=64 ping_pong=1 registers=40:232 stream_k=66"]
    assert Candidate.from_json(json.loads(json.dumps(c.to_json()))) == c
    assert gemm.variant(c).schedule == wd.Schedule(ping_pong=True, stream_k=66, registers=(40, 232))
    own = found["BM=64 ping_pong=0 registers=0:0 stream_k=1"]
    assert gemm.variant(own).schedule == wd.Schedule(ping_pong=False, stream_k=True)
    given = parse_space(["ping_pong=0/1,stream_k=0/1/66", "registers=40:232/56:224"])
    assert check_space(gemm, given) == {
        "ping_pong": (0, 1), "stream_k": (0, 1, 66), "registers": ((40, 232), (56, 224)),
    }  # fmt: skip
    assert check_space(gemm, {"registers": (40, 232)}) == {"registers": ((40, 232),)}


def test_tiles_stop_at_the_extent():
    space = derive_space(gemm, {M: 40, N: 1024, K: 17}, get_target("gfx942"))
    assert space[BM] == (16, 32, 64) and space[BK] == (16, 32)


def test_a_kernel_without_a_loop_has_no_stages():
    assert "stages" not in derive_space(double, {M: 64, N: 64}, get_target("sm_80"))


def test_candidates_have_keys_and_json():
    c = Candidate((("BK", 32), ("BM", 64)), (("stages", 2),))
    assert c.key == "BK=32 BM=64 stages=2"
    assert Candidate.from_json(c.to_json()) == c
    for bad in ({}, {"subs": {"BM": "64"}, "schedule": {}}, {"subs": {"BM": 64.5}, "schedule": {}}):
        with pytest.raises((KeyError, ValueError, TypeError)):
            Candidate.from_json(bad)


@pytest.mark.parametrize(
    ("target", "choice", "why"),
    [
        ("gfx942", {"BM": 256, "BN": 256, "BK": 128, "stages": 2}, "bytes of shared tiles"),
        ("sm_80", {"BM": 256, "BN": 256, "BK": 128, "stages": 2}, "bytes of shared tiles"),
        ("sm_80", {"BM": 256, "BN": 512, "BK": 16, "stages": 1}, "accumulators of"),
        ("sm_90a", {"BM": 128, "BN": 128, "BK": 64, "cluster": 2, "specialize": 0}, "needs a copying warpgroup"),
        ("sm_90a", {"BM": 128, "BN": 64, "BK": 64, "cluster": 3}, "the first grid axis has 8 tiles, no multiple of 3"),
        ("sm_90a", {"BM": 128, "BN": 64, "BK": 64, "cluster": (2, 3)}, "the second grid axis has"),
        ("sm_90a", {"BM": 128, "BN": 64, "BK": 64, "cluster": (2, 2), "persistent": 0}, "take their tiles in turn"),
        ("sm_90a", {"BM": 32, "BN": 32, "BK": 64, "specialize": 1}, "no product of the kernel is a warpgroup's"),
        ("sm_80", {"BM": 64, "BN": 64, "BK": 64, "ping_pong": 1}, "ping_pong=True) is not available on sm_80"),
        ("sm_80", {"BM": 64, "BN": 64, "BK": 64, "registers": (40, 232)}, "not available on sm_80"),
        ("sm_90a", {"BM": 128, "BN": 64, "BK": 64, "registers": (40, 232), "specialize": 0}, "a copying warpgroup"),
        ("sm_90a", {"BM": 64, "BN": 64, "BK": 64, "ping_pong": 1, "specialize": 0}, "beside a copying warpgroup only"),
        ("sm_90a", {"BM": 64, "BN": 64, "BK": 64, "ping_pong": 1, "persistent": 0}, "persistent workgroups only"),
        ("gfx942", {"BM": 64, "BN": 64, "BK": 64, "stream_k": 1, "split_k": 2}, "split_k=2 and stream_k=True"),
        ("gfx942", {"BM": 64, "BN": 64, "BK": 64, "ping_pong": 1}, "want 8 waves, the tiles have 4"),
        ("gfx942", {"BM": 25, "BN": 64, "BK": 16, "stages": 1}, "not a whole number"),
    ],
)
def test_what_a_chip_cannot_hold_is_dropped_with_the_reason(target, choice, why):
    assert why in judge(gemm, target, **choice).reason


def test_a_tile_of_two_warpgroups_is_one_of_eight_warps():
    """Four warps would hold 256 sums in each lane, more than there are registers: eight have 128, as two warpgroups."""
    big = {"BM": 128, "BN": 256, "BK": 64, "stages": 3}
    assert judge(free, "sm_90a", **big).reason == "" and judge(free, "sm_80", **big).reason == ""
    assert free.compile(target="sm_90a", subs={**SIZES, BM: 128, BN: 256, BK: 64}).block == (384, 1, 1)
    assert free.compile(target="sm_80", subs={**SIZES, BM: 128, BN: 256, BK: 64}).block == (256, 1, 1)
    assert "accumulators of 256" in judge(gemm, "sm_80", **big).reason  # where the kernel says who has what


def test_a_kernel_without_a_loop_shares_no_trips():
    sizes = {M: 1024, N: 1024}
    assert "wants a loop" in judge(double, "gfx942", sizes, BM=16, BN=64, stream_k=1).reason


def test_elementwise_limits():
    sizes = {M: 1024, N: 1024}
    assert "leave lanes" in judge(double, "gfx942", sizes, BM=2, BN=16).reason
    assert judge(double, "gfx942", sizes, BM=256, BN=2048).reason == ""  # a workgroup takes fewer rows
    assert "more than 64 per lane" in judge(centred, "gfx942", {M: 4, N: 1 << 17}, BM=4).reason
    assert judge(double, "gfx942", sizes, BM=16, BN=64).reason == ""


def test_the_quick_estimate_prefers_filled_chips_and_reuse():
    def seconds(**choice):
        found = judge(gemm, "gfx942", **choice)
        assert found.reason == ""
        return found.seconds

    assert seconds(BM=64, BN=64, BK=32, stages=2) < seconds(BM=16, BN=16, BK=32, stages=2)
    assert seconds(BM=64, BN=64, BK=32, stages=2) < seconds(BM=256, BN=128, BK=32, stages=2)
    assert seconds(BM=64, BN=64, BK=32, stages=2) < seconds(BM=64, BN=64, BK=32, stages=1)


@pytest.mark.parametrize(
    ("space", "why"),
    [
        ({BM: []}, "search space is empty"),
        ({wd.sym.XX: [1]}, "sizes no tile of gemm"),
        ({BM: [0]}, "whole numbers from 1 on"),
        ({"cluster": [0]}, "whole numbers from 1 on"),
        ({"cluster": [(1, 1, 2)]}, "or pairs of them"),
        ({"cluster": [(2, 0)]}, "or pairs of them"),
        ({"specialize": [2]}, "True and False"),
        ({"ping_pong": [2]}, "True and False"),
        ({"stream_k": [-1]}, "a number of workgroups"),
        ({"registers": [40]}, r"None, or \(copying, computing\)"),
        ({"registers": [(40, 233)]}, "whole eights"),
        ({"occupancy": [2]}, "sizes no tile of gemm"),
        ({BM: ["16"]}, "whole numbers from 1 on"),
        ([16], "a dict from symbols"),
    ],
)
def test_spaces_that_cannot_be(space, why):
    with pytest.raises(wd.ConstraintError, match=why):
        check_space(gemm, space)


def test_spaces_are_normalised():
    assert check_space(gemm, {"BM": [16, 16, 32], "stages": 2 and [2]}) == {BM: (16, 32), "stages": (2,)}


def test_parts_of_a_loop_are_tried_where_the_grid_is_small(monkeypatch):
    """And dropped where some would be empty, or workgroups are persistent."""
    few = {M: 128, N: 128, K: 8192}
    assert derive_space(gemm, few, get_target("gfx942"))["split_k"] == (1, 8, 32)
    assert "split_k" not in derive_space(gemm, {**few, M: 4096, N: 4096}, get_target("gfx942"))
    assert "split_k" not in derive_space(gemm, {**few, K: 128}, get_target("gfx942"))
    assert "split_k" not in derive_space(double, {M: 64, N: 64}, get_target("sm_80"))
    monkeypatch.setattr(gemm, "schedule", wd.Schedule(stream_k=True))
    assert "split_k" not in derive_space(gemm, few, get_target("gfx942"))  # one of them divides the trips
    monkeypatch.undo()
    tiles = {"BM": 64, "BN": 64, "BK": 128, "stages": 2}
    assert "persistent" in judge(gemm, "sm_90a", few, **tiles, split_k=4, persistent=1).reason
    assert "64 trips leave some of 65" in judge(gemm, "sm_90a", few, **tiles, split_k=65).reason
    whole, cut = (judge(gemm, "sm_90a", few, **tiles, split_k=n) for n in (1, 8))
    assert not cut.reason and cut.seconds < whole.seconds / 2


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
def test_tiles_that_share_a_factor_are_tried(target):
    """Of factors for 128 of K, a tile of 64 has no whole one; the compiler reads them so, and so must who judges."""
    for depth in (32, 64, 128):
        assert not judge(grouped, target, BM=64, BN=64, BK=depth).reason
