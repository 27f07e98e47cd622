# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Clusters: who is who, shared memory of other CTAs, remote arrivals, multicast, the cluster's barrier, register budgets."""

import numpy as np
import pytest
from hopper_text import launch, module
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime.emulator import run
from wavedsl.runtime.tensor_map import TensorMap

EXPLICIT = ".explicitcluster\n.reqnctapercluster {}"
ARRIVE, WAIT = "barrier.cluster.arrive.release.aligned;\n", "barrier.cluster.wait.acquire.aligned;\n"
OUT = "ld.param.u64 %d0, [out]; mov.u32 %r40, %ctaid.x; mov.u32 %r41, %ntid.x; mad.lo.u32 %r42, %r40, %r41, %r0; mul.wide.u32 %d1, %r42, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r9;\n"


def go(body, grid=4, cluster="2, 1, 1", threads=64, shared=1024, seed=0, extra=(), params="", **kwargs):
    out = np.zeros(grid * threads, np.uint32)
    text = module(
        ".param .u64 out" + params,
        "mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, %cluster_ctarank;\n" + body,
        threads,
        EXPLICIT.format(cluster) if cluster else "",
    )
    return launch(text, [out, *extra], grid, threads, shared, seed=seed, **kwargs), out


def kinds(report):
    return {f.kind for f in report.findings}


@pytest.mark.parametrize("checks", [False, "report"])
@pytest.mark.parametrize(
    "shape, grid", [((2, 1, 1), (4, 3, 1)), ((2, 2, 1), (4, 2, 2)), ((1, 2, 2), (3, 4, 2)), ((8, 1, 1), (8, 1, 1))]
)
def test_special_registers(shape, grid, checks):
    names = [
        f"{what}.{axis}"
        for what in ("%ctaid", "%cluster_ctaid", "%cluster_nctaid", "%clusterid", "%nclusterid")
        for axis in "xyz"
    ] + ["%cluster_ctarank", "%cluster_nctarank"]
    body = "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y; mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;\n"
    body += f"ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r6, {4 * len(names)}; add.s64 %d0, %d0, %d1;\n"
    body += "\n".join(f"mov.u32 %r7, {n}; st.global.b32 [%d0+{4 * i}], %r7;" for i, n in enumerate(names)) + "\nret;"
    out = np.zeros((grid[0] * grid[1] * grid[2], len(names)), np.uint32)
    launch(
        module(".param .u64 out", body, 1, EXPLICIT.format(", ".join(map(str, shape)))), [out], grid, 1, checks=checks
    )
    for i, row in enumerate(out):
        at = i % grid[0], i // grid[0] % grid[1], i // (grid[0] * grid[1])
        local = tuple(a % c for a, c in zip(at, shape))
        want = [*at, *local, *shape, *(a // c for a, c in zip(at, shape)), *(g // c for g, c in zip(grid, shape))]
        want += [local[0] + shape[0] * (local[1] + shape[1] * local[2]), shape[0] * shape[1] * shape[2]]
        assert row.tolist() == want


def test_shape_by_launch():
    text = module(
        ".param .u64 out",
        "mov.u32 %r0, %ctaid.x; mov.u32 %r9, %cluster_ctarank; ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r9; ret;",
        1,
    )
    out = np.zeros(8, np.uint32)
    run(text, target="sm_90a", grid=(8,), block=(1,), args=[out], cluster=(4, 1, 1))
    assert out.tolist() == [0, 1, 2, 3] * 2
    for cluster, message in (((3, 1, 1), "does not divide"), ((32, 1, 1), "does not divide|1 to 16")):
        with pytest.raises(LaunchError, match=message):
            run(text, target="sm_90a", grid=(8,), block=(1,), args=[out], cluster=cluster)
    fixed = module(".param .u64 out", "ret;", 1, EXPLICIT.format("2, 1, 1"))
    with pytest.raises(LaunchError, match="requires clusters of"):
        run(fixed, target="sm_90a", grid=(8,), block=(1,), args=[out], cluster=(4, 1, 1))
    with pytest.raises(LaunchError, match="does not divide"):
        run(fixed, target="sm_90a", grid=(3,), block=(1,), args=[out])


# Every thread writes 1000 times its CTA's number plus its own to shared memory and reads its neighbour CTA's.
EXCHANGE = f"""mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r3, 1000, %r0; shl.b32 %r5, %r0, 2; add.u32 %r6, %r1, %r5; st.shared.b32 [%r6], %r4;
{ARRIVE}{WAIT}xor.b32 %r7, %r2, 1; mapa.shared::cluster.u32 %r8, %r6, %r7;
ld.shared::cluster.b32 %r9, [%r8];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
{OUT}ret;"""
NEIGHBOUR = [1000 * (c ^ 1) + t for c in range(4) for t in range(64)]


@pytest.mark.parametrize("seed", range(4))
def test_shared_memory_of_another_cta(seed):
    report, out = go(EXCHANGE, seed=seed)
    assert report.findings == [] and out.tolist() == NEIGHBOUR
    generic = EXCHANGE.replace(
        "mapa.shared::cluster.u32 %r8, %r6, %r7;\nld.shared::cluster.b32 %r9, [%r8];",
        "cvt.u64.u32 %d4, %r6; cvta.shared.u64 %d5, %d4; mapa.u64 %d6, %d5, %r7; ld.b32 %r9, [%d6];",
    )
    generic = generic.replace(
        "barrier.cluster.arrive.aligned",
        "getctarank.u64 %r10, %d6; getctarank.u64 %r11, %d5; setp.eq.u32 %p1, %r10, %r7; setp.eq.u32 %p2, %r11, %r2; and.pred %p1, %p1, %p2; selp.u32 %r9, %r9, 0, %p1;\nbarrier.cluster.arrive.aligned",
    )
    report, out = go(generic, seed=seed)
    assert report.findings == [] and out.tolist() == NEIGHBOUR


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("change, expected, fragment", [
    ((ARRIVE + WAIT, ""), {"race", "uninitialised-read"}, "ld.shared::cluster"),
    ((ARRIVE + WAIT, "bar.sync 0;\n"), {"race", "uninitialised-read"}, "ld.shared::cluster"),
    ((ARRIVE, "barrier.cluster.arrive.relaxed.aligned;\n"), {"race"}, "ld.shared::cluster"),
    (("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n", ""), {"race"}, "ld.shared::cluster"),
    ((ARRIVE, ARRIVE + ARRIVE), {"hazard"}, "barrier.cluster.arrive"),
    ((ARRIVE + WAIT, WAIT + ARRIVE), {"hazard"}, "barrier.cluster.wait"),
    (("%r8, %r6, %r7", "%r8, %r6, 2"), {"out-of-bounds"}, "mapa"),
    (("[%r8];", "[%r8+4096];"), {"out-of-bounds"}, "ld.shared::cluster"),
    (("ld.shared::cluster.b32", "ld.shared.b32"), {"out-of-bounds"}, "ld.shared.b32"),
])  # fmt: skip
def test_defects(change, expected, fragment, seed):
    assert change[0] in EXCHANGE
    report, _ = go(EXCHANGE.replace(*change), seed=seed)
    assert any(f.kind in expected and fragment in f.instruction and f.line for f in report.findings), [
        str(f) for f in report.findings
    ]


def test_a_cta_that_does_not_come_is_named():
    """CTA 1 waits for an mbarrier that nobody completes, CTA 0 at the cluster's barrier."""
    body = f"""setp.ne.u32 %p0, %r0, 0; @%p0 bra READY; mbarrier.init.shared::cta.b64 [%r1], 3;
READY: bar.sync 0; setp.eq.u32 %p1, %r2, 0; @%p1 bra MEET;
SPIN: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra SPIN;
MEET: {ARRIVE}{WAIT}ret;"""
    report, _ = go(body, grid=2)
    said = {f.instruction.split()[0]: f.message for f in report.findings}
    assert kinds(report) == {"deadlock"}
    assert (
        said["mbarrier.try_wait.parity.shared::cta.b64"]
        == "the mbarrier smem of CTA 1 of the cluster never completes parity 0: in phase 0 3 of 3 arrivals are missing"
    )
    assert (
        said["barrier.cluster.wait.acquire.aligned"]
        == "the cluster's barrier waits for warp 0 of CTA 1, warp 1 of CTA 1"
    )


def test_threads_that_have_ended_are_not_waited_for():
    report, out = go(f"setp.ge.u32 %p1, %r0, 32; @%p1 exit; mov.u32 %r9, 7; {ARRIVE}{WAIT}{OUT}ret;")
    assert report.findings == [] and out.tolist() == ([7] * 32 + [0] * 32) * 4


# CTA 1 computes, CTA 0 waits on its own mbarrier for two remote arrivals of CTA 1's warps, then reads CTA 1's result.
REMOTE = f"""setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r1], 2; fence.mbarrier_init.release.cluster;
READY:
barrier.cluster.arrive.relaxed.aligned;
{WAIT}shl.b32 %r5, %r0, 2; add.u32 %r6, %r1, %r5; mov.u32 %r9, 0; setp.eq.u32 %p1, %r2, 0; @%p1 bra WAITER;
add.u32 %r7, %r0, 5; st.shared.b32 [%r6+64], %r7;
bar.warp.sync -1;
and.b32 %r8, %r0, 31; setp.ne.u32 %p2, %r8, 0; mapa.shared::cluster.u32 %r10, %r1, 0; @%p2 bra LAST;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10];
bra LAST;
WAITER:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r1], 0; @!%p3 bra WAITER;
mapa.shared::cluster.u32 %r11, %r6, 1;
ld.shared::cluster.b32 %r9, [%r11+64];
LAST:
{ARRIVE}{WAIT}{OUT}ret;"""


@pytest.mark.parametrize("seed", range(4))
def test_remote_arrivals(seed):
    report, out = go(REMOTE, grid=2, seed=seed)
    assert report.findings == [] and out.tolist() == list(range(5, 69)) + [0] * 64
    report, _ = go(REMOTE.replace("[%r1], 2", "[%r1], 1").replace("%p2, %r8, 0", "%p2, %r0, 0"), grid=2, seed=seed)
    assert any(
        f.kind in ("race", "uninitialised-read") and "ld.shared::cluster" in f.instruction for f in report.findings
    )
    report, _ = go(REMOTE.replace(" fence.mbarrier_init.release.cluster;", ""), grid=2, seed=seed)
    assert any(f.kind == "race" and "mbarrier.arrive.release.cluster" in f.instruction for f in report.findings)
    report, _ = go(REMOTE.replace(f"LAST:\n{ARRIVE}{WAIT}", "LAST:\n"), grid=2, seed=seed)
    assert any(
        f.kind == "race" and "ended" in f.message and "ld.shared::cluster" in f.instruction for f in report.findings
    )


# Every CTA loads its quarter of 32 rows and multicasts it to the CTAs of the mask.
MULTICAST = f"""mov.b64 %d4, map; cvta.param.u64 %d5, %d4; add.u32 %r3, %r1, 4096; setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
READY:
{ARRIVE}{WAIT}@%p0 bra WAITER;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 4096;
shl.b32 %r4, %r2, 10; add.u32 %r4, %r4, %r1; shl.b32 %r5, %r2, 3; mov.b16 %h0, 15;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r4], [%d5, {{0, %r5}}], [%r3], %h0;
WAITER:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra WAITER;
shl.b32 %r5, %r0, 6; add.u32 %r6, %r1, %r5; ld.shared.b32 %r9, [%r6];
{OUT}ret;"""


@pytest.mark.parametrize("seed", range(4))
def test_multicast(seed):
    array = np.arange(32 * 32, dtype=np.uint32).reshape(32, 32)
    params = ", .param .align 64 .b8 map[128]"
    tensor_map = TensorMap(array, (32, 8))
    options = {"grid": 8, "cluster": "4, 1, 1", "shared": 4104, "seed": seed, "extra": [tensor_map], "params": params}
    report, out = go(MULTICAST, **options)
    assert report.findings == [] and out.tolist() == list(range(0, 1024, 16)) * 8
    for change, kind, fragment in (
        ((ARRIVE + WAIT, "bar.sync 0;\n"), {"race", "uninitialised-read"}, ".multicast::cluster"),
        (("%h0, 15", "%h0, 31"), {"out-of-bounds"}, ".multicast::cluster"),
        (("%h0, 15", "%h0, 7"), {"deadlock"}, "try_wait"),
        (("[%r3], 4096", "[%r3], 1024"), {"deadlock", "race", "missing-wait", "hazard"}, ""),
    ):
        assert change[0] in MULTICAST
        report, _ = go(MULTICAST.replace(*change), **options)
        assert any(f.kind in kind and fragment in f.instruction for f in report.findings), (
            change,
            [str(f) for f in report.findings],
        )


# CTA 0 sends 256 bytes of its shared memory, and each of its threads a word, to CTA 1, which waits for both.
SEND = f"""add.u32 %r3, %r1, 768; setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r3], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512; fence.mbarrier_init.release.cluster;
READY:
shl.b32 %r5, %r0, 2; add.u32 %r6, %r1, %r5; add.u32 %r7, %r0, 100; st.shared.b32 [%r6+512], %r7;
fence.proxy.async.shared::cta;
{ARRIVE}{WAIT}mov.u32 %r9, 0; setp.eq.u32 %p1, %r2, 1; @%p1 bra WAITER;
mapa.shared::cluster.u32 %r10, %r1, 1; mapa.shared::cluster.u32 %r11, %r3, 1; add.u32 %r12, %r10, %r5;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r12+256], %r0, [%r11];
@%p0 bra LAST; add.u32 %r13, %r1, 512;
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r13], 256, [%r11];
bra LAST;
WAITER:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra WAITER;
ld.shared.b32 %r9, [%r6]; ld.shared.b32 %r14, [%r6+256]; mad.lo.u32 %r9, %r14, 1000, %r9;
LAST:
{ARRIVE}{WAIT}{OUT}ret;"""


@pytest.mark.parametrize("seed", range(4))
def test_copies_to_another_cta(seed):
    report, out = go(SEND, grid=2, seed=seed)
    assert report.findings == [] and out.tolist() == [0] * 64 + [1000 * t + 100 + t for t in range(64)]
    report, _ = go(SEND.replace("fence.proxy.async.shared::cta;\n", ""), grid=2, seed=seed)
    assert any(f.kind == "proxy-fence" and f.instruction.startswith("cp.async.bulk") for f in report.findings)
    report, _ = go(
        SEND.replace("WAITER:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra WAITER;", "WAITER:"),
        grid=2,
        seed=seed,
    )
    assert any(
        f.kind in ("missing-wait", "uninitialised-read") and "ld.shared.b32" in f.instruction for f in report.findings
    )


# ------------------------------------------------------------------------------------------------ register budgets


ROLES = """mov.u32 %r9, 0; shr.u32 %r3, %r0, 7; setp.ne.u32 %p1, %r3, 0; @%p1 bra MATH;
setmaxnreg.dec.sync.aligned.u32 {low};
bra DONE;
MATH:
setmaxnreg.inc.sync.aligned.u32 {high};
mov.u32 %r9, 3;
DONE:
ld.param.u64 %d0, [out]; mul.wide.u32 %d1, %r0, 4; add.s64 %d0, %d0, %d1; st.global.b32 [%d0], %r9; ret;"""


def roles(low, high, directives=".minnctapersm 1", seed=0, threads=384):
    out = np.zeros(threads, np.uint32)
    text = module(".param .u64 out", "mov.u32 %r0, %tid.x;\n" + ROLES.format(low=low, high=high), threads, directives)
    return launch(text, [out], 1, threads, seed=seed), out


@pytest.mark.parametrize("seed", range(3))
def test_register_budgets(seed):
    """384 threads start with 168 registers each: 64512 in all."""
    for low, high in ((24, 240), (40, 232)):
        report, out = roles(low, high, seed=seed)
        assert report.findings == [] and out.tolist() == [0] * 128 + [3] * 256
    report, _ = roles(40, 240, seed=seed)
    found = [f for f in report.findings if f.kind == "deadlock"]
    assert (
        found
        and found[0].instruction.startswith("setmaxnreg.inc")
        and "to reach 240 per thread" in found[0].message
        and "started with 168" in found[0].message
    )
    assert found[0].wave >= 4


def test_budgets_that_ptxas_ignores_or_refuses():
    """Without a known number at entry they have no effect; a decrease upwards is no decrease."""
    report, out = roles(40, 240, directives="")
    assert report.findings == [] and (out[128:] == 3).all()
    report, _ = roles(232, 240)
    assert any(f.kind == "hazard" and f.instruction.startswith("setmaxnreg.dec") for f in report.findings)
    report, _ = roles(24, 104, directives=".maxnreg 128", threads=256)
    assert any(f.kind == "hazard" and f.instruction.startswith("setmaxnreg.inc") for f in report.findings)


def test_elected_lane():
    body = """setp.lt.u32 %p1, %r0, 5; mov.u32 %r9, 0; @%p1 bra OUTSIDE; elect.sync %r3|%p2, MASK; selp.u32 %r9, 1, 0, %p2; shl.b32 %r3, %r3, 1; add.u32 %r9, %r9, %r3;
OUTSIDE: """
    report, out = go(
        body.replace("MASK", "-1").replace("@%p1 bra OUTSIDE; ", "") + OUT + "ret;", grid=1, cluster="", threads=32
    )
    assert report.findings == [] and out.tolist() == [1] + [0] * 31
    report, out = go(body.replace("MASK", "0xffffffe0") + OUT + "ret;", grid=1, cluster="", threads=32)
    assert report.findings == [] and out.tolist() == [0] * 5 + [11] + [10] * 26
    for mask, said in (("-1", "names a lane that does not execute it"), ("0xffffff00", "does not name"), ("0", "does not name")):
        report, _ = go(body.replace("MASK", mask) + OUT + "ret;", grid=1, cluster="", threads=32)
        assert [f.kind for f in report.findings] == ["barrier-divergence"] and said in report.findings[0].message
