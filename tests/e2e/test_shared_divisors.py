"""Rows over numbers of their own: fewer instructions for the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import wavedsl as wd

M, N = wd.symbols("M N")
ROW = [wd.WorkgroupConstraint(M, 4, 0), wd.WaveConstraint(M, 1)]
AMD = ("gfx90a", "gfx942", "gfx950")


@wd.wave(ROW)
def over_rows(x: wd.Memory[M, N, wd.f32], d: wd.Memory[M, wd.f32], y: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(x) / wd.read(d), y)


@wd.wave(ROW)
def softmax(x: wd.Memory[M, N, wd.bf16], y: wd.Memory[M, N, wd.bf16]):
    wd.write(wd.cast(wd.softmax(wd.cast(wd.read(x), wd.f32), dim=N), wd.bf16), y)


def hardest(d: np.ndarray) -> np.ndarray:
    """Dividends [divisor, case] in [1, 2) whose quotients by odd multiples of 2^-23 in [1, 2) lie as near to the middle
    between two numbers as any: x 2^s - m d is 1, 2 or 3 units, where m is such a middle."""
    y = (d.astype(np.float64) * (1 << 23)).astype(np.int64)
    inverse = y.copy()  # modulo powers of two: each step doubles the bits that are right
    for _ in range(5):
        inverse = inverse * (2 - y * inverse) & (1 << 25) - 1
    found = []
    for shift in (24, 25):  # quotients from 1 on, and below
        for k in (-3, -2, -1, 1, 2, 3):
            middle = -k * inverse & (1 << shift) - 1
            middle += np.where(middle < 1 << 24, 1 << 24, 0)
            x = middle * y + k >> shift
            good = (middle % 2 == 1) & (x >= 1 << 23) & (x < 1 << 24) & ((x >= y) == (shift == 24))
            found.append(np.where(good, x, 1 << 23))
    return (np.stack(found, 1) / (1 << 23)).astype(np.float32)


def quotients(x: np.ndarray, d: np.ndarray, target: str) -> np.ndarray:
    y = np.zeros_like(x)
    over_rows.compile(x, d, y, target=target).emulate(x, d, y)
    return y


def same(got: np.ndarray, want: np.ndarray) -> None:
    alike = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert alike.all(), (got[~alike][:5], want[~alike][:5])


@pytest.mark.parametrize("target", AMD)
def test_the_hardest_quotients(target: str) -> None:
    """Half of the products with the reciprocal are wrong here."""
    random = np.random.default_rng(0)
    d = ((random.integers(1 << 22, 1 << 23, 512) * 2 + 1) / (1 << 23)).astype(np.float32)
    x = np.tile(hardest(d), (1, 24)) * np.float32(2.0) ** random.integers(-60, 60, (512, 1))
    x *= random.choice([-1, 1], x.shape)
    x, want = x.astype(np.float32), (x.astype(np.float32) / d[:, None]).astype(np.float32)
    assert (x * (np.float32(1) / d)[:, None] != want).mean() > 0.1
    same(quotients(x, d, target), want)


KINDS = ("unit", "bits", "tiny", "huge", "zeros")


def draw(random: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all kinds; `bits` has infinities and NaNs among them."""
    if kind == "bits":
        return random.integers(0, 1 << 32, shape, dtype=np.uint64).astype(np.uint32).view(np.float32)
    unit = random.uniform(-1, 1, shape)
    if kind == "zeros":
        return np.where(random.random(shape) < 0.5, np.copysign(0.0, unit), unit).astype(np.float32)
    low, high = {"unit": (0, 1), "tiny": (-149, -90), "huge": (90, 128)}[kind]
    return (unit * 2.0 ** random.integers(low, high, shape)).astype(np.float32)


@pytest.mark.parametrize("of", ["positive", *KINDS])
@pytest.mark.parametrize("target", AMD)
def test_every_number_is_divided_as_ever(target: str, of: str) -> None:
    """Signs of zeros, denormals, infinities and NaNs included; of a wave in which one is none of the usual, all are."""
    random = np.random.default_rng(len(of))
    d = np.abs(draw(random, "unit", (40,))) if of == "positive" else draw(random, of, (40,))
    for kind in KINDS:
        x = draw(random, kind, (40, 512))
        with np.errstate(all="ignore"):
            same(quotients(x, d, target), x / d[:, None])


@pytest.mark.parametrize("target", AMD)
def test_rows_over_their_sums_divide_once(target: str) -> None:
    """A row of 32 numbers a lane took 11 instructions for each quotient."""
    x = np.random.default_rng(0).standard_normal((8, 2048)).astype(wd.bf16.storage)
    got, want = np.zeros_like(x), np.zeros_like(x)
    report = softmax.compile(x, got, target=target).emulate(x, got)
    softmax.evaluate(x, want)
    assert np.abs(got.astype(np.float64) - want.astype(np.float64)).max() <= 2.0**-8 * want.astype(np.float64).max()
    issued = {i: n for i, n in report.timing.issued.items() if "v_div_fixup_f32" in report.place(i)[0]}
    assert set(issued.values()) == {4}, "four waves, for the reciprocal"
    assert len(issued) == 1


def test_few_numbers_of_a_divisor_are_divided_one_by_one() -> None:
    x, y = np.ones((4, 256), np.float32), np.zeros((4, 256), np.float32)
    assert over_rows.compile(x, np.ones(4, np.float32), y, target="gfx942").asm.count("v_div_fixup_f32") == 4
