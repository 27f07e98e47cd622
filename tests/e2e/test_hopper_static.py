"""What ptxas makes of warpgroup kernels: nothing is spilled, and matrix instructions overlap.

ptxas runs asynchronous matrix instructions one after the other where it cannot prove their registers safe, says so in a
warning, and marks every one of them as the end of a group. So per configuration: no spills, none of its warnings, and
exactly as many ends of groups in the machine code as groups in the text.
"""

from __future__ import annotations

import re
from typing import Any

import example_files
import hopper
import pytest
from hopper import tiles
from products import BF16, F16, F16_OUT, I8, TF32, K, Kind, M, N

import wavedsl as wd

pytestmark = pytest.mark.warpgroups

FP8 = Kind("f8e4m3", wd.f8e4m3, wd.f32, wd.bf16)
FP8_OUT = Kind("f8e4m3-out", wd.f8e4m3, wd.f32, wd.f8e4m3)
BF16_F32 = Kind("bf16-out-f32", wd.bf16, wd.f32, wd.f32)
F16_SUMS = Kind("f16-sums", wd.f16, wd.f16, wd.f16)
DEALT = wd.Schedule(stream_k=True)
ALONE = wd.Schedule(specialize=False)
FULL = tiles(128, 256, 64, 64, 256)

CONFIGURATIONS: dict[str, tuple[Kind, dict[Any, int], dict[str, Any]]] = {
    "bf16 128x256x64": (BF16, tiles(128, 256, 64, 64, 256), {}),
    "bf16 256x128x64": (BF16, tiles(256, 128, 64, 128, 128), {}),
    "bf16 256x128x64 four waves": (BF16, tiles(256, 128, 64, 64, 128), {}),
    "bf16 128x192x64": (BF16, tiles(128, 192, 64, 64, 192), {}),
    "bf16 192x192x64 three waves": (BF16, tiles(192, 192, 64, 64, 192), {}),
    "bf16 128x128x64": (BF16, tiles(128, 128, 64, 64, 128), {}),
    "bf16 128x128x128": (BF16, tiles(128, 128, 128, 64, 128), {}),
    "bf16 64x256x64 one wave": (BF16, tiles(64, 256, 64, 64, 256), {}),
    "bf16 128x176x64": (BF16, tiles(128, 176, 64, 64, 176), {}),
    "bf16 64x64x64": (BF16, tiles(64, 64, 64, 64, 64), {}),
    "bf16 128x256x32, swizzle of 64": (BF16, tiles(128, 256, 32, 64, 256), {}),
    "bf16 128x256x64 two stages": (BF16, tiles(128, 256, 64, 64, 256), {"schedule": wd.Schedule(stages=2)}),
    "bf16 128x128x64 one stage": (BF16, tiles(128, 128, 64, 64, 128), {"schedule": wd.Schedule(stages=1)}),
    "bf16 128x256x64 without roles": (BF16, tiles(128, 256, 64, 64, 256), {"schedule": ALONE}),
    "bf16 128x128x64 without roles, three stages": (
        BF16,
        tiles(128, 128, 64, 64, 128),
        {"schedule": wd.Schedule(specialize=False, stages=3)},
    ),
    "f16 128x256x64, f16 out": (F16_OUT, tiles(128, 256, 64, 64, 256), {}),
    "f16 sums 128x256x64": (F16_SUMS, tiles(128, 256, 64, 64, 256), {}),
    "f16 128x256x64, B along N": (F16, tiles(128, 256, 64, 64, 256), {"b_order": "KN"}),
    "f16 128x128x64, A along M, B along N": (F16, tiles(128, 128, 64, 64, 128), {"a_order": "KM", "b_order": "KN"}),
    "bf16 128x256x64 bias relu": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "bias relu"}),
    "bf16 128x256x64 scales bias addend gelu": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "all"}),
    "bf16 128x256x64 alpha beta": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "alpha beta"}),
    "bf16 128x256x64 scales silu": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "scales silu"}),
    "bf16 256x128x64 gelu": (BF16, tiles(256, 128, 64, 128, 128), {"epilogue": "gelu"}),
    "bf16 128x256x64 gelu by tanh": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "gelu tanh"}),
    "bf16 128x256x64 gelu by tanh, fast": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "gelu tanh fast"}),
    "bf16 32x128x64 swapped": (BF16, tiles(32, 128, 64, 32, 64), {}),
    "bf16 32x256x64 swapped gelu": (BF16, tiles(32, 256, 64, 32, 128), {"epilogue": "gelu"}),
    "fp8 128x256x128, fp8 out": (FP8_OUT, tiles(128, 256, 128, 64, 256), {}),
    "fp8 128x128x128 block scales": (FP8, tiles(128, 128, 128, 64, 128), {"epilogue": "block scales"}),
    "fp8 128x256x128": (FP8, tiles(128, 256, 128, 64, 256), {}),
    "fp8 128x128x128 bias relu": (FP8, tiles(128, 128, 128, 64, 128), {"epilogue": "bias relu"}),
    "f16 128x256x64, A of i8": (F16, tiles(128, 256, 64, 64, 256), {"stored": (wd.i8, None)}),
    "f16 128x128x64, B of i4": (F16, tiles(128, 128, 64, 64, 128), {"stored": (None, wd.i4)}),
    "f16 128x256x64, B of i8": (F16, tiles(128, 256, 64, 128, 128), {"stored": (None, wd.i8)}),
    "f16 128x256x64, A and B of i8": (F16, tiles(128, 256, 64, 64, 256), {"stored": (wd.i8, wd.i8)}),
    "f16 128x128x64, A and B of bf16": (F16, tiles(128, 128, 64, 64, 128), {"stored": (wd.bf16, wd.bf16)}),
    "bf16 128x256x64 dealt": (BF16, tiles(128, 256, 64, 64, 256), {"schedule": DEALT}),
    "bf16 128x128x64 alpha beta, dealt": (
        BF16, tiles(128, 128, 64, 64, 128), {"epilogue": "alpha beta", "schedule": DEALT},
    ),
    "bf16 128x256x64 bias relu, dealt": (
        BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "bias relu", "schedule": DEALT},
    ),
    "i8 128x256x128": (I8, tiles(128, 256, 128, 64, 256), {}),
    "i8 128x128x64": (I8, tiles(128, 128, 64, 64, 128), {}),
    "bf16 160x256x64 alpha beta, swapped": (BF16, tiles(160, 256, 64, 160, 128), {"epilogue": "alpha beta"}),
    "bf16 160x256x64 alpha beta, swapped, cut in two": (
        BF16, tiles(160, 256, 64, 160, 128), {"epilogue": "alpha beta", "schedule": wd.Schedule(split_k=2)},
    ),
    "bf16 256x160x64 alpha beta": (BF16, tiles(256, 160, 64, 128, 160), {"epilogue": "alpha beta"}),
    "tf32 128x256x32 alpha beta": (TF32, tiles(128, 256, 32, 64, 256), {"epilogue": "alpha beta"}),
    "bf16 128x192x64, clusters along N": (
        BF16, tiles(128, 192, 64, 64, 192), {"schedule": wd.Schedule(cluster=(1, 2, 1))},
    ),
    "bf16 128x256x64 in place": (BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "in place"}),
    "bf16 128x256x64 in place, f32 out": (BF16_F32, tiles(128, 256, 64, 64, 256), {"epilogue": "in place"}),
    "bf16 128x256x64 in place, cut in two": (
        BF16, tiles(128, 256, 64, 64, 256), {"epilogue": "in place", "schedule": wd.Schedule(split_k=2)},
    ),
    "bf16 160x256x64 in place, swapped": (BF16, tiles(160, 256, 64, 160, 128), {"epilogue": "in place"}),
    "bf16 128x128x64 in place, dealt": (
        BF16, tiles(128, 128, 64, 64, 128), {"epilogue": "in place", "schedule": DEALT},
    ),
    "bf16 192x192x64 scales bias addend gelu, joined": (
        BF16, tiles(192, 192, 64, 64, 192),
        {"epilogue": "all", "schedule": wd.Schedule(split_k=2, cluster=(1, 1, 2))},
    ),
    "bf16 128x256x64 in place, joined, f32 out": (
        BF16_F32, tiles(128, 256, 64, 64, 256),
        {"epilogue": "in place", "schedule": wd.Schedule(split_k=2, cluster=(2, 1, 2))},
    ),
    "bf16 192x192x64 scale bias addend, joined": (
        BF16, tiles(192, 192, 64, 64, 192),
        {"epilogue": "scale bias addend", "schedule": wd.Schedule(split_k=2, cluster=(1, 1, 2))},
    ),
    "bf16 160x256x64 scale bias addend, dealt, f32 out": (
        BF16_F32, tiles(160, 256, 64, 160, 128), {"epilogue": "scale bias addend", "schedule": DEALT},
    ),
    # ptxas refuses 256 columns at once where threads start with 128 registers, whoever gets more later.
    "bf16 192x256x64 three waves": (BF16, tiles(192, 256, 64, 64, 256), {}),
    "bf16 256x192x64": (BF16, tiles(256, 192, 64, 128, 192), {}),
    "bf16 128x320x64": (BF16, tiles(128, 320, 64, 64, 320), {}),
}
NAMED = (
    "bf16 128x256x64 in place", "bf16 192x256x64 three waves", "bf16 192x192x64 scale bias addend, joined",
)
QUICK = (0, 13, 18, 21, 24, *map(list(CONFIGURATIONS).index, NAMED))


def _when(place: int) -> list[Any]:
    """Half of what is slow is left to be run by hand."""
    return [] if place in QUICK else [pytest.mark.slow, *([pytest.mark.exhaustive] if place % 2 else [])]


@pytest.mark.parametrize("name", [pytest.param(n, marks=_when(i)) for i, n in enumerate(CONFIGURATIONS)])
def test_matrix_instructions_overlap_and_nothing_spills(name: str, oracle: Any) -> None:
    oracle("ptxas"), oracle("nvdisasm")
    kind, subs, options = CONFIGURATIONS[name]
    guard(hopper.gemm(kind, **options).compile(target="sm_90a", subs={**subs, M: 4096, N: 4224, K: 4096}).asm)


@pytest.mark.parametrize(
    ("kind", "tile", "epilogue", "options"),
    [
        (BF16, (128, 256, 64, 64, 256), "", {"cluster": (2, 2, 1)}),
        pytest.param(FP8, (128, 128, 128, 64, 128), "block scales", {"cluster": (4, 2, 1)}, marks=pytest.mark.slow),
        pytest.param(
            BF16, (64, 256, 64, 64, 256), "gelu", {"cluster": (2, 4, 1), "ping_pong": True}, marks=pytest.mark.slow
        ),
        pytest.param(
            BF16, (128, 256, 64, 64, 256), "alpha beta", {"cluster": (2, 2, 1), "split_k": 2}, marks=pytest.mark.slow
        ),
    ],
    ids=["plain", "fp8 block scales", "in turn, gelu", "cut in two, alpha beta"],
)
def test_clusters_along_both_axes(
    kind: Kind, tile: tuple[int, ...], epilogue: str, options: dict[str, Any], oracle: Any
) -> None:
    """Which workgroups are told and which receive is worked out from the rank, in registers of both roles."""
    oracle("ptxas"), oracle("nvdisasm")
    kernel = hopper.gemm(kind, epilogue=epilogue, schedule=wd.Schedule(**options))
    guard(kernel.compile(target="sm_90a", subs={**tiles(*tile), M: 4096, N: 4096, K: 4096}).asm)


def _in_turn(place: int, quick: bool) -> list[Any]:
    """Marks of a case of a product of two lists: quick ones in the default run, of the others every second in CI, so
    that it has all of either list."""
    return [] if quick else [pytest.mark.slow, pytest.mark.exhaustive][: 1 + place % 2]


HEAVY = ("bias relu", "silu", "gelu tanh", "gelu", "scale bias addend", "two silu", "two erf")
CUTS = {"alone": None, "dealt": DEALT, "split": wd.Schedule(split_k=2)}


@pytest.mark.parametrize(
    ("epilogue", "cut"),
    [
        pytest.param(e, c, marks=_in_turn(i + j, (e, c) in (("silu", "split"), ("two silu", "dealt"))))
        for i, e in enumerate(HEAVY)
        for j, c in enumerate(CUTS)
    ],
)
def test_heavy_epilogues_behind_sums_of_parts_do_not_spill(epilogue: str, cut: str, oracle: Any) -> None:
    """128 x 256 on two computing warpgroups: sums fill half of the registers, and what is done with them stands once
    for a whole tile and once for added parts, which are read, added and stored as they come."""
    oracle("ptxas")
    kernel = hopper.gemm(BF16, epilogue=epilogue, schedule=CUTS[cut])
    text = kernel.compile(target="sm_90a", subs={**FULL, M: 4096, N: 4224, K: 4096}).asm
    assert hopper.spilled_or_serialised(text) == (0, ())


@pytest.mark.slow
@pytest.mark.parametrize("tile", [(256, 128, 64, 64, 128), (256, 128, 64, 128, 128)])
def test_epilogues_of_dealt_whole_tiles_do_not_spill(tile: tuple[int, ...], oracle: Any) -> None:
    """As many tiles as whole rounds: nothing is shared, and tiles are placed by loops."""
    oracle("ptxas")
    kernel = hopper.gemm(BF16, epilogue="two erf", schedule=DEALT)
    text = kernel.compile(target="sm_90a", subs={**tiles(*tile), M: 4096, N: 4224, K: 4096}).asm
    assert hopper.spilled_or_serialised(text) == (0, ())


def guard(text: str) -> None:
    """Nothing is spilled, and groups of products overlap."""
    found = hopper.static(text)
    assert found.spills == 0 and not found.codes
    assert found.products > 0
    assert found.groups == len(re.findall(r"\bcommit_group\.sync", text))


@pytest.mark.parametrize("tile", [(128, 128, 32), pytest.param((128, 256, 32), marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", ["3xtf32", pytest.param("tf32", marks=pytest.mark.slow)])
def test_products_of_f32_overlap(precision: str, tile: tuple[int, int, int], oracle: Any) -> None:
    """One product of tf32, or three of operands that waves split."""
    oracle("ptxas"), oracle("nvdisasm")
    m, n, k = tile

    @wd.wave([wd.WorkgroupConstraint(M, m, 0), wd.WorkgroupConstraint(N, n, 1), wd.TilingConstraint(K, k)])
    def gemm(a: wd.Memory[M, K, wd.f32], b: wd.Memory[N, K, wd.f32], c: wd.Memory[M, N, wd.f32]):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc, precision=precision)

        wd.write(loop, c)

    guard(gemm.compile(target="sm_90a", subs={M: 4096, N: 4096, K: 4096}).asm)


convolution = example_files.load("convolution")


@pytest.mark.parametrize("channels", [64, pytest.param(8, marks=pytest.mark.slow)])
def test_gathers_come_by_wide_copies(channels: int, oracle: Any) -> None:
    """A convolution: no lane loads a pixel, threads of the copying warpgroup copy vectors, in registers that it has."""
    oracle("ptxas"), oracle("nvdisasm")
    c = convolution
    kernel = c.convolution_kernel(wd.f16, 3, 56, channels)
    text = kernel.compile(
        target="sm_90a", subs={c.B: 64, c.H: 56, c.W: 56, c.C: channels, c.P: 3136, c.F: 64, c.K: 9 * channels}
    ).asm
    guard(text)
    assert "ld.global" not in text and re.findall(r"cp\.async\.ca\..*, (\d+), %r\d+;", text) == ["16"] * 8
    assert "cp.async.mbarrier.arrive.noinc" in text


grouped = example_files.load("grouped_gemm")


def test_experts_that_are_left_out(oracle: Any) -> None:
    """Tokens are gathered, and blocks without an expert exit: both roles work out whether theirs is one."""
    oracle("ptxas"), oracle("nvdisasm")
    g = grouped
    sizes = {g.T: 4096, g.G: 80, g.R: 64, g.E: 8, g.N: 4096, g.K: 4096}
    text = g.grouped_kernel(wd.bf16).compile(target="sm_90a", subs=sizes).asm
    guard(text)
    assert "setmaxnreg" in text and re.search(r"cp\.async\.cg\..*, 16, %r\d+;", text)


@pytest.mark.parametrize(
    ("k", "tile"), [(4092, (128, 256, 64)), pytest.param(4094, (256, 128, 64), marks=pytest.mark.slow)]
)
def test_rows_that_no_tensor_map_takes(k: int, tile: tuple[int, int, int], oracle: Any) -> None:
    """Rows of no multiple of 16 bytes: 128 threads copy both operands, 8 or 4 bytes at a time."""
    oracle("ptxas"), oracle("nvdisasm")
    sizes = tiles(*tile, 64, 256) if tile[1] == 256 else tiles(*tile, 128, 128)
    text = hopper.gemm(BF16).compile(target="sm_90a", subs={**sizes, M: 4096, N: 4224, K: k}).asm
    guard(text)
    assert "cp.async.mbarrier.arrive.noinc" in text and "setmaxnreg" in text


block_scaled = example_files.load("block_scaled_gemm")


@pytest.mark.parametrize("tile", [(128, 128), pytest.param((128, 64), marks=pytest.mark.slow)])
def test_block_scaled_products_overlap(tile: tuple[int, int], oracle: Any) -> None:
    """fp8 with scales per 128 of K, added up in registers: one step a number and a block, what scales are loaded of and
    multiplied to beside the products."""
    oracle("ptxas"), oracle("nvdisasm")
    sizes = dict(zip((block_scaled.M, block_scaled.N, block_scaled.K), (4096, 4096, 4096)))
    blocks = {block_scaled.KB: 32, block_scaled.NB: 32}
    kernel = block_scaled.block_scaled_kernel(wd.f8e4m3, wd.bf16, tile)
    text = kernel.compile(target="sm_90a", subs={**sizes, **blocks}).asm
    guard(text)
    during, behind = text[text.index("$K1:") : text.index("$K1_end")].split("wgmma.wait_group")
    assert behind.count("fma.rn.f32") == tile[0] * tile[1] // 256 and "mul." not in behind and "ld." not in behind
    assert during.count("ld.global") == during.count("mul.rn.f32") + 1


attention = example_files.load("attention")
varlen = example_files.load("attention_varlen")
paged = example_files.load("attention_decode")

OPTIONS: dict[str, dict[str, Any]] = {
    "full": {}, "causal": {"causal": True}, "grouped": {"group": 4}, "fp8": {}, "fp8 causal": {"causal": True}
}  # fmt: skip


def attention_text(kind: str, d: int) -> str:
    """Attention's text for heads of size `d`: tiles as the example chooses them, pages of 128 keys; for fp8 V's keys
    lie along memory."""
    if kind == "packed":
        variant = varlen.Variant(wd.bf16, causal=True, group=4)
        sizes = dict(zip("Z Z1 M N H G TQ TK".split(), (8, 9, 4096, 4096, 16, 4, 16384, 16384)))
        subs = {getattr(varlen, name): n for name, n in sizes.items()}
        tile, waves = attention.tile_of("sm_90a", d, True)
        kernel = varlen.varlen_kernel(variant, tile=tile, waves=waves)
        return kernel.compile(target="sm_90a", subs={**subs, varlen.D: d, varlen.E: d}).asm
    if kind == "paged":
        kernel = paged.split_kernel(paged.Variant(wd.bf16, group=4), page=128, pages=32, splits=4, tile=64, rows=64)
        sizes = {paged.Z: 8, paged.G: 4, paged.M: 64, paged.P: 512, paged.J: 32}
        return kernel.compile(target="sm_90a", subs={**sizes, paged.D: d, paged.E: d}).asm
    narrow = {"out": wd.bf16, "v_order": "bhds"} if "fp8" in kind else {}
    variant = attention.Variant(wd.f8e4m3 if narrow else wd.bf16, **OPTIONS[kind], **narrow)
    tile, waves = attention.tile_of("sm_90a", d, variant.causal, variant.dtype.bits)
    sizes = {attention.B: 2, attention.H: 16, attention.G: 16 // variant.group, attention.M: 4096, attention.N: 4096}
    kernel = attention.attention_kernel(variant, tile=tile, waves=waves)
    return kernel.compile(target="sm_90a", subs={**sizes, attention.D: d, attention.E: d}).asm


def groups_in_flight(text: str) -> list[tuple[int, list[str]]]:
    """Per exponential inside a loop how many groups of products run beside it, and per loop the most that do, by where
    their first operand is (`shared` or `registers`)."""
    found = []
    running: list[str] = []
    most: list[str] = []
    beside: list[int] = []
    inside = ""
    for line in text.splitlines():
        if label := re.match(r"(\$N\w*):", line):
            inside = label[1] if not label[1].endswith("_end") else ""
            most, beside = [], []
        elif start := re.search(r"mma_async\S+ \{[^}]*\}, (.)", line):
            source = "registers" if start[1] == "{" else "shared"
        elif "commit_group" in line:
            running.append(source)
            most = max(most, list(running), key=len)
        elif wait := re.search(r"wait_group\S* (\d+)", line):
            running = running[len(running) - min(int(wait[1]), len(running)) :]
        elif "ex2.approx" in line and inside:
            beside.append(len(running))
        if inside and re.search(rf"bra\s+{re.escape(inside)};", line):
            found.append((min(beside, default=0), most))
            inside = ""
    return found


QUICK_ATTENTION = {("full", 128), ("causal", 64), ("packed", 128), ("paged", 256)}


@pytest.mark.parametrize(
    ("kind", "d"),
    [
        pytest.param(kind, d, marks=_in_turn(i + j, (kind, d) in QUICK_ATTENTION))
        for i, kind in enumerate((*OPTIONS, "packed", "paged"))
        for j, d in enumerate((64, 128, 256))
    ],
)
def test_attention_overlaps_and_nothing_spills(kind: str, d: int, oracle: Any) -> None:
    """Q K of the next block runs beside P V of this one, and P V beside the softmax of the next; a causal loop is cut
    in two, with masks and without, and both parts do."""
    oracle("ptxas"), oracle("nvdisasm")
    text = attention_text(kind, d)
    found = hopper.static(text)
    assert found.spills == 0 and not found.codes
    assert found.groups == len(re.findall(r"\bcommit_group\.sync", text)) >= 2
    loops = groups_in_flight(text)
    assert len(loops) >= (2 if "causal" in kind or kind == "packed" else 1)
    assert all(beside >= 1 and most == ["shared", "registers"] for beside, most in loops)
    # Wide heads' products take so long that softmaxes need no turns, 8-bit ones but half as long; three warpgroups have
    # none.
    assert ("bar.arrive" in text) == (kind != "paged" and (d == 128 or (d == 256 and "fp8" in kind)))
    # Weights of any width become an operand where they are: only sums and maxima of two rows move, twice each.
    assert text.count("shfl") <= 8 * (len(loops) + 2) and "prmt" not in text


backward = example_files.load("attention_backward")
packed_backward = example_files.load("attention_varlen_backward")


GRADIENTS = {
    "d 64, causal": (64, 64, {"causal": True}, None),
    "d 64": (64, 64, {}, None),
    "d 64, alibi": (64, 64, {"alibi": True, "causal": True}, None),
    "d 128, causal": (128, 128, {"causal": True}, None),
    "d 128": (128, 128, {}, None),
    "d 128, 32 queries": (128, 128, {}, backward.Tiles(128, 32, 2)),
    "d 192 and 128, grouped": (192, 128, {"group": 4}, None),
    "packed, d 64, causal, grouped": (64, 64, {"causal": True, "group": 4}, None),
    "packed, d 256": (256, 256, {}, None),
    "d 256, causal": (256, 256, {"causal": True}, None),
    "d 256": (256, 256, {}, None),
}
"""Head sizes of keys and values, options, tiles (None: the example's own)."""
ONE_STAGE = {
    *(("attention_keys", name) for name in ("d 128", "d 128, causal", "d 192 and 128, grouped")),
    *((f"attention_{of}", name) for of in ("keys_k", "queries") for name in ("d 256", "d 256, causal")),
    ("attention_varlen_queries", "packed, d 256"),
}
"""Where registers do not hold the products of two trips beside the sums."""


IN_CI = ("d 64, alibi", "d 128", "d 192 and 128, grouped", "packed, d 64, causal, grouped", "d 256, causal")


@pytest.mark.parametrize(
    "name",
    [
        n if n == "d 64, causal" else pytest.param(n, marks=pytest.mark.slow if n in IN_CI else pytest.mark.exhaustive)
        for n in GRADIENTS
    ],
)
def test_gradients_of_attention_overlap_and_nothing_spills(name: str, oracle: Any) -> None:
    """Four products per trip of the keys' loop, or per kernel of two or three where dK and dV have one each; two or one
    of them from registers; three of the queries'. One warpgroup copies everything, the rows of the log-sum-exp and of
    delta too: nothing in a loop makes all others meet."""
    oracle("ptxas"), oracle("nvdisasm")
    d, e, options, tiles = GRADIENTS[name]
    variant = backward.Variant(wd.bf16, **options)
    sizes = {backward.B: 2, backward.H: 16, backward.G: 16 // variant.group, backward.M: 4096, backward.N: 4096}
    if packed := name.startswith("packed"):
        more = dict(zip((varlen.Z, varlen.Z1, varlen.TQ, varlen.TK), (8, 9, 16384, 16384)))
        sizes = {**sizes, **more}
        del sizes[backward.B]
    example = packed_backward if packed else backward
    for kernel in example.kernels(variant, tiles or backward.tile_for(variant, "sm_90a", d, e, packed)):
        if not re.search("_(keys(_[kv])?|queries)$", kernel.name) or ("varlen" in kernel.name) != packed:
            continue
        compiled = kernel.compile(target="sm_90a", subs={**sizes, backward.D: d, backward.E: e})
        found = hopper.static(compiled.asm)
        assert found.products > 0 and found.spills == 0 and not found.codes
        assert found.groups == len(re.findall(r"\bcommit_group\.sync", compiled.asm))
        strategy = compiled.kernel_ir.notes["lowering"].strategy
        assert strategy.specialize
        assert strategy.overlapped == ((kernel.name, name) not in ONE_STAGE)
        assert strategy.overlapped or "registers" in strategy.why["products"]


@pytest.mark.parametrize(
    ("d", "of", "group", "stages", "results"),
    [
        (256, "k", 1, 2, "from registers"),  # two slots of Q, which the next scores read beside dK, one of dO
        pytest.param(192, "k", 1, 3, "no slot to tiles that two trips read", marks=pytest.mark.slow),
        pytest.param(256, "v", 4, 2, "", marks=pytest.mark.slow),  # one of K for each head of queries, two of Q and dO
    ],
)
def test_what_two_trips_read_has_a_slot_more(d: int, of: str, group: int, stages: int, results: str) -> None:
    """Copies run ahead although tiles are large: before results have buffers, and before what a loop around has once
    has two slots."""
    kernel = backward.keys_kernel(backward.Variant(wd.bf16, group=group), tile=(64, 128), waves=2, of=of)
    sizes = {backward.B: 2, backward.H: 16, backward.G: 16 // group, backward.M: 4096, backward.N: 4096, backward.D: d}
    compiled = kernel.compile(target="sm_90a", subs=sizes | {backward.E: d})
    strategy = compiled.kernel_ir.notes["lowering"].strategy
    assert strategy.stages == stages and not strategy.outlets == bool(results)
    assert results in "\n".join(strategy.lines())


@pytest.mark.parametrize("options", [{}, pytest.param({"causal": True}, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("d", [64, 128])
def test_gradients_by_atomics_do_not_spill(d: int, options: dict[str, Any], oracle: Any) -> None:
    """Five products per trip, two of them from registers. dQ is added to memory by bulk reductions, while dK runs; the
    warpgroups meet once a trip, for dS in shared memory."""
    oracle("ptxas"), oracle("nvdisasm")
    variant = backward.Variant(wd.bf16, **options)
    tiles = backward.tile_of("sm_90a", d)
    kernel = next(k for k in backward.kernels(variant, tiles, deterministic=False) if k.name == "attention_gradients")
    sizes = {backward.B: 2, backward.H: 16, backward.G: 16, backward.M: 4096, backward.N: 4096}
    compiled = kernel.compile(target="sm_90a", subs={**sizes, backward.D: d, backward.E: d})
    found = hopper.static(compiled.asm)
    assert found.spills == 0 and not found.codes
    loop = compiled.asm[compiled.asm.index("$M1:") : compiled.asm.index("$M1_end:")]
    assert loop.count("wgmma.commit_group") == 5 and len(re.findall(r"bar\.sync +1, 256", loop)) == 1
    assert loop.count("cp.reduce.async.bulk") == d // 2 // 32 and "red.global" not in loop
    meeting = re.search(r"bar\.sync +1, 256", loop)
    assert meeting and loop[: meeting.start()].count("wgmma.commit_group") == 3  # dV has been started
    last = loop.rindex("mma_async")
    added = loop.index("cp.reduce")
    assert last < added and "wait_group.sync.aligned 1;" in re.sub(" +", " ", loop[last:added])


gpu_attention = example_files.load("gpu_attention", example_files.BENCHMARKS)
attention_checks = example_files.load("attention_checks", example_files.BENCHMARKS)
CHECKED = dict(gpu_attention.checks(tiny=False))
QUICK_CHECKS = ("f8, d 64", "plain, d 128", "gradients, causal, d 128")
SLOW_CHECKS = (
    "f8, keys along V, d 256", "gradients, window, cap, d 128", "gradients, alibi, sinks, d 128",
    "gradients, f8, d 256", "gradients, pack of lengths, d 128",
)  # fmt: skip


def _when_checked(name: str) -> list[Any]:
    if name in QUICK_CHECKS:
        return []
    return [pytest.mark.slow, *([] if name in SLOW_CHECKS else [pytest.mark.exhaustive])]


@pytest.mark.parametrize("name", [pytest.param(name, marks=_when_checked(name)) for name in CHECKED])
def test_no_option_of_attention_spills(name: str, oracle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the GPU's benchmark checks before it times anything: 300 queries and 1111 keys, which no tile divides and
    whose rows no bulk copy brings, sequences of 1 to 1000 tokens; every option of the examples, by their tiles."""
    oracle("ptxas")
    monkeypatch.setenv("WAVEDSL_DEVICE", "")  # a rehearsal sets it
    rehearsal = gpu_attention.Rehearsal("sm_90a")
    for example in ("forward", "backward", "packed", "packed_backward", "paged"):
        monkeypatch.setattr(getattr(attention_checks, example), "check", lambda *given: 0)  # nothing has been computed
    with rehearsal.unit(name):
        CHECKED[name](gpu_attention.Place(rehearsal=rehearsal), "sm_90a", 0)
    assert rehearsal.kernels > 0 and not rehearsal.failed and not rehearsal.notes


def test_casts_that_a_loop_does_not_change_are_stored_once() -> None:
    """K and V of 8 bits, which products take in 16, lie in one slot each, written in front of the loop over queries;
    inside only Q is cast and stored, once per product that reads it."""
    variant = backward.Variant(wd.f8e4m3, out=wd.bf16)
    names = (backward.B, backward.H, backward.G, backward.M, backward.N, backward.D, backward.E)
    kernel = backward.keys_kernel(variant, tile=(32, 128), waves=2)
    text = kernel.compile(target="sm_90a", subs=dict(zip(names, (1, 4, 4, 1024, 1024, 128, 128)))).asm
    head, loop = text[: text.index("$M1:")], text[text.index("$M1:") : text.index("$M1_end:")]
    bytes_of_tile, bytes_of_store = 128 * 128 * 2, 16 * 256
    assert head.count("st.shared.v4") == 2 * bytes_of_tile // bytes_of_store
    assert loop.count("st.shared.v4") == 8 and loop.count("mma_async") > 0


def test_products_stay_in_one_trip_where_registers_do_not_hold_both(oracle: Any) -> None:
    """Scores of 128 x 96, weights as many, and 64 x 256 sums of each warpgroup are more than it has registers for."""
    oracle("ptxas"), oracle("nvdisasm")
    kernel = attention.attention_kernel(attention.Variant(wd.bf16), tile=(128, 96), waves=2)
    sizes = {attention.B: 1, attention.H: 2, attention.G: 2, attention.M: 4096, attention.N: 4096}
    compiled = kernel.compile(target="sm_90a", subs={**sizes, attention.D: 256, attention.E: 256})
    strategy = compiled.kernel_ir.notes["lowering"].strategy
    assert not strategy.overlapped and "registers" in strategy.why["products"]
    assert hopper.spilled_or_serialised(compiled.asm)[0] == 0


def test_there_are_enough_configurations() -> None:
    assert len(CONFIGURATIONS) >= 24


def test_the_guard_notices_products_that_do_not_overlap(oracle: Any) -> None:
    """Two products whose sums lie in the same registers in another order cannot be in flight together."""
    oracle("ptxas"), oracle("nvdisasm")
    kind, subs, options = CONFIGURATIONS["bf16 64x64x64"]
    text = hopper.gemm(kind, **options).compile(target="sm_90a", subs={**subs, M: 64, N: 64, K: 256}).asm
    bad = re.sub(r"(mma_async\S+ )\{(%r\d+), (%r\d+), ", r"\1{\3, \2, ", text, count=1)
    assert bad != text
    found = hopper.static(bad)
    assert found.codes and found.groups > len(re.findall(r"\bcommit_group\.sync", bad))
