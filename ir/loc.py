"""Source locations: which characters of the user's file an op, a node or an instruction comes from."""

from __future__ import annotations

import linecache
import os
import unicodedata

from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class Loc:
    """A span of one source line. Lines count from 1; columns from 0 and in characters, the end exclusive.

    `call_site` is where the function that holds this span was called from, when it was called while tracing.
    """

    file: str
    line: int
    col: int = 0
    end_col: int = 0
    function: str = ""
    call_site: Loc | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def text(self) -> str:
        """The source line, without its newline; empty when the source is not at hand."""
        # linecache looks for a relative name along sys.path too, where another file of that name may lie.
        if self.file not in linecache.cache and not os.path.exists(self.file):
            return ""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def caret(self) -> str:
        """`file:line`, the source line and a line of carets under the span (callers below), as a block of text."""
        out = []
        here: Loc | None = self
        while here is not None:
            where = f"{here.file}:{here.line}" + (f" in {here.function}" if here.function else "")
            out.append(f"  {where}" if here is self else f"  called from {where}")
            text = here.text()
            if text.strip():
                indent = len(text) - len(text.lstrip())
                start = max(here.col, indent)
                end = here.end_col if here.end_col > start else len(text)
                out.append("    " + text.strip())
                out.append("    " + " " * _width(text[indent:start]) + "^" * max(1, _width(text[start:end])))
            here = here.call_site
        return "\n".join(out)


def _width(text: str) -> int:
    """Columns that `text` takes in a terminal: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
