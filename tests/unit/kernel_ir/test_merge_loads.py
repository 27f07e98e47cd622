"""Loads that find the same are one; those that may find something else, or are to ask again, are not."""

from __future__ import annotations

import numpy as np
import pytest
from wavedsl.ir import dtypes
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_eval import run
from wavedsl.ir.kernel.kernel_ir import ENDLESS, I32, Param, TensorBoxes
from wavedsl.ir.kernel.kernel_verify import check
from wavedsl.ir.kernel.merge_loads import LOADS, merge_loads
from wavedsl.ir.kernel.pressure import pressure

from .kernels import make_target

BYTES = 64 * 4
MOST = 34
"""Registers that are enough for what `long_hold` loads three times, and not for holding it."""


class Bench:
    """A kernel that reads x, reads and writes y, and writes z, of 64 words each; `n` is a number."""

    def __init__(self, waves: int = 1):
        params = [
            Param("x", "pointer", dtypes.i32, 0, 8, access="read"),
            Param("y", "pointer", dtypes.i32, 8, 8, access="readwrite"),
            Param("z", "pointer", dtypes.i32, 16, 8, access="write"),
            Param("n", "scalar", dtypes.i32, 24, 4),
        ]
        self.b = b = Builder(new_kernel("bench", "gfx942", waves=waves, params=params, grid=(1, 1, 1)))
        self.x, self.y, self.z = (b.buffer(b.param(i), BYTES) for i in range(3))
        self.n = b.param(3, lo=0, hi=50)
        self.at = b.mul(b.lane(), 4)
        self.total = b.const(0, I32)

    def load(self, array=None, at=None, **more):
        at = self.at if at is None else at
        return self.b.load_global(array or self.x, at, type=I32, **more)

    def take(self, v):
        """The next term of what is stored at last; each counts three times as much as the one before."""
        self.total = self.b.add(self.b.mul(self.total, 3), v)

    def store(self, array, v, **more):
        self.b.store_global(
            array, self.at, self.b.bitcast(self.b.const(v, I32) if isinstance(v, int) else v, I32), **more
        )

    def finish(self):
        self.b.store_global(self.z, self.at, self.total)
        return self.b.finish()


def loads(kernel):
    return sum(op.name in LOADS for op in kernel.body.walk())


def meaning(kernel, n):
    rng = np.random.default_rng(n)
    x, y = (rng.integers(0, 16, 64).astype(np.int32) * 4 for _ in range(2))
    z = np.zeros(64, np.int32)
    run(kernel, [x, y, z, n])
    return y, z


def merged(bench, before, after):
    """The kernel of `bench` with its loads merged, which has so many of them and means what it meant."""
    kernel = bench.finish()
    assert loads(kernel) == before
    expected = [meaning(kernel, n) for n in (0, 1, 2, 5)]
    found = merge_loads(kernel)
    assert loads(found) == after
    assert (found is kernel) == (before == after)
    assert not check(found, make_target())
    for n, (y, z) in zip((0, 1, 2, 5), expected):
        got = meaning(found, n)
        assert np.array_equal(got[0], y)
        assert np.array_equal(got[1], z)
    return found


# --------------------------------------------------------------------------------------------------------- what is one


@pytest.mark.parametrize("array", ["x", "y"])
def test_equal_loads_are_one(array):
    bench = Bench()
    for _ in range(3):
        bench.take(bench.load(getattr(bench, array)))
    merged(bench, 3, 1)


def test_what_is_made_of_equal_loads_is_made_once():
    """The addresses of a gather are loaded twice, too."""
    bench = Bench()
    for _ in range(2):
        bench.take(bench.load(bench.y, bench.b.and_(bench.load(), 0xFC)))
    found = merged(bench, 4, 2)
    assert sum(op.name == "and" for op in found.body.walk()) == 1


def test_a_store_to_another_array_changes_nothing():
    """Arguments that are written overlap no other ones (checked at launch)."""
    bench = Bench()
    bench.take(bench.load(bench.y))
    bench.take(bench.load())
    bench.b.store_global(bench.z, bench.at, bench.total)
    bench.take(bench.load(bench.y))
    bench.take(bench.load())
    merged(bench, 4, 2)


def test_waves_that_meet_change_no_array_that_nobody_writes():
    bench = Bench()
    bench.take(bench.load())
    bench.b.barrier()
    bench.b.fence("workgroup")
    bench.take(bench.load())
    merged(bench, 2, 1)


def test_a_branch_takes_what_was_loaded_before_it():
    bench = Bench()
    bench.take(bench.load())
    with bench.b.if_(bench.b.cmp("sgt", bench.n, 1)) as taken:
        taken.yield_([bench.b.add(bench.load(), bench.load(bench.y))])
    with taken.orelse():
        taken.yield_([bench.b.add(bench.load(), 7)])
    bench.take(taken.results[0])
    merged(bench, 4, 2)


@pytest.mark.parametrize("single", [True, False])
def test_single_numbers_alone_are_held_over_loops(single):
    bench = Bench()
    at = bench.b.const(8, I32) if single else bench.at
    bench.take(bench.load(at=at))
    with bench.b.for_(0, bench.n, 1, [bench.total], label="loop") as loop:
        loop.yield_([bench.b.add(bench.b.mul(loop.carried[0], 3), bench.load(at=at))])
    bench.take(loop.results[0])
    bench.take(bench.load(at=at))
    merged(bench, 3, 1 if single else 3)


def pipeline(bench, between=lambda loaded, carried: ()):
    """A loop that loads the next trip's numbers twice, each behind the last use of this trip's."""
    b = bench.b
    start = [bench.load(), bench.load()]
    with b.for_(0, bench.n, 1, [bench.total, *start], label="loop") as loop:
        total, one, other = loop.carried
        at = b.and_(b.add(bench.at, b.mul(loop.iv, 4)), 0xFC)
        total = b.add(b.mul(total, 3), one)
        b.store_global(bench.z, bench.at, total)
        first = bench.load(at=at)
        more = between(first, at)
        total = b.add(b.mul(total, 5), other)
        b.store_global(bench.z, bench.at, total)
        second = bench.load(at=at)
        for v in more:
            total = b.add(b.mul(total, 7), v)
        loop.yield_([total, first, second])
    bench.take(loop.results[0])


def test_what_a_loop_carries_twice_is_carried_once_and_loaded_when_this_trips_is_used():
    bench = Bench()
    pipeline(bench)
    found = merged(bench, 4, 2)
    loop = next(op for op in found.body.walk() if op.name == "for")
    assert len(loop.results) == 2
    names = [op.name for op in loop.regions[0].ops if not op.row.pure]
    assert names == ["store.global", "store.global", "load.global", "yield"]


def test_of_several_equal_loads_the_last_one_stays():
    bench = Bench()
    b = bench.b
    start = [bench.load() for _ in range(3)]
    with b.for_(0, bench.n, 1, [bench.total, *start], label="loop") as loop:
        total, *rows = loop.carried
        at = b.and_(b.add(bench.at, b.mul(loop.iv, 4)), 0xFC)
        following = []
        for row in rows:
            total = b.add(b.mul(total, 3), row)
            b.store_global(bench.z, bench.at, total)
            following.append(bench.load(at=at))
        loop.yield_([total, *following])
    bench.take(loop.results[0])
    found = merged(bench, 6, 2)
    loop = next(op for op in found.body.walk() if op.name == "for")
    assert [op.name for op in loop.regions[0].ops if not op.row.pure][-2:] == ["load.global", "yield"]


def test_what_has_moved_to_a_later_load_counts_when_that_moves_on():
    """Of three, the first goes to the second, and is read before the third."""
    bench = Bench()
    b = bench.b
    with b.for_(0, bench.n, 1, [bench.total, bench.load()], label="loop") as loop:
        total, carried = loop.carried
        at = b.and_(b.add(bench.at, b.mul(loop.iv, 4)), 0xFC)
        first, second = bench.load(at=at), bench.load(at=at)
        total = b.add(b.mul(total, 3), b.add(first, carried))
        b.store_global(bench.z, bench.at, total)
        third = bench.load(at=at)
        loop.yield_([b.add(total, second), third])
    bench.take(loop.results[0])
    merged(bench, 4, 2)


def test_what_is_read_before_the_last_of_equal_loads_is_loaded_first():
    """By an op, by one in a branch, and by a load in a branch in whose place it is."""
    bench = Bench()
    pipeline(bench, lambda loaded, at: [bench.b.add(loaded, 1)])
    merged(bench, 4, 2)

    def stored_and_given(bench, loaded):
        bench.b.store_global(bench.z, bench.at, loaded)
        return bench.n

    def inside(number):
        def branch(loaded, at):
            with bench.b.if_(bench.b.cmp("sgt", bench.n, 2)) as taken:
                taken.yield_([number(loaded, at)])
            with taken.orelse():
                taken.yield_([bench.b.const(5, I32)])
            bench.b.store_global(bench.z, bench.at, taken.results[0])
            return taken.results

        return branch

    bench = Bench()
    pipeline(bench, inside(lambda loaded, at: stored_and_given(bench, loaded)))
    merged(bench, 4, 2)
    bench = Bench()
    pipeline(bench, inside(lambda loaded, at: bench.load(at=at)))
    merged(bench, 5, 2)


def test_what_was_loaded_in_front_of_a_loop_stays_there():
    """The loop carries it on, and loads it again."""
    bench = Bench()
    b = bench.b
    at = b.const(8, I32)
    first = bench.load(at=at)
    bench.take(first)
    with b.for_(0, bench.n, 1, [bench.total, b.const(0, I32), b.const(1, I32)], label="loop") as loop:
        total = b.add(b.mul(loop.carried[0], 3), b.add(loop.carried[1], b.mul(loop.carried[2], 5)))
        loop.yield_([total, first, bench.load(at=at)])
    bench.take(loop.results[0])
    merged(bench, 2, 1)


# ----------------------------------------------------------------------------------------------------- what stays apart


def stored(bench):
    bench.store(bench.y, 8)


def stored_in_a_loop(bench):
    with bench.b.for_(0, bench.n, 1, [], label="loop") as loop:
        bench.store(bench.y, 8)
        loop.yield_([])


def stored_in_a_branch(bench):
    with bench.b.if_(bench.b.cmp("sgt", bench.n, 1)) as taken:
        bench.store(bench.y, 8)
        taken.yield_([])


def stored_far(bench):
    address = bench.b.add(bench.b.param(1), bench.b.zext(bench.at))
    bench.b.store_far(address, bench.b.const(8, I32), bytes=4, mask=bench.b.true)


def stored_somewhere(bench):
    """At an address that a loop carries, of which nobody says in which array it lies."""
    b = bench.b
    with b.for_(0, 1, 1, [b.add(b.param(1), b.zext(bench.at))], label="loop") as loop:
        b.store_far(loop.carried[0], b.const(8, I32), bytes=4, mask=b.true)
        loop.yield_([b.add(loop.carried[0], b.i64(0))])
    with b.for_(0, 2, 1, [b.add(b.param(1), b.zext(bench.at))], label="loop") as loop:
        b.store_far(loop.carried[0], b.const(8, I32), bytes=4, mask=b.true)
        loop.yield_([b.select(b.cmp("sgt", loop.iv, 3), b.param(2), loop.carried[0])])


def added(bench):
    bench.b.atomic_global(bench.y, bench.at, "add", bench.b.const(4, I32))


def told(bench):
    """An atomic of another array may say that others have written this one."""
    bench.take(bench.b.atomic_global(bench.z, bench.at, "add", bench.b.const(1, I32)))


CHANGES = {
    "stored": stored, "loop": stored_in_a_loop, "branch": stored_in_a_branch, "far": stored_far,
    "somewhere": stored_somewhere, "atomic": added, "told": told, "barrier": lambda bench: bench.b.barrier(),
    "workgroup": lambda bench: bench.b.fence("workgroup"), "wait": lambda bench: bench.b.copy_wait(0),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_memory_that_may_have_changed_is_loaded_again(change):
    bench = Bench()
    single = bench.b.const(8, I32)
    for at in (bench.at, single):
        bench.take(bench.load(bench.y, at))
    bench.take(bench.load(at=single))
    CHANGES[change](bench)
    for at in (bench.at, single):
        bench.take(bench.load(bench.y, at))
    bench.take(bench.load(at=single))
    merged(bench, 6, 5)


def test_a_fence_among_workgroups_has_every_array_loaded_again():
    bench = Bench()
    for array in (bench.x, bench.y):
        bench.take(bench.load(array))
    bench.b.fence()
    for array in (bench.x, bench.y):
        bench.take(bench.load(array))
    merged(bench, 4, 4)


def test_bulk_copies_change_the_array_of_their_map():
    bench = Bench()
    boxes = TensorBoxes("y", (0,), (64,), 16)
    bench.b.kernel.params.append(Param("y_map", "tensormap", dtypes.i32, 64, 128, access="write", map=boxes))
    bench.take(bench.load(bench.y))
    bench.b.copy_bulk_store(bench.b.param(4), bench.b.const(0, I32), bench.b.true, [bench.b.const(0, I32)])
    bench.take(bench.load(bench.y))
    kernel = bench.finish()
    assert merge_loads(kernel) is kernel


def test_what_a_loop_changes_at_its_end_is_loaded_in_every_trip():
    bench = Bench()
    at = bench.b.const(8, I32)
    bench.take(bench.load(bench.y, at))
    with bench.b.for_(0, bench.n, 1, [bench.total], label="loop") as loop:
        total = bench.b.add(bench.b.mul(loop.carried[0], 3), bench.load(bench.y, at))
        bench.store(bench.y, total)
        loop.yield_([total])
    bench.take(loop.results[0])
    merged(bench, 2, 2)


@pytest.mark.parametrize("way", ["carried", "chosen"])
def test_loads_of_no_known_array_stay(way):
    """At an address that a loop carries; in one of two arrays."""
    bench = Bench()
    b = bench.b
    with b.for_(0, bench.n, 1, [b.param(1)], label="loop") as loop:
        following = b.select(b.cmp("sgt", loop.iv, 1), b.param(1), loop.carried[0])
        loop.yield_([following])
    address = loop.results[0] if way == "carried" else b.select(b.cmp("sgt", bench.n, 1), b.param(1), b.param(0))
    for _ in range(2):
        bench.take(b.bitcast(b.load_far(b.add(address, b.zext(bench.at)), bytes=4), I32))
        bench.store(bench.y, 8)
    merged(bench, 2, 2)


def test_a_loop_that_waits_asks_again():
    """Whatever the array: what it takes from outside would never change."""
    bench = Bench()
    b = bench.b
    at = b.const(8, I32)
    bench.take(bench.load(at=at))
    with b.for_(0, ENDLESS, 1, [b.true, b.const(0, I32), bench.total], label="wait", again=True) as loop:
        count = b.add(loop.carried[1], 1)
        seen = b.add(bench.load(at=at), bench.load(at=at))
        loop.yield_([b.cmp("slt", count, 3), count, b.add(b.mul(loop.carried[2], 3), seen)])
    bench.take(loop.results[2])
    found = merged(bench, 3, 2)
    inside = next(op for op in found.body.walk() if op.name == "for").regions[0]
    assert sum(op.name in LOADS for op in inside.ops) == 1


OTHERS = {
    "mask": lambda bench: bench.load(mask=bench.b.cmp("slt", bench.at, 64)),
    "guard": lambda bench: bench.load(guard=bench.b.cmp("sgt", bench.n, 1)),
    "place": lambda bench: bench.load(at=bench.b.and_(bench.b.add(bench.at, 4), 0xFC)),
    "offset": lambda bench: bench.load(at=bench.b.and_(bench.at, 0x7C), imm=4),
    "array": lambda bench: bench.load(bench.y),
    "width": lambda bench: bench.load(bytes=2),
    "hint": lambda bench: bench.load(cache="stream"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_loads_stay(other):
    bench = Bench()
    bench.take(bench.load(at=bench.b.and_(bench.at, 0x7C) if other == "offset" else None))
    bench.take(OTHERS[other](bench))
    merged(bench, 2, 2)


def test_what_is_loaded_with_a_hint_is_loaded_as_often_as_the_user_says():
    bench = Bench()
    for _ in range(2):
        bench.take(bench.load(cache="stream"))
    merged(bench, 2, 2)


def test_branches_do_not_take_from_each_other():
    bench = Bench()
    with bench.b.if_(bench.b.cmp("sgt", bench.n, 1)) as taken:
        taken.yield_([bench.load()])
    with taken.orelse():
        taken.yield_([bench.b.add(bench.load(), 7)])
    bench.take(taken.results[0])
    bench.take(bench.load())
    merged(bench, 3, 3)


# ---------------------------------------------------------------------------------------------------------------- room


def long_hold(rows=8, deals=False):
    """Numbers that are loaded twice in front of a branch that holds 24 others, and once behind it."""
    bench = Bench()
    b = bench.b
    if deals:
        b.emit("registers", (), {"count": 40, "more": False})
    places = [b.add(b.mul(bench.at, 2 + 2 * (i % 2)), 4 * i) for i in range(rows)]

    def added(times):
        for _ in range(times):
            for at in places:
                bench.take(bench.load(at=at))

    added(2)
    many = [b.add(bench.total, i) for i in range(24)]
    with b.if_(b.cmp("sgt", bench.n, 1)) as taken:
        for _ in range(2):
            many = [b.mul(x, y) for x, y in zip(many, (*many[1:], many[0]))]
        taken.yield_([b.add(x, 1) for x in many])
    with taken.orelse():
        taken.yield_([bench.total] * 24)
    for x in taken.results:
        bench.take(x)
    added(1)
    return bench.finish()


@pytest.mark.parametrize(
    ("most", "deals", "left"),
    [(400, False, 8), (MOST, False, 16), (MOST, True, 16), (400, True, 16)],
)
def test_what_costs_waves_is_not_held(most, deals, left):
    """`most`: registers above which fewer waves are resident."""
    kernel = long_hold(deals=deals)
    target = make_target(occupancy=lambda r, s, t: 1 if r > most else 2)
    assert pressure(kernel, target) <= MOST < pressure(merge_loads(kernel, make_target()), target) or deals
    found = merge_loads(kernel, target)
    assert loads(kernel) == 24
    assert loads(found) == left


def test_nothing_is_held_beyond_the_registers_of_a_wave():
    assert loads(merge_loads(long_hold(), make_target(registers=MOST))) == 16


def test_a_wait_is_held_over_only_where_there_is_room():
    """As a branch is."""
    bench = Bench()
    for _ in range(2):
        bench.take(bench.load())
    bench.b.barrier()
    many = [bench.b.add(bench.b.mul(bench.at, i), bench.total) for i in range(24)]
    for _ in range(2):
        many = [bench.b.mul(x, y) for x, y in zip(many, (*many[1:], many[0]))]
    for x in many:
        bench.take(x)
    bench.take(bench.load())
    kernel = bench.finish()
    held = pressure(kernel, make_target())
    assert loads(merge_loads(kernel, make_target())) == 1
    assert loads(merge_loads(kernel, make_target(occupancy=lambda r, s, t: 1 if r > held else 2))) == 2
