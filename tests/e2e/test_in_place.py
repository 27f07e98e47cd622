"""Results that take the place of what they are computed of, alpha A B + beta C written to C: by bulk copies and late
loads where every element is read before its own store, and otherwise with the reason why not."""

from __future__ import annotations

from typing import Any

import hopper
import numpy as np
import products
import pytest
from hopper import strategy, tiles
from products import BF16, BK, BM, BN, WM, WN, K, Kind, M, N, numbers
from wavedsl.ir.rounding import convert

import wavedsl as wd

BF16_F32 = Kind("bf16-out-f32", wd.bf16, wd.f32, wd.f32)
F16_OUT = Kind("f16-out-f16", wd.f16, wd.f32, wd.f16)
P = wd.sym.P
ALPHA, BETA = np.float32(2.0), np.float32(-3.0)
LATE = "as results are stored in their place"


def record(compiled: wd.CompiledKernel) -> str:
    assert compiled.decisions is not None
    return compiled.decisions.text()


def operands(kind: Kind, size: tuple[int, int, int], seed: int) -> tuple[Any, ...]:
    m, n, k = size
    a, b = numbers((m, k), kind.dtype, seed), numbers((n, k), kind.dtype, seed + 1)
    return a, b, numbers((m, n), kind.out, seed + 2), ALPHA, BETA


def expected(kind: Kind, args: tuple[Any, ...]) -> Any:
    a, b, c, alpha, beta = args
    x = products.exact(a, b, kind)[0] * float(alpha) + float(beta) * c.astype(np.float64)
    return convert(x, wd.f64, kind.out).astype(np.float64)


def check(kernel: Any, kind: Kind, args: tuple[Any, ...], subs: dict[Any, int], grid: Any = None) -> Any:
    """Emulated with all checks, and evaluated: both exact, for all numbers are small and whole."""
    want = expected(kind, args)
    compiled = kernel.compile(*args, target="sm_90a", subs=subs)
    again = (*args[:2], args[2].copy(), *args[3:])
    if grid is not None:
        compiled.grid = grid
    compiled.emulate(*args)
    assert np.array_equal(args[2].astype(np.float64), want)
    kernel.evaluate(*again, subs=subs)
    assert np.array_equal(again[2].astype(np.float64), want)
    return compiled


STRAIGHT, WIDE, SWAPPED = tiles(64, 64, 32, 64, 64), tiles(128, 128, 32, 64, 128), tiles(32, 128, 32, 32, 64)


@pytest.mark.parametrize("seed", [1, 7])
@pytest.mark.parametrize(
    ("subs", "size"),
    [
        (STRAIGHT, (128, 128, 64)), (STRAIGHT, (100, 72, 40)), (WIDE, (256, 136, 64)), (SWAPPED, (70, 136, 72)),
    ],
    ids=["whole", "ragged", "two warpgroups", "swapped"],
)  # fmt: skip
@pytest.mark.parametrize("kind", [BF16, BF16_F32, F16_OUT], ids=str)
def test_in_place_keeps_the_way_out(kind: Kind, subs: dict[Any, int], size: tuple[int, int, int], seed: int) -> None:
    compiled = check(hopper.gemm(kind, epilogue="in place"), kind, operands(kind, size, seed), subs=subs)
    assert strategy(compiled).outlets == 1 and "results" not in strategy(compiled).why
    assert LATE in record(compiled)


SCHEDULES = {
    "split": wd.Schedule(split_k=2),
    "dealt": wd.Schedule(stream_k=3),
    "persistent": wd.Schedule(persistent=True),
    "no roles": wd.Schedule(specialize=False),
    "one stage": wd.Schedule(stages=1),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("kind", [BF16, BF16_F32], ids=str)
def test_in_place_under_every_schedule(kind: Kind, name: str) -> None:
    """Behind sums of parts only who comes last reads and stores; a workgroup's tiles are different ones."""
    kernel = hopper.gemm(kind, epilogue="in place", schedule=SCHEDULES[name])
    few = (3, 1, 1) if name == "persistent" else None
    compiled = check(kernel, kind, operands(kind, (200, 136, 136), 3), subs=STRAIGHT, grid=few)
    assert strategy(compiled).outlets >= 1


def test_two_teams_in_place() -> None:
    """One warpgroup stores over what it reads while the other's products run."""
    kernel = hopper.gemm(BF16, epilogue="in place", schedule=wd.Schedule(persistent=True, ping_pong=True))
    compiled = check(kernel, BF16, operands(BF16, (320, 136, 64), 5), subs=STRAIGHT, grid=(3, 1, 1))
    assert strategy(compiled).teams == 2 and strategy(compiled).outlets == 1


@pytest.mark.parametrize(("rows", "outlets"), [(128, 1), (67, 0)])
def test_rows_of_odd_length_stay_in_registers(rows: int, outlets: int) -> None:
    compiled = check(hopper.gemm(BF16, epilogue="in place"), BF16, operands(BF16, (128, rows, 64), 2), subs=STRAIGHT)
    assert strategy(compiled).outlets == outlets
    assert outlets or "because: results: strides of c are no multiples of 16 bytes" in record(compiled)


def written(form: str) -> Any:
    """Kernels that read what they write."""
    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1), wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM), wd.WaveConstraint(N, WN), wd.HardwareConstraint(threads_per_wave=128),
        ]
    )  # fmt: skip
    def kernel(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], c: wd.Memory[M, N, wd.f32],
        d: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        before = wd.read(c)

        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        if form == "two results":
            wd.write(loop + before, c)
            wd.write(loop - before, d)
        elif form == "read behind":
            wd.write(loop + before, c)
            wd.write(loop - wd.read(c), d)
        elif form == "kept":
            wd.write(loop, c)
            wd.write(before, d)
        elif form == "written twice":
            wd.write(loop + before, c)
            wd.write(loop - before, c)

    return kernel


FORMS = {
    "two results": ("", lambda x, c, d: (x + c, x - c)),
    "read behind": ("c is read behind the write", lambda x, c, d: (x + c, -c)),
    "kept": ("what is written is not computed element by element", lambda x, c, d: (x, c)),
    "written twice": ("more than one write beside this read changes c", lambda x, c, d: (x - c, d)),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_otherwise_is_read_before_any_store(form: str) -> None:
    """The loads of an array that stores change come late only where each store needs its own element's."""
    why, answer = FORMS[form]
    a, b = numbers((128, 64), wd.bf16, 1), numbers((64, 64), wd.bf16, 2)
    c, d = (numbers((128, 64), wd.f32, i) for i in (3, 4))
    want = answer(products.exact(a, b, BF16)[0], c.astype(np.float64), d.astype(np.float64))
    compiled = written(form).compile(a, b, c, d, target="sm_90a", subs=tiles(64, 64, 32, 64, 64))
    compiled.emulate(a, b, c, d)
    assert np.array_equal(c, want[0]) and np.array_equal(d, want[1])
    assert (why in record(compiled)) and ("results" in strategy(compiled).why) == bool(why)
    assert strategy(compiled).outlets == {"two results": 2, "written twice": 0, "kept": 0}.get(form, 1)


def test_a_loop_that_comes_back_to_its_tile() -> None:
    """Each trip adds to what the one before has stored: a bulk copy would not be waited for."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32),
            wd.TilingConstraint(P, 1), wd.HardwareConstraint(threads_per_wave=128),
        ]
    )  # fmt: skip
    def kernel(
        a: wd.Memory[M, K, wd.bf16], b: wd.Memory[N, K, wd.bf16], scales: wd.Memory[P, wd.f32],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        @wd.iterate(P)
        def outer():
            @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
            def loop(acc):
                return wd.mma(wd.read(a), wd.read(b), acc)

            wd.write(loop * wd.sum(wd.read(scales), dim=P) + wd.read(c), c)

    a, b = numbers((64, 64), wd.bf16, 1), numbers((64, 64), wd.bf16, 2)
    scales, c = np.float32([1, 2, -4]), numbers((64, 64), wd.f32, 3)
    want = c + products.exact(a, b, BF16)[0] * scales.sum()
    compiled = kernel.compile(a, b, scales, c, target="sm_90a")
    compiled.emulate(a, b, scales, c)
    assert np.array_equal(c, want)
    assert strategy(compiled).outlets == 0
    assert "c is read in every trip of the loop over P" in record(compiled)
