"""What is made again behind barriers is what it was: rows of kernels to which a wave has next to no registers left."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from wavedsl.ir.kernel import element_order

import wavedsl as wd

B, T, V = wd.symbols("B T V")
F16, F32, I32 = wd.f16, wd.f32, wd.i32
ROOM = 12
WAVES = [wd.WorkgroupConstraint(B, 1, 0), wd.WorkgroupConstraint(V, 4096, 1), wd.WaveConstraint(V, 1024)]


@pytest.fixture
def few_registers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """As many as make everything that can be made again be so; how many operations each kernel got."""
    again: list[int] = []
    make = element_order.read_again

    def counted(kernel, target, room):
        found = make(kernel, target, room)
        again.append(len(found))
        return found

    monkeypatch.setattr(element_order, "wave_room", lambda target, waves: ROOM)
    monkeypatch.setattr(element_order, "read_again", counted)
    yield again


@wd.wave(WAVES)
def distances(x: wd.Memory[B, V, F32], w: wd.Memory[V, F32], y: wd.Memory[B, V, F32]):
    row = wd.read(x)
    away = row - wd.sum(row, dim=V) / V
    wd.write(away * wd.rsqrt(wd.sum(away * away, dim=V) / V + 1.0) * wd.read(w), y)


@wd.wave(WAVES)
def halves(x: wd.Memory[B, V, F16], w: wd.Memory[V, F32], y: wd.Memory[B, V, F32]):
    """Two elements of a word, and what is computed once more before each of two sums."""
    row = wd.cast(wd.read(x), F32)
    row = row - wd.max(row, dim=V)
    p = wd.exp(row)
    p = p / wd.sum(p, dim=V)
    wd.write(p * (wd.read(w) - wd.sum(p * wd.read(w), dim=V)), y)


@wd.wave(WAVES)
def branches(x: wd.Memory[B, V, F32], w: wd.Memory[V, F32], y: wd.Memory[B, V, F32]):
    """A body reads what is held over the barriers in front of it."""
    row = wd.read(x)
    top, total = wd.max(row, dim=V), wd.sum(row * row, dim=V)
    found = wd.cond(top > 2.0, lambda: (row - top) * wd.read(w), lambda: row * total)
    wd.write(found, y)


@wd.wave([*WAVES, wd.TilingConstraint(T, 1)])
def trips(x: wd.Memory[B, V, F32], w: wd.Memory[V, F32], y: wd.Memory[B, V, F32], count: wd.Memory[T, I32]):
    """Factors are read before a loop in whose trips waves meet, and wanted again behind it."""
    row, factors = wd.read(x), wd.read(w)
    row = row * factors

    @wd.iterate(T, init_args=[wd.Register[F32](0.0)])
    def step(u):
        return wd.max(row - 0.5 * u, dim=V)

    wd.write((row - step) * factors, y)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_what_a_loop_does_not_read_is_not_held_over_it(target: str, few_registers: list[int]) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3000), (3000,)))
    want, got = np.zeros((2, 3000), np.float32), np.zeros((2, 3000), np.float32)
    count = np.zeros(9, np.int32)
    trips.evaluate(x, w, want, count)
    compiled = trips.compile(x, w, got, count, target=target)
    compiled.emulate(x, w, got, count)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    ops = compiled.kernel_ir.body.ops
    loop = next(i for i, op in enumerate(ops) if op.name == "for")
    assert few_registers[-1] > 0 and any(op.name == "load.global" for op in ops[loop:]), "loaded again behind it"


@pytest.mark.parametrize("target", ["gfx942", "sm_80", "sm_90a"])
@pytest.mark.parametrize("kernel", [distances, halves, branches], ids=lambda k: k.name)
def test_the_same_numbers(kernel: wd.Kernel, target: str, few_registers: list[int]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3000)).astype(np.float16 if kernel is halves else np.float32)
    x[1] = np.minimum(x[1], 1.5)
    w = rng.standard_normal(3000).astype(np.float32)
    want, got = np.zeros((2, 3000), np.float32), np.zeros((2, 3000), np.float32)
    kernel.evaluate(x, w, want, float64=True)
    kernel.compile(x, w, got, target=target).emulate(x, w, got)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)
    assert max(few_registers) > 8


def test_where_there_is_room_nothing_is() -> None:
    kernel = distances.compile(target="sm_80", subs={B: 2, V: 3000}).kernel_ir
    loads = [op for op in kernel.body.walk() if op.name == "load.global"]
    assert len(loads) == len({(op.args[:3], op.attrs["imm"]) for op in loads})
