"""Kernels of `gpu_memory_bound.py`: what moves every byte once, whole rows in a workgroup's registers; and the ways to
cut them that a run on a chip tries."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import wavedsl as wd

M, N, BM, BN = wd.symbols("M N BM BN")
WAVES = 4
LONGEST = 128
"""Elements of a row that a lane can have in its registers beside what is computed from them."""
TILES = ((4, 512), (2, 512), (1, 2048), (8, 512), (16, 512))
"""Rows and columns of a workgroup of a copy or a chain, in the order in which a benchmark tries them."""
SQUARES = (64, 32, 128)
"""Sides of a transposed tile, likewise."""


@dataclass(frozen=True)
class Rows:
    """How rows are cut: `waves` share each of the `rows` that a workgroup has at once. A wave has `each` rows
    to load before it adds up the first: as many more bytes in flight. `cache`: a hint for rows' reads
    and writes, as `wd.read` takes it; `again`: whether a row is read again, out of a cache, once its sum is known,
    rather than held in registers, so that more workgroups fit on a compute unit."""

    waves: int = WAVES
    rows: int = 1
    cache: str | None = None
    again: bool = False
    each: int = 1

    def __str__(self) -> str:
        more = [self.cache] if self.cache else ["read again"] if self.again else []
        more += [f"{self.each} rows each"] if self.each > 1 else []
        return ", ".join([f"{self.rows} x {self.waves} waves", *more])

    def second(self, a: Any, first: Any) -> Any:
        """A row's numbers in f32 once its sum is known; `first` are those that the sum was made of."""
        return wd.cast(wd.read(a), wd.f32) if self.again else first

    def constraints(self) -> list[Any]:
        return [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.WaveConstraint(M, BM / self.rows),
            wd.WaveConstraint(N, BN / self.waves),
        ]

    def tiles(self, columns: int) -> dict[Any, int]:
        """Rows and columns that a workgroup holds: at least one column for every lane of a row's waves."""
        return {BM: self.rows * self.each, BN: max(self.waves * 64, 1 << (columns - 1).bit_length())}


PLAIN = Rows()
HELD = 32
"""Elements of a row that a lane has at least where it is worth to read them again."""
ALONE = 64
"""Elements of a row that a lane has at most where a wave has rows to itself."""


def row_cuts(columns: int, shared: bool = False) -> tuple[Rows, ...]:
    """Ways to cut rows of so many columns, likewise: no lane has more of one than `LONGEST`, and none less than 16
    bytes of 16-bit elements. Waves that have short rows to themselves wait for nobody. `shared`: whether rows meet
    numbers that are the same for all, as a norm's do: they stay in a first-level cache if the rows pass it by, and are
    more to hold beside a row, which may be read again instead."""
    waves = [w for w in (WAVES, 2, 8, 16) if w == WAVES or 8 <= columns / (32 * w) <= LONGEST]
    alone = [Rows(1, rows) for rows in (4, 8)] if columns / 32 <= ALONE else []
    alone += [Rows(1, rows, each=2) for rows in (4, 8)] if 2 * columns / 32 <= ALONE else []
    passing = [Rows(w, cache="stream") for w in waves if w >= WAVES] if shared else []
    again = [Rows(w, again=True) for w in waves if w >= WAVES and columns / (32 * w) >= HELD] if shared else []
    return (*map(Rows, waves), *alone, *passing, *again)


@functools.cache
def copy(dtype: wd.DType, rows: int = TILES[0][0], columns: int = TILES[0][1]) -> Any:
    """b = a."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 1), wd.WorkgroupConstraint(N, BN, 0)], subs={BM: rows, BN: columns})
    def copied(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        wd.write(wd.read(a), b)

    return copied


@functools.cache
def scaled_sum(dtype: wd.DType, rows: int = TILES[0][0], columns: int = TILES[0][1]) -> Any:
    """c = 2 a + b, an elementwise chain with two inputs."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 1), wd.WorkgroupConstraint(N, BN, 0)], subs={BM: rows, BN: columns})
    def summed(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype], c: wd.Memory[M, N, dtype]):
        wide = wd.fma(wd.cast(wd.read(a), wd.f32), 2.0, wd.cast(wd.read(b), wd.f32))
        wd.write(wd.cast(wide, dtype), c)

    return summed


@functools.cache
def softmax(dtype: wd.DType, columns: int, cut: Rows = PLAIN) -> Any:
    """b = softmax(a) along rows: one read, one write."""

    @wd.wave(cut.constraints(), subs=cut.tiles(columns))
    def softmaxed(a: wd.Memory[M, N, dtype], b: wd.Memory[M, N, dtype]):
        x = wd.cast(wd.read(a, cache=cut.cache), wd.f32)
        e = wd.exp(x - wd.max(x, dim=N))
        wd.write(wd.cast(e * (1.0 / wd.sum(e, dim=N)), dtype), b, cache=cut.cache)

    return softmaxed


@functools.cache
def rms_norm(dtype: wd.DType, columns: int, cut: Rows = PLAIN) -> Any:
    """c = a / sqrt(mean(a^2) + eps) * w along rows."""

    @wd.wave(cut.constraints(), subs=cut.tiles(columns))
    def normed(a: wd.Memory[M, N, dtype], w: wd.Memory[N, dtype], c: wd.Memory[M, N, dtype], eps: wd.Scalar[wd.f32]):
        x = wd.cast(wd.read(a, cache=cut.cache), wd.f32)
        scale = wd.rsqrt(wd.sum(x * x, dim=N) * (1.0 / columns) + eps)
        wd.write(wd.cast(cut.second(a, x) * scale * wd.cast(wd.read(w), wd.f32), dtype), c, cache=cut.cache)

    return normed


@functools.cache
def layer_norm(dtype: wd.DType, columns: int, cut: Rows = PLAIN) -> Any:
    """c = (a - mean) / sqrt(variance + eps) * w + b along rows, beside each row's mean and 1 / sqrt(variance + eps)."""

    @wd.wave(cut.constraints(), subs=cut.tiles(columns))
    def layer_normed(
        a: wd.Memory[M, N, dtype], w: wd.Memory[N, dtype], b: wd.Memory[N, dtype], c: wd.Memory[M, N, dtype],
        mean: wd.Memory[M, wd.f32], rstd: wd.Memory[M, wd.f32], eps: wd.Scalar[wd.f32],
    ):  # fmt: skip
        x = wd.cast(wd.read(a, cache=cut.cache), wd.f32)
        middle = wd.sum(x, dim=N) * (1.0 / columns)
        away = x - middle
        scale = wd.rsqrt(wd.sum(away * away, dim=N) * (1.0 / columns) + eps)
        wd.write(middle, mean)
        wd.write(scale, rstd)
        kept = cut.second(a, x) - middle if cut.again else away
        result = wd.fma(kept * scale, wd.cast(wd.read(w), wd.f32), wd.cast(wd.read(b), wd.f32))
        wd.write(wd.cast(result, dtype), c, cache=cut.cache)

    return layer_normed


@functools.cache
def row_sum(dtype: wd.DType, columns: int, cut: Rows = PLAIN) -> Any:
    """s = sum of each row."""

    @wd.wave(cut.constraints(), subs=cut.tiles(columns))
    def rows_summed(a: wd.Memory[M, N, dtype], s: wd.Memory[M, wd.f32]):
        wd.write(wd.sum(wd.cast(wd.read(a, cache=cut.cache), wd.f32), dim=N), s)

    return rows_summed


@functools.cache
def transpose(dtype: wd.DType, tile: int = SQUARES[0]) -> Any:
    """b = a transposed, by square tiles that pass through shared memory: 16 bytes per lane are read and written."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 1), wd.WorkgroupConstraint(N, BN, 0)], subs={BM: tile, BN: tile})
    def transposed(a: wd.Memory[M, N, wd.SHARED, dtype], b: wd.Memory[N, M, dtype]):
        wd.write(wd.read(a), b)

    return transposed
