"""What kernels say while they run: the log that `device_print` and `device_assert` write, and how it reads.

A kernel that has either takes a hidden pointer to an array of 32-bit words: how many are taken, how many there are, two
spare ones, then records. A record is the number of its site in the text, one word per dimension, then the value in one
word or two. Whoever has something to say takes the words of a record by an atomic addition; what does not fit any more
is counted and dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from wavedsl.ir.dataflow.graph import PART, Graph, ValueType
from wavedsl.ir.dtypes import ALL, DType
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass

HEADER = 4
WORDS = 1 << 18
"""Words of a log, header included: 1 MiB."""
SOURCE = "log"
"""The `source` of the hidden parameter."""


@dataclass(frozen=True)
class Site:
    """One value that a place in the source reports. `dims`: names of the dimensions whose indices come with it."""

    kind: str
    """`print` or `assert`."""
    text: str
    dims: tuple[str, ...]
    dtype: str
    """Empty where there is only text."""
    location: Loc | None = None

    @property
    def words(self) -> int:
        """Words of one record."""
        value = 0 if not self.dtype or self.kind == "assert" else 2 if ALL[self.dtype].bits == 64 else 1
        return 1 + len(self.dims) + value


def log_sites(graph: Graph) -> tuple[list[Site], dict[int, int]]:
    """The sites of a graph, and the first one of each node by its id."""
    sites: list[Site] = []
    first: dict[int, int] = {}
    said = [n for n in graph.all_nodes() if n.op in ("device_print", "device_assert")]
    for n in sorted(said, key=lambda n: n.id):  # the order of the source, wherever passes have moved them
        first[n.id] = len(sites)
        hidden = tuple(str(d) for d in graph.index_dims)
        kind = n.op.removeprefix("device_")
        text = n.attrs["text"] if kind == "print" else n.attrs["message"]
        for x in n.inputs or (None,):
            own: tuple[Any, ...] = () if x is None else x.type.dims if isinstance(x.type, ValueType) else ()
            dtype = "" if x is None else x.dtype.name
            sites.append(Site(kind, text, (*hidden, *map(str, own)), dtype, n.loc))
    return sites, first


def new_log(words: int = WORDS) -> np.ndarray:
    """An empty log, for a launch."""
    log = np.zeros(words, np.int32)
    clear(log)
    return log


def clear(log: np.ndarray) -> None:
    log[:HEADER] = HEADER, log.size, 0, 0


@dataclass(frozen=True)
class Failure:
    """An assertion that did not hold, at the first of the indices where it did not."""

    message: str
    location: Loc | None


def read_log(log: np.ndarray, sites: Sequence[Site]) -> tuple[list[str], list[Failure]]:
    """(lines to print, assertions that failed), both in order of the source, then of the indices."""
    taken = int(log[0]) & 0xFFFFFFFF
    records: dict[int, list[tuple[tuple[int, ...], np.ndarray]]] = {}
    at = HEADER
    while at < min(taken, log.size):
        site = sites[int(log[at])]
        if at + site.words > log.size:
            break
        end = at + 1 + len(site.dims)
        indices = tuple(int(i) for i in log[at + 1 : end])
        records.setdefault(int(log[at]), []).append((indices, log[end : at + site.words]))
        at += site.words
    lines: list[str] = []
    failures: list[Failure] = []
    for number in sorted(records):
        site = sites[number]
        found = sorted(records[number], key=lambda r: r[0])
        if site.kind == "assert":
            failures.append(Failure(_failed(site, found[0][0]), site.location))
            continue
        for indices, words in found:
            where = _indices(site, indices)
            place = f"[{where}]" if where else ""
            value = f"{_number(words, ALL[site.dtype])}" if site.dtype else ""
            head = " ".join(part for part in (site.text, place) if part)
            lines.append(f"{head} = {value}" if value and head else head or value)
    if taken > log.size:
        lines.append(f"(the log was full: {taken - log.size} words of device_print are missing)")
    return lines, failures


def _indices(site: Site, indices: tuple[int, ...]) -> str:
    return ", ".join(f"{d}={i}" for d, i in zip(site.dims, indices) if d != PART)


def _failed(site: Site, indices: tuple[int, ...]) -> str:
    where = ", ".join(f"{d} = {i}" for d, i in zip(site.dims, indices) if d != PART)
    message = site.text or "the condition does not hold"
    return f"device_assert: {message}" + (f" (first at {where})" if where else "")


def _number(words: np.ndarray, dtype: DType) -> Any:
    if dtype.kind == "bool":
        return bool(words[0])
    if dtype.is_float and dtype.bits < 64:
        return words.view(np.float32)[0]
    if dtype.bits == 64:
        return np.ascontiguousarray(words).view(dtype.numpy)[0]
    return words.view(np.uint32 if dtype.kind == "uint" else np.int32)[0]


__all__ = ["HEADER", "SOURCE", "WORDS", "Failure", "Site", "clear", "log_sites", "new_log", "read_log"]
