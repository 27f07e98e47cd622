"""Atomics on every chip: text against evaluator, exactly; whole numbers, so that the order of sums does not matter."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import products
import pytest
from agree import TARGETS, agree

import wavedsl as wd

N, B, M, K = wd.symbols("N B M K")
LINE = [wd.WorkgroupConstraint(N, 128, 0)]
DTYPES = (wd.f32, wd.u32, wd.f16)
MORE = (wd.i32, wd.i64, wd.u64, wd.f64, wd.bf16, wd.i8, wd.u16)


def whole(shape: Any, dtype: wd.DType, seed: int, low: int = -9) -> np.ndarray:
    return np.random.default_rng(seed).integers(0 if dtype.kind == "uint" else low, 10, shape).astype(dtype.storage)


def scattered(op: Callable[..., Any], dtype: wd.DType) -> Any:
    @wd.wave(LINE)
    def kernel(x: wd.Memory[N, dtype], bins: wd.Memory[N, wd.i32], out: wd.Memory[B, dtype]):
        op(wd.read(x), out, mapping=wd.IndexMapping((N,), {B: wd.read(bins)}))

    return kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*DTYPES, *(pytest.param(d, marks=pytest.mark.slow) for d in MORE)], ids=str)
@pytest.mark.parametrize("op", ["atomic_add", "atomic_min", "atomic_max"])
def test_many_meet_in_few_places(op: str, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Places outside of the array are skipped."""
    n, b = 300, 8
    bins = np.random.default_rng(1).integers(-1, b + 1, n).astype(np.int32)
    few = dtype in (wd.f16, wd.bf16, wd.i8)
    x = whole(n, dtype, 2) if not few else (np.random.default_rng(2).integers(-1, 2, n)).astype(dtype.storage)
    arguments = [x, bins, whole(b, dtype, 3)]
    agree(scattered(getattr(wd, op), dtype), arguments, target, oracle if op == "atomic_max" else None)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.i32, wd.u64, pytest.param(wd.u8, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("op", ["atomic_and", "atomic_or", "atomic_xor"])
def test_bits_meet_in_few_places(op: str, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """A set of bits of many; of what nobody asks for and of what was there."""
    rng, n, b = np.random.default_rng(4), 300, 8
    bits = np.left_shift(np.ones(n, dtype.numpy), rng.integers(0, dtype.bits, n).astype(dtype.numpy))
    x = ~bits if op == "atomic_and" else bits
    start = rng.integers(0, 127, b).astype(dtype.numpy)
    arguments = [x, rng.integers(-1, b + 1, n).astype(np.int32), start]
    compiled = agree(scattered(getattr(wd, op), dtype), arguments, target, oracle)
    name = op.removeprefix("atomic_")
    if dtype.bits >= 32:
        assert (f"red.global.{name}.b" if target.startswith("sm") else f"buffer_atomic_{name}") in compiled.asm

    @wd.wave(LINE)
    def kernel(x: wd.Memory[N, dtype], out: wd.Memory[N, dtype], old: wd.Memory[N, dtype]):
        wd.write(getattr(wd, op)(wd.read(x), out), old)

    agree(kernel, [x, ~x, np.zeros_like(x)], target, oracle)


@pytest.mark.parametrize("target", (*TARGETS, "sm_90a"))
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16, wd.bf16], ids=str)
def test_rows_into_one_row(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Every workgroup adds its row: neighbours of f16 and bf16 go in pairs."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 256, 1)])
    def kernel(a: wd.Memory[M, N, dtype], out: wd.Memory[N, dtype]):
        wd.atomic_add(wd.read(a), out)

    for m, n in ((4, 512), (3, 70), (5, 33)):
        a = np.random.default_rng(1).integers(-3, 4, (m, n)).astype(dtype.storage)
        if dtype.bits == 16 and n % 2:
            with pytest.raises(wd.CompileError, match="whole words"):
                kernel.compile(a, np.zeros(n, dtype.storage), target=target)
            continue
        compiled = agree(kernel, [a, whole(n, dtype, 2)], target, oracle if n == 70 else None)
        if dtype is wd.bf16 and target != "sm_80":  # gfx90a has none, and gfx942 only at addresses
            one = {"gfx942": "global_atomic_pk_add_bf16", "gfx950": "buffer_atomic_pk_add_bf16"}
            assert one.get(target, "cmpswap" if target == "gfx90a" else "red.global.add.noftz.bf16x2") in compiled.asm


@pytest.mark.parametrize("target", TARGETS)
def test_a_number_goes_to_every_element(target: str, oracle: Callable[[str], str]) -> None:
    """Numbers and extents stored and added: by name, through a mapping, into a part, as what is expected."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(
        x: wd.Memory[M, N, wd.i32], bins: wd.Memory[16, wd.i32], y: wd.Memory[M, N, wd.f32], flags: wd.Memory[N, wd.i1],
        parts: wd.Memory[M, 2 * N, wd.i32], claimed: wd.Memory[N, wd.i32],
    ):  # fmt: skip
        wd.atomic_add(1, bins, mapping=wd.IndexMapping((N,), {16: wd.read(x)}))
        wd.write(0.5, y)
        wd.write(True, flags)
        wd.write(N, parts[:, N:])
        wd.atomic_cas(0, N, claimed)

    x = np.random.default_rng(0).integers(-1, 17, (3, 100)).astype(np.int32)
    got = [x, np.zeros(16, np.int32), np.zeros((3, 100), np.float32), np.zeros(100, bool), np.zeros((3, 200), np.int32),
           np.arange(100, dtype=np.int32) % 2]  # fmt: skip
    agree(kernel, got, target, oracle)
    kernel.evaluate(*got)
    assert (got[1] == [(x == i).sum() for i in range(16)]).all() and (got[2] == 0.5).all() and got[3].all()
    assert (got[4] == [0] * 100 + [100] * 100).all() and (got[5] == np.where(np.arange(100) % 2, 1, 100)).all()


@pytest.mark.parametrize(("n", "together"), [(512, "v4.f32.add"), (514, "v2.f32.add"), (511, "add.f32")])
def test_neighbours_are_added_by_one_instruction(n: int, together: str, oracle: Callable[[str], str]) -> None:
    """sm_90a: as many as rows of the array allow, unless what was there is asked for."""

    def kernel_of(asked: bool) -> Any:
        @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 256, 1)])
        def kernel(a: wd.Memory[M, N, wd.f32], out: wd.Memory[M, N, wd.f32], old: wd.Memory[M, N, wd.f32]):
            found = wd.atomic_add(wd.read(a), out)
            wd.write(found if asked else wd.read(a), old)

        return kernel

    arrays = [whole((5, n), wd.f32, seed) for seed in (1, 2, 3)]
    agree(kernel_of(False), arrays, "sm_90a", oracle)
    assert f"red.global.{together}" in kernel_of(False).compile(*arrays, target="sm_90a").asm
    agree(kernel_of(True), arrays, "sm_90a")
    assert "atom.global.add.f32" in kernel_of(True).compile(*arrays, target="sm_90a").asm


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.i32, wd.i64, wd.u8], ids=str)
def test_what_was_there(dtype: wd.DType, target: str) -> None:
    """Each place is met once, so what comes back is known."""
    n = 100
    places = np.random.default_rng(1).permutation(n + 20)[:n].astype(np.int32)

    @wd.wave(LINE)
    def kernel(
        x: wd.Memory[N, dtype], at: wd.Memory[N, wd.i32], out: wd.Memory[B, dtype], old: wd.Memory[N, dtype],
        again: wd.Memory[N, dtype],
    ):  # fmt: skip
        mapping = wd.IndexMapping((N,), {B: wd.read(at)})
        value = wd.read(x)
        wd.write(wd.atomic_xchg(value, out, mapping=mapping), old)
        wd.write(wd.atomic_cas(value, value + value, out, mapping=mapping), again)

    agree(kernel, [whole(n, dtype, 2), places, whole(n + 4, dtype, 3), whole(n, dtype, 4), whole(n, dtype, 5)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_once_per_element_whatever_the_grid(target: str) -> None:
    """Workgroups and waves along N, which the value lacks, do not add again."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1), wd.WaveConstraint(N, 32)])
    def kernel(x: wd.Memory[M, wd.i32], y: wd.Memory[M, N, wd.i32], out: wd.Memory[M, wd.i32]):
        value = wd.read(x)
        wd.atomic_add(value, out)
        wd.write(wd.broadcast(value, M, N), y)

    arguments = [whole(20, wd.i32, 1), np.zeros((20, 200), np.int32), whole(20, wd.i32, 2)]
    agree(kernel, arguments, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("waves", [1, 2])
def test_a_ticket_per_workgroup(waves: int, target: str) -> None:
    """One lane asks; every lane of every wave gets the number."""
    one = wd.sym.ONE

    tiles = [wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 128, 1), wd.WaveConstraint(N, 128 // waves)]

    @wd.wave(tiles, subs={one: 1})
    def kernel(count: wd.Memory[one, wd.i32], out: wd.Memory[M, N, wd.i32]):
        ticket = wd.atomic_add(wd.Register[wd.i32](1), count, mapping=wd.IndexMapping((), {one: 0 * one}))
        wd.write(wd.broadcast(ticket, N), out)

    count, out = np.zeros(1, np.int32), np.zeros((6, 100), np.int32)
    kernel.compile(count, out, target=target).emulate(count, out)
    assert count[0] == 6 and sorted(out[:, 0]) == list(range(6)) and (out == out[:, :1]).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.i32], ids=str)
def test_a_workgroup_joins_what_meets_in_one_place(dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Sums and maxima of what workgroups share: of columns, of rows, of everything; and of a column, which only one of
    the workgroups beside each other adds. Of numbers that are rounded the maximum is none that was rounded."""
    one = wd.sym.ONE

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(
        x: wd.Memory[M, N, dtype], columns: wd.Memory[N, dtype], rows: wd.Memory[M, dtype], most: wd.Memory[N, dtype],
        total: wd.Memory[one, dtype], first: wd.Memory[one, dtype],
    ):  # fmt: skip
        value = wd.read(x)
        wd.atomic_add(value, columns, mapping=wd.IndexMapping((M, N), {N: N}))
        wd.atomic_add(value, rows, mapping=wd.IndexMapping((M, N), {M: M}))
        wd.atomic_max(value, most, mapping=wd.IndexMapping((M, N), {N: N}))
        wd.atomic_add(value, total, mapping=wd.IndexMapping((M, N), {one: 0}))
        wd.atomic_add(wd.read(x[:, 0]), first, mapping=wd.IndexMapping((M,), {one: 0}))

    for m, n in ((32, 128), (37, 70)):
        arguments = [
            whole((m, n), dtype, 1), whole(n, dtype, 2), whole(m, dtype, 3), whole(n, dtype, 4), whole(1, dtype, 5),
            whole(1, dtype, 6),
        ]  # fmt: skip
        compiled = agree(kernel, arguments, target, oracle if n == 70 else None)
    done = re.findall(r"^\s*(?:@%\w+ )?(?:buffer_atomic|atom\.|red\.)", compiled.asm, re.MULTILINE)
    # One for each of a lane's elements were 17 and 33; floats' maxima are four each, and one of them is done.
    assert len(done) <= (12 if dtype is wd.i32 else 24)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ["cond", "loop", "while"])
def test_some_of_the_workgroups_that_share_a_value(how: str, target: str) -> None:
    """Only the first workgroup along M would add: where it does not come by, nothing was added at all."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.TilingConstraint(K, 8)], subs={K: 40})
    def kernel(x: wd.Memory[N, wd.i32], out: wd.Memory[N, wd.i32]):
        def add(*carried):
            wd.atomic_add(wd.read(x), out)
            return carried

        if how == "cond":
            wd.cond(wd.tile_start(M) >= 16, add, lambda: ())
        elif how == "loop":
            wd.iterate(K, stop=wd.tile_start(M))(add)
        else:
            start = wd.Register[wd.i32](0)
            wd.while_loop(lambda n: n < wd.tile_start(M), lambda n: (add(), n + 16)[1], [start])

    arguments = [np.arange(5, dtype=np.int32), np.zeros(5, np.int32)]
    for run in (
        lambda: kernel.evaluate(*arguments, subs={M: 40}),
        lambda: kernel.compile(*arguments, target=target, subs={M: 40}),
    ):
        with pytest.raises(wd.ConstraintError, match=r"condition that .*differ.* along M") as caught:
            run()
        assert caught.value.location is not None and "dimension M" in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
def test_all_workgroups_decide_alike(target: str) -> None:
    """A condition that is the same everywhere leaves one of them to add."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(x: wd.Memory[N, wd.i32], out: wd.Memory[N, wd.i32], y: wd.Memory[M, wd.i32], flag: wd.Scalar[wd.i32]):
        def add():
            wd.atomic_add(wd.read(x), out)

        wd.cond((flag > 1) & (wd.sum(wd.read(x), dim=N) > 3), add, lambda: None)
        wd.write(wd.index(M), y)

    for flag in (0, 2):
        x, out, y = np.arange(5, dtype=np.int32), np.zeros(5, np.int32), np.zeros(40, np.int32)
        agree(kernel, [x, out, y, np.int32(flag)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_reads_and_writes_of_some_workgroups(target: str) -> None:
    """The evaluator could not say what a mapped access does under a condition with dimensions that it does not have."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0)])
    def kernel(x: wd.Memory[N, wd.i32], out: wd.Memory[B, wd.i32], y: wd.Memory[M, wd.i32]):
        def later():
            wd.write(wd.read(x), out, mapping=wd.IndexMapping((N,), {B: wd.index(N) + 1}))
            shifted = wd.read(x, mapping=wd.IndexMapping((N,), {N: wd.index(N) + 1}))
            wd.write(wd.index(M) + wd.sum(shifted, dim=N), y)
            return ()

        wd.cond(wd.tile_start(M) >= 16, later, lambda: ())

    agree(kernel, [np.arange(5, dtype=np.int32), np.zeros(8, np.int32), np.zeros(40, np.int32)], target)


@pytest.mark.parametrize("target", (*TARGETS, "sm_90a"))
@pytest.mark.parametrize("dtype", [wd.f32, wd.f64, wd.f16, wd.i64, wd.u8], ids=str)
def test_constants_that_are_exchanged(dtype: wd.DType, target: str) -> None:
    """AMD: the bits of a constant float are a number, not a register; `words` asked it how many words it has."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(out: wd.Memory[N, dtype], old: wd.Memory[N, dtype], other: wd.Memory[N, dtype]):
        one, five = wd.Register[N, dtype](1), wd.Register[N, dtype](5)
        wd.write(wd.atomic_xchg(one, out), old)
        if not dtype.is_float:
            wd.atomic_cas(five, one, other)

    agree(kernel, [whole(100, dtype, 1), whole(100, dtype, 2), np.full(100, 5).astype(dtype.storage)], target)


KINDS = (0.0, 1.0, 2.5, 1e-40, 3e38, np.inf, np.nan)
SIGNED = np.array([sign * x for x in KINDS for sign in (1, -1)])
SIGNED[-1] = np.copysign(np.nan, -1)


def kept(op: str, m: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What a number in memory becomes: -0 is less than +0, and any number wins over NaN."""
    larger = op == "atomic_max"
    wins = (x > m) if larger else (x < m)
    wins |= (x == m) & (np.signbit(m) if larger else np.signbit(x))
    return np.where(np.isnan(m) | (wins & ~np.isnan(x)), x, m)


def same(got: np.ndarray, want: np.ndarray) -> None:
    alike = (got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
    assert alike.all(), (np.flatnonzero(~alike)[:5], got[~alike][:5], want[~alike][:5])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f64], ids=str)
@pytest.mark.parametrize("op", ["atomic_min", "atomic_max"])
def test_floats_of_all_kinds_meet(op: str, dtype: wd.DType, target: str, oracle: Callable[[str], str]) -> None:
    """Every kind in memory and in the value, each place once: what stays and what was there; then many in one place."""

    @wd.wave([wd.WorkgroupConstraint(N, 512, 0)])
    def kernel(
        x: wd.Memory[N, dtype], out: wd.Memory[N, dtype], asked: wd.Memory[N, dtype], old: wd.Memory[N, dtype],
        bins: wd.Memory[N, wd.i32], few: wd.Memory[B, dtype],
    ):  # fmt: skip
        value = wd.read(x)
        getattr(wd, op)(value, out)
        wd.write(getattr(wd, op)(value, asked), old)
        getattr(wd, op)(value, few[wd.read(bins)])

    m, x = (v.ravel().astype(dtype.numpy) for v in np.meshgrid(SIGNED, SIGNED))
    m, x = np.tile(m, 4), np.tile(x, 4)
    bins = np.arange(len(x), dtype=np.int32) // len(SIGNED) % 20
    few = SIGNED[np.arange(20) % len(SIGNED)].astype(dtype.numpy)
    arguments = [x, m.copy(), m.copy(), np.zeros_like(m), bins, few.copy()]
    meant = [a.copy() for a in arguments]
    kernel.evaluate(*meant)
    compiled = kernel.compile(*arguments, target=target)
    compiled.emulate(*arguments)
    signed = f"atom.global.{op[7:]}.s" if target.startswith("sm") else f"buffer_atomic_s{op[7:]}"
    assert signed in compiled.asm
    _, out, asked, old, _, got = arguments
    same(out, kept(op, m, x))
    same(asked, kept(op, m, x))
    same(old, m)
    for i, b in enumerate(bins):
        few[b] = kept(op, few[b], x[i])
    same(got, few)
    for mine, theirs in zip(arguments, meant):
        same(mine, theirs)
    products.assemble(compiled, oracle)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f32, wd.f16, pytest.param(wd.f64, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("op", ["atomic_min", "atomic_max"])
def test_a_workgroup_joins_floats_of_all_kinds(op: str, dtype: wd.DType, target: str) -> None:
    """Columns of numbers, zeros, infinities and NaN, some of NaN alone, into memory that holds each of them."""

    @wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(x: wd.Memory[M, N, dtype], out: wd.Memory[N, dtype]):
        getattr(wd, op)(wd.read(x), out, mapping=wd.IndexMapping((M, N), {N: N}))

    random, n = np.random.default_rng(0), 14 * 14
    with np.errstate(over="ignore"):
        kinds = SIGNED.astype(dtype.numpy)
    x = kinds[random.integers(0, 14, (37, n))]
    x[:, ::3] = np.where(random.random((37, len(x[0, ::3]))) < 0.5, kinds[-2], kinds[-1])
    x[5, ::6] = kinds[np.arange(len(x[0, ::6])) % 14]
    out = np.repeat(kinds, 14)
    want = out.copy()
    for row in x:
        want = kept(op, want, row)
    arguments = [x, out]
    agree(kernel, arguments, target, compare=same)
    kernel.compile(*arguments, target=target).emulate(*arguments)
    same(arguments[1], want)


@pytest.mark.parametrize("target", TARGETS)
def test_swaps_share_a_loop(target: str) -> None:
    """A lane's bytes are swapped together, in loops of eight; some lie in one word, some lanes meet in one place."""
    n, tile = 2048, 1024

    @wd.wave([wd.WorkgroupConstraint(N, tile, 0), wd.WaveConstraint(N, tile)])
    def kernel(x: wd.Memory[N, wd.i8], bins: wd.Memory[N, wd.i32], out: wd.Memory[B, wd.i8]):
        wd.atomic_max(wd.read(x), out[wd.read(bins)])

    bins = np.random.default_rng(2).integers(-1, 80, n).astype(np.int32)
    compiled = agree(kernel, [whole(n, wd.i8, 1), bins, whole(80, wd.i8, 3)], target)
    lanes = 32 if target.startswith("sm") else 64
    assert len(re.findall(r"^\S*swap_?\d*:", compiled.asm, re.M)) == tile // lanes // 8
