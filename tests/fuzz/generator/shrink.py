"""Makes a failing kernel short: leaves out and simplifies what can go while the same thing is still wrong."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from generator.program import VARIABLE, Block, Do, Let, Program, Type, statements


def shrunk(program: Program, fails: Callable[[Program], bool], seconds: float = 60.0) -> Program:
    """The shortest program found in that time for which `fails` holds."""
    until = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for candidate in _simpler(program):
            if time.monotonic() > until:
                return program
            if fails(candidate):
                program, changed = candidate, True
                break
    return program


def _simpler(program: Program) -> Iterator[Program]:
    """Candidates, the largest steps first."""
    count = len(statements(program.body))
    for i in reversed(range(count)):
        for way in range(7):
            made = copy.deepcopy(program)
            if _cut(made, i, way):
                drop_unused(made)
                yield made
    for i in range(len(program.arrays)):
        for name, value in (("space", None), ("spread", "plain"), ("special", False)):
            if getattr(program.arrays[i], name) != value:
                made = copy.deepcopy(program)
                setattr(made.arrays[i], name, value)
                yield made
    for options in ("schedule", "hopper"):
        for key in getattr(program, options):
            made = copy.deepcopy(program)
            del getattr(made, options)[key]
            yield made
    for name, value in (("way", ""), ("globe", None), ("by", "")):
        if getattr(program, name) != value:
            made = copy.deepcopy(program)
            setattr(made, name, value)
            yield made
    for i, s in enumerate(statements(program.body)):
        chain = re.search(r"\b(mixed|folded)\((.*), (\d+)\)", s.text) if isinstance(s, Let) else None
        if chain is not None and int(chain[3]) > 1:
            made = copy.deepcopy(program)
            statements(made.body)[i].text = s.text[: chain.start(3)] + str(int(chain[3]) // 2) + s.text[chain.end(3) :]
            yield made
    for d in program.dynamic:
        made = copy.deepcopy(program)
        made.dynamic = tuple(x for x in program.dynamic if x != d)
        yield made
    for i, text in enumerate(program.cut):
        if "WaveConstraint" in text:
            made = copy.deepcopy(program)
            del made.cut[i]
            yield made
    for d, n in program.sizes.items():
        for smaller in (1, n // 2, n - 1):
            if 0 < smaller < n and not (d == "N" and program.subs) and d != "V":
                made = copy.deepcopy(program)
                made.sizes[d] = smaller
                yield made


def _cut(program: Program, number: int, way: int) -> bool:
    """Applies one simplification to the statement of that number; False where it does not apply."""
    target = statements(program.body)[number]
    region = next(r for r in _regions(program.body) if any(s is target for s in r))
    at = next(i for i, s in enumerate(region) if s is target)
    if isinstance(target, Do) and way == 0:
        del region[at]
        return True
    if isinstance(target, Do):
        return _write_operand(program, target, way - 1)
    if isinstance(target, Let):
        if any(
            b.kind == "while" and target.name == b.yields[0][-1]
            for b in statements(program.body)
            if isinstance(b, Block)
        ):
            return False  # it counts the trips: without it the loop need not end
        fill = target.type.fill(1)
        if way == 0:  # an operand in its place
            alike = [v for v in VARIABLE.findall(target.text) if (t := _types(program).get(v)) and t.alike(target.type)]
            if not alike:
                return False
            del region[at]
            _rename(program.body, target.name, alike[0])
            return True
        if way == 1 and target.text != fill:
            target.text = fill
            return True
        if way == 2 and "small(" in target.text and target.text.startswith("small("):
            target.text = target.text[len("small(") : -1]
            return True
        return False
    if way < 2 and target.kind == "cond":  # one of the branches
        body, yields = target.bodies[way], target.yields[way]
        region[at : at + 1] = body
        for (name, _), value in zip(target.names, yields):
            _rename(program.body, name, value)
        return True
    if way == 0:
        region[at : at + 1] = [Let(name, kind, kind.fill(1)) for name, kind in target.names]
        return True
    if way == 1 and target.kind == "call":  # what the function does, where it is called
        first = [Let(name, kind, start) for name, kind, start in target.carried]
        region[at : at + 1] = [*first, *target.bodies[0]]
        for (name, _), value in zip(target.names, target.yields[0]):
            _rename(program.body, name, value)
        return True
    if way == 1 and target.kind == "iterate" and "," in target.head:
        target.head = target.head.split(",")[0]
        return True
    if way == 6 and target.kind in ("iterate", "while"):  # one trip
        first = [Let(name, kind, start) for name, kind, start in target.carried]
        region[at : at + 1] = [*first, *target.bodies[0]]
        for (name, _), value in zip(target.names, target.yields[0]):
            _rename(program.body, name, value)
        return True
    if way >= 2 and way - 2 < len(target.names) and len(target.names) > 1 and target.kind == "iterate":
        i = way - 2  # a carried value
        name, kind, _ = target.carried[i]
        target.bodies[0].insert(0, Let(name, kind, kind.fill(1)))
        region.insert(at, Let(target.names[i][0], kind, kind.fill(1)))
        del target.carried[i], target.names[i], target.yields[0][i]
        return True
    return False


def _write_operand(program: Program, write: Do, which: int) -> bool:
    """Writes what the written value was computed from, in its own dtype and dimensions; the same of assertions."""
    asserted = re.match(r"wd\.device_assert\(small\((v\d+)\)", write.text)
    if asserted:
        value = asserted[1]
        made = next((s.text for s in statements(program.body) if isinstance(s, Let) and s.name == value), "")
        types = _types(program)
        operands = [v for v in VARIABLE.findall(made) if v in types and types[v].dtype != "i1" and types[v].dims]
        if which >= len(operands):
            return False
        write.text = re.sub(rf"\b{value}\b", operands[which], write.text)
        return True
    found = re.match(r"wd\.write\(.*?(v\d+).*?, (a\d+|bins\d+)", write.text)
    if not found:
        return False
    value, name = found.groups()
    types = _types(program)
    made = next((s.text for s in statements(program.body) if isinstance(s, Let) and s.name == value), "")
    plain = write.text == f"wd.write({value}, {name})"
    operands = [v for v in (*(() if plain else (value,)), *VARIABLE.findall(made)) if v in types]
    if which >= len(operands) or types[operands[which]].dtype == "i1":
        return False
    write.text = f"wd.write({operands[which]}, {name})"
    for array in program.arrays:
        if array.name == name:
            array.dims, array.dtype, array.spread = types[operands[which]].dims, types[operands[which]].dtype, "plain"
    return True


def _types(program: Program) -> dict[str, Type]:
    found: dict[str, Type] = {}
    for s in statements(program.body):
        if isinstance(s, Let):
            found[s.name] = s.type
        elif isinstance(s, Block):
            found.update(s.names)
            found.update({n: t for n, t, _ in s.carried})
    return found


def _regions(body: list[Any]) -> Iterator[list[Any]]:
    yield body
    for s in body:
        if isinstance(s, Block):
            for inner in s.bodies:
                yield from _regions(inner)


def _rename(body: list[Any], old: str, new: str) -> None:
    pattern = re.compile(rf"\b{old}\b")
    for s in statements(body):
        if isinstance(s, (Let, Do)):
            s.text = pattern.sub(new, s.text)
        else:
            s.head = pattern.sub(new, s.head)
            s.carried = [(n, t, pattern.sub(new, v)) for n, t, v in s.carried]
            s.yields = [[pattern.sub(new, v) for v in ys] for ys in s.yields]


def drop_unused(program: Program) -> None:
    """Removes what reaches neither memory nor the number of trips of a loop, and arrays that nothing touches."""
    live = _live(program)
    for region in list(_regions(program.body)):
        for s in region:
            if isinstance(s, Block) and s.kind not in ("while", "call"):
                kept = [i for i, (name, _) in enumerate(s.names) if name in live]
                s.names = [s.names[i] for i in kept]
                s.carried = [s.carried[i] for i in kept] if s.carried else []
                s.yields = [[ys[i] for i in kept] for ys in s.yields]
        region[:] = [s for s in region if _happens(s) or live.intersection(_defines(s))]
    text = "\n".join(line for s in program.body for line in s.lines())
    program.arrays = [a for a in program.arrays if re.search(rf"\b{a.name}\b", text)]
    program.leave_out()


def _live(program: Program) -> set[str]:
    """Variables that matter. A loop's result, what it carries for it and what it yields for it do together."""
    live: set[str] = set()
    while True:
        before = len(live)
        for s in statements(program.body):
            if not isinstance(s, Block):
                if _happens(s) or live.intersection(_defines(s)):
                    live.update(VARIABLE.findall(s.text))
                continue
            carried = s.carried or [("", None, "")] * len(s.names)
            mine = {*_defines(s), *(name for name, _, _ in s.carried)}
            if not _happens(s) and not live & mine:
                continue
            live.update(VARIABLE.findall(s.head))
            for i, (name, _) in enumerate(s.names):
                parameter, _, start = carried[i]
                if s.kind in ("while", "call") or name in live or parameter in live:
                    live.update((name, *(ys[i] for ys in s.yields), *VARIABLE.findall(start)))
        if len(live) == before:
            return live


def _happens(statement: Any) -> bool:
    """Whether a statement does something beside defining values."""
    if isinstance(statement, Block):
        return any(_happens(s) for body in statement.bodies for s in body)
    return isinstance(statement, Do) or "atomic" in statement.text


def _defines(statement: Any) -> set[str]:
    if isinstance(statement, Block):
        return {n for n, _ in statement.names}
    return set() if isinstance(statement, Do) else {statement.name}
