# ruff: noqa: E501 (PTX text and tables of cases read better in one line)
"""Bulk copies against NumPy: tiles of every rank and swizzle, out of bounds, strides, stores, reductions, plain runs."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hopper_text import launch, module, swizzle
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime.tensor_map import (
    DATA_TYPES,
    FILLS,
    INTERLEAVES,
    PROMOTIONS,
    SWIZZLES,
    TensorMap,
    TensorMapSpec,
    decode,
    encode,
)

MAP = "mov.b64 %d0, map; cvta.param.u64 %d1, %d0; mov.u32 %r0, %tid.x; mov.u32 %r1, smem; add.u32 %r2, %r1, BAR;\n"
INIT = """setp.ne.u32 %p0, %r0, 0; @%p0 bra READY; mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0;
"""
ISSUE = "@%p0 bra WAIT; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], BYTES;\nCOPY\nWAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra WAIT;\n"
DUMP = """ld.param.u64 %d2, [out]; shl.b32 %r3, %r0, 4;
DUMP: setp.ge.u32 %p2, %r3, BYTES; @%p2 bra END; add.u32 %r4, %r1, %r3; ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r4]; cvt.u64.u32 %d3, %r3; add.s64 %d4, %d2, %d3;
st.global.v4.b32 [%d4], {%r5, %r6, %r7, %r8}; add.u32 %r3, %r3, THREADS; bra DUMP;
END: ret;"""


def loaded(tensor_map, corner, threads=64, checks=True, seed=0, offset=0):
    """Shared memory after a load of the box at `corner`, written out by all threads."""
    spec = tensor_map.spec
    n = spec.box_bytes
    room = -(-n // 128) * 128
    copy = f"cp.async.bulk.tensor.{spec.rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%d1, {{{', '.join(map(str, corner))}}}], [%r2];"
    body = (
        MAP.replace("BAR", str(room)).replace("mov.u32 %r1, smem;", f"mov.u32 %r1, smem; add.u32 %r1, %r1, {offset};")
        + INIT
        + ISSUE
        + DUMP
    )
    body = body.replace("COPY", copy, 1).replace("BYTES", str(n)).replace("THREADS", str(16 * threads))
    out = np.zeros(n, np.uint8)
    text = module(".param .align 64 .b8 map[128], .param .u64 out", body, threads)
    launch(text, [tensor_map, out], block=threads, shared=room + 16 + offset, checks=checks, seed=seed)
    return out


def box_of(array, box, corner, steps=None, fill=0):
    """The box as NumPy sees it, outermost dimension first; outside elements are `fill`. `box`, `corner` innermost first."""
    steps = steps or (1,) * array.ndim
    counts = [-(-b // s) for b, s in zip(box, steps)]
    out = np.full(counts[::-1], fill, array.dtype)
    for place in itertools.product(*map(range, counts)):
        at = [c + i * s for c, i, s in zip(corner, place, steps)]
        if all(0 <= a < n for a, n in zip(at, array.shape[::-1])):
            out[place[::-1]] = array[tuple(at[::-1])]
    return out


def swizzled_bytes(dense, span, offset=0):
    """Bytes of a dense box in shared memory that starts `offset` bytes into the swizzle pattern."""
    raw = np.ascontiguousarray(dense).reshape(-1).view(np.uint8)
    at = swizzle(np.arange(len(raw)) + offset, span) - offset
    out = np.zeros_like(raw)
    out[at] = raw
    return out


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("inside", [True, False])
def test_ranks(rank, inside):
    """Boxes of every rank, inside and across both ends of every dimension."""
    shape = (3, 4, 3, 5, 24)[5 - rank :]
    array = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape)
    box = (8, 3, 2, 2, 2)[:rank]
    corners = [(4, 1, 1, 1, 1)[:rank]] if inside else [(-3, -1, -1, 2, -1)[:rank], (20, 3, 2, 3, 2)[:rank]]
    for corner in corners:
        got = loaded(TensorMap(array, box), corner).view(np.uint32)
        assert np.array_equal(got, box_of(array, box, corner).reshape(-1))


@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
def test_swizzles(span, dtype):
    item = np.dtype(dtype).itemsize
    array = (np.arange(40 * 208) % 251).astype(dtype).reshape(40, 208)
    box = (span // item, 24)
    got = loaded(TensorMap(array, box, swizzle=span), (16, 30))
    assert np.array_equal(got, swizzled_bytes(box_of(array, box, (16, 30)), span))


def test_swizzle_counts_from_absolute_addresses():
    """A destination that is aligned to 128 bytes but not to the pattern."""
    array = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    got = loaded(TensorMap(array, (64, 8), swizzle=128), (0, 3), offset=256)
    assert np.array_equal(got, swizzled_bytes(box_of(array, (64, 8), (0, 3)), 128, 256))


def test_element_strides():
    array = np.arange(30 * 64, dtype=np.int32).reshape(30, 64)
    tensor_map = TensorMap(array, (8, 13), element_strides=(5, 3))
    assert tensor_map.spec.counts == (8, 5) and tensor_map.spec.box_bytes == 8 * 5 * 4
    got = loaded(tensor_map, (8, 20)).view(np.int32)
    assert np.array_equal(got, box_of(array, (8, 13), (8, 20), (1, 3)).reshape(-1))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_fill_with_nan(dtype):
    array = np.ones((8, 16), dtype)
    got = loaded(TensorMap(array, (16, 4), fill="nan"), (8, 6)).view(dtype).reshape(4, 16).astype(np.float64)
    assert np.isnan(got[2:]).all() and np.isnan(got[:, 8:]).all() and (got[:2, :8] == 1).all()


def test_given_sizes_and_strides():
    """A map need not cover its array: every other row, the first 40 columns of it."""
    array = np.arange(20 * 64, dtype=np.float32).reshape(20, 64)
    tensor_map = TensorMap(array, (16, 4), dims=(40, 10), strides=(512,))
    got = loaded(tensor_map, (32, 7)).view(np.float32)
    assert np.array_equal(got, box_of(array[::2, :40], (16, 4), (32, 7)).reshape(-1))


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_arrival_early_or_late(checks, seed):
    array = np.arange(32 * 32, dtype=np.uint16).reshape(32, 32)
    assert np.array_equal(
        loaded(TensorMap(array, (32, 32)), (0, 0), checks=checks, seed=seed).view(np.uint16), array.reshape(-1)
    )


STORE = """mov.b64 %d0, map; cvta.param.u64 %d1, %d0; mov.u32 %r0, %tid.x; mov.u32 %r1, smem; ld.param.u64 %d2, [source]; shl.b32 %r3, %r0, 4;
FILL: setp.ge.u32 %p2, %r3, BYTES; @%p2 bra FILLED; cvt.u64.u32 %d3, %r3; add.s64 %d4, %d2, %d3; ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d4];
add.u32 %r4, %r1, %r3; st.shared.v4.b32 [%r4], {%r5, %r6, %r7, %r8}; add.u32 %r3, %r3, 1024; bra FILL;
FILLED: fence.proxy.async.shared::cta;
bar.sync 0; setp.ne.u32 %p0, %r0, 0; @%p0 bra END;
STORE
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
END: ret;"""


def stored(
    tensor_map,
    dense,
    corner,
    instruction="cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group",
    checks=True,
    seed=0,
    grid=1,
):
    """Store a box from shared memory, laid out as the map says, at `corner`."""
    spec = tensor_map.spec
    image = swizzled_bytes(dense, spec.swizzle)
    assert len(image) == spec.box_bytes
    body = STORE.replace(
        "STORE", f"{instruction.format(spec.rank)} [%d1, {{{', '.join(map(str, corner))}}}], [%r1];"
    ).replace("BYTES", str(len(image)))
    text = module(".param .align 64 .b8 map[128], .param .u64 source", body, 64)
    return launch(
        text, [tensor_map, image], block=64, shared=-(-len(image) // 128) * 128, checks=checks, seed=seed, grid=grid
    )


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize("seed", range(3))
def test_stores(span, seed):
    """A box is written as it lies; what lies outside the tensor is dropped."""
    item = 2
    width = (span or 64) // item
    array = np.zeros((20, 80), np.float16)
    dense = np.arange(16 * width, dtype=np.uint16).view(np.float16).reshape(16, width)
    corner = (80 - width // 2, 10)
    stored(TensorMap(array, (width, 16), swizzle=span), dense, corner, seed=seed)
    want = np.zeros_like(array)
    want[10:, corner[0] :] = dense[:10, : width // 2]
    assert np.array_equal(array.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("op, dtype, f", [
    ("add", np.float32, np.add), ("add", np.float16, np.add), ("add", ml_dtypes.bfloat16, np.add), ("add", np.int32, np.add), ("add", np.uint64, np.add),
    ("min", np.int32, np.minimum), ("max", np.float16, np.maximum), ("and", np.uint32, np.bitwise_and), ("or", np.uint32, np.bitwise_or),
    ("xor", np.uint64, np.bitwise_xor), ("inc", np.uint32, lambda o, a: np.where(o >= a, 0, o + 1)),
    ("dec", np.uint32, lambda o, a: np.where((o == 0) | (o > a), a, o - 1)),
])  # fmt: skip
def test_reductions(op, dtype, f):
    rng = np.random.default_rng(1)
    array, box = rng.integers(0, 100, (12, 16)).astype(dtype), rng.integers(0, 100, (8, 16)).astype(dtype)
    want = array.copy()
    for _ in range(2):
        want[4:] = f(want[4:], box)
    stored(
        TensorMap(array, (16, 8)),
        box,
        (0, 4),
        f"cp.reduce.async.bulk.tensor.{{}}d.global.shared::cta.{op}.tile.bulk_group",
        grid=2,
    )
    assert np.array_equal(array, want)


@pytest.mark.parametrize("change, kind", [
    (("fence.proxy.async.shared::cta;", ""), "proxy-fence"),
    (("cp.async.bulk.commit_group;", ""), "missing-wait"),
    (("cp.async.bulk.wait_group", "cp.async.bulk.wait_group 1; //"), "missing-wait"),
], ids=["no fence", "no group", "no wait"])  # fmt: skip
def test_defects_of_reductions(change, kind, monkeypatch):
    """What a reduction reads must be visible to it, and stay until it has been read."""
    assert change[0] in STORE
    monkeypatch.setitem(globals(), "STORE", STORE.replace(*change))
    array, box = np.zeros((12, 16), np.float32), np.ones((8, 16), np.float32)
    name = "cp.reduce.async.bulk.tensor.{}d.global.shared::cta.add.tile.bulk_group"
    report = stored(TensorMap(array, (16, 8)), box, (0, 4), name, checks="report")
    assert kind in {f.kind for f in report.findings}, [str(f) for f in report.findings]


RUN = """mov.u32 %r0, %tid.x; mov.u32 %r1, smem; add.u32 %r2, %r1, 512; ld.param.u64 %d0, [source]; ld.param.u64 %d5, [target]; setp.ne.u32 %p0, %r0, 0; @%p0 bra READY;
mbarrier.init.shared::cta.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
READY: bar.sync 0; @%p0 bra WAIT;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 256, [%r2];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra WAIT;
shl.b32 %r3, %r0, 2; add.u32 %r4, %r1, %r3; ld.shared.u32 %r5, [%r4]; add.u32 %r5, %r5, 1; bar.sync 0; st.shared.u32 [%r4], %r5; fence.proxy.async.shared::cta;
bar.sync 0; @%p0 bra END;
OUT [%d5], [%r1], 256;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END: ret;"""


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("out, f", [
    ("cp.async.bulk.global.shared::cta.bulk_group", lambda old, x: x), ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", np.add),
    ("cp.reduce.async.bulk.global.shared::cta.bulk_group.max.s32", np.maximum),
])  # fmt: skip
def test_plain_runs(out, f, seed):
    """Bytes in, changed, and out again."""
    source, target = np.arange(64, dtype=np.uint32), np.full(64, 30, np.uint32)
    text = module(".param .u64 source, .param .u64 target", RUN.replace("OUT", out), 64)
    want = f(target.copy(), source + 1)
    launch(text, [source, target], block=64, shared=528, checks=True, seed=seed)
    assert np.array_equal(target, want)


# ------------------------------------------------------------------------------------------------ the description


RIGHT = {"data_type": "f16", "dims": (64, 32), "strides": (128,), "box": (64, 16), "swizzle": 128}


@pytest.mark.parametrize("change, rule", [
    ({"dims": (), "strides": (), "box": ()}, "rank is 1 to 5"),
    ({"dims": (2,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "rank is 1 to 5"),
    ({"strides": (128, 128)}, "2 strides for rank 2"),
    ({"strides": (120,)}, "stride 120 of dimension 1 is not a multiple of 16"),
    ({"strides": (1 << 40,)}, "not below 2\\*\\*40"),
    ({"dims": (64, 0)}, "not 1 to 2\\*\\*32"),
    ({"box": (64, 257)}, "not 1 to 256"),
    ({"box": (64, 0)}, "not 1 to 256"),
    ({"box": (4, 16), "swizzle": 0}, "inner extent is 8 bytes, a multiple of 16"),
    ({"box": (128, 16)}, "256 bytes, more than the swizzle span of 128"),
    ({"box": (32, 16), "swizzle": 32}, "64 bytes, more than the swizzle span of 32"),
    ({"element_strides": (1, 9)}, "element strides"),
    ({"element_strides": (1, 0)}, "element strides"),
    ({"swizzle": 96}, "swizzle 96"),
    ({"interleave": 16}, "interleaved one has rank 3"),
    ({"data_type": "u8", "fill": "nan"}, "fill 'nan' is for floating-point"),
    ({"promotion": 32}, "L2 promotion 32"),
    ({"data_type": "c64"}, "cannot hold c64"),
])  # fmt: skip
def test_rules_of_the_driver(change, rule):
    TensorMapSpec(**RIGHT)
    with pytest.raises(LaunchError, match=rule):
        TensorMapSpec(**{**RIGHT, **change})


def test_arguments_of_the_driver():
    """In the order of cuTensorMapEncodeTiled, with its enumerations."""
    spec = TensorMapSpec("bf16", (64, 32, 7), (128, 4096), (64, 16, 1), (1, 2, 1), 0, 64 * 2, 256, "nan")
    want = (9, 3, 0x7000, (64, 32, 7), (128, 4096), (64, 16, 1), (1, 2, 1), 0, 3, 3, 1)
    assert spec.driver_arguments(0x7000) == want
    with pytest.raises(LaunchError, match="0x7008 is not a multiple of 16"):
        spec.driver_arguments(0x7008)
    wide = TensorMapSpec("u8", (16, 64, 32), (32, 64), (16, 64, 1), (), 32, 32)
    with pytest.raises(LaunchError, match="multiple of 32"):
        wide.driver_arguments(0x7010)


def test_enumerations_are_the_drivers():
    driver = pytest.importorskip("cuda.bindings.driver")
    names = {"i": "INT", "u": "UINT", "f": "FLOAT", "bf": "BFLOAT", "tf": "TFLOAT"}
    for name, code in DATA_TYPES.items():
        kind = name.split("_")[0].rstrip("0123456789")
        spelled = names[kind] + name[len(kind) :].upper()
        assert code == int(getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{spelled}"))
    for table, enum, prefix in (
        (SWIZZLES, driver.CUtensorMapSwizzle, "CU_TENSOR_MAP_SWIZZLE_"),
        (INTERLEAVES, driver.CUtensorMapInterleave, "CU_TENSOR_MAP_INTERLEAVE_"),
        (PROMOTIONS, driver.CUtensorMapL2promotion, "CU_TENSOR_MAP_L2_PROMOTION_"),
    ):
        for size, code in table.items():
            wanted = {f"{prefix}{size}B", f"{prefix}L2_{size}B"} if size else {f"{prefix}NONE"}
            assert [int(x) for x in enum if x.name in wanted] == [code], (prefix, size)
    fills = driver.CUtensorMapFloatOOBfill
    assert FILLS == {
        "zero": int(fills.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "nan": int(fills.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA),
    }


def test_too_much_shared_memory():
    with pytest.raises(LaunchError, match="a CTA on sm_90a has 232448"):
        launch(module(".param .u64 x", "ret;"), [None], shared=232449)
    launch(module(".param .u64 x", "ret;"), [None], shared=232448)


def test_the_emulators_bytes_round_trip():
    for spec in (
        TensorMapSpec("f32_ftz", (1 << 32,), (), (4,)),
        TensorMapSpec(**RIGHT),
        TensorMapSpec("u8", (16, 64, 32, 2, 9), (32, 64, 1 << 39, 0), (16, 3, 1, 2, 1), (1, 8, 1, 2, 3), 16, 0, 64),
    ):
        data = encode(spec, 0x1230)
        assert len(data) == 128 and decode(data) == (spec, 0x1230)
    assert decode(bytes(128)) is None


def test_defaults_from_the_array():
    array = np.zeros((5, 6, 16), np.int8)
    spec = TensorMap(array, (16, 2, 1)).spec
    assert (spec.data_type, spec.dims, spec.strides, spec.element_strides) == ("u8", (16, 6, 5), (16, 96), (1, 1, 1))
    with pytest.raises(LaunchError, match="inner stride"):
        TensorMap(np.zeros((16, 32), np.float32)[:, ::2], (4, 4))
    with pytest.raises(LaunchError, match="stride 20"):
        TensorMap(np.zeros((16, 5), np.float32), (4, 4))


def test_parameters():
    text = module(".param .u64 map", "ret;")
    with pytest.raises(LaunchError, match="no tensor map"):
        launch(text, [TensorMap(np.zeros((8, 16), np.float32), (4, 4))])
    text = module(".param .align 64 .b8 map[128]", "ret;")
    shifted = np.zeros(8 * 16 + 1, np.float32)[1:].reshape(8, 16)
    if shifted.ctypes.data % 16:
        with pytest.raises(LaunchError, match="not a multiple of 16"):
            launch(text, [TensorMap(shifted, (4, 4))])
    launch(text, [TensorMap(np.zeros((8, 16), np.float32), (4, 4))], checks=True)


def test_a_map_that_starts_in_front_of_its_array():
    """One dimension named twice, counted from its last row before the array: boxes end where the last coordinate says."""
    array = np.random.default_rng(3).integers(0, 1 << 16, (20, 16), np.uint16)
    rows, stride = array.shape[0], array.strides[0]
    ended = TensorMap(array, (16, 8, 1), dims=(16, rows, rows), strides=(stride, stride), shift=-stride * (rows - 1))
    for row, end in ((3, 20), (3, 9), (3, 3), (0, 1), (16, 20), (5, 0)):
        want = np.zeros((8, 16), np.uint16)
        want[: max(0, min(8, end - row))] = array[row : min(row + 8, max(end, row))]
        got = loaded(ended, (0, row + rows - end, end - 1)).view(np.uint16).reshape(8, 16)
        np.testing.assert_array_equal(got, want, f"{row} {end}")


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d1, {0, 4}];", ""),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d1, {-8, 400}];", ""),  # what lies outside is dropped
        ("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%d1, {0, 4, 0}];", "hazard"),
        ("cp.async.bulk.prefetch.L2.global [%d2], 64;", ""),
        ("cp.async.bulk.prefetch.L2.global [%d2], 40;", "misaligned"),
        ("add.s64 %d2, %d2, 4; cp.async.bulk.prefetch.L2.global [%d2], 32;", "misaligned"),
        ("cp.async.bulk.prefetch.L2.global [%d2], 4096;", "out-of-bounds"),
    ],
)
def test_what_is_asked_for_could_be_copied(ask, kind):
    array = np.arange(8 * 32, dtype=np.float32).reshape(8, 32)
    body = f"mov.b64 %d0, map; cvta.param.u64 %d1, %d0; ld.param.u64 %d2, [out];\n{ask}\nret;"
    text = module(".param .align 64 .b8 map[128], .param .u64 out", body, 32)
    report = launch(text, [TensorMap(array, (8, 4)), np.zeros(64, np.float32)], block=32, shared=16)
    assert {f.kind for f in report.findings} == ({kind} if kind else set()), [str(f) for f in report.findings]
