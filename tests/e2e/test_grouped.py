"""Many products in one launch: ragged and empty groups, every path of copies; batches beside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import products
import pytest
from products import TARGETS

import wavedsl as wd
from wavedsl.analysis.roofline import analyze_compiled, product_named
from wavedsl.strategies import grouped_matmul, plan_grouped, warpgroups
from wavedsl.strategies.grouped import blocks, grouped
from wavedsl.strategies.kernels import Form
from wavedsl.strategies.warpgroups import BLOCK_COLUMNS, BLOCK_ROWS, MOST_AREA
from wavedsl.tuning.candidates import Candidate

pytestmark = pytest.mark.warpgroups

GROUPS = {"ragged": (70, 0, 130, 5, 1), "one": (64,), "small": (3, 2, 0, 0, 1), "even": (128, 128)}


def data(dtype: wd.DType, sizes: tuple[int, ...], n: int, k: int, b_rows: bool) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(n + k)
    shapes = ((sum(sizes), k), (len(sizes), *((n, k) if b_rows else (k, n))), (sum(sizes), n))
    out = dtype if dtype.bits > 8 else wd.f32
    a, b, c = (rng.integers(-3, 4, s).astype(x.storage) for s, x in zip(shapes, (dtype, dtype, out)))
    return a, b, c


def exact(a: np.ndarray, b: np.ndarray, sizes: tuple[int, ...], b_rows: bool) -> np.ndarray:
    ends = np.cumsum((0, *sizes))
    wide, each = a.astype(np.float64), b.astype(np.float64)
    parts = [wide[i:j] @ (m.T if b_rows else m) for i, j, m in zip(ends, ends[1:], each)]
    return np.concatenate(parts)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "b_rows", "beta"),
    [
        ("small", False, 0.0),
        pytest.param("ragged", True, 0.5, marks=pytest.mark.slow),
        pytest.param("even", False, 2.0, marks=pytest.mark.slow),
    ],
)
def test_every_group_meets_its_own_matrix(name: str, b_rows: bool, beta: float, target: str, oracle: Callable) -> None:
    sizes = GROUPS[name]
    a, b, c = data(wd.f16, sizes, 136, 616, b_rows)  # more trips than ptxas unrolls, which would spill
    want = (1.5 * exact(a, b, sizes, b_rows) + (beta * c.astype(np.float64) if beta else 0)).astype(c.dtype)
    if not beta:
        c[...] = np.nan
    chip = product_named(None, target)
    plan = plan_grouped(a, b, c, sizes, alpha=1.5, beta=beta, transpose_b=b_rows, product=chip)
    (launch,) = plan.launches
    compiled = launch.kernel.compile(*launch.arguments, target=target)
    compiled.emulate(*launch.arguments)
    np.testing.assert_array_equal(c, want)
    products.assemble(compiled, oracle)


@pytest.mark.parametrize("kind", ["bf16", pytest.param("f8e4m3", marks=pytest.mark.slow)])
def test_groups_at_any_row_come_by_bulk_copies(kind: str, oracle: Callable[[str], str]) -> None:
    """A block's rows start anywhere in the one array of all groups, which has one tensor map. Results leave by a map
    that ends where the group does: what follows is not written."""
    sizes, dtype = (70, 0, 130, 5, 90), getattr(wd, kind)
    a, b, c = data(dtype, sizes, 128, 192, True)
    want = exact(a, b, sizes, True)
    (launch,) = plan_grouped(a, b, c, sizes, transpose_b=True, product="H200").launches
    compiled = launch.kernel.compile(*launch.arguments, target="sm_90a")
    before = c.copy()
    a, b, group, first, rows, *others = launch.arguments
    compiled.emulate(a, b, group, first, np.where(first < 205, rows, 0).astype(rows.dtype), *others)
    np.testing.assert_array_equal(c[:205].astype(np.float64), want[:205].astype(c.dtype).astype(np.float64))
    np.testing.assert_array_equal(c[205:], before[205:])
    compiled.emulate(*launch.arguments)
    np.testing.assert_array_equal(c.astype(np.float64), want.astype(c.dtype).astype(np.float64))
    assert {p.name for p in compiled.params if p.kind == "tensormap"} == {"a", "b", "c"}
    assert "wgmma.mma_async" in compiled.asm
    assert "copying warpgroup" in compiled.kernel_ir.notes["lowering"].roles
    products.assemble(compiled, oracle)


BLOCKS = [
    pytest.param(rows, columns, marks=() if (rows, columns) == (144, 256) else pytest.mark.exhaustive)
    for rows, columns in itertools.product(BLOCK_ROWS, BLOCK_COLUMNS)
    if rows * columns <= MOST_AREA
]


@pytest.mark.parametrize(("rows", "columns"), BLOCKS)
def test_blocks_of_any_height_fit_registers(rows: int, columns: int, oracle: Callable[[str], str]) -> None:
    """And every group's matrix comes from memory once, whichever columns of it a workgroup reads."""
    chip, form, sizes = product_named("H200"), Form(wd.bf16, wd.bf16, True), [rows - 5, rows + 7] * 12
    best = warpgroups.cut_of_blocks(form, sizes, 2048, 1024, (rows, columns), chip)
    kernel = grouped(form, best.tile, best.waves, 0)
    table = blocks(sizes, rows)
    given = {"T": sum(sizes), "E": len(sizes), "N": 2048, "K": 1024, "G": len(table[0])}
    compiled = kernel.compile(target="sm_90a", subs={getattr(wd.sym, name): n for name, n in given.items()})
    assert "copy.bulk.store" in compiled.decisions.atoms[-1].ops
    products.assemble(compiled, oracle)
    least = 2 * (len(sizes) * 2048 * 1024 + sum(sizes) * (2048 + 1024))
    assert least < analyze_compiled(compiled, {}, product=chip).traffic.hbm < 1.05 * least


@pytest.mark.parametrize(
    ("sizes", "rows"), [([256] * 64, 128), ([250, 262] * 32, 144), ([16] * 8, 16), ([20, 12, 30] * 3, 32)]
)
def test_blocks_suit_the_groups(sizes: list[int], rows: int) -> None:
    """Groups that end a little past a block's rows would double them."""
    best = warpgroups.best_blocks(Form(wd.bf16, wd.bf16, True), sizes, 2048, 4096, product_named("H200"))
    assert best.tile[0] == rows


@pytest.mark.slow
def test_more_blocks_than_compute_units(oracle: Callable[[str], str]) -> None:
    """Workgroups that take several blocks read the table anew for each; two side by side have the same, and share the
    rows of A where they are a cluster."""
    sizes = tuple(np.random.default_rng(0).integers(0, 3, 160).tolist())
    a, b, c = data(wd.f16, sizes, 128, 64, True)
    want = exact(a, b, sizes, True).astype(c.dtype)
    (launch,) = plan_grouped(a, b, c, sizes, transpose_b=True, product="H200").launches
    pairs = launch.kernel.variant(Candidate((), (("cluster", 2),)))
    wide = pairs.compile(*launch.arguments, target="sm_90a", subs={**tiles(64, 64)})
    assert wide.kernel_ir.notes["lowering"].strategy.bulk and "multicast" in wide.asm
    arguments = [*launch.arguments[:2], *blocks(sizes, 64), *launch.arguments[5:]]
    wide.emulate(*arguments)
    np.testing.assert_array_equal(c, want)


def tiles(rows: int, columns: int) -> dict[str, int]:
    return {wd.sym.R: rows, wd.sym.BM: rows, wd.sym.BN: columns, wd.sym.WM: rows, wd.sym.WN: columns}


@pytest.mark.parametrize("order", ["NK", "KN"])
def test_a_batch_comes_by_bulk_copies(order: str, oracle: Callable[[str], str]) -> None:
    B, M, N, K = wd.symbols("B M N K")
    inner = (N, K) if order == "NK" else (K, N)

    @wd.wave(
        [
            wd.WorkgroupConstraint(B, 1, 2), wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1),
            wd.TilingConstraint(K, 64),
        ]
    )  # fmt: skip
    def batched(
        a: wd.Memory[B, M, K, wd.f16],
        b: wd.Memory[(B, *inner, wd.f16)],
        c: wd.Memory[B, M, N, wd.f32],
    ):
        @wd.iterate(K, init_args=[wd.Register[M, N, wd.f32](0.0)])
        def loop(acc):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    rng = np.random.default_rng(3)
    a = rng.integers(-3, 4, (3, 70, 136)).astype(np.float16)
    b = rng.integers(-3, 4, (3, 72, 136) if order == "NK" else (3, 136, 72)).astype(np.float16)
    c = np.zeros((3, 70, 72), np.float32)
    compiled = batched.compile(a, b, c, target="sm_90a")
    compiled.emulate(a, b, c)
    turned = b.swapaxes(1, 2) if order == "NK" else b
    np.testing.assert_array_equal(c, a.astype(np.float32) @ turned.astype(np.float32))
    assert "copying warpgroup" in compiled.kernel_ir.notes["lowering"].roles
    products.assemble(compiled, oracle)


def test_one_call_and_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    a, b, c = data(wd.f32, (3, 0, 20), 40, 30, False)
    want = exact(a, b, (3, 0, 20), False)
    assert grouped_matmul(a, b, c, (3, 0, 20)).strategy == "grouped"
    np.testing.assert_array_equal(c, want)
    assert grouped_matmul(a[:0], b, c[:0], (0, 0, 0)).launches == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"sizes": (3, 4)}, "sizes has 2 groups of 7 rows, but b has 3 groups and a has 8 rows"),
        ({"sizes": (3, 4, 2)}, "of 9 rows"),
        ({"sizes": (9, -1, 0)}, "3 groups"),
        ({"transpose_b": True}, r"a is \(8, 6\)"),
        ({"c": np.zeros(8, np.float32)}, "c"),
        ({"sizes": (3, 4.5, 1)}, r"sizes=\(3, 4\.5, 1\)"),
        ({"sizes": 8}, "sizes=8"),
        ({"alpha": "2"}, "alpha is a str"),
    ],
)
def test_mistakes(change: dict, why: str) -> None:
    shapes = {"a": (8, 6), "b": (3, 6, 5), "c": (8, 5)}
    given = {n: np.zeros(s, np.float32) for n, s in shapes.items()} | {"sizes": (3, 4, 1)} | change
    with pytest.raises(wd.LaunchError, match=why):
        plan_grouped(**given)
