"""Layouts: which lane and register holds which element of a value.

Comes in: bit strings of matrix-instruction and copy fragments. Goes out: `Bits`, linear maps over GF(2) with named
bits, and `Layout`, a `Bits` on a box of 2^k elements per dimension with mixed-radix `Digit`s outside the box.

The idea: everything a chip fixes about lanes is a power of two and linear over GF(2), so composition, inverse, rank and
conflicts are a few XORs on integers; everything that is not a power of two is a repeat count over registers or waves,
so it is a digit and never touches a lane.

Input bits by kind: `e` element of the fragment, `r` register above the fragment, `l` lane, `w` wave (`L`, `x` in load
atoms: the lane that supplies an address, the element of its piece). Output bits: a dimension's name and a bit number. A
bit is an int, `kind code << 6 | number`; names appear only in constructors and in print. The name of bit 3 of `M` is
`M3`; where the kind itself ends in a digit a dot separates them: bit 3 of `N1` is `N1.3`.

Invariants: a `Bits` is interned, so equality is identity; nothing depends on the order in which kinds were first seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from wavedsl.ir.errors import CompileError

# ---- bits ------------------------------------------------------------------------------------------------------------

_NUMBER_BITS = 6
_CODE_OF: dict[str, int] = {}
_KIND_OF: dict[int, str] = {}
_BIT_OF: dict[str, int] = {}
REGISTER_KINDS = ("e", "r")
INPUT_ORDER = {"e": 0, "r": 1, "l": 2, "w": 3}
"""Canonical order of input bits; other kinds follow in order of their names."""


def bit(kind: str, number: int) -> int:
    """The bit `number` of `kind`: `bit("l", 3)` is lane bit 3. The code is the kind's spelling, hence deterministic."""
    code = _CODE_OF.get(kind)
    if code is None:
        if not kind or "." in kind:
            raise CompileError(f"a bit needs a kind without dots, not {kind!r}")
        code = _CODE_OF[kind] = int.from_bytes(kind.encode(), "big")
        _KIND_OF[code] = kind
    if not 0 <= number < 1 << _NUMBER_BITS:
        raise CompileError(f"bit number {number} of {kind} is outside 0..{(1 << _NUMBER_BITS) - 1}")
    return code << _NUMBER_BITS | number


def kind_of(b: int) -> str:
    """The kind of a bit, such as `l` or a dimension's name."""
    return _KIND_OF[b >> _NUMBER_BITS]


def number_of(b: int) -> int:
    """The number of a bit within its kind."""
    return b & (1 << _NUMBER_BITS) - 1


def name_of(b: int) -> str:
    """How a bit prints: `l3`, `M0`, `N1.3`."""
    kind = kind_of(b)
    return f"{kind}.{number_of(b)}" if kind[-1].isdigit() else f"{kind}{number_of(b)}"


def parse_bit(name: str) -> int:
    """The bit that a name such as `l3` or `N1.3` stands for. Raises CompileError on anything else."""
    found = _BIT_OF.get(name)
    if found is None:
        kind, dot, digits = name.rpartition(".")
        if not dot:
            kind = name.rstrip("0123456789")
            digits = name[len(kind) :]
        if not kind or not digits.isdigit():
            raise CompileError(f"{name!r} is not a bit name", hint="a kind followed by a number, such as l3 or N1.3")
        found = _BIT_OF[name] = bit(kind, int(digits))
    return found


def _order(b: int) -> tuple[int, str, int]:
    kind = kind_of(b)
    return INPUT_ORDER.get(kind, len(INPUT_ORDER)), kind, number_of(b)


def _as_bits(names: Iterable[int | str]) -> tuple[int, ...]:
    listed = tuple(names)
    if all(type(b) is int for b in listed):
        return listed  # type: ignore[return-value]
    return tuple(parse_bit(b) if isinstance(b, str) else b for b in listed)


def xor_all(words: Iterable[int]) -> int:
    """XOR of all words."""
    total = 0
    for word in words:
        total ^= word
    return total


def rank(columns: Iterable[int]) -> int:
    """Dimension of the space the columns span over GF(2)."""
    basis: dict[int, int] = {}
    for column in columns:
        while column:  # reduce by leading bits until it vanishes or leads where none did
            lead = column.bit_length()
            known = basis.get(lead)
            if known is None:
                basis[lead] = column
                break
            column ^= known
    return len(basis)


def span_table(columns: Sequence[int]) -> np.ndarray:
    """Image of every input word: entry w is the XOR of `columns[i]` over the set bits i of w (int64)."""
    table = np.zeros(1, np.int64)
    for column in columns:
        table = np.concatenate((table, table ^ column))
    return table


# ---- linear maps -----------------------------------------------------------------------------------------------------


class Bits:
    """A linear map over GF(2): bit j of `cols[i]` says whether input bit `ins[i]` drives output bit `outs[j]`.

    Interned: two equal maps are the same object, so every derived fact is computed once. An input bit whose column is
    zero holds replicas.
    """

    __slots__ = ("_hash", "_memo", "cols", "ins", "outs")
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    cols: tuple[int, ...]
    _hash: int
    _memo: dict[Any, Any]
    _all: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], Bits] = {}  # noqa: RUF012

    def __new__(cls, ins: Iterable[int | str], outs: Iterable[int | str], cols: Iterable[int]) -> Bits:
        key = (_as_bits(ins), _as_bits(outs), tuple(cols))
        self = cls._all.get(key)
        if self is None:
            if len(key[0]) != len(key[2]):
                raise CompileError(f"{len(key[0])} input bits need as many columns, not {len(key[2])}")
            if len(set(key[0])) != len(key[0]) or len(set(key[1])) != len(key[1]):
                raise CompileError("a linear map names a bit twice")
            if any(c >> len(key[1]) for c in key[2]):
                raise CompileError("a column has bits beyond the outputs")
            self = object.__new__(cls)
            set_slot = object.__setattr__
            set_slot(self, "ins", key[0])
            set_slot(self, "outs", key[1])
            set_slot(self, "cols", key[2])
            set_slot(self, "_hash", hash(key))
            set_slot(self, "_memo", {})
            cls._all[key] = self
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("Bits is immutable")

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Bits, (tuple(map(name_of, self.ins)), tuple(map(name_of, self.outs)), self.cols)

    def __repr__(self) -> str:
        drive = {o: [name_of(b) for b, c in zip(self.ins, self.cols) if c >> j & 1] for j, o in enumerate(self.outs)}
        parts: dict[str, list[str]] = {}
        for o in sorted(self.outs, key=lambda o: (self.dims.index(kind_of(o)), number_of(o))):
            parts.setdefault(kind_of(o), []).append("^".join(drive[o]) or "0")
        idle = [name_of(b) for b, c in zip(self.ins, self.cols) if not c]
        text = " ".join(f'{d}="{" ".join(bits)}"' for d, bits in parts.items())
        return f"<{text}{' free=' + ','.join(idle) if idle else ''}>"

    # -- facts

    @property
    def dims(self) -> tuple[str, ...]:
        """Kinds of the output bits in order of first appearance."""
        return tuple(dict.fromkeys(kind_of(o) for o in self.outs))

    def width(self, dim: str) -> int:
        """Output bits of a dimension."""
        code = _CODE_OF.get(dim, -1)
        return sum(o >> _NUMBER_BITS == code for o in self.outs)

    def count(self, *kinds: str) -> int:
        """Input bits of these kinds."""
        return sum(kind_of(b) in kinds for b in self.ins)

    def rank(self) -> int:
        """Rank over GF(2)."""
        found = self._memo.get("rank")
        if found is None:
            found = self._memo["rank"] = rank(self.cols)
        return found

    def bijective(self) -> bool:
        """Every output word has exactly one input word."""
        return len(self.ins) == len(self.outs) == self.rank()

    def monomial(self) -> bool:
        """Every output bit is fed by at most one input bit and no input bit feeds two: XOR is then addition."""
        used = 0
        for c in self.cols:
            if c & (c - 1) or c & used:
                return False
            used |= c
        return True

    def src(self) -> dict[int, int]:
        """Output bit → the input bit that drives it. Raises CompileError unless the map is monomial."""
        found = self._memo.get("src")
        if found is None:
            if not self.monomial():
                raise CompileError(f"{self} is not monomial: some bit has several sources")
            found = self._memo["src"] = {self.outs[c.bit_length() - 1]: b for b, c in zip(self.ins, self.cols) if c}
        return found

    def column(self, b: int | str) -> int:
        """Image of one input bit; 0 for a bit the map does not read."""
        index = self._memo.get("column")
        if index is None:
            index = self._memo["column"] = dict(zip(self.ins, self.cols))
        return index.get(parse_bit(b) if isinstance(b, str) else b, 0)

    def coordinate_columns(self, dim: str) -> tuple[int, ...]:
        """Per input bit, what it contributes (by XOR) to the coordinate of `dim`."""
        memo = self._memo.setdefault("coordinate", {})
        found = memo.get(dim)
        if found is None:
            code = _CODE_OF.get(dim, -1)
            weight = [(j, 1 << number_of(o)) for j, o in enumerate(self.outs) if o >> _NUMBER_BITS == code]
            found = memo[dim] = tuple(sum(w for j, w in weight if c >> j & 1) for c in self.cols)
        return found

    # -- evaluation

    def __call__(self, word: int) -> int:
        """Image of one input word (bit i of it is `ins[i]`)."""
        return xor_all(c for i, c in enumerate(self.cols) if word >> i & 1)

    def apply(self, words: np.ndarray) -> np.ndarray:
        """Images of an array of input words (int64)."""
        words = np.asarray(words, np.int64)
        image = np.zeros_like(words)
        for i, c in enumerate(self.cols):
            if c:
                image ^= (words >> i & 1) * c
        return image

    def at(self, **values: int) -> dict[str, int]:
        """Coordinates at named input values: `at(l=35, e=1)`; kinds left out are 0."""
        word = self(sum((values.get(kind_of(b), 0) >> number_of(b) & 1) << i for i, b in enumerate(self.ins)))
        coords = dict.fromkeys(self.dims, 0)
        for j, o in enumerate(self.outs):
            coords[kind_of(o)] |= (word >> j & 1) << number_of(o)
        return coords

    # -- operations

    def then(self, after: Bits) -> Bits:
        """`after` applied to the result of this map, joined by bit; outputs that `after` does not read are dropped."""
        memo = self._memo.setdefault("then", {})
        found = memo.get(after)
        if found is None:
            images = [after.column(o) for o in self.outs]
            cols = tuple(xor_all(image for j, image in enumerate(images) if c >> j & 1) for c in self.cols)
            found = memo[after] = Bits(self.ins, after.outs, cols)
        return found

    def inverse(self) -> Bits:
        """The inverse map. Raises CompileError unless the map is bijective."""
        found = self._memo.get("inverse")
        if found is None:
            n = len(self.ins)
            if len(self.outs) != n:
                raise CompileError(f"{self} has no inverse: {n} input bits, {len(self.outs)} output bits")
            rows = [(c, 1 << i) for i, c in enumerate(self.cols)]
            for j in range(n):
                pivot = next((k for k in range(j, n) if rows[k][0] >> j & 1), None)
                if pivot is None:
                    raise CompileError(f"{self} has no inverse: its rank is {self.rank()} of {n}")
                rows[j], rows[pivot] = rows[pivot], rows[j]
                column, combination = rows[j]
                rows = [
                    (c ^ column, t ^ combination) if k != j and c >> j & 1 else (c, t) for k, (c, t) in enumerate(rows)
                ]
            found = self._memo["inverse"] = Bits(self.outs, self.ins, tuple(t for _, t in rows))
        return found

    def rename(self, mapping: Mapping[str, str] | Mapping[int, int]) -> Bits:
        """Input and output bits renamed; bits not mentioned keep their names."""
        table = {_as_bits((a,))[0]: _as_bits((b,))[0] for a, b in mapping.items()}
        return Bits((table.get(b, b) for b in self.ins), (table.get(b, b) for b in self.outs), self.cols)

    def rekind(self, old: str, new: str) -> Bits:
        """Input bits of one kind given another: lanes that hold (`l`) become lanes that supply addresses (`L`)."""
        memo = self._memo.setdefault("rekind", {})
        found = memo.get((old, new))
        if found is None:
            ins = (bit(new, number_of(b)) if kind_of(b) == old else b for b in self.ins)
            found = memo[old, new] = Bits(ins, self.outs, self.cols)
        return found

    def relabel(self, dims: Mapping[str, str]) -> Bits:
        """Output dimensions renamed: `relabel({"M": "N", "N": "M"})` transposes."""
        outs = (bit(dims[kind_of(o)], number_of(o)) if kind_of(o) in dims else o for o in self.outs)
        return Bits(self.ins, outs, self.cols)

    def only(self, *kinds: str) -> Bits:
        """Restriction to input bits of these kinds; the others are taken as 0."""
        memo = self._memo.setdefault("only", {})
        found = memo.get(kinds)
        if found is None:
            keep = [i for i, b in enumerate(self.ins) if kind_of(b) in kinds]
            found = memo[kinds] = Bits((self.ins[i] for i in keep), self.outs, (self.cols[i] for i in keep))
        return found

    def without(self, bits: Iterable[int]) -> Bits:
        """Restriction to the other input bits; `bits` are taken as 0."""
        gone = frozenset(bits)
        memo = self._memo.setdefault("without", {})
        found = memo.get(gone)
        if found is None:
            keep = [i for i, b in enumerate(self.ins) if b not in gone]
            found = memo[gone] = Bits((self.ins[i] for i in keep), self.outs, (self.cols[i] for i in keep))
        return found

    def onto(self, *dims: str) -> Bits:
        """Projection on these output dimensions; input bits that drove only others become replicas."""
        keep = [j for j, o in enumerate(self.outs) if kind_of(o) in dims]
        cols = (sum((c >> j & 1) << n for n, j in enumerate(keep)) for c in self.cols)
        return Bits(self.ins, (self.outs[j] for j in keep), cols)

    def append(self, dim: str, names: str) -> Bits:
        """More input bits on top of a dimension: `append("M", "r0 w0")` doubles its extent twice. Bars are ignored."""
        added = _as_bits(names.replace("|", " ").split())
        start, n = self.width(dim), len(self.outs)
        outs = self.outs + tuple(bit(dim, start + i) for i in range(len(added)))
        return Bits(self.ins + added, outs, self.cols + tuple(1 << n + i for i in range(len(added)))).canonical()

    def canonical(self) -> Bits:
        """The same map with its input bits in canonical order: e, r, l, w, others."""
        order = sorted(range(len(self.ins)), key=lambda i: _order(self.ins[i]))
        return Bits((self.ins[i] for i in order), self.outs, (self.cols[i] for i in order))


def spec(dims: Mapping[str, str] | None = None, /, *, free: str = "", **more: str) -> Bits:
    """A map from strings: for each coordinate, from bit 0 up, the input bit that drives it.

    `spec(M="l0 l1 l2 l3", K="e0 e1 l4 l5")`; `l0^l3` joins two bits by XOR, `0` is a coordinate bit nobody drives, bars
    are ignored, `free` lists replica bits. Input bits come out in canonical order. Raises CompileError on a malformed
    name.
    """
    return _spec(tuple((dims or {}).items()) + tuple(more.items()), free)


@cache
def _spec(dims: tuple[tuple[str, str], ...], free: str) -> Bits:
    outs: list[int] = []
    columns: dict[int, int] = dict.fromkeys(_as_bits(free.split()), 0)
    for dim, text in dims:
        for number, term in enumerate(text.replace("|", " ").split()):
            if term != "0":
                for source in term.split("^"):
                    b = parse_bit(source)
                    columns[b] = columns.get(b, 0) ^ 1 << len(outs)
            outs.append(bit(dim, number))
    ins = sorted(columns, key=_order)
    return Bits(ins, outs, (columns[b] for b in ins))


def with_bits(dims: Mapping[str, str]) -> dict[str, str]:
    """The dimensions of a `spec` that have bits: one without has a single element and is left out of a layout."""
    return {d: names for d, names in dims.items() if names.strip()}


def identity(kind: str, dim: str, width: int) -> Bits:
    """Coordinate bit i of `dim` is input bit i of `kind`."""
    numbers = range(width)
    return Bits((bit(kind, i) for i in numbers), (bit(dim, i) for i in numbers), (1 << i for i in numbers))


# ---- layouts ---------------------------------------------------------------------------------------------------------


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
        strange = [name_of(b) for b in self.inner.ins if kind_of(b) not in INPUT_ORDER]
        if strange:
            raise CompileError(f"a layout has e, r, l and w bits, not {', '.join(strange)}")
        canonical = self.inner.canonical()
        if canonical is not self.inner:
            object.__setattr__(self, "inner", canonical)
        known = {d for d, _ in self.extents}
        lost = [d for d in (*self.inner.dims, *(g.dim for g in self.digits if g.stride)) if d not in known]
        if lost:
            raise CompileError(f"the layout has no extent for {', '.join(dict.fromkeys(lost))}")

    # -- sizes

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(d for d, _ in self.extents)

    def box(self, dim: str) -> int:
        """Elements of the power-of-two box along `dim`."""
        return 1 << self.inner.width(dim)

    def step(self, digit: Digit) -> int:
        """Elements that one count of a digit moves along its dimension."""
        return digit.stride * self.box(digit.dim) if digit.stride else 0

    @property
    def reg_digits(self) -> tuple[Digit, ...]:
        return tuple(g for g in self.digits if g.kind == "reg")

    @property
    def wave_digits(self) -> tuple[Digit, ...]:
        return tuple(g for g in self.digits if g.kind == "wave")

    @property
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
        cols = self.inner.coordinate_columns(dim)
        return tuple(c for b, c in zip(self.inner.ins, cols) if kind_of(b) == "l")

    # -- derived layouts

    def project(self, dim: str) -> Layout:
        """The layout of a reduction over `dim`: its lane and wave bits become replicas, its registers disappear."""
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


# ---- the free contraction index --------------------------------------------------------------------------------------


def unify_k(producer: Bits, port: Bits, contraction: str) -> tuple[dict[int, int], dict[int, int]] | None:
    """Can registers of `producer` be used unmoved as operand `port` of a matrix instruction, if K may be permuted?

    D = A B does not change under a permutation of the contraction index that both operands share, so lane bits of the
    port must only address the *same* coordinate outside K, and *some* bit of K inside it. Returns (`pi`: K bit of the
    port → K bit of the producer; `registers`: e bit of the port → register bit of the producer), or None when lanes
    disagree. Both maps must be monomial. Register bits of the producer that the port has no place for stay as further
    k-steps.
    """
    source, wanted = producer.src(), port.src()
    image = {b: o for o, b in source.items()}
    pi: dict[int, int] = {}
    registers: dict[int, int] = {}
    spare = [
        b for b in producer.ins if kind_of(b) in REGISTER_KINDS and b in image and kind_of(image[b]) == contraction
    ]
    for o, b in wanted.items():
        inside = kind_of(o) == contraction
        if kind_of(b) not in REGISTER_KINDS:
            held = image.get(b)
            if held is None or (kind_of(held) != contraction if inside else held != o):
                return None
            if inside:
                pi[o] = held
        elif not inside:
            held_by = source.get(o)
            if held_by is None or kind_of(held_by) not in REGISTER_KINDS:
                return None
            registers[b] = held_by
    for o, b in wanted.items():
        if kind_of(b) in REGISTER_KINDS and kind_of(o) == contraction:
            if not spare:
                return None
            registers[b] = spare.pop(0)
            pi[o] = image[registers[b]]
    return pi, registers
