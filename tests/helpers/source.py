"""Runs source text as a notebook cell would be run: registered with linecache, in a module of its own."""

from __future__ import annotations

import itertools
import linecache
import sys
import textwrap
from typing import Any

import wavedsl as wd

PREAMBLE = """\
import math
import numpy as np
import wavedsl as wd
M, N, K, D, H, BM, BN, BK = wd.symbols("M N K D H BM BN BK")
"""

_COUNTER = itertools.count()


def run(body: str, *, preamble: str = PREAMBLE, file: str = "") -> dict[str, Any]:
    """The namespace after executing `body` (dedented) behind the preamble."""
    text = preamble + textwrap.dedent(body)
    file = file or f"<test-cell-{next(_COUNTER)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"__name__": "cell"}
    exec(compile(text, file, "exec", dont_inherit=True), space)
    return space


def assert_points_at(error: wd.WaveError, underlined: str) -> None:
    """The error's text shows the user's line with carets under `underlined` (before 3.11: under its statement).

    A leading `~` admits more than that under the carets: which part Python blames differs between its versions.
    """
    exactly = not underlined.startswith("~")
    underlined = underlined.removeprefix("~")
    loc = error.location
    assert loc is not None, error.message
    line = loc.text()
    if sys.version_info < (3, 11) and line.lstrip().startswith("def ") and underlined not in line:
        # There, applying a decorator counts as the line of the function that it decorates.
        assert underlined in linecache.getline(loc.file, loc.line - 1)
        return
    assert underlined in line, f"{error.message}\npoints at {line!r}, not at {underlined!r}"
    shown = str(error).splitlines()
    at = shown.index("    " + line.strip())
    carets = shown[at + 1]
    start = carets.index("^")
    marked = shown[at][start : start + carets.count("^")]
    if sys.version_info >= (3, 11) and exactly:
        assert marked == underlined, f"marks {marked!r}, not {underlined!r}"
    else:
        assert underlined in marked or marked in underlined
