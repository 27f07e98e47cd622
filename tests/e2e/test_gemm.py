"""Matrix products from Python to numbers: evaluator, emulated target text and NumPy agree, assemblers take the text.

Whole numbers must come out exactly, normal ones within the bound of docs/numerics.md, with every check of the emulator
on. The default run takes a sample of types, sizes and forms that covers each pair of them, `-m slow` all combinations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import products
import pytest
from products import AMD, BK, BM, BN, F16, F32, I8, TARGETS, TILE, WM, WN, K, Kind, M, N, gemm, kinds, operands

import wavedsl as wd

SQUARE = (64, 64, 32, 32, 32)
"""Four waves of 32 x 32; two trips of the loop and more."""
FLAT = (32, 128, 16, 32, 32)
"""Four waves side by side along N."""


def subs(tile: tuple[int, ...]) -> dict[Any, int]:
    return dict(zip(TILE, tile))


def multiply(
    kind: Kind, target: str, m: int, n: int, k: int, tile: tuple[int, ...] = SQUARE, b_order: str = "NK", **options: Any
) -> wd.CompiledKernel:
    """Compile for these sizes, emulate on whole numbers with all checks, expect the exact product."""
    a, b, c = operands(kind, m, n, k, b_order=b_order)
    compiled = gemm(kind, b_order=b_order, **options).compile(a, b, c, target=target, subs=subs(tile))
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, kind, b_order)[0], kind)
    return compiled


EVERY_KIND = [(target, kind) for target in TARGETS for kind in kinds(target)]


def some(cases: list[Any], keep: Callable[[int], bool]) -> list[Any]:
    """Cases for `parametrize`, those slow whose number is not to be kept for the default run."""
    return [case if keep(i) else pytest.param(*case, marks=pytest.mark.slow) for i, case in enumerate(cases)]


# ------------------------------------------------------------------------------------------------------ types and tiles


@pytest.mark.every_case
@pytest.mark.parametrize("tile", [SQUARE, FLAT], ids=["square", "flat"])
@pytest.mark.parametrize(("target", "kind"), [*EVERY_KIND, *(("sm_90a", kind) for kind in kinds("sm_90a"))], ids=str)
def test_types(target: str, kind: Kind, tile: tuple[int, ...], oracle: Callable[[str], str]) -> None:
    m, n, k = 2 * tile[0], tile[1], 3 * tile[2]
    a, b, c = operands(kind, m, n, k)
    kernel = gemm(kind)
    compiled = kernel.compile(a, b, c, target=target, subs=subs(tile))
    want, _ = products.exact(a, b, kind)

    meant = np.full_like(c, products.SENTINEL)
    kernel.evaluate(a, b, meant, subs=subs(tile))
    products.expect_equal(meant, want, kind)
    compiled.emulate(a, b, c)
    products.expect_equal(c, want, kind)

    a, b, c = operands(kind, m, n, k, values="normal")
    want, magnitude = products.exact(a, b, kind)
    compiled.emulate(a, b, c)
    products.expect_product(c, want, magnitude, k, kind)
    kernel.evaluate(a, b, meant, subs=subs(tile))
    products.expect_product(meant, want, magnitude, k, kind)

    products.assemble(compiled, oracle)


WORKGROUPS = [
    (F16, (32, 32, 16, 32, 32), 1),
    (F32, (32, 64, 16, 32, 32), 2),
    (F16, (96, 32, 32, 32, 32), 3),
    (products.F64, (32, 64, 16, 16, 32), 4),
    (products.BF16, (96, 64, 32, 32, 32), 6),
    (I8, (64, 128, 64, 32, 32), 8),
    (products.F16_OUT, (64, 96, 16, 16, 32), 12),
    (F16, (64, 64, 32, 16, 16), 16),
    (I8, (64, 64, 32, 16, 16), 16),
    (F32, (64, 64, 16, 16, 16), 16),
    (F16, (64, 64, 32, 8, 32), 16),  # wave tiles smaller than the matrix instruction's
    (F16, (48, 80, 48, 24, 40), 4),  # and no multiples of it
    (I8, (40, 36, 24, 20, 12), 6),
]
"""Types, tiles, and how many waves that makes."""


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("kind", "tile", "waves", "target"),
    some([(*w, t) for w in WORKGROUPS for t in TARGETS], lambda i: (i + i // 4) % 2 == 0),
    ids=str,
)
def test_waves(kind: Kind, tile: tuple[int, ...], waves: int, target: str) -> None:
    compiled = multiply(kind, target, 2 * tile[0] - 5, tile[1] + 3, 2 * tile[2] + 8, tile=tile)
    lanes = 64 if target in AMD else 32
    assert compiled.block == (waves * lanes, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "kind", "waves"),
    [(*case, (1, 2, 4, 8, 16)[(2 * i + j) % 5]) for i, case in enumerate(EVERY_KIND) for j in (0, 1, 3)],
    ids=str,
)
def test_waves_of_every_type(target: str, kind: Kind, waves: int) -> None:
    shares = {1: (1, 1), 2: (2, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4)}[waves]
    wave = (16, 16) if waves > 4 else (32, 32)
    tile = (shares[0] * wave[0], shares[1] * wave[1], 32, *wave)
    multiply(kind, target, 100, 70, 70 if waves % 4 else 96, tile=tile)


@pytest.mark.parametrize("target", TARGETS)
def test_compiler_chooses_the_waves(target: str) -> None:
    """Without WaveConstraint and HardwareConstraint."""

    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)])
    def plain(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b, c = operands(F16, 65, 130, 100)
    compiled = plain.compile(a, b, c, target=target)
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, F16)[0], F16)


# ---------------------------------------------------------------------------------------------------------------- sizes

AWKWARD = (1, 7, 17, 63, 65, 100, 127)
PAIRS = [(AWKWARD[i], AWKWARD[j], AWKWARD[(i + j) % 7], i, j) for i in range(7) for j in range(7)]
"""A Latin square: every pair of sizes occurs in each pair of M, N and K. The last two are its row and column."""
SAMPLE = [(TARGETS[(row + 2 * column) % 4], m, n, k, row * 7 + column) for m, n, k, row, column in PAIRS]
"""The chips take turns too."""


def pick(target: str, turn: int) -> Kind:
    """The types take turns."""
    return kinds(target)[turn % len(kinds(target))]


@pytest.mark.parametrize(
    ("target", "kind", "m", "n", "k"),
    [(target, pick(target, turn), m, n, k) for target, m, n, k, turn in SAMPLE],
    ids=str,
)
def test_sizes_that_divide_nothing(target: str, kind: Kind, m: int, n: int, k: int) -> None:
    multiply(kind, target, m, n, k, tile=SQUARE if (m + n + k) % 2 else FLAT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "m", "n", "k", "row", "column"),
    [(t, *pair) for i, t in enumerate(TARGETS) for pair in PAIRS if (i + sum(pair[-2:])) % 2],
)
def test_sizes_that_divide_nothing_in_every_type(target: str, m: int, n: int, k: int, row: int, column: int) -> None:
    """The types take turns, so that every type meets every size in each dimension."""
    multiply(pick(target, row + 2 * column), target, m, n, k, tile=SQUARE if (m + n + k) % 2 else FLAT)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n", "k", "kind"), [(1000, 7, 17, F16), (63, 1000, 1, I8), (65, 17, 1000, F32)], ids=str)
def test_one_long_dimension(target: str, m: int, n: int, k: int, kind: Kind) -> None:
    multiply(kind, target, m, n, k)


@pytest.mark.parametrize(("target", "kind"), EVERY_KIND, ids=str)
def test_empty_sum(target: str, kind: Kind) -> None:
    """K = 0: no trip of the loop, and the output is what the sums start from."""
    multiply(kind, target, 65, 64, 0)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n"), [(0, 64), (64, 0), (0, 0)])
def test_empty_grid(target: str, m: int, n: int) -> None:
    """Nothing is launched where the output has no element."""
    a, b, c = operands(F16, m, n, 32)
    compiled = gemm(F16).compile(a, b, c, target=target, subs=subs(SQUARE))
    assert 0 in compiled.grid
    assert not compiled.emulate(a, b, c).instructions


# -------------------------------------------------------------------------------------------------------------- layouts

LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "column-major": lambda x: np.ascontiguousarray(x.T).T,
    "every-second-row": lambda x: products.inside(x, (2 * x.shape[0], x.shape[1]), np.s_[::2]),
    "every-second-column": lambda x: products.inside(x, (x.shape[0], 2 * x.shape[1]), np.s_[:, ::2]),
    "inside-a-larger-one": lambda x: products.inside(x, (x.shape[0] + 5, x.shape[1] + 11), np.s_[3:-2, 5:-6]),
    "column-major-inside": lambda x: products.inside(x.T, (x.shape[1] + 3, x.shape[0] + 7), np.s_[1:-2, 3:-4]).T,
}


FORMS = [(target, layout, order) for target in TARGETS for layout in LAYOUTS for order in ("NK", "KN")]


def through_layouts(
    target: str, kind: Kind, of_a: str, of_b: str, of_c: str, order: str, m: int, n: int, k: int
) -> None:
    """A product whose arguments lie in memory as named; what lies around the output's elements stays as it was."""
    a, b, c = operands(kind, m, n, k, b_order=order)
    want, _ = products.exact(a, b, kind, order)
    a, b, c = (LAYOUTS[layout](x) if layout else x for layout, x in ((of_a, a), (of_b, b), (of_c, c)))
    around = c if c.base is None else c.base
    before = around.copy()
    compiled = gemm(kind, b_order=order).compile(a, b, c, target=target, subs=subs(SQUARE))
    compiled.emulate(a, b, c)
    products.expect_equal(c, want, kind)
    c[...] = np.asarray(products.SENTINEL).astype(c.dtype)
    assert np.array_equal(around, before), "elements around the output changed"


@pytest.mark.parametrize(("target", "layout", "order"), some(FORMS, lambda i: (i // 10 + i // 2 + i) % 2 == 0))
def test_layouts_of_operands(target: str, layout: str, order: str) -> None:
    turn = FORMS.index((target, layout, order))
    other = list(LAYOUTS)[(turn + 2) % len(LAYOUTS)]
    through_layouts(target, pick(target, turn), layout, other, "", order, *((65, 72, 40) if turn % 2 else (64, 64, 63)))


@pytest.mark.parametrize(("target", "layout"), [(t, layout) for t in TARGETS for layout in LAYOUTS])
def test_layouts_of_the_output(target: str, layout: str) -> None:
    turn = TARGETS.index(target) + list(LAYOUTS).index(layout)
    through_layouts(target, pick(target, turn), "", "", layout, "NK", 67, 50, 24)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "kind"), EVERY_KIND, ids=str)
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_layouts_in_every_type(half: int, target: str, kind: Kind) -> None:
    names, number = list(LAYOUTS), kinds(target).index(kind)
    for turn, layout in enumerate(names):
        if (turn + number + TARGETS.index(target)) % 2 != half:
            continue  # chips and types take turns
        other = names[(turn + number) % len(names)]
        order = ("NK", "KN")[(turn + number) % 2]
        through_layouts(target, kind, layout, other, names[turn - 1], order, 65, 72, 40)


SPACES = (wd.GLOBAL, wd.SHARED, None)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spaces", [(x, y) for x in SPACES for y in SPACES], ids=str)
def test_address_spaces(target: str, spaces: tuple[Any, Any]) -> None:
    turn = TARGETS.index(target) + 3 * (spaces[0] is None) + (spaces[1] is None)
    kind = pick(target, turn)
    compiled = multiply(kind, target, 65, 63, 72, spaces=spaces)
    if wd.SHARED in spaces:
        assert compiled.shared_bytes
    if spaces == (wd.GLOBAL, wd.GLOBAL):
        assert not compiled.shared_bytes


# ------------------------------------------------------------------------------------------------------ dynamic extents


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [(M,), (N,), (K,), (M, N, K)], ids=str)
def test_dynamic_extents(target: str, dynamic: tuple[Any, ...]) -> None:
    """One text for every extent of the dimensions that are dynamic."""
    fixed = {M: 72, N: 40, K: 56}
    kernel = gemm(F16)
    bound = {**subs(SQUARE), **{d: n for d, n in fixed.items() if d not in dynamic}}
    compiled = kernel.compile(target=target, subs=bound, dynamic=dynamic)
    assert len([p for p in compiled.params if p.source.startswith("extent")]) == len(dynamic)
    for extent in (8, 200, 0):
        m, n, k = ((extent if d in dynamic else fixed[d]) for d in (M, N, K))
        a, b, c = operands(F16, m, n, k)
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, F16)[0], F16)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        pytest.param(*case, marks=[[], pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.exhaustive][i % 4])
        for i, case in enumerate(EVERY_KIND)
    ],
    ids=str,
)
def test_dynamic_extents_that_divide_nothing(target: str, kind: Kind) -> None:
    a, b, c = operands(kind, 65, 63, 37)
    compiled = gemm(kind).compile(a, b, c, target=target, subs=subs(SQUARE), dynamic=(M, N, K))
    for m, n, k in ((65, 63, 37), (1, 127, 7), (100, 1, 65)):
        a, b, c = operands(kind, m, n, k)
        compiled.emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, kind)[0], kind)


# ---------------------------------------------------------------------------------------------------- what a user fixes


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("gfx90a", "F32_16x16x16_F16"), ("gfx90a", "F32_32x32x8_F16"),
        ("gfx942", "F32_16x16x16_F16"), ("gfx942", "F32_32x32x8_F16"),
        ("gfx950", "F32_16x16x16_F16"), ("gfx950", "F32_32x32x8_F16"),
        ("gfx950", "F32_16x16x32_F16"), ("gfx950", "F32_32x32x16_F16"),
        ("sm_80", "F32_16x8x16_F16"), ("sm_80", "F32_16x8x8_F16"),
    ],
)  # fmt: skip
def test_matrix_instruction(target: str, name: str) -> None:
    mma_type = getattr(wd.MMAType, name)

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 64, 0),
            wd.WorkgroupConstraint(N, 64, 1),
            wd.TilingConstraint(K, 32),
            wd.WaveConstraint(M, 32),
            wd.WaveConstraint(N, 32),
            wd.HardwareConstraint(mma_type=mma_type),
        ]
    )
    def fixed(a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a, b, c = operands(F16, 100, 65, 96)
    compiled = fixed.compile(a, b, c, target=target)
    report = compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, F16)[0], F16)
    size = name.split("_")[1]
    used = {i for i in report.instructions if "mfma" in i or i.startswith("mma.sync")}
    spelled = size if target in AMD else "m{}n{}k{}".format(*size.split("x"))
    assert used and all(spelled in i for i in used), used


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_depth_of_the_pipeline(target: str, stages: int) -> None:
    """More stages than the loop has trips, too."""
    for k in (32, 64, 200):
        multiply(F16, target, 70, 64, k, schedule=wd.Schedule(stages=stages))


# --------------------------------------------------------------------------------------- several kernels, several loops


@pytest.mark.parametrize("target", TARGETS)
def test_two_loops_in_a_kernel(target: str) -> None:
    """c = a bᵀ + d eᵀ: the second sum goes on where the first ends, over another dimension."""
    L, BL = wd.symbols("L BL")

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.TilingConstraint(L, BL),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs={**subs(SQUARE), BL: 16},
    )
    def both(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16],
        d: wd.Memory[M, L, wd.SHARED, wd.f16], e: wd.Memory[N, L, wd.GLOBAL, wd.f16],
        c: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def first(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        @wd.iterate(L, init_args=[first])
        def second(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(d), wd.read(e), acc)

        wd.write(second, c)

    a, b, c = operands(F16, 100, 65, 96)
    d, e, _ = operands(F16, 100, 65, 40)
    compiled = both.compile(a, b, d, e, c, target=target)
    compiled.emulate(a, b, d, e, c)
    want = products.exact(a, b, F16)[0] + products.exact(d, e, F16)[0]
    products.expect_equal(c, want, F16)
    meant = np.full_like(c, 77)
    both.evaluate(a, b, d, e, meant)
    np.testing.assert_array_equal(meant, c)


@pytest.mark.parametrize("target", TARGETS)
def test_two_products_in_a_loop(target: str) -> None:
    """One operand shared by two products with outputs of their own."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs=subs((32, 64, 32, 16, 32)),
    )
    def pair(
        a: wd.Memory[M, K, wd.SHARED, wd.bf16], b: wd.Memory[N, K, wd.SHARED, wd.bf16],
        d: wd.Memory[N, K, wd.SHARED, wd.bf16], c: wd.Memory[M, N, wd.f32], e: wd.Memory[M, N, wd.f32],
    ):  # fmt: skip
        left = wd.Register[M, N, wd.f32](0.0)
        right = wd.Register[M, N, wd.f32](1.0)

        @wd.iterate(K, init_args=[left, right])
        def loop(left: wd.Register[M, N, wd.f32], right: wd.Register[M, N, wd.f32]):
            x = wd.read(a)
            return wd.mma(x, wd.read(b), left), wd.mma(x, wd.read(d), right)

        left, right = loop
        wd.write(left, c)
        wd.write(right, e)

    a, b, c = operands(products.BF16, 50, 70, 72)
    d, c, e = b[::-1].copy(), np.full((50, 70), 77, np.float32), np.full((50, 70), 77, np.float32)
    pair.compile(a, b, d, c, e, target=target).emulate(a, b, d, c, e)
    np.testing.assert_array_equal(c, products.exact(a, b, F16)[0])
    np.testing.assert_array_equal(e, products.exact(a, d, F16)[0] + 1)


@pytest.mark.parametrize("target", TARGETS)
def test_nested_loops(target: str) -> None:
    """A product for every tile of N, of which only the sum along N leaves the outer loop."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 32, 0),
            wd.TilingConstraint(N, 16),
            wd.TilingConstraint(K, 16),
            wd.WaveConstraint(M, 16),
        ]
    )
    def sums(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], rows: wd.Memory[M, wd.f32]):
        zero = wd.Register[M, wd.f32](0.0)

        @wd.iterate(N, init_args=[zero])
        def outer(total):
            inside = wd.Register[M, N, wd.f32](0.0)

            @wd.iterate(K, init_args=[inside])
            def inner(acc):
                return wd.mma(wd.read(a), wd.read(b), acc)

            return total + wd.sum(inner, dim=N)

        wd.write(outer, rows)

    for m, n, k in ((40, 33, 72), (32, 7, 16)):
        a, b, _ = operands(F16, m, n, k)
        rows = np.full(m, 77, np.float32)
        want = products.exact(a, b, F16)[0].sum(axis=1)
        sums.evaluate(a, b, rows)
        np.testing.assert_array_equal(rows, want)
        rows[:] = 77
        sums.compile(a, b, rows, target=target).emulate(a, b, rows)
        np.testing.assert_array_equal(rows, want)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("j", "trips"), [(0, 0), (1, 1), (20, 3)])
def test_inner_loop_starts_where_the_outer_one_is(target: str, j: int, trips: int) -> None:
    """The inner loop's first value is the outer loop's, so the product is added once for each outer trip."""
    J = wd.sym.J

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, 32, 0),
            wd.WorkgroupConstraint(N, 32, 1),
            wd.TilingConstraint(K, 16),
            wd.TilingConstraint(J, 8),
        ],
        subs={J: j},
    )
    def repeated(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):
        one = wd.Register[M, N, wd.f32](1.0)

        @wd.iterate(J, init_args=[one])
        def outer(acc):
            @wd.iterate(K, init_args=[acc])
            def inner(acc):
                return wd.mma(wd.read(a), wd.read(b), acc)

            return inner

        wd.write(outer, c)

    a, b, c = operands(F16, 40, 33, 40)
    repeated.compile(a, b, c, target=target).emulate(a, b, c)
    np.testing.assert_array_equal(c, 1 + trips * products.exact(a, b, F16)[0])


@pytest.mark.parametrize("target", TARGETS)
def test_batch_is_an_index_dimension(target: str) -> None:
    """A workgroup tile of 1 makes a dimension of the grid that no register has."""
    B = wd.sym.B

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.WorkgroupConstraint(B, 1, 2),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, WM),
            wd.WaveConstraint(N, WN),
        ],
        subs=subs((32, 32, 16, 16, 16)),
    )
    def batched(
        a: wd.Memory[B, M, K, wd.SHARED, wd.f16], b: wd.Memory[B, N, K, wd.SHARED, wd.f16],
        c: wd.Memory[B, M, N, wd.f32],
    ):  # fmt: skip
        zero = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[zero])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    a = products.numbers((3, 40, 24), wd.f16, 1)
    b = products.numbers((3, 17, 24), wd.f16, 2)
    c = np.full((3, 40, 17), 77, np.float32)
    compiled = batched.compile(a, b, c, target=target)
    assert compiled.grid == (2, 1, 3)
    compiled.emulate(a, b, c)
    np.testing.assert_array_equal(c, np.einsum("bmk,bnk->bmn", a.astype(np.float32), b.astype(np.float32)))


@pytest.mark.parametrize("target", TARGETS)
def test_no_loop(target: str) -> None:
    """All of K at once, and operands computed before they are multiplied."""

    @wd.wave(
        [wd.WorkgroupConstraint(M, 32, 0), wd.WorkgroupConstraint(N, 32, 1), wd.WaveConstraint(M, 16)], subs={K: 40}
    )
    def whole(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]):
        wd.write(wd.mma(wd.read(a) + 1, wd.read(b)) * 2, c)

    a, b, c = operands(F16, 50, 33, 40)
    whole.compile(a, b, c, target=target).emulate(a, b, c)
    want = 2 * ((a.astype(np.float32) + 1) @ b.astype(np.float32).T)
    np.testing.assert_array_equal(c, want)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_tf32_operands_half_way_between_two(target: str) -> None:
    """Chips differ in where these go (docs/numerics.md), but they go to a neighbour: nothing is cut off or kept."""
    a, b, c = operands(products.TF32, 32, 32, 16)
    a[...] = 0
    a[:, 0] = np.array([0x3F801000, 0x3F803000, 0xBF801000, 0x3F800FFF], np.uint32).view(np.float32)[np.arange(32) % 4]
    b[...] = 1
    compiled = gemm(products.TF32).compile(a, b, c, target=target, subs=subs((32, 32, 16, 16, 16)))
    compiled.emulate(a, b, c)
    unit = 2.0**-10
    near = [(1.0, 1 + unit), (1 + unit, 1 + 2 * unit), (-1.0, -1 - unit), (1.0, 1.0)]
    for row in range(32):
        assert (np.isin(c[row], near[row % 4])).all()
    away = [1 + unit, 1 + 2 * unit, -1 - unit, 1.0]
    even = [1.0, 1 + 2 * unit, -1.0, 1.0]
    assert c[:4, 0].tolist() == (away if target == "sm_80" else even)


@pytest.mark.parametrize(
    ("kind", "m", "n", "k", "tile", "order", "stages"),
    [
        (products.TF32, 100, 70, 96, (32, 64, 32, 16, 16), "NK", None),
        (products.TF32, 1, 2, 33, (64, 32, 8, 32, 16), "KN", 2),
        (products.F64, 128, 33, 1, (32, 16, 16, 32, 8), "KN", 3),
    ],
    ids=str,
)
def test_copies_of_two_stages_in_a_trip(
    kind: Kind, m: int, n: int, k: int, tile: tuple[int, ...], order: str, stages: int | None
) -> None:
    """The schedules of these loops copy the two operands for different iterations in one trip: each barrier has to wait
    for the later one."""
    schedule = wd.Schedule(stages=stages) if stages else None
    for target in ("sm_80", "sm_90a"):
        multiply(kind, target, m, n, k, tile, order, schedule=schedule)


def test_wave_tiles_that_cross_the_panels_of_a_shared_tile() -> None:
    """Waves of 48 rows in a tile that would lie in panels of 64: the compiler takes another place."""
    a, b, c = operands(products.F16_OUT, 130, 17, 63)
    a = np.ascontiguousarray(a.T).T
    kernel = gemm(products.F16_OUT, spaces=(None, None))
    for target in TARGETS:
        kernel.compile(a, b, c, target=target, subs=subs((192, 16, 32, 48, 8))).emulate(a, b, c)
        products.expect_equal(c, products.exact(a, b, products.F16_OUT)[0], products.F16_OUT)


@pytest.mark.parametrize("target", TARGETS)
def test_one_row_of_every_second_column(target: str) -> None:
    """NumPy's stride of a dimension with one element says nothing: compiler and launch read it alike."""
    a, b, c = operands(I8, 1, 17, 2)
    a, c = (products.inside(x, (x.shape[0], 2 * x.shape[1]), np.s_[:, ::2]) for x in (a, c))
    compiled = gemm(I8).compile(a, b, c, target=target, subs=subs(SQUARE))
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, I8)[0], I8)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_run_time_extent_of_a_strided_array(target: str) -> None:
    """Addresses that count down, in 64 bits: what is left of the array behind each tile of the loop."""
    a, b, c = operands(I8, 121, 17, 100, b_order="KN")
    a = products.inside(a, (121, 200), np.s_[:, ::2])
    c = products.inside(c, (3 * 121, 17), np.s_[::3])
    kernel = gemm(I8, b_order="KN")
    compiled = kernel.compile(a, b, c, target=target, subs=subs((8, 96, 32, 8, 24)), dynamic=(N,))
    compiled.emulate(a, b, c)
    products.expect_equal(c, products.exact(a, b, I8, "KN")[0], I8)


@pytest.mark.parametrize("target", ["gfx950", "sm_80", "sm_90a"])
def test_wave_tiles_that_matrix_loads_cannot_start_at(target: str) -> None:
    """Waves 20 columns of f16 apart: 40 bytes, where a matrix load takes multiples of 16 only."""
    multiply(products.F16_OUT, target, 16, 70, 111, (64, 60, 24, 32, 20), "KN", schedule=wd.Schedule(stages=1))
