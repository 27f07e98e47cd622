"""Rows of the PTX instruction table on a GPU: the emulator's results against the chip's, bit by bit.

    python benchmarks/gpu_rows.py --out FILE
    python benchmarks/gpu_rows.py --out FILE --emulate --only 'cvt|min'      the emulator against itself: no GPU

Every form of a row that goes from registers to registers, and every atomic, is executed once by each of `LANES` lanes,
on numbers at the edges of its types (zeros, NaN, infinities, denormals, largest and smallest numbers), their pairs, and
random bits. FILE has, for each form whose results differ, how many do and some of them: lane, chip, emulator, operands.
NaNs with other bits are counted apart. Approximations differ by a few units in the last place: `distance` is the
largest, over results that are finite.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

import gpu_session  # noqa: E402, F401  finds wavedsl where it is not installed
import record  # noqa: E402

sys.path.append(str(HERE.parent / "tests" / "helpers"))

TARGET = "sm_90a"
LANES = 256
FORMS = 100
"""Forms in a text: one kernel."""
OTHER = frozenset(
    "load store atomic async matrix wmma barrier branch exit bulk multiply mbarrier fence hint tensormap warpgroup "
    "wait address commit proxy mapa trap copy policy rank registers carry to is wgmma initialised activemask "
    "warpsync".split()
)
"""Effects of rows that do more than make registers of registers, or need other instructions around them."""
APART = frozenset(
    "createpolicy prefetchu membar mapa getctarank setmaxnreg trap brkpt nanosleep pmevent bar elect isspacep cvta "
    "prefetch griddepcontrol cp activemask mov".split()
)
ATOMICS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
ATOMIC_TYPES = ("u32", "s32", "u64", "s64", "b32", "b64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
FLOATS: dict[str, tuple[Any, int]] = {
    "f64": (np.float64, 64), "f32": (np.float32, 32), "tf32": (np.float32, 32), "f16": (np.float16, 16),
    "bf16": (ml_dtypes.bfloat16, 16),
}  # fmt: skip
FILLING = 0xA5


@dataclass(frozen=True)
class Form:
    """An instruction, what it reads and writes (registers with the types of their operands), and where it works."""

    line: str
    sources: tuple[tuple[str, str, str], ...]
    """Register, its declared type, its operand's type."""
    results: tuple[tuple[str, str, str], ...]
    space: str = ""
    """Of atomics: where the first operand lies."""


def bits_of(kind: str) -> int:
    """Bits that a type takes in its register's place of 8 bytes."""
    if kind in ("pred", "e4m3x2", "e5m2x2"):
        return 32 if kind == "pred" else 16
    number = int(re.sub(r"\D", "", kind.removesuffix("x2")))
    return 2 * number if kind.endswith("x2") else max(16, number)


def edges(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Numbers at a type's edges, and others, as unsigned integers."""
    if kind == "pred":
        both = np.array([0, 1], np.uint32)
        return both, both
    if kind in ("e4m3x2", "e5m2x2"):
        every = np.arange(256, dtype=np.uint16)
        pairs = every | every[::-1] << np.uint16(8)
        return pairs, rng.permutation(pairs)
    if kind.endswith("x2"):
        special, others = (x.astype(np.uint32) for x in edges(kind[:-2], rng))
        return tuple(x | rng.permutation(x) << np.uint32(16) for x in (special, others))
    bits = bits_of(kind)
    unsigned = np.dtype(f"u{bits // 8}").type
    chaos = rng.integers(0, 256, 600 * bits // 8, dtype=np.uint8).view(unsigned)
    if kind in FLOATS:
        dtype, _ = FLOATS[kind]
        info = ml_dtypes.finfo(dtype)
        top, tiny, least, step = (float(x) for x in (info.max, info.tiny, info.smallest_subnormal, info.eps))
        plain = [0.0, 1, 0.5, 1.5, 2.5, 3, 3.7, 0.49, 100.25, 127.6, 129, 255.5, 65504, 65520, 9.3e18, 1.9e19]
        plain += [np.inf, np.nan, top, tiny, tiny - least, least, 3 * least, step, 1 + step]
        plain += [2.0**31, 2.0**31 - 0.5, 2.0**31 + 1, 2.0**32]
        with np.errstate(all="ignore"):
            signed = np.array([*plain, *(-x for x in plain)], np.float64).astype(dtype).view(unsigned)
            near = (rng.standard_normal(600) * 10.0 ** rng.integers(-3, 4, 600)).astype(dtype).view(unsigned)
        payloads = np.array([int(np.array(np.inf, dtype).view(unsigned)) | 1, (1 << bits) - 1], unsigned)
        return np.concatenate([signed, payloads]), np.concatenate([chaos, near])
    width = int(kind[1:])
    mask, half = (1 << width) - 1, 1 << width - 1
    found = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256, half, half - 1, half + 1]
    found += [mask, mask - 1, mask - 99, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA]
    return np.array([x & mask for x in found], unsigned), np.concatenate([chaos, chaos % unsigned(97)])


class Operands:
    """Columns of operands, one element per lane, by type and place; `data` is all of them."""

    def __init__(self) -> None:
        self.rng, self.columns = np.random.default_rng(1), dict[tuple[str, int], tuple[int, np.ndarray]]()
        self.size = 0

    def at(self, kind: str, place: int) -> tuple[int, np.ndarray]:
        """The byte at which the column starts, and its elements: three quarters are edges, in pairs."""
        if (kind, place) not in self.columns:
            special, others = edges(kind, self.rng)
            lane, n = np.arange(LANES), len(special)
            which = lane if place == 0 else lane // n + 7 * lane if place == 1 else 5 * lane + lane // 17
            column = special[which % n]
            column[LANES * 3 // 4 :] = self.rng.choice(others, LANES - LANES * 3 // 4)
            self.columns[kind, place] = self.size, column
            self.size += column.nbytes
        return self.columns[kind, place]

    @property
    def data(self) -> np.ndarray:
        return np.concatenate([column.view(np.uint8) for _, column in self.columns.values()])


def all_forms(only: str) -> list[Form]:
    from row_forms import CONTROL, forms, instruction
    from wavedsl.codegen.ptx import isa
    from wavedsl.ir.errors import CompileError

    found: dict[str, Form] = {}
    for row in isa.all_rows(TARGET):
        if row.effects & OTHER or row.opcode in APART or row.opcode in CONTROL or not re.search(only, row.opcode):
            continue
        for mods in forms(row, isa.parse_target(TARGET).number):
            registers: dict[str, str] = {}
            line = instruction(row, mods, registers)
            operands = isa.lookup(isa.spell(row, **mods), TARGET).operands
            if any(o.kind not in ("reg", "imm") for o in operands):
                continue
            types = {f"_{'d' if o.write else 's'}{o.name[0]}0": o.type or "b64" for o in operands}
            named = [(r, t, types.get(r[r.index("_") :], t)) for r, t in registers.items()]
            sources, results = (tuple(x for x in named if x[0][x[0].index("_") + 1] == way) for way in "sd")
            found[line] = Form(line, sources, results)
    for space in ("global", "shared"):
        for name in (f"{op}{more}.{kind}" for op in ATOMICS for more in ("", ".noftz") for kind in ATOMIC_TYPES):
            line = f"atom.{space}.{name}"
            try:
                isa.lookup(line, TARGET)
            except CompileError:
                continue
            if not re.search(only, "atom"):
                continue
            kind = name.split(".")[-1]
            register = f"b{bits_of(kind)}"
            reads = tuple((f"x{i}", register, kind) for i in range(2 + ("cas" in name)))
            found[line] = Form(line, reads, (("d", register, kind), ("m", register, kind)), space)
    return list(found.values())


def statements(form: Form, place: int, operands: Operands) -> str:
    """A form between the loads of its operands and the stores of its results, at `2 * place` and `2 * place + 1`."""
    text = ["{ .reg .b64 at; .reg .b32 word;", *(f".reg .{t} {r};" for r, t, _ in (*form.sources, *form.results))]
    for i, (register, declared, kind) in enumerate(form.sources):
        start, column = operands.at(kind, i)
        text.append(f"mad.wide.u32 at, %r1, {column.itemsize}, %rd1;")
        if declared == "pred":
            text.append(f"ld.global.b32 word, [at+{start}]; setp.ne.u32 {register}, word, 0;")
        else:
            text.append(f"ld.global.b{8 * column.itemsize} {register}, [at+{start}];")
    out = [f"[%rd2+{(2 * place + j) * 8 * LANES}]" for j in (0, 1)]
    if form.space:
        kind = form.sources[0][1]
        where = out[1] if form.space == "global" else "[word]"
        text.append("mov.u32 word, sm; mad.lo.u32 word, %r1, 8, word;")
        rest = ", ".join(r for r, *_ in form.sources[1:])
        text.append(f"st.{form.space}.{kind} {where}, x0; {form.line} d, {where}, {rest};")
        text.append(f"ld.{form.space}.{kind} m, {where};")
    else:
        text.append(f"{form.line};")
    for to, (register, declared, _) in zip(out, form.results):
        if declared == "pred":
            text.append(f"selp.b64 at, 1, 0, {register}; st.global.b64 {to}, at;")
        else:
            text.append(f"st.global.b{bits_of(declared)} {to}, {register};")
    return "\n".join([*text, "}"])


def text_of(group: Sequence[Form], operands: Operands) -> str:
    body = "\n".join(statements(form, place, operands) for place, form in enumerate(group))
    return f""".version 8.7
.target {TARGET}
.address_size 64
.shared .align 8 .b8 sm[{8 * LANES}];
.visible .entry k(.param .u64 p, .param .u64 q)
{{
.reg .b32 %r<2>;
.reg .b64 %rd<3>;
ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];
cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 8, %rd2;
{body}
ret;
}}
"""


def blank(count: int) -> np.ndarray:
    """Two results of 8 bytes per form and lane; what a form does not write keeps the filling."""
    return np.full(count * 2 * LANES * 8, FILLING, np.uint8).view(np.uint64)


def by_emulator(text: str, data: np.ndarray, count: int) -> np.ndarray:
    from wavedsl.runtime.emulator.ptx.emulator import run_ptx

    out = blank(count)
    run_ptx(text, target=TARGET, grid=(1,), block=(LANES,), args=[data.copy(), out], checks=False)
    return out.reshape(count, 2, LANES)


def by_chip(text: str, data: np.ndarray, count: int) -> np.ndarray:
    from wavedsl.runtime.devices import open_driver

    driver: Any = open_driver("cuda", 0)
    out = blank(count)
    function = driver.load(text, TARGET, "k", 0)
    places = [driver.allocate(x.nbytes) for x in (data, out)]
    for place, array in zip(places, (data, out)):
        driver.upload(place, array)
    values = [ctypes.c_uint64(place) for place in places]
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values))
    driver.launch(function, (1, 1, 1), (LANES, 1, 1), ctypes.addressof(pointers), 0)
    driver.synchronize(0)
    driver.download(out, places[1])
    for place in places:
        driver.free(place)
    return out.reshape(count, 2, LANES)


def numbers(words: np.ndarray, dtype: Any, width: int) -> np.ndarray:
    """Floats of words, one lane per row."""
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.ascontiguousarray(words).view(f"u{width // 8}").view(dtype).astype(np.float64)
    return found.reshape(len(words), -1)


def distance(mine: np.ndarray, theirs: np.ndarray, dtype: Any) -> float:
    """The largest difference of finite numbers, in units of the last place of `theirs`."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.frexp(np.maximum(np.abs(theirs), float(info.tiny)))[1] - 1
    return round(float((np.abs(mine - theirs) / np.ldexp(float(info.eps), exponent)).max()), 1)


def differences(form: Form, got: np.ndarray, want: np.ndarray, operands: Operands) -> dict[str, Any] | None:
    """What is not the same of one form, `[2, LANES]` each; None where all is."""
    row: dict[str, Any] = {"form": form.line}
    for j, (_, declared, kind) in enumerate(form.results[:2]):
        bits = 64 if declared == "pred" else bits_of(declared)
        a, b = (np.ascontiguousarray(x[j]).view(f"u{bits // 8}")[:: 64 // bits] for x in (got, want))
        bad = a != b
        single = kind.removesuffix("x2")
        if single in FLOATS:
            dtype, width = FLOATS[single]
            mine, theirs = (numbers(x, dtype, width) for x in (a, b))
            nan = np.isnan(mine) & np.isnan(theirs)
            alike = (nan | (mine == theirs) & (np.signbit(mine) == np.signbit(theirs))).all(1)
            row["other NaN"] = row.get("other NaN", 0) + int((bad & alike).sum())
            bad &= ~alike
            if bad.any() and np.isfinite(mine[bad]).all() and np.isfinite(theirs[bad]).all():
                row["distance"] = distance(mine[bad], theirs[bad], dtype)
        if bad.any():
            shown = np.flatnonzero(bad)
            shown = shown[np.linspace(0, len(shown) - 1, min(6, len(shown))).astype(int)]
            read = [operands.at(kind, i)[1] for i, (_, _, kind) in enumerate(form.sources)]
            row[f"result {j}"] = {
                "differ": int(bad.sum()),
                "lane, chip, emulator, operands": [[int(i), *(hex(int(x[i])) for x in (a, b, *read))] for i in shown],
            }
    return row if any(x.startswith("result") for x in row) or row.get("other NaN") else None


def compared(given: tuple[list[Form], bool]) -> list[dict[str, Any]]:
    """The differences of one text's forms; a text that the chip or the assembler refuses is one difference."""
    group, emulate = given
    operands = Operands()
    text = text_of(group, operands)
    want = by_emulator(text, operands.data, len(group))
    execute: Callable[..., np.ndarray] = by_emulator if emulate else by_chip
    try:
        got = execute(text, operands.data, len(group))
    except Exception as error:
        return [{"form": group[0].line, "forms": len(group), "error": str(error)[:600]}]
    rows = (differences(form, *both, operands) for form, *both in zip(group, got, want))
    return [row for row in rows if row is not None]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--only", default="", help="a regular expression: rows whose opcode has it")
    parser.add_argument("--workers", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2))
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--commit", default="", metavar="HASH")
    given = parser.parse_args(arguments)
    began = time.time()
    forms = all_forms(given.only)
    groups = [(forms[i : i + FORMS], given.emulate) for i in range(0, len(forms), FORMS)]
    with get_context("spawn").Pool(min(given.workers, max(1, len(groups)))) as pool:
        found = [row for rows in pool.imap(compared, groups) for row in rows]
    kinds = Counter(
        "error" if "error" in row else "differ" if any(x.startswith("result") for x in row) else "other NaN"
        for row in found
    )
    result = {
        **record.surroundings(given.commit), "target": TARGET, "lanes": LANES, "forms": len(forms), **kinds,
        "seconds": round(time.time() - began, 1), "found": found,
    }  # fmt: skip
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(forms)} forms: {dict(kinds)}")
    return 1 if kinds["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
