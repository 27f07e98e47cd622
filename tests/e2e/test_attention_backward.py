"""Gradients of attention on every target, with every check of the emulator on, against float64.

What is allowed is twice the largest error of a NumPy computation in float32 that rounds the weights, their gradients
and the results to the inputs' dtype (of 8-bit inputs: to that of O).
"""

from __future__ import annotations

import re
from typing import Any

import example_files
import numpy as np
import pairwise
import pytest
from products import TARGETS
from wavedsl.runtime import toolchain

import wavedsl as wd

backward = example_files.load("attention_backward")
packed = example_files.load("attention_varlen_backward")
Variant = backward.Variant


def differentiate(
    target: str, variant: Any, sizes: dict[str, int], shared: str = "", deterministic: bool = True
) -> dict[str, np.ndarray]:
    """Run the kernels with the target's tiles, compare within the bound; all arguments."""
    given = backward.arguments_of(variant, sizes, sizes["m"], shared)
    tiles = backward.tile_for(variant, target, sizes["d"], sizes["e"])
    for kernel in backward.kernels(variant, tiles, shared, deterministic):
        mine = {p.name: given[p.name] for p in kernel.parameters}
        kernel.compile(**mine, target=target).emulate(**mine)
    assert backward.check(variant, given, shared) == 0
    return given


def differentiate_packed(
    target: str, variant: Any, lengths: list[int], keys: list[int], d: int, e: int, order: str = "shd", **bad: Any
) -> dict[str, np.ndarray]:
    """The same for packed sequences; `bad` changes arguments by name before the forward pass."""
    given, extents = packed.arguments_of(variant, lengths, keys, variant.group, d, e, sum(lengths), order)
    for name, change in bad.items():
        change(given[name])
    if bad:
        forward = packed.numpy_gradients(variant, given, np.float32, order)
        given["o"], given["lse"] = forward["o"].astype(given["o"].dtype), forward["lse"].astype(np.float32)
    for kernel in packed.kernels(variant, backward.tile_for(variant, target, d, e, packed=True), order):
        mine = packed.arguments_for(kernel, given)
        kernel.compile(**mine, target=target, subs=extents if "starts_q" in mine else None).emulate(**mine)
    assert packed.check(variant, given, order) == 0
    return given


@pytest.mark.parametrize(
    ("target", "options", "sizes", "shared"),
    [
        ("gfx942", {"causal": True, "group": 2}, {"b": 1, "h": 2, "m": 70, "n": 90, "d": 64, "e": 64}, ""),
        ("gfx950", {"cap": 20.0, "order": "bshd"}, {"b": 1, "h": 1, "m": 64, "n": 64, "d": 64, "e": 64}, ""),
        (
            "gfx90a",
            {"bias": True, "alibi": True, "cap": 20.0},
            {"b": 2, "h": 1, "m": 64, "n": 50, "d": 64, "e": 64},
            "b",
        ),
        (
            "sm_80",
            {"causal": True, "window": 40, "sinks": True},
            {"b": 1, "h": 1, "m": 64, "n": 96, "d": 64, "e": 64},
            "",
        ),
        ("sm_90a", {"causal": True}, {"b": 1, "h": 1, "m": 132, "n": 64, "d": 64, "e": 64}, ""),
    ],
)
def test_gradients(target: str, options: dict[str, Any], sizes: dict[str, int], shared: str) -> None:
    differentiate(target, Variant(wd.bf16, **options), sizes, shared)


def test_queries_that_see_no_key_have_no_gradient() -> None:
    sizes = {"b": 1, "h": 1, "m": 96, "n": 32, "d": 64, "e": 64}
    given = differentiate("gfx950", Variant(wd.f16, causal=True), sizes)
    assert (given["d_q"][0, 0, :64] == 0).all()


@pytest.mark.parametrize(
    ("target", "options", "sizes"),
    [
        ("sm_90a", {"causal": True}, {"b": 1, "h": 1, "m": 132, "n": 200, "d": 128, "e": 128}),
        ("sm_90a", {"group": 2, "order": "bshd"}, {"b": 2, "h": 2, "m": 64, "n": 130, "d": 64, "e": 64}),
        pytest.param(
            "sm_90a", {"cap": 20.0, "bias": True}, {"b": 1, "h": 1, "m": 70, "n": 90, "d": 128, "e": 128},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "sm_80", {"causal": True, "sinks": True}, {"b": 1, "h": 1, "m": 64, "n": 96, "d": 64, "e": 64},
            marks=pytest.mark.slow,
        ),
        ("gfx942", {"causal": True, "window": 40}, {"b": 1, "h": 1, "m": 64, "n": 96, "d": 64, "e": 64}),
    ],
)  # fmt: skip
def test_gradients_with_dq_by_atomics(target: str, options: dict[str, Any], sizes: dict[str, int]) -> None:
    """One kernel for all three, and one that rounds dQ."""
    variant = Variant(wd.bf16, **options)
    names = [k.name for k in backward.kernels(variant, deterministic=False)]
    assert "attention_gradients" in names and "attention_queries" not in names
    differentiate(target, variant, sizes, deterministic=False)


def test_gradients_of_slopes_and_of_wide_heads_take_no_atomics() -> None:
    slopes, wide = (Variant(wd.bf16, alibi=True), backward.SMALL), (Variant(wd.bf16), backward.Tiles(apart=True))
    for variant, tiles in (slopes, wide):
        names = [k.name for k in backward.kernels(variant, tiles, deterministic=False)]
        assert names == [k.name for k in backward.kernels(variant, tiles)] and "attention_queries" in names


def test_gradients_are_the_same_on_every_run() -> None:
    variant = Variant(wd.f16, bias=True, alibi=True, sinks=True, group=2)
    sizes = {"b": 2, "h": 2, "m": 20, "n": 40, "d": 64, "e": 64}
    first, second = (differentiate("gfx942", variant, sizes, "bh") for _ in range(2))
    for name in (x for x in first if x.startswith("d_")):
        assert first[name].tobytes() == second[name].tobytes()


@pytest.mark.parametrize("target", TARGETS)
def test_slopes_and_sinks_sum_more_rows_than_a_tile(target: str) -> None:
    """Of two batches of 70 rows in tiles of 32: every head's gradient is one number of them all."""
    variant = Variant(wd.bf16, alibi=True, sinks=True, lse=True)
    random = np.random.default_rng(7)
    given = {name: random.standard_normal((2, 3, 70)).astype(np.float32) for name in ("d_rows", "lse", "delta")}
    given |= {name: np.full(3, np.nan, np.float32) for name in ("d_slopes", "d_sink")}
    given["sink"] = random.standard_normal(3).astype(np.float32)
    backward.heads_kernel(variant, tile=32).compile(**given, target=target).emulate(**given)
    weight = np.exp(given["sink"].astype(np.float64)[:, None] - given["lse"])
    np.testing.assert_allclose(given["d_slopes"], given["d_rows"].sum((0, 2), dtype=np.float64), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(given["d_sink"], -(weight * given["delta"]).sum((0, 2)), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("gfx942", {"causal": True, "group": 2, "alibi": True, "sinks": True}),
        ("sm_90a", {"window": 20, "causal": True}),
    ],
)
def test_gradients_of_packed_sequences(target: str, options: dict[str, Any]) -> None:
    given = differentiate_packed(target, Variant(wd.bf16, **options), [40, 0, 33, 1], [30, 7, 33, 0], 64, 64)
    assert (given["d_k"][30:37] == 0).all() and (given["d_q"][73:] == 0).all()


@pytest.mark.parametrize(("dtype", "out"), [("f16", "bf16"), ("f8e4m3", "f32")])
def test_results_of_another_dtype_are_refused(dtype: str, out: str) -> None:
    with pytest.raises(ValueError, match=f"gradients of {dtype} inputs need an O of .*, not out={out}"):
        backward.kernels(Variant(getattr(wd, dtype), getattr(wd, out)))


@pytest.mark.parametrize("order", ["shd", pytest.param("hsd", marks=pytest.mark.slow)])
def test_a_bias_of_packed_sequences_counts_within_them_only(order: str) -> None:
    """Rows past a sequence's end have the bias of longer ones; however large it is there, nothing of it shows."""

    def beyond(bias: np.ndarray) -> None:
        bias[:, 4:, :] = 300  # exp(300) is infinite

    given = differentiate_packed(
        "gfx950", Variant(wd.f16, bias=True, alibi=True), [9, 4], [17, 20], 64, 64, order, bias=beyond
    )
    assert given["bias"].shape == (1, 9, 20)


def test_a_dtype_that_a_chip_lacks_is_refused_by_name() -> None:
    variant, sizes = Variant(wd.f8e4m3), {"b": 1, "h": 1, "m": 16, "n": 16, "d": 64, "e": 64}
    with pytest.raises(wd.ConstraintError, match="argument q: sm_80 has no f8e4m3"):
        differentiate("sm_80", variant, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("d", [128, 256])
def test_casts_stored_in_front_of_loops_in_loops(d: int) -> None:
    """K and V of 8 bits are cast and stored once per head of queries that shares them, in front of the loop over
    queries: the readers of the head before have to be done."""
    variant = Variant(wd.f8e4m3, out=wd.bf16, causal=True, group=2, lse=True)
    differentiate("sm_90a", variant, {"b": 1, "h": 2, "m": 70, "n": 140, "d": d, "e": d})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "options"),
    [(256, {"causal": True, "group": 2}), (256, {"window": 50, "causal": True}), (192, {}), (256, {"cap": 15.0})],
)
def test_wide_heads_over_several_trips(d: int, options: dict[str, Any]) -> None:
    """Rings of other depths for Q, dO, K and V, each used more often than it has slots."""
    differentiate("sm_90a", Variant(wd.bf16, lse=True, **options), {"b": 1, "h": 2, "m": 330, "n": 270, "d": d, "e": d})


EIGHT_BITS = {"gfx942": "f8e4m3fnuz", "gfx950": "f8e4m3", "sm_90a": "f8e5m2"}


def legal(case: dict[str, Any]) -> bool:
    if case["packed"] and case["bias"] not in (None, "b"):  # that of packed sequences is one for all of them
        return False
    return case["dtype"] != "f8" or case["target"] in EIGHT_BITS


OPTIONS: dict[str, tuple[Any, ...]] = {
    "target": (*TARGETS, "sm_90a"),
    "dtype": ("f16", "bf16", "f8"),
    "head": ((64, 64), (96, 96), (128, 128), (192, 128), (256, 256)),
    "mask": ("full", "causal", "window"),
    "size": ((64, 64), (72, 45), (33, 90)),
    "packed": (False, True),
    "bias": (None, "one each", "b", "bh"),
    "alibi": (False, True),
    "cap": (None, 15.0),
    "sinks": (False, True),
    "group": (1, 2),
    "order": ("bhsd", "bshd"),
}
CASES = pairwise.pairwise(OPTIONS, legal)
NARROW = pairwise.pairwise({**OPTIONS, "head": ((64, 64),)}, legal)
"""The options with each other, without the heads that take long to compile; wider ones meet fewer of them."""
WIDE = pairwise.pairwise({"target": OPTIONS["target"], "head": OPTIONS["head"][1:], "packed": (False,)})[::3]
"""Every wide head, and every chip."""
PLAIN = {"dtype": "bf16", "mask": "causal", "size": (33, 90), "bias": None, "alibi": False, "cap": None,
         "sinks": False, "group": 1, "order": "bshd"}  # fmt: skip
IN_CI = [*NARROW, *({**PLAIN, **case} for case in WIDE)]


@pytest.mark.slow
@pytest.mark.parametrize(("target", "d", "e"), [("sm_80", 192, 128), ("sm_80", 256, 256), ("gfx942", 256, 256)])
def test_wide_heads_do_not_spill(target: str, d: int, e: int, oracle: Any) -> None:
    names = dict(zip("BHGMNDE", (2, 8, 8, 1024, 1024, d, e)))
    sizes = {getattr(backward, name): n for name, n in names.items()}
    for kernel in backward.kernels(Variant(wd.bf16, causal=True), backward.tile_of(target, d, e))[1:]:
        compiled = kernel.compile(target=target, subs=sizes)
        if target == "sm_80":
            oracle("ptxas")
            assert re.findall(r"(\d+) bytes spill", toolchain.assemble_ptx(compiled.asm, target).log) == ["0", "0"]
        else:
            assert compiled.resources.spills == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(c, id=pairwise.name_of(c)) for c in IN_CI),
        *(pytest.param(c, id=pairwise.name_of(c) + "-pair", marks=pytest.mark.exhaustive) for c in CASES),
    ],
)
def test_every_pair_of_options(case: dict[str, Any]) -> None:
    eight = case["dtype"] == "f8"
    dtype = getattr(wd, EIGHT_BITS[case["target"]] if eight else case["dtype"])
    (m, n), (d, e) = case["size"], case["head"]
    shared = (case["bias"] or "").replace("one each", "")
    variant = Variant(
        dtype, wd.bf16 if eight else None, case["mask"] != "full", 30 if case["mask"] == "window" else None,
        case["bias"] is not None, case["alibi"], case["cap"], case["sinks"], True, case["group"], case["order"],
    )  # fmt: skip
    if case["packed"]:
        differentiate_packed(case["target"], variant, [5, 0, m, 1], [7, 4, n, 0], d, e, case["order"][1:])
        return
    sizes = {"b": 1 + ("b" in shared), "h": max(case["group"], 1 + ("h" in shared)), "m": m, "n": n, "d": d, "e": e}
    differentiate(case["target"], variant, sizes, shared)


def test_scores_become_operands_where_they_are() -> None:
    """Four products in a chain: both operand orders of each are tried, so nothing moves between lanes."""
    names = dict(zip("BHGMNDE", (2, 8, 8, 1024, 1024, 64, 64)))
    kernel = backward.keys_kernel(Variant(wd.bf16, causal=True), tile=(32, 128), waves=8)
    text = kernel.compile(target="sm_80", subs={getattr(backward, name): n for name, n in names.items()}).asm
    assert text.count("mma.sync") >= 64 and "shfl" not in text
