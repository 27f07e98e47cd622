"""Text of other compilers (Triton, clang) must run without a finding and give the right answers, whatever the order."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from amdgcn_harness import VECTORS, load_case, vector_cases
from wavedsl.runtime.emulator import run
from wavedsl.runtime.emulator.amdgcn.emulator import run_amdgcn

_spec = importlib.util.spec_from_file_location("vector_data", VECTORS.parent / "vector_data.py")
assert _spec is not None and _spec.loader is not None
vector_data = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(vector_data)

SLOW = 5_000
"""Instructions above which one seed is enough."""


def check_answers(case, args, before):
    want = vector_data.expected(case, before)
    wrong = []
    for meta, value in zip(case["args"], args):
        if meta["name"] in want:
            ok, message = vector_data.compare(meta, value, want[meta["name"]])
            if not ok:
                wrong.append(message)
    assert want and not wrong, wrong


def prepared(name):
    case, asm = load_case(name)
    args = vector_data.make_args(case)
    before = {m["name"]: v.copy() for m, v in zip(case["args"], args) if isinstance(v, np.ndarray)}
    common = {"target": case["arch"], "grid": case["grid"], "block": case["block"], "kernel": case["kernel"],
              "shared_bytes": case["dynamic_shared_bytes"]}  # fmt: skip
    return case, asm, args, before, common


@pytest.mark.parametrize("name", vector_cases())
def test_with_checks(name):
    case, asm, args, before, common = prepared(name)
    report = run(asm, args=args, checks=True, **common)
    check_answers(case, args, before)
    assert report.findings == []
    assert report.cycles > 0 and sum(report.instructions.values()) > 0


@pytest.mark.parametrize("name", vector_cases())
def test_without_checks(name):
    case, asm, args, before, common = prepared(name)
    run(asm, args=args, checks=False, **common)
    check_answers(case, args, before)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [n for n in vector_cases() if not n.startswith(("divergence", "flash"))])
def test_any_arrival(name, seed):
    """Seeds change the order of workgroups and when loads arrive: earliest, latest, random."""
    case, asm, args, before, common = prepared(name)
    report = run_amdgcn(asm, args=args, checks=True, seed=seed, **common)
    check_answers(case, args, before)
    assert report.findings == [] and report.seed == seed


def test_instruction_counts_do_not_depend_on_checks():
    _case, asm, args, _, common = prepared("matmul_nt.gfx942")
    plain = run(asm, args=args, checks=False, **common)
    checked = run(asm, args=args, checks=True, **common)
    assert plain.instructions == checked.instructions
    assert plain.instructions["v_mfma_f32_32x32x8_f16"] == 4 * 8
