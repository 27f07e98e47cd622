"""Latent attention: one tile in shared memory for two products, pages placed ahead, sums of 512 columns."""

from __future__ import annotations

from typing import Any

import example_files
import numpy as np
import pytest
from products import TARGETS

import wavedsl as wd

mla = example_files.load("mla_decode")


def run(
    target: str, heads: int, lengths: list[int], tile: Any, sizes: tuple[int, int] = (128, 64),
    dtype: wd.DType = wd.bf16, splits: int = 2, page: int = 64, **bad: Any,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """The compiled first kernel and the arguments after both."""
    given = mla.arguments_of(dtype, lengths, heads, page, splits, sum(lengths), sizes)
    for name, change in bad.items():
        change(given[name])
    pages = given["table"].shape[1]
    kernel = mla.split_kernel(dtype, page=page, pages=pages, splits=splits, tile=tile)
    values = [given[p.name] for p in kernel.parameters]
    compiled = kernel.compile(*values, target=target, subs={mla.E: sizes[0]} if tile.apart else None)
    compiled.emulate(*values)
    combine = mla.decode.combine_kernel(mla.Variant(dtype, group=heads))
    parts = {**given, "partial": given["partial"][:, :, None], "level": given["level"][:, :, None]}
    combine.evaluate(*[parts[p.name] for p in combine.parameters])
    return compiled, given


def places(compiled: Any) -> list[str]:
    """Tiles in shared memory."""
    return list(compiled.kernel_ir.notes["lowering"].places)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "lengths,tile", [([70, 0], mla.Tile(keys=16)), ([33, 64], mla.Tile(keys=32)), ([40], mla.Tile(16, (2, 2), 16))],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", [wd.bf16, wd.f16], ids=str)
def test_against_numpy(target: str, lengths: list[int], tile: Any, dtype: wd.DType) -> None:
    heads = 16 * tile.waves[0]
    _, given = run(target, heads, lengths, tile, dtype=dtype)
    assert mla.check(dtype, given) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_the_evaluator_agrees(target: str) -> None:
    """Partial sums of the emulated text are those of the graph."""
    _, given = run(target, 16, [40, 9], mla.Tile(keys=32))
    again = mla.arguments_of(wd.bf16, [40, 9], 16, 64, 2, 49, (128, 64))
    kernel = mla.split_kernel(wd.bf16, page=64, pages=1, splits=2)
    kernel.evaluate(*[again[p.name] for p in kernel.parameters])
    np.testing.assert_allclose(given["partial"], again["partial"], atol=0.02)
    np.testing.assert_allclose(given["level"], again["level"], rtol=1e-5)


def test_warpgroups_share_the_columns_of_the_sum(oracle: Any) -> None:
    """Bulk copies and instructions of warpgroups, as the evaluator of the same kernel has it."""
    oracle("ptxas")
    compiled, given = run("sm_90a", 64, [70, 9], mla.Tile(64, (1, 2), 32, apart=True), (256, 64))
    assert mla.check(wd.bf16, given) == 0
    assert "wgmma" in compiled.asm and "cp.async.bulk.tensor" in compiled.asm and compiled.resources.spills == 0


def test_a_page_outside_of_the_pool_gives_nan() -> None:
    """That a number is compared keeps no copy back: the one that places the page is loaded by itself."""

    def spoil(table: np.ndarray) -> None:
        table[0, 1] = 77

    _, given = run("gfx950", 16, [130, 20], mla.Tile(keys=32), splits=1, table=spoil)
    assert np.isnan(given["o"][0].astype(np.float32)).all() and not np.isnan(given["o"][1].astype(np.float32)).any()


@pytest.mark.parametrize(
    ("target", "waves", "tiles"),
    [
        ("gfx950", (1, 4), ["latent"]), ("sm_80", (1, 4), ["latent"]), ("gfx942", (1, 4), ["latent"]),
        ("gfx950", (4, 1), ["latent"]), ("gfx942", (4, 1), ["latent", "latent"]),
    ],
)  # fmt: skip
def test_one_tile_for_both_products(target: str, waves: tuple[int, int], tiles: list[str]) -> None:
    """Where loads from shared memory transpose; else where a lane takes few single elements, or two do not fit. No
    value is exchanged between lanes for the second product."""
    heads = 16 * waves[0]
    compiled, _ = run(target, heads, [40], mla.Tile(16, waves, 16), splits=1)
    assert [name.split(".")[0] for name in places(compiled) if name.startswith("latent")] == tiles
    reads = [op for op in _ops(compiled.kernel_ir.body) if op.name == "load.shared"]
    assert {op.attrs["buffer"] for op in reads} >= {name for name in places(compiled) if name.startswith("latent")}


def _ops(region: Any) -> Any:
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from _ops(inner)


def test_pages_are_copied_as_far_ahead_as_there_are_slots() -> None:
    """The number of a page is there a trip before its copies start, and these start three trips before their use. (The
    comparison of the number with the pool's size held both back to one.)"""
    compiled, _ = run("sm_80", 16, [300], mla.Tile(keys=16), splits=1)
    (note, *_) = compiled.kernel_ir.notes["lowering"].loops

    def stages(name: str) -> set[int]:
        return {stage for step, stage in zip(note.steps, note.body.stages) if step.name.startswith(name)}

    (copied,), (used,) = stages("copy latent"), stages("mma")
    assert note.slots == 4 and used - copied == 3 and min(stages("load table")) == copied - 1


@pytest.mark.parametrize(
    ("target", "heads", "most"),
    [("gfx942", 16, 0), ("gfx950", 64, 0), ("gfx942", 64, 128), ("gfx90a", 128, 128), ("gfx950", 16, 0)],
)
def test_sums_stay_in_vector_registers(target: str, heads: int, most: int) -> None:
    """512 columns and a query of 576 numbers per head fit: the query lies in the accumulation file, where matrix
    instructions read it, and of the sums, which vector instructions rescale, no more than have to (all of them moved,
    260 times a trip)."""
    subs = {mla.Z: 4, mla.P: 64, mla.M: heads, mla.L: 512, mla.R: 64, mla.J: 16}
    kernel = mla.split_kernel(wd.bf16, page=64, pages=16, splits=2, tile=mla.tile_of(target, heads))
    compiled = kernel.compile(target=target, subs=subs)
    assert compiled.resources.spills == 0
    assert max(loop.instructions["accmove"] for loop in compiled.resources.loops) <= most


def test_a_tile_crosses_no_page() -> None:
    with pytest.raises(ValueError, match="a tile must lie in one page"):
        mla.split_kernel(wd.bf16, page=48, pages=1, splits=1)
