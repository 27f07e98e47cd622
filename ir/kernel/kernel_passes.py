"""Passes over whole kernels: rebuilding through the builder (common subexpressions, hoisting, folding) and dead code.

In: a kernel. Out: a new kernel (`rebuild`) or the same one, changed (`remove_dead_code`). INVARIANT: ops with effects
keep their order, number and attributes; locations follow the ops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wavedsl.ir.kernel.address_parts import split_constant
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.facts import BITS, normalise
from wavedsl.ir.kernel.kernel_ir import ROWS, Kernel, Op, Region, Value, linear_reach
from wavedsl.ir.target import Target


def remove_dead_code(kernel: Kernel) -> int:
    """Delete pure ops without uses, carried values nobody needs, and loops and branches that do nothing.

    (EFFECT) An op with effects is alive. (USE) What a live op reads is alive. (BODY) A loop or branch is alive when its
    body has an effect or one of its results is. (CARRY) A carried value is alive when its result is, or when a live op
    in the body reads it; then so are its init and its next value.
    Returns how many ops and carried values were deleted.
    """
    live, live_ops = _alive(kernel)
    return _sweep(kernel.body, live, live_ops)


def _alive(kernel: Kernel) -> tuple[set[Value], set[Op]]:
    """The values and ops that are alive, by the rules of `remove_dead_code`."""
    live: set[Value] = set()
    live_ops: set[Op] = set()
    work: list[Value] = []
    owner, enclosing = _carriers(kernel.body)

    def use(v: Value) -> None:
        if v not in live:
            live.add(v)
            work.append(v)

    def keep(op: Op) -> None:
        """(USE), for what steers a loop or branch, and for the ops around it (BODY)."""
        if op in live_ops:
            return
        live_ops.add(op)
        if op.name == "for":
            for v in op.args[:3]:
                use(v)
            if op.attrs.get("again"):
                use(op.regions[0].args[1])
        elif op.name != "yield":
            for v in op.args:
                if v not in live:  # as `use` does, for most of all values
                    live.add(v)
                    work.append(v)
        outer = enclosing[op]
        if outer is not None:
            keep(outer)

    for op in kernel.body.walk():  # (EFFECT)
        if not ROWS[op.name].pure and op.name not in ("for", "if", "yield"):
            keep(op)
    while work:
        v = work.pop()
        if v in owner:  # (CARRY) it is read in the body
            op, i = owner[v]
            keep(op)
            use(op.args[3 + i])
            use(op.regions[0].ops[-1].args[i])
            use(op.results[i])
        elif v.op is not None:
            keep(v.op)
            if v.op.regions:
                i = v.op.results.index(v)
                for body in v.op.regions:
                    use(body.ops[-1].args[i])
                if v.op.name == "for":  # (CARRY) its result is alive
                    use(v.op.args[3 + i])
                    use(v.op.regions[0].args[1 + i])
    return live, live_ops


def _carriers(body: Region) -> tuple[dict[Value, tuple[Op, int]], dict[Op, Op | None]]:
    """(carried value → its loop and number there, op → the loop or branch around it)."""
    owner: dict[Value, tuple[Op, int]] = {}
    enclosing: dict[Op, Op | None] = {}
    for region in body.regions():
        for op in region.ops:
            enclosing[op] = region.parent
            for inner in op.regions:
                for i, a in enumerate(inner.args[1:]):
                    owner[a] = (op, i)
    return owner, enclosing


def _sweep(region: Region, live: set[Value], live_ops: set[Op]) -> int:
    """Delete what is not alive from a region and those inside it; how many ops and carried values that are."""
    removed = 0
    kept = []
    for op in region.ops:
        if op.name == "yield":
            kept.append(op)
            continue
        if op not in live_ops:
            removed += 1
            continue
        kept.append(op)
        if op.regions:
            keeps = [r in live for r in op.results]
            if not all(keeps):
                removed += keeps.count(False)
                remove_carried(op, keeps)
            for body in op.regions:
                removed += _sweep(body, live, live_ops)
    region.ops[:] = kept
    return removed


def remove_carried(op: Op, keeps: list[bool]) -> None:
    """Remove the results (and for a loop the carried values) that are not kept."""

    def select(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(v for v, keep in zip(values, keeps) if keep)

    op.results = select(op.results)
    for body in op.regions:
        body.ops[-1].args = select(body.ops[-1].args)
        if op.name == "for":
            body.args[1:] = select(tuple(body.args[1:]))
    if op.name == "for":
        op.args = op.args[:3] + select(op.args[3:])


def rebuild(kernel: Kernel, target: Target | None = None, *, dead_code: bool = True) -> Kernel:
    """The same kernel built again: folded, value-numbered and hoisted, whatever it was made by.

    Facts of the old values that are sharper than what the builder derives are kept. Immediates of memory ops stay.
    """
    fresh = fresh_kernel(kernel)
    b = Builder(fresh, target)
    copy_region(b, kernel.body, {})
    fresh = b.finish()
    if dead_code:
        remove_dead_code(fresh)
    return fresh


def fresh_kernel(kernel: Kernel) -> Kernel:
    """An empty kernel with the same name, parameters and shared memory."""
    return replace(kernel, body=Region(), shared_names=dict(kernel.shared_names), notes=dict(kernel.notes))


Hook = Callable[[Op], bool]
"""Called for every op before it is copied; True says that it has been dealt with."""


def copy_region(b: Builder, region: Region, env: dict[Value, Value], hook: Hook | None = None) -> None:
    """Emit the ops of a region through the builder; `env` maps old values to new ones and is extended."""
    for op in region.ops:
        copy_op(b, op, env, hook)


def copy_op(b: Builder, op: Op, env: dict[Value, Value], hook: Hook | None = None) -> None:
    """Emit one op (a `yield` is left to the caller) through the builder."""
    if op.name == "yield" or (hook is not None and hook(op)):
        return
    b.set_loc(op.loc)
    args = [env[a] for a in op.args]
    if op.name == "for":
        body = op.regions[0]
        carried = body.args[1:]
        loop = b.for_(
            args[0], args[1], args[2], args[3:], label=op.attrs.get("label", ""),
            min_trips=op.attrs.get("min_trips", 0), uniform=[a.uniform for a in carried],
            again=op.attrs.get("again", False),
        )  # fmt: skip
        loop.op.attrs = {**op.attrs, **loop.op.attrs}
        with loop:
            for old, new in zip(body.args, (loop.iv, *loop.carried)):
                env[old] = new
                keep_facts(old, new)
            copy_region(b, body, env, hook)
            b.set_loc(body.ops[-1].loc)
            loop.yield_([env[a] for a in body.ops[-1].args])
        outs = loop.results
        b.set_loc(op.loc)
    elif op.name == "if":
        branch = b.if_(args[0], stay=bool(op.attrs.get("stay")))
        branch.op.attrs = dict(op.attrs)
        with branch:
            copy_region(b, op.regions[0], env, hook)
            branch.yield_([env[a] for a in op.regions[0].ops[-1].args])
        if op.results or len(op.regions[1].ops) > 1:
            with branch.orelse():
                copy_region(b, op.regions[1], env, hook)
                branch.yield_([env[a] for a in op.regions[1].ops[-1].args])
        outs = branch.results
    else:
        t = op.results[0].type if op.results else None
        attrs = op.attrs
        places = _ADDRESSES.get(op.name)
        if places is not None:
            attrs = dict(attrs)
            for at, key in places:
                most = linear_reach(args[5], attrs["simm"]) if attrs.get("linear") and key == "imm" else None
                shared = key == "simm" or op.name in _OF_SHARED
                args[at], attrs[key] = _immediate(b, args[at], attrs[key], shared, most)
        out = b.emit(op.name, args, attrs, t)
        outs = (out,) if op.results else ()
    for old, new in zip(op.results, outs):
        env[old] = new
        if op.name != "const":
            keep_facts(old, new)


_ADDRESSES = {
    "load.global": ((1, "imm"), (2, "imm")),
    "store.global": ((1, "imm"), (2, "imm")),
    "atomic.global": ((1, "imm"), (2, "imm")),
    "touch.global": ((1, "imm"), (2, "imm")),
    "copy.async": ((5, "simm"), (1, "imm"), (2, "imm")),
    "load.shared": ((0, "imm"),),
    "store.shared": ((0, "imm"),),
    "atomic.shared": ((0, "imm"),),
    "load.peer": ((0, "imm"),),
}
"""Operands of memory ops that are addresses, and the immediate that is added to each."""


_OF_SHARED = frozenset(("load.shared", "store.shared", "atomic.shared", "load.peer"))
"""Those whose immediate counts for an address of shared memory."""


def _immediate(
    b: Builder, address: Value, imm: int, shared: bool, most: int | None = None
) -> tuple[Value, int]:
    """Move a constant that copying has brought to light from the address to the immediate, where it fits."""
    base, c = split_constant(address)
    if c == 0:
        return address, imm
    low, high = b.shared_range if shared else b.global_range
    high = high if most is None else min(high, most)
    if not low <= imm + c <= high or (base is not None and (base.lo is None or base.lo < 0)):
        return address, imm
    return (b.const(0) if base is None else base), imm + c


def keep_facts(old: Value, new: Value) -> None:
    """Intersect the facts of `new` with those of `old`, which it equals."""
    if new.lo is None or old.lo is None or new.hi is None or old.hi is None or new.const is not None:
        return
    if not new.name:
        new.name = old.name
    if max(old.lo, new.lo) > min(old.hi, new.hi):
        return  # never executed
    if old.lo > new.lo or old.hi < new.hi or old.zeros & ~new.zeros:
        bits = BITS[new.type.kind]
        new.lo, new.hi, new.zeros = normalise(max(old.lo, new.lo), min(old.hi, new.hi), old.zeros | new.zeros, bits)
