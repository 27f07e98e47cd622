"""Operations on the bits of integers, on every chip and of every width, against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

N = wd.sym.N
LINE = [wd.WorkgroupConstraint(N, 256, 0)]
INTEGERS = (wd.i8, wd.u8, wd.i16, wd.u16, wd.i32, wd.u32, wd.i64, wd.u64)


def digits(x: int, bits: int) -> str:
    return f"{x & (1 << bits) - 1:0{bits}b}"


def number(text: str, dtype: wd.DType) -> int:
    value = int(text, 2)
    return value - (1 << dtype.bits) if dtype.is_signed and text[0] == "1" else value


def rotated(x: int, count: int, dtype: wd.DType) -> int:
    text, first = digits(x, dtype.bits), count % dtype.bits
    return number(text[first:] + text[:first], dtype)


def limited(x: int, dtype: wd.DType) -> int:
    info = np.iinfo(dtype.numpy)
    return min(max(x, int(info.min)), int(info.max))


MEANING: dict[str, Callable[[int, int, wd.DType], int]] = {
    "popcount": lambda x, y, d: digits(x, d.bits).count("1"),
    "clz": lambda x, y, d: d.bits - len(digits(x, d.bits).lstrip("0")),
    "ctz": lambda x, y, d: d.bits - len(digits(x, d.bits).rstrip("0")),
    "bit_reverse": lambda x, y, d: number(digits(x, d.bits)[::-1], d),
    "rotate_left": rotated,
    "mulhi": lambda x, y, d: x * y >> d.bits,
    "saturating_add": lambda x, y, d: limited(x + y, d),
    "saturating_sub": lambda x, y, d: limited(x - y, d),
}
COUNTS = ("popcount", "clz", "ctz")


def numbers(dtype: wd.DType, seed: int) -> np.ndarray:
    """Of every length, and the ends of the type."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype.numpy)
    wide = rng.integers(info.min, info.max, 300, dtype.numpy, endpoint=True)
    edges = np.array([0, 1, 2, 3, info.max, info.max - 1, info.max // 2 + 1, info.min, info.min + 1], dtype.numpy)
    edges = np.repeat(edges, 9) if seed % 2 else np.tile(edges, 9)
    return np.concatenate([wide >> rng.integers(0, dtype.bits, 300).astype(dtype.numpy), edges])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_every_width(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    memory, counts = wd.Memory[N, dtype], wd.Memory[N, wd.i32]

    @wd.wave(LINE)
    def kernel(
        a: memory, b: memory, set_bits: counts, above: counts, below: counts, back: memory, turned: memory,
        upper: memory, more: memory, less: memory,
    ):  # fmt: skip
        x, y = wd.read(a), wd.read(b)
        for op, out in zip(MEANING, (set_bits, above, below, back, turned, upper, more, less)):
            function = getattr(wd, op)
            one = op in (*COUNTS, "bit_reverse")
            wd.write(function(x) if one else function(x, y), out)

    x, y = numbers(dtype, 1), numbers(dtype, 2)
    meant, got = ([np.zeros(x.size, np.int32 if op in COUNTS else x.dtype) for op in MEANING] for _ in range(2))
    kernel.evaluate(x, y, *meant)
    for (op, f), result in zip(MEANING.items(), meant):
        assert result.tolist() == [f(int(p), int(q), dtype) for p, q in zip(x, y)], op
    agree(kernel, [x, y, *got], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_bytes(target: str, oracle: Callable[[str], str]) -> None:
    """By a selector of the source, and by one that each element has; one operand may be the other."""

    @wd.wave(LINE)
    def kernel(
        a: wd.Memory[N, wd.u32], b: wd.Memory[N, wd.u32], s: wd.Memory[N, wd.u32], c: wd.Memory[N, wd.u32],
        d: wd.Memory[N, wd.u32], e: wd.Memory[N, wd.u32],
    ):  # fmt: skip
        x, y = wd.read(a), wd.read(b)
        wd.write(wd.permute_bytes(x, y, 0x7250), c)
        wd.write(wd.permute_bytes(x, y, wd.read(s)), d)
        wd.write(wd.permute_bytes(x, x, 0x0123), e)

    x, y, s = (np.random.default_rng(i).integers(0, 1 << 32, 300, np.uint32) for i in range(3))
    made = [np.zeros_like(x) for _ in range(3)]
    kernel.evaluate(x, y, s, *made)
    assert (made[2] == x.byteswap()).all()
    both = np.stack([x, y], 1).view(np.uint8)
    for out, selector in zip(made, (np.full_like(s, 0x7250), s)):
        chosen = [both[np.arange(300), selector >> 4 * i & 7] for i in range(4)]
        assert (out == np.stack(chosen, 1).reshape(-1).view(np.uint32)).all()
    agree(kernel, [x, y, s, *(np.zeros_like(x) for _ in range(3))], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_of_numbers_that_all_lanes_share(target: str, oracle: Callable[[str], str]) -> None:
    """On AMD these are scalar instructions."""

    @wd.wave(LINE)
    def kernel(n: wd.Scalar[wd.u32], a: wd.Memory[N, wd.i32]):
        count = wd.popcount(n) * 10000 + wd.clz(n) * 100 + wd.ctz(n)
        wd.write(wd.index(N) + count + wd.bitcast(wd.bit_reverse(n), wd.i32), a)

    for n in (0, 1, 0x00F0_1000, 0xFFFF_FFFF):
        got = np.zeros(70, np.int32)
        compiled = agree(kernel, [n, got], target, oracle)
        if target.startswith("gfx"):
            assert all(name in compiled.asm for name in ("s_bcnt1_i32_b32", "s_flbit_i32_b32", "s_ff1_i32_b32"))


def test_known_numbers_need_no_instruction() -> None:
    @wd.wave(LINE)
    def kernel(a: wd.Memory[N, wd.i32]):
        low = wd.index(N) & 15
        known = wd.popcount(wd.Register[N, wd.i32](0xF0)) + wd.ctz(wd.Register[N, wd.i32](8))
        wd.write(known + wd.clz(low | 1) // 64 + wd.ctz(low * 4 + 32) // 64, a)  # a count is 32 at most

    text = kernel.compile(np.zeros(256, np.int32), target="gfx942").asm
    assert not any(name in text for name in ("v_bcnt", "v_ffb", "s_ff1", "s_bcnt"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: wd.popcount(wd.cast(x, wd.f32)), "popcount: needs integers, not f32"),
        (lambda x: wd.permute_bytes(wd.cast(x, wd.i64), wd.cast(x, wd.i64), 0x3210), "takes words of 32 bits, not i64"),
        (lambda x: wd.mulhi(x, wd.cast(x, wd.i64)), "mulhi: operands have dtypes i32 and i64"),
    ],
)
def test_mistakes(call: Callable[[Any], Any], message: str) -> None:
    @wd.wave(LINE)
    def kernel(a: wd.Memory[N, wd.i32]):
        call(wd.read(a))

    with pytest.raises(wd.TraceError, match=message):
        kernel.trace()


def _shifted(x: int, count: int, dtype: wd.DType, count_bits: int) -> tuple[int, int, int]:
    """x << count, x >> count and x turned left, of Python's integers; of shifts a count is unsigned."""
    bits, places = dtype.bits, min(count & (1 << count_bits) - 1, dtype.bits)
    left = number(digits(x << places, bits), dtype)
    return left, x >> places, rotated(x, count, dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "count"), [(wd.u64, wd.i32), (wd.i8, wd.i64), (wd.u32, wd.i16), (wd.i32, wd.u32)], ids=str
)
def test_counts_of_another_type(dtype: wd.DType, count: wd.DType, target: str) -> None:
    """A count is a number of places, of whatever type: what is beyond the width stays so in a narrower one."""
    @wd.wave(LINE)
    def kernel(
        x: wd.Memory[N, dtype], n: wd.Memory[N, count], left: wd.Memory[N, dtype], right: wd.Memory[N, dtype],
        turned: wd.Memory[N, dtype],
    ):  # fmt: skip
        value, places = wd.read(x), wd.read(n)
        wd.write(value << places, left)
        wd.write(value >> places, right)
        wd.write(wd.rotate_left(value, places), turned)

    rng, info = np.random.default_rng(4), np.iinfo(dtype.numpy)
    x = rng.integers(info.min, info.max, 300, dtype.numpy, endpoint=True)
    low, high = np.iinfo(count.numpy).min, np.iinfo(count.numpy).max
    n = np.where(rng.random(300) < 0.6, rng.integers(0, dtype.bits + 2, 300), rng.integers(low, high, 300))
    n = n.astype(count.numpy)
    n[:4] = [0, dtype.bits, 256 if high > 256 else 127, high]
    want = np.array([_shifted(int(a), int(b), dtype, count.bits) for a, b in zip(x, n)], object).T
    got = [np.zeros_like(x) for _ in range(3)]
    kernel.evaluate(x, n, *got)
    for mine, exact in zip(got, want):
        np.testing.assert_array_equal(mine, exact.astype(dtype.numpy))
    agree(kernel, [x, n, *map(np.zeros_like, got)], target)


@pytest.mark.parametrize("dtype", [wd.u8, wd.i8, wd.u32, wd.u64], ids=str)
def test_turned_to_the_right_by_a_number(dtype: wd.DType) -> None:
    """`rotate_left(x, -7)` of an unsigned x too, and by more than the type can count to."""
    counts = (-7, -1, 300, -300)

    @wd.wave(LINE)
    def kernel(x: wd.Memory[N, dtype], y: wd.Memory[4, N, dtype]):
        for i, count in enumerate(counts):
            wd.write(wd.rotate_left(wd.read(x), count), y[i, :])

    info = np.iinfo(dtype.numpy)
    x = np.random.default_rng(0).integers(info.min, info.max, 300, dtype.numpy, endpoint=True)
    y = np.zeros((4, 300), x.dtype)
    want = np.array([[rotated(int(v), count, dtype) for v in x] for count in counts], object).astype(x.dtype)
    kernel.evaluate(x, y)
    np.testing.assert_array_equal(y, want)
    y[:] = 0
    kernel.compile(x, y, target="gfx942").emulate(x, y)
    np.testing.assert_array_equal(y, want)


def test_bits_are_cleared_by_a_number_with_all_others() -> None:
    """`x & ~15` of an unsigned x: Python's number is negative, what comes of it is not."""
    @wd.wave(LINE)
    def kernel(x: wd.Memory[N, wd.u32], y: wd.Memory[N, wd.u32]):
        wd.write(~15 & wd.read(x) & ~(1 << 31), y)
        wd.atomic_and(~64, y)

    x = np.random.default_rng(0).integers(0, 1 << 32, 300, np.uint32)
    y = np.zeros_like(x)
    kernel.evaluate(x, y)
    np.testing.assert_array_equal(y, x & np.uint32(0x7FFFFFB0))


@pytest.mark.parametrize("target", TARGETS)
def test_words_of_64_bits_and_numbers(target: str, oracle: Callable[[str], str]) -> None:
    """A number from -16 to 64 is an operand of the addition of 64 bits that gfx942 has; others go by words."""
    numbers = (1, 64, 65, -1, -16, -17, 1 << 40, (1 << 32) + 1, 0xFFFFFFFF)

    @wd.wave(LINE)
    def kernel(x: wd.Memory[N, wd.i64], short: wd.Memory[N, wd.u32], y: wd.Memory[N, wd.i64]):
        value = wd.read(x)
        for n in numbers:
            value = wd.rotate_left(value + n, 7)
        wd.write(value + wd.cast(wd.read(short), wd.i64), y)

    rng = np.random.default_rng(5)
    x, short = rng.integers(-(1 << 63), (1 << 63) - 1, 300), rng.integers(0, 1 << 32, 300, np.uint32)
    x[:4] = [-1, 0, (1 << 32) - 1, -(1 << 32)]
    want = []
    for start, last in zip(x, short):
        value = int(start)
        for n in numbers:
            value = rotated(value + n, 7, wd.i64)
        want.append(number(digits(value + int(last), 64), wd.i64))
    y = np.zeros_like(x)
    compiled = agree(kernel, [x, short, y], target, oracle)
    compiled.emulate(x, short, y)
    np.testing.assert_array_equal(y, want)
    if target in ("gfx942", "gfx950"):
        elements = 2 if compiled.block[0] == 128 else 4
        assert compiled.asm.count("v_add_co_u32") <= elements * (len(numbers) - 4 + 1)
