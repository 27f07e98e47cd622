"""What `gpu_gemm.py` measures: products and their sizes, the tiles and plans that are tried, and sets of operands."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import wavedsl as wd

sys.path.append(str(Path(__file__).resolve().parent))

import gemm_kernels as kernels
from gemm_checks import BF16, E4M3, F16, allowed_of
from gemm_kernels import Config, Form
from on_gpu import TORCH, Space

ROTATED_BYTES = 512 << 20
"""Operands of this many bytes in all are rotated through: several times any L2 cache."""

@dataclass(frozen=True)
class Case:
    """Products of one table row group: form, sizes, and the least ratio to cuBLAS that is asked for."""

    name: str
    form: Form
    sizes: tuple[tuple[int, int, int], ...]
    tiny: tuple[tuple[int, int, int], ...]
    least: float
    least_mean: float = 0.0


TOKENS = (16, 64, 128, 512, 2048, 8192)
MLPS = ((4096, 14336), (8192, 28672))
CASES = (
    Case("squares bf16", BF16, tuple((n, n, n) for n in (4096, 8192, 16384)), ((72, 72, 72),), 1.0),
    Case("squares f16", F16, tuple((n, n, n) for n in (4096, 8192, 16384)), ((72, 72, 72),), 1.0),
    Case("depths", BF16, tuple((8192, 8192, k) for k in (256, 512, 1024, 2048, 4096, 8192, 16384)), ((72, 72, 40),),
         0.95, 1.0),
    Case("mlp up", BF16, tuple((t, i, h) for h, i in MLPS for t in TOKENS), ((16, 72, 40),), 0.95, 1.0),
    Case("mlp down", BF16, tuple((t, h, i) for h, i in MLPS for t in TOKENS), ((16, 40, 72),), 0.95, 1.0),
    Case("fp8", E4M3, ((8192, 8192, 8192),), ((72, 72, 160),), 1.0),
)  # fmt: skip
TRITON_RATIO, ROOFLINE_SHARE = 1.05, 0.92
"""Every case: so many times the better of the Triton kernels, or such a share of the roofline."""

_WIDE = (
    (128, 256, 64, 64, 256), (256, 128, 64, 128, 128), (192, 256, 64, 64, 256), (256, 192, 64, 128, 192),
    (128, 192, 64, 64, 192), (128, 128, 64, 64, 128),
)  # fmt: skip
_NARROW = ((16, 128, 128, 16, 64), (32, 128, 128, 32, 64), (64, 128, 64, 64, 128), (64, 64, 128, 64, 64))
_FEW = 128
"""Rows of products that memory bounds, where tiles with all of K leave units idle."""
_PLANS = ((_FEW, 6), (512, 3))
"""Plans that are tried of products of so many rows at most; of others the first."""


@dataclass(frozen=True)
class Planned:
    """A plan of `wavedsl.strategies`, by its place in what `gemm_choices` lists: `matmul`'s own first."""

    place: int = 0

    def __str__(self) -> str:
        return f"strategy {self.place + 1}" if self.place else "strategy"


Way = Config | Planned


class NoSuchPlan(wd.ConstraintError):
    """There are fewer plans for a product."""


def candidates(form: Form, m: int, tiny: bool) -> list[Config]:
    """Tiles to try: K in elements of 16 bits, more of narrower ones. Launches may overlap, as `matmul`'s do."""
    if tiny:
        return [Config(64, 64, 64 * 16 // form.dtype.bits, 64, 64)]
    few = (_WIDE[0], *_WIDE[-2:]) if m > 64 else _NARROW if m > 16 else (*_NARROW[:2], _NARROW[3])
    tiles = few if m <= _FEW else _WIDE
    overlapping: tuple[tuple[str, Any], ...] = (("dependent", True),)
    plain = [Config(a, b, c * 16 // form.dtype.bits, d, e, overlapping) for a, b, c, d, e in tiles]
    if m <= _FEW:
        return plain
    pairs = [replace(config, schedule=(*overlapping, ("cluster", (2, 1, 1)))) for config in plain[:2]]
    deeper = [replace(config, schedule=(*config.schedule, ("stages", 4))) for config in (plain[0], pairs[0])]
    return [*plain, *pairs, *deeper]


def plans(m: int, tiny: bool) -> list[Planned]:
    """Plans to try, the compiler's own first: none at tiny sizes."""
    return [] if tiny else [Planned(i) for i in range(next((n for most, n in _PLANS if m <= most), 1))]


def ways(form: Form, m: int, tiny: bool) -> dict[str, Way]:
    """All that is tried, by name."""
    return {str(way): way for way in (*candidates(form, m, tiny), *plans(m, tiny))}


class Products:
    """Sets of operands of one case and size: the first is compared, all are rotated through when timing."""

    def __init__(self, space: Space, form: Form, size: tuple[int, int, int], rotate: bool):
        m, n, k = size
        each = (m * k + n * k) * form.dtype.bits // 8 + m * n * form.out.bits // 8
        self.space, self.form, self.size, self.bytes = space, form, size, each
        count = max(2, min(16, -(-ROTATED_BYTES // each))) if rotate else 1
        self.sets = [self._set() for _ in range(count)]

    def _set(self) -> tuple[Any, Any, Any]:
        """Operands N(0, 1), made where they lie; the output holds NaN."""
        (m, n, k), form, torch = self.size, self.form, self.space.torch
        if torch is None:
            a, b = (self.space.array(shape, form.dtype)[0] for shape in ((m, k), (n, k)))
            return a, b, self.space.empty((m, n), form.out)
        kinds = [getattr(torch, TORCH[d.name]) for d in (form.dtype, form.out)]
        a, b = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(kinds[0]) for shape in ((m, k), (n, k)))
        return a, b, torch.full((m, n), math.nan, device="cuda", dtype=kinds[1])

    def poison(self) -> None:
        """NaN in every element of the first set's output."""
        c = self.sets[0][2]
        if self.space.torch is None:
            c[...] = np.nan
        else:
            c.fill_(math.nan)

    def error(self) -> float:
        """The largest error of the first set's output, of what is allowed (1 is the limit)."""
        a, b, c = self.sets[0]
        torch, k = self.space.torch, self.size[2]
        worst = 0.0
        for rows in _blocks(self.size[0], 2048):
            if torch is None:
                x, y, got = (np.asarray(t, np.float64) for t in (a[rows], b, c[rows]))
            else:  # compared where it lies: the host would take seconds
                x, y, got = (t.double() for t in (a[rows], b, c[rows]))
            want, size = x @ y.T, abs(x) @ abs(y).T
            off = abs(got - want) / allowed_of(self.form, want, size, k)
            block = float(off.max())  # NaN where there is one
            worst = max(worst, math.inf if math.isnan(block) else block)
        return worst

    def calls(self, kernel_of: Callable[[Any, Any, Any], Callable[[], Any]]) -> list[Callable[[], Any]]:
        return [kernel_of(*operands) for operands in self.sets]


def _blocks(rows: int, most: int) -> Iterator[slice]:
    for start in range(0, rows, most):
        yield slice(start, min(rows, start + most))


Bind = Callable[[Any, Any, Any], Callable[[], Any]]


def bound_by(form: Form, way: Way) -> Bind:
    """What binds a product in one of `ways` to operands."""
    if isinstance(way, Planned):
        return functools.partial(strategy, place=way.place)
    return kernels.product(form, way).bind


def choice_at(a: Any, b: Any, c: Any, place: int) -> Any:
    """The `Choice` in this place; raises NoSuchPlan where there are fewer."""
    from wavedsl.strategies import gemm_choices

    found = gemm_choices(a, b, c, transpose_b=True, most=place + 1)
    if place >= len(found):
        raise NoSuchPlan(f"there are {len(found)} plans for this product")
    return found[place]


def strategy(a: Any, b: Any, c: Any, place: int = 0) -> Callable[[], Any]:
    """The launches of a plan of `wavedsl.strategies` for the shape."""
    from wavedsl.strategies import plan_gemm

    choice = choice_at(a, b, c, place) if place else None
    plan = plan_gemm(a, b, c, transpose_b=True, choice=choice)
    launches = [launch.kernel.bind(*launch.arguments) for launch in plan.launches]

    def run() -> None:
        for launch in launches:
            launch()

    return run
