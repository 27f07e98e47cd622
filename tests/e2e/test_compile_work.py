"""What a compile does grows with the kernel and no faster, and is not done again for each of many alike. Counted in
calls of Python functions, which are the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from wavedsl.ir import attempts, source
from wavedsl.ir.dataflow import views
from wavedsl.ir.errors import RegisterPressureError
from wavedsl.ir.kernel import straight_clocks
from wavedsl.ir.kernel.build_values import Values
from wavedsl.ir.layouts import shared_search
from wavedsl.ir.lower import lower_mapped
from wavedsl.ir.regions import first_loads
from wavedsl.ir.staging import lower_reads, plan_reads

import wavedsl as wd

M, N, K, S = wd.symbols("M N K S")
CHIPS = ("gfx942", "sm_80")


def chain(n: int) -> Any:
    """Each number is made of those before it."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(a: wd.Memory[M, N, wd.i32], b: wd.Memory[M, N, wd.i32]):
        made = [wd.read(a)] * 4
        for i in range(n):
            made.append(((made[-1] ^ made[-3]) + made[-4]) * (2 * i + 1))
        wd.write(made[-1], b)

    return kernel


def stores(n: int) -> Any:
    """Reads and writes in turn, of long values that go element by element; each is of all that was read."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
        total = wd.read(a)
        for i in range(n):
            total = total + wd.read(a) * i
            wd.write(total, b)

    return kernel


def elements(n: int) -> Any:
    """Vectors of which each lane has its own: every element is read and written by itself, and none meets another."""

    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def kernel(a: wd.Memory[N, S, wd.f32], b: wd.Memory[N, S, wd.f32]):
        for i, x in enumerate([wd.read(a[:, i]) for i in range(n)]):
            wd.write(x * (i + 2), b[:, i])

    return kernel


def branches(n: int) -> Any:
    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 64, 1)])
    def kernel(a: wd.Memory[M, N, wd.f32], s: wd.Scalar[wd.i32], b: wd.Memory[M, N, wd.f32]):
        x = wd.read(a)
        for i in range(n):
            wd.cond(s > i, lambda i=i: wd.write(x * i, b), lambda: None)

    return kernel


def gathers(n: int) -> Any:
    """Straight code of products, each of rows that indices of its own gather."""

    @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1)])
    def kernel(
        a: wd.Memory[S, K, wd.f16], ids: wd.Memory[S, M, wd.i32], b: wd.Memory[S, N, K, wd.f16],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        total = wd.Register[M, N, wd.f32](0.0)
        for i in range(n):
            total = wd.mma(wd.read(a[wd.read(ids[i, :]), :]), wd.read(b[i, :, :]), total)
        wd.write(total, c)

    return kernel


def taps(n: int) -> Any:
    """A loop with products of tiles that are all alike, as those of a convolution's filter."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 16),
            wd.WaveConstraint(M, 32), wd.WaveConstraint(N, 32),
        ],
        subs={S: n},
    )  # fmt: skip
    def kernel(a: wd.Memory[M, K, wd.f16], w: wd.Memory[S, N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):  # type: ignore[no-untyped-def]
            x = wd.read(a)
            for i in range(n):
                acc = wd.mma(x, wd.read(w[i]), acc)
            return acc

        wd.write(loop, c)

    return kernel


def calls(work: Callable[[], object]) -> int:
    """How many Python functions are called in the course of it."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize(("name", "length"), [("chain", 60), ("stores", 100), ("branches", 40), ("elements", 30)])
def test_twice_the_operations_take_twice_the_calls(name: str, length: int, target: str) -> None:
    """200 stores took 2.9 times the calls of 100, and 2000 of them 38 s: each was compared with all nodes."""
    kernel = {"chain": chain, "stores": stores, "branches": branches, "elements": elements}[name]
    sizes = {N: 4096, S: 2 * length} if name == "elements" else {M: 64, N: 4096}

    def compiled(n: int) -> int:
        return calls(lambda: kernel(n).compile(target=target, subs=sizes))

    compiled(2)  # what is kept for all kernels is made
    assert compiled(2 * length) < 2.15 * compiled(length)


@pytest.mark.parametrize("target", CHIPS)
def test_tiles_that_are_alike_are_priced_once(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the 27 taps of a filter was priced on every place, and all other tiles were counted beside it."""
    priced: list[Any] = []
    counted: list[Any] = []
    cost, tile = shared_search.access_cost, plan_reads._clocks_of_tile
    monkeypatch.setattr(shared_search, "access_cost", lambda *a: priced.append(a[:2]) or cost(*a))
    monkeypatch.setattr(plan_reads, "_clocks_of_tile", lambda low, n: counted.append(n) or tile(low, n))

    def asked(n: int) -> tuple[int, int]:
        shared_search._known_costs.cache_clear()
        priced.clear()
        counted.clear()
        taps(n).compile(target=target, subs={M: 256, N: 256, K: 256})
        return len(priced), len(counted)

    few, many = asked(3), asked(6)  # (as many as are lowered in windows, too)
    assert 0 < many[0] == few[0]
    assert many[1] * (1 + 3) == few[1] * (1 + 6)


@pytest.mark.parametrize("target", CHIPS)
def test_where_a_tile_lies_is_found_once(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dozens of places ask, and each time symbols were compared: an eighth of what attention took to compile."""
    placed: list[tuple[Any, Any]] = []
    found = views._placement
    monkeypatch.setattr(views, "_placement", lambda graph, n, m: placed.append((graph, n)) or found(graph, n, m))
    taps(4).compile(target=target, subs={M: 256, N: 256, K: 256})
    once = {(id(graph), id(n)) for graph, n in placed}
    assert len(placed) == len(once) >= 4


@pytest.mark.parametrize("target", CHIPS)
def test_vectors_of_a_tile_are_addressed_together(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each vector load of a tile derived anew where the tile lies and what of it is inside."""
    derived: list[Any] = []
    access = lower_reads._Straight._access
    monkeypatch.setattr(lower_reads._Straight, "_access", lambda self, *a: derived.append(self.n) or access(self, *a))

    def asked(columns: int) -> int:
        @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, columns, 1)])
        def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
            x = wd.read(a)
            wd.write(x / wd.sum(x, dim=N), b)

        derived.clear()
        kernel.compile(target=target, subs={M: 8, N: columns})
        return len(derived)

    assert 0 < asked(4096) == asked(1024)


@pytest.mark.parametrize("target", CHIPS)
def test_writes_that_leave_alone_keep_none_waiting(target: str) -> None:
    """Packed numbers of a kernel that goes element by element are stored by themselves. They were taken for one of the
    last two writes, which left without the second: it stored nothing on sm_80."""

    @wd.wave([wd.WorkgroupConstraint(M, 1, 0), wd.WorkgroupConstraint(N, 4096, 1)])
    def kernel(
        a: wd.Memory[M, N, wd.f32], p: wd.Memory[M, N, wd.i4], b: wd.Memory[M, N, wd.f32], c: wd.Memory[M, N, wd.f32]
    ):
        x = wd.read(a)
        wd.write(wd.cast(wd.cast(x, wd.i32), wd.i4), p)
        wd.write(x * 2, b)
        wd.write(x * 3, c)

    a = np.random.default_rng(0).integers(-8, 8, (2, 4096)).astype(np.float32)
    codes = a.astype(np.int8).view(np.uint8) & 15
    wants = codes[:, ::2] | codes[:, 1::2] << 4, 2 * a, 3 * a
    for run in (kernel.evaluate, lambda *arrays: kernel.compile(*arrays, target=target).emulate(*arrays)):
        made = np.zeros((2, 2048), np.uint8), np.zeros_like(a), np.zeros_like(a)
        run(a, *made)
        for got, want in zip(made, wants, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", CHIPS)
def test_accesses_of_a_gather_are_found_once(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who counts its loads, who takes their results and who emits them asked for the same, per lowering."""
    asked: list[tuple[Any, ...]] = []
    found = lower_mapped._groups
    monkeypatch.setattr(lower_mapped, "_groups", lambda *a: asked.append(a) or found(*a))
    gathers(6).compile(target=target, subs={M: 8192, N: 128, K: 32, S: 8})
    assert 6 <= len(asked) == len({(id(low), id(n), id(layout), store) for low, n, layout, store in asked})


def test_what_a_kernel_lacks_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three places ask for the order of values on demand, which took a second each of a fourth root's."""
    asked: list[Any] = []
    found = attempts.on_demand
    monkeypatch.setattr(attempts, "on_demand", lambda kernel, *a: asked.append(kernel) or found(kernel, *a))

    @wd.wave(
        [wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 256, 1), wd.TilingConstraint(K, 32),
         wd.WaveConstraint(M, 128), wd.WaveConstraint(N, 128)]
    )  # fmt: skip
    def kernel(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):  # type: ignore[no-untyped-def]
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    with pytest.raises(RegisterPressureError):  # sums of 512 registers
        kernel.compile(target="sm_80", subs={M: 1024, N: 1024, K: 1024})
    assert 0 < len(asked) == len({id(k) for k in asked})


@pytest.mark.parametrize("target", CHIPS)
def test_calls_for_an_operation(target: str) -> None:
    """Fifty walks over a kernel handed each operation through the frame of a generator, between two barriers all were
    asked for what they touch, and places in the source were looked up again. The three operations of a chain took 2440
    calls on gfx942 (now 1480) and 2790 on sm_80 (1690); a read, a sum and a store 4620 (3300) and 5270 (3670)."""

    def each(kernel: Callable[[int], Any], n: int) -> float:
        kernel(2).compile(target=target, subs={M: 64, N: 4096})  # what is kept for all kernels is made
        few, many = (calls(lambda k=k: kernel(k).compile(target=target, subs={M: 64, N: 4096})) for k in (n, 2 * n))
        return (many - few) / n

    assert each(chain, 60) < 1850
    assert each(stores, 30) < 4000


@pytest.mark.parametrize("target", CHIPS)
def test_units_are_counted_once_per_kernel(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Straight code is compared with itself as if its loads had come, and with that its copies: what it keeps units
    busy for is the same each time. And where a grid has a workgroup for each unit at most, registers that would let
    more of them in were counted for every comparison."""
    counted: list[Any] = []
    held: list[Any] = []
    clocks, groups = attempts.unit_clocks, first_loads.pressure
    for module in (attempts, straight_clocks):
        monkeypatch.setattr(
            module, "unit_clocks", lambda k, t, n, *more: counted.append((k, n)) or clocks(k, t, n, *more)
        )
    monkeypatch.setattr(first_loads, "pressure", lambda kernel, t: held.append(kernel) or groups(kernel, t))
    gathers(6).compile(target=target, subs={M: 128, N: 128, K: 32, S: 8})
    assert 0 < len(counted) == len({(id(k), n) for k, n in counted})
    assert not held


def test_a_place_in_the_source_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation of a loop of a user's asked for the columns of the same instruction."""
    found: list[Any] = []
    in_table = source._in_table
    monkeypatch.setattr(source, "_in_table", lambda *a: found.append(a[2]) or in_table(*a))

    def asked(n: int) -> int:
        source._POSITIONS.clear()
        found.clear()
        chain(n).compile(target="sm_80", subs={M: 64, N: 4096})
        return len(found)

    assert 0 < asked(20) == asked(40)


def test_registers_of_a_tuple_are_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products by multiply-adds ask for every register of the sums that the step before has put together."""
    sliced: list[Any] = []
    piece = Values.slice
    monkeypatch.setattr(Values, "slice", lambda self, *a: sliced.append(a) or piece(self, *a))

    def asked(k: int) -> int:
        @wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1)])
        def kernel(a: wd.Memory[M, K, wd.f32], b: wd.Memory[N, K, wd.f32], c: wd.Memory[M, N, wd.f32]):
            wd.write(wd.mma(wd.read(a), wd.read(b), wd.Register[M, N, wd.f32](0.0), precision="ieee"), c)

        sliced.clear()
        kernel.compile(target="sm_80", subs={M: 32, N: 32, K: k})
        return len(sliced)

    assert asked(32) - asked(16) < 8 * 16  # they were 20 for each of 16 steps
