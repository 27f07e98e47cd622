"""Linear maps over GF(2) with named bits: what a chip fixes about lanes, registers and addresses.

Comes in: bit strings of matrix-instruction and copy fragments. Goes out: `Bits`. Everything that a chip fixes is a
power of two and linear over GF(2), so composition, inverse, rank and conflicts are a few XORs on integers.

Input bits by kind: `e` element of the fragment, `r` register above the fragment, `l` lane, `w` wave (`L`, `x` in load
atoms: the lane that supplies an address, the element of its piece). Output bits: a dimension's name and a bit number.
A bit is an int, `kind code << 6 | number`; names appear only in constructors and in print. The name of bit 3 of `M`
is `M3`; where the kind itself ends in a digit a dot separates them: bit 3 of `N1` is `N1.3`.

Invariants: a `Bits` is interned, so equality is identity; nothing depends on the order in which kinds were first
seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def column_fields(columns: Sequence[int], xor: bool) -> dict[tuple[int, int], int]:
    """(shift, scale) → mask, so that columns of consecutive source bits are `((x & mask) << shift) * scale`, combined.

    By XOR every bit of a column is its own field; by addition a column is an odd scale times a power of two.
    """
    masks: dict[tuple[int, int], int] = {}
    for i, c in enumerate(columns):
        if xor:
            while c:
                low = c & -c
                key = (low.bit_length() - 1 - i, 1)
                masks[key] = masks.get(key, 0) | 1 << i
                c ^= low
        elif c:
            low = c & -c
            key = (low.bit_length() - 1 - i, c // low)
            masks[key] = masks.get(key, 0) | 1 << i
    return masks


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
        found = self._memo.get("dims")
        if found is None:
            found = self._memo["dims"] = tuple(dict.fromkeys(kind_of(o) for o in self.outs))
        return found

    @property
    def input_kinds(self) -> frozenset[str]:
        """Kinds of the input bits."""
        found: frozenset[str] | None = self._memo.get("input_kinds")
        if found is None:
            found = self._memo["input_kinds"] = frozenset(map(kind_of, self.ins))
        return found

    def width(self, dim: str) -> int:
        """Output bits of a dimension."""
        memo = self._memo.setdefault("width", {})
        found = memo.get(dim)
        if found is None:
            code = _CODE_OF.get(dim, -1)
            found = memo[dim] = sum(o >> _NUMBER_BITS == code for o in self.outs)
        return found

    def count(self, *kinds: str) -> int:
        """Input bits of these kinds."""
        memo = self._memo.setdefault("count", {})
        found = memo.get(kinds)
        if found is None:
            found = memo[kinds] = sum(kind_of(b) in kinds for b in self.ins)
        return found

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
        memo = self._memo.setdefault("onto", {})
        found = memo.get(dims)
        if found is None:
            keep = [j for j, o in enumerate(self.outs) if kind_of(o) in dims]
            cols = (sum((c >> j & 1) << n for n, j in enumerate(keep)) for c in self.cols)
            found = memo[dims] = Bits(self.ins, (self.outs[j] for j in keep), cols)
        return found

    def append(self, dim: str, names: str) -> Bits:
        """More input bits on top of a dimension: `append("M", "r0 w0")` doubles its extent twice. Bars are ignored."""
        added = _as_bits(names.replace("|", " ").split())
        start, n = self.width(dim), len(self.outs)
        outs = self.outs + tuple(bit(dim, start + i) for i in range(len(added)))
        return Bits(self.ins + added, outs, self.cols + tuple(1 << n + i for i in range(len(added)))).canonical()

    def canonical(self) -> Bits:
        """The same map with its input bits in canonical order: e, r, l, w, others."""
        found = self._memo.get("canonical")
        if found is None:
            order = sorted(range(len(self.ins)), key=lambda i: _order(self.ins[i]))
            found = Bits((self.ins[i] for i in order), self.outs, (self.cols[i] for i in order))
            self._memo["canonical"] = found
        return found


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
