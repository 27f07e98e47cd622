"""Clocks of products whose operands are gathered: filters, tokens of experts, keys in pages. Nothing is measured.

    python benchmarks/gathers.py [--target sm_90a sm_80] [--only filter]

Each kernel is compiled for the chip and a workgroup of it replayed, with places in random order. Printed are the tile,
clocks of the launch, what the units were busy for, and how operands came (`CompiledKernel.decisions`). The tables of
docs/design/004-hopper.md ("Gathers") and 005-language.md ("Runs") are of it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.reports import table

B, H, W, C, P, F, K = wd.symbols("B H W C P F K")
T, G, R, E, N = wd.symbols("T G R E N")
Z, M, D, S, J, X = wd.symbols("Z M D S J X")
PLACE = np.random.default_rng(1)


@dataclass(frozen=True)
class Case:
    """A kernel with the sizes of its dimensions; `numbers`: what its arrays of numbers hold, by name."""

    name: str
    tile: str
    kernel: Any
    sizes: dict[Any, int]
    numbers: dict[str, np.ndarray] = field(default_factory=dict)


def waves(rows: Any, columns: Any, given: tuple[int, int] | None) -> list[Any]:
    return [wd.WaveConstraint(d, n) for d, n in zip((rows, columns), given)] if given else []


def filters(
    tile: tuple[int, int, int], images: int, side: int, channels: int, count: int, wave: tuple[int, int] | None = None
) -> Case:
    """A 3 x 3 filter over square images, as an implicit product."""
    pixels, deep = side * side, 9 * channels
    row, column = sympy.floor(K / (3 * channels)), sympy.Mod(sympy.floor(K / channels), 3)
    patches = wd.IndexMapping(
        (P, K),
        {H: sympy.floor(P / side) + row - 1, W: sympy.Mod(P, side) + column - 1, C: sympy.Mod(K, channels)},
    )
    rows, columns = wd.WorkgroupConstraint(P, tile[0], 0), wd.WorkgroupConstraint(F, tile[1], 1)
    cut = [wd.WorkgroupConstraint(B, 1, 2), rows, columns, wd.TilingConstraint(K, tile[2]), *waves(P, F, wave)]

    @wd.wave(cut)
    def convolution(x: wd.Memory[B, H, W, C, wd.f16], w: wd.Memory[F, K, wd.f16], y: wd.Memory[B, P, F, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[P, F, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(x, mapping=patches), wd.read(w), acc)

        wd.write(loop, y)

    sizes = {B: images, H: side, W: side, C: channels, P: pixels, F: count, K: deep}
    cuts = "x".join(map(str, tile)) + (f" by {wave[0]}x{wave[1]}" if wave else "")
    return Case(f"filter of {channels} to {count}, {images} x {side} x {side}", cuts, convolution, sizes)


def experts(tile: tuple[int, int, int], early: bool, tokens: int = 8192, columns: int = 4096, deep: int = 4096) -> Case:
    """Blocks of tokens times their expert's matrix; `early`: blocks may have no expert."""
    block, count = tile[0], tokens // tile[0]
    cut = [wd.WorkgroupConstraint(G, 1, 0), wd.WorkgroupConstraint(N, tile[1], 1), wd.WorkgroupConstraint(R, block, 2)]

    @wd.wave([*cut, wd.TilingConstraint(K, tile[2])])
    def grouped(
        x: wd.Memory[T, K, wd.bf16], w: wd.Memory[E, N, K, wd.bf16], ids: wd.Memory[G, R, wd.i32],
        owner: wd.Memory[G, wd.i32], y: wd.Memory[T, N, wd.bf16],
    ):  # fmt: skip
        mine = wd.read(owner)
        if early:
            wd.exit_if(mine < 0)
        rows = wd.read(ids)

        @wd.iterate(K, init_args=[wd.Register[R, N, wd.f32](0.0)])
        def loop(acc):
            mapped = wd.read(x, mapping=wd.IndexMapping((R, K), {T: rows}))
            return wd.mma(mapped, wd.read(w, mapping=wd.IndexMapping((N, K), {E: mine})), acc)

        wd.write(wd.cast(loop, wd.bf16), y, mapping=wd.IndexMapping((R, N), {T: rows}))

    numbers = {"ids": PLACE.permutation(tokens).reshape(count, block), "owner": np.arange(count) * 8 // count}
    sizes = {T: tokens, G: count, R: block, E: 8, N: columns, K: deep}
    name = f"experts{', some blocks unused' if early else ''}, {tokens} x {columns} x {deep}"
    return Case(name, "x".join(map(str, tile)), grouped, sizes, numbers)


def pages(page: int, rows: int, tile: int, heads: int = 8, queries: int = 2048, keys: int = 2048, d: int = 128) -> Case:
    """Attention of one sequence to keys in pages that are shorter than tiles."""
    cut = [wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(G, 1, 1), wd.WorkgroupConstraint(Z, 1, 2)]

    @wd.wave([*cut, wd.TilingConstraint(N, tile)], subs={N: keys})
    def attention(
        q: wd.Memory[Z, G, M, D, wd.bf16], k: wd.Memory[X, S, G, D, wd.bf16], v: wd.Memory[X, S, G, E, wd.bf16],
        table: wd.Memory[Z, J, wd.i32], scale: wd.Scalar[wd.f32], o: wd.Memory[Z, G, M, E, wd.bf16],
    ):  # fmt: skip
        top, total = wd.Register[M, wd.f32](-math.inf), wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[top, total, wd.Register[M, E, wd.f32](0.0)])
        def over_keys(top, total, acc):
            number = wd.read(table, mapping=wd.IndexMapping((N,), {J: sympy.floor(N / page)}))
            place = {X: number, S: sympy.Mod(N, page)}
            mine = wd.read(k, mapping=wd.IndexMapping((N, D), place))
            scores = wd.mma(wd.read(q), mine, wd.Register[M, N, wd.f32](0.0)) * scale
            new = wd.maximum(top, wd.max(scores, dim=N))
            p, keep = wd.exp2(scores - new), wd.exp2(top - new)
            values = wd.read(v, mapping=wd.IndexMapping((N, E), place))
            return new, total * keep + wd.sum(p, dim=N), wd.mma(wd.cast(p, wd.bf16), values, acc * keep)

        _, total, acc = over_keys
        wd.write(wd.cast(acc / total, wd.bf16), o)

    count = keys // page
    sizes = {Z: 1, G: heads, M: queries, D: d, E: d, X: count, S: page, J: count}
    name = f"attention, {heads} heads of {d}, {queries} x {keys} in pages of {page}"
    return Case(name, f"{rows}x{tile}", attention, sizes, {"table": PLACE.permutation(count).reshape(1, -1)})


def pitched(tile: tuple[int, int, int], deep: int) -> Case:
    """A plain product whose rows may be no multiple of 16 bytes: what tensor maps refuse."""
    rows, columns = wd.WorkgroupConstraint(M, tile[0], 0), wd.WorkgroupConstraint(N, tile[1], 1)

    @wd.wave([rows, columns, wd.TilingConstraint(K, tile[2])])
    def product(a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return Case(f"product, 2048 x 4096 x {deep}", "x".join(map(str, tile)), product, {M: 2048, N: 4096, K: deep})


def cases(target: str) -> Iterator[Case]:
    if target == "sm_90a":
        yield filters((128, 64, 64), 64, 56, 64, 64)
        yield filters((128, 64, 64), 64, 56, 64, 64, (128, 64))
        yield filters((256, 64, 64), 64, 56, 64, 64)
        yield filters((256, 64, 64), 64, 56, 64, 64, (256, 64))
        yield filters((128, 64, 64), 64, 56, 24, 64)
        yield filters((128, 64, 64), 64, 56, 20, 64)
        yield filters((128, 128, 64), 32, 28, 128, 128)
        yield filters((256, 128, 64), 32, 28, 128, 128)
        yield pages(16, 128, 128)
        for early in (False, True):
            for tile in ((128, 128, 64), (128, 256, 64)):
                yield experts(tile, early)
        for deep in (2048, 2044, 2046):
            yield pitched((128, 256, 64), deep)
        return
    for tile in ((64, 64, 64), (64, 64, 32), (128, 64, 64), (128, 64, 32)):
        yield filters(tile, 64, 56, 64, 64)


def row(target: str, case: Case) -> list[str]:
    """What is printed of a case."""
    arguments: list[Any] = []
    for a in case.kernel.trace().arguments:
        if not a.dims:
            arguments.append(np.ones((), a.dtype.storage)[()])
            continue
        array = np.zeros([case.sizes[d] for d in a.dims], a.dtype.storage)
        if a.name in case.numbers:
            array[...] = case.numbers[a.name]
        arguments.append(array)
    compiled = case.kernel.compile(*arguments, target=target)
    timing = sample(compiled, arguments).timing
    busy = ", ".join(f"{unit} {share:.2f}" for unit, share in timing.utilisation.items() if share > 0.3)
    how = [a.text for a in compiled.decisions.atoms if "= read" in a.line]
    how.sort(key=lambda text: ("by index" not in text, "gathered" not in text))
    return [case.name, case.tile, str(timing.cycles), busy, how[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", nargs="+", default=["sm_90a", "sm_80", "gfx942", "gfx950"])
    parser.add_argument("--only", default="", help="cases whose name has this word")
    given = parser.parse_args()
    for target in given.target:
        rows = [row(target, case) for case in cases(target) if given.only in case.name]
        print(f"{target}\n{table(['', 'tile', 'clocks', 'busy', 'operand'], rows)}\n")


if __name__ == "__main__":
    main()
