"""What holds of each op by itself: rows, scopes, uniformity, what the target can take.

In: a kernel. Out: findings, and the definitions that the checks of copies and of ranges walk over.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from wavedsl.ir.kernel.kernel_ir import I32, I64, PRED, ROWS, Kernel, Op, Region, Type, Value, linear_reach
from wavedsl.ir.kernel.verify_rows import FIXED, RULES
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.target import Target

_OPTIONAL = frozenset({"high", "unsigned", "label", "message"})


@dataclass(frozen=True)
class Finding:
    """One broken rule: the fact (`types`, `scope`, `uniform`, `range`, …), what is wrong, and where."""

    fact: str
    message: str
    loc: Loc | None = None

    def __str__(self) -> str:
        return f"{self.fact}: {self.message}" + (f" [{self.loc}]" if self.loc is not None else "")


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
they look at nothing else, but for uniformity, attributes and the rules of `RULES`."""


@dataclass
class Check:
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
                self.closely(op, depth, types)
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

    def closely(self, op: Op, depth: int, types: tuple[Any, ...]) -> None:
        """All rules of one op and of its regions, which lie at `depth` + 1. What no rule objects to is noted for ops of
        the same `types`."""
        before = len(self.findings)
        self.operands(op)
        if len(self.findings) > before:
            return
        if op.regions:
            for body in op.regions:
                if body.parent is not op:
                    self.find("scope", op, "a region of the op has another parent")
                self.region(body, depth + 1)
            self.carried(op)
            return
        self.typed(op)
        self.uniform(op)
        if len(self.findings) == before:
            _SOUND.add(types)

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
        special = RULES.get(name)
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
            want = FIXED[rule] if rule in FIXED else Type(rule)
        if want is not None and results[0].type is not want:
            self.find("types", op, f"the result is {results[0].type}, not {want}")
            return
        special = RULES.get(op.name)
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
        for op in [op for op in k.body.walk() if op.name in _LIMITED]:
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
            elif op.name in ("load.shared", "store.shared", "atomic.shared", "load.peer"):
                self.immediate(op, "imm", t.shared_imm)
                if op.name == "load.shared" and attrs["atom"] not in loads:
                    self.find("target", op, f"{t.name} has no load atom {attrs['atom']}; it has {sorted(loads)}")
                if op.name == "atomic.shared" and (attrs["how"], op.args[2].type.kind) not in t.shared_atomics:
                    self.find("target", op, f"{t.name} has no {attrs['how']} of {op.args[2].type} in shared memory")
            elif op.name == "swap_lanes":
                if attrs["lane"] not in t.lane_swaps:
                    self.find("target", op, f"{t.name} exchanges lane bits {t.lane_swaps}, not {attrs['lane']}")
                if op.result.type.n % (2 << attrs["register"]):
                    self.find("type", op, f"{op.result.type.n} registers have no pairs by bit {attrs['register']}")
            elif op.name in ("mma", "mma.scaled", "matrix.start") and attrs["atom"].name not in atoms:
                self.find("target", op, f"{t.name} has no matrix instruction {attrs['atom'].name}")

    def immediate(self, op: Op, which: str, limits: tuple[int, int]) -> None:
        if not limits[0] <= op.attrs[which] <= limits[1]:
            self.find("target", op, f"{which}={op.attrs[which]} is outside {limits[0]}..{limits[1]}")


def describe(op: Op) -> str:
    """An op in one line, for messages."""
    results = ", ".join(map(repr, op.results))
    operands = ", ".join(repr(a.const) if a.const is not None else repr(a) for a in op.args)
    return f"`{results + ' = ' if results else ''}{op.name} {operands}`".replace(" `", "`")


_LIMITED = frozenset(
    "load.global store.global atomic.global copy.async load.shared store.shared atomic.shared load.peer swap_lanes mma"
    " mma.scaled matrix.start".split()
)
"""Ops that `target_limits` has rules for."""

VARYING = frozenset(
    "wave tid load.global load.far load.shared load.peer atomic.global atomic.far".split()
)
"""Ops whose results may differ between waves whatever their operands."""
