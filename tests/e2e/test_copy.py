"""Copies from Python to numbers: every element type, form in memory, size and number of waves, on every chip.

A copy has to be exact, bit by bit, and must leave everything around the elements of its output alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import products
import pytest
from products import AMD, BM, BN, TARGETS, WM, WN, M, N

import wavedsl as wd

DTYPES = (wd.f64, wd.f32, wd.f16, wd.bf16, wd.i64, wd.i32, wd.i16, wd.i8, wd.u64, wd.u32, wd.u16, wd.u8)
_FP8 = {"gfx942": (wd.f8e4m3fnuz, wd.f8e5m2fnuz), "gfx950": (wd.f8e4m3, wd.f8e5m2)}
AWKWARD = (1, 7, 17, 63, 65, 100, 127)


@lru_cache(maxsize=64)
def copy(dtype: wd.DType, space: Any = None, elements: int | None = None, waves: bool = False) -> Any:
    """The kernel b = a over a matrix; BM, BN (and with `waves` WM, WN) are bound by `subs`."""
    source = wd.Memory[M, N, dtype] if space is None else wd.Memory[M, N, space, dtype]
    constraints = [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)]
    constraints += [wd.WaveConstraint(M, WM), wd.WaveConstraint(N, WN)] if waves else []

    @wd.wave(constraints)
    def copy(a: source, b: wd.Memory[M, N, dtype]):
        if elements is None:
            wd.write(wd.read(a), b)
        else:
            wd.write(wd.read(a, elements_per_thread=elements), b, elements_per_thread=elements)

    return copy


def bits(shape: tuple[int, ...], dtype: wd.DType, seed: int = 0) -> np.ndarray:
    """Any bits at all: not-a-numbers, denormals and infinities among them."""
    storage = np.dtype(dtype.storage)
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, storage.itemsize), np.uint8)
    return raw.view(storage).reshape(shape)


def same(x: np.ndarray, y: np.ndarray) -> bool:
    return np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()


def run(kernel: Any, a: np.ndarray, b: np.ndarray, target: str, tile: Sequence[int] = (16, 16), **options: Any) -> Any:
    """Compile, emulate with all checks, expect the same bits and nothing changed around them."""
    around = b if b.base is None else b.base
    before = around.copy()
    subs = dict(zip((BM, BN, WM, WN), tile))
    compiled = kernel.compile(a, b, target=target, subs=subs, **options)
    compiled.emulate(a, b)
    assert same(a, b)
    b[...] = _view_like(before, around, b)
    assert same(around, before), "elements around the output changed"
    b[...] = a
    return compiled


def _view_like(other: np.ndarray, around: np.ndarray, view: np.ndarray) -> np.ndarray:
    """The part of `other`, a copy of `around`, that `view` is of `around`."""
    offset = view.__array_interface__["data"][0] - around.__array_interface__["data"][0]
    return np.ndarray(view.shape, view.dtype, other, offset, view.strides)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types(target: str, dtype: wd.DType, oracle: Callable[[str], str]) -> None:
    a = bits((33, 50), dtype)
    kernel = copy(dtype)
    compiled = run(kernel, a, np.zeros_like(a), target)
    if dtype.bits in (8, 16, 64) and dtype.is_float is not (dtype.bits == 8):
        products.assemble(compiled, oracle)
    if not dtype.is_float:
        meant = np.zeros_like(a)
        kernel.evaluate(a, meant, subs={BM: 16, BN: 16})
        assert same(a, meant)


@pytest.mark.parametrize(("target", "dtype"), [(t, d) for t, found in _FP8.items() for d in found], ids=str)
def test_eight_bit_floats(target: str, dtype: wd.DType) -> None:
    a = bits((33, 50), dtype)
    run(copy(dtype), a, np.zeros_like(a), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", AWKWARD)
def test_sizes_that_divide_nothing(target: str, m: int) -> None:
    """Each size of M with each of N over the chips and types."""
    for turn, n in enumerate(AWKWARD):
        turn += AWKWARD.index(m) + TARGETS.index(target)
        dtype = (wd.f16, wd.f32, wd.i8, wd.f64)[turn % 4]
        tile = ((16, 16), (32, 64), (8, 128))[turn % 3]
        if (turn + AWKWARD.index(m)) % 2:
            continue
        a = bits((m, n), dtype)
        run(copy(dtype), a, np.zeros_like(a), target, tile)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", (*AWKWARD, 1000))
def test_sizes_that_divide_nothing_in_every_type(target: str, m: int) -> None:
    ways = list(itertools.product(((16, 16), (32, 64)), (wd.GLOBAL, wd.SHARED)))
    for i, n in enumerate((*AWKWARD, 1000) if m != 1000 else AWKWARD):
        for j, dtype in list(enumerate((wd.f16, wd.f32, wd.i8, wd.f64)))[(i + m) % 2 :: 2]:
            tile, space = ways[(i + j + AWKWARD.index(m) if m != 1000 else i + j) % 4]
            a = bits((m, n), dtype)
            run(copy(dtype, space), a, np.zeros_like(a), target, tile)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n"), [(1000, 7), (17, 1000)])
def test_one_long_dimension(target: str, m: int, n: int) -> None:
    a = bits((m, n), wd.f16)
    run(copy(wd.f16), a, np.zeros_like(a), target, (32, 32))


@pytest.mark.parametrize("name", ["_copy", "größe", "nan", "null"])
@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_any_name_of_a_kernel(target: str, name: str) -> None:
    """Text, emulator and driver call it the same."""

    def any_name(null: wd.Memory[M, N, wd.f32], _b: wd.Memory[M, N, wd.f32]):
        wd.write(wd.read(null), _b)

    any_name.__name__ = name
    a, b = np.ones((16, 64), np.float32), np.zeros((16, 64), np.float32)
    kernel = wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)])(any_name)
    compiled = kernel.compile(a, b, target=target)
    assert compiled.emulate(a, b).findings == [] and (b == 1).all()
    assert compiled.name in compiled.asm


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "n"), [(0, 16), (16, 0)])
def test_nothing_to_copy(target: str, m: int, n: int) -> None:
    a = np.zeros((m, n), np.float16)
    compiled = copy(wd.f16).compile(a, a.copy(), target=target, subs={BM: 16, BN: 16})
    assert not compiled.emulate(a, a.copy()).instructions


FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "column-major": lambda x: np.ascontiguousarray(x.T).T,
    "every-second-row": lambda x: products.inside(x, (2 * x.shape[0], x.shape[1]), np.s_[::2]),
    "every-third-column": lambda x: products.inside(x, (x.shape[0], 3 * x.shape[1]), np.s_[:, ::3]),
    "inside-a-larger-one": lambda x: products.inside(x, (x.shape[0] + 5, x.shape[1] + 11), np.s_[3:-2, 5:-6]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f16, wd.f32, wd.i8], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_forms_in_memory(target: str, dtype: wd.DType, form: str) -> None:
    a = bits((33, 40), dtype)
    run(copy(dtype), FORMS[form](a), np.zeros_like(a), target)
    run(copy(dtype), a, FORMS[form](np.zeros_like(a)), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [wd.f16, wd.f32, wd.i8], ids=str)
@pytest.mark.parametrize("space", [wd.GLOBAL, wd.SHARED], ids=str)
def test_address_spaces(target: str, dtype: wd.DType, space: Any) -> None:
    for shape in ((64, 64), (33, 50)):
        a = bits(shape, dtype)
        compiled = run(copy(dtype, space), a, np.zeros_like(a), target, (32, 32))
        assert bool(compiled.shared_bytes) == (space is wd.SHARED)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("waves", [1, 2, 4, 8, 16])
def test_waves(target: str, waves: int) -> None:
    across, down = {1: (1, 1), 2: (2, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4)}[waves]
    tile = (16 * across, 16 * down, 16, 16)
    a = bits((100, 65), wd.f16)
    compiled = run(copy(wd.f16, waves=True), a, np.zeros_like(a), target, tile)
    assert compiled.block == (waves * (64 if target in AMD else 32), 1, 1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("elements", [1, 2, 4, 8])
def test_elements_per_thread(target: str, elements: int) -> None:
    for shape in ((64, 64), (17, 63)):
        a = bits(shape, wd.f16)
        run(copy(wd.f16, None, elements), a, np.zeros_like(a), target, (32, 32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [(M,), (N,), (M, N)], ids=str)
def test_dynamic_extents(target: str, dynamic: tuple[Any, ...]) -> None:
    fixed = {M: 40, N: 24}
    bound = {d: n for d, n in fixed.items() if d not in dynamic}
    compiled = copy(wd.f16).compile(target=target, subs={BM: 16, BN: 16, **bound}, dynamic=dynamic)
    for extent in (1, 16, 0, 33, 100):
        shape = tuple(extent if d in dynamic else fixed[d] for d in (M, N))
        a = bits(shape, wd.f16)
        b = np.zeros_like(a)
        compiled.emulate(a, b)
        assert same(a, b)


@pytest.mark.parametrize("target", TARGETS)
def test_one_and_three_dimensions(target: str) -> None:
    P = wd.sym.P

    @wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
    def line(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32]):
        wd.write(wd.read(a), b)

    @wd.wave([wd.WorkgroupConstraint(N, 16, 0), wd.WorkgroupConstraint(M, 4, 1), wd.WorkgroupConstraint(P, 1, 2)])
    def block(a: wd.Memory[P, M, N, wd.f16], b: wd.Memory[P, M, N, wd.f16]):
        wd.write(wd.read(a), b)

    for n in (1, 255, 1000):
        a = bits((n,), wd.f32)
        run(line, a, np.zeros_like(a), target, ())
    a = bits((3, 7, 33), wd.f16)
    assert run(block, a, np.zeros_like(a), target, ()).grid == (3, 2, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_loop_without_carried_values(target: str) -> None:
    """Each workgroup copies its rows in pieces."""

    @wd.wave([wd.WorkgroupConstraint(M, 8, 0), wd.TilingConstraint(N, 32)])
    def pieces(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
        @wd.iterate(N)
        def loop():
            wd.write(wd.read(a), b)

    for shape in ((16, 128), (17, 100), (9, 31)):
        a = bits(shape, wd.f16)
        run(pieces, a, np.zeros_like(a), target, ())


@pytest.mark.parametrize("target", TARGETS)
def test_several_kernels_of_a_module_do_not_mix(target: str) -> None:
    """Two kernels of one name and one kernel at two sizes, compiled in turn."""
    a, b = bits((32, 32), wd.f16), bits((17, 50), wd.f16)
    first, second = copy(wd.f16), copy(wd.f16, wd.SHARED)
    texts = {}
    for _ in range(2):
        for name, kernel, x in (("first", first, a), ("second", second, a), ("third", first, b)):
            compiled = run(kernel, x, np.zeros_like(x), target)
            assert texts.setdefault(name, compiled.asm) == compiled.asm
    assert len(set(texts.values())) == 3
