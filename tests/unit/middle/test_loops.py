"""Scheduling of loop bodies: stages, barriers, the order of memory accesses; every ring depth computes the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from wavedsl.ir.errors import CompileError, ConstraintError
from wavedsl.ir.schedule.place_barriers import place_barriers
from wavedsl.ir.schedule.plan_body import READ_LEAD, plan_body, program_order
from wavedsl.ir.schedule.step_edges import dependences, memory_edges
from wavedsl.ir.schedule.steps import Step

import wavedsl as wd

M, N, K, T = wd.symbols("M N K T")


def step(name, kind, uses=(), defs=(), **rest):
    return Step(
        name, kind, (("issue", 4),), 40, tuple((u,) for u in uses), tuple((d,) for d in defs), lambda c: None, **rest
    )


def gemm_body(asynchronous=False):
    if asynchronous:
        copies = [step("copy", "acopy", buffer="a", array="x")]
    else:
        copies = [step("load", "gload", defs="c", array="x"), step("store", "swrite", uses="c", buffer="a")]
    return [*copies, step("read", "sread", defs="f", buffer="a"), step("mma", "mma", uses="f", defs="m")]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("slots", [2, 3, 4])
def test_one_barrier_where_there_are_two_slots(asynchronous, slots):
    steps = gemm_body(asynchronous)
    body = plan_body(steps, {"a": slots}, {}, clock=4, ahead=slots - 1)
    assert len(body.barriers) == 1
    assert sorted(body.order) == list(range(len(steps)))
    assert body.stages[-1] == max(body.stages)


def test_two_barriers_with_one_slot():
    """Write, barrier, read, barrier: a single slot is written again in the next trip."""
    steps = gemm_body()
    body = plan_body(steps, {"a": 1}, {}, clock=4, ahead=1)
    assert len(body.barriers) == 2


def test_copies_that_registers_do_not_hold_from_trip_to_trip():
    """They are stored in the trip that loads them, as many at a time as there are registers."""
    copies = []
    for name in "cdefgh":  # a key per letter
        copies.append(step("load", "gload", defs=name, array="x", words=16))
        copies.append(step("store", "swrite", uses=name, buffer="a"))
    steps = [*copies, step("read", "sread", defs="r", buffer="a"), step("mma", "mma", uses="r", defs="m")]
    assert max(plan_body(steps, {"a": 2}, {}, clock=4, ahead=1, room=96, modulo=False).stages) > 0
    body = plan_body(steps, {"a": 2}, {}, clock=4, ahead=1, room=40, modulo=False)
    assert max(body.stages) == 0
    kinds = [steps[i].kind for i in body.order]
    assert kinds == [*["gload"] * 2, *["swrite"] * 2] * 3 + ["sread", "mma"]
    held = most = 0
    for kind in kinds:
        held += {"gload": 16, "swrite": -16}.get(kind, 0)
        most = max(most, held)
    assert most <= 40


def skinny_body():
    """A trip of 16 rows by 128 columns of fp8 with B as [K, N], K 128, as gfx942 has it: what eight loads bring is
    turned and stored together, LDS is the busiest, and no modulo schedule leaves loads half a trip."""

    def lds(name, kind, clocks, latency, uses, defs, **rest):
        return Step(name, kind, (("lds", clocks), ("issue", 4)), latency, uses, defs, skip, **rest)

    def load(what, i, words):
        return Step("load", "gload", (("vmem", 16 * words), ("issue", 4)), 500, (), ((what, i),), skip, words=words)

    turned = tuple(("b", i) for i in range(8))
    steps = [load("a", 0, 4), lds("store a", "swrite", 32, 32, (("a", 0),), (), buffer="a")]
    steps += [lds("read a", "sread", 32, 80, (), (("read a", i),), buffer="a", words=4) for i in range(2)]
    steps += [load("b", i, 2) for i in range(8)]
    steps.append(
        Step("store b", "swrite", (("lds", 128), ("issue", 32), ("valu", 256)), 32, turned, (), skip, buffer="b")
    )
    steps += [lds("read b", "sread", 16, 72, (), (("read b", i),), buffer="b", words=2) for i in range(8)]
    for k, j in itertools.product(range(4), range(2)):
        uses = (("read b", 4 * j + k), ("read a", k // 2), ("sum", j, k - 1))
        busy, latency = (("mfma", 16), ("issue", 4)), 32 if k == 3 else 16
        steps.append(Step("product", "mma", busy, latency, uses, (("sum", j, k),), skip))
    return steps, {("sum", j, -1): ("sum", j, 3) for j in range(2)}


def test_loads_of_a_listed_trip_start_as_soon_as_their_registers_are_free():
    """The last ones started at the end of a trip, and the next trip began by storing what they bring."""
    steps, carried = skinny_body()
    body = plan_body(steps, {"a": 2, "b": 2}, carried, clock=4, ahead=1, batch=32, room=480)
    assert body.kind == "list"
    start = [t * body.clock + g * body.ii for t, g in zip(body.times, body.stages)]
    (store,) = (i for i, s in enumerate(steps) if s.name == "store b")
    loads = [i for i, s in enumerate(steps) if set(s.defs) <= set(steps[store].uses) and s.defs]
    before = start[store] - body.ii
    assert len(loads) == 8
    assert all(before <= start[i] <= before + 8 * 32 + 64 + 32 for i in loads)  # behind it, that of A among them


def test_a_wish_that_leaves_no_order_is_dropped():
    """Reads of both tiles are to arrive together, but the second is stored behind an effect that needs the first's."""
    first = [step("load", "gload", defs="c", array="x"), step("store", "swrite", uses="c", buffer="a")]
    second = [step("load", "gload", uses="e", defs="d", array="y"), step("store", "swrite", uses="d", buffer="b")]
    steps = [
        *first, step("read", "sread", defs="f", buffer="a", words=4), step("use", "compute", uses="f", defs="g"),
        step("write", "effect", uses="g", defs="e"), *second, step("read", "sread", defs="h", buffer="b", words=4),
        step("mma", "mma", uses="h", defs="m"),
    ]  # fmt: skip
    body = plan_body(steps, {"a": 1, "b": 1}, {}, clock=4, ahead=1, batch=32)
    assert sorted(body.order) == list(range(len(steps)))


def products_of_doubles():
    """A trip of a wave of 32 x 64 sums of f64, K 16: 4 reads of A and 8 of B for each half of K, products of 16 x 8 x 8
    that fill the matrix unit, and 12 copies."""
    steps = []
    for half in "01":
        operands = [("a", i, j) for i in range(2) for j in range(2)] + [("b", j, 0) for j in range(8)]
        for what, i, j in operands:
            key = ((what, i, j, half),)
            steps.append(Step("read", "sread", (("lsu", 16), ("issue", 1)), 31, (), key, skip, buffer=what, words=4))
        for i in range(2):
            for j in range(8):
                uses = (("a", i, 0, half), ("a", i, 1, half), ("b", j, 0, half))
                uses += (("sum", i, j, "0"),) if half == "1" else (("before", i, j),)
                made = (("sum", i, j, half),)
                steps.append(Step("product", "mma", (("mfma", 32), ("issue", 1)), 81, uses, made, skip))
    for i in range(12):
        what = "a" if i < 4 else "b"
        steps.append(Step("copy", "acopy", (("lsu", 32), ("issue", 1)), 320, (), (), skip, buffer=what, array=what))
    return steps, {("before", i, j): ("sum", i, j, "1") for i in range(2) for j in range(8)}


def skip(context):
    """What a step of a schedule that nothing is emitted of does."""


@pytest.mark.parametrize("slots", [3, 4])
def test_products_that_fill_their_unit_start_in_turn(slots):
    """The next trip's first operands are read, behind the barrier, while this trip's last products are made."""
    steps, carried = products_of_doubles()
    body = plan_body(steps, {"a": slots, "b": slots}, carried, clock=1, ahead=slots - 1)
    products = [p for p in body.order if steps[p].kind == "mma"]
    assert body.kind == "modulo" and body.ii <= 1024 * 17 / 16
    assert products == sorted(products)
    (barrier,) = body.barriers
    behind = [steps[p].kind for p in body.order[barrier:]]
    assert behind.count("mma") >= READ_LEAD // 32 and "sread" in behind
    start = {p: body.times[p] + body.stages[p] * body.ii for p in body.order}
    reader = {key: p for p in range(len(steps)) if steps[p].kind == "sread" for key in steps[p].defs}
    for p in products:
        for key in steps[p].uses:
            if key in reader:
                assert start[p] - start[reader[key]] >= READ_LEAD


def test_straight_code_needs_one_barrier_before_the_first_read():
    steps = gemm_body()
    body = program_order(steps, {"a": 1}, cyclic=False)
    (position,) = body.barriers
    assert steps[body.order[position]].kind == "sread"


def test_a_read_before_its_write_is_refused():
    steps = gemm_body()
    body = program_order(steps, {"a": 1}, cyclic=False)
    body.order.reverse()
    with pytest.raises(CompileError, match="before the write"):
        place_barriers(body, steps, {"a": 1}, cyclic=False)


def test_loads_are_ordered_with_stores_to_the_same_array_only():
    load = step("load", "gload", defs="v", array="x")
    same, other = step("w", "effect", writes=("x",)), step("w", "effect", writes=("y",))
    assert memory_edges([load, other]) == []
    edges = {(e.src, e.dst, e.distance) for e in memory_edges([load, same])}
    assert edges == {(0, 1, 0), (1, 0, 1)}


def test_every_edge_of_a_carried_value_spans_one_trip():
    steps = [step("use", "compute", uses="c", defs="n")]
    edges = dependences(steps, {}, {("c",): ("n",)}, 4, None)
    assert [(e.src, e.dst, e.distance) for e in edges] == [(0, 0, 1)]


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_80"])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("trips", [1, 2, 3, 7])
def test_every_depth_and_trip_count_is_right(target, stages, trips):
    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 32)],
        schedule=wd.Schedule(stages=stages),
    )
    def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    random = np.random.default_rng(stages)
    a, b = (random.integers(-4, 5, (32, 32 * trips)).astype(np.float16) for _ in range(2))
    c = np.full((32, 32), 9, np.float32)
    compiled = gemm.compile(a, b, c, target=target)
    assert compiled.shared_bytes == 2 * 2048 * min(stages, trips)
    compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.T.astype(np.float32))


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_an_array_that_the_loop_writes_is_read_after_the_write(target):
    """y += x[t] through memory: the load of the next trip may not pass the store of this one."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.TilingConstraint(T, 1)])
    def accumulate(x: wd.Memory[T, M, wd.f32], y: wd.Memory[M, wd.f32]):
        @wd.iterate(T)
        def loop():
            wd.write(wd.read(y) + wd.sum(wd.read(x), dim=T), y)

    x, y = np.arange(5 * 200, dtype=np.float32).reshape(5, 200), np.ones(200, np.float32)
    accumulate.compile(x, y, target=target).emulate(x, y)
    np.testing.assert_array_equal(y, 1 + x.sum(0))


def test_more_stages_than_memory_is_an_error():
    @wd.wave(
        [wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 128, 1), wd.TilingConstraint(K, 64)],
        schedule=wd.Schedule(stages=8),
    )
    def gemm(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    with pytest.raises(ConstraintError, match=r"shared tile of .* 8 times, exceeds"):
        gemm.compile(target="gfx942", subs={M: 1024, N: 1024, K: 1024})
