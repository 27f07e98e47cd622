# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Kernels compiled by others, with known answers: right results, no finding, whatever the adversarial order."""

import importlib.util
import json
from pathlib import Path

import pytest
from wavedsl.runtime.emulator.ptx.emulator import run_ptx

VECTORS = Path(__file__).parents[2] / "vectors"


def _data():
    spec = importlib.util.spec_from_file_location("vector_data", VECTORS / "vector_data.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DATA = _data()
CASES = sorted(p.parent for p in (VECTORS / "ptx").glob("*/case.json"))


def launch(folder, checks, seed=0):
    case = json.loads((folder / "case.json").read_text())
    args = DATA.make_args(case)
    report = run_ptx((folder / case["asm"]).read_text(), target=case["arch"], grid=case["grid"], block=case["block"], args=args,
                     kernel=case["kernel"], shared_bytes=case["dynamic_shared_bytes"], checks=checks, seed=seed)  # fmt: skip
    return case, args, report


def verdicts(case, args):
    want = DATA.expected(case)
    return [DATA.compare(a, x, want[a["name"]]) for a, x in zip(case["args"], args) if "expect" in a]


@pytest.mark.parametrize("folder", CASES, ids=lambda p: p.name)
@pytest.mark.parametrize("checks", [False, True])
def test_answer(folder, checks):
    case, args, report = launch(folder, checks)
    assert report.findings == []
    found = verdicts(case, args)
    assert found and all(ok for ok, _ in found), found


@pytest.mark.parametrize(
    "folder", [c for c in CASES if not c.name.startswith("divergence.sm_90")], ids=lambda p: p.name
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_answer_in_every_order(folder, seed):
    case, args, _ = launch(folder, True, seed)
    assert all(ok for ok, _ in verdicts(case, args))


def test_vectors_execute_the_rows_of_a_gemm():
    """The rows that a copy and a GEMM are made of have a witness among kernels that others compiled."""
    rows = frozenset()
    for folder in CASES:
        rows |= launch(folder, False)[2].coverage
    for opcode in (
        "mma",
        "ldmatrix",
        "cp",
        "bar",
        "ld",
        "st",
        "mov",
        "add",
        "mul",
        "mad",
        "shl",
        "and",
        "xor",
        "setp",
        "selp",
        "shfl",
        "wgmma",
        "mbarrier",
    ):
        assert any(r.startswith(opcode) for r in rows), opcode
    assert any(r.startswith("mma.sync.aligned.m16n8k16.row.col.f32.f16") for r in rows)
    assert len(rows) >= 45


def test_counts_are_per_warp():
    case, _, report = launch(VECTORS / "ptx" / "matmul_f16_32x32x64.sm_80", True)
    assert case["block"][0] == 128
    assert report.instructions["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] == 8 * 2 * 4
    assert report.instructions["ret"] == 4
    assert report.bank_conflicts == 0
    assert report.cycles > 0 and 0 < report.utilisation["tensor"] <= 1
