"""Conditions, loops that end by themselves and early exits of workgroups on every chip: text against evaluator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agree import TARGETS, agree

import wavedsl as wd

B, M, N, K = wd.symbols("B M N K")


def whole(shape: tuple[int, ...], dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-5, 6, shape).astype(dtype)


@pytest.mark.parametrize("target", TARGETS)
def test_branches_by_argument(target: str, oracle: Callable[[str], str]) -> None:
    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(flag: wd.Scalar[wd.i32], x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
        value = wd.read(x)
        total, doubled = wd.cond(
            flag > 2,
            lambda: (wd.sum(value, dim=N), value * 2.0),
            lambda: (wd.max(value, dim=N), value - 1.0),
        )
        wd.write(doubled + total, y)

    for flag in (2, 3):
        agree(kernel, [np.int32(flag), whole((13, 40)), np.zeros((13, 40), np.float32)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_branches_by_workgroup(target: str) -> None:
    """Each workgroup looks up what to do; one kind writes nothing."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(M, 16, 1)])
    def kernel(kind: wd.Memory[B, wd.i32], x: wd.Memory[B, M, N, wd.f16], y: wd.Memory[B, M, N, wd.f16]):
        which = wd.read(kind)

        def negated():
            wd.write(-wd.read(x), y)

        def otherwise():
            wd.cond(which == 2, lambda: wd.write(wd.read(x) * 2.0, y))

        wd.cond(which == 1, negated, otherwise)

    kinds = np.array([0, 1, 2, 1, 0], np.int32)
    agree(kernel, [kinds, whole((5, 20, 33), np.float16), whole((5, 20, 33), np.float16, 1)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_early_exit(target: str, oracle: Callable[[str], str]) -> None:
    """Sequences of different lengths: workgroups past the end of theirs do nothing; loops and shared memory follow."""

    @wd.wave(
        [wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(M, 32, 1), wd.WorkgroupConstraint(N, 32, 2),
         wd.TilingConstraint(K, 16)]
    )  # fmt: skip
    def kernel(
        skip: wd.Memory[B, wd.i32], a: wd.Memory[B, M, K, wd.SHARED, wd.f16], w: wd.Memory[N, K, wd.SHARED, wd.f16],
        c: wd.Memory[B, M, N, wd.f32],
    ):  # fmt: skip
        wd.exit_if(wd.read(skip) != 0)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(w), acc)

        wd.write(loop, c)

    arguments = [np.array([0, 1, 0], np.int32), whole((3, 40, 48), np.float16), whole((33, 48), np.float16, 1)]
    agree(kernel, [*arguments, whole((3, 40, 33), np.float32, 2)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_that_ends_by_itself(target: str, oracle: Callable[[str], str]) -> None:
    """Newton's square roots of each workgroup's row until all of it has settled; a count that differs per workgroup."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0)])
    def kernel(x: wd.Memory[B, N, wd.f32], y: wd.Memory[B, N, wd.f32], trips: wd.Memory[B, wd.i32]):
        value = wd.read(x)

        def unsettled(root, count):
            return (wd.max(abs(root * root - value), dim=N) > 0.01) & (count < 50)

        def step(root, count):
            return (root + value / root) * 0.5, count + 1

        root, count = wd.while_loop(unsettled, step, [value, wd.Register[wd.i32](0)])
        wd.write(root, y)
        wd.write(count, trips)

    x = np.random.default_rng(1).integers(1, 100, (4, 70)).astype(np.float32) ** 2
    x[2] = 1.0
    agree(kernel, [x, np.zeros_like(x), np.zeros(4, np.int32)], target, oracle)


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_that_each_element_leaves_by_itself(target: str, oracle: Callable[[str], str]) -> None:
    """Digits of numbers in several workgroups of several waves; the last tile is not full, and what lies beyond its end
    (zeros, which are not -1) keeps nobody."""

    @wd.wave([wd.WorkgroupConstraint(M, 4, 0), wd.WorkgroupConstraint(N, 128, 1)])
    def kernel(x: wd.Memory[M, N, wd.i32], digits: wd.Memory[M, N, wd.i32], sums: wd.Memory[M, N, wd.f32]):
        def step(rest, count, total):
            return wd.where(rest < 10, -1, rest // 10), count + 1, total + wd.cast(rest % 10, wd.f32)

        none = wd.Register[M, N, wd.i32](0)
        start = [wd.read(x), none, wd.cast(none, wd.f32)]
        _, count, total = wd.while_loop(lambda rest, count, total: rest != -1, step, start)
        wd.write(count, digits)
        wd.write(total, sums)

    x = np.random.default_rng(2).integers(0, 10 ** np.arange(1, 8)[:, None], (7, 300)).astype(np.int32)
    digits, sums = np.zeros_like(x), np.zeros(x.shape, np.float32)
    agree(kernel, [x, digits, sums], target, oracle)
    kernel.compile(x, digits, sums, target=target).emulate(x, digits, sums)
    text = np.char.mod("%d", x)
    assert (digits == np.char.str_len(text)).all()
    assert (sums == [[sum(map(int, number)) for number in row] for row in text]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_who_has_left_a_loop_writes_nothing(target: str, oracle: Callable[[str], str]) -> None:
    """Elements go on for 0 to 5 trips, and in each of these for as many again: they count at traced places (of unsigned
    bytes, too), write where they are by name, in rows that are none of theirs, and meet at one place by exchange."""

    @wd.wave([wd.WorkgroupConstraint(M, 2, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(
        x: wd.Memory[M, N, wd.i32], trips: wd.Memory[K, wd.i32], inner: wd.Memory[K, wd.i32],
        last: wd.Memory[M, N, wd.i32], row: wd.Memory[M, N, wd.i32], top: wd.Memory[K, wd.i32],
    ):  # fmt: skip
        limit, none = wd.read(x), wd.Register[M, N, wd.i32](0)

        def outer(i):
            def again(j):
                place = wd.cast(i + j, wd.u8)
                wd.atomic_add(1, inner, mapping=wd.IndexMapping((M, N), {K: place}))
                return j + 1

            wd.atomic_add(1, trips, mapping=wd.IndexMapping((M, N), {K: i}))
            wd.write(i + 1, last)
            wd.write(M * 100 + i, row, mapping=wd.IndexMapping((M, N), {M: M, N: N}))
            wd.while_loop(lambda j: j < limit, again, [none])
            wd.atomic_max(i, top, mapping=wd.IndexMapping((M, N), {K: 0}))
            return i + 1

        wd.while_loop(lambda i: i < limit, outer, [none])

    x = np.random.default_rng(0).integers(0, 6, (3, 100)).astype(np.int32)
    zeros = np.zeros(12, np.int32)
    got = [x, zeros.copy(), zeros.copy(), np.zeros_like(x), np.zeros_like(x), zeros.copy()]
    agree(kernel, got, target, oracle)
    kernel.evaluate(*got)
    counts = [(x > i).sum() for i in range(12)]
    assert (got[1] == counts).all() and (got[3] == x).all() and (got[4] == np.where(x > 0, 299 + x, 0)).all()
    assert (got[2] == [sum(((x > i) & (x > k - i)).sum() for i in range(k + 1)) for k in range(12)]).all()
    assert got[5][0] == 4


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_over_a_tile_inside_a_loop_over_tiles(target: str, each: bool) -> None:
    """The condition that is asked first stands in the outer loop: its tile is the trip's."""

    @wd.wave([wd.WorkgroupConstraint(B, 1, 0), wd.TilingConstraint(K, 16)])
    def kernel(x: wd.Memory[B, K, wd.i32], y: wd.Memory[B, wd.i32]):
        @wd.iterate(K, init_args=[wd.Register[wd.i32](0)])
        def loop(total):
            start = [wd.read(x), wd.Register[K, wd.i32](0)]

            def more(rest, trips):
                return rest >= 3 if each else wd.any(rest >= 3, dim=K)

            rest, trips = wd.while_loop(more, lambda rest, trips: (rest - 3, trips + 1), start)
            return total * 2 + wd.sum(trips, dim=K) - wd.min(rest, dim=K)

        wd.write(loop, y)

    agree(kernel, [np.random.default_rng(3).integers(0, 20, (3, 41)).astype(np.int32), np.zeros(3, np.int32)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_functions_keep_default_values(target: str) -> None:
    """Python's way to bind what changes as a kernel is traced, which linters ask for (`B023`), and `*state`."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.TilingConstraint(N, 16)])
    def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[N, M, wd.f32]):
        for i in range(2):
            factor = wd.Register[wd.f32](2.0 * i + 1)

            @wd.iterate(N, init_args=[wd.Register[M, wd.f32](0.0)])
            def total(acc, factor=factor, *, more=i):
                return acc + wd.reduce(wd.read(x), lambda a, b, i=i: a + b, 0.0, dim=N) * factor + more

            def halved(*state, i=i):
                return state[0] / 2, state[1] + i + 1

            small, count = wd.while_loop(lambda v, n, top=4.0: v > top, halved, [total, total * 0.0])
            wd.write(wd.cond(factor > 2, lambda i=i: small + count * i, lambda: small - count), y[i, :])

    x = np.abs(np.random.default_rng(0).integers(0, 4, (11, 37))).astype(np.float32)
    arguments = [x, np.zeros((37, 11), np.float32)]
    agree(kernel, arguments, target).emulate(*arguments)
    for i in (0, 1):
        small, count = x.sum(1) * (2 * i + 1) + 3 * i, np.zeros(11)
        while (more := small > 4).any():
            small, count = np.where(more, small / 2, small), count + more * (i + 1)
        np.testing.assert_array_equal(arguments[1][i], small + count if i else small - count)


@pytest.mark.parametrize("target", TARGETS)
def test_a_condition_inside_a_loop(target: str) -> None:
    """Tiles that a table marks are left out of a sum; the operands go through shared memory."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
    def kernel(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32],
        limit: wd.Scalar[wd.f32],
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0), wd.Register[wd.f32](0.0)])
        def loop(acc, seen):
            more = wd.cond(seen < limit, lambda: wd.mma(wd.read(a), wd.read(b), acc), lambda: acc)
            return more, seen + 1.0

        wd.write(loop[0], c)

    for limit in (0.0, 2.0, 9.0):
        arguments = [whole((40, 64), np.float16), whole((33, 64), np.float16, 1), np.zeros((40, 33), np.float32)]
        agree(kernel, [*arguments, np.float32(limit)], target)


@pytest.mark.parametrize("target", TARGETS)
def test_an_odd_number_of_halves_is_carried(target: str) -> None:
    """17 elements of f16 per wave: five per lane, the last word half full; several waves convert at once."""
    tiles = [wd.WorkgroupConstraint(M, 5, 0), wd.WaveConstraint(M, 5), wd.WorkgroupConstraint(N, 68, 1)]

    @wd.wave([*tiles, wd.WaveConstraint(N, 17)])
    def kernel(x: wd.Memory[M, N, wd.f16], y: wd.Memory[M, N, wd.f16], flag: wd.Scalar[wd.i32]):
        value = wd.read(x)
        wd.write(wd.cond(flag > 0, lambda: value + 1.0, lambda: -value), y)

    for flag in (0, 1):
        agree(kernel, [whole((7, 65), np.float16), np.zeros((7, 65), np.float16), np.int32(flag)], target)


def test_mistakes_are_named() -> None:
    def compiled(use):
        @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
        def kernel(x: wd.Memory[M, N, wd.f32], y: wd.Memory[M, N, wd.f32]):
            use(wd.read(x), y)

        kernel.trace()

    for use, text in (
        (lambda x, y: wd.cond(x > 0, lambda: wd.write(x, y)), "a workgroup takes one branch"),
        (lambda x, y: wd.cond(wd.Register[wd.i32](1), lambda: wd.write(x, y)), "the condition is i32"),
        (lambda x, y: wd.cond(wd.Register[wd.i32](1) > 0, lambda: x), "there is no other branch"),
        (lambda x, y: wd.cond(wd.Register[wd.i32](1) > 0, lambda: x, lambda: None), "the other nothing"),
        (lambda x, y: wd.while_loop(lambda a: a, lambda a: a, [x]), "the condition is f32"),
        (lambda x, y: wd.while_loop(lambda a, n: a > 0, lambda a, n: (a, n), [x, wd.sum(x, dim=N)]), r"value 1 of .*M"),
        (lambda x, y: wd.while_loop(lambda a: a > 0, lambda a: (wd.device_print("a", a), a)[1], [x]),
         "device_print in a loop in"),
        (lambda x, y: wd.while_loop(lambda a: a > 0, lambda a: (wd.write(wd.sum(a, dim=N), y[:, 0]), a)[1], [x]),
         r"each element of \[M, N\] has a condition of its own, and what write stores has no N"),
        (lambda x, y: wd.while_loop(lambda a: a > 0, lambda a: None, [wd.Register[wd.i32](1)]), "returns nothing"),
        (lambda x, y: wd.while_loop(lambda a: a > 0, lambda: x, [x]),
         "takes 0 parameters, not 1\n(.*\n)*.*one parameter per entry"),
        (lambda x, y: wd.cond(wd.Register[wd.i32](1) > 0, lambda a: x),
         "takes 1 parameter, not 0\n(.*\n)*.*a branch takes nothing"),
    ):
        with pytest.raises(wd.TraceError, match=text) as caught:
            compiled(use)
        assert __file__ in str(caught.value)


@wd.wave([wd.WorkgroupConstraint(M, 1, 0)])
def locked(lock: wd.Memory[N, wd.i32], count: wd.Memory[M, wd.i32]):
    def take(_):
        return wd.atomic_cas(zero, zero + 1, lock, mapping=wd.IndexMapping((), {N: 0}))

    zero = wd.Register[wd.i32](0)
    wd.while_loop(lambda got: got != 0, take, [zero + 1])
    wd.atomic_xchg(zero, lock, mapping=wd.IndexMapping((), {N: 0}))
    wd.write(zero + 1, count)


def test_the_evaluator_says_that_workgroups_wait_for_each_other() -> None:
    """It went round for ever: it runs all workgroups in step, and who has a lock does not give it back meanwhile."""
    with pytest.raises(wd.ConstraintError, match="goes round for ever") as caught:
        locked.evaluate(np.zeros(1, np.int32), np.zeros(3, np.int32))
    assert "emulate" in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
def test_a_lock_that_is_never_given_back_is_found(target: str) -> None:
    """Loops counted their trips although nothing asked for the count, which kept the emulators from seeing that nothing
    changes any more; on NVIDIA two million blocks were run before that was said."""
    lock, count = np.zeros(1, np.int32), np.zeros(3, np.int32)
    compiled = locked.compile(lock, count, target=target)
    compiled.emulate(lock, count)
    assert count.tolist() == [1, 1, 1] and lock[0] == 0
    with pytest.raises(wd.EmulationError, match="deadlock") as caught:
        compiled.emulate(np.ones(1, np.int32), count)
    assert "for what never comes" in str(caught.value) and "test_op_control.py" in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
def test_flags_are_carried_and_chosen(target: str) -> None:
    """Loops and conditions could not hand on i1 values: "a loop cannot carry i1 values", at the kernel's first line."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.TilingConstraint(N, 16)])
    def kernel(
        x: wd.Memory[M, N, wd.i32], given: wd.Memory[M, wd.i1], large: wd.Memory[M, wd.i1], total: wd.Memory[M, wd.i32],
        chosen: wd.Memory[M, wd.i1], how: wd.Scalar[wd.i32],
    ):  # fmt: skip
        start = [wd.read(given), wd.Register[M, wd.i32](0), wd.Register[wd.i1](True)]

        @wd.iterate(N, init_args=start)
        def loop(seen: wd.Register[M, wd.i1], total, counting):
            tile = wd.read(x)
            total = total + wd.sum(wd.where(counting, tile, 0), dim=N)
            return seen | wd.any(tile > 2, dim=N), total, counting & (how > 0)

        wd.write(loop[0], large)
        wd.write(loop[1], total)
        both = wd.cond(how > 1, lambda: loop[0] & loop[2], lambda: ~loop[0])
        wd.write(both, chosen)

    for how, (m, n) in ((0, (8, 64)), (1, (13, 37)), (2, (13, 37))):
        x = np.random.default_rng(how).integers(-3, 4, (m, n)).astype(np.int32)
        given = np.arange(m) % 3 == 0
        arguments = [x, given, np.zeros(m, bool), np.zeros(m, np.int32), np.zeros(m, bool), np.int32(how)]
        agree(kernel, arguments, target)
        kernel.evaluate(*arguments)
        seen = given | (x > 2).any(1)
        assert (arguments[2] == seen).all() and (arguments[4] == (seen & (how > 0) if how > 1 else ~seen)).all()
        assert (arguments[3] == x[:, : None if how else 16].sum(1)).all()


@pytest.mark.parametrize("target", TARGETS)
def test_loops_of_flags_that_end_by_value(target: str) -> None:
    """Reachable nodes of a graph, for a row at a time; parities, for each element."""

    @wd.wave([wd.WorkgroupConstraint(B, 4, 0)])
    def reach(edge: wd.Memory[B, M, N, wd.i1], first: wd.Memory[B, M, wd.i1], out: wd.Memory[B, M, wd.i1]):
        edges = wd.read(edge)

        def grow(found, _):
            more = found | wd.any(edges & wd.reshape(found, B, N), dim=N)
            return more, wd.any(more != found, dim=M)

        start = [wd.read(first), wd.Register[B, wd.i1](True)]
        found, _ = wd.while_loop(lambda found, changed: wd.any(changed, dim=B), grow, start)
        wd.write(found, out)

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def parity(x: wd.Memory[N, wd.i32], odd: wd.Memory[N, wd.i1]):
        def step(odd, rest):
            return odd ^ (rest & 1 == 1), rest >> 1

        found, _ = wd.while_loop(lambda odd, rest: rest > 0, step, [wd.read(x) < 0, wd.read(x)])
        wd.write(found, odd)

    for b, m in ((4, 16), (3, 13)):
        edge, first = np.random.default_rng(0).random((b, m, m)) < 0.15, np.zeros((b, m), bool)
        first[:, 0] = True
        out = np.zeros((b, m), bool)
        agree(reach, [edge, first, out], target)
        reach.evaluate(edge, first, out)
        want = np.linalg.matrix_power(edge.astype(np.float64) + np.eye(m), m)[:, :, 0] > 0
        np.testing.assert_array_equal(out, want)
    for n in (64, 77):
        x, odd = np.arange(n, dtype=np.int32) * 7 - 20, np.zeros(n, bool)
        agree(parity, [x, odd], target)
        parity.evaluate(x, odd)
        np.testing.assert_array_equal(odd, [v < 0 or bin(v).count("1") % 2 == 1 for v in x.tolist()])


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_an_extent_is_compared_with_a_value(target: str) -> None:
    """In this order, too: `N - 1 == v` ended in an error of sympy's."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0)])
    def kernel(x: wd.Memory[M, N, wd.i32], y: wd.Memory[M, N, wd.i32]):
        v = wd.read(x)
        wd.write(wd.where(N - 1 == v, 1, 0) + wd.where(N > v, 2, 0) + wd.where(v == N // 2, 4, 0), y)

    x = np.arange(60, dtype=np.int32).reshape(5, 12) % 15
    y = np.zeros_like(x)
    agree(kernel, [x, y], target)
    kernel.evaluate(x, y)
    assert (y == (x == 11) + 2 * (x < 12) + 4 * (x == 6)).all()
