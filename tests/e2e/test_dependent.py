"""Programmatic dependent launch: what a kernel does so that launches may overlap. That the launch asks for it is tested
with the stand-in driver (tests/unit/runtime/test_dispatch.py)."""

from __future__ import annotations

import re
from typing import Any

import hopper
import numpy as np
import products
import pytest
from hopper import tiles
from products import BF16, TILE, K, M, N

import wavedsl as wd

DEPENDENT = wd.Schedule(dependent=True)
GLOBAL = re.compile(r"\b(ld|st|red|atom)\.\S*global|cp\.\S*global|copy\S*\.global")
SMALL = tiles(64, 64, 64, 64, 64)


def gemm(**choices: Any) -> Any:
    return hopper.gemm(BF16, schedule=wd.Schedule(dependent=True, **choices))


def lines_with(text: str, what: str | re.Pattern[str]) -> list[int]:
    return [i for i, line in enumerate(text.splitlines()) if re.search(what, line.split("//")[0])]


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"specialize": False},
        {"specialize": False, "persistent": True},
        {"persistent": True, "cluster": (2, 1, 1)},
    ],
    ids=["roles", "no roles", "persistent, no roles", "cluster"],
)
def test_products_wait_first_and_release_after_the_last_loads(choices: dict[str, Any], oracle: Any) -> None:
    oracle("ptxas")
    a, b = (products.numbers(shape, wd.bf16, seed) for shape, seed in (((128, 192), 1), ((72, 192), 2)))
    c = np.full((128, 72), 77, products.numbers((1,), wd.bf16, 1).dtype)
    compiled = gemm(**choices).compile(a, b, c, target="sm_90a", subs=SMALL)
    (wait,), (release,) = (lines_with(compiled.asm, f"griddepcontrol.{x}") for x in ("wait", "launch_dependents"))
    touched = lines_with(compiled.asm, GLOBAL)
    loads = lines_with(compiled.asm, r"shared::cluster\.global")
    stores = lines_with(compiled.asm, r"global\.shared::cta")
    assert loads and wait < touched[0] and max(loads) < release < min(stores)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)
    assert hopper.spilled_or_serialised(compiled.asm)[0] == 0


def test_any_kernel_can(oracle: Any) -> None:
    """Without products, too: the wait is first, the release behind the last load."""
    oracle("ptxas")
    n, bn = wd.symbols("DN DBN")

    @wd.wave([wd.WorkgroupConstraint(n, bn, 0)], subs={bn: 128}, schedule=DEPENDENT)
    def add_one(x: wd.Memory[n, wd.f32], y: wd.Memory[n, wd.f32]):
        wd.write(wd.read(x) + 1.0, y)

    x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
    compiled = add_one.compile(x, y, target="sm_90a")
    compiled.emulate(x, y)
    np.testing.assert_array_equal(y, x + 1)
    hopper.spilled_or_serialised(compiled.asm)
    (wait,), (release,) = (lines_with(compiled.asm, f"griddepcontrol.{w}") for w in ("wait", "launch_dependents"))
    loads, stores = (lines_with(compiled.asm, rf"{x}\.global") for x in ("ld", "st"))
    assert wait < min(loads) and max(loads) < release < min(stores)


def test_nothing_is_there_unless_it_is_asked_for() -> None:
    sizes = {**dict(zip(TILE, (64, 64, 64, 64, 64))), M: 128, N: 128, K: 128}
    plain = hopper.gemm(BF16).compile(target="sm_90a", subs=sizes).asm
    refused = hopper.gemm(BF16, schedule=wd.Schedule(dependent=False)).compile(target="sm_90a", subs=sizes).asm
    assert "griddepcontrol" not in plain and plain == refused


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_only_where_the_chip_has_it(target: str) -> None:
    with pytest.raises(wd.ConstraintError, match=f"Schedule\\(dependent=True\\) is not available on {target}"):
        products.gemm(products.F16, schedule=DEPENDENT).compile(
            target=target, subs={**dict(zip(TILE, (32, 32, 32, 16, 16))), M: 64, N: 64, K: 64}
        )
