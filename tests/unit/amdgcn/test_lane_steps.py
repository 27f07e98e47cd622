"""Steps of a reduction over lanes: which instructions they take, and that lanes which do not agree are exchanged."""

from __future__ import annotations

from collections import Counter

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import get_target
from wavedsl.codegen.amdgcn.emit import compile_kernel_ir
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import B32, F32
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")


def reduced(chip: str, masks: list[int], op: str = "fadd") -> tuple[Counter[str], np.ndarray, np.ndarray]:
    """What one number per lane takes to be combined with those of lane ^ mask, mask by mask: executed instructions, the
    numbers, the results."""
    kernel = kernels.new_kernel("steps", chip, ["x", "y"])
    b = Builder(kernel, get_target(chip))
    at = b.mul(b.tid(), 4)
    source, target = b.buffer(b.param(0), 256), b.buffer(b.param(1), 256)
    value = b.bitcast(b.load_global(source, at, bytes=4, type=B32), F32)
    for mask in masks:
        value = b.emit(op, [value, b.shuffle_xor(value, mask)])
    b.store_global(target, at, b.bitcast(value, B32), bytes=4)
    text = compile_kernel_ir(b.finish(), get_target(chip)).text
    x, y = np.random.default_rng(1).integers(-50, 50, 64).astype(np.float32), np.zeros(64, np.float32)
    report = run(text, target=chip, grid=(1,), block=(64,), args=[x, y])
    return report.instructions, x, y


@pytest.mark.parametrize("chip", CHIPS)
def test_a_sum_over_all_lanes(chip: str) -> None:
    found, x, y = reduced(chip, [1, 2, 4, 8, 16, 32])
    assert (y == x.sum()).all()
    assert found["v_add_f32_dpp"] == 4  # 4 by the mirror of 8 lanes, because neighbours agree
    assert found["ds_swizzle_b32"] == 1
    assert not found["ds_bpermute_b32"] and not found["v_mov_b32_dpp"]
    assert sum(n for name, n in found.items() if name.startswith("v_cndmask")) == 0
    if chip == "gfx950":
        assert found["v_permlane32_swap_b32_e32"] == 1
    else:
        assert found["v_readlane_b32"] == 2


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("masks", [[8, 4], [1, 8, 4], [8, 4, 1, 2]], ids=str)
def test_lanes_of_a_row_whose_halves_agree(chip: str, masks: list[int]) -> None:
    found, x, y = reduced(chip, masks)
    lane, want = np.arange(64), x
    for mask in masks:
        want = want + want[lane ^ mask]
    assert (y == want).all()
    assert found["v_add_f32_dpp"] == len(masks)
    assert not found["ds_swizzle_b32"] and not found["ds_bpermute_b32"]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("masks", [[4], [1, 4], [32], [2, 4, 32], [4, 8, 16, 32]], ids=str)
def test_lanes_that_do_not_agree(chip: str, masks: list[int]) -> None:
    found, x, y = reduced(chip, masks)
    lane, want = np.arange(64), x
    for mask in masks:
        want = want + want[lane ^ mask]
    assert (y == want).all()
    assert not found["v_readlane_b32"]


@pytest.mark.parametrize("op", ["fmax", "fmin"])
def test_extremes(op: str) -> None:
    found, x, y = reduced("gfx942", [1, 2, 4, 8, 16, 32], op)
    assert (y == (x.max() if op == "fmax" else x.min())).all()
    assert found[f"v_{op[1:]}_f32_dpp"] == 4
