"""Matrix runs of loops that also compute issue at raised priority: where, and what overlaps by the cycle model."""

from __future__ import annotations

import re

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.codegen.amdgcn.priorities import FIRST
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import F32, Kernel, vector
from wavedsl.runtime.emulator import run
from wavedsl.runtime.emulator.cycle_queue import Launch

CHIPS = ("gfx90a", "gfx942", "gfx950")
TRIPS = 12


def alternating(chip: str, products: int, computed: int, atom: str = "F32_32x32x8_F16", shared: int = 1024) -> Kernel:
    """One wave per SIMD: in every trip `products` in a chain, then `computed` rounds of arithmetic on their sums."""
    target = get_target(chip)
    kernel = kernels.new_kernel("alternating", chip, ["x", "y"], 4, shared_bytes=shared)
    b = Builder(kernel, target)
    tid = b.tid()
    row = next(a for a in target.mma_atoms if a.name == atom)
    words = row.a_words
    x = b.load_global(b.buffer(b.param(0), 65536), b.mul(tid, 4 * words), bytes=4 * words, type=vector(words))
    x = b.bitcast(x, vector(words, "f32")) if atom.endswith("F32") else x
    with b.for_(0, TRIPS, 1, [b.zero(vector(row.d_words, "f32"))], label="k") as loop:
        sums = loop.carried[0]
        for _ in range(products):
            sums = b.mma(row, x, x, sums)
        parts = [b.slice(sums, i) for i in range(row.d_words)]
        for _ in range(computed):
            parts = [b.ffma(part, b.const(0.5, F32), b.const(0.25, F32)) for part in parts]
        loop.yield_([b.vec(*parts)])
    total = b.bitcast(b.slice(loop.results[0], 0, 4), vector(4))
    b.store_global(b.buffer(b.param(1), 65536), b.mul(tid, 16), total, bytes=16)
    return kernel


def levels(text: str) -> list[str]:
    """Of the loop: levels of priority, M for a matrix instruction, w for a wait, v for a run of vector instructions."""
    body = text[re.search(r"^\.L\w*_k\w*:", text, re.M).end() : text.index("s_cbranch")]  # type: ignore[union-attr]
    found: list[str] = []
    for line in body.splitlines():
        name = line.split()[0] if line.split() else ""
        kind = "M" if "mfma" in name else "v" if name.startswith("v_") else ""
        if name == "s_setprio":
            kind = line.split()[1]
        elif name in ("s_nop", "s_waitcnt"):
            kind = "w"
        if kind and not (kind == "v" and found[-1:] == ["v"]):
            found.append(kind)
    return found


@pytest.mark.parametrize("chip", CHIPS)
def test_a_long_run_starts_at_one_priority_and_goes_on_at_another(chip: str) -> None:
    found = [x for x in levels(compile_kernel_ir(alternating(chip, 9, 4), get_target(chip)).text) if x not in "wv"]
    assert found == ["1", *["M"] * FIRST, "2", *["M"] * (9 - FIRST), "0"]


@pytest.mark.parametrize("chip", CHIPS)
def test_a_short_run_has_one_priority(chip: str) -> None:
    found = levels(compile_kernel_ir(alternating(chip, 3, 4), get_target(chip)).text)
    assert [x for x in found if x not in "wv"] == ["1", "M", "M", "M", "0"]
    if "w" in found:  # what the first product waits for is waited for at its priority
        assert found.index("1") < found.index("w")


@pytest.mark.parametrize(
    "what",
    [
        {"computed": 0},
        {"computed": 4, "shared": 40960},
        {"computed": 4, "atom": "F32_32x32x2_F32"},
    ],
    ids=["nothing beside products", "a wave has its SIMD to itself", "products that keep the port"],
)
def test_where_nothing_could_run_beside_there_are_none(what: dict) -> None:  # type: ignore[type-arg]
    assert "s_setprio" not in compile_kernel_ir(alternating("gfx942", 9, **what), get_target("gfx942")).text


@pytest.mark.parametrize("chip", CHIPS)
def test_two_waves_of_a_simd_overlap(chip: str) -> None:
    """Products take about as long as the arithmetic: with priorities two workgroups take at most four fifths of the
    clocks that they take without, and their results are the same."""
    text = compile_kernel_ir(alternating(chip, 12, 5), get_target(chip)).text
    plain = re.sub(r"^\ts_setprio.*\n", "", text, flags=re.M)
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, 32768).astype(np.float16)
    clocks, results = [], []
    for one in (text, plain):
        y = np.zeros(16384, np.float32)
        report = run(one, target=chip, grid=(1, 1, 1), block=(256, 1, 1), args=[x, y], checks=False)
        clocks.append(report.replay(Launch(8, 2, 0.0)).cycles)
        results.append(y)
    assert np.array_equal(*results) and np.any(results[0])
    assert clocks[0] <= 0.8 * clocks[1], clocks
