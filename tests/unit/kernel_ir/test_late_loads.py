"""Loads of shared memory that come as late as multiply-adds read them bring what they brought: they pass no store, of
this wave or of another, that may change it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from wavedsl.ir.kernel import element_order
from wavedsl.ir.kernel.build_core import new_kernel
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.late_loads import latest

import wavedsl as wd

I, J, K, M, N = wd.symbols("I J K M N")
F32 = wd.f32
EXACT: dict[str, Any] = {"precision": "ieee"}


def test_how_far_loads_may_move() -> None:
    kernel = new_kernel(target="sm_80", wave_size=32, waves=4)
    kernel.shared_names.update(a=(0, 1024), b=(1024, 1024))
    b = Builder(kernel)
    lane = b.mul(b.lane(), 4)
    ops: dict[str, Any] = {}

    def store(name: str, buffer: str) -> None:
        ops[name] = b.store_shared(lane, b.i32(1), bytes=4, imm=kernel.shared_names[buffer][0], buffer=buffer)

    def load(name: str, buffer: str) -> None:
        ops[name] = b.load_shared(lane, bytes=4, imm=kernel.shared_names[buffer][0], buffer=buffer).op

    store("first", "a")
    ops["one"] = b.barrier()
    load("early", "a")
    store("other", "b")
    ops["two"] = b.barrier()
    load("of b", "b")
    ops["three"] = b.barrier()
    load("late", "a")
    store("again", "a")
    ops["four"] = b.barrier()
    load("last", "a")
    b.store_shared(lane, b.i32(2), bytes=4, imm=1024, buffer="b")
    kernel = b.finish()
    until = latest(kernel, kernel.body)
    found = {name: until[op] for name, op in ops.items() if op in until}
    names = {op: name for name, op in ops.items()}
    assert {name: names.get(op, "end") for name, op in found.items()} == {
        "early": "three",  # other waves store behind it
        "late": "again",
        "of b": "four",
        "last": "end",
    }


SHARED = [c(d, n, *x) for d, x in ((I, (0,)), (J, (1,))) for c, n, x in
          ((wd.WorkgroupConstraint, 32, x), (wd.WaveConstraint, 16, ()))]  # fmt: skip


@wd.wave(SHARED, subs={K: 32})
def picks(a: wd.Memory[I, J, F32], y: wd.Memory[I, J, F32]):
    """Operands that waves pick of each other, in two places, and a maximum in front of the last product."""

    def product(x: Any, y: Any) -> Any:
        x, y = wd.shuffle(x, wd.index(K), J), wd.shuffle(y, wd.index(K), I)
        return wd.mma(x, y, wd.Register[I, J, F32](0.0), **EXACT)

    m = wd.read(a)
    two = product(m, m)
    wd.write(product(two - wd.max(two, dim=(I, J)), m), y)


@wd.wave([wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)])
def waves_of_numbers(a: wd.Memory[M, K, F32], b: wd.Memory[N, K, F32], y: wd.Memory[M, N, F32]):
    """Loads of a loop's trip, beside copies for the next, and an operand that is computed."""

    @wd.iterate(K, init_args=[wd.Register[M, N, F32](0.0)] * 2)
    def sums(x, z):
        u, v = wd.read(a), wd.read(b)
        return wd.mma(u, v * v, x, **EXACT), wd.mma(u, v + 1.0, z, **EXACT)

    wd.write(sums[0] - sums[1], y)


@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_the_same_numbers(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = _always(monkeypatch)
    a = np.random.default_rng(0).integers(-2, 3, (32, 32)).astype(np.float32)
    compiled = _agree(picks, [a, np.zeros_like(a)], target)
    assert any(moved) and compiled.block[0] == 128


@pytest.mark.parametrize("target", ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)])
def test_the_same_numbers_in_loops(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = _always(monkeypatch)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (n, 70)).astype(np.float32) for n in (40, 33))
    _agree(waves_of_numbers, [a, b, np.zeros((40, 33), np.float32)], target)
    assert any(moved)


def _always(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Let loads come late in every kernel; whether each did."""
    moved: list[bool] = []
    late = element_order._come_late

    def whatever(kernel, target, most):
        moved.append(late(kernel, target, 1e9))
        return moved[-1]

    monkeypatch.setattr(element_order, "wave_room", lambda target, waves: 12)
    monkeypatch.setattr(element_order, "_come_late", whatever)
    return moved


def _agree(kernel: Any, arrays: list[np.ndarray], target: str) -> wd.CompiledKernel:
    want = [a.copy() for a in arrays]
    kernel.evaluate(*want)
    compiled: wd.CompiledKernel = kernel.compile(*arrays, target=target)
    compiled.emulate(*arrays, checks=True)
    np.testing.assert_array_equal(arrays[-1], want[-1])
    return compiled
