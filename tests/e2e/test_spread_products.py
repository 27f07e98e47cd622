"""Products along a dimension that warpgroups share, in loops, which an atomic adds to an array: by warpgroups, each of
them a share of the result; on the emulated sm_90a with every check on, exactly."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import hopper
import numpy as np
import pytest

import wavedsl as wd

M, N, K, D = wd.symbols("M N K D")


def chained(
    rows: int, columns: int = 128, waves: int = 2, scaled: bool = False, again: bool = False,
    schedule: wd.Schedule | None = None,
) -> Any:  # fmt: skip
    """out += (x yᵀ) z, a workgroup per `columns` rows of y and z, a trip per `rows` of x. `scaled`: the parts are
    multiplied by a number on the way; `again`: the result has another reader."""

    @wd.wave(
        [wd.WorkgroupConstraint(N, columns, 0), wd.TilingConstraint(M, rows), wd.WaveConstraint(N, columns // waves)],
        schedule=schedule,
    )
    def kernel(
        x: wd.Memory[M, K, wd.bf16],
        y: wd.Memory[N, K, wd.bf16],
        z: wd.Memory[N, D, wd.bf16],
        out: wd.Memory[M, D, wd.f32],
        sums: wd.Memory[N, D, wd.f32],
    ):
        @wd.iterate(M, init_args=[wd.Register[N, D, wd.f32](0.0)])
        def loop(total):
            s = wd.cast(wd.mma(wd.read(x), wd.read(y), wd.Register[M, N, wd.f32](0.0)), wd.bf16)
            part = wd.mma(s, wd.read(z), wd.Register[M, D, wd.f32](0.0))
            wd.atomic_add(part * 2.0 if scaled else part, out)
            if again:
                wd.atomic_add(part, out)
            return total

        wd.write(loop, sums)

    return kernel


def arguments(m: int, n: int, k: int, d: int) -> list[np.ndarray]:
    """Whole numbers that bf16 holds, sums that f32 holds."""
    random = np.random.default_rng(m + n + d)
    storage = wd.bf16.storage
    made = [random.integers(-1, 2, shape).astype(storage) for shape in ((m, k), (n, k), (n, d))]
    return [*made, random.integers(-9, 10, (m, d)).astype(np.float32), np.full((n, d), 3, np.float32)]


def check(kernel: Any, sizes: tuple[int, int, int, int], target: str = "sm_90a", times: int = 1) -> Any:
    given = arguments(*sizes)
    x, y, z, out, _ = (a.astype(np.float64) for a in given)
    compiled = kernel.compile(*given, target=target)
    compiled.emulate(*given)
    assert np.array_equal(given[3], out + times * (x @ y.T) @ z) and not given[4].any()
    return compiled




LANES, BULK = (wd.Schedule(bulk_atomics=bulk) for bulk in (False, True))


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (64, (128, 256, 64, 128)),
        (64, (100, 200, 64, 64)),
        (128, (256, 128, 64, 64)),
        pytest.param(128, (200, 90, 64, 128), marks=pytest.mark.slow),
        pytest.param(32, (64, 128, 64, 128), marks=pytest.mark.slow),
    ],
)
def test_each_warpgroup_has_a_share(rows: int, sizes: tuple[int, int, int, int]) -> None:
    """Columns of 64 rows, rows of 128, and of 32 rows the columns as an instruction's rows: tiles that end inside too.
    The warpgroups meet once a trip, for what they leave in shared memory."""
    compiled = check(chained(rows, schedule=LANES), sizes)
    loop = compiled.asm[compiled.asm.index("$M1:") : compiled.asm.index("$M1_end:")]
    assert len(re.findall(r"bar.sync +1, 256", loop)) == 1
    per_lane = rows * sizes[3] // 256
    found = re.findall(r"red\.global\.(v2\.f32\.add|add\.f32)", loop)
    assert len(found) == (per_lane if rows == 32 else per_lane // 2)
    assert {x.startswith("v2") for x in found} == {rows != 32}


def test_three_warpgroups() -> None:
    """Shares of a third of 96 columns."""
    assert "mma_async" in check(chained(64, 192, 3), (128, 192, 64, 96)).asm


def test_other_readers_and_factors() -> None:
    """What else reads the result, or stands between, has it as other products leave it."""
    check(chained(64, again=True), (64, 128, 64, 64), times=2)
    check(chained(64, scaled=True), (64, 128, 64, 64), times=2)


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (64, (100, 200, 64, 64)),
        (128, (200, 128, 64, 64)),
        (32, (70, 128, 64, 128)),
        pytest.param(64, (128, 256, 64, 128), marks=pytest.mark.slow),
    ],
)
def test_by_bulk_reductions(rows: int, sizes: tuple[int, int, int, int]) -> None:
    """One instruction per 64 x 32 sums, or 32 x 32 where an instruction's rows lie along the array; nothing leaves from
    registers, and what lies outside is dropped. The emulator checks that panels are seen by copies, and are not stored
    to before they have been read."""
    compiled = check(chained(rows), sizes)
    loop = compiled.asm[compiled.asm.index("$M1:") : compiled.asm.index("$M1_end:")]
    panels = rows * sizes[3] // 2 // (min(rows, 64) * 32)
    assert loop.count("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add") == panels and "red.global" not in loop
    assert "bulk reductions of 128-byte rows" in str(compiled.decisions)


def test_what_bulk_reductions_cannot_do() -> None:
    """What waves have a part of each is added up by lanes; other chips have none."""
    compiled = check(chained(64, scaled=True, schedule=BULK), (64, 128, 64, 64), times=2)
    assert "cp.reduce" not in compiled.asm
    with pytest.raises(wd.ConstraintError, match="bulk_atomics=True"):
        check(chained(32, 64, schedule=BULK), (64, 128, 32, 32), "gfx942")


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_on_other_chips(target: str) -> None:
    check(chained(32, 64), (64, 128, 32, 32), target)


def test_nothing_spills(oracle: Callable[[str], str]) -> None:
    oracle("ptxas"), oracle("nvdisasm")
    found = hopper.static(check(chained(64), (128, 128, 64, 128)).asm)
    assert found.products > 0 and found.spills == 0 and not found.codes
