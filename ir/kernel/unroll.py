"""Unrolls loops whose number of trips is known to be a multiple of the factor; removes loops of one trip or none.

In: a kernel and how often to repeat each loop's body. Out: a new kernel. The body is copied with the induction variable
advanced by constants, so offsets of the copies become immediates. INVARIANT: ops with effects run in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Value
from wavedsl.ir.kernel.kernel_passes import copy_region, fresh_kernel, remove_dead_code
from wavedsl.ir.target import Target

Hook = Callable[[Op], bool]


class Turns(NamedTuple):
    """How a loop is unrolled."""

    factor: int
    """Trips between two jumps."""
    behind: int = 0
    """Trips at the end that are plain code at least, where their number is known."""


def static_trips(loop: Op) -> int | None:
    """How often a `for` with constant bounds runs; None where that is not known."""
    lo, hi, step = (a.const for a in loop.args[:3])
    if loop.attrs.get("again"):
        return None
    if not isinstance(lo, int) or not isinstance(hi, int) or not isinstance(step, int):
        return None
    return max(0, -((lo - hi) // step))


def unroll(
    kernel: Kernel,
    factors: Mapping[str, int] | Callable[[Op], int | Turns],
    target: Target | None = None,
    *,
    remainder: bool = False,
) -> Kernel:
    """Repeat the body of loops `factors` times per trip: by label, or by a function of the `for` op (1: leave it).

    A loop with `trips_multiple` among its attributes promises a multiple of that; else its bounds must be constants.
    With `remainder` any number of trips will do: what is left runs after the loop, as plain code or in a loop again.
    Raises CompileError where the factor does not divide the number of trips and `remainder` is not given.
    """
    if callable(factors):
        factor_of = factors
    else:
        table = factors

        def factor_of(op: Op) -> int | Turns:
            return table.get(op.attrs.get("label", ""), 1)

    changed: dict[Op, tuple[Turns, int | None]] = {}  # how a loop is to run, and how often it does where that is known
    for op in kernel.body.walk():
        if op.name == "for":
            turns, trips = factor_of(op), static_trips(op)
            if trips is not None and trips <= 1:
                changed[op] = Turns(max(trips, 1)), trips
            elif turns not in (1, Turns(1)):
                changed[op] = turns if isinstance(turns, Turns) else Turns(turns), trips
    if not changed:
        return kernel
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    env: dict[Value, Value] = {}

    def hook(op: Op) -> bool:
        if op not in changed:
            return False
        (factor, behind), trips = changed[op]
        known = trips if trips is not None else op.attrs.get("trips_multiple", 1)
        if factor < 1 or (known % factor and not remainder):
            what = f"{trips} trips" if trips is not None else f"a multiple of {known} trips"
            raise CompileError(
                f"loop {op.attrs.get('label', '')!r} runs {what} and cannot be unrolled by {factor}", op.loc
            )
        _copy(b, op, env, Turns(factor, behind), trips, known % factor, hook)
        return True

    copy_region(b, kernel.body, env, hook)
    fresh = b.finish()
    remove_dead_code(fresh)
    return fresh


def _copy(b: Builder, op: Op, env: dict[Value, Value], turns: Turns, trips: int | None, rest: int, hook: Hook) -> None:
    """`rest` trips (of a multiple of that which is known) do not fill a trip of the unrolled loop."""
    factor, behind = turns
    body = op.regions[0]
    b.set_loc(op.loc)
    lo, hi, step = (env[a] for a in op.args[:3])
    carried = [env[a] for a in op.args[3:]]
    uniform = [a.uniform for a in body.args[1:]]
    label = op.attrs.get("label", "")
    attrs = {k: v for k, v in op.attrs.items() if k not in ("label", "min_trips", "trips_multiple")}

    def bodies(iv: Value, carried: list[Value], count: int) -> list[Value]:
        for k in range(count):
            b.set_loc(op.loc)
            at = b.add(iv, b.mul(step, k))
            for old, new in zip(body.args, (at, *carried)):
                env[old] = new
            copy_region(b, body, env, hook)
            carried = [env[a] for a in body.ops[-1].args]
        return carried

    def repeat(lo: Value, hi: Value, count: int, carried: list[Value], min_trips: int) -> list[Value]:
        """A loop of `count` bodies per trip; its first carried value is where it stopped, if anything is left."""
        inits = [lo, *carried] if counting else carried
        marks = [True, *uniform] if counting else uniform
        stride = b.mul(step, count)
        loop = b.for_(lo, hi, stride, inits, label=label, min_trips=min_trips, uniform=marks)
        loop.op.attrs.update(attrs)
        loop.op.attrs["steps"] = attrs.get("steps", 1) * count
        with loop:
            outs = bodies(loop.iv, list(loop.carried[counting:]), count)
            b.set_loc(body.ops[-1].loc)
            loop.yield_([b.add(loop.iv, stride), *outs] if counting else outs)
        return list(loop.results)

    at_least = op.attrs.get("min_trips", 0)
    counting = False
    if trips is not None:
        whole = (trips - behind) // factor * factor
        if whole > factor:
            carried = repeat(lo, b.add(lo, b.mul(step, whole)), factor, carried, whole // factor)
            lo = b.add(lo, b.mul(step, whole))
        else:
            whole = 0
        carried = bodies(lo, carried, trips - whole)
    elif not rest:
        carried = repeat(lo, hi, factor, carried, -(-at_least // factor))
    else:
        # A trip of the unrolled loop needs its last body to be below the bound.
        counting = True
        stop, *carried = repeat(lo, b.sub(hi, b.mul(step, factor - 1)), factor, carried, at_least // factor)
        counting = False
        carried = repeat(stop, hi, 1, carried, 0)
    for old, new in zip(op.results, carried):
        env[old] = new
