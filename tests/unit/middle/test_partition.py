"""Cutting dimensions over workgroups, waves and trips."""

from __future__ import annotations

import pytest
from wavedsl.ir.cuts.partition import cut
from wavedsl.ir.dataflow.constraints import resolve_constraints
from wavedsl.ir.errors import ConstraintError

import wavedsl as wd
from wavedsl.targets import get_target

M, N, K, H = wd.symbols("M N K H")


def partition(constraints, dims, target="gfx942"):
    @wd.wave(constraints)
    def kernel(a: wd.Memory[H, M, K, wd.f16], b: wd.Memory[H, N, K, wd.f16], c: wd.Memory[H, M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    chip = get_target(target)
    graph = kernel.trace()
    return cut(graph, resolve_constraints(graph, dims, max_waves=chip.max_waves), chip)


BASE = [wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 32, 1), wd.TilingConstraint(K, 16)]
BASE.append(wd.WorkgroupConstraint(H, 1, 2))
SIZES = {M: 100, N: 96, K: 40, H: 3}


def test_roles_tiles_and_trips():
    p = partition(BASE, SIZES)
    assert [(p.dims[d].role, p.dims[d].tile, p.dims[d].trips) for d in (M, N, K, H)] == [
        ("workgroup", 64, 2), ("workgroup", 32, 3), ("loop", 16, 3), ("index", 1, 3),
    ]  # fmt: skip
    assert p.dims[M].ragged and not p.dims[N].ragged and p.dims[K].ragged
    assert p.grid_axes() == [[M], [N], [H]]


def test_the_compiler_divides_what_the_user_left_open():
    p = partition(BASE, SIZES)
    assert p.waves == 4 and (p.dims[M].wave, p.dims[N].wave) == (16, 32)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize("m, n, waves", [(80, 80, (5, 1)), (112, 112, (7, 1)), (48, 80, (1, 5)), (96, 80, (6, 1))])
def test_tiles_of_an_odd_number_of_atoms_are_divided_too(m, n, waves, target):
    """One wave had all of them: on NVIDIA, 80 rows and columns were more registers than a thread has."""
    tiles = [wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), *BASE[2:]]
    p = partition(tiles, SIZES, target)
    assert (p.dims[M].waves, p.dims[N].waves) == waves


def test_wave_digits_are_mixed_radix_in_axis_order():
    p = partition([*BASE, wd.WaveConstraint(M, 16), wd.WaveConstraint(N, 16)], SIZES)
    assert p.waves == 8
    digits = []
    for wave in range(8):
        digits.append(tuple(wave // p.wave_radix(d)[0] % p.wave_radix(d)[1] for d in (M, N)))
    assert len(set(digits)) == 8 and digits[1] == (1, 0) and digits[4] == (0, 1)


def test_waves_per_block_fixes_the_division():
    p = partition([*BASE, wd.HardwareConstraint(waves_per_block=(1, 2))], SIZES)
    assert (p.dims[M].waves, p.dims[N].waves) == (1, 2)


def test_waves_per_block_that_does_not_divide_names_the_legal_counts():
    with pytest.raises(ConstraintError, match="3 waves along axis 1, which do not divide the tile of 32 elements of N"):
        partition([*BASE, wd.HardwareConstraint(waves_per_block=(1, 3))], SIZES)


@pytest.mark.parametrize("asked", [(4, 2), (4, 2, 1)])
def test_four_warps_that_become_a_warpgroup_were_asked_for_as_four(asked):
    @wd.wave([
        wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32),
        wd.WaveConstraint(M, 16), wd.HardwareConstraint(waves_per_block=asked),
    ])  # fmt: skip
    def product(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    compiled = product.compile(target="sm_90a", subs={M: 64, N: 64, K: 64})
    assert compiled.block[0] == 3 * 128 and "wgmma" in compiled.asm  # two that multiply, one that copies


def test_lanes_per_wave_is_a_requirement():
    with pytest.raises(ConstraintError, match="a wave of gfx942 has 64 lanes"):
        partition([*BASE, wd.HardwareConstraint(threads_per_wave=32)], SIZES)
    assert partition([*BASE, wd.HardwareConstraint(threads_per_wave=32)], SIZES, "sm_80").waves == 4


def test_a_run_time_dimension_needs_a_tile():
    from wavedsl.ir.symbols import DYNAMIC

    bare = [c for c in BASE if getattr(c, "dim", None) != N]
    with pytest.raises(ConstraintError, match="N is a run-time argument and has neither a workgroup nor a loop tile"):
        partition(bare, {**SIZES, N: DYNAMIC})
