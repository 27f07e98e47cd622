"""Plants one wrong statement into a drawn kernel. The error must be wavedsl's, at that line, and say what is right."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from generator.mistakes import Mistaken
from generator.program import Block, Do, Let, Program, Type

MARK = "  # planted"

VALUES = (
    "wd.read({v})", "wd.write({v}, {v})", "wd.write({a}, {v})", "wd.sum({v}, dim=wd.sym.Z9)", "wd.sum({v})",
    "wd.max({v}, dim='{d}')", "wd.argmin({v}, dim=0)", "wd.cumsum({v}, dim={v})", "({v} > 1) and ({v} < 3)", "not {v}",
    "0 < {v} < 5", "max({v}, 3)", "float({v})", "int({v})", "len({v})", "[x for x in {v}]", "p, q = {v}", "{v}[0]",
    "{v}[0] = 1", "{v}.T", "__import__('numpy').sqrt({v})", "__import__('math').sqrt({v})", "'%d' % {v}",
    "f'{{{v}:.3f}}'",
    "range({v})", "1 if {v} > 1 else 2", "wd.sort({v}, dim={d}, descending='yes')", "wd.sort({v})",
    "wd.topk({v}, wd.sym.Z9, dim={d})", "wd.topk({v}, 3, dim={d})", "wd.reshape({v}, wd.sym.Z8, wd.sym.Z9)",
    "wd.broadcast({v}, 'Z')", "wd.permute({v}, {d}, {d})", "wd.clamp({v}, 3)",
    "wd.clamp({v}, 5, 'x')", "wd.where({v} > 1, 'a', 2)", "wd.where({v} > 1, 2)", "wd.cast({v}, 'f32')",
    "wd.cast({v}, float)", "wd.cast({v})", "wd.cast({v}, wd.f99)", "wd.cast({v}, wd.f16, rounding='up')",
    "wd.bitcast({v}, 3)", "wd.maximun({v}, 1)", "wd.maximum({v})", "wd.fma({v}, {v})", "{v} << 1.5", "{v} ** 'x'",
    "{v} + 'text'", "{v} + None", "{v} + [1, 2]", "{v} @ {v}", "{v}({v})", "{v} + {a}",
    "wd.mma({v}, {v}, 3)", "wd.mma({v})", "wd.mma({v}, 2)", "wd.extract({v}, {{wd.sym.Z9: 0}})", "wd.extract({v}, 3)",
    "wd.shuffle({v}, 3.5, {d})", "wd.repeat_interleave({v}, 3)", "wd.gather({v}, 0)",
)  # fmt: skip
"""On a value `v` with a dimension `d`, and an array `a`."""

REGIONS = (
    "wd.cond({v} > 1, lambda: 1, lambda: 2)", "wd.cond(flag > 0, 1, 2)", "wd.cond(flag > 0, lambda: {v}, lambda: None)",
    "wd.cond(flag > 0, lambda: {v}, lambda: ({v}, {v}))", "wd.cond(flag > 0, lambda x: x, lambda: 1)",
    "wd.cond(flag > 0)",
    "wd.while_loop(lambda n: n < 3, lambda n: (n, n), [wd.Register[wd.i32](0)])",
    "wd.while_loop(lambda n: n < 3, lambda n: None, [wd.Register[wd.i32](0)])",
    "wd.while_loop(lambda n: n < 3, lambda n: n * 0.5, [wd.Register[wd.i32](0)])",
    "wd.while_loop(lambda n: n, lambda n: n + 1, [wd.Register[wd.i32](0)])",
    "wd.while_loop(lambda: flag > 0, lambda: None)",
    "wd.while_loop(lambda n: n < 3, lambda: 1, [wd.Register[wd.i32](0)])",
    "wd.while_loop(lambda n: n < 3, lambda n: {v}, [wd.Register[wd.i32](0)])", "wd.while_loop(flag > 0, 1, [])",
    "wd.while_loop(lambda n: n < 3, lambda n: n + 1, wd.Register[wd.i32](0))",
    "wd.exit_if({v} > 1)", "wd.exit_if({v})", "wd.exit_if('x')", "wd.iterate(wd.sym.Z9)(lambda: None)",
    "wd.iterate('K')(lambda: None)", "wd.iterate(3)(lambda: None)", "wd.iterate({l}, init_args={v})(lambda x: x)",
    "wd.iterate({l}, init_args=[{v}])(lambda: None)", "wd.iterate({l}, init_args=[{v}])(lambda x: None)",
    "wd.iterate({l}, init_args=[{v}])(lambda x: (x, x))", "wd.iterate({l}, start={v})(lambda: None)",
    "wd.iterate({l}, stop='x')(lambda: None)", "wd.iterate({l}, stop=2.5)(lambda: None)",
    "wd.iterate({l}, per_wave='yes')(lambda: None)", "wd.iterate({l}, 3, 4, 5, 6)(lambda: None)",
    "wd.iterate({l}, init_args=['x'])(lambda x: x)", "wd.iterate({l}, init_args=[{a}])(lambda x: x)",
    "wd.iterate({l})(3)", "wd.iterate({l}, init_args=[{v}])(lambda x: wd.sum(x, dim={d}))",
    "wd.iterate({l}, init_args=[{v}])(lambda x: x > 1)", "wd.iterate({l})(lambda: wd.iterate({l})(lambda: None))",
    "wd.reduce({v}, lambda a: a, 0, dim={d})", "wd.reduce({v}, lambda a, b: a, dim={d})", "wd.scan({v}, 1, 0, dim={d})",
    "wd.scan(({v}, {v}), lambda a, b: a[0], (0, 0), dim={d})", "wd.reduce({v}, lambda a, b: None, 0, dim={d})",
    "wd.reduce({v}, lambda a, b: a + {v}, 0, dim={d})", "wd.scan({v}, lambda a, b: wd.sum(a, dim={d}), 0, dim={d})",
)  # fmt: skip
"""Loops and conditions; `l` is a loop's dimension."""

MEMORY = (
    "wd.read({a}, mapping=3)", "wd.read({a}, mapping=wd.IndexMapping(({d},), {{wd.sym.Z9: 0}}))",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {d}))", "wd.IndexMapping({d}, 3)", "wd.IndexMapping()",
    "wd.read({a}, mapping=wd.IndexMapping(({d}, {d}), {{}}))", "wd.read({a}, elements_per_thread=0)",
    "wd.read({a}, elements_per_thread='x')", "wd.read({a}, cache='fast')", "wd.write({v}, {a}, cache=1)", "wd.read()",
    "wd.read({a}, {a})", "wd.read({a}['x'])", "wd.read({a}[0.5:])", "wd.read({a}[{v}, {v}, {v}, {v}, {v}])",
    "wd.read({a}[::0])", "wd.read({a}[None])", "wd.read({a}[::-1])",
    "{a} + 1", "{a} @ {a}", "{a}[0] = {v}", "len({a})", "for x in {a}: pass", "sum({a})", "abs({a})",
    "wd.sum({a}, dim={d})", "wd.exp({a})", "wd.atomic_add({v}, {v})", "wd.atomic_add({a}, {v})", "wd.atomic_add({v})",
    "wd.atomic_cas({v}, {a})", "wd.atomic_add({v}, {a}, 3)", "wd.random('x', {d})", "wd.random()", "wd.index({v})",
    "wd.index('M')", "wd.index(wd.sym.Z9)", "wd.index()", "wd.tile_start(wd.sym.Z9)", "wd.tile_stop({v})",
    "wd.Register[{d}, 'f32'](0)", "wd.Register[{d}](0)", "wd.Register[{d}, wd.f32]('x')", "wd.Register[{d}, wd.f32]()",
    "wd.Register[wd.sym.Z9, wd.f32]({v})", "wd.Register[{d}, {d}, wd.f32](0)", "wd.Register[wd.f32, {d}](0)",
    "wd.Register({d})",
    "wd.fence(3)", "drawn({a})", "wd.device_assert('x')",
    "wd.device_print()", "wd.device_assert({v})", "wd.symbols()", "wd.iterate()", "wd.Memory[{d}, wd.f32]({v})",
    "wd.scaled_mma({v}, {v}, {v}, {v})", "wd.mma({a}, {a})", "wd.cumsum({v}, dim={d}, reverse={d})",
)  # fmt: skip
"""Arrays, indices, values that are made."""

NUMBERS = (
    "wd.popcount()", "wd.popcount({v}, {v})", "wd.popcount({a})", "wd.popcount({v} > 1)", "wd.clz('x')", "wd.ctz(None)",
    "wd.ctz({v} > 1)", "wd.bit_reverse({v} > 1)", "wd.bit_reverse({v}, 8)", "wd.rotate_left({v})",
    "wd.rotate_left({v}, 1.5)", "wd.rotate_left({v}, 'x')", "wd.rotate_left({v}, {d}, 1)", "wd.rotate_left({a}, 1)",
    "wd.permute_bytes({v}, {v})", "wd.permute_bytes({v}, {v}, 'abcd')", "wd.permute_bytes({v}, {v}, 0x9999)",
    "wd.permute_bytes({v}, {v}, 0x12345)", "wd.permute_bytes({v}, {v}, -1)",
    "wd.permute_bytes({v}, {v}, selector=(0, 1, 2, 3))", "wd.mulhi({v})", "wd.mulhi({v}, 1.5)", "wd.mulhi({v}, {a})",
    "wd.mulhi({v} > 1, {v})", "wd.saturating_add({v}, 'x')", "wd.saturating_sub({v}, {v}, {v})",
    "wd.saturating_add({v}, {v} > 1)", "wd.saturating_sub({v})", "wd.atomic_and({v})", "wd.atomic_or({a}, {v})",
    "wd.atomic_xor({v}, {v})", "wd.atomic_and({v} > 1, {a})", "wd.atomic_or({v}, {a}, {a})", "wd.trunc()",
    "wd.trunc({v} > 1)", "wd.trunc({a})", "wd.isnan({a})", "wd.isinf('x')", "wd.isfinite({v}, {v})",
    "wd.isnan({v} > 1)",
    "wd.atan2({v})", "wd.atan2({v}, 'x')", "wd.atan2({v}, {a})", "wd.log1p({v}, {v})", "wd.expm1('x')",
    "wd.log10({v}, 2)", "wd.asin({v}, fast='yes')", "wd.acos()", "wd.exp({v}, fast=2)", "wd.pow({v})",
    "wd.pow({v}, None)",
    "wd.atan({v} > 1)", "wd.sigmoid({v}, {v})", "wd.erf({a})", "wd.divide({v})", "wd.divide({v}, {v}, quick=True)",
)  # fmt: skip
"""Functions of elements and bits."""

ROWS = (
    "wd.prod({v})", "wd.prod({v}, dim=wd.sym.Z9)", "wd.prod({a}, dim={d})", "wd.prod({v} > 1, dim={d})",
    "wd.prod({v}, dim=({d}, {d}))", "wd.cumprod({v}, dim=({d}, {d}))", "wd.cumprod({v}, dim={d}, reverse='yes')",
    "wd.cumprod({v}, dim={d}, exclusive=True)", "wd.cumprod({v} > 1, dim={d})", "wd.softmax({v})",
    "wd.softmax({v}, dim='{d}')", "wd.softmax({v}, dim=0)", "wd.softmax({a}, dim={d})", "wd.softmax({v}, axis={d})",
    "wd.softmax({v} > 1, dim={d})", "wd.softmax({v}, dim=wd.sym.Z9)", "wd.flip({v})", "wd.flip({v}, dim=wd.sym.Z9)",
    "wd.flip({v}, dim=-1)", "wd.flip({v}, {d}, {d})", "wd.flip({a}, dim={d})", "wd.flip({v}, dim=None)", "wd.randn()",
    "wd.randn({d})", "wd.randn('x', {d})", "wd.randn(1.5, {d})", "wd.randn(3, '{d}')", "wd.randn(3, {v})",
    "wd.randn(3, {d}, dtype=wd.f16)", "wd.randn(3, wd.sym.Z9)", "wd.randn(3, {d}, {d})", "wd.randn({v}, {d})",
    "wd.randn(3, {d}, offset='x')", "wd.random(3, {d}, dtype=wd.i8)", "wd.extract({v}, {{{d}: 'x'}})",
    "wd.extract({v}, {{{d}: 1.5}})", "wd.extract({v}, {{{d}: (wd.sym.Z9, 0)}})", "wd.extract({v}, {{{d}: {v}}})",
    "wd.extract({v}, {{}})", "wd.extract({v}, {{{d}: ()}})", "wd.extract({v}, {d}=0)",
    "wd.extract({v}, {{{d}: ({d}, 0, 'x')}})",
    "wd.extract({a}, {{{d}: 0}})", "wd.extract({v}, {{{d}: None}})", "wd.shuffle({v}, wd.index({d}) ^ 1.5, {d})",
    "wd.shuffle({v}, wd.index({d}), wd.sym.Z9)", "wd.shuffle({v}, wd.index({d}) > 1, {d})", "wd.shuffle({v}, {d})",
    "wd.shuffle({a}, wd.index({d}), {d})", "wd.shuffle({v}, wd.cast(wd.index({d}), wd.i64), {d})",
    "wd.shuffle({v}, wd.index({d}), '{d}')", "wd.iterate({l}, per_wave=1)(lambda: None)",
    "wd.iterate({l}, stop=wd.tile_stop(M), per_wave='no')(lambda: None)",
    "wd.iterate({l}, start={v}, per_wave=True)(lambda: None)", "wd.iterate({l}, per_wave=None)(lambda: None)",
    "wd.mma({v}, {v}, precision='high')", "wd.iterate({l}, until=3)(lambda: None)",
    "wd.repeat_interleave({v}, wd.sym.Z9)", "wd.sort({v}, dim={d}, stable=True)", "wd.topk({v}, {d}, dim={d})",
)  # fmt: skip
"""Along a dimension, and elements at other places."""


PLACES = (
    "wd.read({a}[wd.tile_start(wd.sym.Z9)])", "wd.read({a}[{v} * 0.5])", "wd.read({a}[1.5])", "wd.write({v}, {a}[1.5])",
    "wd.read({a}[0, 0, 0, 0, 0, 0, 0])", "wd.read({a}[..., 0, ..., 1])", "wd.read({a}['x' : 'y'])",
    "wd.read({a}[flag > 0])", "wd.read({a}[{v} > 1])", "wd.read({a}[{v} : {v} + 3])",
    "wd.read({a}[0 : {d} : flag])", "wd.write({v}, {a}[{v} * 0.5])", "wd.read({a}, wd.IndexMapping)",
    "wd.read({a}, mapping={{}})", "wd.read({a}, mapping={d})", "wd.read({a}, mapping=lambda x: x)",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {{{d}: 1.5}}))",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {{{d}: 'x'}}))",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {{{d}: None}}))",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {{{d}: {v} > 1}}))",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {{{d}: wd.cast({v}, wd.f32)}}))",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {{{d}: wd.sym.Z9 + 1}}))",
    "wd.read({a}, mapping=wd.IndexMapping(({d},), {{'{d}': 0}}))",
    "wd.write({v}, {a}, mapping=wd.IndexMapping((wd.sym.Z9,), {{}}))",
    "wd.atomic_add({v}, {a}, mapping={d})", "wd.atomic_add({v}, {a}, mapping=wd.IndexMapping((wd.sym.Z9,), {{}}))",
    "wd.atomic_max({v}, {a}[0.5])", "wd.atomic_cas({v}, {v}, {v})", "wd.atomic_xchg({a}, {a})",
    "wd.iterate({l}, stop={v})(lambda: None)", "wd.iterate({l}, stop=wd.index({d}))(lambda: None)",
    "wd.iterate({l}, start=wd.read({a}))(lambda: None)", "wd.iterate({l}, start=flag > 0)(lambda: None)",
    "wd.iterate({l}, start=wd.cast(flag, wd.f32))(lambda: None)", "wd.iterate({l}, step=2)(lambda: None)",
    "wd.iterate({l}, init_args=[{v}])(lambda x: {a})", "wd.iterate({l}, init_args=[{v}])(lambda x: wd.cast(x, wd.i4))",
    "wd.iterate(({l}, {l}))(lambda: None)", "wd.iterate({l}, {l})(lambda: None)", "wd.iterate({l}, init_args={{}})(1)",
    "wd.while_loop(lambda x: x > 1, lambda x: x, {v})", "wd.while_loop(lambda: 1, lambda: None, [])",
    "wd.while_loop(lambda n, m: n < m, lambda n: n, [wd.Register[wd.i32](0), wd.Register[wd.i32](1)])",
    "wd.cond(flag > 0, lambda: wd.write({v}, {v}), lambda: None)", "wd.cond({a}, lambda: 1, lambda: 2)",
    "wd.cond(flag, lambda: {v}, lambda: {v} > 1)",
    "wd.reduce(({v}, {v}), lambda a, b: a[0], 0, dim={d})",
    "wd.scan(({v}, {v}), lambda a, b: (a[0], b[1]), 0, dim={d})", "wd.scan({v}, lambda a, b: (a, b), 0, dim={d})",
    "wd.scan([], lambda a, b: a, [], dim={d})", "wd.argmax({v}, dim=({d}, wd.sym.Z9))", "wd.sum({v}, dim=())",
    "wd.cumsum({v}, {d}, {d}, {d})", "wd.reshape({v}, {d}, {d})", "wd.permute({v})",
    "wd.permute({v}, wd.sym.Z9)", "wd.extract({v}, {{{d}: -1.0}})",
    "wd.shuffle({v}, wd.index({d}) + 0.5, {d})", "wd.shuffle({v}, {v} > 1, dim={d})",
    "wd.cast({v}, wd.i4) * 2", "wd.cast({v}, wd.f8e4m3) + 1", "wd.cast({v}, wd.f4e2m1) > 1",
    "wd.exp(wd.cast({v}, wd.f8e4m3))", "wd.sum(wd.cast({v}, wd.i4), dim={d})",
    "wd.mma({v}, {v}, {v}, {v})", "wd.mma(wd.cast({v}, wd.f16), wd.cast({v}, wd.i8))",
    "wd.scaled_mma({v}, {v})", "wd.tile_start({d}, {d})", "wd.tile_stop()", "wd.fence({a})",
    "wd.repeat_interleave({v}, {d}, {d})", "wd.broadcast({v})", "wd.broadcast({a}, {d})",
    "wd.device_assert({a}, 'x')", "wd.random(3, {d}, offset=1.5)", "wd.cast({v}, wd.bf16, rounding='stochastic')",
)  # fmt: skip
"""Places and bounds that are read, several values at once, dtypes that are for storage."""


def planted(program: Program, rng: np.random.Generator, target: str = "") -> Mistaken | None:
    """The kernel with a wrong statement between others; None where it has nothing to be wrong about."""
    found = places(program)
    if not found:
        return None
    body, at, values = found[int(rng.integers(len(found)))]
    texts = (VALUES, REGIONS, MEMORY, NUMBERS, ROWS, PLACES)[int(rng.integers(6))]
    return plant(program, body, at, values, str(texts[int(rng.integers(len(texts)))]), rng, target)


def plant(
    program: Program, body: tuple[int, ...], at: int, values: list[tuple[str, Type]], text: str,
    rng: np.random.Generator, target: str,
) -> Mistaken | None:  # fmt: skip
    """With this statement in front of the `at`-th of the region that `body` leads to."""
    v, kind = values[int(rng.integers(len(values)))]
    inside = _loops(program, body)
    loops = [c.split("(")[1].split(",")[0] for c in program.cut if c.startswith("wd.TilingConstraint(")]
    loops = [d for d in loops if d not in inside and d not in kind.dims]
    if "{l}" in text and not loops:
        return None
    dim = kind.dims[int(rng.integers(len(kind.dims)))]
    array = program.arrays[int(rng.integers(len(program.arrays)))].name
    made = copy.deepcopy(program)
    region = _region(made, body)
    filled = text.format(v=v, d=dim, a=array, l=loops[0] if loops else "")
    region.insert(at, Do(filled + MARK))
    source = made.source(target)
    line = next(i for i, s in enumerate(source.splitlines(), 1) if s.endswith(MARK))
    return Mistaken(f"line {line}: {filled}", source, line=line)


def places(program: Program) -> list[tuple[tuple[int, ...], int, list[tuple[str, Type]]]]:
    """Regions that are entered when a kernel is traced, by the statements that lead to them; a place in each; the
    values with dimensions that are in sight there."""
    found = []

    def walk(region: list[Any], path: tuple[int, ...], sight: list[tuple[str, Type]]) -> None:
        sight = list(sight)
        for i, s in enumerate(region):
            if any(t.dims and t.dtype != "i1" for _, t in sight):
                found.append((path, i, [(n, t) for n, t in sight if t.dims and t.dtype != "i1"]))
            if isinstance(s, Let):
                sight.append((s.name, s.type))
            if isinstance(s, Block):
                if s.kind in ("iterate", "call"):
                    walk(s.bodies[0], (*path, i), [*sight, *((n, t) for n, t, _ in s.carried)])
                sight += s.names

    walk(program.body, (), [])
    return found


def _region(program: Program, path: tuple[int, ...]) -> list[Any]:
    region = program.body
    for i in path:
        region = region[i].bodies[0]
    return region


def _loops(program: Program, path: tuple[int, ...]) -> set[str]:
    """Dimensions of the loops around a region."""
    found, region = set(), program.body
    for i in path:
        if region[i].kind == "iterate":
            found.add(region[i].head.split(",")[0])
        region = region[i].bodies[0]
    return found
