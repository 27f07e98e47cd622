"""Words of two halves: what an op of the kernel IR means, and where pairs of small numbers were before joins."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir import dtypes as dt
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.half_pairs import OPERATIONS, loaded
from wavedsl.ir.kernel.kernel_ir import B32, F32, Op, Value
from wavedsl.ir.kernel.kernel_meaning import TYPED
from wavedsl.ir.kernel.raised_pairs import fits, raised

from wavedsl.targets import get_target


@pytest.mark.parametrize("operation", OPERATIONS)
def test_meaning(operation: str) -> None:
    meaning = {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fmin": np.fmin, "fmax": np.fmax}[operation]
    x, y = (np.random.default_rng(i).standard_normal(64).astype(np.float16) for i in (1, 2))
    op = Op("pair", (), {"operation": operation, "dtype": dt.f16})
    got = TYPED["pair"](op, x.view(np.uint32), y.view(np.uint32))
    np.testing.assert_array_equal(got.view(np.float16), meaning(x, y))


def test_pairs_are_found_in_front_of_joins() -> None:
    """Two loads of two bytes, and of four bytes two by two; a pair that a join takes apart stays where it is."""
    b = Builder(new_kernel())
    words = [b.load_shared(b.mul(b.lane(), 4), bytes=2, type=B32, imm=4 * i) for i in range(4)]
    joined = b.permute_bytes(words[1], words[0], 0x05040100)
    assert loaded(joined, dt.i8, 0) == (words[0], 0) and loaded(joined, dt.i8, 2) == (words[1], 0)
    assert loaded(joined, dt.i4, 2) == (words[0], 2) and loaded(joined, dt.i4, 6) == (words[1], 2)
    bytes_ = b.permute_bytes(
        b.permute_bytes(words[3], words[2], 0x0400), b.permute_bytes(words[1], words[0], 0x0400), 0x05040100
    )
    assert [loaded(bytes_, dt.u4, i) for i in (0, 2, 4, 6)] == [(w, 0) for w in words]
    assert loaded(bytes_, dt.u8, 0)[0] is not words[0]
    turned = b.permute_bytes(words[1], words[0], 0x00010405)
    assert loaded(turned, dt.i8, 0) == (turned, 0)


def test_what_is_repeated_in_a_word_is_one_number() -> None:
    """Also where its bytes were permuted twice; elements that are there once stay where they are."""
    b = Builder(new_kernel())
    word = b.load_shared(b.mul(b.lane(), 4), type=B32)
    four = b.permute_bytes(word, word, 0x02020202)
    assert len({b.unpack(four, dt.u8, i).id for i in range(4)} | {b.unpack(word, dt.u8, 2).id}) == 1
    two = b.permute_bytes(word, word, 0x03020302)
    assert {b.unpack(two, dt.i16, i).id for i in range(2)} == {b.unpack(word, dt.i16, 1).id}
    assert b.permute_bytes(two, two, 0x03030303) is b.permute_bytes(word, word, 0x03030303)
    other = b.load_shared(b.mul(b.lane(), 4), type=B32, imm=256)
    mixed = b.permute_bytes(other, word, 0x05010404)  # of the other's first byte two, and one of each second
    first, again, once, last = (b.unpack(mixed, dt.u8, i) for i in range(4))
    assert first is again is b.unpack(other, dt.u8, 0) and once.op.args == last.op.args == (mixed,)


def test_halves_of_words_are_picked_not_rounded_again() -> None:
    """One instruction for two numbers that lie in other words; bytes of one word name it twice."""
    b = Builder(new_kernel(), get_target("gfx942"))
    first, second = (b.load_shared(b.mul(b.lane(), 4), type=B32, imm=256 * i) for i in (0, 1))
    pair = b.pack([b.unpack(first, dt.f16, 1), b.unpack(second, dt.f16, 0)], dt.f16)
    assert pair is b.permute_bytes(second, first, 0x05040302)
    assert b.permute_bytes(second, first, 0x01000100) is b.permute_bytes(first, first, 0x01000100)
    assert b.permute_bytes(second, first, 0x05040504) is b.permute_bytes(second, second, 0x01000100)


def test_halves_of_bytes_are_taken_out_at_once() -> None:
    b = Builder(new_kernel())
    word = b.load_shared(b.mul(b.lane(), 4), type=B32)
    byte = b.unpack(word, dt.u8, 2)
    assert b.and_(byte, 15) is b.unpack(word, dt.u4, 4) and b.lshr(byte, 4) is b.unpack(word, dt.u4, 5)
    assert b.and_(byte, 7).op.name == b.and_(b.unpack(word, dt.i8, 2), 15).op.name == "and"


def test_integers_that_a_type_holds_are_not_wrapped() -> None:
    b = Builder(new_kernel())
    known = [b.and_(b.lshr(b.lane(), i), 15) for i in range(8)]
    word = b.pack(known, dt.u4)
    assert [b.unpack(word, dt.u4, i) for i in range(8)] == known
    assert b.unpack(b.pack(known, dt.i4), dt.i4, 0) is not known[0]
    lower = b.bitcast(b.and_(b.mul(b.lane(), 0x1234567), 0x0F0F0F0F), B32)
    assert [b.unpack(lower, dt.u8, i).hi for i in range(4)] == [15] * 4
    assert b.unpack(b.pack([b.unpack(lower, dt.u8, 3)] * 8, dt.u4), dt.u4, 5) is b.unpack(lower, dt.u8, 3)


def test_what_is_subtracted_may_take_a_power_of_two_off() -> None:
    """Small integers in both halves, from two words or more that nobody else reads, and sums that halves hold."""
    target = get_target("sm_80")
    b = Builder(new_kernel(), target)
    word, other = (b.load_shared(b.mul(b.lane(), 4), type=B32, imm=256 * i) for i in (0, 1))
    zero = b.permute_bytes(*[b.pack([b.cvt(b.and_(b.lane(), 15), F32), b.const(0.0, F32)], dt.f16)] * 2, 0x01000100)
    made = [b.pack([b.cvt(b.unpack(word, dt.u4, i + j), F32) for j in (0, 1)], dt.f16) for i in (0, 2)]

    def less(x: Value, y: Value) -> Op:
        halves = [b.fsub(b.unpack(x, dt.f16, i), b.unpack(y, dt.f16, i)) for i in (0, 1)]
        return b.pack(halves, dt.f16).op

    pairs = [less(m, zero) for m in made]
    once = {m.id: 1 for m in made}
    assert raised(pairs, once) == {m.id: zero for m in made}
    assert not raised(pairs[:1], once) and not raised(pairs, {m.id: 2 for m in made})
    assert fits(made[0].op, zero, 1024) and not fits(made[0].op, zero, 2048)
    assert not fits(made[0].op, other, 1024)  # nothing is known of it
