"""Tiles that start anywhere and end at a run-time row: exact wherever start and end lie, by buffers that end there."""

from __future__ import annotations

import mmap
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import wavedsl as wd

H, M, N, E, P, Q = wd.symbols("H M N E P Q")
ROWS, HEADS, SIZE, LONGEST = 70, 3, 64, 96
FAR = 1 << 31
PARTS = [
    (0, 70), (3, 40), (31, 1), (5, 0), (60, 50), (69, 1), (70, 4), (200, 96), (-1, 40), (-20, 50), (-33, 33), (-97, 96),
    (10, -5), (-5, -5), (FAR - 1, 96), (FAR - 20, 96), (-FAR, 96), (1 << 20, 96), (-(1 << 20), 96), (1 << 24, 96),
    (-(1 << 25), FAR - 1), (0, FAR - 1), (40, FAR - 41),
]  # fmt: skip
"""First row and number of rows, in front of the array, inside, behind it and so far away that 32 bits overflow."""


def sums(order: str, schedule: Any) -> Any:
    """out[h][first + m] = Σ over n < count of x[m][n] · b[h][first + n], m < count: tiles are read in a loop, through
    shared memory, and written."""

    def placed(size: Any) -> tuple[Any, ...]:
        return tuple({"h": H, "s": P if size is E else Q, "d": size}[letter] for letter in order)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 32, 0),
            wd.WorkgroupConstraint(H, 1, 1),
            wd.TilingConstraint(N, 32),
            wd.WaveConstraint(M, 16),
        ],
        schedule=schedule,
    )
    def kernel(
        x: wd.Memory[M, N, wd.f16], b: wd.Memory[(*placed(E), wd.SHARED, wd.f16)],
        out: wd.Memory[(*placed(E), wd.f32)], first: wd.Scalar[wd.i32], count: wd.Scalar[wd.i32],
    ):  # fmt: skip
        def rows(dim):
            return wd.where(wd.index(dim) < count, wd.index(dim) + first, -1)

        @wd.iterate(N, init_args=[wd.Register[M, E, wd.f32](0.0)])
        def total(acc):
            return wd.mma(wd.read(x), wd.read(b, mapping=wd.IndexMapping((N, E), {P: rows(N)})), acc)

        wd.write(total, out, mapping=wd.IndexMapping((M, E), {P: rows(M)}))

    return kernel


def array(order: str, dtype: Any, rows_apart: int | None) -> np.ndarray:
    """An array of zeros with these bytes between its rows; memory is committed where it is touched."""
    shape = {"h": HEADS, "s": ROWS, "d": SIZE}
    extents = tuple(shape[letter] for letter in order)
    if rows_apart is None:
        return np.zeros(extents, dtype)
    strides = {"s": rows_apart, "h": SIZE * np.dtype(dtype).itemsize, "d": np.dtype(dtype).itemsize}
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = mmap.mmap(-1, ROWS * rows_apart, flags=flags)
    return np.ndarray(extents, dtype, memory, 0, [strides[letter] for letter in order])


def check(
    target: str, direct: bool, order: str, parts: Sequence[tuple[int, int]], rows_apart: int | None = None,
    dynamic: tuple[Any, ...] = (),
) -> wd.CompiledKernel:  # fmt: skip
    rng = np.random.default_rng(5)
    b, out = (array(order, dtype, rows_apart) for dtype in (np.float16, np.float32))
    b[...] = rng.integers(-8, 9, b.shape)
    x = rng.integers(-8, 9, (LONGEST, LONGEST)).astype(np.float16)
    kernel = sums(order, wd.Schedule(direct_to_shared=direct))
    compiled = kernel.compile(x, b, out, 0, 0, target=target, dynamic=dynamic)
    assert "v_cmp" not in compiled.asm  # what compares rows are the buffers' ends
    assert direct is bool(re.search(r"^\s*buffer_load_\w+ .* lds$", compiled.asm, re.M))
    by_head, shown = ((x if order == "hsd" else x.transpose(1, 0, 2)) for x in (b, out))
    for first, count in parts:
        out[...] = 7
        compiled.emulate(x, b, out, first, count)
        here = [m for m in range(LONGEST) if m < count and 0 <= first + m < ROWS]
        rows = [first + m for m in here]
        want = np.full(by_head.shape, 7, np.float32)
        want[:, rows] = np.einsum("mn,hnd->hmd", x[np.ix_(here, here)].astype(int), by_head[:, rows].astype(int))
        np.testing.assert_array_equal(shown, want, f"first {first}, count {count}")
    return compiled


@pytest.mark.parametrize(
    ("target", "direct", "order"),
    [
        ("gfx942", False, "shd"),
        ("gfx950", True, "hsd"),
        ("gfx950", True, "shd"),
        ("gfx90a", False, "hsd"),
    ],
)
def test_every_place_of_a_part(target: str, direct: bool, order: str) -> None:
    check(target, direct, order, PARTS)


def test_direct_copies_of_a_tile_that_starts_in_front_of_its_array() -> None:
    """The immediate of such a copy is taken off its address, which may not become less than zero by that."""
    check("gfx950", True, "hsd", [(-1, 40), (-20, 50)])


@pytest.mark.parametrize(
    ("target", "direct", "order"), [("gfx942", False, "shd"), ("gfx950", True, "hsd"), ("gfx90a", False, "hsd")]
)
def test_numbers_of_rows_known_at_run_time(target: str, direct: bool, order: str) -> None:
    check(target, direct, order, PARTS, dynamic=(P,))


@pytest.mark.parametrize(("target", "direct", "order"), [("gfx942", False, "hsd"), ("gfx950", True, "shd")])
def test_rows_past_4_gib(target: str, direct: bool, order: str) -> None:
    """Rows so far apart that a tile of them spans 2^31 bytes, the most that offsets reach."""
    check(target, direct, order, PARTS, rows_apart=1 << 26)
