"""Attention from Python to numbers on every target, with every check of the emulator on, against float64.

What is allowed is twice the largest error of a NumPy computation with float32 softmax and sums. The default sample
covers each option once; the slow one every pair of options.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import example_files
import numpy as np
import pairwise
import products
import pytest
from products import TARGETS
from wavedsl.runtime import toolchain

import wavedsl as wd

attention = example_files.load("attention")


def attend(
    target: str, variant: Any, sizes: tuple[int, int, int, int], e: int | None = None, batch: int = 1, **tiles: Any
) -> wd.CompiledKernel:
    """Compile for (heads, queries, keys, head size), emulate, compare within the bound; the compiled kernel."""
    heads, m, n, d = sizes
    given = attention.arguments_of(variant, {"b": batch, "h": heads, "m": m, "n": n, "d": d, "e": e or d}, m + n)
    compiled = attention.attention_kernel(variant, **tiles).compile(**given, target=target)
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    return compiled


def tile_for(target: str, d: int) -> tuple[int, int]:
    """A tile of queries and keys whose accumulators fit the registers of four waves."""
    if d > 128:
        return (64, 16) if target.startswith("gfx9") and target != "gfx950" else (64, 32)
    return (64, 32) if d > 64 else (128, 64)


PLAIN = (attention.Variant(wd.f16), (2, 128, 256, 64))
CAUSAL = (attention.Variant(wd.bf16, causal=True), (1, 130, 77, 64))
LARGE = (attention.Variant(wd.bf16, causal=True, lse=True), (1, 77, 130, 128))
QUICK = (("gfx90a", LARGE), ("gfx942", PLAIN), ("gfx942", CAUSAL), ("gfx950", LARGE), ("sm_80", PLAIN))


@pytest.mark.parametrize(
    ("target", "variant", "sizes"),
    [
        pytest.param(t, *case, marks=() if (t, case) in QUICK else pytest.mark.slow, id=f"{t}-{name}")
        for t in TARGETS
        for name, case in (("plain", PLAIN), ("causal", CAUSAL), ("large", LARGE))
    ],
)
def test_attention(target: str, variant: Any, sizes: tuple[int, int, int, int], oracle: Callable[[str], str]) -> None:
    compiled = attend(target, variant, sizes, tile=(64, 32) if sizes[3] == 128 else (128, 64))
    products.assemble(compiled, oracle)
    notes = compiled.kernel_ir.notes["lowering"]
    # Scores feed the second product from the registers they were made in, on AMD as its right operand.
    assert set(notes.exchanges.values()) <= {"renaming"}
    assert all(atom.endswith("swapped") == target.startswith("gfx") for atom in notes.atoms.values())


@pytest.mark.parametrize(
    ("target", "options", "sizes"),
    [
        ("gfx90a", {"window": 40, "causal": True, "sinks": True, "lse": True}, (2, 64, 96, 64)),
        ("gfx942", {"group": 2, "order": "bshd"}, (4, 64, 64, 64)),
        ("gfx950", {"bias": True, "cap": 20.0}, (2, 64, 96, 64)),
        ("sm_80", {"alibi": True, "causal": True, "group": 3, "lse": True}, (3, 48, 80, 96)),
        ("sm_80", {"group": 2, "order": "bshd", "sinks": True}, (2, 64, 64, 64)),
    ],
)
def test_options(target: str, options: dict[str, Any], sizes: tuple[int, int, int, int]) -> None:
    attend(target, attention.Variant(wd.bf16, **options), sizes, tile=(64, 32))


@pytest.mark.parametrize(("target", "name"), [("gfx942", "f8e4m3fnuz"), ("gfx950", "f8e4m3"), ("gfx950", "f8e5m2")])
def test_fp8(target: str, name: str) -> None:
    variant = attention.Variant(getattr(wd, name), out=wd.bf16, causal=True, lse=True)
    attend(target, variant, (2, 64, 80, 64), tile=(64, 32))


@pytest.mark.parametrize("target", ["gfx950", "sm_80"])
def test_queries_that_see_no_key(target: str) -> None:
    """More queries than keys, aligned at the end: the first ones see nothing and give 0, their log-sum-exp is -inf."""
    variant = attention.Variant(wd.f16, causal=True, lse=True)
    given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": 96, "n": 32, "d": 64, "e": 64})
    compiled = attention.attention_kernel(variant, tile=(64, 16)).compile(**given, target=target)
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0
    assert (given["o"][0, 0, :64] == 0).all() and (given["lse"][0, 0, :64] == -np.inf).all()


def test_keys_and_values_of_different_head_sizes() -> None:
    attend("gfx950", attention.Variant(wd.bf16), (1, 64, 64, 192), e=128, tile=(64, 32))


EIGHT_BITS = {"gfx942": wd.f8e4m3fnuz, "gfx950": wd.f8e4m3, "sm_90a": wd.f8e4m3}

CASES = pairwise.pairwise(
    {
        "target": (*TARGETS, "sm_90a"),
        "dtype": ("f16", "bf16", "f8"),
        "head": ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256)),
        "mask": ("full", "causal", "window"),
        "size": ((64, 64), (100, 77), (33, 140), (90, 20), (1, 70)),
        "bias": (False, True),
        "alibi": (False, True),
        "cap": (None, 15.0),
        "sinks": (False, True),
        "lse": (False, True),
        "group": (1, 2),
        "order": ("bhsd", "bshd"),
    },
    lambda case: case["dtype"] != "f8" or case["target"] in EIGHT_BITS,
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[pairwise.name_of(c) for c in CASES])
def test_every_pair_of_options(case: dict[str, Any]) -> None:
    target = case["target"]
    dtype = EIGHT_BITS[target] if case["dtype"] == "f8" else getattr(wd, case["dtype"])
    variant = attention.Variant(
        dtype, wd.bf16 if dtype.bits == 8 else None, case["mask"] != "full", 30 if case["mask"] == "window" else None,
        case["bias"], case["alibi"], case["cap"], case["sinks"], case["lse"], case["group"], case["order"],
    )  # fmt: skip
    (m, n), (d, e) = case["size"], case["head"]
    waves = 1 if target == "sm_90a" and max(d, e) > 64 else 4  # a warpgroup, or four waves that become two
    attend(target, variant, (2, m, n, d), e=e, batch=2, tile=tile_for(target, max(d, e)), waves=waves)


@pytest.mark.parametrize(
    "target",
    [pytest.param("gfx942", marks=pytest.mark.slow), "gfx950", pytest.param("sm_80", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    ("sizes", "causal", "tile", "waves"),
    [
        ((1, 70, 90, 64), True, (64, 32), 4),
        ((1, 64, 90, 64), False, (64, 48), 4),  # tiles that are no power of two
        ((1, 40, 90, 80), True, (64, 16), 2),
        ((2, 33, 65, 40), False, (32, 64), 1),  # head size below the instruction's K and beyond it
    ],
)
def test_tiles(target: str, sizes: tuple[int, int, int, int], causal: bool, tile: tuple[int, int], waves: int) -> None:
    attend(target, attention.Variant(wd.f16, causal=causal), sizes, tile=tile, waves=waves)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_run_time_sizes(target: str) -> None:
    variant = attention.Variant(wd.f16, causal=True)
    kernel = attention.attention_kernel(variant, tile=(64, 32))
    subs = {attention.B: 1, attention.H: 1, attention.G: 1, attention.D: 64, attention.E: 64}
    compiled = kernel.compile(target=target, subs=subs, dynamic=[attention.M, attention.N])
    for m, n in ((64, 64), (50, 83)):
        given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": m, "n": n, "d": 64, "e": 64})
        compiled.emulate(**given)
        assert attention.check(variant, given) == 0


@pytest.mark.parametrize(
    ("target", "most", "causal"),
    [("gfx90a", 300, False), ("gfx942", 300, False), ("gfx942", 300, True), ("gfx950", 190, True)],
)
def test_instructions_of_a_block_of_keys(target: str, most: int, causal: bool) -> None:
    """128 queries x 64 keys, head size 128, bf16, four waves: what a trip on whole tiles costs, and that two waves fit
    a SIMD. Tiles without masks have a loop of their own; a mask costs a comparison and a selection per score, 32 of
    each, and nothing of the packed arithmetic."""
    a = attention
    sizes = {a.B: 1, a.H: 4, a.G: 4, a.M: 512, a.N: 512, a.D: 128, a.E: 128}
    compiled = a.attention_kernel(a.Variant(wd.bf16, causal=causal), tile=(128, 64)).compile(target=target, subs=sizes)
    used = compiled.resources
    whole = min(used.loops, key=lambda loop: loop.instructions["valu"] / loop.steps)
    assert whole.instructions["valu"] <= most * whole.steps
    assert whole.instructions["accmove"] == 0 and used.spills == 0 and used.occupancy >= 2
    assert len(used.loops) == 1 + causal
    if causal:
        masked = max(used.loops, key=lambda loop: loop.instructions["valu"] / loop.steps)
        more = masked.instructions["valu"] / masked.steps - whole.instructions["valu"] / whole.steps
        assert 64 <= more <= 72


@pytest.mark.parametrize(
    "target", ["gfx942", *(pytest.param(t, marks=pytest.mark.slow) for t in TARGETS if t != "gfx942")]
)
@pytest.mark.parametrize(
    "options", [{"causal": True, "lse": True}, pytest.param({"sinks": True}, marks=pytest.mark.slow)]
)
def test_lazy_rescaling(target: str, options: dict[str, Any]) -> None:
    """Maxima grow block by block, in some rows by much and in others by little; rows that see no key stay empty."""
    variant = attention.Variant(wd.bf16, lazy=8.0, **options)
    given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": 70, "n": 96, "d": 64, "e": 64}, 5)
    given["q"][0, 0, :40] *= 8
    given["k"] *= np.linspace(0.2, 4, 96, dtype=np.float32)[:, None].astype(given["k"].dtype)
    compiled = attention.attention_kernel(variant, tile=(64, 32), waves=2).compile(**given, target=target)
    compiled.emulate(**given)
    assert attention.check(variant, given) == 0


def test_lazy_rescaling_branches_around_the_multiplications() -> None:
    """A wave none of whose rows has a new base passes over them; they write the registers that they read."""
    a = attention
    sizes = {a.B: 1, a.H: 4, a.G: 4, a.M: 512, a.N: 512, a.D: 128, a.E: 128}
    found = {}
    for lazy in (None, 8.0):
        kernel = a.attention_kernel(a.Variant(wd.bf16, lazy=lazy), tile=(128, 64))
        used = kernel.compile(target="gfx942", subs=sizes).resources
        assert used.spills == 0 and used.occupancy >= 2
        (loop,) = used.loops
        assert loop.instructions["accmove"] == 0 and loop.instructions["valu"] <= 300
        found[lazy] = loop.instructions["branch"]
    assert found[8.0] > found[None]


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_tiles_of_warps_do_not_spill(d: int, causal: bool, oracle) -> None:
    """The tiles that the example chooses for warps; four of them with 32 rows each spill at head size 128."""
    oracle("ptxas")
    a = attention
    tile, waves = a.tile_of("sm_80", d, causal)
    sizes = {a.B: 2, a.H: 16, a.G: 16, a.M: 4096, a.N: 4096, a.D: d, a.E: d}
    kernel = a.attention_kernel(a.Variant(wd.bf16, causal=causal), tile=tile, waves=waves)
    log = toolchain.assemble_ptx(kernel.compile(target="sm_80", subs=sizes).asm, "sm_80").log
    assert re.findall(r"(\d+) bytes spill", log) == ["0", "0"]


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({}, {"k": (2, 2, 30, 64)}, "arguments disagree about N: k with shape (2, 2, 30, 64)"),
        ({}, {"v": (2, 2, 40, 32), "o": (2, 2, 30, 64)}, "arguments disagree about E: v with shape (2, 2, 40, 32)"),
        ({"bias": True}, {"bias": (2, 2, 30, 39)}, "arguments disagree about N"),
        ({"sinks": True}, {"sink": (3,)}, "arguments disagree about H"),
        ({"lse": True}, {"lse": (2, 2, 31)}, "arguments disagree about M"),
        ({"group": 2}, {"q": (2, 2, 30, 32)}, "arguments disagree about D"),
    ],
)
def test_shapes_that_do_not_fit(options: dict[str, Any], change: dict[str, Any], message: str) -> None:
    variant = attention.Variant(wd.f16, **options)
    given = attention.arguments_of(variant, {"b": 2, "h": 2, "m": 30, "n": 40, "d": 64, "e": 64})
    given |= {name: np.zeros(shape, given[name].dtype) for name, shape in change.items()}
    with pytest.raises(wd.LaunchError) as caught:
        attention.attention_kernel(variant).compile(**given, target="gfx942")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("target", "name", "instead"),
    [("gfx90a", "f8e4m3", ""), ("gfx942", "f8e4m3", "f8e4m3fnuz"), ("sm_80", "f8e4m3", "")],
)
def test_dtypes_that_a_chip_lacks(target: str, name: str, instead: str) -> None:
    variant = attention.Variant(getattr(wd, name), out=wd.f16)
    given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": 16, "n": 16, "d": 64, "e": 64})
    with pytest.raises(wd.ConstraintError, match=f"argument q: {target} has no {name}") as caught:
        attention.attention_kernel(variant).compile(**given, target=target)
    assert instead in str(caught.value)


@pytest.mark.parametrize("target", ["gfx950", "sm_80"])
def test_no_keys_and_no_queries(target: str) -> None:
    """Without keys O is 0 and the log-sum-exp -inf; without queries nothing is launched."""
    variant = attention.Variant(wd.f16, lse=True)
    for m, n in ((40, 0), (0, 40)):
        given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": m, "n": n, "d": 64, "e": 64})
        attention.attention_kernel(variant, tile=(64, 32)).compile(**given, target=target).emulate(**given)
        assert attention.check(variant, given) == 0
        assert (given["o"] == 0).all() and (given["lse"] == -np.inf).all()


def test_accumulators_that_do_not_fit_are_refused_with_what_to_do() -> None:
    variant = attention.Variant(wd.f16)
    given = attention.arguments_of(variant, {"b": 1, "h": 1, "m": 128, "n": 64, "d": 64, "e": 2048})
    with pytest.raises(wd.WaveError, match=r"use a smaller wave tile|smaller tiles"):
        attention.attention_kernel(variant).compile(**given, target="gfx942")
