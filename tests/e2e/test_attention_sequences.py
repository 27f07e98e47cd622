"""Packed sequences of different lengths, and decoding from pages: every target, every check, against float64."""

from __future__ import annotations

from typing import Any

import example_files
import numpy as np
import pairwise
import pytest
from products import TARGETS

import wavedsl as wd

varlen = example_files.load("attention_varlen")
decode = example_files.load("attention_decode")
Variant = varlen.Variant


EIGHT_BITS = {"gfx942": "f8e4m3fnuz", "gfx950": "f8e4m3", "sm_90a": "f8e4m3"}


def attend(
    target: str, variant: Any, lengths: list[int], keys: list[int], heads: int, d: int, e: int | None = None,
    order: str = "shd",
) -> dict[str, Any]:  # fmt: skip
    given, extents = varlen.arguments_of(variant, lengths, keys, heads, d, e, sum(lengths), order)
    tile = (64, 16) if d > 128 and target in ("gfx90a", "gfx942") else (64, 32)
    kernel = varlen.varlen_kernel(variant, order=order, tile=tile)
    kernel.compile(**given, target=target, subs=extents).emulate(**given)
    assert varlen.check(variant, given, order) == 0
    return given


def run_decode(
    target: str, variant: Any, lengths: list[int], heads: int, d: int, page: int, splits: int, e: int | None = None,
    order: str = "shd", **bad: Any,
) -> dict[str, Any]:  # fmt: skip
    given = decode.arguments_of(variant, lengths, heads, d, page, splits, sum(lengths), e, order)
    for name, change in bad.items():
        change(given[name])
    pages = given["table"].shape[1]
    split = decode.split_kernel(variant, page=page, pages=pages, splits=splits, tile=16, order=order)
    for kernel in (split, decode.combine_kernel(variant)):
        mine = {p.name: given[p.name] for p in kernel.parameters}
        kernel.compile(**mine, target=target).emulate(**mine)
    return given


@pytest.mark.parametrize(
    ("target", "options", "lengths", "keys"),
    [
        ("gfx942", {"causal": True, "lse": True}, [40, 0, 65, 1], [40, 0, 65, 1]),
        ("sm_80", {"group": 2, "causal": True}, [33, 5], [20, 70]),
        ("gfx950", {"bias": True, "alibi": True, "sinks": True, "lse": True}, [20, 9], [33, 7]),
        pytest.param("gfx950", {"causal": True, "window": 20}, [50, 64], [50, 64], marks=pytest.mark.slow),
    ],
)
def test_packed_sequences(target: str, options: dict[str, Any], lengths: list[int], keys: list[int]) -> None:
    attend(target, Variant(wd.bf16, **options), lengths, keys, 2, 64)


def test_windows_of_packed_sequences_have_a_loop_without_masks() -> None:
    """Where a window starts depends on lengths that are loaded; blocks between its edges need no comparison."""
    a = varlen.forward
    sizes = {a.H: 1, a.G: 1, a.M: 512, a.N: 512, a.D: 64, a.E: 64}
    extents = {varlen.Z: 2, varlen.Z1: 3, varlen.TQ: 600, varlen.TK: 600}
    kernel = varlen.varlen_kernel(Variant(wd.bf16, causal=True, window=200))
    loops = kernel.compile(target="gfx950", subs=sizes | extents).resources.loops
    assert len(loops) == 3
    scores = 64 * 32 // 256  # of a lane; each mask costs a comparison and a selection
    first, whole, last = (loop.instructions["valu"] / loop.steps for loop in loops)
    assert first >= whole + 4 * scores and last >= whole + 2 * scores


def test_instructions_of_a_block_of_packed_keys() -> None:
    """As for dense keys (128 queries x 64 keys, head size 128, bf16, four waves) and one addition for each load:
    buffers end where sequences do, so no lane compares its token, no accumulator moves, and two waves fit a SIMD."""
    a = varlen.forward
    sizes = {a.H: 4, a.G: 4, a.M: 512, a.N: 512, a.D: 128, a.E: 128}
    extents = {varlen.Z: 2, varlen.Z1: 3, varlen.TQ: 1000, varlen.TK: 1000}
    kernel = varlen.varlen_kernel(Variant(wd.bf16, causal=True), tile=(128, 64))
    for target, most in (("gfx942", 300), ("gfx950", 165)):
        used = kernel.compile(target=target, subs=sizes | extents).resources
        assert used.spills == 0 and used.occupancy == 2
        whole, masked = sorted(loop.instructions["valu"] / loop.steps for loop in used.loops)
        assert whole <= most and masked <= whole + 72
        assert not any(loop.instructions["accmove"] for loop in used.loops)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("gfx90a", {}),
        ("sm_80", {"window": 40, "alibi": True, "sinks": True}),
        pytest.param("gfx942", {"bias": True, "cap": 15.0}, marks=pytest.mark.slow),
    ],
)
def test_pages(target: str, options: dict[str, Any]) -> None:
    variant = Variant(wd.f16, group=4, **options)
    assert decode.check(variant, run_decode(target, variant, [90, 0, 1], 8, 64, 32, 3)) == 0


def test_a_page_outside_of_the_pool_is_no_silent_wrong_number() -> None:
    variant = Variant(wd.f16, group=2)

    def spoil(table: np.ndarray) -> None:
        table[0, 1] = 99

    given = run_decode("gfx942", variant, [60, 40], 2, 64, 32, 2, table=spoil)
    assert np.isnan(given["o"][0]).all()
    assert not np.isnan(given["o"][1]).any()


def test_keys_past_the_end_of_the_array_are_no_silent_wrong_number() -> None:
    variant = Variant(wd.f16, lse=True)
    given, extents = varlen.arguments_of(variant, [20, 9], [20, 9], 1, 64)
    given["starts_k"][2] = 40
    varlen.varlen_kernel(variant).compile(**given, target="gfx950", subs={**extents, varlen.N: 20}).emulate(**given)
    assert np.isnan(given["o"][20:]).all() and np.isnan(given["lse"][:, 20:]).all()
    assert not np.isnan(given["o"][:20]).any()


def test_decoding_is_the_same_on_every_run() -> None:
    variant = Variant(wd.bf16, group=4)
    first, second = (run_decode("gfx942", variant, [70, 33], 4, 64, 16, 4) for _ in range(2))
    assert first["o"].tobytes() == second["o"].tobytes()


def test_a_tile_must_lie_in_one_page() -> None:
    with pytest.raises(ValueError, match="tile=32 does not divide page=48"):
        decode.split_kernel(Variant(wd.f16), page=48, pages=1, splits=1, tile=32)


def legal(case: dict[str, Any]) -> bool:
    return case["dtype"] != "f8" or case["target"] in EIGHT_BITS


VARLEN = pairwise.pairwise(
    {
        "target": (*TARGETS, "sm_90a"),
        "dtype": ("f16", "bf16", "f8"),
        "head": ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256)),
        "mask": ("full", "causal", "window"),
        "sizes": (([40, 0, 65, 1],) * 2, ([33, 5], [20, 70]), ([7], [0]), ([1, 1, 1], [50, 3, 64])),
        "bias": (False, True),
        "alibi": (False, True),
        "cap": (None, 15.0),
        "sinks": (False, True),
        "lse": (False, True),
        "group": (1, 2),
        "order": ("shd", "hsd"),
    },
    legal,
)
DECODE = pairwise.pairwise(
    {
        "target": (*TARGETS, "sm_90a"),
        "dtype": ("f16", "bf16", "f8"),
        "head": ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256)),
        "window": (None, 30),
        "bias": (False, True),
        "alibi": (False, True),
        "cap": (None, 15.0),
        "sinks": (False, True),
        "group": (1, 4),
        "page": (16, 64),
        "splits": (1, 2, 5),
        "lengths": ((1, 90), (0, 64, 17), (200,)),
        "order": ("shd", "hsd"),
    },
    legal,
)


def variant_of(case: dict[str, Any], **more: Any) -> Any:
    eight = case["dtype"] == "f8"
    dtype = getattr(wd, EIGHT_BITS[case["target"]] if eight else case["dtype"])
    same = {name: case[name] for name in ("bias", "alibi", "cap", "sinks", "group")}
    return Variant(dtype, out=wd.bf16 if eight else None, **same, **more)


@pytest.mark.slow
@pytest.mark.parametrize("case", VARLEN, ids=[pairwise.name_of(c) for c in VARLEN])
def test_every_pair_of_options(case: dict[str, Any]) -> None:
    window = 30 if case["mask"] == "window" else None
    variant = variant_of(case, causal=case["mask"] != "full", window=window, lse=case["lse"])
    attend(case["target"], variant, *case["sizes"], 2, *case["head"], case["order"])


@pytest.mark.slow
@pytest.mark.parametrize("case", DECODE, ids=[pairwise.name_of(c) for c in DECODE])
def test_every_pair_of_options_of_decoding(case: dict[str, Any]) -> None:
    variant = variant_of(case, window=case["window"])
    heads, (d, e) = 2 * case["group"], case["head"]
    lengths, order = list(case["lengths"]), case["order"]
    given = run_decode(case["target"], variant, lengths, heads, d, case["page"], case["splits"], e, order)
    assert decode.check(variant, given, order) == 0
