"""Passes that rearrange float arithmetic and masks: loops cut where masks hold, conditions sunk, f32 in pairs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.into_branches import sink_into_branches
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.kernel.kernel_ir import B32, F32, I32, Kernel, Param, vector
from wavedsl.ir.kernel.kernel_verify import check
from wavedsl.ir.kernel.linear import difference, linear
from wavedsl.ir.kernel.pair_floats import pair_floats
from wavedsl.ir.kernel.sink import sink_conditions
from wavedsl.ir.kernel.split_loops import per_wave, split_loops

from .kernels import make_target

TARGET = make_target(packed_f32=True, scalar_registers=True)


def masked_sum(low: int, high: int, trips: int, waves: int = 1, meet: bool = True):
    """Each lane adds the indices i * 64 + j, j < 16, that lie in low + thread .. high + thread, over `trips` trips.
    `meet`: in each trip all waves do."""
    params = [Param("y", "pointer", dtypes.f32, 0, 8, access="write"), Param("n", "scalar", dtypes.i32, 8, 4)]
    kernel = new_kernel("sum", "gfx942", waves=waves, params=params, grid=(1, 1, 1))
    b = Builder(kernel)
    tid = b.add(b.mul(b.wave(), 64), b.lane()) if waves > 1 else b.lane()
    n = b.param(1, lo=0, hi=trips)
    with b.for_(0, n, 1, [b.const(0.0, F32)], label="i") as loop:
        total = loop.carried[0]
        base = b.mul(loop.iv, 64)
        for j in range(16):
            at = b.add(base, j)
            inside = b.pand(b.cmp("sge", at, b.add(tid, low)), b.cmp("slt", at, b.add(tid, high)))
            number = b.cvt(at, F32)
            total = b.fadd(total, b.select(inside, number, b.const(0.0, F32)))
        if waves > 1 and meet:
            b.barrier()
        loop.yield_([total])
    b.store_global(b.buffer(b.param(0), 64 * waves * 4), b.mul(tid, 4), loop.results[0])
    return b.finish()


def result(kernel, n: int, waves: int = 1) -> np.ndarray:
    y = np.zeros(64 * waves, np.float32)
    run(kernel, [y, n])
    return y


def loops(kernel):
    return [op for op in kernel.body.walk() if op.name == "for"]


@pytest.mark.parametrize("waves", [1, 2])
@pytest.mark.parametrize(("low", "high"), [(-1000, 700), (150, 5000), (130, 900), (200, 210), (300, 100)])
def test_cut_loops_give_the_same_sums(low: int, high: int, waves: int) -> None:
    trips = 20
    cut = split_loops(masked_sum(low, high, trips, waves))
    assert not check(cut, TARGET)
    for n in (0, 1, 7, trips):
        assert np.array_equal(result(cut, n, waves), result(masked_sum(low, high, trips, waves), n, waves)), n


@pytest.mark.parametrize("meet", [True, False])
def test_waves_that_do_not_meet_in_a_loop_cut_it_where_their_own_masks_hold(meet: bool) -> None:
    cut = split_loops(masked_sum(130, 900, 20, 3, meet))
    assert not check(cut, TARGET)
    own = per_wave(cut)
    parts = {op.attrs["part"]: op for op in loops(cut)}
    assert [bound in own for bound in parts["whole"].args[:2]] == [not meet, not meet]
    assert np.array_equal(result(cut, 20, 3), result(masked_sum(130, 900, 20, 3), 20, 3))


def test_the_middle_loop_has_no_masks() -> None:
    found = loops(split_loops(masked_sum(130, 900, 20)))
    assert [op.attrs["part"] for op in found] == ["masked", "whole", "masked"]
    parts = {op.attrs["part"]: op for op in found}
    inside = {op.name for op in parts["whole"].regions[0].ops}
    assert not inside & {"cmp", "select", "pand"}
    assert {"cmp", "select"} <= {op.name for op in parts["masked"].regions[0].ops}


def loaded_sum(waves: int, access: str = "read"):
    """Each lane adds the indices i * 64 + j, j < 16, in low + thread .. high - low + thread, both loaded, over 8 trips;
    sums wrap."""
    params = [
        Param("y", "pointer", dtypes.f32, 0, 8, access="write"),
        Param("ends", "pointer", dtypes.i32, 8, 8, access=access),
    ]
    kernel = new_kernel("sum", "gfx942", waves=waves, params=params, grid=(1, 1, 1))
    b = Builder(kernel)
    tid = b.tid() if waves > 1 else b.lane()
    ends = b.buffer(b.param(1), 8)
    low, high = (b.bitcast(b.load_global(ends, 4 * i, bytes=4), I32) for i in range(2))
    size = b.sub(high, low)
    with b.for_(0, 8, 1, [b.const(0.0, F32)], label="i") as loop:
        total = loop.carried[0]
        for j in range(16):
            at = b.add(b.mul(loop.iv, 64), j)
            inside = b.pand(b.cmp("sge", at, b.add(tid, low)), b.cmp("slt", at, b.add(tid, size)))
            total = b.fadd(total, b.select(inside, b.cvt(at, F32), b.const(0.0, F32)))
        if waves > 1:
            b.barrier()
        loop.yield_([total])
    b.store_global(b.buffer(b.param(0), 64 * waves * 4), b.mul(tid, 4), loop.results[0])
    return b.finish()


@pytest.mark.parametrize("waves", [1, 2])
def test_numbers_that_are_loaded_cut_loops_where_sums_with_them_cannot_wrap(waves: int) -> None:
    cut = split_loops(loaded_sum(waves))
    assert [op.attrs["part"] for op in loops(cut)] == ["masked", "whole", "masked"]
    assert not check(cut, TARGET)
    edge, far = 1 << 27, 1 << 31
    for ends in ((0, 500), (130, 470), (-far, 40), (far - 20, 9), (-9, far - 5), (edge, 2 * edge), (-edge, 7)):
        want, got = np.zeros(64 * waves, np.float32), np.zeros(64 * waves, np.float32)
        run(loaded_sum(waves), [want, np.array(ends, np.int32)])
        run(cut, [got, np.array(ends, np.int32)])
        assert np.array_equal(got, want), ends


def test_numbers_that_may_be_written_meanwhile_cut_no_loop() -> None:
    """Waves might cut at different trips."""
    kernel = loaded_sum(2, "readwrite")
    assert split_loops(kernel) is kernel


def test_loops_that_gain_too_little_stay_whole() -> None:
    params = [Param("y", "pointer", dtypes.f32, 0, 8, access="write"), Param("n", "scalar", dtypes.i32, 8, 4)]
    kernel = new_kernel("sum", "gfx942", params=params, grid=(1, 1, 1))
    b = Builder(kernel)
    with b.for_(0, b.param(1, lo=0, hi=9), 1, [b.const(0.0, F32)], label="i") as loop:
        x = loop.carried[0]
        for j in range(40):
            x = b.fadd(b.fmul(x, float(j + 2)), float(j))
        loop.yield_([b.select(b.cmp("slt", b.lane(), loop.iv), x, loop.carried[0])])
    b.store_global(b.buffer(b.param(0), 256), b.mul(b.lane(), 4), loop.results[0])
    kernel = b.finish()
    assert split_loops(kernel) is kernel


def test_linear_forms_are_whole_numbers() -> None:
    kernel = new_kernel("k", "gfx942", params=[Param("n", "scalar", dtypes.i32, 0, 4)], grid=(1, 1, 1))
    b = Builder(kernel)
    lane, n = b.lane(), b.param(0, lo=0, hi=1000)
    form = difference(b.add(b.mul(n, 64), b.add(lane, 5)), b.shl(lane, 2))
    assert (form.constant, form.terms) == (5, {n: 64, lane: -3})
    wild = b.param(0)  # nothing is known of it: it may wrap, and then the sum is no sum
    assert linear(b.add(wild, lane)).terms == {b.add(wild, lane): 1}


def test_conditions_stand_before_their_readers_and_again_before_far_ones() -> None:
    params = [Param("y", "pointer", dtypes.f32, 0, 8, access="write")]
    kernel = new_kernel("k", "gfx942", params=params, grid=(1, 1, 1))
    b = Builder(kernel)
    lane, zero = b.lane(), b.const(0.0, F32)
    numbers = [b.cvt(b.add(lane, j), F32) for j in range(20)]
    masks = [b.cmp("slt", b.add(b.mul(lane, 3), j), 40) for j in range(20)]
    first = [b.select(m, x, zero) for m, x in zip(masks, numbers)]
    more = [b.fmul(x, x) for x in first] + [b.fadd(x, 1.0) for x in first]
    second = [b.select(m, x, zero) for m, x in zip(masks, more)]
    total = second[0]
    for x in second[1:]:
        total = b.fadd(total, x)
    b.store_global(b.buffer(b.param(0), 256), b.mul(lane, 4), total)
    kernel = b.finish()
    want, got = np.zeros(64, np.float32), np.zeros(64, np.float32)
    run(kernel, [want])
    sink_conditions(kernel, TARGET)
    run(kernel, [got])
    assert np.array_equal(want, got) and not check(kernel, TARGET)
    ops = kernel.body.ops
    masks_made = [i for i, op in enumerate(ops) if op.name == "cmp"]
    assert len(masks_made) == 40  # once per reader: the second ones are far away
    assert all(ops[i + 1].name == "select" and ops[i].results[0] in ops[i + 1].args for i in masks_made)


@pytest.mark.parametrize("taken", [True, False])
def test_what_one_branch_reads_is_computed_there(taken: bool) -> None:
    """A chain that the branch alone reads moves in order; what others read too and what a loop separates stays."""
    params = [Param("y", "pointer", dtypes.f32, 0, 8, access="write")]
    kernel = new_kernel("k", "gfx942", params=params, grid=(2, 1, 1))
    b = Builder(kernel)
    lane = b.lane()
    x = b.cvt(lane, F32)
    early = b.fmul(x, 7.0)
    with b.for_(0, 3, 1, [x]) as loop:
        loop.yield_(b.fadd(loop.carried[0], 1.0))
    (y,) = loop.results
    both, chain = b.fadd(y, 2.0), b.fmul(b.fadd(y, 3.0), 5.0)
    out = b.buffer(b.param(0), 512)
    b.store_global(out, b.mul(lane, 4), both)
    with b.if_(b.cmp("eq", b.wgid(0), 0 if taken else 2)):
        b.store_global(out, b.add(b.mul(lane, 4), 256), b.fadd(b.fadd(chain, both), early))
    kernel = b.finish()
    want, got = np.zeros(128, np.float32), np.zeros(128, np.float32)
    run(kernel, [want])
    before = [op.name for op in kernel.body.ops]
    sink_into_branches(kernel, TARGET)
    run(kernel, [got])
    assert np.array_equal(want, got) and want[:64].any() and bool(want[64:].any()) == taken
    assert not check(kernel, TARGET)
    (branch,) = (op for op in kernel.body.ops if op.name == "if")
    inside = [op.name for op in branch.regions[0].ops]
    assert inside[:4] == ["fadd", "fmul", "fadd", "fadd"] and before.count("fadd") == 4
    left = [op.name for op in kernel.body.ops]
    assert left.count("fadd") == 1 and left.count("fmul") == 1


@pytest.mark.parametrize(("between", "moved"), [("nothing", 2), ("other bytes", 2), ("its bytes", 1), ("barrier", 0)])
def test_branches_of_which_waves_take_one_each_load_what_they_alone_read(between: str, moved: int) -> None:
    """On every chip, with the arithmetic; not past what may change the bytes that are loaded (one of two here)."""
    params = [Param("y", "pointer", dtypes.f32, 0, 8, access="write")]
    kernel = new_kernel("k", "gfx942", waves=2, params=params, grid=(1, 1, 1))
    kernel.shared_names.update(a=(0, 1024), b=(1024, 1024))
    kernel.shared_bytes = 2048
    b = Builder(kernel)
    at = b.mul(b.add(b.mul(b.wave(), 64), b.lane()), 4)
    b.store_shared(at, b.cvt(b.lane(), F32), bytes=4, buffer="a")
    b.store_shared(b.add(at, 512), b.cvt(b.lane(), F32), bytes=4, buffer="a")
    b.barrier()
    numbers = [b.load_shared(b.xor(at, 256 * i), bytes=4, buffer="a", type=F32) for i in (1, 2)]
    changed = [b.fmul(x, 7.0 + i) for i, x in enumerate(numbers)]
    if between == "barrier":
        b.barrier()
    elif between != "nothing":
        of = "b" if between == "other bytes" else "a"
        b.store_shared(b.add(at, 1024 if of == "b" else 512), b.const(1.0, F32), bytes=4, buffer=of)
    out = b.buffer(b.param(0), 512)
    for wave, x in enumerate(changed):
        with b.if_(b.cmp("eq", b.wave(), wave), inside=True):
            b.store_global(out, at, x)
    kernel = b.finish()
    want, got = np.zeros(128, np.float32), np.zeros(128, np.float32)
    run(kernel, [want])
    sink_into_branches(kernel, replace(TARGET, assembler_schedules=True))
    run(kernel, [got])
    assert np.array_equal(want, got) and want.any() and not check(kernel, TARGET)
    branches = [op for op in kernel.body.ops if op.name == "if"]
    assert [[op.name for op in x.regions[0].ops].count("fmul") for x in branches] == [1, 1]
    inside = sum(op.name == "load.shared" for x in branches for op in x.regions[0].ops)
    assert (inside, sum(op.name == "load.shared" for op in kernel.body.ops)) == (moved, 2 - moved)


def test_neighbours_are_added_and_multiplied_in_pairs() -> None:
    params = [
        Param("x", "pointer", dtypes.f32, 0, 8, access="read"),
        Param("y", "pointer", dtypes.f32, 8, 8, access="write"),
    ]

    def build():
        kernel = new_kernel("k", "gfx942", params=list(params), grid=(1, 1, 1))
        b = Builder(kernel)
        at = b.mul(b.lane(), 16)
        four = b.bitcast(b.load_global(b.buffer(b.param(0), 1024), at, bytes=16), vector(4, "f32"))
        x = [b.slice(four, i) for i in range(4)]
        scale = b.cvt(b.lane(), F32)
        exponents = [b.ffma(v, scale, b.const(-1.0, F32)) for v in x]
        y = [b.exp2(v) for v in exponents]
        products = [b.fmul(a, c) for a, c in zip(y, x)]
        z = [b.fadd(p, a) for p, a in zip(products, y)]
        b.store_global(b.buffer(b.param(1), 1024), at, b.vec(*z))
        return b.finish()

    x = np.random.default_rng(0).uniform(-0.05, 0.05, 256).astype(np.float32)
    want, got = np.zeros(256, np.float32), np.zeros(256, np.float32)
    run(build(), [x, want])
    paired = pair_floats(build(), TARGET)
    assert not check(paired, TARGET)
    run(paired, [x, got])
    assert np.array_equal(want, got)
    arithmetic = [op for op in paired.body.walk() if op.name in ("ffma", "exp2", "fmul", "fadd")]
    assert all(op.results[0].type.n == 2 for op in arithmetic) and len(arithmetic) == 8
    assert pair_floats(build(), make_target()).body.ops  # without packed arithmetic nothing changes
    assert all(op.results[0].type.n == 1 for op in pair_floats(build(), make_target()).body.walk() if op.name == "ffma")


def logistic(name: str, between: bool = False) -> Kernel:
    """y = x / (1 + exp(-x)) of four numbers a lane, one after the other; `between`: each is read from what the one
    before has written."""
    kinds = {"x": "readwrite", "y": "write"}
    kernel = new_kernel(
        name, "gfx942", grid=(1, 1, 1),
        params=[Param(n, "pointer", dtypes.f32, 8 * i, 8, access=a) for i, (n, a) in enumerate(kinds.items())],
    )  # fmt: skip
    b = Builder(kernel)
    at = b.mul(b.lane(), 16)
    x = b.buffer(b.param(0), 1024)
    four = b.bitcast(b.load_global(x, at, bytes=16), vector(4, "f32"))
    out = []
    for i in range(4):
        v = b.slice(four, i)
        e = b.exp2(b.fmul(v, b.const(-1.4426950408889634, F32)))
        out.append(b.fmul(v, b.emit("rcp", [b.fadd(e, b.const(1.0, F32))])))
        if between:
            b.store_global(x, at, b.bitcast(out[-1], B32), bytes=4)
            four = b.bitcast(b.load_global(x, at, bytes=16), vector(4, "f32"))
    b.store_global(b.buffer(b.param(1), 1024), at, b.vec(*out))
    return b.finish()


def test_functions_that_are_written_element_by_element_are_paired() -> None:
    x = np.random.default_rng(0).uniform(-3, 3, 256).astype(np.float32)
    want, got = np.zeros(256, np.float32), np.zeros(256, np.float32)
    run(logistic("k"), [x, want])
    paired = pair_floats(logistic("k"), TARGET)
    assert not check(paired, TARGET)
    run(paired, [x, got])
    assert np.array_equal(want, got)
    arithmetic = [op.results[0].type.n for op in paired.body.walk() if op.name in ("fmul", "exp2", "fadd", "rcp")]
    assert arithmetic == [2] * 10


def test_what_an_effect_stands_between_is_not_paired() -> None:
    x = np.random.default_rng(0).uniform(-3, 3, 256).astype(np.float32)
    own, other, want, got = x.copy(), x.copy(), np.zeros(256, np.float32), np.zeros(256, np.float32)
    run(logistic("k", True), [own, want])
    paired = pair_floats(logistic("k", True), TARGET)
    assert not check(paired, TARGET)
    run(paired, [other, got])
    assert np.array_equal(want, got) and np.array_equal(own, other)


def test_selections_keep_neighbours_side_by_side() -> None:
    """What masks a score by a condition of its own does not take the packed form from what is computed of it."""
    kernel = new_kernel(
        "k", "gfx942", grid=(1, 1, 1),
        params=[Param(n, "pointer", dtypes.f32, 8 * i, 8, access=("read", "write")[i]) for i, n in enumerate("xy")],
    )  # fmt: skip
    b = Builder(kernel)
    lane = b.lane()
    at = b.mul(lane, 16)
    four = b.bitcast(b.load_global(b.buffer(b.param(0), 1024), at, bytes=16), vector(4, "f32"))
    masked = [b.select(b.cmp("sle", lane, 9 * i), b.slice(four, i), b.const(-np.inf, F32)) for i in range(4)]
    scaled = [b.ffma(v, b.const(2.0, F32), b.const(-1.0, F32)) for v in masked]
    b.store_global(b.buffer(b.param(1), 1024), at, b.vec(*scaled))
    paired = pair_floats(b.finish(), TARGET)
    assert not check(paired, TARGET)
    assert [op.results[0].type.n for op in paired.body.walk() if op.name == "ffma"] == [2, 2]
    x, got = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    run(paired, [x, got])
    seen = np.arange(64)[:, None] <= 9 * np.arange(4)
    assert np.array_equal(got.reshape(64, 4), np.where(seen, 2 * x.reshape(64, 4) - 1, -np.inf))


def test_integers_of_a_word_and_a_half_that_scales_them_are_paired() -> None:
    """Weights of 8 bits minus a zero point, times a number that is half of another word."""
    kernel = new_kernel(
        "k", "gfx942", grid=(1, 1, 1),
        params=[Param(n, "pointer", dtypes.f32, 8 * i, 8, access=("read", "write")[i]) for i, n in enumerate("xy")],
    )  # fmt: skip
    b = Builder(kernel)
    at = b.mul(b.lane(), 8)
    two = b.load_global(b.buffer(b.param(0), 512), at, bytes=8)
    words = [b.bitcast(b.slice(two, i), B32) for i in (0, 1)]
    scale = b.unpack(words[1], dtypes.bf16, 0)
    numbers = [b.cvt(b.unpack(words[0], dtypes.u8, i), F32) for i in range(4)]
    out = [b.fmul(b.fsub(v, b.const(8.0, F32)), scale) for v in numbers]
    b.store_global(b.buffer(b.param(1), 1024), b.mul(b.lane(), 16), b.vec(*out))
    plain = b.finish()
    paired = pair_floats(plain, TARGET)
    assert not check(paired, TARGET)
    assert [op.results[0].type.n for op in paired.body.walk() if op.name in ("fsub", "fmul")] == [2] * 4
    x = np.random.default_rng(0).integers(0, 1 << 31, 128, dtype=np.uint32).view(np.float32)
    want, got = np.zeros(256, np.float32), np.zeros(256, np.float32)
    run(plain, [x, want])
    run(paired, [x, got])
    np.testing.assert_array_equal(got, want)
