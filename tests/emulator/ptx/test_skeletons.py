# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""The project's hand-written Hopper skeletons: warp-specialised GEMMs are right, attention loops execute."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hopper_text import launch
from wavedsl.runtime.tensor_map import TensorMap

SKELETONS = Path(__file__).parents[2] / "vectors" / "skeletons"
# Rows of A, rows of B and CTAs per cluster that one copy brings.
GEMMS = {
    "gemm_ws_128x256x64_s4_c1_n2": (128, 256, 1),
    "gemm_ws_128x256x64_s4_c2_n2": (128, 128, 2),
    "gemm_ws_256x128x64_s4_c2_n2": (256, 64, 2),
}
SHARED = 212992 + 64
ONE = "gemm_ws_128x256x64_s4_c2_n2"


def slowly(names, by_day):
    """Some of the names in the default run, all in the slow one."""
    return [n if n in by_day else pytest.param(n, marks=pytest.mark.slow) for n in names]


def gemm(name, m, n, k, grid, checks, seed=0, change=("", "")):
    """Run on small integers, so that sums are exact; the report, and whether C is A B^T."""
    rng = np.random.default_rng(1)
    kind = ml_dtypes.bfloat16
    a, b = rng.integers(-3, 4, (m, k)).astype(kind), rng.integers(-3, 4, (n, k)).astype(kind)
    c = np.full((m, n), 93, kind)
    rows_a, rows_b, _ = GEMMS[name]
    maps = [
        TensorMap(a, (64, rows_a), swizzle=128),
        TensorMap(b, (64, rows_b), swizzle=128),
        TensorMap(c, (64, 64), swizzle=128),
    ]
    text = (SKELETONS / f"{name}.ptx").read_text()
    assert change[0] in text
    sizes = [np.uint32(x) for x in (m, n, k)]
    report = launch(text.replace(*change), [*maps, *sizes], grid, 384, SHARED, checks, seed)
    want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(kind)
    return report, np.array_equal(c.view(np.uint16), want.view(np.uint16))


SEEDS = (None, 0, *(pytest.param(s, marks=pytest.mark.slow if s < 4 else pytest.mark.exhaustive) for s in range(1, 12)))


@pytest.mark.parametrize("name", GEMMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_gemm(name, seed):
    """512 cubed, on CTAs that loop over tiles: without checks, and in adversarial orders."""
    report, right = gemm(name, 512, 512, 512, 4, "report" if seed is not None else False, seed or 0)
    assert report.findings == [] and right
    assert (
        sum(n for i, n in report.instructions.items() if i.startswith("wgmma.mma_async"))
        == 512**3 // (64 * 16) // (256 if "128x256" in name else 128) * 4
    )


@pytest.mark.parametrize("name", slowly(GEMMS, [ONE]))
@pytest.mark.parametrize(
    "m, n, k, grid",
    [
        (300, 520, 200, 4),
        pytest.param(100, 64, 8, 2, marks=pytest.mark.slow),
        pytest.param(1024, 256, 64, 6, marks=pytest.mark.slow),
    ],
)
def test_gemm_of_ragged_sizes(name, m, n, k, grid):
    report, right = gemm(name, m, n, k, grid, "report", seed=m)
    assert report.findings == [] and right


@pytest.mark.parametrize("name", slowly(GEMMS, [ONE]))
@pytest.mark.parametrize("change, kinds", [
    (("wgmma.wait_group.sync.aligned 1; setp.eq.u32 p9,r33,0; @p9 bra CS;", "wgmma.wait_group.sync.aligned 2; setp.eq.u32 p9,r33,0; @p9 bra CS;"), {"missing-wait", "race"}),
    (("CW: mbarrier.try_wait.parity.shared::cta.b64 p5,[r34],r32; @!p5 bra CW;", "CW:"), {"missing-wait", "uninitialised-read"}),
    ((",49152;", ",49136;"), {"deadlock"}),
    (("CONS: setmaxnreg.inc.sync.aligned.u32 240;", "CONS: setmaxnreg.inc.sync.aligned.u32 248;"), {"deadlock"}),
    (("wgmma.fence.sync.aligned;", ""), {"register-race"}),
    (("fence.proxy.async.shared::cta; bar.sync r70,128;", "bar.sync r70,128;"), {"proxy-fence"}),
], ids=["released early", "not waited for", "bytes", "registers", "fence", "proxy fence"])  # fmt: skip
def test_seeded_defects(name, change, kinds):
    report, _ = gemm(name, 256, 256, 512, 2, "report", 1, change)
    assert {f.kind for f in report.findings} & kinds, [str(f) for f in report.findings]


@pytest.mark.parametrize(
    "name",
    slowly(sorted(p.stem for p in SKELETONS.glob("fa_*.ptx")), ["fa_overlap_d128_cvt_early", "fa_overlap_d64_bn192"]),
)
def test_attention_loops_execute(name):
    """Their operands are whatever lies at the fixed descriptors, which is all that is found, and a conversion too early."""
    text = (SKELETONS / f"{name}.ptx").read_text()
    threads = int(re.search(r"maxntid (\d+)", text).group(1))
    out = np.zeros(1024, np.float32)
    report = launch(text, [out, np.uint32(2)], 1, threads, 220000)
    found = {f.kind for f in report.findings}
    early = {"missing-wait", "register-race"}
    assert found - early == {"out-of-bounds", "uninitialised-read"}
    lines = text.split("\n")
    raced = [lines[f.line - 1].split()[0] for f in report.findings if f.kind in early]
    assert bool(raced) == ("cvt_early" in name)
    assert set(raced) <= {"cvt.rn.bf16x2.f32"}
    # What does not depend on operands: a row of equal scores sums to the width of a block of keys.
    assert out[500] == int(re.search(r"m64n(\d+)k16", text).group(1))
