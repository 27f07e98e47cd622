"""Words of two halves: what an op of the kernel IR means, and where pairs of small numbers were before joins."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir import dtypes as dt
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.half_pairs import OPERATIONS, loaded
from wavedsl.ir.kernel.kernel_ir import B32, Op
from wavedsl.ir.kernel.kernel_meaning import TYPED


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
