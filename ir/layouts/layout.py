"""Layouts: which lane and register holds which element of a value.

Comes in: the `Bits` of a fragment. Goes out: `Layout`, a `Bits` on a box of 2^k elements per dimension with mixed-
radix `Digit`s outside the box.

The idea: everything that is not a power of two is a repeat count over registers or waves, so it is a digit and never
touches a lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from wavedsl.ir.errors import CompileError
from wavedsl.ir.layouts.bits import INPUT_ORDER, REGISTER_KINDS, Bits, kind_of, name_of, number_of, span_table
from wavedsl.ir.quick_dataclass import dataclass

WARP_BITS = 5
"""Lane bits within which NVIDIA's shuffles reach."""


def high_lanes(bits: Iterable[int], lanes: int) -> list[int]:
    """Lane bits that tell the warps of a warpgroup apart: no shuffle crosses them. Other waves have none."""
    return [x for x in bits if lanes == 4 << WARP_BITS and x >= WARP_BITS]


def moving_lanes(layout: Layout, dims: Collection[str]) -> list[int]:
    """The lane bits that move along any of these dimensions: lanes that differ in others hold the same of them."""
    inner = layout.inner
    columns = [inner.coordinate_columns(d) for d in dims]
    return [number_of(x) for i, x in enumerate(inner.ins) if kind_of(x) == "l" and any(c[i] for c in columns)]


@dataclass(frozen=True)
class Digit:
    """A repeat outside the box: value d in 0..extent-1 adds `d * stride * box(dim)` to the coordinate of `dim`.

    `kind` is `reg` (static: more registers) or `wave` (uniform in a wave). `stride` is in boxes; 0 marks replicas, and
    then `dim` may be empty. Digits are never on lanes.
    """

    kind: str
    extent: int
    dim: str
    stride: int

    def __post_init__(self) -> None:
        if self.kind not in ("reg", "wave"):
            raise CompileError(f"a digit counts registers (reg) or waves (wave), not {self.kind!r}")
        if self.extent < 1 or self.stride < 0:
            raise CompileError(f"{self} needs an extent of at least 1 and a stride of at least 0")


@dataclass(frozen=True)
class Layout:
    """Which (wave, lane, element) holds which element of a value.

    `inner` maps e, r, l, w bits to coordinates inside the box; `digits` repeat the box, slowest first within a kind;
    `extents` are (dimension, elements) pairs of the whole value, padding included.

    Element index in a lane: r and e bits (e lowest) inside, register digits outside, the last digit fastest. Wave
    index: w bits inside, wave digits outside, the last fastest. Coordinate = inner (XOR of columns) + sum of digits.
    """

    inner: Bits
    digits: tuple[Digit, ...]
    extents: tuple[tuple[str, int], ...]
    _memo: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.inner.input_kinds <= INPUT_ORDER.keys():
            strange = [name_of(b) for b in self.inner.ins if kind_of(b) not in INPUT_ORDER]
            raise CompileError(f"a layout has e, r, l and w bits, not {', '.join(strange)}")
        canonical = self.inner.canonical()
        if canonical is not self.inner:
            object.__setattr__(self, "inner", canonical)
        known = {d for d, _ in self.extents}
        lost = [d for d in (*self.inner.dims, *(g.dim for g in self.digits if g.stride)) if d not in known]
        if lost:
            raise CompileError(f"the layout has no extent for {', '.join(dict.fromkeys(lost))}")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.inner, self.digits, self.extents))

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self.inner, self.digits, self.extents)  # hashes of strings differ between processes

    # -- sizes

    @cached_property
    def dims(self) -> tuple[str, ...]:
        return tuple(d for d, _ in self.extents)

    def box(self, dim: str) -> int:
        """Elements of the power-of-two box along `dim`."""
        return 1 << self.inner.width(dim)

    def step(self, digit: Digit) -> int:
        """Elements that one count of a digit moves along its dimension."""
        return digit.stride * self.box(digit.dim) if digit.stride else 0

    @cached_property
    def reg_digits(self) -> tuple[Digit, ...]:
        return tuple(g for g in self.digits if g.kind == "reg")

    @cached_property
    def wave_digits(self) -> tuple[Digit, ...]:
        return tuple(g for g in self.digits if g.kind == "wave")

    @cached_property
    def elements_per_lane(self) -> int:
        total = 1 << self.inner.count(*REGISTER_KINDS)
        for g in self.reg_digits:
            total *= g.extent
        return total

    @property
    def lanes(self) -> int:
        return 1 << self.inner.count("l")

    @property
    def waves(self) -> int:
        total = 1 << self.inner.count("w")
        for g in self.wave_digits:
            total *= g.extent
        return total

    @property
    def replicas(self) -> int:
        """How many (wave, lane, element) hold each element, when the layout is bijective."""
        total = 1 << sum(not c for c in self.inner.cols)
        for g in self.digits:
            total *= g.extent if not g.stride else 1
        return total

    def replica_bits(self, *kinds: str) -> tuple[int, ...]:
        """Input bits of these kinds that select a replica: a store is predicated on them being 0."""
        return tuple(b for b, c in zip(self.inner.ins, self.inner.cols) if not c and kind_of(b) in kinds)

    def bijective(self, extents: Mapping[str, int] | None = None) -> bool:
        """Every element of the extents (default: the layout's own) is held, and held once apart from replicas.

        The inner map has full rank on its non-replica bits, and the digits of each dimension, sorted by stride, are a
        gap-free mixed radix whose product with the box is the extent.
        """
        live = sum(1 for c in self.inner.cols if c)
        if not live == len(self.inner.outs) == self.inner.rank():
            return False
        covered = dict.fromkeys(self.dims, 1)
        for g in sorted((g for g in self.digits if g.stride and g.extent > 1), key=lambda g: g.stride):
            if g.stride != covered[g.dim]:
                return False
            covered[g.dim] *= g.extent
        wanted = dict(self.extents if extents is None else extents)
        return all(wanted.get(d) == n * self.box(d) for d, n in covered.items()) and len(wanted) == len(covered)

    # -- enumeration

    def table(self) -> dict[str, np.ndarray]:
        """The layout as the checker sees it: dimension → coordinates, an int64 array [wave, lane, element]."""
        inner, tables = self.inner, {}
        for dim in self.dims:
            cols = inner.coordinate_columns(dim)
            parts = [
                span_table([c for b, c in zip(inner.ins, cols) if kind_of(b) in kinds])
                for kinds in (("w",), ("l",), REGISTER_KINDS)
            ]
            box = parts[0][:, None, None] ^ parts[1][None, :, None] ^ parts[2][None, None, :]
            wave = self._digit_offsets(self.wave_digits, dim)
            reg = self._digit_offsets(self.reg_digits, dim)
            full = wave[:, None, None, None, None] + reg[None, None, None, :, None] + box[None, :, :, None, :]
            tables[dim] = full.reshape(self.waves, self.lanes, self.elements_per_lane)
        return tables

    def points(self) -> np.ndarray:
        """Every held coordinate: an int64 array [wave, lane, element, dimension], dimensions as in `extents`."""
        table = self.table()
        return np.stack([table[d] for d in self.dims], -1)

    def _digit_offsets(self, digits: Sequence[Digit], dim: str) -> np.ndarray:
        offsets = np.zeros(1, np.int64)
        for g in digits:
            step = self.step(g) if g.dim == dim else 0
            offsets = (offsets[:, None] + step * np.arange(g.extent)[None, :]).reshape(-1)
        return offsets

    # -- static parts

    def element_offsets(self) -> tuple[tuple[int, ...], ...]:
        """Per element index, the offset it adds along each dimension of `extents`; static, the same in every lane.

        Raises CompileError when a register bit shares a coordinate bit with a lane or wave bit: then no such offset
        exists.
        """
        found = self._memo.get("offsets")
        if found is None:
            inner = self.inner
            static = [i for i, b in enumerate(inner.ins) if kind_of(b) in REGISTER_KINDS]
            moving = 0
            for i, c in enumerate(inner.cols):
                if i not in static:
                    moving |= c
            if any(inner.cols[i] & moving for i in static):
                raise CompileError(f"{inner} has no static element offsets: registers and lanes share a coordinate bit")
            per_dim = []
            for dim in self.dims:
                cols = inner.coordinate_columns(dim)
                box = span_table([cols[i] for i in static])
                per_dim.append((self._digit_offsets(self.reg_digits, dim)[:, None] + box[None, :]).reshape(-1).tolist())
            found = self._memo["offsets"] = tuple(zip(*per_dim)) if per_dim else ((),) * self.elements_per_lane
        return found

    def coords(self, element_index: int) -> dict[str, int]:
        """What one element of the lane adds to each coordinate."""
        return dict(zip(self.dims, self.element_offsets()[element_index]))

    def element_at(self, offsets: Mapping[str, int]) -> int:
        """The first element index with these offsets (dimensions left out are ignored). Raises KeyError if none has
        them.

        Expansion finds its operands with this: A[m, k] of a lane is the element at the offsets of m and k.
        """
        wanted = tuple(d for d in self.dims if d in offsets)
        memo = self._memo.setdefault("element_at", {})
        index: dict[tuple[int, ...], int] = memo.get(wanted, {})
        if not index:
            axes = [self.dims.index(d) for d in wanted]
            for i, offset in enumerate(self.element_offsets()):
                index.setdefault(tuple(offset[a] for a in axes), i)
            memo[wanted] = index
        return index[tuple(offsets[d] for d in wanted)]

    def wave_offsets(self) -> tuple[tuple[int, ...], ...]:
        """Per wave index, the offset it adds along each dimension of `extents`."""
        found = self._memo.get("wave_offsets")
        if found is None:
            per_dim = []
            for dim in self.dims:
                cols = self.inner.coordinate_columns(dim)
                box = span_table([c for b, c in zip(self.inner.ins, cols) if kind_of(b) == "w"])
                digits = self._digit_offsets(self.wave_digits, dim)
                per_dim.append((digits[:, None] + box[None, :]).reshape(-1).tolist())
            found = self._memo["wave_offsets"] = tuple(zip(*per_dim)) if per_dim else ((),) * self.waves
        return found

    def lane_columns(self, dim: str) -> tuple[int, ...]:
        """Per lane bit, what it adds (by XOR inside the box) to the coordinate of `dim`."""
        memo = self.inner._memo.setdefault("lane_columns", {})
        found: tuple[int, ...] | None = memo.get(dim)
        if found is None:
            cols = self.inner.coordinate_columns(dim)
            found = memo[dim] = tuple(c for b, c in zip(self.inner.ins, cols) if kind_of(b) == "l")
        return found

    # -- derived layouts

    def project(self, dim: str) -> Layout:
        """The layout of a reduction over `dim`: its lane and wave bits become replicas, its registers disappear."""
        found: Layout | None = self._memo.setdefault("project", {}).get(dim)
        if found is None:
            found = self._memo["project"][dim] = self._projected(dim)
        return found

    def _projected(self, dim: str) -> Layout:
        gone = []
        for b, c, along in zip(self.inner.ins, self.inner.cols, self.inner.coordinate_columns(dim)):
            if along and kind_of(b) in REGISTER_KINDS:
                if self.inner.width(dim) and c & ~self._mask(dim):
                    raise CompileError(f"cannot reduce {dim} in registers: {name_of(b)} also moves another dimension")
                gone.append(b)
        rest = tuple(d for d in self.dims if d != dim)
        digits = []
        for g in self.digits:
            if g.dim != dim or not g.stride:
                digits.append(g)
            elif g.kind == "wave":
                digits.append(Digit("wave", g.extent, "", 0))
        inner = self.inner.without(gone).onto(*rest)
        return Layout(inner, tuple(digits), tuple((d, n) for d, n in self.extents if d != dim))

    def _mask(self, dim: str) -> int:
        return sum(1 << j for j, o in enumerate(self.inner.outs) if kind_of(o) == dim)

    def relabel(self, dims: Mapping[str, str]) -> Layout:
        """Dimensions renamed; the order of `extents` is kept."""
        digits = tuple(Digit(g.kind, g.extent, dims.get(g.dim, g.dim), g.stride) for g in self.digits)
        return Layout(self.inner.relabel(dims), digits, tuple((dims.get(d, d), n) for d, n in self.extents))

    def reorder(self, dims: Sequence[str]) -> Layout:
        """The same layout with its dimensions listed in another order."""
        sizes = dict(self.extents)
        return Layout(self.inner, self.digits, tuple((d, sizes[d]) for d in dims))

    def __repr__(self) -> str:
        digits = " ".join(f"{g.kind}({g.extent}x{g.dim or '-'}+{self.step(g)})" for g in self.digits)
        return f"Layout({self.inner}{' ' + digits if digits else ''} {dict(self.extents)})"


def make_layout(inner: Bits, digits: Iterable[Digit] = (), extents: Mapping[str, int] | None = None) -> Layout:
    """A layout; without `extents` they are what inner and digits cover (box times the digits of each dimension)."""
    digits = tuple(digits)
    if extents is None:
        extents = {d: 1 << inner.width(d) for d in inner.dims}
        for g in digits:
            if g.stride:
                extents[g.dim] = extents.get(g.dim, 1) * g.extent
    return Layout(inner, digits, tuple(extents.items()))
