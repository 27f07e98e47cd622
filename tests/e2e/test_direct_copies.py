"""Tiles copied to shared memory without passing through registers: exact on all AMD chips, refused with the reason,
checked by the emulator, and chosen where the counted cost says so."""

from __future__ import annotations

import re
from typing import Any

import hopper
import ml_dtypes
import numpy as np
import products
import pytest
from products import BF16, F16, F32, I8, TILE, K, Kind, M, N, gemm, operands
from wavedsl.runtime.emulator import run

import wavedsl as wd

AMD = products.AMD
DIRECT = wd.Schedule(direct_to_shared=True)
SQUARE = (64, 64, 32, 32, 32)


def subs(tile: tuple[int, ...]) -> dict[Any, int]:
    return dict(zip(TILE, tile))


def multiply(
    target: str, tile: tuple[int, ...], sizes: tuple[int, int, int], kind: Kind = F16, b_order: str = "NK",
    padding: int = 0, **options: Any,
) -> wd.CompiledKernel:  # fmt: skip
    """Compile for these sizes, emulate with all checks, expect the exact product. `padding`: elements behind each row
    of the operands."""
    a, b, c = operands(kind, *sizes, b_order=b_order)
    if padding:
        wide = [np.zeros((x.shape[0], x.shape[1] + padding), x.dtype) for x in (a, b)]
        for w, x in zip(wide, (a, b)):
            w[:, : x.shape[1]] = x
        a, b = (w[:, : x.shape[1]] for w, x in zip(wide, (a, b)))
    options.setdefault("schedule", DIRECT)
    compiled = gemm(kind, b_order=b_order, **options).compile(a, b, c, target=target, subs=subs(tile))
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, kind, b_order)[0], kind)
    return compiled


def counts(compiled: wd.CompiledKernel) -> tuple[int, int]:
    """(direct copies, stores to shared memory) of a text."""
    return len(re.findall(r"buffer_load_\w+ .* lds$", compiled.asm, re.M)), compiled.asm.count("ds_write")


CASES = [
    (SQUARE, (128, 64, 128), F16, "NK", 0),
    (SQUARE, (70, 50, 104), F16, "NK", 0),
    (SQUARE, (64, 64, 32), F16, "NK", 0),
    (SQUARE, (64, 64, 96), F16, "NK", 2),
    ((32, 32, 64, 16, 16), (40, 33, 200), F16, "NK", 8),
    ((64, 64, 64, 32, 64), (64, 128, 256), F16, "NK", 0),
    ((64, 64, 128, 32, 32), (64, 64, 384), F16, "NK", 0),
    ((128, 64, 32, 32, 32), (128, 64, 96), F16, "NK", 0),
    ((96, 64, 32, 48, 32), (96, 64, 64), F16, "NK", 0),
    (SQUARE, (64, 128, 96), F16, "KN", 0),
    ((64, 64, 64, 32, 32), (66, 64, 100), F16, "KN", 0),
    ((64, 128, 32, 32, 32), (64, 128, 96), F32, "KN", 0),
    ((64, 64, 64, 32, 32), (64, 64, 192), I8, "NK", 0),
]


@pytest.mark.parametrize(("tile", "sizes", "kind", "order", "padding"), CASES, ids=str)
@pytest.mark.parametrize("target", AMD)
def test_products_are_exact(
    target: str, tile: tuple[int, ...], sizes: tuple[int, int, int], kind: Kind, order: str, padding: int
) -> None:
    copies, stores = counts(multiply(target, tile, sizes, kind, order, padding))
    assert copies and not stores


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("target", AMD)
def test_any_number_of_stages(target: str, stages: int) -> None:
    schedule = wd.Schedule(direct_to_shared=True, stages=stages)
    for sizes in ((64, 64, 320), (130, 70, 40)):
        copies, stores = counts(multiply(target, SQUARE, sizes, schedule=schedule))
        assert copies and not stores


@pytest.mark.parametrize("order", ["NK", "KN"])
@pytest.mark.parametrize("trips", [2, 3, 4, 5, 7, 16, 17])
def test_nothing_is_copied_for_nobody(trips: int, order: str) -> None:
    """Where LDS is what a trip waits for, its last trips copy nothing: each of 8 waves copies 4 pieces of a tile."""
    schedule = wd.Schedule(direct_to_shared=True, ping_pong=False)
    a, b, c = operands(F16, 128, 128, 64 * trips, b_order=order)
    kernel = gemm(F16, b_order=order, schedule=schedule)
    report = kernel.compile(a, b, c, target="gfx950", subs=subs((128, 128, 64, 64, 32))).emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, F16, order)[0], F16)
    assert report.instructions["buffer_load_dwordx4"] == 8 * 4 * trips


@pytest.mark.parametrize("target", AMD)
def test_sizes_known_at_run_time(target: str) -> None:
    kernel = gemm(F32, schedule=DIRECT, dynamic=(M, N, K))
    a, b, c = operands(F32, 64, 62, 52)
    compiled = kernel.compile(a, b, c, target=target, subs=subs(SQUARE))
    assert counts(compiled)[0] and not counts(compiled)[1]
    for sizes in ((64, 64, 64), (100, 70, 52), (3, 6, 32), (64, 64, 0)):
        a, b, c = operands(F32, *sizes)
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, F32, "NK")[0], F32)


def test_default_by_cost() -> None:
    """Direct where one trip's products take longer than its copies and copies take no more instructions. Without
    ping-pong, which adds barriers, and of one tile without parts of K."""
    alone = {"ping_pong": False, "split_k": 1}
    tile = (256, 256, 64, 64, 128)
    sizes = {M: 256, N: 256, K: 4096, **subs(tile)}
    kernel = gemm(BF16)
    loops = {}
    for schedule in (wd.Schedule(**alone), wd.Schedule(direct_to_shared=False, **alone)):
        compiled = gemm(BF16, schedule=schedule).compile(target="gfx950", subs=sizes)
        loop = compiled.resources.loops[0]
        others = sum(n for what, n in loop.instructions.items() if what != "mfma") / loop.steps
        loops[schedule.direct_to_shared is None] = others, compiled.resources.registers, counts(compiled)
    assert loops[True][0] < loops[False][0]
    assert loops[True][1] < loops[False][1]
    assert loops[True][2][1] == 0 == loops[False][2][0]
    assert not counts(kernel.compile(target="gfx942", subs=sizes))[0]


@pytest.mark.parametrize("target", AMD)
def test_a_missing_wait_is_found(target: str) -> None:
    a, b, c = operands(F16, 64, 64, 128)
    kernel = gemm(F16, schedule=DIRECT)
    compiled = kernel.compile(a, b, c, target=target, subs=subs(SQUARE))
    wait = re.compile(r"^\ts_waitcnt\s+vmcnt\(\d+\).*\n(?=(?:.*\n){0,3}\ts_barrier)", re.M)
    text, removed = wait.subn("", compiled.asm)
    assert removed
    report = run(
        text, target=target, grid=compiled.grid, block=compiled.block, args=[a, b, c], checks="report"
    )  # fmt: skip
    assert {"missing-wait", "race"} & {f.kind for f in report.findings}


def test_wider_copies_on_gfx950_only() -> None:
    for target, width in (("gfx90a", "dword"), ("gfx942", "dword"), ("gfx950", "dwordx4")):
        compiled = gemm(F16, schedule=DIRECT).compile(target=target, subs={M: 64, N: 64, K: 256, **subs(SQUARE)})
        assert set(re.findall(r"buffer_load_(\w+) .* lds$", compiled.asm, re.M)) == {width}


@pytest.mark.parametrize(
    ("tile", "sizes", "order", "padding", "reason"),
    [
        (SQUARE, (64, 64, 33), "NK", 0, "2 bytes lie together and aligned"),
        ((96, 96, 32, 32, 32), (96, 96, 64), "NK", 0, "9 waves copy"),
    ],
)  # fmt: skip
def test_refused_with_the_reason(
    tile: tuple[int, ...], sizes: tuple[int, int, int], order: str, padding: int, reason: str
) -> None:
    with pytest.raises(wd.ConstraintError, match=reason) as caught:
        multiply("gfx942", tile, sizes, F16, order, padding)
    assert "direct_to_shared=True" in str(caught.value) and caught.value.location is not None


def test_not_on_nvidia_by_request() -> None:
    """`direct_to_shared=False` copies through registers where cp.async would be taken, True takes it."""
    for wanted in (True, False):
        compiled = gemm(F16, schedule=wd.Schedule(direct_to_shared=wanted)).compile(
            target="sm_80", subs={M: 64, N: 64, K: 128, **subs(SQUARE)}
        )
        assert ("cp.async" in compiled.asm) is wanted


def test_bulk_copies_of_hopper_are_direct_ones() -> None:
    """Forbidden, a warpgroup's operands go through registers, and the numbers are the same."""
    for wanted in (True, False):
        kernel = hopper.gemm(BF16, schedule=wd.Schedule(direct_to_shared=wanted))
        a, b, c = operands(BF16, 128, 128, 128)
        compiled = kernel.compile(a, b, c, target="sm_90a", subs=hopper.tiles(128, 128, 64, 64, 128))
        assert "wgmma" in compiled.asm and ("cp.async" in compiled.asm) is wanted
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, BF16, "NK")[0], BF16)


@pytest.mark.parametrize("target", AMD)
def test_runs_that_flip_the_bits_of_lanes(target: str) -> None:
    """A tile that is contracted along its slow dimension: its swizzle flips rows within a run by the run's number."""
    D = wd.sym.D

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.TilingConstraint(N, 16)], schedule=wd.Schedule(direct_to_shared=True)
    )
    def gram(a: wd.Memory[D, N, wd.bf16], out: wd.Memory[M, D, wd.f32]):
        @wd.iterate(N, init_args=[wd.Register[M, D, wd.f32](0.0)])
        def loop(acc):
            x = wd.read(a)
            return wd.mma(wd.cast(wd.mma(wd.Register[D, M, wd.bf16](1.0), x), wd.bf16), x, acc)

        wd.write(loop, out)

    for m, d, n in ((1, 17, 2), (32, 32, 16), (4, 17, 6)):
        a = np.random.default_rng(d).integers(-2, 3, (d, n)).astype(ml_dtypes.bfloat16)
        out = np.full((m, d), 9, np.float32)
        gram.compile(a, out, target=target).emulate(a, out)
        exact = a.astype(np.float32)
        np.testing.assert_array_equal(out, np.ones((m, d)) @ exact @ exact.T)


@pytest.mark.parametrize("tile", [(32, 128, 128, 16, 64), (16, 64, 128, 16, 16), (16, 16, 128, 8, 8)], ids=str)
def test_runs_that_share_a_base_in_a_ring_of_three_slots(tile: tuple[int, ...]) -> None:
    """The slot of a trip is a remainder of three, whose terms stand apart in the sum that the address is: that none of
    them is negative must not get lost, or the verifier takes the immediates of later runs for too large."""
    schedule = wd.Schedule(direct_to_shared=True, stages=3)
    compiled = multiply("gfx950", tile, (2 * tile[0], tile[1], 512), schedule=schedule)
    assert counts(compiled)[0]


@pytest.mark.parametrize("target", AMD)
def test_strides_that_the_launch_brings(target: str) -> None:
    """K lies across memory, at a stride that is known at run time only, and no lane's bits move along it."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 128, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)],
        schedule=DIRECT, dynamic=(M, N),
    )  # fmt: skip
    def across(
        a: wd.Memory[K, M, wd.SHARED, wd.f16], b: wd.Memory[K, N, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):  # fmt: skip
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b = products.numbers((64, 256), wd.f16, 1), products.numbers((64, 64), wd.f16, 2)
    c = np.full((256, 64), np.nan, np.float32)
    compiled = across.compile(a, b, c, target=target)
    assert counts(compiled)[0] > 0
    compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, a.astype(np.float32).T @ b.astype(np.float32))
