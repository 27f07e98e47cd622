"""Every operation of the evaluator against NumPy written out by hand, and the casts against exact arithmetic."""

import fractions
import math

import ml_dtypes
import numpy as np
import pytest
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dataflow.ops import ROWS
from wavedsl.ir.evaluator.evaluate import MEANINGS
from wavedsl.ir.philox import philox
from wavedsl.ir.rounding import convert, pack, to_float, unpack

import wavedsl as wd

M, N, K, TOP, P, Q, V, T, D, H = wd.symbols("M N K TOP P Q V T D H")
RNG = np.random.default_rng(7)


def apply(function, *arrays: np.ndarray, out: wd.DType, result: tuple, subs: dict | None = None) -> np.ndarray:
    """`function` of values read from 2-D arrays [M, N], as an array over the dimensions `result`."""
    names = {np.dtype(d.numpy).name: d for d in dt.ALL.values() if d is not dt.tf32}
    notes = {f"a{i}": wd.Memory[M, N, names[x.dtype.name]] for i, x in enumerate(arrays)}

    def body(*memories: object) -> None:
        wd.write(function(*map(wd.read, memories[:-1])), memories[-1])

    parameters = ", ".join([*notes, "out"])
    space: dict = {"body": body}
    exec(f"def kernel({parameters}):\n    body({parameters})\n", space)
    space["kernel"].__annotations__ = {**notes, "out": wd.Memory[(*result, out)]}
    kernel = wd.wave([], subs=subs)(space["kernel"])
    sizes = {M: arrays[0].shape[0], N: arrays[0].shape[1], **(subs or {})}
    target = np.zeros([sizes[d] for d in result], out.numpy)
    kernel.evaluate(*arrays, target)
    return target


def floats(dtype: type = np.float32, low: float = -4, high: float = 4) -> np.ndarray:
    return RNG.uniform(low, high, (5, 7)).astype(dtype)


SPECIAL = np.array([[0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 0.5, 1e-40]], np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("name", "function", "exact"),
    [
        ("add", lambda x, y: x + y, np.add), ("sub", lambda x, y: x - y, np.subtract),
        ("mul", lambda x, y: x * y, np.multiply), ("div", lambda x, y: x / y, np.divide),
        ("floordiv", lambda x, y: x // y, np.floor_divide), ("mod", lambda x, y: x % y, np.mod),
        ("minimum", wd.minimum, np.minimum), ("maximum", wd.maximum, np.maximum),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_binary(name: str, function, exact, dtype) -> None:
    x, y = floats(dtype), floats(dtype)
    out = next(d for d in dt.ALL.values() if d.numpy is dtype)
    wide = np.float32 if np.dtype(dtype).itemsize == 2 else dtype
    expected = exact(x.astype(wide), y.astype(wide)).astype(dtype)
    assert np.array_equal(apply(function, x, y, out=out, result=(M, N)), expected)


@pytest.mark.parametrize(
    ("function", "exact", "low"),
    [
        (wd.exp, math.exp, -4), (wd.exp2, lambda x: 2.0**x, -4), (wd.log, math.log, 0.1), (wd.log2, math.log2, 0.1),
        (wd.sqrt, math.sqrt, 0.1), (wd.rsqrt, lambda x: 1 / math.sqrt(x), 0.1), (wd.reciprocal, lambda x: 1 / x, 0.1),
        (wd.tanh, math.tanh, -4), (wd.erf, math.erf, -4), (wd.sigmoid, lambda x: 1 / (1 + math.exp(-x)), -4),
        (wd.sin, math.sin, -4), (wd.cos, math.cos, -4), (wd.floor, math.floor, -4), (wd.ceil, math.ceil, -4),
        (wd.round, round, -4), (wd.abs, abs, -4), (lambda x: -x, lambda x: -x, -4), (lambda x: abs(x), abs, -4),
        (lambda x: x**2.5, lambda x: x**2.5, 0.1), (lambda x: wd.pow(2.0, x), lambda x: 2.0**x, -4),
        (lambda x: math.floor(x), math.floor, -4), (lambda x: round(x), round, -4),
        (lambda x: math.trunc(x), math.trunc, -4), (lambda x: math.ceil(x), math.ceil, -4),
    ],
)  # fmt: skip
def test_functions_are_the_exact_ones_rounded_once(function, exact, low: float) -> None:
    x = floats(low=low)
    expected = np.vectorize(lambda v: exact(float(v)), otypes=[np.float64])(x)
    got = apply(function, x, out=wd.f32, result=(M, N))
    assert np.all(np.abs(got - expected) <= 0.501 * np.spacing(np.abs(expected).astype(np.float32)))


def test_minimum_and_maximum_prefer_numbers_and_order_zeros() -> None:
    x = np.array([[np.nan, 1, np.nan, 0.0, -0.0]], np.float32)
    y = np.array([[2, np.nan, np.nan, -0.0, 0.0]], np.float32)
    low = apply(wd.minimum, x, y, out=wd.f32, result=(M, N))
    high = apply(wd.maximum, x, y, out=wd.f32, result=(M, N))
    assert low[0, :2].tolist() == high[0, :2].tolist() == [2, 1] and np.isnan(low[0, 2]) and np.isnan(high[0, 2])
    assert np.signbit(low[0, 3:]).all() and not np.signbit(high[0, 3:]).any()


def test_fma_rounds_once() -> None:
    x = np.full((1, 1), 1 + 2.0**-12, np.float32)
    exact = fractions.Fraction(float(x[0, 0])) ** 2 - 1
    got = apply(lambda v: wd.fma(v, v, -1.0), x, out=wd.f32, result=(M, N))
    assert fractions.Fraction(float(got[0, 0])) == exact
    wide = np.full((1, 1), 1 + 2.0**-30, np.float64)
    exact = fractions.Fraction(float(wide[0, 0])) ** 2 - 1
    got = apply(lambda v: wd.fma(v, v, -1.0), wide, out=wd.f64, result=(M, N))
    assert fractions.Fraction(float(got[0, 0])) == exact


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_integers_wrap_and_floor(dtype) -> None:
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, (5, 7), dtype=dtype, endpoint=True)
    y = RNG.integers(1, 100, (5, 7), dtype=dtype)
    out = dt.ALL[("u" if info.min == 0 else "i") + str(info.bits)]

    def wrapped(f):  # type: ignore[no-untyped-def]
        values = [f(int(a), int(b)) & (2**info.bits - 1) for a, b in zip(x.flat, y.flat)]
        signed = [v - 2**info.bits if info.min < 0 and v >> (info.bits - 1) else v for v in values]
        return np.array(signed, dtype).reshape(x.shape)

    for function in (
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a // b, lambda a, b: a % b,
        lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b, lambda a, b: ~a,
    ):  # fmt: skip
        assert np.array_equal(apply(function, x, y, out=out, result=(M, N)), wrapped(function))
    assert np.array_equal(
        apply(lambda a: (a >> 1) ^ (a << 3), x, out=out, result=(M, N)), wrapped(lambda a, b: a >> 1 ^ a << 3)
    )


@pytest.mark.parametrize("name", ["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"])
def test_comparisons(name: str) -> None:
    x = np.concatenate([SPECIAL, SPECIAL])
    y = np.concatenate([SPECIAL, SPECIAL[:, ::-1]])
    got = apply(lambda a, b: wd.cast(getattr(a, name)(b), wd.i32), x, y, out=wd.i32, result=(M, N))
    assert np.array_equal(got.astype(bool), getattr(x, name)(y))


def test_where_clamp_and_logic() -> None:
    x, y = floats(), floats()
    got = apply(lambda a, b: wd.where((a > 0) & ~(b > 0), a, 7), x, y, out=wd.f32, result=(M, N))
    assert np.array_equal(got, np.where((x > 0) & ~(y > 0), x, np.float32(7)))
    assert np.array_equal(apply(lambda a: wd.clamp(a, -1, 1), x, out=wd.f32, result=(M, N)), np.clip(x, -1, 1))


def test_powers() -> None:
    x = np.array([[-3.0, -0.5, 0.0, 2.0]], np.float32)
    for n in range(1, 9):
        got = apply(lambda a, n=n: a**n, x, out=wd.f32, result=(M, N))
        assert np.allclose(got, x.astype(np.float64) ** n, rtol=1e-6)
    whole = np.array([[-3, 5]], np.int32)
    assert apply(lambda a: a**3, whole, out=wd.i32, result=(M, N)).tolist() == [[-27, 125]]
    half = apply(lambda a: a**0.5, x, out=wd.f32, result=(M, N))
    assert np.isnan(half[0, :2]).all() and half[0, 2] == 0 and half[0, 3] == np.float32(math.sqrt(2))
    assert apply(lambda a: a**-1, x, out=wd.f32, result=(M, N))[0, 2:].tolist() == [np.inf, 0.5]


# --------------------------------------------------------------------------------------------------------- reductions


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_reductions(dtype) -> None:
    x = RNG.integers(-9, 9, (5, 7)).astype(dtype)
    out = {"float32": wd.f32, "float64": wd.f64, "int32": wd.i32}[np.dtype(dtype).name]
    for dim, axis in ((M, 0), (N, 1)):
        rest = (N,) if dim == M else (M,)
        assert np.array_equal(apply(lambda a: wd.sum(a, dim=dim), x, out=out, result=rest), x.sum(axis=axis))
        assert np.array_equal(apply(lambda a: wd.max(a, dim=dim), x, out=out, result=rest), x.max(axis=axis))
        assert np.array_equal(apply(lambda a: wd.min(a, dim=dim), x, out=out, result=rest), x.min(axis=axis))
        assert np.array_equal(apply(lambda a: wd.argmax(a, dim=dim), x, out=wd.i32, result=rest), x.argmax(axis=axis))
        assert np.array_equal(apply(lambda a: wd.argmin(a, dim=dim), x, out=wd.i32, result=rest), x.argmin(axis=axis))
        assert np.array_equal(
            apply(lambda a: wd.cumsum(a, dim=dim), x, out=out, result=(M, N)), x.cumsum(axis=axis, dtype=dtype)
        )
        assert np.array_equal(apply(lambda a: wd.sort(a, dim=dim), x, out=out, result=(M, N)), np.sort(x, axis=axis))


def test_reductions_prefer_numbers_to_nan() -> None:
    x = np.array([[np.nan, 3, 5, np.nan, 5], [np.nan] * 5], np.float32)
    assert apply(lambda a: wd.max(a, dim=N), x, out=wd.f32, result=(M,))[0] == 5
    assert apply(lambda a: wd.argmax(a, dim=N), x, out=wd.i32, result=(M,))[0] == 2
    assert apply(lambda a: wd.argmin(a, dim=N), x, out=wd.i32, result=(M,))[0] == 1


def test_any_and_all() -> None:
    x = np.array([[1, -1, 1], [1, 2, 3], [-1, -2, -3]], np.float32)
    some = apply(lambda a: wd.cast(wd.any(a > 0, dim=N), wd.i32), x, out=wd.i32, result=(M,))
    every = apply(lambda a: wd.cast(wd.all(a > 0, dim=N), wd.i32), x, out=wd.i32, result=(M,))
    assert some.tolist() == [1, 1, 0] and every.tolist() == [0, 1, 0]


def test_reduce_and_scan_with_the_users_function() -> None:
    x = RNG.integers(1, 4, (5, 7)).astype(np.int32)
    got = apply(lambda a: wd.reduce(a, lambda p, q: p * q, 1, dim=N), x, out=wd.i32, result=(M,))
    assert np.array_equal(got, x.prod(axis=1))
    got = apply(lambda a: wd.scan(a, lambda p, q: wd.maximum(p, q), 0, dim=M), x, out=wd.i32, result=(M, N))
    assert np.array_equal(got, np.maximum.accumulate(x, axis=0))
    got = apply(lambda a: wd.reduce(a, wd.maximum, 0, dim=N), x, out=wd.i32, result=(M,))
    assert np.array_equal(got, x.max(axis=1))
    # Not commutative: the order of a scan is the order of elements. 0 is no identity: nothing lies beyond an end here.
    got = apply(lambda a: wd.scan(a, lambda p, q: p * 0 + q, 0, dim=N), x, out=wd.i32, result=(M, N))
    assert np.array_equal(got, x)


def test_identities_where_there_is_nothing() -> None:
    x = np.zeros((3, 0), np.float32)
    assert apply(lambda a: wd.sum(a, dim=N), x, out=wd.f32, result=(M,)).tolist() == [0, 0, 0]
    assert apply(lambda a: wd.max(a, dim=N), x, out=wd.f32, result=(M,)).tolist() == [-np.inf] * 3
    assert apply(lambda a: wd.min(a, dim=N), x, out=wd.f32, result=(M,)).tolist() == [np.inf] * 3
    assert apply(lambda a: wd.reduce(a, lambda p, q: p * q, 1.0, dim=N), x, out=wd.f32, result=(M,)).tolist() == [
        1,
        1,
        1,
    ]
    empty = np.zeros((3, 0), np.int32)
    assert apply(lambda a: wd.max(a, dim=N), empty, out=wd.i32, result=(M,)).tolist() == [-(2**31)] * 3


def test_sums_of_f16_run_in_f32() -> None:
    x = np.full((1, 4096), 1.0, np.float16)
    assert apply(lambda a: wd.sum(a, dim=N), x, out=wd.f16, result=(M,))[0] == 4096


def test_sort_descending_and_topk() -> None:
    x = np.array([[3, 1, 3, np.nan, 2], [5, 4, 5, 5, -np.inf]], np.float32)
    down = apply(lambda a: wd.sort(a, dim=N, descending=True), x, out=wd.f32, result=(M, N))
    assert np.isnan(down[0, 0]) and down[0, 1:].tolist() == [3, 3, 2, 1]
    values = apply(lambda a: wd.topk(a, TOP, dim=N)[0], x, out=wd.f32, result=(M, TOP), subs={TOP: 3})
    places = apply(lambda a: wd.topk(a, TOP, dim=N)[1], x, out=wd.i32, result=(M, TOP), subs={TOP: 3})
    assert values.tolist() == [[3, 3, 2], [5, 5, 5]] and places.tolist() == [[0, 2, 4], [0, 2, 3]]
    wide = apply(lambda a: wd.topk(a, TOP, dim=N)[1], x, out=wd.i32, result=(M, TOP), subs={TOP: 6})
    assert wide[:, -1].tolist() == [-1, -1]


# ------------------------------------------------------------------------------------------------------------- shapes


def test_broadcast_and_permute() -> None:
    x = floats()
    got = apply(lambda a: wd.broadcast(wd.sum(a, dim=N), M, N) + wd.permute(a, N, M), x, out=wd.f32, result=(M, N))
    assert np.array_equal(got, x.sum(axis=1, keepdims=True) + x)
    total = apply(lambda a: wd.sum(wd.broadcast(wd.max(a, dim=N), M, N), dim=N), x, out=wd.f32, result=(M,))
    assert np.allclose(total, 7 * x.max(axis=1))


def test_reshape() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    got = apply(lambda a: wd.reshape(a, P, Q), x, out=wd.f32, result=(P, Q), subs={P: 3, Q: 8})
    assert np.array_equal(got, x.reshape(3, 8))
    got = apply(lambda a: wd.reshape(wd.permute(a, N, M), P, Q), x, out=wd.f32, result=(P, Q), subs={P: 3, Q: 8})
    assert np.array_equal(got, x.T.reshape(3, 8))
    with pytest.raises(wd.ConstraintError, match="reshape: M = 4 × N = 6 elements do not fit P = 5 × Q = 5"):
        apply(lambda a: wd.reshape(a, P, Q), x, out=wd.f32, result=(P, Q), subs={P: 5, Q: 5})


def test_index_counts_over_the_whole_array() -> None:
    x = np.zeros((4, 6), np.float32)
    got = apply(lambda a: wd.index(M) * 10 + wd.index(N), x, out=wd.i32, result=(M, N))
    assert np.array_equal(got, np.arange(4)[:, None] * 10 + np.arange(6))


# -------------------------------------------------------------------------------------------------------------- casts


def nearest(value: float, numbers: np.ndarray) -> set[float]:
    """The numbers closest to `value`, by exact arithmetic among the neighbours."""
    at = int(np.searchsorted(numbers, value))
    near = numbers[max(at - 2, 0) : at + 2]
    distances = [abs(fractions.Fraction(float(n)) - fractions.Fraction(value)) for n in near]
    return {float(n) for n, d in zip(near, distances) if d == min(distances)}


@pytest.mark.parametrize("dtype", [wd.f8e4m3, wd.f8e5m2, wd.f8e4m3fnuz, wd.f8e5m2fnuz, wd.f4e2m1, wd.f6e2m3, wd.f6e3m2])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_narrow_casts_round_to_nearest_and_saturate(dtype: wd.DType, source: type) -> None:
    codes = np.arange(2**dtype.bits, dtype=np.uint8).view(dtype.numpy).astype(np.float64)
    numbers = np.unique(codes[np.isfinite(codes)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    tries = np.concatenate([numbers, middles, middles * (1 + 2.0**-20), middles * (1 - 2.0**-20)]).astype(source)
    got = convert(tries, wd.f32, dtype).astype(np.float64)
    for value, result in zip(tries, got):
        assert float(result) in nearest(float(value), numbers)
    # Ties go to the even mantissa: neighbours of a tie cannot both be even.
    ties = convert(middles.astype(source), wd.f32, dtype)
    bits = ties.view(np.uint8)[np.abs(middles) < numbers[-1]]
    assert (bits & 1 == 0).all()
    big = convert(np.array([1e9, -1e9, np.inf, -np.inf], source), wd.f32, dtype).astype(np.float64)
    assert big.tolist() == [numbers[-1], numbers[0], numbers[-1], numbers[0]]
    nan = convert(np.array([np.nan], source), wd.f32, dtype).astype(np.float64)
    assert np.isnan(nan[0]) or dtype in (wd.f4e2m1, wd.f6e2m3, wd.f6e3m2)


def test_f64_to_bf16_rounds_once() -> None:
    x = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8 - 2.0**-40, 1 + 2.0**-8, -(1 + 2.0**-8 + 2.0**-40)])
    assert to_float(x, wd.bf16).astype(float).tolist() == [1 + 2.0**-7, 1, 1, -(1 + 2.0**-7)]


def test_tf32_keeps_ten_bits() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, np.inf, np.nan, 65505.0], np.float32)
    got = to_float(x, wd.tf32)
    assert got[:3].tolist() == [1, 1 + 2.0**-9, 1 + 2.0**-10] and np.isinf(got[3]) and np.isnan(got[4])
    assert to_float(x, wd.tf32, "toward_zero")[:3].tolist() == [1, 1 + 2.0**-10, 1]


def test_rounding_toward_zero() -> None:
    x = np.concatenate([floats(), 1e-9 * floats()])
    got = apply(lambda a: wd.cast(a, wd.f16, rounding="toward_zero"), x, out=wd.f16, result=(M, N))
    assert (np.abs(got.astype(np.float64)) <= np.abs(x)).all()
    assert (np.abs(np.nextafter(got, np.copysign(np.inf, x).astype(np.float16)).astype(np.float64)) > np.abs(x)).all()


def test_float_to_int_truncates_and_saturates() -> None:
    x = np.array([[1.9, -1.9, 3e9, -3e9, np.nan, np.inf, -np.inf, 127.5, -0.0]], np.float32)
    got = apply(lambda a: wd.cast(a, wd.i32), x, out=wd.i32, result=(M, N))
    assert got.tolist() == [[1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), 127, 0]]
    assert convert(x, wd.f32, wd.i8).tolist() == [[1, -1, 127, -128, 0, 127, -128, 127, 0]]
    assert convert(x, wd.f32, wd.u8).tolist() == [[1, 0, 255, 0, 0, 255, 0, 127, 0]]
    assert convert(np.array([2.0**63, -(2.0**63), 1e30]), wd.f64, wd.i64).tolist() == [2**63 - 1, -(2**63), 2**63 - 1]
    assert convert(np.array([2.0**63, 2.0**64, -1.0]), wd.f64, wd.u64).tolist() == [2**63, 2**64 - 1, 0]
    assert convert(np.array([7.9, 9.0, -9.0]), wd.f64, wd.i4).astype(int).tolist() == [7, 7, -8]


def test_int_to_int_wraps_and_to_float_rounds() -> None:
    x = np.array([300, -1, 17], np.int32)
    assert convert(x, wd.i32, wd.i8).tolist() == [44, -1, 17]
    assert convert(x, wd.i32, wd.i4).astype(int).tolist() == [-4, -1, 1]
    assert convert(np.array([2**24 + 1, 2**24 + 3], np.int32), wd.i32, wd.f32).tolist() == [2**24, 2**24 + 4]
    assert convert(np.array([0, 3, -0.0, np.nan], np.float32), wd.f32, wd.i1).tolist() == [False, True, False, True]


def test_bitcast() -> None:
    x = floats()
    assert np.array_equal(apply(lambda a: wd.bitcast(a, wd.i32), x, out=wd.i32, result=(M, N)), x.view(np.int32))


@pytest.mark.parametrize("dtype", [wd.i4, wd.u4, wd.f4e2m1, wd.f6e2m3, wd.f6e3m2])
@pytest.mark.parametrize("extent", [1, 4, 7, 16])
def test_packing_round_trips(dtype: wd.DType, extent: int) -> None:
    size = -(-extent * dtype.bits // 8)
    packed = RNG.integers(0, 256, (3, size), dtype=np.uint8)
    again = packed.copy()
    elements = unpack(packed, dtype, extent)
    assert elements.shape == (3, extent) and elements.dtype == dtype.numpy
    again[...] = 0xFF
    pack(elements, dtype, again)
    spare = size * 8 - extent * dtype.bits
    mask = np.uint8(0xFF >> spare)
    assert np.array_equal(again[:, :-1], packed[:, :-1]) and np.array_equal(again[:, -1] & mask, packed[:, -1] & mask)


def test_packing_is_little_end_first() -> None:
    assert unpack(np.array([[0x21]], np.uint8), wd.i4, 2).astype(int).tolist() == [[1, 2]]


# -------------------------------------------------------------------------------------------------- memory and random


def test_gather_and_scatter() -> None:
    @wd.wave([])
    def embed(table: wd.Memory[V, D, wd.f32], ids: wd.Memory[T, wd.i32], out: wd.Memory[T, D, wd.f32]):
        rows = wd.read(table, mapping=wd.IndexMapping((T, D), {V: wd.read(ids)}))
        wd.write(rows, out)

    table, ids = RNG.random((9, 4), np.float32), np.array([3, 0, 8, 3, 99, -1], np.int32)
    out = np.ones((6, 4), np.float32)
    embed.evaluate(table, ids, out)
    assert np.array_equal(out[:4], table[ids[:4]]) and not out[4:].any()

    @wd.wave([])
    def spread(x: wd.Memory[T, D, wd.f32], ids: wd.Memory[T, wd.i32], table: wd.Memory[V, D, wd.f32]):
        wd.write(wd.read(x), table, mapping=wd.IndexMapping((T, D), {V: wd.read(ids)}))

    x, table = RNG.random((3, 4), np.float32), np.zeros((9, 4), np.float32)
    spread.evaluate(x, np.array([5, 2, 77], np.int32), table)
    assert np.array_equal(table[[5, 2]], x[:2]) and np.count_nonzero(table) == 8


def test_mapped_reads_by_expression() -> None:
    @wd.wave([])
    def kernel(a: wd.Memory[M, K, wd.f32], out: wd.Memory[N, M, wd.f32], shifted: wd.Memory[M, K, wd.f32]):
        same = wd.read(a, mapping=wd.IndexMapping((N, K), {M: N}))
        wd.write(wd.mma(same, wd.read(a)), out)
        wd.write(wd.read(a, mapping=wd.IndexMapping((M, K), {M: M + 1})), shifted)

    a = RNG.integers(-3, 4, (4, 5)).astype(np.float32)
    out, shifted = np.zeros((4, 4), np.float32), np.ones((4, 5), np.float32)
    kernel.evaluate(a, out, shifted)
    assert np.array_equal(out, a @ a.T)
    assert np.array_equal(shifted[:-1], a[1:]) and not shifted[-1].any()


def test_gather_by_a_batchs_own_table() -> None:
    @wd.wave([wd.WorkgroupConstraint(H, 1, 0)])
    def kernel(a: wd.Memory[H, V, wd.f32], ids: wd.Memory[H, T, wd.i32], out: wd.Memory[H, T, wd.f32]):
        wd.write(wd.read(a, mapping=wd.IndexMapping((T,), {V: wd.read(ids)})), out)

    a, ids = RNG.random((3, 6), np.float32), RNG.integers(0, 6, (3, 5)).astype(np.int32)
    out = np.zeros((3, 5), np.float32)
    kernel.evaluate(a, ids, out)
    assert np.array_equal(out, np.take_along_axis(a, ids, axis=1))


def test_atomics() -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 4, 0)])
    def histogram(ids: wd.Memory[M, wd.i32], counts: wd.Memory[V, wd.i32], before: wd.Memory[M, wd.i32]):
        one = wd.Register[M, wd.i32](1)
        wd.write(wd.atomic_add(one, counts, mapping=wd.IndexMapping((M,), {V: wd.read(ids)})), before)

    ids = np.array([2, 0, 2, 2, 1, 0], np.int32)
    counts, before = np.zeros(4, np.int32), np.zeros(6, np.int32)
    histogram.evaluate(ids, counts, before)
    assert counts.tolist() == [2, 1, 3, 0] and before.tolist() == [0, 0, 1, 2, 0, 1]

    @wd.wave([wd.WorkgroupConstraint(H, 1, 0)])
    def over_batches(
        a: wd.Memory[H, M, wd.f32], low: wd.Memory[M, wd.f32], high: wd.Memory[M, wd.f32], s: wd.Memory[M, wd.f32]
    ):
        x = wd.read(a)
        wd.atomic_min(x, low)
        wd.atomic_max(x, high)
        wd.atomic_add(x, s)

    a = RNG.integers(-9, 9, (5, 6)).astype(np.float32)
    low, high, s = np.full(6, np.inf, np.float32), np.full(6, -np.inf, np.float32), np.zeros(6, np.float32)
    over_batches.evaluate(a, low, high, s)
    assert np.array_equal(low, a.min(0)) and np.array_equal(high, a.max(0)) and np.array_equal(s, a.sum(0))

    @wd.wave([])
    def exchange(a: wd.Memory[M, wd.i32], b: wd.Memory[M, wd.i32]):
        old = wd.atomic_xchg(wd.read(a) * 0 + 7, a)
        wd.atomic_cas(old * 0 + 1, old, b)

    a, b = np.array([1, 2, 3], np.int32), np.array([1, 0, 1], np.int32)
    exchange.evaluate(a, b)
    assert a.tolist() == [7, 7, 7] and b.tolist() == [1, 0, 3]


def test_philox_known_answers() -> None:
    """From the authors' published test vectors (Random123, kat_vectors, philox4x32 with 10 rounds)."""
    ones = 0xFFFFFFFF
    assert [int(w) for w in philox((0, 0, 0, 0), (0, 0))] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(w) for w in philox((ones,) * 4, (ones,) * 2)] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    counter, key = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    assert [int(w) for w in philox(counter, key)] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_random_depends_on_the_element_alone() -> None:
    def kernel_for(tile: int) -> wd.Kernel:
        @wd.wave([wd.TilingConstraint(K, tile), wd.WorkgroupConstraint(H, 1, 0)])
        def kernel(seed: wd.Scalar[wd.i32], out: wd.Memory[H, M, K, wd.f32], bits: wd.Memory[H, M, K, wd.u32]):
            @wd.iterate(K)
            def loop():
                wd.write(wd.random(seed, H, M, K, offset=3), out)
                wd.write(wd.random(seed, H, M, K, offset=3, dtype=wd.u32), bits)

        return kernel

    first, second = np.zeros((2, 3, 50), np.float32), np.zeros((2, 3, 50), np.float32)
    bits, again = np.zeros((2, 3, 50), np.uint32), np.zeros((2, 3, 50), np.uint32)
    kernel_for(16).evaluate(11, first, bits)
    kernel_for(50).evaluate(11, second, again)
    assert np.array_equal(first, second) and np.array_equal(bits, again)
    assert int(bits[1, 2, 7]) == int(philox(((1 * 3 + 2) * 50 + 7, 0, 3, 0), (11, 0))[0])
    assert np.array_equal(first, (bits >> 8) * np.float32(2.0**-24)) and len(np.unique(bits)) == bits.size


def test_device_assert_and_print(capsys: pytest.CaptureFixture[str]) -> None:
    @wd.wave([])
    def kernel(a: wd.Memory[M, wd.f32]):
        x = wd.read(a)
        wd.device_print("x is", x)
        wd.device_assert(x < 3, "too large")
        wd.write(x, a)

    kernel.evaluate(np.arange(3, dtype=np.float32))
    assert capsys.readouterr().out == "x is [M] f32\n[0. 1. 2.]\n"
    with pytest.raises(wd.EmulationError, match=r"device_assert: too large \(first at M = 3\)"):
        kernel.evaluate(np.arange(5, dtype=np.float32))


def test_every_row_has_a_meaning() -> None:
    assert {name for name, r in ROWS.items() if r.compute is None} == set(MEANINGS)
