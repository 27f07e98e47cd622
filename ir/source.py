"""Where in the user's source something was written: from stack frames and tracebacks to `Loc`.

A user's frame is one whose module is part neither of this package nor of the libraries it is written in. On Python 3.11
and later the columns come from the code object's position table; before that from the statement that the syntax tree
has at the line. Sources are read through `linecache`, so notebook cells and REPL input work where the shell registers
them.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from types import CodeType, FrameType, TracebackType
from typing import Any

from wavedsl.ir.loc import Loc

_PACKAGE = __name__.split(".", 1)[0]
_DEMO = _PACKAGE + ".demo"

_HAS_POSITIONS = sys.version_info >= (3, 11)


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this package rather than the user's (the demo's kernels stand for a user's)."""
    return _is_our_module(frame.f_globals.get("__name__", ""))


@functools.lru_cache(maxsize=1024)
def _is_our_module(name: str) -> bool:
    return name == _PACKAGE or (name.startswith(_PACKAGE + ".") and name != _DEMO)


_ENDS = 16
"""Call sites that are kept at either end of a long chain."""

_LIBRARIES = ("sympy", "numpy", "mpmath", "ml_dtypes", "networkx", "dataclasses", "functools", "contextlib")
"""What users' expressions call into: an error raised there is shown where the user called it."""


def _is_library(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".", 1)[0] in _LIBRARIES


def is_library_module(name: str | None) -> bool:
    """Whether functions of a module are this package's, or of the libraries that users' expressions call into."""
    first = (name or "").split(".", 1)[0]
    return first in _LIBRARIES or (first == _PACKAGE and name != _DEMO)


def here(*, calls: bool = True) -> Loc | None:
    """The user's expression that is being executed, with the call sites of the user's functions around it.

    The chain of call sites ends at the first frame of this package (the tracer that called the user's kernel). None
    where no user's frame is on the stack.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_ours(frame) or _is_library(frame)):
        frame = frame.f_back
    if frame is None:
        return None
    if not calls:
        return locate(frame.f_code, frame.f_lasti, frame.f_lineno)
    chain = []
    while frame is not None and not is_ours(frame):
        chain.append((frame.f_code, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    if frame is None:  # nothing of ours called it: the rest of the program is no call site of interest
        return locate(*chain[0])
    if len(chain) > 2 * _ENDS:  # a helper that calls itself: each operation's chain would be as long
        chain[_ENDS:-_ENDS] = []
    found: Loc | None = None
    for code, lasti, lineno in reversed(chain):
        found = locate(code, lasti, lineno, found)
    return found


def from_traceback(traceback: TracebackType | None) -> tuple[Loc | None, bool]:
    """Where an exception left the user's code, and whether it was raised inside this package."""
    found: Loc | None = None
    chained: Loc | None = None
    ours = False
    while traceback is not None:
        frame = traceback.tb_frame
        # A module's or proxy's `__getattr__` only speaks for the user's misspelt name.
        ours = is_ours(frame) and frame.f_code.co_name != "__getattr__"
        if is_ours(frame):
            chained = None
        elif not _is_library(frame):
            found = chained = locate(frame.f_code, traceback.tb_lasti, traceback.tb_lineno, chained)
        traceback = traceback.tb_next
    return found, ours


def locate(code: CodeType, lasti: int, lineno: int, call_site: Loc | None = None) -> Loc:
    """The location of one instruction of a code object."""
    line, col, end_col = _columns(code, lasti, lineno)
    name = "" if code.co_name == "<module>" else code.co_name
    return Loc(code.co_filename, line, col, end_col, name, call_site)


Position = tuple[int, int, int]
"""Line, first column, end column."""
_POSITIONS: dict[int, tuple[CodeType, list[tuple[int | None, ...]], dict[int, Position]]] = {}
"""Per code object (held, which keeps its id from being reused) its table, and what has been found by instruction."""


def _columns(code: CodeType, lasti: int, lineno: int) -> Position:
    """(line, first column, end column), columns in characters; end 0 means to the end of the line."""
    if not _HAS_POSITIONS:
        return statement_columns(code.co_filename, lineno)
    cached = _POSITIONS.get(id(code))
    if cached is None:
        table = list(code.co_positions())  # type: ignore[attr-defined]
        cached = _POSITIONS[id(code)] = (code, table, {})
    found = cached[2].get(lasti)
    if found is None:
        found = cached[2][lasti] = _in_table(code, cached[1], lasti // 2, lineno)
    return found


def _in_table(code: CodeType, table: list[tuple[int | None, ...]], index: int, lineno: int) -> Position:
    line, end_line, col, end_col = table[index] if 0 <= index < len(table) else (None,) * 4
    if line is None or col is None or end_col is None:
        return lineno, 0, 0
    text = linecache.getline(code.co_filename, line)
    if end_line != line:
        end_col = len(text.rstrip("\n").encode())
    if not text.isascii():  # the table counts bytes of UTF-8
        raw = text.encode()
        col, end_col = len(raw[:col].decode(errors="replace")), len(raw[:end_col].decode(errors="replace"))
    return line, col, end_col


def statement_columns(file: str, lineno: int) -> tuple[int, int, int]:
    """The innermost statement that covers a line: the fallback where code objects know no columns."""
    best: ast.stmt | None = None
    for statement in _statements(file):
        covers = statement.lineno <= lineno <= (statement.end_lineno or statement.lineno)
        if covers and (best is None or statement.lineno >= best.lineno):
            best = statement
    if best is None or best.lineno != lineno:
        return lineno, 0, 0
    end = best.end_col_offset if best.end_lineno == best.lineno else None
    raw = linecache.getline(file, lineno).encode()
    col = len(raw[: best.col_offset].decode(errors="replace"))
    return lineno, col, 0 if end is None else len(raw[:end].decode(errors="replace"))


@functools.lru_cache(maxsize=32)
def _statements(file: str) -> tuple[ast.stmt, ...]:
    source = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a notebook cell with magics: the line alone must do
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def definition(code: CodeType) -> Loc:
    """The `def` line of a function, its decorators skipped; of a lambda, where it stands."""
    line = code.co_firstlineno
    if code.co_name == "<lambda>":
        return _lambda(code)
    for ahead in range(64):
        text = linecache.getline(code.co_filename, line + ahead)
        words = text.split()
        if words[:1] == ["def"] or words[:2] == ["async", "def"]:
            start = len(text) - len(text.lstrip())
            return Loc(code.co_filename, line + ahead, start, len(text.rstrip()), "")
        if not text:
            break
    return Loc(code.co_filename, line)


def _lambda(code: CodeType) -> Loc:
    """The first line of a lambda, from the word on as far as its body goes on that line."""
    line = code.co_firstlineno
    raw = linecache.getline(code.co_filename, line).encode()
    positions: Any = getattr(code, "co_positions", tuple)()  # none before Python 3.11
    spans = [(start, end) for first, last, start, end in positions if (first, last) == (line, line)]
    spans = [(start, end) for start, end in spans if start is not None and end is not None and end > start]
    body = min((start for start, _ in spans), default=len(raw))
    col = max(0, raw.rfind(b"lambda", 0, body))
    end = max((end for _, end in spans), default=len(raw.rstrip()))
    return Loc(code.co_filename, line, len(raw[:col].decode()), len(raw[:end].decode()))


def parameter(code: CodeType, name: str) -> Loc:
    """Where a parameter is declared in its function's signature."""
    start = definition(code)
    depth = 0
    for ahead in range(128):
        text = linecache.getline(code.co_filename, start.line + ahead)
        if not text:
            break
        begin = text.find("(") + 1 if ahead == 0 else 0
        at = begin
        while True:
            at = text.find(name, at)
            if at < 0:
                break
            end = at + len(name)
            before = text[at - 1] if at else " "
            after = text[end:].lstrip()[:1]
            if not (before.isalnum() or before in "_.") and after in (":", ",", ")", "=", ""):
                if depth + _depth(text[begin:at]) <= (0 if ahead == 0 else 1):
                    return Loc(code.co_filename, start.line + ahead, at, _parameter_end(text, end), "")
            at = end
        depth += _depth(text)
        if depth <= 0:
            break
    return start


def _depth(text: str) -> int:
    return sum((c in "([{") - (c in ")]}") for c in text)


def _parameter_end(text: str, at: int) -> int:
    """The end of `name: annotation = default` on its line."""
    depth = 0
    for i in range(at, len(text)):
        c = text[i]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            if depth == 0:
                return i
            depth -= 1
        elif c in ",\n#" and depth == 0:
            return len(text[:i].rstrip())
    return len(text.rstrip())
