"""The chips as the middle sees them: occupancy, atoms, what replaces a dtype."""

from __future__ import annotations

import pytest
from wavedsl.codegen.amdgcn import TARGETS, get_target
from wavedsl.codegen.amdgcn.target import register_limit
from wavedsl.ir.errors import ConstraintError


@pytest.mark.parametrize(
    ("registers", "waves"),
    [(1, 8), (64, 8), (65, 7), (72, 7), (80, 6), (96, 5), (97, 4), (128, 4), (168, 3), (256, 2), (257, 1), (512, 1)],
)
def test_occupancy_by_registers(registers: int, waves: int) -> None:
    """The table of the fact sheet (it agrees with the compilers' "; Occupancy" comments)."""
    for target in map(get_target, TARGETS):
        assert target.occupancy(registers, 0, 256) == waves


def test_occupancy_by_shared_memory_and_workgroup() -> None:
    gfx942, gfx950 = get_target("gfx942"), get_target("gfx950")
    assert gfx942.occupancy(32, 65536, 256) == 1
    assert gfx950.occupancy(32, 65536, 256) == 2
    assert gfx942.occupancy(32, 16384, 256) == 4
    assert gfx942.occupancy(32, 65536, 1024) == 4
    assert gfx942.occupancy(129, 0, 1024) == 0
    assert gfx942.occupancy(128, 0, 1024) == 4
    assert gfx942.occupancy(32, 70000, 64) == 0


@pytest.mark.parametrize(
    ("threads", "limit"), [(64, 512), (256, 512), (320, 256), (512, 256), (768, 168), (1024, 128)]
)
def test_registers_that_a_workgroup_leaves_to_a_wave(threads: int, limit: int) -> None:
    assert register_limit(threads) == limit


@pytest.mark.parametrize("chip", TARGETS)
def test_atoms_are_consistent(chip: str) -> None:
    """Layouts cover the matrices bijectively, words hold the elements, names are unique."""
    target = get_target(chip)
    names = [a.name for a in target.mma_atoms]
    assert len(set(names)) == len(names)
    assert {"F32_16x16x16_F16", "F32_32x32x8_BF16", "F64_16x16x4_F64", "F32_16x16x4_F32"} <= set(names)
    for a in target.mma_atoms:
        for layout, words, dtype, size in (
            (a.a, a.a_words, a.a_dtype, a.m * a.k),
            (a.b, a.b_words, a.b_dtype, a.k * a.n),
            (a.d, a.d_words, a.acc_dtype, a.m * a.n),
        ):
            bits = [bit for part in layout.values() for bit in part.split()]
            assert len(set(bits)) == len(bits) == (size * a.blocks).bit_length() - 1
            assert 64 * words * 32 == size * a.blocks * dtype.bits
        assert a.latency > a.cycles >= 8


def test_dtypes_that_a_chip_lacks() -> None:
    assert get_target("gfx942").instead["f8e4m3"] == "f8e4m3fnuz"
    assert get_target("gfx950").instead["f8e5m2fnuz"] == "f8e5m2"
    assert get_target("gfx90a").instead["f8e4m3"] == "f16"
    for target in map(get_target, TARGETS):
        assert not target.dtypes & set(target.instead)
    with pytest.raises(ConstraintError) as failure:
        get_target("gfx1100")
    assert "gfx942" in failure.value.hint
