"""Programmatic dependent launch: what a kernel does so that launches may overlap. That the launch asks for it is tested
with the stand-in driver (tests/unit/runtime/test_dispatch.py)."""

from __future__ import annotations

import re
from typing import Any

import example_files
import hopper
import numpy as np
import products
import pytest
from hopper import tiles
from products import BF16, TILE, K, M, N
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.runtime.emulator.ptx.tensor import TensorBoxes

import wavedsl as wd
from wavedsl.targets import get_target
from wavedsl.tuning.candidates import Candidate

DEPENDENT = wd.Schedule(dependent=True)
GLOBAL = re.compile(r"\b(ld|st|red|atom)\.\S*global|cp\.(?!\S*prefetch)\S*global|copy\S*\.global")
EARLY = r"cp\.async\.bulk\.prefetch\.tensor"
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
    assert max(lines_with(compiled.asm, EARLY)) < wait
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)
    assert hopper.spilled_or_serialised(compiled.asm)[0] == 0


Boxes = dict[tuple[int, ...], list[tuple[int, ...]]]
"""Workgroup → (address of the tensor, coordinates of a box) of what it asked for, or copied, in order."""


@pytest.fixture
def boxes(monkeypatch: pytest.MonkeyPatch) -> tuple[Boxes, Boxes]:
    """What a run on the emulator asks for, and what it copies."""

    def watched(name: str) -> Boxes:
        found: Boxes = {}
        once = getattr(TensorBoxes, name)

        def watch(self: TensorBoxes, inst: Any, spec: Any, base: int, corners: Any, lanes: Any) -> Any:
            ids = (self.m.special[f"%ctaid.{axis}"][lanes] for axis in "xyz")
            for *cta, corner in zip(*ids, corners.T):
                found.setdefault(tuple(map(int, cta)), []).append((base, *map(int, corner)))
            return once(self, inst, spec, base, corners, lanes)

        monkeypatch.setattr(TensorBoxes, name, watch)
        return found

    return watched("ask"), watched("gather")


@pytest.mark.parametrize(
    ("choices", "fills"),
    [
        ({"stages": 6}, 3),  # as much as memory brings meanwhile
        ({"stages": 2}, 2),  # no slot's second tile
        ({"specialize": False, "stages": 4}, 3),
        ({"persistent": True, "cluster": (2, 1, 1), "stages": 6}, 3),
        ({"persistent": True, "ping_pong": True, "stages": 4}, 3),
    ],
    ids=str,
)
def test_first_tiles_are_asked_for(choices: dict[str, Any], fills: int, boxes: tuple[Boxes, Boxes]) -> None:
    """A workgroup asks for what its first fills copy, 16 KiB each, and for nothing else."""
    a, b = (products.numbers(shape, wd.bf16, seed) for shape, seed in (((256, 512), 1), ((128, 512), 2)))
    c = np.full((256, 128), 77, products.numbers((1,), wd.bf16, 1).dtype)
    gemm(**choices).compile(a, b, c, target="sm_90a", subs=tiles(64, 64, 64, 64, 64)).emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, BF16)[0], BF16)
    asked, copied = boxes
    assert asked and asked.keys() == copied.keys()
    for workgroup, wanted in asked.items():
        assert wanted == copied[workgroup][: len(wanted)]
        assert {k for _, k, _ in wanted} == {64 * i for i in range(fills)}


def test_queries_and_the_first_keys_are_asked_for(boxes: tuple[Boxes, Boxes]) -> None:
    attention = example_files.load("attention")
    variant = attention.Variant(wd.f16, causal=True)
    given = attention.arguments_of(variant, {"b": 1, "h": 2, "m": 512, "n": 512, "d": 64, "e": 64}, 5)
    kernel = attention.attention_kernel(variant, tile=(128, 64), waves=2, schedule=DEPENDENT)
    kernel.compile(**given, target="sm_90a").emulate(**given)
    assert attention.check(variant, given) == 0
    asked, copied = boxes
    assert asked and asked.keys() == copied.keys()
    for workgroup, wanted in asked.items():
        assert set(wanted) <= set(copied[workgroup])
        assert {base for base, *_ in wanted} == {base for base, *_ in copied[workgroup]}  # Q, K and V
    assert any(len(wanted) < len(copied[workgroup]) for workgroup, wanted in asked.items())


def test_tiles_that_memory_places_are_not_asked_for() -> None:
    """Their numbers may be what the launch in front writes."""
    paged = example_files.load("attention_decode")
    kernel = paged.split_kernel(paged.Variant(wd.bf16, group=4), page=128, pages=32, splits=4, tile=64, rows=64)
    sizes = {paged.Z: 8, paged.G: 4, paged.M: 64, paged.P: 512, paged.J: 32, paged.D: 128, paged.E: 128}
    text = kernel.variant(Candidate((), (("dependent", True),))).compile(target="sm_90a", subs=sizes).asm
    assert "cp.async.bulk.tensor" in text and not lines_with(text, EARLY)


@pytest.mark.slow
def test_only_workgroups_that_run_at_once_ask(boxes: tuple[Boxes, Boxes]) -> None:
    """Of those that begin when others have ended nobody waits."""
    subs = {**dict(zip(TILE, (64, 64, 64, 64, 64))), M: 64 * 600, N: 64, K: 256}
    compiled = gemm(persistent=False, stages=4).compile(target="sm_90a", subs=subs)
    assert compiled.grid[0] == 600 and lines_with(compiled.asm, EARLY)
    a, b = (np.zeros((n, 256), products.numbers((1,), wd.bf16, 1).dtype) for n in (64 * 600, 64))
    compiled.emulate(a, b, np.empty((64 * 600, 64), a.dtype))
    asked, copied = boxes
    assert len(copied) == 600 and sorted(asked) == sorted(copied)[: len(asked)] and 132 <= len(asked) < 600


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


LINES = r"prefetch\.global\.L2"


def test_first_loads_are_asked_for(oracle: Any) -> None:
    """What lanes load straight into registers, as much as memory brings meanwhile, by none past the end."""
    oracle("ptxas")
    m, n, bn = wd.symbols("DM DN DBN")

    @wd.wave([wd.WorkgroupConstraint(m, 1, 0), wd.WorkgroupConstraint(n, bn, 1)], subs={bn: 1024}, schedule=DEPENDENT)
    def shares(x: wd.Memory[m, n, wd.f32], y: wd.Memory[m, n, wd.f32]):
        row = wd.read(x)
        wd.write(row / wd.sum(row, dim=n), y)

    x = np.random.default_rng(5).random((40, 1000), dtype=np.float32)
    compiled = shares.compile(x, np.zeros_like(x), target="sm_90a")
    y = np.zeros_like(x)
    compiled.emulate(x, y)
    np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-5)
    (wait,), early = lines_with(compiled.asm, r"griddepcontrol\.wait"), lines_with(compiled.asm, LINES)
    loads = lines_with(compiled.asm, r"ld\.global")
    assert early and max(early) < wait < min(loads) and len(early) <= len(loads)
    hopper.spilled_or_serialised(compiled.asm)
    # The emulator watches no prefetch of lines; the interpreter of kernel IR objects to one outside of its array.
    y[:] = 0
    run(compiled.kernel_ir, [x, y], grid=compiled.grid, target=get_target("sm_90a"))
    np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-5)
    asked = [op for op in compiled.kernel_ir.body.walk() if op.name == "touch.global"]
    copied = [op for op in compiled.kernel_ir.body.walk() if op.name == "load.global"]
    assert {op.args[1:4] for op in asked} <= {op.args[1:4] for op in copied}


def test_places_from_memory_are_not_asked_for() -> None:
    m, k, bn = wd.symbols("DM DK DBN")

    @wd.wave([wd.WorkgroupConstraint(m, bn, 0)], subs={bn: 64}, schedule=DEPENDENT)
    def gathered(x: wd.Memory[k, wd.f32], i: wd.Memory[m, wd.i32], s: wd.Memory[m, wd.f32]):
        wd.write(wd.read(x, mapping=wd.IndexMapping((m,), {k: wd.read(i)})), s)

    text = gathered.compile(target="sm_90a", subs={m: 256, k: 512}).asm
    (wait,), early = lines_with(text, r"griddepcontrol\.wait"), lines_with(text, LINES)
    assert len(early) == 1 and early[0] < wait  # the indices alone


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
