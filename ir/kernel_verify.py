"""The verifier of kernel IR: re-derives from the ops alone what builder and passes promise. Returns findings.

What holds of every kernel:

* Every value is defined once, before its uses, in the same region or one around it; a region ends with `yield`.
* Operands and results have the types of the op's row; loads and stores move as many bytes as their registers hold.
* A loop's inits, carried values, next values and results agree in type; both branches of an `if` do.
* A value marked uniform depends on uniform values only; operands marked `u:` in the row are uniform.
* Ranges and known-zero bits hold: all integers are computed for random samples of lanes, workgroups, parameters, loaded
  data and trips, extremes among them, with NumPy alone. A carried value is sampled where its value can be computed from
  the trip (init + trip × constant); elsewhere its declared range is assumed, and shown to be kept by the next value.
* With a target: immediates, widths of copies, matrix and load atoms, shared memory are the target's.
* Before shared memory is read, at least one group of asynchronous copies into that buffer has been committed and waited
  for and, with several waves, passed a barrier; no barrier stands where some waves of a workgroup do not come.
* If asked for, every op has a location.

INVARIANT: shares no code with builder, facts or fold rules.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from wavedsl.ir.errors import CompileError
from wavedsl.ir.kernel_ir import F32, I32, I64, PRED, ROWS, Kernel, Op, Region, Type, Value, linear_reach
from wavedsl.ir.kernel_meaning import ATOMIC, CHEAP, NUMPY
from wavedsl.ir.loc import Loc
from wavedsl.ir.target import MmaAtom, Target

SAMPLES = 64
_OPTIONAL = frozenset({"high", "unsigned", "label", "message"})
_FIXED = {"i32": I32, "i64": I64, "f32": F32, "pred": PRED}


@dataclass(frozen=True)
class Finding:
    """One broken rule: the fact (`types`, `scope`, `uniform`, `range`, …), what is wrong, and where."""

    fact: str
    message: str
    loc: Loc | None = None

    def __str__(self) -> str:
        return f"{self.fact}: {self.message}" + (f" [{self.loc}]" if self.loc is not None else "")


def verify(kernel: Kernel, target: Target | None = None, *, locations: bool = False, after: str = "") -> None:
    """Raise CompileError with the first finding (and how many more) of `check`; `after` names the pass to blame."""
    found = check(kernel, target, locations=locations)
    if found:
        first = found[0]
        blame = f"after {after}: " if after else ""
        more = f" ({len(found) - 1} more findings)" if len(found) > 1 else ""
        raise CompileError(
            f"{blame}kernel IR of {kernel.name}: '{first.fact}' does not hold: {first.message}{more}",
            first.loc,
            "this is a defect of the compiler, not of the kernel",
        )


def check(kernel: Kernel, target: Target | None = None, *, locations: bool = False) -> list[Finding]:
    """All findings, in the order of the rules above."""
    state = _Check(kernel, target, locations)
    state.region(kernel.body, 0)
    if state.findings:
        return state.findings  # the rules below rely on well-formed ops
    if target is not None:
        state.target_limits()
    if "copy.async" in state.names:
        _copies(state)
    _barriers(state)
    _Samples(state).run()
    return state.findings


def describe(op: Op) -> str:
    """An op in one line, for messages."""
    results = ", ".join(map(repr, op.results))
    operands = ", ".join(repr(a.const) if a.const is not None else repr(a) for a in op.args)
    return f"`{results + ' = ' if results else ''}{op.name} {operands}`".replace(" `", "`")


# ------------------------------------------------------------------------------------------- rows, scopes, uniformity


@dataclass(frozen=True)
class _Signature:
    """The operands of a row, parsed: kind per place, `rest` for a variadic tail, places that must be uniform."""

    kinds: tuple[str, ...]
    rest: str | None
    uniform: tuple[int, ...]


def _parse(args: str) -> _Signature:
    kinds: list[str] = []
    uniform: list[int] = []
    rest = None
    for i, arg in enumerate(args.split()):
        kind = arg.rpartition(":")[2]
        if arg.startswith("u:"):
            uniform.append(i)
        if arg.startswith("*"):
            rest = kind
        else:
            kinds.append(kind)
    return _Signature(tuple(kinds), rest, tuple(uniform))


_SIGNATURES = {name: _parse(row.args) for name, row in ROWS.items()}
_REQUIRED = {name: tuple(a for a in row.attrs if a not in _OPTIONAL) for name, row in ROWS.items()}

_SOUND: set[tuple[Any, ...]] = set()
"""(op, number of operands, types of operands and results) that `operands` and `typed` have found nothing wrong with:
they look at nothing else, but for uniformity, attributes and the rules of `_SPECIAL`."""


@dataclass
class _Check:
    kernel: Kernel
    target: Target | None
    locations: bool
    findings: list[Finding] = field(default_factory=list)
    scope: set[Value] = field(default_factory=set)
    defined: set[Value] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    """Of all ops seen."""

    def find(self, fact: str, op: Op, message: str) -> None:
        self.findings.append(Finding(fact, f"{describe(op)}: {message}", op.loc))

    def define(self, v: Value, op: Op, mine: list[Value]) -> None:
        if v in self.defined:
            self.find("scope", op, f"{v} is defined twice")
        self.defined.add(v)
        self.scope.add(v)
        mine.append(v)

    def region(self, region: Region, depth: int) -> None:
        mine: list[Value] = []
        parent = region.parent
        if region.depth != depth:
            self.findings.append(Finding("scope", f"a region at depth {depth} says it is at {region.depth}"))
        for a in region.args:
            assert parent is not None
            if a.op is not None or a.region is not region:
                self.find("scope", parent, f"{a} is not marked as an argument of its region")
            self.define(a, parent, mine)
        scope, defined = self.scope, self.defined
        last = len(region.ops) - 1
        for i, op in enumerate(region.ops):
            name, args, results = op.name, op.args, op.results
            row = ROWS.get(name)
            if row is None:
                self.find("types", op, "no such op")
                continue
            self.names.add(name)
            if not scope.issuperset(args):
                for a in args:
                    if a not in scope:
                        self.find("scope", op, f"{a} is used where it is not defined")
            if (name == "yield") != (i == last and parent is not None):
                self.find("scope", op, "a region ends with its only yield")
            if self.locations and op.loc is None and name != "const":
                self.find("location", op, "no source location")
            types = (name, len(args), *[a.type for a in args], *[r.type for r in results])
            if op.regions or types not in _SOUND or not self.sound(op):
                before = len(self.findings)
                self.operands(op)
                if len(self.findings) == before:
                    if op.regions:
                        for body in op.regions:
                            if body.parent is not op:
                                self.find("scope", op, "a region of the op has another parent")
                            self.region(body, depth + 1)
                        self.carried(op)
                    else:
                        self.typed(op)
                        self.uniform(op)
                        if len(self.findings) == before:
                            _SOUND.add(types)
            for r in results:
                if r.op is not op:
                    self.find("scope", op, f"{r} says that another op defines it")
                if r in defined:
                    self.find("scope", op, f"{r} is defined twice")
                defined.add(r)
                mine.append(r)
            scope.update(results)
        if parent is not None and (not region.ops or region.ops[-1].name != "yield"):
            self.find("scope", parent, "a region has no yield")
        scope.difference_update(mine)

    def sound(self, op: Op) -> bool:
        """What `operands`, `typed` and `uniform` find beside types: whether there is nothing of it."""
        name, args = op.name, op.args
        for i in _SIGNATURES[name].uniform:
            if not args[i].uniform:
                return False
        attrs = op.attrs
        for key in _REQUIRED[name]:
            if key not in attrs:
                return False
        special = _SPECIAL.get(name)
        if special is not None and special(op):
            return False
        mark = ROWS[name].uniform
        if mark != "always":
            for r in op.results:
                if r.uniform:
                    if mark == "never":
                        return False
                    for a in args:
                        if not a.uniform:
                            return False
        return True

    def operands(self, op: Op) -> None:
        """Number, kinds and uniformity of the operands; the attributes of the row."""
        signature = _SIGNATURES[op.name]
        kinds, args = signature.kinds, op.args
        if len(args) != len(kinds) and (signature.rest is None or len(args) < len(kinds)):
            self.find("types", op, f"takes {len(kinds)} operands ({ROWS[op.name].args}), not {len(args)}")
            return
        for i, kind in enumerate(kinds):
            t = args[i].type
            if kind == "i":
                good = (t is I32 or t is I64) and t is args[0].type
            elif kind == "any":
                good = True
            elif kind == "f":
                good = (t.kind == "f32" or t.kind == "f64") and t is args[0].type
            elif kind == "p":
                good = t is PRED
            elif kind == "b32":
                good = t.kind == "b32"
            else:
                good = t.kind == kind and t.n == 1
            if not good:
                self.find("types", op, f"operand {i} is {t}, not {kind} ({ROWS[op.name].args})")
        for i in signature.uniform:
            if not args[i].uniform:
                self.find("uniform", op, f"operand {i} must be uniform over the wave, and {args[i]} is per lane")
        for a in ROWS[op.name].attrs:
            if a not in op.attrs and a not in _OPTIONAL:
                self.find("types", op, f"attribute {a} is missing")

    def typed(self, op: Op) -> None:
        """The result's type, and rules that rows only say in words."""
        row, args, results = ROWS[op.name], op.args, op.results
        rule = row.result
        if (rule == "none") != (not results) or len(results) > 1:
            self.find("types", op, f"has {len(results)} results")
            return
        want: Type | None = None
        if rule in ("same", "second", "third"):
            want = args[("same", "second", "third").index(rule)].type
        elif rule not in ("none", "attr", "carries"):
            want = _FIXED[rule] if rule in _FIXED else Type(rule)
        if want is not None and results[0].type is not want:
            self.find("types", op, f"the result is {results[0].type}, not {want}")
            return
        special = _SPECIAL.get(op.name)
        if special is not None:
            problem = special(op)
            if problem:
                self.find("types", op, problem)

    def uniform(self, op: Op) -> None:
        mark = ROWS[op.name].uniform
        for r in op.results:
            if r.uniform and mark != "always":
                if mark == "never":
                    self.find("uniform", op, f"{r} is marked uniform, and {op.name} never is")
                for a in op.args:
                    if not a.uniform and mark == "args":
                        self.find("uniform", op, f"{r} is marked uniform, but depends on {a}, which is per lane")
                        break

    def carried(self, op: Op) -> None:
        """Types and uniformity around the regions of `for` and `if`."""
        yields = [body.ops[-1].args if body.ops and body.ops[-1].name == "yield" else () for body in op.regions]
        lists = [tuple(v.type for v in y) for y in yields] + [tuple(v.type for v in op.results)]
        if op.name == "for":
            body = op.regions[0]
            if not body.args or body.args[0].type is not I32 or not body.args[0].uniform:
                self.find("types", op, "the induction variable must be a uniform i32")
                return
            lists += [tuple(v.type for v in body.args[1:]), tuple(v.type for v in op.args[3:])]
            first = body.args[1] if op.attrs.get("again") and len(body.args) > 1 else None
            if op.attrs.get("again") and (first is None or first.type is not PRED or not first.uniform):
                self.find("types", op, "a loop that goes on while `again` must carry a uniform predicate first")
            if op.args[2].const is not None and op.args[2].const <= 0:
                self.find("types", op, f"the step is {op.args[2].const}, and must be positive")
        if any(found != lists[0] for found in lists):
            text = "; ".join("(" + ", ".join(map(str, found)) + ")" for found in dict.fromkeys(lists))
            self.find("types", op, f"carried types differ: {text}")
            return
        for i, r in enumerate(op.results):
            sources = [y[i] for y in yields]
            marked = [r]
            if op.name == "for":
                sources.append(op.args[3 + i])
                marked.append(op.regions[0].args[1 + i])
            if any(v.uniform for v in marked) and not all(s.uniform for s in sources):
                self.find("uniform", op, f"result {i} is marked uniform, but not everything it takes its value from is")

    # ---------------------------------------------------------------------------------------------------- the target

    def target_limits(self) -> None:
        t, k = self.target, self.kernel
        assert t is not None
        if k.shared_bytes > t.shared_bytes:
            message = f"{k.shared_bytes} B of shared memory, and {t.name} has {t.shared_bytes}"
            self.findings.append(Finding("target", message))
        if k.wave_size != t.wave_size or k.block > t.max_threads:
            message = f"{k.waves} waves of {k.wave_size}; {t.name} has waves of {t.wave_size}, {t.max_threads} threads"
            self.findings.append(Finding("target", message))
        atoms = {a.name for a in t.mma_atoms}
        loads = {a.name for a in t.load_atoms} | {"vector"}
        if not self.names & _LIMITED:
            return
        for op in k.body.walk():
            if op.name not in _LIMITED:
                continue
            attrs = op.attrs
            if op.name in ("load.global", "store.global", "copy.async", "atomic.global"):
                self.immediate(op, "imm", t.global_imm)
                if op.name == "copy.async":
                    self.immediate(op, "simm", t.shared_imm)
                    if t.copy_linear != bool(attrs.get("linear")):
                        how = "one address, lane by lane" if t.copy_linear else "an address of each lane"
                        self.find("target", op, f"{t.name} copies to {how}")
                    elif attrs.get("linear") and not op.args[5].uniform:
                        self.find("uniform", op, "the shared address of a linear copy is the wave's")
                    saddr = op.args[5]  # where nothing is known of its sign, what the builder was told stands
                    known = attrs.get("linear") and saddr.lo is not None and saddr.lo >= 0
                    if known and attrs["imm"] > linear_reach(saddr, attrs["simm"]):
                        self.find("target", op, f"imm={attrs['imm']} leaves the shared address a negative base")
                    if attrs["bytes"] not in t.copy_async:
                        self.find("target", op, f"{attrs['bytes']} B; {t.name} copies {t.copy_async or 'nothing'}")
            elif op.name in ("load.shared", "store.shared"):
                self.immediate(op, "imm", t.shared_imm)
                if op.name == "load.shared" and attrs["atom"] not in loads:
                    self.find("target", op, f"{t.name} has no load atom {attrs['atom']}; it has {sorted(loads)}")
            elif op.name in ("mma", "mma.scaled", "matrix.start") and attrs["atom"].name not in atoms:
                self.find("target", op, f"{t.name} has no matrix instruction {attrs['atom'].name}")

    def immediate(self, op: Op, which: str, limits: tuple[int, int]) -> None:
        if not limits[0] <= op.attrs[which] <= limits[1]:
            self.find("target", op, f"{which}={op.attrs[which]} is outside {limits[0]}..{limits[1]}")


# ----------------------------------------------------------------------------------------- rules of rows told in words


def _holds(t: Type, bytes: int) -> bool:
    return t.words * 4 == bytes or (bytes < 4 and t.words == 1)


def _load(op: Op) -> str:
    t, bytes = op.results[0].type, op.attrs["bytes"]
    if bytes not in (1, 2, 4, 8, 12, 16) or not _holds(t, bytes):
        return f"loads {bytes} B into {t}"
    return ""


def _load_shared(op: Op) -> str:
    t, bytes = op.results[0].type, op.attrs["bytes"]
    return "" if _holds(t, bytes) else f"loads {bytes} B into {t}"


def _store(op: Op) -> str:
    t, bytes = op.args[-1].type, op.attrs["bytes"]
    if bytes not in (1, 2, 4, 8, 12, 16) or not _holds(t, bytes):
        return f"stores {bytes} B of {t}"
    if op.attrs.get("high") and bytes != 2:
        return f"stores the upper half of a word, and {bytes} B of it"
    return ""


def _atomic(op: Op) -> str:
    bytes, how, values = op.attrs["bytes"], op.attrs["how"], op.args[2 if op.name == "atomic.far" else 5 :]
    if how not in ATOMIC or len(values) != (2 if how == "cas" else 1):
        return f"{how} of {len(values)} values"
    if bytes not in (4, 8) or any(v.type is not op.results[0].type or v.type.words * 4 != bytes for v in values):
        return f"changes {bytes} B of {op.results[0].type} by {', '.join(str(v.type) for v in values)}"
    return ""


def _mma(op: Op) -> str:
    atom: MmaAtom = op.attrs["atom"]
    words = tuple(a.type.words for a in op.args)
    want = (atom.a_words, atom.b_words, atom.d_words) + (1, 1) * bool(atom.scale_block)
    return "" if words == want else f"{atom.name} takes fragments of {want} words, not {words}"


def _mma_async(op: Op) -> str:
    atom: MmaAtom = op.attrs["atom"]
    a, b, c, _ = op.args
    if not atom.asynchronous or b.type is not I64 or not (a.type is I64 or a.type.words == atom.a_words):
        return f"{atom.name} takes a tile or {atom.a_words} words, and a tile, not {a.type} and {b.type}"
    if c.type.words != atom.d_words:
        return f"{atom.name} adds to {atom.d_words} words, not {c.type}"
    if set(op.attrs["majors"]) - {"k"} and not atom.transposes:
        return f"{atom.name} takes operands with K contiguous only"
    return ""


def _vec(op: Op) -> str:
    t = op.results[0].type
    if any(a.type.kind != t.kind for a in op.args) or sum(a.type.n for a in op.args) != t.n:
        return f"makes {t} of {', '.join(str(a.type) for a in op.args)}"
    return ""


def _slice(op: Op) -> str:
    t, v, start, count = op.results[0].type, op.args[0].type, op.attrs["start"], op.attrs["count"]
    if start < 0 or count < 1 or start + count > v.n or t.kind != v.kind or t.n != count:
        return f"takes [{start}, {start + count}) of {v} as {t}"
    return ""


def _bitcast(op: Op) -> str:
    t, v = op.results[0].type, op.args[0].type
    return "" if t.words == v.words and t.words else f"from {v} to {t}: widths differ"


def _pack(op: Op) -> str:
    want = "f32" if op.attrs["dtype"].is_float else "i32"
    if len(op.args) * op.attrs["dtype"].slot != 32 or any(str(a.type) != want for a in op.args):
        return f"a word of {op.attrs['dtype']} takes {32 // op.attrs['dtype'].slot} {want}"
    return ""


def _unpack(op: Op) -> str:
    dtype, t = op.attrs["dtype"], str(op.results[0].type)
    if not 0 <= op.attrs["index"] < 32 // dtype.slot or t != ("f32" if dtype.is_float else "i32"):
        return f"element {op.attrs['index']} of {dtype} as {t}"
    return ""


def _cmp(op: Op) -> str:
    legal = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
    return "" if op.attrs["how"] in legal else f"how={op.attrs['how']}: legal are {' '.join(legal)}"


def _fcmp(op: Op) -> str:
    legal = ("eq", "ne", "lt", "le", "gt", "ge")
    return "" if op.attrs["how"] in legal else f"how={op.attrs['how']}: legal are {' '.join(legal)}"


def _bfe(op: Op) -> str:
    start, width = op.attrs["start"], op.attrs["width"]
    return "" if 0 <= start and 0 < width and start + width <= 32 else f"bits [{start}, {start + width}) of 32"


def _shift(op: Op) -> str:
    count = op.args[1].const
    bits = 64 if op.args[0].type is I64 else 32
    return "" if count is None or 0 <= count < bits else f"shifts {bits} bits by {count}"


def _select(op: Op) -> str:
    return "" if op.args[1].type is op.args[2].type else f"chooses between {op.args[1].type} and {op.args[2].type}"


_LIMITED = frozenset(
    "load.global store.global atomic.global copy.async load.shared store.shared mma mma.scaled matrix.start".split()
)
"""Ops that `target_limits` has rules for."""

_VARYING = frozenset(("wave", "tid", "load.global", "load.far", "load.shared", "atomic.global", "atomic.far"))
"""Ops whose results may differ between waves whatever their operands."""

_SPECIAL = {
    "atomic.global": _atomic, "atomic.far": _atomic,
    "load.far": _load, "store.far": _store,
    "load.global": _load, "load.shared": _load_shared, "store.global": _store, "store.shared": _store, "mma": _mma,
    "mma.scaled": _mma,
    "matrix.start": _mma_async,
    "vec": _vec, "slice": _slice, "bitcast": _bitcast, "pack": _pack, "unpack": _unpack, "cmp": _cmp, "fcmp": _fcmp,
    "bfe": _bfe, "shl": _shift, "lshr": _shift, "ashr": _shift, "select": _select,
}  # fmt: skip

# ------------------------------------------------------------------------------------- asynchronous copies and barriers


def _copies(state: _Check) -> None:
    """Walk the first trip of every loop: per buffer, how far its oldest copies have come.

    Ring slots are not told apart, so one finished group of a buffer is taken to allow reading it; copies that do not
    name their buffer are not followed.
    """
    open_: set[str] = set()
    groups: list[frozenset[str]] = []
    progress: dict[str, str] = {}
    waves = state.kernel.waves

    def walk(region: Region) -> None:
        for op in region.ops:
            name = op.name
            if name == "copy.async":
                buffer = op.attrs["buffer"]
                if buffer:
                    open_.add(buffer)
                    progress.setdefault(buffer, "not committed")
            elif name == "copy.commit":
                groups.append(frozenset(open_))
                for b in sorted(open_):
                    if progress[b] == "not committed":
                        progress[b] = "not waited for"
                open_.clear()
            elif name == "copy.wait":
                while len(groups) > op.attrs["pending"]:
                    for b in sorted(groups.pop(0)):
                        if progress[b] == "not waited for":
                            progress[b] = "waited for, but no barrier has passed" if waves > 1 else ""
            elif name == "barrier":
                for b, p in progress.items():
                    if p.startswith("waited"):
                        progress[b] = ""
            elif name == "load.shared":
                p = progress.get(op.attrs["buffer"], "")
                if p:
                    state.find("copies", op, f"reads buffer {op.attrs['buffer']!r}, whose copies are {p}")
                    progress[op.attrs["buffer"]] = ""
            for body in op.regions:
                walk(body)

    walk(state.kernel.body)


def _only_read(kernel: Kernel, buffer: Value) -> bool:
    """Whether a buffer is an array argument, or lies in one, that the kernel does not write."""
    work, pointers = [buffer], set()
    while work:
        op = work.pop().op
        if op is None:
            return False
        if op.name == "param" and kernel.params[op.attrs["index"]].kind == "pointer":
            pointers.add(op.attrs["index"])
        work += op.args
    return len(pointers) == 1 and all(kernel.params[i].access == "read" for i in pointers)


def _barriers(state: _Check) -> None:
    """No barrier under a condition or loop bound that may differ between the waves of a workgroup."""
    if state.kernel.waves == 1:
        return
    varies: set[Value] = set()

    def walk(region: Region, culprit: Value | None) -> None:
        for op in region.ops:
            name = op.name
            if name in ("barrier", "fence") and culprit is not None and not {"threads", "half"} & set(op.attrs):
                state.find("barriers", op, f"not all waves may come here: {culprit} differs between waves")
            if name == "any_lane" and op.attrs.get("workgroup"):
                continue
            constant = name == "load.global" and _only_read(state.kernel, op.args[0])
            # What nobody writes is the same for every wave that reads it in one place, as is its first lane's.
            if (name in _VARYING and not constant) or not varies.isdisjoint(op.args):
                varies.update(op.results)
            if not op.regions:
                continue
            inner = culprit
            for a in op.args[: 3 if name == "for" else 1]:
                if inner is None and a in varies:
                    inner = a
            for body in op.regions:
                for arg, init in zip(body.args[1:], op.args[3:]):
                    if init in varies:
                        varies.add(arg)
                if inner is not None or (name == "for" and op.args[0] in varies):
                    varies.update(body.args[:1])
                walk(body, inner)
                for arg, out in zip(body.args[1:], body.ops[-1].args):
                    if out in varies and arg not in varies:
                        varies.add(arg)
                        varies.update(op.results)
                if inner is not None:
                    varies.update(op.results)

    walk(state.kernel.body, None)


# ------------------------------------------------------------------------------------------------- ranges and zero bits


class _Samples:
    """Computes every integer and predicate of the kernel for random situations, then compares with the facts."""

    def __init__(self, state: _Check):
        self.state = state
        self.kernel = state.kernel
        self.rng = Random(0)
        self.values: dict[Value, Any] = {}
        self.seen: list[tuple[Value, Any, Op]] = []

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self.region(self.kernel.body, None)
        self.compare()

    def compare(self) -> None:
        """All samples against all facts in three array operations."""
        if not self.seen:
            return
        numbers = np.empty((len(self.seen), SAMPLES), np.int64)
        for row, (_, sample, _) in zip(numbers, self.seen):
            row[:] = sample
        lows = np.array([v.lo for v, _, _ in self.seen], np.int64)[:, None]
        highs = np.array([v.hi for v, _, _ in self.seen], np.int64)[:, None]
        zeros = np.array([v.zeros for v, _, _ in self.seen], np.uint64).view(np.int64)[:, None]
        bad = (numbers < lows) | (numbers > highs) | ((numbers & zeros) != 0)
        for i in map(int, np.flatnonzero(bad.any(axis=1))):
            v, sample, op = self.seen[i]
            number = int(numbers[i][bad[i]][0])
            self.state.find(
                "range", op, f"{v} can be {number}, but is said to be in {v.lo}..{v.hi}, zeros {v.zeros:#x}"
            )

    def note(self, v: Value, sample: Any, op: Op, on: Any) -> None:
        """Remember a sample; where the op is not executed any number will do."""
        self.values[v] = sample
        if v.lo is not None:
            if on is not None:
                if not on.any():
                    return
                sample = np.where(on, sample, sample[on.argmax()])
            self.seen.append((v, sample, op))

    def noise(self) -> Any:
        """Random 64-bit words. (`numpy.random` would take 7 ms to import.)"""
        return np.frombuffer(self.rng.randbytes(8 * SAMPLES), np.uint64)

    def bools(self) -> Any:
        return (self.noise() & np.uint64(1)).astype(bool)

    def random(self, lo: int, hi: int, t: Type = I32, multiple: int = 1) -> Any:
        """Samples in lo..hi: the ends first, half of the rest small."""
        first = -(-lo // multiple)
        last = max(hi // multiple, first)
        noise = self.noise()
        span = last - first + 1
        out = noise.view(np.int64).copy() if span >> 63 else (noise % np.uint64(span)).view(np.int64) + first
        near = min(last, max(first, 0) + 300)
        start = max(first, near - 600)
        half = SAMPLES // 2
        out[2:half] = (noise[half : 2 * half - 2] >> np.uint64(7)) % np.uint64(near - start + 1)
        out[2:half] += start
        out[0], out[1] = first, last
        return (out * multiple).astype(NUMPY[t.kind])

    def leaf(self, op: Op) -> Any:
        """Samples of an op whose result is not computed from integers, or None."""
        name, k, t = op.name, self.kernel, op.results[0].type
        if name == "const":
            return _constant(op.attrs["value"], t.kind)
        if name in ("lane", "wave", "tid"):
            if not hasattr(self, "lanes"):
                self.lanes = self.random(0, k.wave_size - 1)
                self.waves = self.random(0, k.waves - 1)
            return {"lane": self.lanes, "wave": self.waves, "tid": self.waves * np.int32(k.wave_size) + self.lanes}[
                name
            ]
        if name == "wgid":
            count = k.grid[op.attrs["axis"]]
            return self.random(0, count - 1 if isinstance(count, int) and count > 0 else (1 << 31) - 2)
        if name == "wgcount":
            count = k.grid[op.attrs["axis"]]
            return self.random(1, count if isinstance(count, int) and count > 0 else (1 << 31) - 1)
        if name == "cluster.rank":
            return self.random(0, k.cluster - 1)
        bits = 64 if t is I64 else 32
        lo, hi = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        if name == "param":
            at = op.attrs["index"]
            if at < len(k.params) and k.params[at].source.startswith("extent"):
                lo = 0
            return self.random(op.attrs.get("lo", lo), op.attrs.get("hi", hi), t, op.attrs.get("multiple", 1))
        if name.startswith("load.") and op.attrs["bytes"] < 4:
            return self.random(0, (1 << 8 * op.attrs["bytes"]) - 1, t)
        if name == "unpack" and op.attrs["dtype"].bits < 32:
            d = op.attrs["dtype"]
            return self.random(-(1 << (d.bits - 1)), (1 << (d.bits - 1)) - 1) if d.kind == "int" else (
                self.random(0, (1 << d.bits) - 1)
            )  # fmt: skip
        return self.random(lo, hi, t)

    def region(self, region: Region, on: Any) -> tuple[Any, ...]:
        values = self.values
        for op in region.ops:
            name = op.name
            if name == "yield":
                return tuple(values.get(a) for a in op.args)
            if name == "for":
                self.loop(op, on)
                continue
            if name == "if":
                self.branch(op, on)
                continue
            if not op.results:
                continue
            r = op.results[0]
            t = r.type
            if t is not I32 and t is not I64 and t is not PRED:
                continue
            sample = None
            rule = CHEAP.get(name)
            if rule is not None:
                args: list[Any] = [op]
                for a in op.args:
                    known = values.get(a)
                    if known is None:
                        break
                    args.append(known)
                else:
                    sample = rule(*args)
            elif name in ("readfirst", "shuffle_xor", "shuffle_index"):
                # Another lane's value: any of the operand's samples.
                sample = values.get(op.args[0])
            if sample is None:
                sample = self.bools() if t is PRED else self.leaf(op)
            values[r] = sample
            if r.lo is not None and name != "const":
                if on is not None:
                    self.note(r, sample, op, on)
                else:
                    self.seen.append((r, sample, op))
        return ()

    def loop(self, op: Op, on: Any) -> None:
        """One random trip of every sample's loop; samples without a trip are off inside."""
        body = op.regions[0]
        lo, hi, step = (self.values[a].astype(np.int64) for a in op.args[:3])
        trips = np.maximum(-((lo - hi) // np.maximum(step, 1)), 0)
        trip = (self.noise() % np.maximum(trips, 1).astype(np.uint64)).astype(np.int64)
        trip[0] = 0
        trip[1] = max(trips[1] - 1, 0)
        inside = trips > 0
        if on is not None:
            inside &= on
        mask = None if inside.all() else inside
        self.note(body.args[0], (lo + trip * step).astype(np.int32), op, mask)
        steps: dict[Value, Any] = {}
        for a, init, out in zip(body.args[1:], op.args[3:], body.ops[-1].args):
            if a.lo is None:
                if a.type is PRED:
                    self.values[a] = self.bools()
                continue
            d = _increment(a, out)
            start = self.values.get(init)
            if d is not None and start is not None and d[0] in self.values:
                by = self.values[d[0]] * start.dtype.type(d[1])
                steps[a] = (start, by)
                with np.errstate(all="ignore"):
                    self.note(a, start + (trip * by).astype(start.dtype), op, mask)
            else:
                sample = self.random(a.lo, a.hi if a.hi is not None else a.lo, a.type) & ~np.asarray(
                    a.zeros - (1 << 64) if a.zeros >> 63 else a.zeros
                ).astype(NUMPY[a.type.kind])
                self.values[a] = sample
                if start is not None:
                    self.seen.append((a, start if mask is None else np.where(mask, start, sample), op))
        outs = self.region(body, mask)
        again = inside & (trip + 1 < trips)
        for i, (a, r) in enumerate(zip(body.args[1:], op.results)):
            if r.type not in (I32, I64, PRED):
                continue
            start, out = self.values.get(op.args[3 + i]), outs[i]
            if a in steps:
                start, by = steps[a]
                sample = start + (trips * by).astype(start.dtype)
            elif start is None or out is None:
                sample = self.random(r.lo, r.hi, r.type) if r.lo is not None and r.hi is not None else out
            else:
                if a.lo is not None and again.any():
                    self.seen.append((a, np.where(again, out, out[again.argmax()]), op))
                sample = np.where(inside, out, start)
            if sample is not None:
                self.note(r, sample, op, on)

    def branch(self, op: Op, on: Any) -> None:
        cond = self.values.get(op.args[0])
        if cond is None:
            cond = self.bools()
        base = np.ones(SAMPLES, bool) if on is None else on
        first, second = self.region(op.regions[0], base & cond), self.region(op.regions[1], base & ~cond)
        for r, a, b in zip(op.results, first, second):
            if a is not None and b is not None:
                self.note(r, np.where(cond, a, b), op, on)


@functools.lru_cache(4096)
def _constant(value: int | bool, kind: str) -> Any:
    """Samples of a constant; not to be written to."""
    return np.full(SAMPLES, value, NUMPY[kind])


def _increment(a: Value, out: Value) -> tuple[Value, int] | None:
    """(d, 1) if out is a + d, (d, -1) if it is a - d, with d defined outside the loop of a; None otherwise."""
    op = out.op
    if op is None or op.name not in ("add", "sub") or a not in op.args:
        return None
    if op.name == "sub":
        return (op.args[1], -1) if op.args[0] is a and op.args[1] is not a else None
    d = op.args[1] if op.args[0] is a else op.args[0]
    return (d, 1) if d is not a else None
