"""Several writes, atomics and reads of one array in one kernel happen in the order in which they stand.

Waves of a workgroup that hold the same elements wait for each other between two of them, bulk copies and ordinary
stores too; where no element is in both, nobody waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from agree import agree, equal, near

import wavedsl as wd

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
M, N, K, H, BM, BN, BK, BH, ONE = wd.symbols("M N K H BM BN BK BH ONE")
ROWS = [wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, BM / 4)]
NEXT_WAVE = wd.IndexMapping((M, N), {M: M // 64 * 64 + (M + 16) % 64})
SHIFT = np.arange(128) // 64 * 64 + (np.arange(128) + 16) % 64
Body = Callable[[Any, Any, Any, Any], None]


def there(i: Any) -> wd.IndexMapping:
    return wd.IndexMapping((M, N), {M: i})


def write_twice(v: Any, i: Any, x: Any, c: Any) -> None:
    wd.write(v, c)
    wd.write(v * 2.0, c, mapping=NEXT_WAVE)


def scatter(v: Any, i: Any, x: Any, c: Any) -> None:
    wd.write(v, c)
    wd.write(v * 2.0, c, mapping=there(i))


def clear_and_add(v: Any, i: Any, x: Any, c: Any) -> None:
    wd.write(wd.Register[M, N, wd.f32](0), c)
    wd.atomic_add(v, c, mapping=there(i))


def add_and_write(v: Any, i: Any, x: Any, c: Any) -> None:
    wd.atomic_add(v, c, mapping=there(i))
    wd.write(v, c)


def read_and_add(v: Any, i: Any, x: Any, c: Any) -> None:
    old = wd.read(c, mapping=NEXT_WAVE)
    wd.atomic_add(old * 0.5, c)


def fence_in_a_branch(v: Any, i: Any, x: Any, c: Any) -> None:
    """The fence between the two in the branch orders nothing where the branch is not taken."""
    wd.write(v, c)

    def rare() -> None:
        wd.write(wd.read(c, mapping=NEXT_WAVE) * 3.0, x)

    wd.cond(wd.tile_start(M) > 1000, rare)
    wd.write(wd.read(c, mapping=NEXT_WAVE) * 2.0, x)


BODIES = [write_twice, scatter, clear_and_add, add_and_write, read_and_add, fence_in_a_branch]


def kernel(body: Body) -> Any:
    @wd.wave(ROWS, subs={BM: 64})
    def ordered(x: wd.Memory[M, N, wd.f32], rows: wd.Memory[M, wd.i32], c: wd.Memory[M, N, wd.f32]):
        body(wd.read(x), wd.read(rows), x, c)

    return ordered


def wanted(body: Body, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The array that is written, from ones."""
    back, home = np.argsort(rows), np.argsort(SHIFT)
    return {
        write_twice: 2 * x[home],
        scatter: 2 * x[back],
        clear_and_add: x[back],
        add_and_write: x,
        read_and_add: np.full_like(x, 1.5),
        fence_in_a_branch: 2 * x[SHIFT],
    }[body]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.__name__)
def test_accesses_of_other_waves_elements(body: Body, target: str, oracle: Callable[[str], str]) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal((128, 8)).astype(np.float32)
    rows = np.concatenate([b + rng.permutation(64) for b in (0, 64)]).astype(np.int32)
    args = [x, rows, np.ones_like(x)]
    compiled = agree(kernel(body), args, target, oracle)
    want = wanted(body, x.copy(), rows)
    compiled.emulate(*args)
    np.testing.assert_array_equal(args[0 if body is fence_in_a_branch else 2], want)


PARTS: dict[str, tuple[Callable[[Any, Any], None], int]] = {}


def part(fences: int) -> Callable[[Any], Any]:
    """Registers a body that writes an array twice, or writes and reads it, and the fences it needs."""

    def register(body: Any) -> Any:
        PARTS[body.__name__] = body, fences
        return body

    return register


@part(0)
def halves(v: Any, y: Any) -> None:
    wd.write(v, y[:, 0:H])
    wd.write(v * 2.0, y[:, H : 2 * H])


@part(0)
def even_and_odd(v: Any, y: Any) -> None:
    wd.write(v, y, mapping=wd.IndexMapping((M, H), {2 * H: 2 * H}))
    wd.write(v * 2.0, y, mapping=wd.IndexMapping((M, H), {2 * H: 2 * H + 1}))


@part(0)
def the_same_place(v: Any, y: Any) -> None:
    wd.write(v, y[:, 0:H])
    wd.write(v * 2.0, y[:, 0:H])


@part(1)
def one_element_in_both(v: Any, y: Any) -> None:
    wd.write(v, y[:, 0:H])
    wd.write(v * 2.0, y[:, H - 1 : 2 * H - 1])


@part(1)
def every_third_and_even(v: Any, y: Any) -> None:
    wd.write(v, y, mapping=wd.IndexMapping((M, H), {2 * H: 2 * H}))
    wd.write(v * 2.0, y, mapping=wd.IndexMapping((M, H), {2 * H: 3 * H}))


@part(1)
def what_was_written(v: Any, y: Any) -> None:
    wd.write(v, y[:, 0:H])
    wd.write(wd.read(y[:, 0:H]) * 3.0, y[:, 0:H])


@part(0)
def the_other_half(v: Any, y: Any) -> None:
    wd.write(v, y[:, 0:H])
    wd.write(wd.read(y[:, H : 2 * H]) + v, y[:, H : 2 * H])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_an_array(name: str, target: str, oracle: Callable[[str], str]) -> None:
    body, fences = PARTS[name]

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(H, BH, 1), wd.WaveConstraint(M, BM / 2),
              wd.WaveConstraint(H, BH / 2)], subs={BM: 16, BH: 32})  # fmt: skip
    def parts(x: wd.Memory[M, H, wd.f32], y: wd.Memory[M, 2 * H, wd.f32]):
        body(wd.read(x), y)

    x = np.random.default_rng(3).standard_normal((16, 32)).astype(np.float32)
    compiled = agree(parts, [x, np.ones((16, 64), np.float32)], target, oracle)
    barriers = ("s_barrier", "bar.sync", "barrier.sync")
    assert sum(any(b in line for b in barriers) for line in compiled.asm.splitlines()) == fences


def product(last: str) -> Any:
    """A product whose result is written over, or under, other numbers."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
              wd.WaveConstraint(M, BM / 2)], subs={BM: 128, BN: 128, BK: 64})  # fmt: skip
    def gemm(
        a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], d: wd.Memory[M, N, wd.f16], c: wd.Memory[M, N, wd.f16]
    ):
        if last == "over zeros":
            wd.write(wd.Register[M, N, wd.f16](0), c)
        if last == "over another array":
            wd.write(wd.read(d), c)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0)])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(wd.cast(loop, wd.f16), c)
        if last == "under itself":
            wd.write(wd.cast(loop * 2.0, wd.f16), c)
        if last == "under another array":
            wd.write(wd.read(d), c)
        if last == "under a sum":
            wd.atomic_add(wd.read(d), c)
        if last == "read again":
            wd.write(wd.read(c) + wd.read(d), c)

    return gemm


SCHEDULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "persistent": {"persistent": True},
    "ping-pong": {"persistent": True, "ping_pong": True},
    "cluster": {"cluster": (2, 1, 1)},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("last", ["under itself", "over another array", "read again"])
def test_results_of_many_tiles(
    last: str, schedule: str, oracle: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bulk copies of one thread keep no order either."""
    rng = np.random.default_rng(11)
    a, b, d = (rng.integers(-4, 5, s).astype(np.float16) for s in ((512, 64), (256, 64), (512, 256)))
    kernel = product(last)
    constraints = [*list(kernel.constraints)[:3], wd.WaveConstraint(M, BM)]
    one = wd.wave(constraints, subs={BM: 64, BN: 128, BK: 64}, schedule=wd.Schedule(**SCHEDULES[schedule]))
    args = [a, b, d, np.full((512, 256), 7, np.float16)]
    compiled = agree(one(kernel.function), args, "sm_90a", oracle)
    assert ("cp.async.bulk.tensor.2d.global" in compiled.asm) == (last != "read again")
    for seed in ("1", "2"):
        monkeypatch.setenv("WAVEDSL_SEED", seed)
        assert not compiled.emulate(*args, checks="report").findings


LAST = ["over zeros", "over another array", "under itself", "under another array", "under a sum", "read again"]


@pytest.mark.parametrize("n", [128, 122])
@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("target", ["sm_90a", "gfx942"])
def test_results_over_and_under_other_writes(last: str, target: str, n: int, oracle: Callable[[str], str]) -> None:
    """Warps of a warpgroup hold other elements of the product than of what they copy; its results leave by bulk copies
    where the pitch lets them."""
    rng = np.random.default_rng(11)
    a, b, d = (rng.integers(-4, 5, s).astype(np.float16) for s in ((128, 64), (n, 64), (128, n)))
    args = [a, b, d, np.full((128, n), 7, np.float16)]
    agree(product(last), args, target, oracle, compare=near(1) if last == "under a sum" else equal)


T, BT = wd.symbols("T BT")


def trips(name: str) -> Any:
    """A kernel whose loop goes on with what its trip before did, but for `own_tiles`."""

    @wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, BM / 4), wd.TilingConstraint(T, BT)],
             subs={BM: 64, BT: 4})  # fmt: skip
    def loops(x: wd.Memory[M, T, wd.f32], y: wd.Memory[M, wd.f32], z: wd.Memory[M, T, wd.f32]):
        up = wd.IndexMapping((M,), {M: M // 64 * 64 + (M + 16) % 64})

        if name == "while":

            def step(i: Any) -> Any:
                wd.write(wd.read(y, mapping=up) * 0.5, y)
                return i + 1

            wd.while_loop(lambda i: i < 5, step, [wd.tile_start(M) * 0])
            return

        @wd.iterate(T, init_args=[])
        def loop() -> None:
            if name == "own tiles":
                wd.write(wd.read(z) + wd.read(x), z)
            if name == "writes":
                wd.write(wd.sum(wd.read(x), dim=T), y)
                wd.write(wd.max(wd.read(x), dim=T), y, mapping=up)
            if name == "sums":
                wd.write(wd.read(y, mapping=up) + wd.sum(wd.read(x), dim=T), y)
            if name == "in a branch":

                def odd() -> None:
                    wd.write(wd.read(y, mapping=up) * 2.0, y)

                wd.cond(wd.tile_start(T) % 8 > 0, odd)
            if name == "atomics":
                wd.atomic_add(wd.read(y, mapping=up), y)
            if name == "next tile":
                wd.write(wd.read(z) + 1.0, z, mapping=wd.IndexMapping((M, T), {T: (T + 4) % 16}))

    return loops


TRIPS = {"while": 2, "own tiles": 0, "writes": 2, "sums": 2, "in a branch": 2, "atomics": 2, "next tile": 2}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TRIPS)
def test_trips(name: str, target: str, oracle: Callable[[str], str]) -> None:
    """Also of loops in which a fence stands already, between two accesses of one trip."""
    rng = np.random.default_rng(5)
    x, z = (rng.integers(-3, 4, (128, 16)).astype(np.float32) for _ in range(2))
    args = [x, rng.integers(-3, 4, 128).astype(np.float32), z]
    compiled = agree(trips(name), args, target, oracle)
    barriers = ("s_barrier", "bar.sync", "barrier.sync")
    found = sum(any(b in line for b in barriers) for line in compiled.asm.splitlines())
    assert found >= TRIPS[name] if TRIPS[name] else not found


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WaveConstraint(M, BM / 4)], subs={BM: 64})
def until_small(y: wd.Memory[M, wd.f32], trips: wd.Memory[M, wd.f32]):
    """The condition reads what the body has written, and the next trip writes what the condition has read."""
    up = wd.IndexMapping((M,), {M: M // 64 * 64 + (M + 16) % 64})

    def halve(count: Any, value: Any) -> Any:
        wd.write(value * 0.5, y)
        return count + 1, value * 0.5

    first = wd.read(y)
    start = [wd.tile_start(M) * 0, first]
    count, _ = wd.while_loop(lambda count, value: wd.max(wd.read(y, mapping=up), dim=M) > 1.0, halve, start)
    wd.write(wd.broadcast(wd.cast(count, wd.f32), M), trips)


@pytest.mark.parametrize("target", TARGETS)
def test_a_condition_that_reads_what_the_trip_wrote(target: str, oracle: Callable[[str], str]) -> None:
    args = [np.linspace(1, 50, 64).astype(np.float32), np.zeros(64, np.float32)]
    agree(until_small, args, target, oracle)
    graph = until_small.trace()
    (body,) = [n.attrs["body"] for n in graph.all_nodes() if n.op == "repeat"]
    fences = [i for i, n in enumerate(body.nodes) if n.op == "fence"]
    writes, reads = ([i for i, n in enumerate(body.nodes) if n.op == op] for op in ("write", "read"))
    assert any(writes[0] < i < reads[0] for i in fences) and any(i < writes[0] or i > reads[0] for i in fences)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("waves", [1, 4])
def test_a_workgroup_waits_for_no_store_of_its_own(waves: int, target: str) -> None:
    """Its waves share the first-level cache, which serves them in order: they meet, and a wave alone goes on."""
    @wd.wave([wd.WorkgroupConstraint(N, 64 * waves, 0), wd.WaveConstraint(N, 64)])
    def turned(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
        value, n = wd.read(x), wd.index(N)
        for step in (1, 2, 3):
            wd.write(value + step, y[n ^ step])
            value = wd.read(y[n ^ (16 * step)])
        wd.write(value, y)

    n = 64 * waves * 3
    x, y = np.random.default_rng(0).standard_normal(n).astype(np.float32), np.zeros(n, np.float32)
    compiled = agree(turned, [x, y], target)
    place, value = np.arange(n), x
    for step in (1, 2, 3):
        value = (value + np.float32(step))[place ^ step][place ^ (16 * step)]
    compiled.emulate(x, y)
    np.testing.assert_array_equal(y, value)
    met = re.findall(r"^\s+(buffer_store|buffer_load|s_barrier|s_waitcnt.*vmcnt)", compiled.asm, re.M)
    behind = [met[i + 1 : i + 2 + (waves > 1)] for i, what in enumerate(met) if what == "buffer_store"]
    assert behind[:3] == [[*["s_barrier"] * (waves > 1), "buffer_load"]] * 3


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_direct_copies_have_landed_behind_a_fence(target: str) -> None:
    """Where tiles are copied to shared memory by the way past registers, a fence waits for the copies still."""
    @wd.wave(
        [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)],
        schedule=wd.Schedule(direct_to_shared=True),
    )
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def total(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(total, c)
        wd.write(total * 2.0, c, mapping=wd.IndexMapping((M, N), {M: M // 64 * 64 + (M + 16) % 64}))

    a, b = (np.random.default_rng(i).standard_normal((64, 128)).astype(np.float16) for i in range(2))
    text = product.compile(a, b, np.zeros((64, 64), np.float32), target=target).asm
    stores = text.index("buffer_store")
    between = text[stores : text.index("s_barrier", stores)]
    assert "vmcnt(0)" in between
    agree(product, [a, b, np.zeros((64, 64), np.float32)], target, compare=near(absolute=1e-4))
