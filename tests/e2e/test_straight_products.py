"""Products that Python unrolls, each of reads of its own: filters of which every place is a product, parts of sums.

Straight code had shared memory of its own for every tile, and registers of its own for every load: a filter's nine
places left room for one workgroup on a compute unit. Tiles take each other's places, and what a product multiplies
comes a few products ahead, where a unit is done earlier so. Shared memory is what the emulator watches: a reader that
has not been waited for is a race.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from families import Case, both_tests, normal, on_chip, whole, wide
from in_window import in_this_window
from wavedsl.ir import attempts
from wavedsl.ir.kernel.straight_clocks import straight_clocks
from wavedsl.ir.kernel.unit_clocks import unit_clocks
from wavedsl.ir.regions import windows
from wavedsl.ir.schedule.taps import Window
from wavedsl.runtime.emulator.cycle_chips import model_of
from wavedsl.runtime.on_emulator import sample

import wavedsl as wd
from wavedsl.targets import get_target

B, C, E, H, I, J, K, M, N, T, W, X, Y = wd.symbols("B C E H I J K M N T W X Y")
F16, F32 = wd.f16, wd.f32
CHIPS = ("gfx942", "gfx950", "sm_80")


def filters(pixels: int, outputs: int) -> Any:
    """A 3 x 3 filter, all channels of a place in one product."""

    @wd.wave(
        [wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(Y, 1, 1), wd.WorkgroupConstraint(X, pixels, 0),
         wd.WorkgroupConstraint(E, outputs, 0)],
        subs={I: 3, J: 3},
    )  # fmt: skip
    def convolution(x: wd.Memory[B, H, W, C, F16], w: wd.Memory[E, I, J, C, F16], y: wd.Memory[B, Y, X, E, F16]):
        total = wd.Register[X, E, F32](0.0)
        for i in range(3):
            for j in range(3):
                there = wd.IndexMapping((X, C), {B: B, H: Y + i - 1, W: X + j - 1, C: C})
                total = wd.mma(wd.read(x, mapping=there), wd.read(w[:, i, j, :]), total)
        wd.write(wd.cast(total, F16), y)

    return convolution


def filter_case(b: int, h: int, w: int, c: int, e: int) -> Case:
    x, kernel = whole(b, h, w, c), whole(e, 3, 3, c, seed=1)
    padded = np.pad(wide(x), ((0, 0), (1, 1), (1, 1), (0, 0)))
    each = [padded[:, i : i + h, j : j + w] @ wide(kernel)[:, i, j].T for i in range(3) for j in range(3)]
    return Case([x, kernel, np.zeros((b, h, w, e), np.float16)], {2: np.sum(each, axis=0)}, {}, 1e-3, (B,))


def looped(pixels: int, outputs: int, channels: int, sums: bool = False) -> Any:
    """The same filter in a loop over channels, so many to a trip. `sums`: of the odd ones are added to each result."""

    @wd.wave([*filters(pixels, outputs).constraints, wd.TilingConstraint(C, channels)], subs={I: 3, J: 3})
    def convolution(x: wd.Memory[B, H, W, C, F16], w: wd.Memory[E, I, J, C, F16], y: wd.Memory[B, Y, X, E, F16]):
        @wd.iterate(C, init_args=[wd.Register[X, E, F32](0.0), *([wd.Register[X, F32](0.0)] if sums else [])])
        def trip(total, *odd):
            for i in range(3):
                for j in range(3):
                    pixel = wd.read(x, mapping=wd.IndexMapping((X, C), {B: B, H: Y + i - 1, W: X + j - 1, C: C}))
                    total = wd.mma(pixel, wd.read(w[:, i, j, :]), total)
                    odd = [n + wd.sum(wd.cast(wd.where(wd.index(C) % 2 == 1, pixel, 0), F32), dim=C) for n in odd]
            return (total, *odd) if odd else total

        wd.write(wd.cast(trip[0] + trip[1] if sums else trip, F16), y)

    return convolution


def looped_case(b: int, h: int, w: int, c: int, e: int) -> Case:
    case = filter_case(b, h, w, c, e)
    padded = np.pad(wide(case.arguments[0])[..., 1::2].sum(-1), ((0, 0), (1, 1), (1, 1)))
    odd = sum(padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3))
    return Case(case.arguments, {2: case.wants[2] + odd[..., None]}, {}, 1e-3, (B,))


def parts(rows: int, columns: int, count: int) -> Any:
    """So many products that go on in one another's sums, and a bias behind them."""

    @wd.wave([wd.WorkgroupConstraint(M, rows, 0), wd.WorkgroupConstraint(N, columns, 1)])
    def kernel(
        a: wd.Memory[T, M, K, F16], b: wd.Memory[T, N, K, F16], bias: wd.Memory[N, F32], y: wd.Memory[M, N, F32]
    ):
        total = wd.Register[M, N, F32](0.0)
        for t in range(count):
            total = wd.mma(wd.read(a[t, :, :]), wd.read(b[t, :, :]), total)
        wd.write(total + wd.broadcast(wd.read(bias), (M, N)), y)

    return kernel


def parts_case(t: int, m: int, n: int, k: int) -> Case:
    a, b, bias = whole(t, m, k), whole(t, n, k, seed=1), whole(n, seed=2, dtype=np.float32)
    want = np.einsum("tmk,tnk->mn", wide(a), wide(b)) + bias
    return Case([a, b, bias, np.zeros((m, n), np.float32)], {3: want}, {}, 0, (M,))


@wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1)])
def two_sums(a: wd.Memory[T, M, K, F16], b: wd.Memory[T, N, K, F16], y: wd.Memory[M, N, F32], z: wd.Memory[M, N, F32]):
    """Each of A's parts is multiplied twice: by B's of its own number, and by the one before, which is read for the
    last time then. The first sum scales what the second one takes."""
    first, second = wd.Register[M, N, F32](0.0), wd.Register[M, N, F32](0.0)
    before = wd.read(b[0, :, :])
    for t in range(1, 9):
        part, own = wd.read(a[t, :, :]), wd.read(b[t, :, :])
        first = wd.mma(part, own, first)
        second = wd.mma(part, before, second)
        before = own
    wd.write(first, y)
    wd.write(second + first * 0.5, z)


def two_sums_case(t: int, m: int, n: int, k: int) -> Case:
    a, b = whole(t, m, k), whole(t, n, k, seed=1)
    y, z = (np.einsum("tmk,tnk->mn", wide(a[1:]), wide(other)) for other in (b[1:], b[:-1]))
    zeros = np.zeros((m, n), np.float32)
    return Case([a, b, zeros, zeros.copy()], {2: y, 3: z + y / 2}, {}, 0, (M,))


KERNELS = {
    "filter": (filters(32, 64), filter_case, ((1, 2, 40, 64, 64), (2, 2, 64, 64, 64))),
    "parts": (parts(64, 64, 9), parts_case, ((9, 100, 64, 64), (9, 128, 128, 64))),
    "two sums": (two_sums, two_sums_case, ((9, 64, 64, 48), (9, 128, 64, 64))),
}
LOOPED = {"looped": (looped(32, 64, 32, sums=True), looped_case, ((1, 2, 40, 32, 64), (1, 2, 40, 64, 64)))}
test_against_numpy, test_the_evaluator_agrees = both_tests(KERNELS)
test_loops_against_numpy, test_the_evaluator_agrees_on_loops = both_tests(LOOPED)


def after(compiled: Any) -> int:
    """How many tiles take the places of others."""
    return sum(bool(b.after) for b in compiled.decisions.buffers)


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("name", KERNELS)
def test_tiles_take_each_others_places(name: str, target: str) -> None:
    kernel, made, sizes = KERNELS[name]
    case = made(*sizes[-1])
    # How many workgroups there are only a launch says, so there may be enough to fill what is free of a unit.
    compiled = on_chip(kernel, case, target, case.dynamic)
    tiles = sum(b.bytes for b in compiled.decisions.buffers)
    assert after(compiled) >= 3
    assert compiled.shared_bytes < 0.6 * tiles


@pytest.mark.parametrize("target", CHIPS)
def test_a_single_round_of_workgroups_has_all_tiles_at_once(target: str) -> None:
    """Nobody waits for room, so all loads are on their way together."""
    kernel, made, sizes = KERNELS["parts"]
    assert after(on_chip(kernel, made(*sizes[-1]), target)) == 0


@pytest.mark.parametrize("target", CHIPS)
def test_few_products_stay_as_they_are(target: str) -> None:
    case = parts_case(2, 128, 128, 64)
    assert after(on_chip(parts(64, 64, 2), case, target, case.dynamic)) == 0


@pytest.mark.parametrize("target", CHIPS)
def test_who_takes_a_place_too_early_is_found(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiles that are taken for read a product early: the next one's copies come while waves read there."""
    places, barriers = windows._places, windows.place_barriers

    def short(base: int, tiles: Any, taken: Any) -> Any:
        spans = {name: (first, last - 1) for name, (first, last) in taken.spans.items()}
        return places(base, tiles, replace(taken, spans=spans))

    monkeypatch.setattr(windows, "_places", short)
    monkeypatch.setattr(windows, "place_barriers", lambda *args, over, **rest: barriers(*args, **rest))
    case = parts_case(9, 128, 128, 64)
    kernel = parts(64, 64, 9)
    with pytest.raises(wd.EmulationError, match=r"race|missing-wait"):
        on_chip(kernel, case, target, case.dynamic)
    case = filter_case(2, 4, 128, 128, 64)
    with pytest.raises(wd.EmulationError, match=r"race|missing-wait"):
        on_chip(looped(32, 64, 32), case, target, case.dynamic)


def filter_at_size() -> tuple[Any, list[Any]]:
    x = normal(4, 128, 128, 64, dtype=np.float16), normal(64, 3, 3, 64, seed=1, dtype=np.float16)
    return filters(64, 64), [*x, np.zeros((4, 128, 128, 64), np.float16)]


def parts_at_size() -> tuple[Any, list[Any]]:
    a, b = normal(9, 8192, 64, dtype=np.float16), normal(9, 512, 64, seed=1, dtype=np.float16)
    return parts(64, 64, 9), [a, b, normal(512), np.zeros((8192, 512), np.float32)]


SIZES = {
    "filter": (filter_at_size, {"gfx942": 3.2, "gfx950": 4.1, "sm_80": 3.5}),
    "parts": (parts_at_size, {"gfx942": 2.5, "gfx950": 2.0, "sm_80": 2.6}),
}
"""What a launch is given, and its clocks by the model in those that memory takes for the bytes. With all loads first:
filter 5.4, 4.5, 4.9; parts 4.5, 3.2, 3.9."""


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("name", SIZES)
def test_clocks_beside_memorys(name: str, target: str) -> None:
    (make, most), chip = SIZES[name], model_of(target)
    kernel, arguments = make()
    compiled = kernel.compile(*arguments, target=target)
    moved = sum(a.nbytes for a in arguments) / chip.dram_rate
    assert sample(compiled, arguments).replay().cycles / moved < most[target]


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("name", SIZES)
def test_ways_that_cannot_win_are_not_lowered(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever nobody waits for takes no order more, so none is chosen that comes without."""
    kernel, arguments = SIZES[name][0]()
    chosen = kernel.compile(*arguments, target=target).asm
    clocks = attempts.straight_clocks
    monkeypatch.setattr(attempts, "straight_clocks", lambda *a: clocks(*a) if len(a) < 5 or a[4] is None else 0.0)
    assert kernel.compile(*arguments, target=target).asm == chosen


@pytest.mark.parametrize("target", CHIPS)
def test_a_single_round_of_workgroups_is_lowered_once(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a launch decides is tried in windows: without gathers there are two, and one that reads first."""
    lowered, lower = [], attempts.lower
    monkeypatch.setattr(attempts, "lower", lambda *a, **k: lowered.append(k["window"]) or lower(*a, **k))
    kernel, case = parts(64, 64, 9), parts_case(9, 128, 128, 64)
    kernel.compile(*case.arguments, target=target)
    assert len(lowered) == 1
    lowered.clear()
    kernel.compile(*case.arguments, target=target, dynamic=list(case.dynamic))
    assert 3 <= len(lowered) <= 4 and len({*lowered}) == len(lowered)


@pytest.mark.parametrize("target", CHIPS)
def test_what_orders_are_compared_by(target: str) -> None:
    """Workgroups that wait fill each other's gaps until a unit, or memory, has no more to give."""
    kernel, arguments = parts_at_size()
    compiled, chip = kernel.compile(*arguments, target=target), get_target(target)
    code = compiled.kernel_ir
    clocks = [straight_clocks(code, chip, resident) for resident in (1, 2, 4, 32)]
    assert clocks == sorted(clocks, reverse=True) and clocks[0] > 1.3 * clocks[2]
    assert clocks[3] == pytest.approx(unit_clocks(code, chip, 32), rel=0.02)
    # A workgroup's share of the arrays; it asks for no more than its own tiles.
    own = 9 * 2 * 64 * 64 * 2 + 64 * 64 * 4
    asked = straight_clocks(code, chip, 32, 1e12) * chip.memory_rate / chip.units
    assert own <= asked < 1.3 * own


def without_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.Attempts, "may_have_windows", lambda *_: False)


@pytest.mark.parametrize("target", CHIPS)
def test_a_loop_of_one_trip_is_straight_code(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the model 64 channels in one trip take 22744, 16344 and 42751 clocks as a loop, 9778, 8650 and 26878 so."""
    case = filter_case(16, 16, 128, 64, 64)
    compiled = looped(32, 64, 64).compile(*case.arguments, target=target)
    assert after(compiled)
    clocks = sample(compiled, case.arguments).replay().cycles
    without_windows(monkeypatch)
    kept = looped(32, 64, 64).compile(*case.arguments, target=target)
    assert not after(kept)
    assert clocks < 0.7 * sample(kept, case.arguments).replay().cycles


TRIPS = {
    "gfx942": (32, 64, 32, 0.8),
    "gfx950": (64, 64, 64, 0.2),
    "sm_80": (64, 64, 64, 0.7),
}
"""Tiles, and clocks of a loop's trips that hand places on as part of those of trips that have all tiles at once: by the
model 98618 for 131666, 40820 for 286221, and 144495 for 228103."""


@pytest.mark.parametrize("target", CHIPS)
def test_trips_hand_places_on(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, outputs, channels, most = TRIPS[target]
    case = filter_case(16, 32, 128, 128, 128)
    compiled = looped(pixels, outputs, channels).compile(*case.arguments, target=target)
    assert after(compiled)
    clocks = sample(compiled, case.arguments).replay().cycles
    without_windows(monkeypatch)
    kept = looped(pixels, outputs, channels).compile(*case.arguments, target=target)
    assert clocks < most * sample(kept, case.arguments).replay().cycles


@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("window", [(1, 1), (2, 1), (3, 0), (2, 1, True), (2, 0, True, True)])
@pytest.mark.parametrize("channels", [16, 40, 64, 160])
def test_every_window_of_a_loop(
    channels: int, window: tuple[int, ...], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trip, a last one that is cut short, several; the sums of odd channels make other uses of what is read."""
    in_this_window(monkeypatch, Window(*window))
    for sums in (False, True):
        case = (looped_case if sums else filter_case)(1, 3, 70, channels, 64)
        compiled = on_chip(looped(32, 64, 16 if channels == 16 else 32, sums), case, target)
        assert after(compiled)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("channels", [64, 128])
def test_a_trip_without_room_for_its_tiles(channels: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine tiles of 128 x 64 are 144 KiB, shared memory has 64: the loop was refused."""
    case = filter_case(1, 2, 70, channels, 128)
    on_chip(looped(64, 128, 64), case, target)
    without_windows(monkeypatch)
    with pytest.raises(wd.ConstraintError, match="none left by other tiles"):
        looped(64, 128, 64).compile(*case.arguments, target=target)


@pytest.mark.parametrize("target", CHIPS)
def test_trips_that_only_a_launch_counts(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel for one trip, none that is whole, and several."""
    in_this_window(monkeypatch, Window(2, 1))
    for channels in (160, 32, 8):
        case = filter_case(1, 3, 70, channels, 64)
        assert after(on_chip(looped(32, 64, 32), case, target, (B, C)))
