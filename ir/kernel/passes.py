"""Runs passes over a kernel and checks after each that what it promises holds.

A `Pass` is a function of a kernel (and target) that returns the kernel to go on with, and the names of facts it needs,
gives and breaks. A fact has a checker that re-derives it from the kernel alone. `well-formed` (the verifier) is checked
after every pass that changes something, and at the end; another fact after the pass that gives it.

INVARIANT: after `run_passes` every fact in the returned set was given by a pass and not broken by a later one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from wavedsl.ir import trail
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel.build_core import PINNED
from wavedsl.ir.kernel.choose_halves import choose_halves
from wavedsl.ir.kernel.dead_stores import COPIES, Span, meet, remove_dead_stores, span
from wavedsl.ir.kernel.element_order import order_elements
from wavedsl.ir.kernel.into_branches import sink_into_branches
from wavedsl.ir.kernel.join_accesses import join_accesses
from wavedsl.ir.kernel.kernel_ir import ROWS, Kernel, Op, Region, Value
from wavedsl.ir.kernel.kernel_passes import remove_dead_code
from wavedsl.ir.kernel.kernel_verify import check
from wavedsl.ir.kernel.late_descriptors import sink_descriptors
from wavedsl.ir.kernel.merge_carried import merge_carried
from wavedsl.ir.kernel.merge_loads import merge_loads
from wavedsl.ir.kernel.narrow_fences import narrow_fences, wide
from wavedsl.ir.kernel.needless_barriers import needless, remove_needless_barriers
from wavedsl.ir.kernel.needless_waits import needless_waits, remove_needless_waits
from wavedsl.ir.kernel.pair_floats import pair_floats
from wavedsl.ir.kernel.read_beside import read_beside
from wavedsl.ir.kernel.sink import sink_conditions
from wavedsl.ir.kernel.split_loops import split_loops
from wavedsl.ir.kernel.strength_reduce import strength_reduce
from wavedsl.ir.kernel.unroll import Turns, static_trips, unroll
from wavedsl.ir.kernel.verify_ops import Finding, describe
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

Run = Callable[[Kernel, "Target | None"], "Kernel | None"]
"""Changes the kernel in place (returning None), returns a new one, or the same one if there was nothing to change."""


@dataclass(frozen=True)
class Pass:
    """One step; facts are names of `CHECKS`."""

    name: str
    run: Run
    needs: frozenset[str] = frozenset({"well-formed"})
    gives: frozenset[str] = frozenset()
    breaks: frozenset[str] = field(default=frozenset())


CHECKS: dict[str, Callable[[Kernel, Target | None], list[Finding]]] = {}


def _check(name: str) -> Callable[[Callable[[Kernel], list[Finding]]], Callable[[Kernel], list[Finding]]]:
    def register(f: Callable[[Kernel], list[Finding]]) -> Callable[[Kernel], list[Finding]]:
        CHECKS[name] = lambda kernel, target: f(kernel)
        return f

    return register


CHECKS["well-formed"] = check


@_check("no-dead-code")
def no_dead_code(kernel: Kernel) -> list[Finding]:
    """Every result of an op without effects is read by some op."""
    every = kernel.body.walk()
    read = {a for op in every for a in op.args}
    return [
        Finding("no-dead-code", f"{describe(op)}: nothing reads the result", op.loc)
        for op in every
        if ROWS[op.name].pure and read.isdisjoint(op.results)
    ]


@_check("hoisted")
def hoisted(kernel: Kernel) -> list[Finding]:
    """No movable op stands in a loop that defines none of its operands."""
    found: list[Finding] = []

    def walk(region: Region, inside: set[Value] | None) -> None:
        for op in region.ops:
            if inside is not None:
                if ROWS[op.name].pure and op.name not in PINNED and inside.isdisjoint(op.args):
                    found.append(Finding("hoisted", f"{describe(op)}: does not depend on its loop", op.loc))
                inside.update(op.results)
            for body in op.regions:
                if op.name == "for":
                    walk(body, set(body.args))
                elif inside is not None:
                    walk(body, set(inside))

    walk(kernel.body, None)
    return found


@_check("numbered")
def numbered(kernel: Kernel) -> list[Finding]:
    """No pure op computes again what an earlier one in scope has computed."""
    found: list[Finding] = []

    def walk(region: Region, seen: dict[object, Op]) -> None:
        for op in region.ops:
            if op.row.pure and op.name not in PINNED and op.name != "const":
                key = (op.name, op.args, tuple(op.attrs.items()), op.results[0].type)
                if key in seen:
                    found.append(
                        Finding("numbered", f"{describe(op)}: computed before by {describe(seen[key])}", op.loc)
                    )
                seen[key] = op
            for body in op.regions:
                walk(body, dict(seen))

    walk(kernel.body, {})
    return found


@_check("strength-reduced")
def strength_reduced(kernel: Kernel) -> list[Finding]:
    """No multiplication of a loop's induction variable (by itself or plus invariants) feeds a memory op of the loop."""
    found: list[Finding] = []

    def product_of(v: Value, iv: Value) -> Op | None:
        op = v.op
        if op is None or op.name not in ("add", "sub", "mul"):
            return None
        if op.name == "mul":
            return op if iv in op.args else None
        return next((p for a in op.args if (p := product_of(a, iv)) is not None), None)

    for loop in kernel.body.walk():
        if loop.name != "for":
            continue
        iv = loop.regions[0].args[0]
        for op in loop.regions[0].ops:
            if op.row.pure or op.regions:
                continue
            for a in op.args:
                product = product_of(a, iv)
                if product is not None:
                    found.append(Finding("strength-reduced", f"{describe(product)}: multiplies {iv} per trip", op.loc))
    return found


@_check("no-short-loops")
def no_short_loops(kernel: Kernel) -> list[Finding]:
    """No loop with constant bounds runs at most once."""
    out = []
    for op in kernel.body.walk():
        trips = static_trips(op) if op.name == "for" else None
        if trips is not None and trips <= 1:
            out.append(Finding("no-short-loops", f"{describe(op)}: runs {trips} times", op.loc))
    return out


@_check("no-dead-stores")
def no_dead_stores(kernel: Kernel) -> list[Finding]:
    """Every store to shared memory behind the last loop or branch is read further down."""
    ops = kernel.body.ops
    last = max((i for i, op in enumerate(ops) if op.regions), default=-1)
    found = []
    read: list[Span] = []
    for op in reversed(ops[last + 1 :]):
        if op.name in COPIES and not any(map(functools.partial(meet, span(kernel, op)), read)):
            found.append(Finding("no-dead-stores", f"{describe(op)}: nothing reads it", op.loc))
        if "read shared" in op.row.effects and op.name != "barrier":
            read.append(span(kernel, op))
    return found[::-1]


@_check("no-needless-barriers")
def no_needless_barriers(kernel: Kernel) -> list[Finding]:
    """Every barrier of the workgroup, or of a warp, stands between two accesses to shared memory that need it."""
    return [Finding("no-needless-barriers", f"{describe(op)}: orders nothing", op.loc) for op in needless(kernel)]


@_check("no-needless-waits")
def no_needless_waits(kernel: Kernel) -> list[Finding]:
    """At every wait for copies more of them may be in flight than it lets pass."""
    return [Finding("no-needless-waits", f"{describe(op)}: waits for nothing", op.loc) for op in needless_waits(kernel)]


@_check("no-wide-fences")
def no_wide_fences(kernel: Kernel) -> list[Finding]:
    """No fence orders more than another workgroup can tell."""
    return [
        Finding("no-wide-fences", f"{describe(op)}: orders more than {attrs}", op.loc) for op, attrs in wide(kernel)
    ]


def _narrow_fences(kernel: Kernel, target: Target | None) -> Kernel | None:
    return None if narrow_fences(kernel) else kernel


def _needless_barriers(kernel: Kernel, target: Target | None) -> Kernel | None:
    waits = remove_needless_waits(kernel)  # first: what a wait has brought keeps barriers
    return None if remove_needless_barriers(kernel) or waits else kernel


def _moving(move: Callable[[Kernel, Target | None], None]) -> Callable[[Kernel, Target | None], Kernel | None]:
    """A pass that moves or repeats ops in place, which says by their order whether it has."""

    def run(kernel: Kernel, target: Target | None) -> Kernel | None:
        before = [list(region.ops) for region in kernel.body.regions()]
        move(kernel, target)
        return kernel if before == [region.ops for region in kernel.body.regions()] else None

    return run


def _dead_stores(kernel: Kernel, target: Target | None) -> Kernel | None:
    return None if remove_dead_stores(kernel) else kernel


def _dead_code(kernel: Kernel, target: Target | None) -> Kernel | None:
    return None if remove_dead_code(kernel) else kernel


DEAD_CODE = Pass("remove_dead_code", _dead_code, gives=frozenset({"no-dead-code"}))
MERGE_CARRIED = Pass("merge_carried", merge_carried, gives=frozenset({"no-dead-code"}))
MERGE_LOADS = Pass("merge_loads", merge_loads, gives=frozenset({"no-dead-code"}))
JOIN_ACCESSES = Pass("join_accesses", join_accesses, gives=frozenset({"no-dead-code"}))
DEAD_STORES = Pass("remove_dead_stores", _dead_stores, gives=frozenset({"no-dead-stores"}))
STRENGTH_REDUCE = Pass(
    "strength_reduce",
    strength_reduce,
    needs=frozenset({"well-formed", "no-dead-code"}),
    gives=frozenset({"strength-reduced", "no-dead-code"}),
)


CHOOSE_HALVES = Pass(
    "choose_halves", choose_halves, gives=frozenset({"no-dead-code"}), breaks=frozenset({"strength-reduced"})
)
PAIR_FLOATS = Pass(
    "pair_floats", pair_floats, gives=frozenset({"no-dead-code"}), breaks=frozenset({"strength-reduced"})
)
INTO_BRANCHES = Pass(
    "sink_into_branches", _moving(sink_into_branches), gives=frozenset(), breaks=frozenset({"numbered", "hoisted"})
)
READ_BESIDE = Pass("read_beside", read_beside, gives=frozenset(), breaks=frozenset({"numbered", "hoisted"}))
ORDER_ELEMENTS = Pass("order_elements", order_elements, gives=frozenset(), breaks=frozenset({"numbered", "hoisted"}))
SINK_CONDITIONS = Pass(
    "sink_conditions", _moving(sink_conditions), gives=frozenset(), breaks=frozenset({"numbered", "hoisted"})
)
SINK_DESCRIPTORS = Pass(
    "sink_descriptors", _moving(sink_descriptors), gives=frozenset(), breaks=frozenset({"numbered", "hoisted"})
)
NARROW_FENCES = Pass("narrow_fences", _narrow_fences, gives=frozenset({"no-wide-fences"}))
NEEDLESS_BARRIERS = Pass(
    "remove_needless_barriers", _needless_barriers, gives=frozenset({"no-needless-barriers", "no-needless-waits"})
)
SPLIT_LOOPS = Pass(
    "split_loops", split_loops, gives=frozenset({"no-dead-code"}), breaks=frozenset({"strength-reduced"})
)


def unroll_pass(factors: dict[str, int] | Callable[[Op], int | Turns], remainder: bool = False) -> Pass:
    """A pass that unrolls loops, by label or by a function of the op.

    With `remainder` trip counts need not be multiples of the factor.
    """
    return Pass(
        "unroll" if callable(factors) else f"unroll {factors}",
        lambda kernel, target: unroll(kernel, factors, target, remainder=remainder),
        gives=frozenset({"no-short-loops", "no-dead-code"}),
        breaks=frozenset({"strength-reduced"}),
    )


def verifying() -> bool:
    """Whether checkers run between passes: yes, unless WAVEDSL_VERIFY=0."""
    return os.environ.get("WAVEDSL_VERIFY", "1") != "0"


def _text(kernel: Kernel) -> str:
    from wavedsl.ir.kernel.kernel_text import text

    return text(kernel)


def run_passes(
    kernel: Kernel,
    passes: Sequence[Pass],
    target: Target | None = None,
    *,
    facts: Iterable[str] = ("well-formed",),
    checked: bool | None = None,
    held: set[str] | None = None,
    more: bool = False,
) -> tuple[Kernel, set[str]]:
    """Run the passes in order; returns the kernel and the facts that hold of it.

    `facts` hold at the start. Raises CompileError naming pass, fact, op and the user's line when a pass needs what none
    has given, or (if `checked`, by default `verifying()`) a promised fact does not hold. Facts are not checked again
    after a pass that says it has changed nothing, but whatever comes out has been. `held`: facts found to hold since a
    pass last changed anything, for the passes that follow where there are `more`.
    """
    checked = verifying() if checked is None else checked
    known = set(facts)
    held = set() if held is None else held
    for at, p in enumerate(passes, 1):
        missing = sorted(p.needs - known)
        if missing:
            raise CompileError(f"{p.name} needs {', '.join(missing)}, which no earlier pass gives")
        result = p.run(kernel, target)
        same = result is kernel
        kernel = kernel if result is None else result
        known = (known - p.breaks) | p.gives | {"well-formed"}
        trail.stage(f"after {p.name}", functools.partial(_text, kernel))
        if checked:
            if not same or (at == len(passes) and not more):
                held.clear()
            for fact in ["well-formed", *sorted(p.gives)]:
                if fact in held:
                    continue
                held.add(fact)
                found = CHECKS[fact](kernel, target)
                if found:
                    raise CompileError(
                        f"after {p.name}: '{fact}' does not hold of {kernel.name}: {found[0].message}",
                        found[0].loc,
                        "this is a defect of the compiler, not of the kernel",
                    )
    return kernel, known
