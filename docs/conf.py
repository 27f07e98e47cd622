"""How Sphinx makes the site: `sphinx-build -W docs build/site` (needs the extra `docs`).

Pages are Markdown; docs/reference.md takes its text from the docstrings. Those are plain sentences in which one pair of
backticks is code and an indented block is an example, as in Markdown: `as_rst` says so to Sphinx.
"""

from __future__ import annotations

from typing import Any

import wavedsl

project = "wavedsl"
copyright = "the wavedsl authors"
release = version = wavedsl.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"wavedsl {release}"
html_show_sphinx = False
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the signature has them
default_role = "code"


def as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """An indented block after an empty line is code: a `::` before it."""
    indents = [len(line) - len(line.lstrip()) if line.strip() else None for line in lines]
    for at in range(len(lines) - 1, 1, -1):
        here, before = indents[at], [i for i in indents[:at] if i is not None]
        if here is not None and here >= 4 and indents[at - 1] is None and before and before[-1] < 4:
            lines[at:at] = ["::", ""]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_rst)
