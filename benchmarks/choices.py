"""What `auto` takes of products beside a ladder of tiles: how far it is from the best of them, by the cycle model.

    python benchmarks/choices.py [--chip MI300X ...] [--case "fp8 KN" grouped ...] [--text] [--most 40] [--json FILE]

Plain products (`matmul`) and groups (`grouped_matmul`; groups of one size are a batch) on four chips. The ladder has
tiles of 16 to 256 a side, rows of 128 and 256 bytes, K whole and in as many parts as give each unit a workgroup or two;
on Hopper tiles of warpgroups. No estimate of ours picks them: those go first whose matrix units and memory would take
least, and what these alone would take longer than the best so far is passed by. `--most`: so many of each are compiled.

Clocks are those of the kernel IR (`wd.analyze`); with `--text` the emitted text's, of `auto`'s and of the ladder's
best. Nothing is measured. `--json` has all candidates beside what `matrix_cuts` estimates of them, for a fit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import record
from wavedsl.ir.product import Product
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.analysis.launches import Launch, analyze_launches, launch_of
from wavedsl.analysis.own_clock import model_of_product
from wavedsl.analysis.roofline import product_named
from wavedsl.analysis.strategy import TileChoice
from wavedsl.reports import table
from wavedsl.strategies import grouped, matrix_cuts, plan_gemm, plan_grouped, warpgroups
from wavedsl.strategies.chosen import Choice
from wavedsl.strategies.kernels import Form
from wavedsl.targets import get_target

CHIPS = ("MI300X", "MI355X", "A100", "H200")
SHAPES = (
    (16, 8192, 8192), (32, 4096, 4096), (64, 14336, 4096), (64, 4096, 14336), (128, 4096, 4096), (512, 4096, 4096),
    (512, 512, 16384), (1024, 1024, 1024), (1536, 1792, 8192), (2304, 2048, 4096),
)  # fmt: skip
GROUPS = (
    (8, 16, 2048, 4096), (64, 256, 2048, 4096), (16, 64, 4096, 1024), (32, 128, 1024, 2048), (128, 8, 2048, 2048),
    (12, 512, 512, 512),
)  # fmt: skip
"""Groups, rows of each on average, N and K."""
HOPPER = ((64, 1), (128, 2), (192, 3))
"""Rows of a tile and its warpgroups."""


@dataclass(frozen=True)
class Case:
    """Products of a dtype, with B as [N, K] or not; `ragged`: groups, whose rows differ or (False) do not."""

    name: str
    bits: int = 16
    b_rows: bool = True
    ragged: bool | None = None

    def form(self, target: str) -> Form:
        if self.bits == 16:
            return Form(wd.bf16, wd.bf16, self.b_rows)
        return Form(wd.f8e4m3fnuz if target == "gfx942" else wd.f8e4m3, wd.bf16, self.b_rows)

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        return SHAPES if self.ragged is None else GROUPS


CASES = (
    Case("bf16"), Case("bf16 KN", b_rows=False), Case("fp8", 8), Case("fp8 KN", 8, False),
    Case("grouped", ragged=True), Case("grouped KN", b_rows=False, ragged=True), Case("batched", ragged=False),
    Case("grouped fp8", 8, ragged=True),
)  # fmt: skip


class Way(NamedTuple):
    """A candidate; `bound`: clocks that matrix units of the busiest unit, or memory, take for it at least."""

    bound: float
    tiles: TileChoice
    dealt: bool = False


class Found(NamedTuple):
    """A candidate that was compiled: predicted and estimated microseconds."""

    what: str
    us: float
    estimated: float | None
    launches: list[Launch]
    cut: Any
    dealt: bool


@dataclass(frozen=True)
class Work:
    """One product of a case on a chip."""

    case: Case
    size: tuple[int, ...]
    chip: Product

    @property
    def form(self) -> Form:
        return self.case.form(self.chip.target)

    @property
    def counts(self) -> list[int]:
        """Rows of each group."""
        count, average, *_ = self.size
        if not self.case.ragged:
            return [average] * count
        random = np.random.default_rng(count)
        return [int(x) for x in random.multinomial(count * average, np.full(count, 1 / count))]

    def arrays(self) -> tuple[np.ndarray, ...]:
        form, (n, k) = self.form, self.size[-2:]
        inner = (n, k) if form.b_rows else (k, n)
        if self.case.ragged is None:
            shapes: tuple[tuple[int, ...], ...] = (self.size[0], k), inner, (self.size[0], n)
        else:
            rows = sum(self.counts)
            shapes = (rows, k), (self.size[0], *inner), (rows, n)
        return tuple(np.zeros(s, x.numpy) for s, x in zip(shapes, (form.dtype, form.dtype, form.out)))

    # ------------------------------------------------------------------------------------------------------ the ladder

    def ladder(self) -> list[Way]:
        """All candidates, those that could be fastest first."""
        return sorted(self._ways(), key=lambda x: (x.bound, x.tiles.tile_m * x.tiles.tile_n, x.tiles.tile_k))

    def _ways(self) -> Iterator[Way]:
        n, k = self.size[-2:]
        counts = [self.size[0]] if self.case.ragged is None else self.counts
        target = get_target(self.chip.target)
        rate = self.chip.matrix_rates(target)[self.form.multiplied.name] / 2
        moved = (sum(counts) * (k + n) + len(counts) * n * k) * self.form.dtype.bits / 8
        memory = moved / (self.chip.hbm * self.chip.reached / self.chip.clock)
        for tiles in self._tiles(max(counts), n, k):
            groups = sum(ceil(x / tiles.tile_m) for x in counts) * ceil(n / tiles.tile_n)
            each = tiles.tile_m * tiles.tile_n * k / rate
            whole = max(memory, ceil(groups / self.chip.units) * each)
            yield Way(whole, tiles)
            if self.case.ragged is not None or (target.assembler_schedules and tiles.tile_m * tiles.tile_n > 128 * 64):
                continue
            most = min(32, k // matrix_cuts.LEAST_DEPTH)
            for parts in sorted({min(most, max(1, x * self.chip.units // groups)) for x in (1, 2)} - {0, 1}):
                bound = max(memory, ceil(groups * parts / self.chip.units) * each / parts)
                yield Way(bound, replace(tiles, split=parts))
            if target.warpgroup is None and groups % self.chip.units:
                yield Way(max(memory, groups / self.chip.units * each), tiles, True)

    def _tiles(self, m: int, n: int, k: int) -> Iterator[TileChoice]:
        target, form = get_target(self.chip.target), self.form
        if target.warpgroup is not None:
            deep = 128 * 8 // form.dtype.bits
            for columns in matrix_cuts.SIDES[1:]:
                for rows, waves in HOPPER:
                    yield TileChoice(rows, columns, deep, 0, waves, 1, 1, 0)
                    yield TileChoice(columns, rows, deep, 0, 1, waves, 1, 0)
            return
        yield from matrix_cuts.tilings(form, (m, n, k), matrix_cuts.Unit.of(self.chip, form))

    # -------------------------------------------------------------------------------------------------------- launches

    def own(self) -> Found:
        """`auto`'s."""
        return self._planned(None)

    def of(self, way: Way) -> Found:
        """A candidate. Raises ConstraintError where it is none."""
        tiles, form = way.tiles, self.form
        if self.case.ragged is None:
            if get_target(self.chip.target).warpgroup is not None:
                cut = warpgroups.Cut(
                    (tiles.tile_m, tiles.tile_n, tiles.tile_k), (tiles.waves_m, tiles.waves_n), tiles.split, 0.0
                )
                return self._planned(Choice("wave_parallel" if tiles.split == 1 else "split_k", cut))
            name = "stream_k" if way.dealt else "split_k" if tiles.split > 1 else "cache_persistent"
            return self._planned(Choice(name, tiles))
        counts = self.counts
        a, b, c = self.arrays()
        kernel = grouped.grouped(
            form, (tiles.tile_m, tiles.tile_n, tiles.tile_k), (tiles.waves_m, tiles.waves_n), tiles.pipeline_stages
        )
        given = (a, b, *grouped.blocks(counts, tiles.tile_m), c, 1.0, 0.0)
        what = f"{tiles.tile_m}x{tiles.tile_n}x{tiles.tile_k}"
        return self._found(what, [launch_of(kernel, given, self.chip.target)], tiles, False)

    def _planned(self, choice: Choice | None) -> Found:
        a, b, c = self.arrays()
        b_rows = self.form.b_rows
        if self.case.ragged is None:
            plan = plan_gemm(a, b, c, transpose_b=b_rows, product=self.chip, choice=choice)
            assert plan.choice is not None
            what, cut, dealt = str(plan.choice), plan.choice.cut, plan.choice.strategy == "stream_k"
        else:
            plan = plan_grouped(a, b, c, self.counts, transpose_b=b_rows, product=self.chip)
            cut, dealt = plan.tiles, False
            what = f"{cut.tile_m}x{cut.tile_n}x{cut.tile_k}"
        launches = [launch_of(x.kernel, x.arguments, self.chip.target) for x in plan.launches]
        return self._found(what, launches, cut, dealt)

    def _found(self, what: str, launches: list[Launch], cut: Any, dealt: bool) -> Found:
        found = analyze_launches(launches, self.chip)
        between = warpgroups.BETWEEN * (len(found) - 1)
        return Found(
            what, (sum(x.seconds for x in found) + between) * 1e6, self._estimated(cut, dealt), launches, cut, dealt
        )

    def _estimated(self, cut: Any, dealt: bool) -> float | None:
        """Microseconds, where `matrix_cuts` estimates such."""
        if not isinstance(cut, TileChoice) or not matrix_cuts.suits(self.form, self.chip):
            return None
        unit = matrix_cuts.Unit.of(self.chip, self.form)
        if self.case.ragged is None:
            clocks = matrix_cuts.clocks(self.form, self.size, cut, unit, dealt)
        else:
            clocks = matrix_cuts.clocks_of_blocks(self.form, self.counts, *self.size[-2:], [cut], unit)[0]
        return float(clocks) / self.chip.clock * 1e6

    def text(self, found: Found) -> float:
        """Microseconds by the emitted text's first workgroup."""
        chip = model_of_product(self.chip)
        each = [sample(x.made, list(x.given)).replay(chip=chip).cycles for x in found.launches]
        return sum(each) / self.chip.clock * 1e6


def climbed(work: Work, most: int, text: bool) -> dict[str, Any]:
    """`auto` and the ladder of one product."""
    own = work.own()
    tried: list[Found] = []
    for way in itertools.islice(work.ladder(), most):
        best = min([own.us, *(x.us for x in tried)])
        if way.bound / work.chip.clock * 1e6 >= best:
            break  # sorted: nor can those behind it
        try:
            tried.append(work.of(way))
        except wd.ConstraintError:
            continue
    best = min([own, *tried], key=lambda x: x.us)
    row = {
        "chip": work.chip.name, "case": work.case.name, "size": list(work.size), "auto": own.what, "us": own.us,
        "estimated": own.estimated, "best": best.what, "best us": best.us, "best estimated": best.estimated,
        "ratio": own.us / best.us, "tried": len(tried),
    }  # fmt: skip
    if text:
        row |= {"text": work.text(own), "best text": work.text(best)}
        row["text ratio"] = row["text"] / row["best text"]
    return {
        **row,
        "every": [{"cut": str(x.cut), "dealt": x.dealt, "us": x.us, "estimated": x.estimated} for x in [own, *tried]],
    }


def shown(rows: Sequence[dict[str, Any]]) -> str:
    heads = [name for name in rows[0] if name != "every"]
    return table(heads, [[" x ".join(map(str, r[x])) if x == "size" else r[x] for x in heads] for r in rows])


def _size(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split("x"))


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--chip", nargs="*", default=CHIPS, choices=CHIPS, help="default: all")
    options.add_argument("--case", nargs="*", choices=[x.name for x in CASES], help="default: all")
    options.add_argument(
        "--size", nargs="*", type=_size, help="M x N x K, or groups x rows x N x K, as 16x8192x8192 (default: a few)"
    )
    options.add_argument("--most", type=int, default=40, help="candidates compiled of each (default %(default)s)")
    options.add_argument("--text", action="store_true", help="clocks of the emitted text, too")
    options.add_argument("--json", type=Path, metavar="FILE", help="write the rows there")
    given = options.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for name, case in itertools.product(given.chip, CASES):
        product = product_named(name)
        multiplied = case.form(product.target).multiplied.name
        if (given.case and case.name not in given.case) or not product.has_matrix(
            multiplied, get_target(product.target)
        ):
            continue
        wanted = [x for x in given.size or case.sizes if len(x) == len(case.sizes[0])]
        for size in wanted:
            rows.append(climbed(Work(case, size, product), given.most, given.text))
            print(*(f"{v:.4g}" if isinstance(v, float) else v for k, v in rows[-1].items() if k != "every"), flush=True)
    if not rows:
        options.error("no product of these cases and sizes")
    print(shown(rows))
    ratios = [r["ratio"] for r in rows]
    print(f"auto takes {prod(ratios) ** (1 / len(ratios)):.3f} times the ladder's best, {max(ratios):.3f} at most")
    if given.json:
        given.json.write_text(json.dumps({**record.surroundings(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
