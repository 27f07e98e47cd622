"""NVIDIA targets: limits against published tables, atoms, phases, occupancy."""

from __future__ import annotations

import pytest
from wavedsl.codegen.ptx.target import TARGETS, target
from wavedsl.ir.errors import ConstraintError


def test_unknown_target_lists_the_known() -> None:
    with pytest.raises(ConstraintError, match="sm_75") as error:
        target("sm_75")
    assert "sm_80" in error.value.hint and "sm_90a" in error.value.hint


@pytest.mark.parametrize(
    ("chip", "registers", "shared", "threads", "warps"),
    [
        # The CUDA occupancy tables: 65536 registers, granule 256 per warp, 64 or 48 warps, 32, 24 or 16 workgroups.
        ("sm_80", 32, 0, 1024, 64),
        ("sm_80", 33, 0, 1024, 32),
        ("sm_80", 64, 0, 256, 32),
        ("sm_80", 255, 0, 128, 8),
        ("sm_80", 168, 0, 128, 12),
        ("sm_80", 32, 0, 32, 32),
        ("sm_80", 32, 48 * 1024, 128, 12),
        ("sm_80", 32, 163 * 1024, 128, 4),
        ("sm_80", 32, 164 * 1024, 128, 0),
        ("sm_80", 128, 0, 1024, 0),
        ("sm_89", 40, 0, 256, 48),
        ("sm_86", 32, 0, 32, 16),
        ("sm_90a", 168, 200 * 1024, 384, 12),
    ],
)
def test_occupancy(chip: str, registers: int, shared: int, threads: int, warps: int) -> None:
    assert TARGETS[chip].occupancy(registers, shared, threads) == warps


def test_a_phase_moves_128_bytes() -> None:
    for chip in TARGETS.values():
        for (_, bytes_), hypotheses in chip.phases.items():
            for basis in hypotheses:
                assert (1 << len(basis)) * max(bytes_, 4) == 128


def test_every_memory_cost_the_middle_may_ask_for_is_there() -> None:
    for chip in TARGETS.values():
        for kind in ("load.global", "store.global", "load.shared", "store.shared"):
            for bytes_ in (1, 2, 4, 8, 16):
                assert chip.cost(kind, bytes_).cycles > 0
        for bytes_ in chip.copy_async:
            assert chip.cost("copy.async", bytes_).latency > chip.cost("load.shared", 4).latency
        for kind in ("valu", "salu", "barrier"):
            assert chip.cost(kind).cycles > 0


def test_dtypes_and_what_stands_in_for_missing_ones() -> None:
    assert TARGETS["sm_80"].instead["f8e4m3"] == "f16"
    assert TARGETS["sm_90a"].instead["f8e4m3fnuz"] == "f8e4m3"
    for chip in TARGETS.values():
        assert not chip.dtypes & set(chip.instead)
        assert set(chip.instead.values()) <= chip.dtypes


def test_matrix_fragments_are_bijections() -> None:
    for chip in TARGETS.values():
        for atom in chip.mma_atoms:
            for layout, size in ((atom.a, atom.m * atom.k), (atom.b, atom.k * atom.n), (atom.d, atom.m * atom.n)):
                bits = [b for text in layout.values() for b in text.split()]
                assert len(bits) == len(set(bits)) and 1 << len(bits) == size
                assert {b for b in bits if b[0] == "l"} == {f"l{i}" for i in range(5)}
