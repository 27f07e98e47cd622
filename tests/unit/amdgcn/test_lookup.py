"""Rows are made when they are looked up: a lookup gives what the whole table has, and no name twice."""

from __future__ import annotations

import pytest
from wavedsl.codegen.amdgcn import isa


@pytest.mark.parametrize("chip", isa.TARGETS)
def test_every_row_is_found_by_its_mnemonic(chip: str) -> None:
    rows = list(isa.all_rows(chip))
    assert len(rows) > 1000
    assert len({row.mnemonic for row in rows}) == len(rows)
    assert all(isa.lookup(row.mnemonic, chip) is row for row in rows)


def test_a_suffix_is_derived_or_part_of_the_name() -> None:
    assert isa.lookup("v_add_f32_dpp", "gfx942").base == "v_add_f32"
    assert isa.lookup("v_cvt_f32_fp8_sdwa", "gfx942").encoding == "SDWA"


def test_what_is_not_there() -> None:
    with pytest.raises(KeyError, match="not an AMDGCN instruction"):
        isa.lookup("v_add_f33_e32", "gfx942")
    with pytest.raises(KeyError, match=r"v_mov_b64 does not exist on gfx90a \(only on gfx942, gfx950\)"):
        isa.lookup("v_mov_b64", "gfx90a")


def test_two_rows_of_one_name_on_one_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "_BUILDERS", dict(isa._BUILDERS))
    for _ in range(2):
        isa.inst("s_twice", "d:s <- a:s", isa.Unit.SALU, "SOP1", semantics=lambda a: a)
    with pytest.raises(ValueError, match="s_twice is registered twice"):
        isa.lookup("s_twice", "gfx942")
