"""Operands that are computed in registers are made while the matrix instructions in front of them run.

On the emulated sm_90a with every check on, which reports a register that is written while an instruction reads it; and
by what ptxas makes of the text.
"""

from __future__ import annotations

import re
from typing import Any

import hopper
import numpy as np
import products
import pytest
from hopper import strategy, tiles
from products import BF16, F16, K, M, N, numbers
from selected import slow
from wavedsl.runtime import toolchain

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

FP8 = wd.f8e4m3
SMALL = tiles(64, 64, 64, 64, 64)
(G,) = wd.symbols("G")


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64).T


def constraints(m: int, n: int, k: int) -> list[Any]:
    return [wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k)]


TRIANGLES = {
    "lower": lambda m, k: m >= k,
    "upper": lambda m, k: m < k,
    "band": lambda m, k: (m - k < 5) & (m - k > -5),
    "stripes": lambda m, k: (m - k) & 3,
}


@pytest.mark.parametrize("rows, depth", [(64, 32), (64, 64), slow(128, 64), slow(64, 128)])
@pytest.mark.parametrize("name", TRIANGLES)
def test_operands_made_of_positions(name: str, rows: int, depth: int) -> None:
    """A running sum of rows is a triangle of ones times them. Nothing of the triangle is loaded, so all of it was made
    anew while the last group of the trip before still read it, and parts of it are the same in two groups."""
    inside = TRIANGLES[name]

    @wd.wave([wd.WorkgroupConstraint(M, rows, 0), wd.TilingConstraint(K, depth)])
    def kernel(x: wd.Memory[K, N, wd.f16], y: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            ones = wd.cast(wd.cast(inside(wd.index(M), wd.index(K)), wd.i32), wd.f16)
            return wd.mma(ones, wd.read(x), acc)

        wd.write(loop, y)

    for extent, columns in ((256, 64), (200, 40)):
        x, y = numbers((extent, columns), wd.f16, 1), np.full((extent, columns), products.SENTINEL, np.float32)
        compiled = kernel.compile(x, y, target="sm_90a")
        compiled.emulate(x, y)
        assert strategy(compiled).ahead
        ones = inside(*np.ogrid[:extent, :extent]).astype(np.float64)
        np.testing.assert_array_equal(y, ones @ x.astype(np.float64))


@pytest.mark.parametrize("extent", [16, slow(64), 208])
def test_trips_that_are_counted_when_the_kernel_runs(extent: int) -> None:
    """One trip, which is the last as well, or several."""
    a, b = numbers((extent, 64), wd.i8, 1), numbers((extent, 64), wd.f16, 2)
    c = np.full((64, 64), products.SENTINEL, np.float32)
    kernel = hopper.gemm(F16, "KM", "KN", stored=(wd.i8, None))
    compiled = kernel.compile(a, b, c, target="sm_90a", subs=SMALL, dynamic=[K])
    compiled.emulate(a, b, c)
    assert strategy(compiled).ahead
    products.expect_equal(c, product(a.T, b.T), F16)


@pytest.mark.parametrize(
    ("stored", "size", "subs", "schedule"),
    [
        ((None, FP8), (72, 64, 416), tiles(64, 64, 128, 64, 64), None),
        ((wd.i8, None), (320, 128, 160), tiles(64, 64, 64, 64, 64), wd.Schedule(persistent=True, ping_pong=True)),
        slow((None, wd.i8), (64, 256, 512), tiles(64, 128, 64, 64, 64), wd.Schedule(split_k=2)),
        slow((wd.i8, None), (256, 64, 256), SMALL, wd.Schedule(stages=2)),
        slow((wd.i8, None), (128, 64, 96), tiles(128, 64, 32, 128, 64), None),
    ],
)
def test_products(stored: tuple[Any, Any], size: tuple[int, int, int], subs: dict[Any, int], schedule: Any) -> None:
    """Tiles in turn, parts of sums, as few slots as there can be, two pieces along M."""
    m, n, k = size
    a, b = (numbers((rows, k), own or wd.f16, i) for i, (rows, own) in enumerate(zip((m, n), stored)))
    c = np.full((m, n), products.SENTINEL, np.float32)
    compiled = hopper.gemm(F16, stored=stored, schedule=schedule).compile(a, b, c, target="sm_90a", subs=subs)
    compiled.emulate(a, b, c)
    assert strategy(compiled).ahead
    products.expect_equal(c, product(a, b), F16)


def grouped(dtype: Any, group: int) -> Any:
    """x [M, K] times weights [N, K] of four bits, which share a scale with their neighbours along K."""

    @wd.wave(constraints(64, 64, group))
    def w4a16(
        x: wd.Memory[M, K, wd.SHARED, wd.bf16], q: wd.Memory[N, K, wd.SHARED, dtype], s: wd.Memory[G, N, wd.bf16],
        y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            scale = wd.read(s, mapping=wd.IndexMapping((N,), {G: wd.tile_start(K) // group}))
            return wd.mma(wd.read(x), wd.cast(wd.read(q), wd.bf16) * scale, acc)

        wd.write(loop, y)

    return w4a16


@pytest.mark.parametrize("dtype", [wd.i4, slow(wd.u4), slow(wd.f4e2m1)], ids=str)
def test_weights_of_four_bits_with_scales_per_group(dtype: Any) -> None:
    """The weights are the first operand, from registers; a scale is a power of two, so that sums are exact."""
    random = np.random.default_rng(3)
    x = random.integers(-4, 5, (72, 256)).astype(wd.bf16.storage)
    codes = random.integers(0, 16, (64, 256)).astype(np.uint8)
    s = np.exp2(random.integers(-2, 3, (2, 64))).astype(wd.bf16.storage)
    y = np.zeros((72, 64), np.float32)
    q = codes[:, ::2] | codes[:, 1::2] << 4
    compiled = grouped(dtype, 128).compile(x, q, s, y, target="sm_90a")
    compiled.emulate(x, q, s, y)
    assert strategy(compiled).ahead and "swapped" in str(compiled.kernel_ir.notes["lowering"].atoms)
    table = {
        "u4": np.arange(16), "i4": (np.arange(16) + 8) % 16 - 8,
        "f4e2m1": np.concatenate([sign * np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]) for sign in (1, -1)]),
    }[dtype.name]  # fmt: skip
    weights = table[codes] * np.repeat(s.astype(np.float64).T, 128, 1)
    np.testing.assert_array_equal(y, product(x, weights))


def test_two_products_of_a_trip() -> None:
    """The groups of both follow each other: operands of the second are made beside the first."""

    @wd.wave(constraints(64, 64, 64))
    def gated(
        x: wd.Memory[M, K, wd.SHARED, wd.bf16], g: wd.Memory[N, K, wd.SHARED, wd.i8],
        u: wd.Memory[N, K, wd.SHARED, wd.i8], y: wd.Memory[M, N, wd.f32], z: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, zero])
        def loop(gate, up):
            gate = wd.mma(wd.read(x), wd.cast(wd.read(g), wd.bf16), gate)
            return gate, wd.mma(wd.read(x), wd.cast(wd.read(u), wd.bf16), up)

        wd.write(loop[0], y)
        wd.write(loop[1], z)

    x, g, u = numbers((64, 208), wd.bf16, 1), numbers((64, 208), wd.i8, 2), numbers((64, 208), wd.i8, 3)
    y, z = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    compiled = gated.compile(x, g, u, y, z, target="sm_90a")
    compiled.emulate(x, g, u, y, z)
    assert strategy(compiled).ahead and "4 groups" in strategy(compiled).why["operands"]
    products.expect_equal(y, product(x, g), BF16)
    products.expect_equal(z, product(x, u), BF16)


def relu(schedule: Any = None) -> Any:
    @wd.wave(constraints(64, 64, 64), schedule=schedule)
    def relu_gemm(
        a: wd.Memory[M, K, wd.SHARED, wd.bf16], b: wd.Memory[N, K, wd.SHARED, wd.bf16], c: wd.Memory[M, N, wd.f32]
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.maximum(wd.read(a), 0.0), wd.read(b), acc)

        wd.write(loop, c)

    return relu_gemm


def test_a_wait_that_is_missing_is_found() -> None:
    """Without the waits of the loop a group's registers are written while its instructions of the trip before read
    them: the checks that the other tests rely on see it."""
    a, b, c = numbers((64, 256), wd.bf16, 1), numbers((64, 256), wd.bf16, 2), np.zeros((64, 64), np.float32)
    compiled = relu().compile(a, b, c, target="sm_90a")
    compiled.emulate(a, b, c)
    products.expect_equal(c, product(np.maximum(a, 0), b), BF16)
    bad, count = re.subn(r"(wait_group\S* +)1;", r"\g<1>3;", compiled.asm)
    assert count >= 2
    compiled.asm = bad
    with pytest.raises(wd.EmulationError, match="wait"):
        compiled.emulate(a, b, c)


def main_loop(text: str) -> list[str]:
    """Instructions of the shortest loop of the machine code that has matrix instructions, by mnemonic."""
    lines = toolchain.disassemble_cubin(toolchain.assemble_ptx(text, "sm_90a").cubin).splitlines()
    labels = {found[1]: i for i, line in enumerate(lines) if (found := re.match(r"\s*(\.L_x_\d+):", line))}
    loops = []
    for i, line in enumerate(lines):
        back = re.search(r"\bBRA\b.*`\((\.L_x_\d+)\)", line)
        if back and labels.get(back[1], i) < i:
            found = [re.search(r"\*/\s+(?:@!?U?P\d )?\s*([A-Z][\w.]*)", line) for line in lines[labels[back[1]] : i]]
            body = [m[1] for m in found if m]
            if any("GMMA" in x for x in body) and "EXIT" not in body:
                loops.append(body)
    return min(loops, key=len)


CASES: dict[str, Any] = {
    "bf16 x fp8, 64 rows": lambda: hopper.gemm(BF16, stored=(None, FP8)).compile(
        target="sm_90a", subs={**tiles(64, 64, 128, 64, 64), M: 64, N: 8192, K: 8192}
    ),
    "i8 x bf16": lambda: hopper.gemm(BF16, stored=(wd.i8, None)).compile(
        target="sm_90a", subs={**tiles(128, 256, 64, 64, 256), M: 4096, N: 8192, K: 8192}
    ),
    "bf16 x fp8": lambda: hopper.gemm(BF16, stored=(None, FP8)).compile(
        target="sm_90a", subs={**tiles(128, 256, 64, 128, 128), M: 4096, N: 8192, K: 8192}
    ),
    "bf16 x i4 scaled": lambda: grouped(wd.i4, 128).compile(target="sm_90a", subs={M: 64, N: 8192, K: 8192, G: 64}),
    "relu": lambda: relu().compile(target="sm_90a", subs={M: 4096, N: 8192, K: 8192}),
}


@pytest.mark.parametrize("name", [n if i % 3 == 0 else slow(n) for i, n in enumerate(CASES)])
def test_operands_are_made_between_a_group_and_its_wait(name: str, oracle: Any) -> None:
    """In the machine code the loop computes something behind the last instruction of every group and in front of the
    next group's first, and only waits that leave a group running stand there; products are not run one after the other,
    and nothing is spilled."""
    oracle("ptxas"), oracle("nvdisasm")
    compiled = CASES[name]()
    assert strategy(compiled).ahead
    found = hopper.static(compiled.asm)
    assert found.spills == 0 and not found.codes
    assert found.groups == len(re.findall(r"\bcommit_group\.sync", compiled.asm))
    groups = " ".join(main_loop(compiled.asm)).split("WARPGROUP.ARRIVE")[1:]
    arithmetic = re.compile(r"\b(F2FP|HADD2|HFMA2|HMUL2|HMNMX2|LOP3|PRMT|FMUL|FMNMX|I2F)")
    assert len(groups) >= 2
    for group in groups:
        assert arithmetic.search(group[group.rindex("GMMA") :])
    inside = compiled.asm[compiled.asm.index("$K") :]
    inside = inside[: inside.index("_end")]
    assert re.findall(r"wait_group\S* +(\d+)", inside) == ["1"] * inside.count("commit_group")


def shared(second: Any) -> Any:
    """Two products; `second` makes the other's first operand of the one's."""

    @wd.wave(constraints(64, 64, 64))
    def both(
        a: wd.Memory[M, K, wd.SHARED, wd.bf16], b: wd.Memory[N, K, wd.SHARED, wd.bf16],
        d: wd.Memory[N, K, wd.SHARED, wd.bf16], x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero, zero])
        def loop(one, two):
            rows = wd.maximum(wd.read(a), 0.0)
            return wd.mma(rows, wd.read(b), one), wd.mma(second(rows), wd.read(d), two)

        wd.write(loop[0], x)
        wd.write(loop[1], y)

    return both


def test_two_products_of_one_operand(oracle: Any) -> None:
    """Their instructions are in the same groups, and the operand is made once."""
    oracle("ptxas"), oracle("nvdisasm")
    a, b, d = (numbers((64, 208), wd.bf16, i) for i in range(3))
    x, y = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32)
    compiled = shared(lambda rows: rows).compile(a, b, d, x, y, target="sm_90a")
    compiled.emulate(a, b, d, x, y)
    assert strategy(compiled).ahead and "2 groups" in strategy(compiled).why["operands"]
    products.expect_equal(x, product(np.maximum(a, 0), b), BF16)
    products.expect_equal(y, product(np.maximum(a, 0), d), BF16)
    text = shared(lambda rows: rows).compile(target="sm_90a", subs={M: 64, N: 64, K: 256}).asm
    # In the loop and in the last trip behind it; no load stands in both a trip and the one before.
    assert text.count("max.bf16x2") == text.count("ld.shared") == 2 * 16 and text.count("mma_async") == 2 * 2 * 4
    found = hopper.static(text)
    assert found.spills == 0 and not found.codes
    assert found.groups == len(re.findall(r"\bcommit_group\.sync", text)) == 4


def test_what_is_not_made_ahead_says_why() -> None:
    """As asked for, without a copying warpgroup, and where one product's operand is made of the other's."""
    sizes = {M: 128, N: 128, K: 256}
    for kernel, reason in (
        (relu(wd.Schedule(stages=1)), "stages=1"), (relu(wd.Schedule(specialize=False)), "copies"),
        (shared(lambda rows: rows * 0.5), "share"),
    ):  # fmt: skip
        found = strategy(kernel.compile(target="sm_90a", subs=sizes))
        assert not found.ahead and reason in found.why["operands"]
        assert any(line.startswith("operands: made in front of their product") for line in found.lines())
