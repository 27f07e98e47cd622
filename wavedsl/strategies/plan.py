"""From a product's shape and a strategy to launches.

In: arrays, factors, a strategy or `auto`. Out: a `Plan`: one kernel launch on the arrays or their transposes, or two,
the second of which adds what the first has left in an array of the plan's own. Every
plan gives the same bits on every run: no result depends on the order in which workgroups run, and what several of them
sum is added in one order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field, replace
from math import ceil
from typing import Any

import numpy as np

from wavedsl.analysis.issued import residency
from wavedsl.analysis.roofline import product_called, product_named
from wavedsl.analysis.strategy import WAVE_TILE, GemmShape, TileChoice, choose_tiles
from wavedsl.binding import dtype_name
from wavedsl.ir.dataflow.ops import ACCUMULATORS, PRECISIONS
from wavedsl.ir.dtypes import ALL, DType, f32, tf32
from wavedsl.ir.errors import ConstraintError, LaunchError
from wavedsl.ir.options import Made, with_options
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.source import here
from wavedsl.strategies import kernels, warpgroups
from wavedsl.strategies.caching import Depth, deep_enough, depth, hints, needed_bytes
from wavedsl.strategies.chosen import Choice, chosen, is_small, long_columns, shares_of_waves
from wavedsl.strategies.gemv_cuts import LEAST_STEPS, GemvCut
from wavedsl.strategies.kernels import UNASKED, Asked, Form
from wavedsl.strategies.rooms import has_room, room
from wavedsl.targets import get_target

GEMM_STRATEGIES = (
    "auto", "shallow_k", "cache_persistent", "wave_parallel", "gemv", "skinny", "split_k", "stream_k",
)  # fmt: skip

ONE_PASS_K = 16
"""Elements of K that fragments of one pass have at least: a matrix instruction's."""
ONE_PASS_OTHERS = 16
"""Registers of one pass for addresses and masks."""


@dataclass
class Launch:
    """One kernel on its arguments."""

    kernel: Any
    arguments: tuple[Any, ...] = field(repr=False)


@dataclass
class Plan:
    """What `matmul` runs, again and again. `strategy` is the one that was chosen, `why` the reason, `asked` the hints
    for the caches."""

    strategy: str
    why: str
    tiles: TileChoice
    launches: list[Launch] = field(default_factory=list)
    asked: Asked = UNASKED
    in_flight: int = 0
    """Bytes that each unit keeps on their way, by the tiles; 0 where the compiler chooses how many
    (`ir/staging/memory_depth.py`). The chip needs `caching.needed_bytes`."""
    choice: Choice | None = None
    """What `plan_gemm` makes the same plan of again; None of groups, and where there is nothing to add up."""

    def run(self) -> None:
        """Launch in order."""
        for launch in self.launches:
            launch.kernel(*launch.arguments)


ELSEWHERE = {
    "trans_b": "transpose_b", "transb": "transpose_b", "b_transposed": "transpose_b", "out": "c", "output": "c",
    "algorithm": "strategy", "split_k": 'strategy="split_k"', "stream_k": 'strategy="stream_k"',
    "allow_tf32": 'precision="tf32"', "input_precision": "precision", "math_mode": "precision",
    "trans_a": "a view: a.T, of any strides", "transpose_a": "a view: a.T, of any strides",
    "transa": "a view: a.T, of any strides", "bias": "a kernel of its own, with the bias in its epilogue",
    "target": "product", "device": "a product runs where its arrays lie",
}  # fmt: skip
"""What BLAS, torch and others call an option of a product → what it is here."""


def with_gemm_options(function: Made) -> Made:
    """A decorator that says the right option of a product where there is none of a name, of those that it has."""
    own = inspect.signature(function).parameters
    known = {name: mine for name, mine in ELSEWHERE.items() if "=" not in mine or mine.partition("=")[0] in own}
    return with_options(known, f"wd.strategies.{function.__name__}")(function)


@with_gemm_options
def matmul(
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    strategy: str = "auto",
    product: str | Product | None = None,
    precision: str | None = None,
) -> Plan:
    """C = alpha A B + beta C in place; A is [M, K], B is [K, N], or [N, K] with `transpose_b`. The plan that ran.

    Sums are f32 (f64 for f64, i32 for integers) and rounded once to C's dtype; with beta = 0, C is not read. `product`
    is the chip that the strategy is chosen for (default: the one where the arrays lie, or the target's reference
    product). `precision`, for A and B of f32, lets matrix units multiply tf32: "3xtf32" keeps about the accuracy of
    f32, "tf32" that of 11 bits; None and "ieee" multiply operands as they are (docs/numerics.md has the bounds). Chips
    without tf32, and products of a few rows, do no worse than asked for. Raises LaunchError for shapes and dtypes that
    do not fit, ConstraintError for an unknown strategy or precision and for a precision of other operands than f32.
    """
    plan = plan_gemm(
        a, b, c, alpha=alpha, beta=beta, transpose_b=transpose_b, strategy=strategy, product=product,
        precision=precision,
    )  # fmt: skip
    plan.run()
    return plan


@with_gemm_options
def plan_gemm(
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    strategy: str = "auto",
    product: str | Product | None = None,
    choice: Choice | None = None,
    precision: str | None = None,
) -> Plan:
    """The launches of `matmul`, with its arguments and errors; with `choice`, which has a strategy of its own, as that
    says."""
    if strategy not in GEMM_STRATEGIES:
        known = ", ".join(GEMM_STRATEGIES)
        raise ConstraintError(f"unknown strategy {strategy!r}", here(calls=False), f"one of {known}")
    form, (m, n, k) = problem(a, b, c, beta, transpose_b, precision)
    check_factors("matmul", form, alpha, beta)
    if form.sums.bits == 64:  # multiplications of f64 wait for other waves' matrix instructions on the same pipe
        form = replace(form, scaled=alpha != 1)
    chip = chip_of(product, a, b, c)
    form = on_chip(form, chip)
    if 0 in (m, n):
        return Plan(strategy, "nothing to compute", TileChoice(1, 1, 1, 1, 1, 1, 1, 0))
    if k == 0:  # an empty sum
        multiplied_by_units("matmul", form.dtype)
        tiles = choose_tiles("cache_persistent", GemmShape(m, n, 1, form.dtype, form.out, form.beta))
        plan = Plan(strategy, "K = 0: alpha times nothing", tiles)
        _loop(plan, form, chip, (a, b, c), (m, n, k), (factor(form, alpha), factor(form, beta)))
        return plan
    why = "asked for"
    if choice is None:
        choice, why = chosen(strategy, form, (m, n, k), chip, 2 if has_room(c) else 1)
    cut = choice.cut
    if choice.strategy != "gemv":
        multiplied_by_units("matmul", form.dtype)
    tiles = cut if isinstance(cut, TileChoice) else choose_tiles("gemv", GemmShape(m, n, k, form.dtype))
    plan = Plan(choice.strategy, why, tiles, choice=choice)
    job = form, chip, (a, b, c), (m, n, k), (factor(form, alpha), factor(form, beta))
    if isinstance(cut, warpgroups.Cut):
        _by_warpgroups(plan, *job, cut)
    elif isinstance(cut, GemvCut):
        _gemv(plan, *job, cut)
    elif choice.strategy in _BUILD:
        _BUILD[choice.strategy](plan, *job)
    else:
        raise ConstraintError(f"{choice.strategy} is not cut by {cut!r}", hint="take choices from gemm_choices")
    return plan


def chip_of(product: str | Product | None, a: Any, b: Any, c: Any) -> Product:
    """The product that a plan is made for: the one that is named, else the one where the arrays lie."""
    if product is not None:
        return product_named(product)
    from wavedsl.runtime import devices
    from wavedsl.runtime.launch import device_of

    device = device_of({"a": a, "b": b, "c": c})
    name = "" if device.kind == "emulator" else devices.open_driver(device.kind, device.index).name
    return product_called(name, device.target)


def factor(form: Form, value: float) -> Any:
    """A factor in the dtype of the sums."""
    return int(value) if form.sums.is_int else float(value)


def check_factors(call: str, form: Form, alpha: Any, beta: Any) -> None:
    """Raises LaunchError for what is no number, and for a fraction of sums of integers."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, (int, float, np.number)) and getattr(value, "shape", None) != ():
            raise LaunchError(f"{call}: {name} is a {type(value).__name__}", here(calls=False), "a number", name)
        if form.sums.is_int and int(value) != value:
            raise LaunchError(
                f"{call}: {name}={value} times sums of {form.sums.name}", here(calls=False),
                "a whole number: sums of integers are rounded by nothing", name,
            )  # fmt: skip


def problem(
    a: Any, b: Any, c: Any, beta: float, transpose_b: bool, precision: str | None = None
) -> tuple[Form, tuple[int, int, int]]:  # fmt: skip
    """The form of a product of arrays, and M, N, K. Raises LaunchError where they do not fit together, ConstraintError
    for a precision that there is not, or not for these operands."""
    sizes = _shape(a, b, c, transpose_b)
    if precision is not None and precision not in PRECISIONS:
        raise ConstraintError(f"matmul: precision={precision!r} is none", hint=f"one of {', '.join(PRECISIONS)}")
    if precision is not None and not dtype_of("a", a) is dtype_of("b", b) is f32:
        raise ConstraintError(
            f"matmul: precision={precision!r} is for operands of f32, these are {dtype_of('a', a).name} and "
            f"{dtype_of('b', b).name}",
            hint="leave precision out: products of other dtypes are exact",
        )
    dtype = operands_dtype("matmul", a, b)
    precision = None if precision == "ieee" else precision
    return Form(dtype, dtype_of("c", c), transpose_b, beta != 0, precision=precision), sizes


def on_chip(form: Form, chip: Product) -> Form:
    """The form without a precision that the chip has no instruction for."""
    tensor = get_target(chip.target).multiplies(tf32)
    return form if tensor else replace(form, precision=None)


def _shape(a: Any, b: Any, c: Any, transpose_b: bool) -> tuple[int, int, int]:
    for name, array in (("a", a), ("b", b), ("c", c)):
        if len(getattr(array, "shape", ())) != 2:
            raise LaunchError(
                f"matmul: {name} has shape {getattr(array, 'shape', None)}", here(calls=False), "pass matrices", name
            )
    m, k = a.shape
    n, other = b.shape if transpose_b else b.shape[::-1]
    if k != other or tuple(c.shape) != (m, n):
        want = f"[{n}, {k}]" if transpose_b else f"[{k}, {n}]"
        raise LaunchError(
            f"matmul: a is {tuple(a.shape)}, b {tuple(b.shape)} and c {tuple(c.shape)}",
            here(calls=False),
            hint=f"b must be {want} and c [{m}, {n}]; a b that is [N, K] needs transpose_b=True",
        )
    return int(m), int(n), int(k)


def operands_dtype(call: str, a: Any, b: Any) -> DType:
    """The dtype of both operands. Raises LaunchError where they differ."""
    dtype, other = dtype_of("a", a), dtype_of("b", b)
    if dtype is not other:
        said = f"{call}: a is {dtype.name} and b {other.name}"
        raise LaunchError(said, here(calls=False), hint="convert one to the other's dtype")
    return dtype


def multiplied_by_units(call: str, dtype: DType) -> None:
    """Raises LaunchError for operands that no matrix instruction takes."""
    if dtype not in ACCUMULATORS:
        raise LaunchError(
            f"{call}: no matrix instruction takes operands of {dtype.name}", here(calls=False),
            hint="f64, f32, f16, bf16, fp8 or i8",
        )  # fmt: skip


def dtype_of(argument: str, array: Any) -> DType:
    """The dtype of an argument. Raises LaunchError for one that no product has."""
    name = dtype_name(array)
    found = next((d for d in ALL.values() if d.bits >= 8 and d.name != "tf32" and d.storage.name == name), None)
    if found is None:
        from wavedsl.binding import _TORCH

        found = _TORCH.get(name)
    if found is None:
        raise LaunchError(
            f"{argument} has dtype {name}", here(calls=False), "f64, f32, f16, bf16, fp8 or i8", argument
        )
    return found


FMA_WAVES = ((64, 64), (64, 32))
"""A wave's rows and columns where products are multiply-adds, the best first: 128 sums per lane, for which it reads 24
words per element of K, or 64. Four waves a workgroup, two workgroups a unit leave a lane registers to read ahead."""


MOST_SUMS = 128
"""Registers of a lane that a wave's sums may take: half of what NVIDIA's lanes have."""


def _by_multiply_adds(form: Form, chip: Product) -> bool:
    """Whether the chip has no matrix instruction for the dtype."""
    return not get_target(chip.target).multiplies(form.multiplied)


def waves_of(tiles: TileChoice, form: Form, chip: Product, staged: bool = True) -> tuple[int, int]:
    """Warpgroups of 64 rows where these have an instruction for the dtype and operands are `staged` in shared memory,
    one for few rows. Else at most 8 waves, of at least 16 rows and columns: what every chip holds beside the tiles; as
    many as leave a lane registers for operands beside its sums."""
    target = get_target(chip.target)
    if staged and tiles.tile_m * tiles.tile_n >= 64 * 64 and target.warpgroups_multiply(form.multiplied):
        if tiles.tile_m % 64 == 0 or tiles.tile_n % 64 == 0:
            return (tiles.tile_m // 64, 1) if tiles.tile_m % 64 == 0 else (1, tiles.tile_n // 64)
    if staged and _by_multiply_adds(form, chip):
        for rows, columns in FMA_WAVES:
            if tiles.tile_m % rows == tiles.tile_n % columns == 0 and tiles.tile_m * tiles.tile_n >= 4 * rows * columns:
                return tiles.tile_m // rows, tiles.tile_n // columns
    waves_m, waves_n = max(1, min(tiles.waves_m, tiles.tile_m // 16)), max(1, min(tiles.waves_n, tiles.tile_n // 16))
    while waves_m * waves_n > 8:
        if waves_m >= waves_n:
            waves_m //= 2
        else:
            waves_n //= 2
    lanes = target.wave_size
    held = tiles.tile_m * tiles.tile_n * form.sums.bits // 32 * (2 if form.promoted else 1)
    while held > MOST_SUMS * lanes * waves_m * waves_n:
        rows, columns = tiles.tile_m // waves_m, tiles.tile_n // waves_n
        if waves_m * waves_n > 4 or max(rows, columns) < 32:
            break
        waves_m, waves_n = (2 * waves_m, waves_n) if rows >= columns else (waves_m, 2 * waves_n)
    return waves_m, waves_n


WIDE_SUMS = 128 * 64
"""Elements of a tile of four waves beyond which a lane has 128 sums."""


def depth_of(tiles: TileChoice, form: Form) -> int:
    """K per step: whole matrix instructions, 32 to 64 bytes of a row."""
    least = max(16, 64 * 8 // form.dtype.bits) if form.dtype.bits < 64 else 8
    if form.dtype is f32 and form.precision is None and tiles.tile_m * tiles.tile_n > WIDE_SUMS:
        least = 8  # multiply-adds for many sums
    return max(least, 1 << (max(tiles.tile_k, 1) - 1).bit_length())


def _shallow(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    tiles = plan.tiles
    if sizes[2] > 64:
        raise ConstraintError(
            f"shallow_k: K = {sizes[2]} does not fit one pass", hint="at most 64; use cache_persistent"
        )
    chosen = one_pass_cut(form, sizes, (tiles.tile_m, tiles.tile_n), chip)
    plan.tiles = replace(tiles, tile_m=chosen.cut[0], tile_n=chosen.cut[1])
    plan.in_flight = chosen.in_flight
    plan.asked = hints(form, sizes, chosen.cut, chip)
    plan.launches.append(Launch(kernels.one_pass(form, chosen.cut, chosen.waves, plan.asked), (*arrays, *factors)))


@dataclass(frozen=True)
class OnePass:
    """Tiles of M and N of a product whose K is one pass, waves along them, and bytes per unit: `in_flight` of A and B,
    `moved` with those of C. All that its resident workgroups read is on its way at once."""

    cut: tuple[int, int]
    waves: tuple[int, int]
    in_flight: int
    moved: int


def one_pass_cut(form: Form, sizes: tuple[int, int, int], cut: tuple[int, int], chip: Product) -> OnePass:
    """The tile `cut`, or halves of it down to one wave's, so that more workgroups reside on a unit: the largest whose
    operands bring what is in flight to what the chip needs.

    Where none does and the grid is small, the one that keeps most on its way. On a large grid K is then so short that
    what is written bounds the product: the largest tile of which enough bytes are moved, C among them, is taken.
    """
    found = []
    while True:
        found.append(_one_pass(form, sizes, cut, chip))
        if max(cut) <= WAVE_TILE:
            break
        cut = max(WAVE_TILE, cut[0] // 2), max(WAVE_TILE, cut[1] // 2)
    need = needed_bytes(chip)
    large = ceil(sizes[0] / found[0].cut[0]) * ceil(sizes[1] / found[0].cut[1]) >= chip.units
    enough = [x for x in found if x.in_flight >= need] or [x for x in found if large and x.moved >= 2 * need]
    return enough[0] if enough else max(found, key=lambda x: x.in_flight)


def _one_pass(form: Form, sizes: tuple[int, int, int], cut: tuple[int, int], chip: Product) -> OnePass:
    """What a tile keeps in flight. Registers: sums, fragments of A and B, a tile of C that is read, and some for
    addresses; all of them where a dtype has no matrix instruction (multiply-adds of whole rows of loads)."""
    target = get_target(chip.target)
    m, n, k = sizes
    (rows, columns), size = cut, form.dtype.bits / 8
    spread = TileChoice(*cut, k, 1, max(1, rows // WAVE_TILE), max(1, columns // WAVE_TILE), 1, 0)
    waves = waves_of(spread, form, chip, staged=False)
    count = waves[0] * waves[1]
    lanes = count * target.wave_size
    operands = (rows / waves[0] + columns / waves[1]) * max(k, ONE_PASS_K) * size / 4 / target.wave_size
    result = rows * columns * form.out.bits / 32 / lanes
    held = rows * columns * form.sums.bits / 32 / lanes + operands + form.beta * result + ONE_PASS_OTHERS
    if _by_multiply_adds(form, chip):
        held = target.registers
    occupancy = target.occupancy(min(target.registers, ceil(held)), 0, lanes)
    groups = ceil(m / rows) * ceil(n / columns)
    resident = min(residency(occupancy, count, target), groups / chip.units)
    read = (rows + columns) * k * size
    return OnePass(
        cut, waves, int(resident * read), int(resident * (read + rows * columns * form.out.bits / 8 * (1 + form.beta)))
    )


def _loop(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """Cache-persistent and skinny: the shorter side runs fastest over the grid, so that it stays in L2."""
    plan.launches.append(Launch(_tiled(plan, form, chip, sizes), (*arrays, *factors)))


def _tiled(plan: Plan, form: Form, chip: Product, sizes: Any, split: int = 1) -> Any:
    tiles, (m, n, k) = plan.tiles, sizes
    cut = (tiles.tile_m, tiles.tile_n, depth_of(tiles, form))
    groups = ceil(m / cut[0]) * ceil(n / cut[1]) * split
    if tiles.pipeline_stages:
        cut = deep_enough(form, cut, groups, ceil(k / split), chip)
    ahead = _depth(plan, form, cut, groups, ceil(k / cut[2] / split), chip)
    plan.asked = hints(form, sizes, cut, chip)
    waves = (*waves_of(tiles, form, chip), 1)
    return kernels.tiled(
        form, cut, waves, ahead.stages, m <= n, split, plan.asked, ahead.prefetch, by_registers=tiles.by_registers
    )


def _depth(plan: Plan, form: Form, cut: tuple[int, int, int], groups: int, steps: int, chip: Product) -> Depth:
    """How far the loop over K runs ahead; the plan says so. 0 stages: the compiler chooses."""
    tiles = plan.tiles
    if not tiles.pipeline_stages:
        plan.in_flight = depth(form, cut, groups, max(1, steps), 2, 0, chip).in_flight
        return Depth(0, 0, plan.in_flight)
    found = depth(form, cut, groups, max(1, steps), tiles.pipeline_stages, tiles.prefetch_distance, chip)
    plan.tiles = replace(
        tiles, tile_m=cut[0], tile_n=cut[1], tile_k=cut[2], pipeline_stages=found.stages,
        prefetch_distance=max(found.stages - 1, found.prefetch),
    )  # fmt: skip
    plan.in_flight = found.in_flight
    return found


def _gemv(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any, cut: GemvCut) -> None:
    """A few rows against all columns."""
    a, b, c = arrays
    if sizes[0] > sizes[1]:
        a, b, c = (b if form.b_rows else b.T), a, c.T
    form, m, n, k = long_columns(form, sizes)
    plan.tiles = replace(plan.tiles, tile_m=m, tile_n=cut.columns, tile_k=cut.deep, split=cut.split)
    plan.in_flight = cut.in_flight(form, n, chip)
    plan.asked = hints(form, (m, n, k), (m, cut.columns), chip)
    overlapping = get_target(chip.target).warpgroup is not None
    kernel = kernels.gemv(
        replace(form, precision=None), cut.columns, cut.deep, cut.waves, plan.asked, cut.split, overlapping,
        cut.takes_whole_columns(form, m, chip),
    )  # fmt: skip
    plan.launches.append(Launch(kernel, (a, b, c, *factors)))


def _dealt(
    plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any, cut: tuple[int, int, int],
    waves: tuple[int, int, int],
) -> None:  # fmt: skip
    """One workgroup per unit at most; they share the K steps of all output tiles."""
    m, n, k = sizes
    count = ceil(m / cut[0]) * ceil(n / cut[1])
    cut = deep_enough(form, cut, chip.units, ceil(k * count / chip.units), chip)
    steps = ceil(k / cut[2])
    workers = max(1, min(chip.units, max(count, count * steps // LEAST_STEPS)))
    ahead = _depth(plan, form, cut, workers, ceil(count * steps / workers), chip)
    plan.asked = hints(form, sizes, cut, chip)
    kernel = kernels.tiled(form, cut, waves, ahead.stages, m <= n, 1, plan.asked, ahead.prefetch, workers)
    plan.launches.append(Launch(kernel, (*arrays, *factors)))


def _split(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """The same number of workgroups for every output tile."""
    share = min(max(2, plan.tiles.split), ceil(sizes[2] / depth_of(plan.tiles, form)))
    kernel = _tiled(plan, form, chip, sizes, share)
    plan.launches.append(Launch(kernel, (*arrays, *factors)))


def _by_warpgroups(
    plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any, cut: warpgroups.Cut
) -> None:  # fmt: skip
    """Tiles and parts of K for warpgroups; rings take all of shared memory."""
    m, n, k = sizes
    plan.tiles = replace(
        plan.tiles, tile_m=cut.tile[0], tile_n=cut.tile[1], tile_k=cut.tile[2], pipeline_stages=0,
        waves_m=cut.waves[0], waves_n=cut.waves[1], prefetch_distance=0, split=cut.parts,
    )  # fmt: skip
    plan.asked = hints(form, sizes, cut.tile, chip)
    if cut.apart:
        plan.why += ", which a second launch adds"
        a, b, c = arrays
        sums = room(c, (cut.parts, m, n), form.sums)
        each = cut.parts, k // cut.parts
        operands = a.reshape(m, *each), b.reshape(n, *each) if form.b_rows else b.reshape(*each, n)
        first = kernels.parts(form, cut.tile, cut.waves, m <= n, plan.asked)
        plan.launches.append(Launch(first, (*operands, sums)))
        plan.launches.append(Launch(kernels.added(form, cut.parts, plan.asked), (sums, c, *factors)))
        return
    pairs = warpgroups.pairs(form, sizes, cut, chip)
    kernel = kernels.tiled(
        form, cut.tile, (*cut.waves, 1), 0, m <= n, cut.parts, plan.asked, dependent=True, pairs=pairs,
        joined=cut.joined,
    )
    plan.launches.append(Launch(kernel, (*arrays, *factors)))


def _wave_parallel(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """Tiles spread over waves where there are enough for the chip; else the waves of a small tile share K, and
    workgroups share what is left of it."""
    m, n, _ = sizes
    if not is_small(plan.tiles, m, n, chip):
        _loop(plan, form, chip, arrays, sizes, factors)
        return
    side, deep, waves = shares_of_waves(form, m, n)
    _dealt(plan, form, chip, arrays, sizes, factors, (side, side, deep), (1, 1, waves))


def _stream(plan: Plan, form: Form, chip: Product, arrays: Any, sizes: Any, factors: Any) -> None:
    """Whole rounds of output tiles, and equal shares of the K steps of what is left over."""
    tiles = plan.tiles
    cut = (tiles.tile_m, tiles.tile_n, depth_of(tiles, form))
    _dealt(plan, form, chip, arrays, sizes, factors, cut, (*waves_of(tiles, form, chip), 1))


_BUILD: dict[str, Callable[..., None]] = {
    "shallow_k": _shallow,
    "cache_persistent": _loop,
    "skinny": _loop,
    "split_k": _split,
    "wave_parallel": _wave_parallel,
    "stream_k": _stream,
}
