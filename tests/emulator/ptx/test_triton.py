# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Hopper kernels that Triton compiled (tests/vectors/triton): a witness from outside for wgmma, bulk copies and mbarriers.

Right against NumPy and without a finding, in whatever order.
"""

import re

import pytest
from triton_texts import PRODUCTS, TEXTS, attention, attention_causal, cluster_sum, multiply

SLOW = [pytest.param(s, marks=pytest.mark.slow) for s in range(1, 6)]


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("seed", [pytest.param(None, marks=pytest.mark.slow), 0, *SLOW])
def test_products(name, seed):
    report, right = multiply(name, "report" if seed is not None else False, seed or 0)
    assert report.findings == [] and right
    assert any(row.startswith("wgmma.mma_async") for row in report.coverage)


@pytest.mark.parametrize("seed", [None, 0, *SLOW])
def test_sums_through_a_clusters_shared_memory(seed):
    report, right = cluster_sum("report" if seed is not None else False, seed or 0)
    assert report.findings == [] and right
    text = (TEXTS / "row_sum.ptx").read_text()
    both = re.search(r"\tbarrier\.cluster\.arrive\.aligned;\n\tbarrier\.cluster\.wait\.aligned;\n", text).group()
    for change in ((both, ""), ("barrier.cluster.arrive.aligned", "barrier.cluster.arrive.relaxed.aligned")):
        report, _ = cluster_sum("report", seed or 0, change)
        assert {f.kind for f in report.findings} & {"race", "uninitialised-read"}


@pytest.mark.parametrize("seed", [None, 0, *SLOW])
def test_attention(seed):
    report, right = attention("report" if seed is not None else False, seed or 0)
    assert report.findings == [] and right


@pytest.mark.parametrize("seed", [None, 0, *SLOW])
def test_causal_attention(seed):
    report, right = attention_causal("report" if seed is not None else False, seed or 0)
    assert report.findings == [] and right


@pytest.mark.parametrize("name, change, kinds", [
    ("tma", ("fence.proxy.async.shared::cta", "fence.acq_rel.cta"), {"proxy-fence"}),
    ("tma", ("wgmma.wait_group.sync.aligned 1;", ""), {"missing-wait", "race"}),
    ("tma", ("wgmma.fence.sync.aligned;", ""), {"register-race"}),
    ("tma", ("cp.async.bulk.wait_group \t0;", ""), {"missing-wait"}),
    ("persistent", ("cp.async.bulk.wait_group.read \t0", "cp.async.bulk.wait_group.read \t9"), {"missing-wait", "race"}),
    ("bf16", ("cp.async.wait_group", "// "), {"missing-wait"}),
    ("roles", ("fence.proxy.async.shared::cta", "fence.acq_rel.cta"), {"proxy-fence"}),
    ("roles", ("wgmma.wait_group.sync.aligned", "// "), {"missing-wait", "race"}),
])  # fmt: skip
def test_seeded_defects(name, change, kinds):
    report, _ = multiply(name, "report", 0, change)
    assert {f.kind for f in report.findings} & kinds, [str(f) for f in report.findings]
