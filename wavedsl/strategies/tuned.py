"""The fastest way to compute a product, found by trying.

In: arrays as for `matmul`. Out: a `Tuned`: the plan, and what became of every choice. On a GPU each of `gemm_choices`
is run, compared with the first one's result and timed on the arrays themselves; on an emulator nothing runs, and the
cycle model's seconds decide. `tuned_matmul` remembers the choice for the process, by all that a plan depends on.

    from wavedsl.strategies import tuned_matmul
    tuned_matmul(x, w, y, transpose_b=True)          # the first call of a shape takes seconds, the others none
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from wavedsl.analysis.launches import analyze_launches, launch_of
from wavedsl.ir.errors import CompileError, WaveError
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.arrays import describe
from wavedsl.runtime.devices import Device
from wavedsl.runtime.launch import device_of
from wavedsl.strategies.choices import MOST, gemm_choices
from wavedsl.strategies.chosen import Choice
from wavedsl.strategies.plan import Plan, check_factors, chip_of, plan_gemm, problem, with_gemm_options
from wavedsl.strategies.rooms import copied, difference, not_a_number, put
from wavedsl.strategies.warpgroups import BETWEEN

WARMUP, REPEATED = 0.01, 0.05
"""Seconds for which a choice is called before it is timed, and while it is."""
ROUNDING = 8
"""Roundings to C's dtype by which two right results may differ, relative to the largest element."""


@dataclass(frozen=True)
class Trial:
    """A choice and its seconds; without them, why it is out."""

    choice: Choice
    seconds: float | None
    reason: str = ""


@dataclass
class Tuned:
    """`plan`: of the fastest choice. `trials`: all of them, the default's first. `measured`: whether on a device."""

    plan: Plan
    trials: list[Trial] = field(default_factory=list)
    measured: bool = False

    def __str__(self) -> str:
        from wavedsl.analysis.text import duration

        how = "measured" if self.measured else "by the cycle model"
        lines = [f"{t.choice}: {t.reason if t.seconds is None else duration(t.seconds)}" for t in self.trials]
        return "\n".join([f"{len(lines)} choices, {how}", *lines])


@with_gemm_options
def tune_gemm(
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    product: str | Product | None = None,
    most: int = MOST,
    precision: str | None = None,
) -> Tuned:
    """Try up to `most` choices for C = alpha A B + beta C. Arguments and errors are `matmul`'s; a choice that cannot be
    compiled, or whose result differs from the default's, is left out and says why.

    On a GPU C is overwritten with the product, but keeps what it had where `beta` is not 0. `plan.run()` computes."""
    form, (_, _, k) = problem(a, b, c, beta, transpose_b, precision)
    check_factors("matmul", form, alpha, beta)
    choices = gemm_choices(
        a, b, c, beta=beta, transpose_b=transpose_b, product=product, most=most, precision=precision
    )  # fmt: skip

    def planned(choice: Choice | None) -> Plan:
        return plan_gemm(
            a, b, c, alpha=alpha, beta=beta, transpose_b=transpose_b, product=product, choice=choice,
            precision=precision,
        )  # fmt: skip

    if not choices:
        return Tuned(planned(None))
    measured = _has_clock(device_of({"a": a, "b": b, "c": c}))
    if measured:
        of_sums = 0.0 if form.sums.is_int else math.sqrt(k) * 2.0**-form.sums.mantissa
        if form.precision == "tf32":  # a choice may multiply operands as they are
            of_sums += 2.0 ** -(form.multiplied.mantissa - 1)
        of_result = 0.0 if form.out.is_int else ROUNDING * 2.0 ** -(form.out.mantissa + 1)
        trials = _timed(choices, planned, c, beta != 0, of_sums + of_result)
    else:
        chip = chip_of(product, a, b, c)
        trials = [_predicted(choice, planned, chip) for choice in choices]
    right = [t for t in trials if t.seconds is not None]
    if not right:
        raise CompileError(
            f"matmul: none of {len(trials)} choices can be used; {trials[0].choice}: {trials[0].reason}",
            hint="name a strategy: matmul(…, strategy=…)",
        )
    best = min(right, key=lambda t: t.seconds or 0.0)
    plan = planned(best.choice)
    plan.why = f"the fastest of {len(right)} that were {'timed' if measured else 'compared by the cycle model'}"
    return Tuned(plan, trials, measured)


@with_gemm_options
def tuned_matmul(
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    transpose_b: bool = False,
    product: str | Product | None = None,
    precision: str | None = None,
) -> Plan:
    """C = alpha A B + beta C in place, as `matmul`, in the way that `tune_gemm` finds for these shapes, dtypes and
    strides on this chip the first time that they are met. The plan that ran."""
    form, sizes = problem(a, b, c, beta, transpose_b, precision)
    places = tuple((x.place, x.index, x.strides) for x in (describe(array) for array in (a, b, c)))
    chip = chip_of(product, a, b, c)
    key = form, sizes, (chip.name, chip.target, chip.units), places
    if key not in _KNOWN:
        tuned = tune_gemm(
            a, b, c, alpha=alpha, beta=beta, transpose_b=transpose_b, product=product, precision=precision
        )  # fmt: skip
        _KNOWN[key] = tuned.plan.choice
    plan = plan_gemm(
        a, b, c, alpha=alpha, beta=beta, transpose_b=transpose_b, product=product, choice=_KNOWN[key],
        precision=precision,
    )  # fmt: skip
    plan.run()
    return plan


_KNOWN: dict[Hashable, Choice | None] = {}


def _has_clock(device: Device) -> bool:
    return device.kind != "emulator"


def _timed(
    choices: Sequence[Choice], planned: Callable[[Choice], Plan], c: Any, keeps: bool, allowed: float
) -> list[Trial]:  # fmt: skip
    """Each choice on the device. `keeps`: C is read, so every run begins with what it had; `allowed`: by what results
    may differ, of the largest element."""
    before = copied(c) if keeps else not_a_number(c)
    want: Any = None
    trials = []
    for choice in choices:
        try:
            put(c, before)
            plan = planned(choice)
            plan.run()
            off = 0.0 if want is None else difference(c, want)
            if not off <= allowed:
                trials.append(Trial(choice, None, f"differs from the default's result by {off:.3g} of the largest"))
                continue
            want = copied(c) if want is None else want
            trials.append(Trial(choice, _seconds(plan)))
        except WaveError as error:
            trials.append(Trial(choice, None, error.message.splitlines()[0]))
    if keeps:
        put(c, before)
    return trials


def _seconds(plan: Plan) -> float:
    """Median of launches with a cold L2 cache. Arrays of the host are copied once, not with every launch."""
    from wavedsl.testing import bench, bench_compiled

    if not any(isinstance(x, np.ndarray) for launch in plan.launches for x in launch.arguments):
        return bench(plan.run, WARMUP, REPEATED).median
    place = device_of({str(i): x for i, x in enumerate(plan.launches[0].arguments)})
    return sum(
        bench_compiled(launch.kernel.compile(*launch.arguments), launch.arguments, place, WARMUP, REPEATED).median
        for launch in plan.launches
    )


def _predicted(choice: Choice, planned: Callable[[Choice], Plan], chip: Product) -> Trial:
    """The cycle model's seconds."""
    try:
        launches = [launch_of(one.kernel, one.arguments, chip.target) for one in planned(choice).launches]
        records = analyze_launches(launches, chip)
    except WaveError as error:
        return Trial(choice, None, error.message.splitlines()[0])
    return Trial(choice, sum(record.seconds for record in records) + BETWEEN * (len(records) - 1))


__all__ = ["Trial", "Tuned", "tune_gemm", "tuned_matmul"]
