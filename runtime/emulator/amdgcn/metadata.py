"""The YAML of AMDGCN metadata, as far as compilers write it.

In: the lines between `.amdgpu_metadata` and its end. Out: dicts, lists, numbers, strings.
"""

from __future__ import annotations

import re
from typing import Any

_INTEGER = re.compile(r"^[+-]?(0[xX][0-9a-fA-F]+|\d+)$")


def parse_yaml(lines: list[str]) -> Any:
    """Mappings, sequences, flow collections and plain or quoted scalars; no anchors, no multi-line strings."""
    rows = []
    for raw in lines:
        body = raw.rstrip()
        if not body.strip() or body.strip() in ("---", "...") or body.lstrip().startswith("#"):
            continue
        rows.append((len(body) - len(body.lstrip()), body.strip()))
    if rows and rows[0][1][0] in "{[":
        return _Flow("".join(r for _, r in rows)).value()
    return _block(rows, 0, rows[0][0])[0] if rows else {}


def _block(rows: list[tuple[int, str]], i: int, indent: int) -> tuple[Any, int]:
    sequence = rows[i][1].startswith("- ") or rows[i][1] == "-"
    out: Any = [] if sequence else {}
    while i < len(rows) and rows[i][0] == indent and (rows[i][1][0] == "-") == sequence:
        body = rows[i][1]
        if sequence:
            inner = body[1:].lstrip()
            if inner and (": " in inner or inner.endswith(":")) and inner[0] not in "{['\"":
                rows[i] = (indent + len(body) - len(inner), inner)
                value, i = _block(rows, i, rows[i][0])
            elif inner:
                value, i = _scalar(inner), i + 1
            else:
                value, i = _block(rows, i + 1, rows[i + 1][0])
            out.append(value)
            continue
        key, _, rest = body.partition(":")
        rest = rest.strip()
        if rest and rest.count("{") + rest.count("[") > rest.count("}") + rest.count("]"):
            while rest.count("{") + rest.count("[") > rest.count("}") + rest.count("]"):
                i += 1
                rest += " " + rows[i][1]
        if rest:
            out[key.strip().strip("'\"")] = _scalar(rest)
            i += 1
        elif i + 1 < len(rows) and (rows[i + 1][0] > indent or (rows[i + 1][0] == indent and rows[i + 1][1][0] == "-")):
            out[key.strip().strip("'\"")], i = _block(rows, i + 1, rows[i + 1][0])
        else:
            out[key.strip().strip("'\"")] = None
            i += 1
    return out, i


def _scalar(text: str) -> Any:
    text = text.strip()
    if text[0] in "{[":
        return _Flow(text).value()
    if text[0] in "'\"":
        return text[1:-1]
    if _INTEGER.match(text):
        return int(text, 0)
    return {"true": True, "false": False, "null": None}.get(text, text)


class _Flow:
    """`{a: 1, b: [x, y]}`."""

    def __init__(self, text: str):
        self.text, self.at = text, 0

    def _skip(self) -> str:
        while self.at < len(self.text) and self.text[self.at] in " \t\n":
            self.at += 1
        return self.text[self.at] if self.at < len(self.text) else ""

    def value(self) -> Any:
        ch = self._skip()
        if ch == "{":
            self.at += 1
            out = {}
            while self._skip() != "}":
                key = self._word(":")
                self._skip()
                self.at += 1
                out[key] = self.value()
                if self._skip() == ",":
                    self.at += 1
            self.at += 1
            return out
        if ch == "[":
            self.at += 1
            items = []
            while self._skip() != "]":
                items.append(self.value())
                if self._skip() == ",":
                    self.at += 1
            self.at += 1
            return items
        word = self._word(",}]")
        return _scalar(word) if word else None

    def _word(self, stops: str) -> str:
        self._skip()
        start = self.at
        if self.at < len(self.text) and self.text[self.at] in "'\"":
            end = self.text.index(self.text[self.at], self.at + 1)
            self.at = end + 1
            return self.text[start + 1 : end]
        while self.at < len(self.text) and self.text[self.at] not in stops:
            self.at += 1
        return self.text[start : self.at].strip()
