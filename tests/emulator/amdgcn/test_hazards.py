"""Wait states against what LLVM's hazard recogniser inserts (tests/data/cdna_hazards.txt, measured with llc 22)."""

from __future__ import annotations

import pytest
from hazard_pairs import A16, CASES, DIFFERENT, MEASURED, READ, STORE, STRICTER, WRITE, make, v
from wavedsl.codegen.amdgcn import hazard_rules
from wavedsl.codegen.amdgcn.footprint import Footprint
from wavedsl.codegen.amdgcn.isa import M0, OFF, TARGETS, Reg, all_rows


@pytest.mark.parametrize("what,states", [m for m in MEASURED if m[0] not in DIFFERENT])
def test_equal_to_llvm(what, states):
    producer, consumer = CASES[what]
    for target, want in zip(TARGETS, STRICTER.get(what, states)):
        if (what.startswith("MFMA 16x16x32_f16") and target != "gfx950") or ("permlane" in what and target != "gfx950"):
            continue  # the row does not exist there; llc accepts it in MIR
        assert hazard_rules.required(producer(target), consumer(target), target) == want, target


def test_every_measured_pair_is_tested():
    assert {w for w, _ in MEASURED} - DIFFERENT == set(CASES)


def test_other_rules():
    """Pairs that llc cannot express in MIR."""
    dot = make("v_dot2_f32_f16", v(0), v(1), v(2), v(3))
    assert hazard_rules.required(dot("gfx942"), READ("gfx942"), "gfx942") == 3
    chain = make("v_dot2_f32_f16", v(0), v(1), v(2), v(0))
    assert hazard_rules.required(chain("gfx942"), chain("gfx942"), "gfx942") == 0
    for target, first, memory in (("gfx90a", 11, 18), ("gfx942", 11, 18), ("gfx950", 19, 18)):
        f64 = make("v_mfma_f64_16x16x4f64", v(0, 8), v(32, 2), v(34, 2), v(0, 8))
        assert hazard_rules.required(f64(target), READ(target), target) == first
        assert hazard_rules.required(f64(target), STORE(target), target) == memory
    lds = make("global_load_lds_dword", v(0, 2), OFF)
    assert hazard_rules.required(make("s_mov_b32", M0, 0)("gfx942"), lds("gfx942"), "gfx942") == 1


def footprint_of(row, first):
    """A row on registers from `first` on of each file, constants where it takes no register."""
    operands = []
    for o in row.explicit:
        file = next((kind for kind in "vas" if kind in o.kinds), None)
        operands.append(Reg(file, first, o.regs) if file else 0)
        first += -(-o.regs // 4) * 4 if file else 0
    return Footprint(row, operands)


@pytest.mark.parametrize("target", TARGETS)
def test_a_pair_without_a_common_register_needs_nothing(target):
    """What `meets_anything` does not name, one row per set of classes: the emulator asks no rule about such pairs."""
    rows = {(hazard_rules.classes(footprint_of(row, 0)), row.unit): row for row in all_rows(target)}
    producers, consumers = ([footprint_of(row, first) for row in rows.values()] for first in (0, 128))
    asked, needed = 0, 0
    for p in producers:
        anything = hazard_rules.meets_anything(p, hazard_rules.classes(p))
        for c in consumers:
            if not (p.reads | p.writes) & (c.reads | c.writes):
                need = hazard_rules.required(p, c, target)
                asked, needed = asked + 1, needed + bool(need)
                assert not need or anything, (p.inst, c.inst)
    assert asked > 500 and needed


def test_no_rule_needs_more_than_the_longest():
    """The scan window covers every pair of a producer and the harshest consumers."""
    for target in TARGETS:
        for row in all_rows(target):
            if row.encoding == "MFMA" and not row.extra.formats:
                r = row.extra
                p = Footprint(row, [v(0, r.d_regs), v(64, r.a_regs), v(72, r.b_regs), v(0, r.d_regs)])
                for c in (READ, STORE, WRITE, A16):
                    assert hazard_rules.required(p, c(target), target) <= hazard_rules.LONGEST, row
