"""Puts one mistake into a drawn kernel: another name, dtype, dimension, number or operator, a line or an argument less,
another argument. What comes of it must be a kernel that still compiles, or an error of wavedsl's at the user's line.
"""

from __future__ import annotations

import io
import keyword
import linecache
import re
import tokenize
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from wavedsl.ir.loc import Loc

import wavedsl as wd
from generator.check import arguments, copies
from generator.program import Program

DTYPES = tuple(f"wd.{d}" for d in (
    "f64", "f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2fnuz", "f6e2m3", "f4e2m1", "f8e8m0", "i64", "i32", "i16",
    "i8", "i4", "i1", "u64", "u32", "u16", "u8", "u4",
))  # fmt: skip
OPERATORS = (
    "+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", ">", ">=", "&", "|", "^", "<<", ">>", "@", "and", "or",
)  # fmt: skip
NUMBERS = (
    "0", "1", "-1", "2", "3", "17", "1000", "2.5", "1 << 40", "float('nan')", "True", "None", "'text'", "1e30", "()",
    "1j",
)  # fmt: skip
FUNCTIONS = tuple(f"wd.{n}" for n in (
    "read", "write", "mma", "sum", "max", "argmin", "any", "cumsum", "sort", "topk", "broadcast", "permute", "reshape",
    "extract", "shuffle", "repeat_interleave", "index", "tile_start", "tile_stop", "atomic_add", "atomic_cas", "random",
    "where", "minimum", "clamp", "floor", "fma", "exp2", "sqrt", "cast", "bitcast", "scaled_mma", "cond", "exit_if",
    "IndexMapping", "reduce", "scan", "divide", "pow", "device_assert", "device_print", "fence", "while_loop",
))  # fmt: skip
FILE = "<mistaken>"


@dataclass(frozen=True)
class Outcome:
    """`kind`: "taken", "refused" (an error of wavedsl's with a place), or what went wrong; `detail`: its text."""

    kind: str
    detail: str = ""

    @property
    def wrong(self) -> bool:
        return self.kind not in ("taken", "refused")


@dataclass(frozen=True)
class Mistaken:
    """A kernel's source with one mistake; `given` changes its arguments."""

    what: str
    source: str
    given: Callable[[list[Any]], list[Any]] | None = None


def mistaken(program: Program, rng: np.random.Generator, target: str = "") -> Mistaken:
    """The kernel as text, with one mistake."""
    source = program.source(target)

    def one(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    roll = rng.random()
    if roll < 0.08:
        return Mistaken(*_argument(program, source, one))
    lines = source.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("@wd.wave("))
    kept = _counting(lines)  # 0-based lines that nothing changes
    if roll < 0.16:
        at = one([i for i in range(start + 1, len(lines)) if i not in kept])
        return Mistaken(f"without line {at + 1}: {lines[at].strip()}", "\n".join(lines[:at] + lines[at + 1 :]) + "\n")
    if roll < 0.20:
        at = one([i for i in range(start + 1, len(lines)) if lines[i].startswith("    ") and i not in kept])
        return Mistaken(f"line {at + 1} twice: {lines[at].strip()}", "\n".join(lines[: at + 1] + lines[at:]) + "\n")
    for _ in range(20):
        found = _token(source, start, kept, one)
        if found is not None:
            return Mistaken(*found)
    return Mistaken("none", source)


def _counting(lines: list[str]) -> set[int]:
    """Lines of loops that end by themselves: a changed one need not end."""
    found = {i for i, line in enumerate(lines) if "wd.while_loop(lambda n" in line}
    for i, line in enumerate(lines):
        loop = re.search(r"wd\.while_loop\(lambda .*, (f\d+),", line)
        if loop is not None:
            first = next(j for j, other in enumerate(lines) if other.strip().startswith(f"def {loop[1]}("))
            found.update(range(first, i + 1))
    return found


def _token(source: str, start: int, kept: set[int], one: Any) -> tuple[str, str] | None:
    """Another token in place of one, or an argument less or twice."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, IndentationError):
        return None
    body = [t for t in tokens if t.start[0] > start + 1 and t.start[0] - 1 not in kept]
    names = sorted({t.string for t in body if t.type == tokenize.NAME and not keyword.iskeyword(t.string)} - {"wd"})
    variables = [n for n in names if re.fullmatch(r"v\d+|a\d+|bins\d+|flag", n)]
    symbols = [n for n in names if re.fullmatch(r"[A-Z]+\d*", n) and n not in ("SHARED", "GLOBAL")] + ["wd.sym.Z9"]
    token = one(body)
    at = tokens.index(token)
    text = token.string
    if token.type == tokenize.NUMBER:
        new = one(NUMBERS)
    elif token.type == tokenize.STRING:
        new = one(("'text'", "''", "3", "None"))
    elif token.type == tokenize.NAME and tokens[at - 1].string == ".":
        full = f"wd.{text}"
        if full in DTYPES:
            new = one(DTYPES)[3:]
        elif tokens[at - 2].string == "wd" and tokens[at + 1].string == "(":
            new = one(FUNCTIONS)[3:]
        else:
            return None
    elif token.type == tokenize.NAME and re.fullmatch(r"[A-Z]+\d*", text):
        more = (one(variables or ["1"]), f"{text} / 2", f"{text} + 1", "5", "wd.index(M)")
        new = one((one(symbols), one(symbols), one(symbols), *more))
    elif text in variables:
        more = (one(symbols), one(NUMBERS), f"{text} > 1", f"[{text}, {text}]")
        new = one((one(variables), one(variables), one(variables), *more))
    elif token.type == tokenize.OP and text in OPERATORS:
        new = f" {one(OPERATORS)} "
    elif text == ",":  # without the argument that follows
        return _without(source, tokens, at, one)
    else:
        return None
    if new == text:
        return None
    lines = source.splitlines()
    row, column = token.start
    line = lines[row - 1]
    lines[row - 1] = line[:column] + new + line[token.end[1] :]
    return f"line {row}: {text} becomes {new}", "\n".join(lines) + "\n"


def _without(source: str, tokens: list[Any], at: int, one: Any) -> tuple[str, str] | None:
    depth = 0
    for token in tokens[at + 1 :]:
        if token.start[0] != tokens[at].start[0]:
            return None
        if token.type == tokenize.OP and token.string in "([{":
            depth += 1
        closing = token.type == tokenize.OP and token.string in ")]}"
        if closing or (token.string == "," and depth == 0):
            if depth == 0:
                break
            depth -= 1
    row = tokens[at].start[0]
    lines = source.splitlines()
    line = lines[row - 1]
    part = line[tokens[at].start[1] : token.start[1]]
    twice = one((0, 0, 1))
    lines[row - 1] = line[: token.start[1]] + part * twice + line[token.start[1] :] if twice else (
        line[: tokens[at].start[1]] + line[token.start[1] :]
    )
    return f"line {row}: {'twice' if twice else 'without'} {part!r}", "\n".join(lines) + "\n"


def _argument(program: Program, source: str, one: Any) -> tuple[str, str, Any]:
    """Another argument than the kernel takes."""
    count = len(program.arrays)
    which = one(range(count + 1))
    ways: dict[str, Callable[[Any], Any]] = {
        "none": lambda x: None, "text": lambda x: "text", "list": lambda x: [1, 2], "number": lambda x: np.float64(1.5),
        "float": lambda x: 2.5, "f64": lambda x: np.zeros(np.shape(x), np.float64),
        "flat": lambda x: np.asarray(x).reshape(-1), "scalar": lambda x: np.zeros((), np.float32),
        "longer": lambda x: np.concatenate([np.asarray(x)] * 2) if np.ndim(x) else np.zeros(3, np.int32),
        "deeper": lambda x: np.asarray(x)[None], "turned": lambda x: np.asarray(x)[::-1] if np.ndim(x) else -x,
        "complex": lambda x: np.zeros(np.shape(x), np.complex64), "objects": lambda x: np.full(np.shape(x), None),
        "empty": lambda x: np.asarray(x)[:0] if np.ndim(x) else np.zeros(0), "large": lambda x: 1 << 70,
        "shared": lambda x: np.broadcast_to(np.asarray(x).reshape(-1)[:1], np.shape(x)) if np.ndim(x) else x,
        "swapped": lambda x: np.asarray(x).T.copy(), "bytes": lambda x: b"1234", "readonly": _read_only,
        "big-endian": lambda x: np.asarray(x).astype(np.asarray(x).dtype.newbyteorder(">")),
    }  # fmt: skip
    name = one((*ways, "missing", "more"))

    def changed(given: list[Any]) -> list[Any]:
        if name == "missing":
            return given[:which] + given[which + 1 :]
        if name == "more":
            return [*given, given[which]]
        return [*given[:which], ways[name](given[which]), *given[which + 1 :]]

    return f"argument {which} {name}", source, changed


def _read_only(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        x = x.copy()
        x.flags.writeable = False
    return x


def outcome(program: Program, wrong: Mistaken, target: str) -> Outcome:
    """What tracing, evaluating and compiling give."""
    text = wrong.source
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    given = arguments(program)
    if wrong.given is not None:
        given = wrong.given(copies(given))
    space: dict[str, Any] = {"__name__": "mistaken"}
    try:
        code = compile(text, FILE, "exec", dont_inherit=True)
    except SyntaxError:
        return Outcome("refused", "SyntaxError")
    steps = (
        ("evaluate", lambda: space["drawn"].evaluate(*copies(given))),
        ("compile", lambda: space["drawn"].compile(*given, target=target)),
    )  # fmt: skip
    said = []
    try:
        exec(code, space)
    except Exception as error:
        return judged("define", error)
    if "drawn" not in space:
        return Outcome("refused", "no kernel")
    for name, step in steps:
        try:
            with np.errstate(all="ignore"):
                step()
        except Exception as error:
            found = judged(name, error)
            if found.wrong:
                return found
            said.append(found)
    return said[0] if said else Outcome("taken")


def judged(step: str, error: Exception) -> Outcome:
    """Whether an exception is one that a user's mistake may end in."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, (wd.LaunchError, wd.ToolchainError)):
        return Outcome("refused", f"{step}: {error}")
    if isinstance(error, wd.WaveError):
        if not isinstance(error.location, Loc):
            return Outcome("no place", f"{step}: {type(error).__name__}: {error.message}")
        if error.location.file != FILE:
            return Outcome("other place", f"{step}: {error}")
        return Outcome("refused", f"{step}: {error}")
    if frames[-1].filename == FILE:
        return Outcome("refused", f"{step}: {type(error).__name__}: {error}")
    last = [f"{f.filename.rsplit('/', 2)[-2]}/{f.filename.rsplit('/', 1)[-1]}:{f.lineno} {f.name}" for f in frames[-4:]]
    return Outcome(type(error).__name__, f"{step}: {error} in {' < '.join(reversed(last))}")
