"""Words of two halves or four bytes in few steps: from packed small numbers, or by arithmetic on pairs.

In: the two f32 numbers, or four integers, that a word is packed of. Out: a word that holds the same bits, or None where
it would take single numbers. The idea: what packs two numbers sees from which words they were unpacked.

(ROUNDED-ONCE) A sum, difference, product, minimum or maximum of two halves that is rounded from f32 is the one that is
rounded at once: f32 has more than twice the bits and two of f16 and of bf16 (Figueroa, "When is double rounding
innocuous?", 1995), and a product of theirs that f32 does not hold exactly is below half of their least number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.kernel_ir import B32, I32, Op, Value

if TYPE_CHECKING:
    from wavedsl.ir.kernel.build_values import Values

OPERATIONS = ("fadd", "fsub", "fmul", "fmin", "fmax")
HALVES = ("f16", "bf16")
WHOLE = {"f16": 1024, "bf16": 128}
"""A type's integers are exact up to twice this."""
Place = tuple[Value, DType, int]
"""An element of a packed word."""
Picked = Value | tuple[Value, Value, int]
"""A word, or the two that its bytes are picked from and their numbers."""


def packed_pair(b: Values, values: Sequence[Value], dtype: DType) -> Value | None:
    """The word that two numbers are packed to, without single numbers on the way; None where there is no such way."""
    if b.target is None or dtype.name not in HALVES:
        return None
    if b.target.pairs and all(v.const is not None for v in values):
        return constant_word(b, values, dtype)
    found = _widened(b, values, dtype)
    if found is None and all(v.op is not None and v.op.name == "unpack" for v in values):
        picked = _word(b, values, dtype)
        return b.permute_bytes(*picked) if isinstance(picked, tuple) else picked
    return found if found is not None else _computed(b, values, dtype)


def _widened(b: Values, values: Sequence[Value], dtype: DType) -> Value | None:
    """Two neighbours of a packed word of small numbers, or integers with the same constant added."""
    found: list[Place] = []
    added = []
    for v in values:
        place, more = b.small.get(v.id), 0
        if place is None and v.op is not None:
            if v.op.name == "cvt":
                place, more = _integer(v.op.args[0], bool(v.op.attrs.get("unsigned")))
            elif v.op.name == "unpack" and v.op.attrs["dtype"].is_float:
                place = v.op.args[0], v.op.attrs["dtype"], v.op.attrs["index"]
        if place is None:
            return None
        found.append(place)
        added.append(more)
    (word, source, index), second = found
    assert b.target is not None
    if index % 2 or second != (word, source, index + 1) or (source.name, dtype.name) not in b.target.widens:
        return None
    if added[0] != added[1] or (added[0] and ("fadd", dtype.name) not in b.target.pairs):
        return None
    if added[0] and (1 << source.bits - source.is_signed) + abs(added[0]) > 2 * WHOLE[dtype.name]:
        return None
    word, index = loaded(word, source, index)
    word = word if word.type is B32 else b.bitcast(word, B32)
    made = b._pure("widen", (word,), B32, {"source": source, "dtype": dtype, "index": index})
    if not added[0]:
        return made
    constant = b.const(int(np.array(added[0], dtype.numpy).view(np.uint16)) * 0x10001, B32)
    return b._pure("pair", (made, constant), B32, {"operation": "fadd", "dtype": dtype})


def packed_bytes(b: Values, values: Sequence[Value], dtype: DType) -> Value | None:
    """The word of four bytes that are neighbours of a packed word of 4-bit integers; None where they are not.

    Bytes and the bytes that are shifted by four alternate, and their lower halves are the numbers. Of a number with a
    sign that is flipped, which adds 8, 8 is subtracted: the highest bit, set before and flipped behind, keeps bytes
    from borrowing of each other.
    """
    op = values[0].op
    if dtype not in (dt.i8, dt.u8) or op is None or op.name != "unpack" or op.attrs["dtype"] not in dt.INT4:
        return None
    word, source, first = op.args[0], op.attrs["dtype"], op.attrs["index"]
    for i, v in enumerate(values):
        attrs = {"dtype": source, "index": first + i}
        if v.op is None or v.op.name != "unpack" or v.op.args != op.args or v.op.attrs != attrs:
            return None
    word, first = loaded(word, source, first, 4) if first % 4 == 0 else (word, first)
    if first % 4:
        return None
    bits = b.bitcast(word, I32)
    upper = b.bitcast(b.lshr(bits, 4), B32)
    spread = b.permute_bytes(upper, b.bitcast(bits, B32), 0x05010400 + 0x02020202 * (first // 4))
    lower = b.and_(b.bitcast(spread, I32), 0x0F0F0F0F)
    if source is dt.i4:
        lower = b.xor(b.sub(b.xor(lower, b.i32(-0x77777778)), 0x08080808), b.i32(-0x7F7F7F80))
    return b.bitcast(lower, B32)


def _integer(x: Value, unsigned: bool) -> tuple[Place | None, int]:
    """Where an integer that is converted lies, and the constant added to it: a number of a packed dtype, or four bits
    that shifts and masks take out of a byte or a word."""
    added = 0
    if x.op is not None and x.op.name == "add":
        constant = x.op.args[1].const
        if constant is None or unsigned:
            return None, 0
        x, added = x.op.args[0], int(constant)
    if x.op is None or x.type is not I32:
        return None, 0
    if x.op.name == "unpack":
        return (x.op.args[0], x.op.attrs["dtype"], x.op.attrs["index"]), added
    masked = x.op.name == "and" and x.op.args[1].const == 15
    if masked:
        x = x.op.args[0]
    shift, signed = 0, False
    if x.op is not None and x.op.name in ("lshr", "ashr") and x.op.args[1].const is not None:
        shift, signed, x = int(x.op.args[1].const), x.op.name == "ashr", x.op.args[0]
    bits, first, word = 32, 0, x
    if x.op is not None and x.op.name == "unpack":
        of: DType = x.op.attrs["dtype"]
        bits, first, word = of.bits, x.op.attrs["index"] * of.bits, x.op.args[0]
        signed = signed or of.kind == "int"
    if shift % 4 or shift + 4 > bits or bits == 4 or not (masked or (shift + 4 == bits and not signed)):
        return None, 0
    return (word, dt.u4, (first + shift) // 4), added


def loaded(word: Value, source: DType, index: int, count: int = 2) -> tuple[Value, int]:
    """Where a pair, or `count`, of small numbers was before narrow loads were joined to a word: (word, index there);
    as given where they did not come together."""
    op = word.op
    if op is None or op.name != "permute_bytes":
        return word, index
    first = index * source.bits // 8
    places = [op.attrs["selector"] >> 8 * (first + i) & 7 for i in range(count * source.bits // 8)]
    if places[0] % len(places) or any(p != places[0] + i for i, p in enumerate(places)):
        return word, index
    return loaded(op.args[0 if places[0] > 3 else 1], source, places[0] % 4 * 8 // source.bits, count)


def repeated(word: Value, dtype: DType, index: int) -> tuple[Value, int]:
    """Where an element of whole bytes was before it was repeated in its word: what is computed of all of them is then
    computed once. As given where no other element of the word is the same."""
    if word.op is None or word.op.name != "permute_bytes" or dtype.bits not in (8, 16):
        return word, index
    origins = [loaded(word, dtype, i, 1) for i in range(32 // dtype.bits)]
    return origins[index] if origins.count(origins[index]) > 1 else (word, index)


def before_permuting(word: Value, selector: int) -> tuple[Value, Value, int] | None:
    """(hi, lo, selector) that bytes of a word are picked by where they were permuted before; None where they were
    not."""
    if word.op is None or word.op.name != "permute_bytes":
        return None
    hi, lo = word.op.args
    picked = [word.op.attrs["selector"] >> 8 * (selector >> 8 * i & 3) & 7 for i in range(4)]
    return hi, lo, sum(place << 8 * i for i, place in enumerate(picked))


def _computed(b: Values, values: Sequence[Value], dtype: DType) -> Value | None:
    """Two results of one operation on elements of words of the same type, or on constants."""
    ops = [v.op for v in values]
    assert b.target is not None
    if any(op is None for op in ops):
        return None
    first, second = (op for op in ops if op is not None)
    if first.name != second.name or first.name not in OPERATIONS or first.attrs or second.attrs:
        return None
    if (first.name, dtype.name) not in b.target.pairs:
        return None
    orders = [(first.args, second.args)]
    if first.row.commutes:
        orders.append((first.args, second.args[::-1]))
    found: list[list[Picked]] = []
    for left, right in orders:
        words = [w for pair in zip(left, right) if (w := _word(b, pair, dtype)) is not None]
        if len(words) == len(left) and sum(isinstance(w, tuple) for w in words) < 2:
            found.append(words)
    if not found:
        return None
    best = min(found, key=lambda words: sum(isinstance(w, tuple) for w in words))
    made = tuple(b.permute_bytes(*w) if isinstance(w, tuple) else w for w in best)
    return b._pure("pair", made, B32, {"operation": first.name, "dtype": dtype})


def _word(b: Values, pair: Sequence[Value], dtype: DType) -> Picked | None:
    """A word of two numbers that were both unpacked or are constant; None where they were not."""
    if all(v.const is not None for v in pair):
        return constant_word(b, pair, dtype)
    places: list[tuple[Value, int]] = []
    for v in pair:
        if v.op is None or v.op.name != "unpack" or v.op.attrs["dtype"] is not dtype:
            return None
        places.append((v.op.args[0], v.op.attrs["index"]))
    (low, i), (high, j) = places
    if low is high and (i, j) == (0, 1):
        return low
    start = (2 * i, 4 + 2 * j if high is not low else 2 * j)
    selector = sum(p + at << 8 * (2 * k + at) for k, p in enumerate(start) for at in (0, 1))
    return high, low, selector


def constant_word(b: Values, pair: Sequence[Value], dtype: DType) -> Value | None:
    """A word of two constants, where both are numbers of `dtype`."""
    wide = np.array([v.const for v in pair], np.float64)
    with np.errstate(over="ignore"):
        held = wide.astype(dtype.numpy)
    same = np.array_equal(held.astype(np.float64), wide)
    return b.const(int(held.view(np.uint32)[0]), B32) if same else None


def added_to(pair: Value, users: Sequence[Op]) -> int:
    """A whole number that everything adds to both numbers of a pair; 0 where there is none."""
    found = {_constant_of(user, pair) for user in users}
    constant = found.pop() if len(found) == 1 else None
    return 0 if constant is None or constant != constant // 1 else int(constant)


def _constant_of(user: Op, pair: Value) -> float | None:
    """What a sum or difference adds to both numbers of a pair; None of anything else."""
    if user.name != "pair" or user.attrs["operation"] not in ("fadd", "fsub"):
        return None
    minus = user.attrs["operation"] == "fsub"
    other = user.args[1] if user.args[0] is pair else user.args[0]
    if not isinstance(other.const, int) or (minus and other is user.args[0]):
        return None
    low, high = (other.const >> shift & 0xFFFF for shift in (0, 16))
    number = float(np.array(low, np.uint16).view(user.attrs["dtype"].numpy))
    return None if low != high else -number if minus else number


__all__ = ["added_to", "before_permuting", "constant_word", "loaded", "packed_bytes", "packed_pair", "repeated"]
