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
        for way in range(6):
            made = copy.deepcopy(program)
            if _cut(made, i, way):
                drop_unused(made)
                yield made
    for i in range(len(program.arrays)):
        for name, value in (("space", None), ("spread", "plain")):
            if getattr(program.arrays[i], name) != value:
                made = copy.deepcopy(program)
                setattr(made.arrays[i], name, value)
                yield made
    for options in ("schedule", "hopper"):
        for key in getattr(program, options):
            made = copy.deepcopy(program)
            del getattr(made, options)[key]
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
    if way == 1 and target.kind == "iterate" and "," in target.head:
        target.head = target.head.split(",")[0]
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
    """Writes what the written value was computed from, in its own dtype."""
    found = re.match(r"wd\.write\((v\d+), (a\d+)", write.text)
    if not found:
        return False
    value, name = found.groups()
    types = _types(program)
    made = next((s.text for s in statements(program.body) if isinstance(s, Let) and s.name == value), "")
    operands = [v for v in VARIABLE.findall(made) if v in types and types[v].dims == types[value].dims]
    if which >= len(operands) or types[operands[which]].dtype == "i1":
        return False
    write.text = write.text.replace(value, operands[which], 1)
    for array in program.arrays:
        if array.name == name:
            array.dtype = types[operands[which]].dtype
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
    """Removes definitions that nothing uses (atomics are kept), and arrays that nothing touches."""
    while True:
        texts = []
        for s in statements(program.body):
            if isinstance(s, (Let, Do)):
                texts.append(s.text)
            else:
                texts += [s.head, *(v for _, _, v in s.carried), *(v for ys in s.yields for v in ys)]
        used = set(VARIABLE.findall(" ".join(texts)))
        before = len(statements(program.body))
        for region in _regions(program.body):
            region[:] = [
                s for s in region if not (isinstance(s, Let) and s.name not in used and "atomic" not in s.text)
            ]
        if len(statements(program.body)) == before:
            break
    text = "\n".join(line for s in program.body for line in s.lines())
    program.arrays = [a for a in program.arrays if re.search(rf"\b{a.name}\b", text)]
    program.leave_out()
