"""Gradients of attention on every target, with every check of the emulator on, against float64.

What is allowed is twice the largest error of a NumPy computation in float32 that rounds the weights, their gradients
and the results to the inputs' dtype.
"""

from __future__ import annotations

from typing import Any

import example_files
import numpy as np
import pairwise
import pytest
from products import TARGETS

import wavedsl as wd

backward = example_files.load("attention_backward")
Variant = backward.Variant


def differentiate(target: str, variant: Any, sizes: dict[str, int], **tiles: Any) -> dict[str, np.ndarray]:
    """Run the three kernels, compare within the bound; all arguments."""
    given = backward.arguments_of(variant, sizes, sizes["m"])
    for kernel in backward.kernels(variant, **tiles):
        mine = {p.name: given[p.name] for p in kernel.parameters}
        kernel.compile(**mine, target=target).emulate(**mine)
    assert backward.check(variant, given) == 0
    return given


@pytest.mark.parametrize(
    ("target", "options", "sizes"),
    [
        ("gfx942", {"causal": True, "group": 2}, {"b": 1, "h": 2, "m": 70, "n": 90, "d": 64, "e": 64}),
        ("gfx950", {"cap": 20.0, "order": "bshd"}, {"b": 1, "h": 1, "m": 64, "n": 64, "d": 64, "e": 64}),
        ("gfx90a", {"bias": True}, {"b": 1, "h": 1, "m": 64, "n": 50, "d": 64, "e": 64}),
        ("sm_80", {"causal": True, "window": 40, "sinks": True}, {"b": 1, "h": 1, "m": 64, "n": 96, "d": 64, "e": 64}),
    ],
)
def test_gradients(target: str, options: dict[str, Any], sizes: dict[str, int]) -> None:
    differentiate(target, Variant(wd.bf16, **options), sizes)


def test_queries_that_see_no_key_have_no_gradient() -> None:
    sizes = {"b": 1, "h": 1, "m": 96, "n": 32, "d": 64, "e": 64}
    given = differentiate("gfx950", Variant(wd.f16, causal=True), sizes)
    assert (given["d_q"][0, 0, :64] == 0).all()


CASES = pairwise.pairwise(
    {
        "target": TARGETS,
        "dtype": ("f16", "bf16"),
        "head": ((64, 64), (96, 96), (128, 128), (192, 128)),
        "mask": ("full", "causal", "window"),
        "size": ((64, 64), (100, 77), (33, 140), (90, 20)),
        "bias": (False, True),
        "alibi": (False, True),
        "cap": (None, 15.0),
        "sinks": (False, True),
        "group": (1, 2),
        "order": ("bhsd", "bshd"),
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[pairwise.name_of(c) for c in CASES])
def test_every_pair_of_options(case: dict[str, Any]) -> None:
    variant = Variant(
        getattr(wd, case["dtype"]), None, case["mask"] != "full", 30 if case["mask"] == "window" else None,
        case["bias"], case["alibi"], case["cap"], case["sinks"], True, case["group"], case["order"],
    )  # fmt: skip
    (m, n), (d, e) = case["size"], case["head"]
    sizes = {"b": 2, "h": 2, "m": m, "n": n, "d": d, "e": e}
    differentiate(case["target"], variant, sizes, step=16 if d > 96 else 32)
