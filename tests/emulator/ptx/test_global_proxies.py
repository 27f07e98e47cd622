# ruff: noqa: E501 (PTX text reads better in one line)
"""Bulk copies of what ordinary stores of the same launch wrote to global memory need a fence between the proxies."""

import numpy as np
import pytest
from hopper_text import launch, module
from wavedsl.runtime.tensor_map import TensorMap

COUNT = 64
PROXY = "fence.proxy.async.global;"
HEAD = """mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, smem; add.u32 %r3, %r2, 1024;
ld.param.u64 %d0, [data]; ld.param.u64 %d1, [flag]; mov.b64 %d5, map; cvta.param.u64 %d5, %d5;
mul.wide.u32 %d2, %r0, 4; add.s64 %d2, %d0, %d2; add.u32 %r4, %r0, 100;
setp.ne.u32 %p0, %r0, 0; @%p0 bra INIT; mbarrier.init.shared::cta.b64 [%r3], 1; fence.mbarrier_init.release.cluster;
INIT: bar.sync 0;
"""
ROOM = "@%p0 bra FETCHED; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 256;\n"
RUN = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 256, [%r3];\n"
BOX = "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d5, {0}], [%r3];\n"
FETCHED = "FETCHED: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0; @!%p1 bra FETCHED;\n"
TAIL = "END: ret;"
STORE = "st.global.b32 [%d2], %r4;\n"


def findings(body, grid=1):
    """Kinds and texts of findings, in several orders of warps."""
    text = module(".param .u64 data, .param .u64 flag, .param .align 64 .b8 map[128]", HEAD + body + TAIL, COUNT)
    out = []
    for seed in range(4):
        data, flag = np.zeros(COUNT, np.uint32), np.zeros(1, np.uint32)
        box = TensorMap(data, (COUNT,))
        out += launch(text, [data, flag, box], block=COUNT, grid=grid, shared=1040, seed=seed).findings
    return [(f.kind, str(f)) for f in out]


@pytest.mark.parametrize("copy", [RUN, BOX])
@pytest.mark.parametrize(
    ("before", "after", "fine"),
    [
        (PROXY, "", True),
        ("", PROXY, True),
        ("fence.proxy.async;", "", True),
        ("", "", False),
        ("fence.proxy.async.shared::cta;", "", False),
        ("fence.acq_rel.gpu;", "fence.acq_rel.gpu;", False),
    ],
)
def test_a_cta_that_copies_what_it_stored(copy, before, after, fine):
    """The fence may stand on either side of the barrier between the stores and the copy."""
    body = STORE + f"{before} bar.sync 0; {after}\n" + ROOM + copy + FETCHED
    found = findings(body)
    assert not found if fine else found
    assert all(kind == "proxy-fence" and "what an ordinary store of" in text and "cp.async.bulk" in text for kind, text in found), found


def test_a_fence_before_the_store_fences_nothing():
    found = findings(PROXY + STORE + "bar.sync 0;\n" + ROOM + RUN + FETCHED)
    assert {kind for kind, _ in found} == {"proxy-fence"}


def test_without_order_it_is_a_race():
    found = findings(STORE + PROXY + ROOM + RUN + FETCHED)
    assert found and {kind for kind, _ in found} == {"race"}


def test_arrays_that_the_launch_does_not_write_need_no_fence():
    assert not findings(ROOM + RUN + FETCHED)


PUT = """st.shared.b32 [%r5], %r4; fence.proxy.async.shared::cta; bar.sync 0; @%p0 bra PUT_DONE;
COPY
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; PUT_DONE: bar.sync 0;
""".replace("st.shared", "shl.b32 %r5, %r0, 2; add.u32 %r5, %r5, %r2; st.shared", 1)
PUT_RUN = "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r2], 256;"
PUT_BOX = "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%d5, {0}], [%r2];"
ADD_RUN = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r2], 256;"


@pytest.mark.parametrize("copy", [PUT_RUN, PUT_BOX, ADD_RUN])
def test_bulk_stores_over_ordinary_ones(copy):
    put = PUT.replace("COPY", copy)
    found = findings(STORE + "bar.sync 0;\n" + put)
    assert found and all(kind == "proxy-fence" and "overwrites" in text for kind, text in found), found
    assert not findings(STORE + PROXY + "bar.sync 0;\n" + put)


def test_what_bulk_stores_wrote_needs_no_fence():
    """Whoever is ordered behind a bulk copy's completion sees it, in either proxy."""
    put = PUT.replace("COPY", PUT_RUN)
    assert not findings(put + ROOM + RUN + FETCHED)
    assert not findings(put + "ld.global.b32 %r6, [%d2];\n")


@pytest.mark.parametrize("wait", ["cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"])
@pytest.mark.parametrize("next_", ["ld.global.b32 %r6, [%d2];", "st.global.b32 [%d2], %r0;", "@%p0 bra END; " + PUT_BOX])
def test_a_bulk_store_has_written_when_its_group_is_waited_for(wait, next_):
    """Not before, for later copies of its own thread either, and not when it has read shared memory."""
    put = PUT.replace("COPY", PUT_RUN).replace("cp.async.bulk.wait_group 0;", wait)
    end = " cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" if next_.endswith(PUT_BOX) else ""
    change = "ADD.u32 %r4".lower() + ", %r4, 7; st.shared.b32 [%r5], %r4; fence.proxy.async.shared::cta; bar.sync 0;\n"
    found = findings(put + change + next_ + end + "\n@%p0 bra END; cp.async.bulk.wait_group 0;")
    if "read" in wait:
        assert found and all(kind == "race" and "whose group was not waited for" in text for kind, text in found), found
    else:
        assert not found


# CTA 0 stores, releases and raises the flag; CTA 1 waits for it, acquires and copies.
HANDED = """setp.ne.u32 %p2, %r1, 0; @%p2 bra OTHER;
st.global.b32 [%d2], %r4; WRITER bar.sync 0; @%p0 bra END;
fence.acq_rel.gpu; RAISER mov.u32 %r7, 1; st.relaxed.gpu.global.b32 [%d1], %r7; bra END;
OTHER: @%p0 bra SEEN;
WAIT: ld.relaxed.gpu.global.b32 %r6, [%d1]; setp.eq.u32 %p3, %r6, 0; @%p3 bra WAIT;
EARLY fence.acq_rel.gpu; ACQUIRER
SEEN: bar.sync 0;
READER
""" + ROOM + RUN + FETCHED  # fmt: skip


@pytest.mark.parametrize(
    ("place", "fine"),
    [("WRITER", True), ("RAISER", False), ("EARLY", False), ("ACQUIRER", True), ("READER", True), ("", False)],
)
def test_from_one_cta_to_another(place, fine):
    """In front of what releases the data, or behind what acquires it; a fence between the flag's accesses and the fences
    of the chip's scope orders nothing that they hand on.
    """
    body = HANDED
    for name in ("WRITER", "RAISER", "EARLY", "ACQUIRER", "READER"):
        body = body.replace(name, PROXY if name == place else "")
    found = findings(body, grid=2)
    assert not found if fine else found
    assert all(kind == "proxy-fence" and "another workgroup" in text for kind, text in found), found
