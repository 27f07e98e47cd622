"""Atomics at places that data decide are carried out in shared memory first where that pays, and leave what they would
leave in memory: graph evaluator, emulator, assembler and NumPy agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.runtime.emulator.cycle_chips import model_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd

TARGETS = ("gfx942", "gfx950", "sm_80", "sm_90a")
B, C, G, K, M, N = wd.symbols("B C G K M N")
TILE = 256
LOOP = [wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(K, TILE)]


def adds(op: str = "atomic_add", dtype: wd.DType = wd.i32, keys: wd.DType = wd.i32) -> Any:
    """A workgroup goes through its row of keys and weights."""

    @wd.wave(LOOP)
    def kernel(x: wd.Memory[G, K, keys], w: wd.Memory[G, K, dtype], bins: wd.Memory[B, dtype]):
        @wd.iterate(K)
        def body():
            at = wd.cast(wd.read(x), wd.i32)
            getattr(wd, op)(wd.read(w), bins, mapping=wd.IndexMapping((K,), {B: at}))

    return kernel


def reasons(compiled: wd.CompiledKernel) -> str:
    return "\n".join(compiled.kernel_ir.notes["decisions"].reasons)


def counted(compiled: wd.CompiledKernel) -> bool:
    k: Kernel = compiled.kernel_ir
    found = any(op.name == "atomic.shared" for op in k.body.walk())
    assert found == any(name.startswith("counts of ") for name in k.shared_names)
    assert found == bool(re.search(r"red\.shared\.|ds_(add|max|min|and|or|xor)_[uibf]", compiled.asm))
    return found


def checked(kernel: Any, args: list[np.ndarray], target: str, oracle: Any, want: bool | None = True) -> Any:
    compiled = agree(kernel, args, target, oracle)
    if want is not None:
        assert counted(compiled) == want, reasons(compiled)
        assert ("one by one" in reasons(compiled)) != want
    return compiled


def data(groups: int, k: int, bins: int, seed: int = 0, low: int = 0) -> list[np.ndarray]:
    """Keys, of which some lie outside where `low` is below 0, weights, and bins that are not empty."""
    rng = np.random.default_rng(seed)
    x = rng.integers(low, bins - low, (groups, k)).astype(np.int32)
    return [x, rng.integers(-9, 10, (groups, k)).astype(np.int32), rng.integers(-99, 99, bins).astype(np.int32)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_histogram_of_bytes(target: str, oracle: Callable[[str], str]) -> None:
    """One at a time, also where all keys are one, and NumPy agrees."""

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(K, 1024)])
    def kernel(x: wd.Memory[G, K, wd.u8], bins: wd.Memory[256, wd.i32]):
        @wd.iterate(K)
        def body():
            at = wd.cast(wd.read(x), wd.i32)
            wd.atomic_add(wd.Register[K, wd.i32](1), bins, mapping=wd.IndexMapping((K,), {256: at}))

    x = np.random.default_rng(0).integers(0, 256, (3, 8192)).astype(np.uint8)
    x[1] = 77
    bins = np.arange(256, dtype=np.int32)
    compiled = checked(kernel, [x, bins], target, oracle)
    got = bins.copy()
    compiled.emulate(x, got)
    np.testing.assert_array_equal(got, bins + np.bincount(x.ravel(), minlength=256))


@pytest.mark.parametrize("target", TARGETS)
def test_keys_outside_and_tiles_that_stick_out(target: str, oracle: Callable[[str], str]) -> None:
    """What lies outside of the array, or behind the row's end, is nowhere; weights are what they are."""
    checked(adds(), data(2, 16 * TILE - 57, 300, low=-20), target, oracle)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("op", "dtype"), [
    ("atomic_max", wd.i32), ("atomic_min", wd.u32), ("atomic_and", wd.i32), ("atomic_add", wd.i64),
    *(pytest.param(*x, marks=pytest.mark.slow) for x in (
        ("atomic_min", wd.i32), ("atomic_max", wd.u32), ("atomic_or", wd.u32), ("atomic_xor", wd.i32),
        ("atomic_add", wd.u32), ("atomic_max", wd.i64), ("atomic_min", wd.u64),
    )),
])  # fmt: skip
def test_what_leaves_the_same_in_any_order(
    op: str, dtype: wd.DType, target: str, oracle: Callable[[str], str]
) -> None:
    """Of all bits; 64 bits are a loop in NVIDIA's shared memory, and stay in memory there."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (2, 16 * TILE)).astype(np.int32)
    info = np.iinfo(dtype.numpy)
    w = rng.integers(info.min, info.max, x.shape, dtype.numpy, endpoint=True)
    bins = rng.integers(info.min, info.max, 256, dtype.numpy, endpoint=True)
    wide = dtype.bits == 64 and target.startswith("sm_")
    compiled = checked(adds(op, dtype), [x, w, bins], target, oracle, not wide)
    if wide:
        assert f"{target} has no {op} of {dtype} in shared memory" in reasons(compiled)


@pytest.mark.parametrize("target", TARGETS)
def test_two_arrays_and_two_atomics_on_one(target: str, oracle: Callable[[str], str]) -> None:
    """One of rows and columns; those of places that an expression says stay in memory."""

    @wd.wave(LOOP)
    def kernel(
        x: wd.Memory[G, K, wd.i32], y: wd.Memory[G, K, wd.i32], bins: wd.Memory[B, wd.i32],
        pairs: wd.Memory[7, C, wd.u32], line: wd.Memory[K, wd.i32],
    ):  # fmt: skip
        @wd.iterate(K)
        def body():
            at, there = wd.read(x), wd.read(y)
            one = wd.Register[K, wd.i32](1)
            wd.atomic_add(one, bins, mapping=wd.IndexMapping((K,), {B: at}))
            wd.atomic_add(there, bins, mapping=wd.IndexMapping((K,), {B: there}))
            wd.atomic_max(wd.cast(at, wd.u32), pairs, mapping=wd.IndexMapping((K,), {7: at % 7, C: there}))
            wd.atomic_add(there, line)

    rng = np.random.default_rng(2)
    x, y = (rng.integers(-1, 1030, (3, 16 * TILE)).astype(np.int32) for _ in range(2))
    args = [x, y, np.zeros(1024, np.int32), np.zeros((7, 160), np.uint32), np.zeros(16 * TILE, np.int32)]
    names = checked(kernel, args, target, oracle).kernel_ir.shared_names
    assert {"counts of bins", "counts of pairs"} <= names.keys() and "counts of line" not in names


@pytest.mark.parametrize("target", TARGETS)
def test_a_straight_kernel_with_many_elements(target: str, oracle: Callable[[str], str]) -> None:
    """Without a loop; few elements stay in memory."""

    def kernel(tile: int) -> Any:
        @wd.wave([wd.WorkgroupConstraint(N, tile, 0)])
        def kernel(x: wd.Memory[N, wd.i32], bins: wd.Memory[B, wd.i32]):
            wd.atomic_add(wd.Register[N, wd.i32](1), bins, mapping=wd.IndexMapping((N,), {B: wd.read(x)}))

        return kernel

    x = np.random.default_rng(3).integers(-2, 1027, 20000).astype(np.int32)
    args = [x, np.zeros(1024, np.int32)]
    checked(kernel(8192), args, target, oracle)
    few = checked(kernel(256), args, target, oracle, False)
    assert "to begin and end there" in reasons(few)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("turned", [False, True])
def test_each_workgroup_has_a_row_of_its_own(turned: bool, target: str, oracle: Callable[[str], str]) -> None:
    """Of a histogram per row a workgroup keeps its own, of one that is one for all workgroups all; rows that lie one
    element apart are kept with what lies between."""
    dims = (B, G) if turned else (G, B)
    table = wd.Memory[(*dims, wd.i32)]

    @wd.wave(LOOP)
    def kernel(x: wd.Memory[G, K, wd.i32], bins: table, every: wd.Memory[B, wd.i32]):
        @wd.iterate(K)
        def body():
            at = wd.read(x)
            wd.atomic_add(1, bins[at, :] if turned else bins[:, at])
            wd.atomic_max(at * 3, every[at])

    rng = np.random.default_rng(9)
    x = rng.integers(-1, 301, (5, 16 * TILE + 3)).astype(np.int32)
    bins = rng.integers(0, 99, (300, 5) if turned else (5, 300)).astype(np.int32)
    compiled = checked(kernel, [x, bins, np.zeros(300, np.int32)], target, oracle)
    sizes = {name: size for name, (_, size) in compiled.kernel_ir.shared_names.items()}
    row = 299 * 20 + 4 if turned else 1200
    assert sizes["counts of bins"] == -(-row // 128) * 128 and sizes["counts of every"] == 1280
    got = bins.copy()
    compiled.emulate(x, got, np.zeros(300, np.int32))
    want = np.stack([np.bincount(r[(r >= 0) & (r < 300)], minlength=300) for r in x], axis=dims.index(G))
    np.testing.assert_array_equal(got, bins + want)
    if not turned:  # nobody need know how many rows there are
        agree(kernel, [x, bins, np.zeros(300, np.int32)], target, dynamic=[G])
        assert counted(kernel.compile(x, bins, np.zeros(300, np.int32), target=target, dynamic=[G]))


@pytest.mark.parametrize("target", TARGETS)
def test_in_branches_and_loops_of_loops(target: str, oracle: Callable[[str], str]) -> None:
    """Rows that a condition leaves out, and a loop in a loop: counts last over all of it."""

    @wd.wave([wd.WorkgroupConstraint(G, 1, 0), wd.TilingConstraint(M, 1), wd.TilingConstraint(K, TILE)])
    def kernel(x: wd.Memory[G, M, K, wd.i32], on: wd.Memory[G, wd.i32], bins: wd.Memory[B, wd.i32]):
        @wd.iterate(M)
        def rows():
            def then():
                @wd.iterate(K)
                def body():
                    one = wd.Register[K, wd.i32](1)
                    row = wd.read(x[:, wd.tile_start(M), :])
                    wd.atomic_add(one, bins, mapping=wd.IndexMapping((K,), {B: row}))

            wd.cond(wd.read(on) > 0, then)

    x = np.random.default_rng(4).integers(0, 200, (4, 3, 4 * TILE + 9)).astype(np.int32)
    checked(kernel, [x, np.array([1, 0, 3, -1], np.int32), np.zeros(200, np.int32)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_beside_sums_and_products_of_waves(target: str, oracle: Callable[[str], str]) -> None:
    """Other buffers of shared memory lie behind the counts, and are as they were."""

    @wd.wave(LOOP)
    def kernel(
        x: wd.Memory[G, K, wd.i32], bins: wd.Memory[B, wd.i32], most: wd.Memory[G, wd.i32], sums: wd.Memory[G, wd.i32]
    ):
        @wd.iterate(K, init_args=[wd.Register[wd.i32](0), wd.Register[wd.i32](0)])
        def body(total, largest):
            at = wd.read(x)
            wd.atomic_add(at, bins, mapping=wd.IndexMapping((K,), {B: at}))
            return total + wd.sum(at, dim=K), wd.maximum(largest, wd.max(at, dim=K))

        wd.write(body[0], sums)
        wd.write(body[1], most)

    x = np.random.default_rng(5).integers(0, 500, (2, 16 * TILE)).astype(np.int32)
    args = [x, np.zeros(500, np.int32), np.zeros(2, np.int32), np.zeros(2, np.int32)]
    checked(kernel, args, target, oracle)


@pytest.mark.parametrize("target", ("gfx90a", *TARGETS))
@pytest.mark.parametrize("dtype", [wd.f32, wd.f64])
def test_sums_of_floats(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """AMD's shared memory adds them, NVIDIA's does not. Whole numbers: the same in any order. Places that nobody adds
    to keep what they hold, zeros of either sign and NaN."""
    kernel = adds("atomic_add", dtype)
    x, w, bins = data(40, 16 * TILE, 32, low=-3)
    kind = np.float32 if dtype is wd.f32 else np.float64
    x[x == 17] = 18
    x[x == 19] = 18
    bins = bins.astype(kind)
    bins[[17, 19, 20]] = -0.0, np.nan, np.inf
    args = [x, w.astype(kind), bins]
    compiled = checked(kernel, args, target, oracle, want=target.startswith("gfx"))
    if target.startswith("sm"):
        assert "has no atomic_add" in reasons(compiled)
    want = bins.copy()
    inside = (x >= 0) & (x < 32)
    np.add.at(want, x[inside], args[1][inside])
    got = [a.copy() for a in args]
    compiled.emulate(*got)
    np.testing.assert_array_equal(got[2], want)
    assert np.signbit(got[2][17])


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_sums_that_round(target: str) -> None:
    """In another order than one by one, within the bound of sums."""
    x, w, _ = data(40, 16 * TILE, 32)
    rng = np.random.default_rng(5)
    args = [x, rng.standard_normal(w.shape).astype(np.float32), rng.standard_normal(32).astype(np.float32)]
    compiled = adds("atomic_add", wd.f32).compile(*args, target=target)
    assert counted(compiled)
    want, size = args[2].astype(np.float64), np.abs(args[2]).astype(np.float64)
    np.add.at(want, x, args[1].astype(np.float64))
    np.add.at(size, x, np.abs(args[1]).astype(np.float64))
    got = [a.copy() for a in args]
    compiled.emulate(*got)
    np.testing.assert_array_less(np.abs(got[2] - want), 2.0**-20 * size)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_weights_by_place_are_added_beside_each_other(target: str) -> None:
    """A gradient's sums by bucket: the lines of few places were changed by every wave of the chip."""
    x, w, bins = data(1216, 16 * TILE, 64)
    args = [x, w.astype(np.float32), bins.astype(np.float32)]
    compiled = adds("atomic_add", wd.f32).compile(*args, target=target)
    moved = (x.nbytes + w.nbytes) / model_of(target).dram_rate
    assert sample(compiled, args).replay().cycles < 4 * moved


@pytest.mark.parametrize("target", TARGETS)
def test_what_stays_in_memory_and_why(target: str) -> None:
    """What was there is asked for, the array is read, one of two kinds, narrow elements, floats of which shared memory
    has no sums or which have signs for zeros, too large, no room."""
    loop, at = LOOP, wd.IndexMapping

    @wd.wave(loop)
    def asked(x: wd.Memory[G, K, wd.i32], bins: wd.Memory[B, wd.i32], old: wd.Memory[G, K, wd.i32]):
        @wd.iterate(K)
        def body():
            where = at((K,), {B: wd.read(x)})
            wd.write(wd.atomic_max(wd.Register[K, wd.i32](-1), bins, mapping=where), old)

    @wd.wave(loop)
    def read(x: wd.Memory[G, K, wd.i32], bins: wd.Memory[B, wd.i32], out: wd.Memory[G, B, wd.i32]):
        @wd.iterate(K)
        def body():
            wd.atomic_add(wd.Register[K, wd.i32](0), bins, mapping=at((K,), {B: wd.read(x)}))

        wd.write(wd.read(bins), out)

    @wd.wave(loop)
    def mixed(x: wd.Memory[G, K, wd.i32], bins: wd.Memory[B, wd.i32]):
        @wd.iterate(K)
        def body():
            wd.atomic_or(wd.Register[K, wd.i32](0), bins, mapping=at((K,), {B: wd.read(x)}))
            wd.atomic_add(wd.Register[K, wd.i32](1), bins, mapping=at((K,), {B: wd.read(x)}))

    x = np.random.default_rng(6).integers(0, 256, (2, 16 * TILE)).astype(np.int32)
    bins, zeros = np.zeros(256, np.int32), np.zeros(x.shape, np.int32)
    large = np.zeros(100_000, np.int32)
    once = read.compile(x, bins, np.zeros((2, 256), np.int32), target=target)  # (others may be adding meanwhile)
    assert not counted(once) and "reads or writes the array otherwise" in reasons(once)
    for kernel, args, why in (
        (asked, [x, bins, zeros.copy()], "what was there is asked for"),
        (mixed, [x, bins], "depend on their order"),
        (adds("atomic_add", wd.i16), [x, zeros.astype(np.int16), np.zeros(256, np.int16)], "in shared memory"),
        (adds("atomic_max", wd.f32), [x, zeros.astype(np.float32), np.zeros(256, np.float32)], "depend on their order"),
        (adds("atomic_add", wd.f16), [x, zeros.astype(np.float16), np.zeros(256, np.float16)], "in shared memory"),
        (adds(), [np.tile(x, 64), np.tile(zeros, 64), large], "of shared memory"),
        (adds(), [x[:, : 2 * TILE], zeros[:, : 2 * TILE], np.zeros(16000, np.int32)], "to begin and end there"),
    ):
        assert why in reasons(checked(kernel, args, target, None, False))


@pytest.mark.parametrize("target", TARGETS)
def test_shared_memory_that_is_nearly_full(target: str) -> None:
    """Counts that would leave room for fewer workgroups stay in memory."""

    @wd.wave(LOOP)
    def kernel(x: wd.Memory[G, K, wd.u8], bins: wd.Memory[B, wd.i32]):
        @wd.iterate(K)
        def body():
            at = wd.cast(wd.read(x), wd.i32) * 46
            wd.atomic_add(wd.Register[K, wd.i32](1), bins, mapping=wd.IndexMapping((K,), {B: at}))

    x = np.zeros((2000, 256 * TILE), np.uint8)
    few, many = (kernel.compile(x, np.zeros(n, np.int32), target=target) for n in (400, 12_000))
    assert counted(few) and not counted(many) and "resident" in reasons(many)


@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_run_time_sizes(target: str, oracle: Callable[[str], str]) -> None:
    """Of rows: a loop of which nobody knows how long it is; of the array: it stays in memory."""
    args = data(2, 13 * TILE + 5, 256, low=-3)
    checked(adds(), args, target, oracle, None)
    agree(adds(), args, target, dynamic=[K])
    assert counted(adds().compile(*args, target=target, dynamic=[K]))
    assert "known at run time" in reasons(adds().compile(*args, target=target, dynamic=[B]))


@pytest.mark.parametrize("target", TARGETS)
def test_loops_that_go_on_until_data_say_no_more(target: str) -> None:
    """A Hough transform: pixels that are none have no votes, and few angles none to spare. Counting took 1.5 times as
    long on gfx90a, as many trips as nobody knows being taken for sixteen."""

    @wd.wave([wd.WorkgroupConstraint(K, 128, 0)])
    def kernel(x: wd.Memory[K, wd.i32], last: wd.Scalar[wd.i32], bins: wd.Memory[B, wd.i32]):
        at = wd.read(x)

        def vote(t):
            wd.atomic_add(1, bins[wd.where(at >= 0, at + t, -1)])
            return t + 1

        wd.while_loop(lambda t: t < last, vote, [wd.Register[wd.i32](0)])

    x = np.where(np.arange(1024) % 5, -1, np.arange(1024) % 600).astype(np.int32)
    bins = np.zeros(700, np.int32)
    compiled = kernel.compile(x, 7, bins, target=target)
    compiled.emulate(x, 7, bins)
    want = np.zeros_like(bins)
    for t in range(7):
        np.add.at(want, x[x >= 0] + t, 1)
    np.testing.assert_array_equal(bins, want)
    assert not counted(compiled) and "one by one" in reasons(compiled)
