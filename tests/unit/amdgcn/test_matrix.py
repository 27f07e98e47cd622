"""Every matrix instruction of every chip through selection: D = A B + C on fragments laid out by the atom's strings."""

from __future__ import annotations

import amdgcn_kernels as kernels
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import vector
from wavedsl.ir.target import MmaAtom
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")
ATOMS = [
    (chip, a)
    for chip in CHIPS
    for a in get_target(chip).mma_atoms
    if min(a.a_dtype.bits, a.b_dtype.bits) >= 8 and not a.scale_block
]


def coordinates(layout: dict[str, str], elements: int) -> dict[str, np.ndarray]:
    """Coordinate → [lane, element]; a coordinate that the layout does not name is 0."""
    lane, element = np.meshgrid(np.arange(64), np.arange(elements), indexing="ij")
    out = dict.fromkeys(("B", "K"), np.zeros_like(lane))
    for name, bits in layout.items():
        parts = [(element if b[0] == "e" else lane) >> int(b[1:]) & 1 for b in bits.split()]
        out[name] = sum((p << i for i, p in enumerate(parts)), np.zeros_like(lane))
    return out


def pack(x: np.ndarray) -> np.ndarray:
    """[lane, element] numbers as [lane, word]."""
    return np.ascontiguousarray(x).view(np.uint32).reshape(64, -1)


@pytest.mark.parametrize("zero", [False, True], ids=["c", "zero"])
@pytest.mark.parametrize(("chip", "atom"), ATOMS, ids=[f"{c} {a.name}" for c, a in ATOMS])
def test_atom(chip: str, atom: MmaAtom, zero: bool) -> None:
    rng = np.random.default_rng(3)
    dtypes = [np.dtype(d.numpy) for d in (atom.a_dtype, atom.b_dtype, atom.acc_dtype)]
    blocks = atom.blocks
    a = rng.integers(-2, 3, (blocks, atom.m, atom.k))
    b_ = rng.integers(-2, 3, (blocks, atom.k, atom.n))
    c = rng.integers(-4, 5, (blocks, atom.m, atom.n)) * (0 if zero else 1)
    where = [
        coordinates(dict(x), w * 32 // d.bits)
        for x, w, d in (
            (atom.a, atom.a_words, atom.a_dtype),
            (atom.b, atom.b_words, atom.b_dtype),
            (atom.d, atom.d_words, atom.acc_dtype),
        )
    ]
    fa = pack(a[where[0]["B"], where[0]["M"], where[0]["K"]].astype(dtypes[0]))
    fb = pack(b_[where[1]["B"], where[1]["K"], where[1]["N"]].astype(dtypes[1]))
    at = where[2]["B"], where[2]["M"], where[2]["N"]
    fc = pack(c[at].astype(dtypes[2]))
    out = np.zeros_like(fc)
    kernel = kernels.new_kernel("matrix", chip, ["a", "b", "c", "d"])
    k = Builder(kernel, get_target(chip))
    tid = k.tid()

    def fragment(index: int, words: int) -> object:
        buf = k.buffer(k.param(index), 256 * words)
        parts, at_word = [], 0
        while at_word < words:
            n = next(w for w in (4, 2, 1) if w <= words - at_word)
            t = vector(n)
            parts.append(k.load_global(buf, k.mul(tid, 4 * words), bytes=4 * n, type=t, imm=4 * at_word, split=False))
            at_word += n
        return k.vec(*parts)

    acc_kind = {"f32": "f32", "i32": "i32", "f64": "f64"}[atom.acc_dtype.name]
    acc_type = vector(atom.d_words // (2 if acc_kind == "f64" else 1), acc_kind)
    accumulator = k.zero(acc_type) if zero else k.bitcast(fragment(2, atom.d_words), acc_type)
    d = k.mma(atom, fragment(0, atom.a_words), fragment(1, atom.b_words), accumulator)
    raw = k.bitcast(d, vector(atom.d_words))
    buf = k.buffer(k.param(3), 256 * atom.d_words)
    for w in range(0, atom.d_words, 2):
        k.store_global(buf, k.mul(tid, 4 * atom.d_words), k.slice(raw, w, 2), bytes=8, imm=4 * w, split=False)
    program = compile_kernel_ir(kernel, get_target(chip))
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[fa, fb, fc, out], checks=True)
    want = (a @ b_ + c)[at].astype(dtypes[2])
    assert np.array_equal(out.view(dtypes[2]).reshape(want.shape), want)


@pytest.mark.parametrize("chip", CHIPS)
def test_two_products_share_an_addend(chip: str) -> None:
    """An addend that is used again must outlive the first product, which may not take over its registers."""
    atom = next(a for a in get_target(chip).mma_atoms if a.name == "F32_16x16x4_F32")
    x, y, c = (np.random.default_rng(5).integers(-3, 4, (64, n)).astype(np.float32) for n in (1, 1, 4))
    out = np.zeros((3, 64, 4), np.float32)
    kernel = kernels.new_kernel("shared", chip, ["x", "y", "c", "d"])
    k = Builder(kernel, get_target(chip))
    tid = k.tid()

    def load(index: int, words: int) -> object:
        buf = k.buffer(k.param(index), 256 * words)
        return k.load_global(buf, k.mul(tid, 4 * words), bytes=4 * words, type=vector(words), split=False)

    a, b = load(0, 1), load(1, 1)
    addend = k.bitcast(load(2, 4), vector(4, "f32"))
    one = k.const(1.0, vector(4, "f32"))
    results = [k.mma(atom, a, b, addend), k.mma(atom, b, a, addend), k.mma(atom, a, b, one), k.mma(atom, b, a, one)]
    buf = k.buffer(k.param(3), out.nbytes)
    for i, d in enumerate([results[0], results[1], k.fadd(results[2], results[3])]):
        raw = k.bitcast(d, vector(4))
        k.store_global(buf, k.mul(tid, 16), raw, bytes=16, imm=0, soff=1024 * i, split=False)
    program = compile_kernel_ir(kernel, get_target(chip))
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[x, y, c, out], checks=True)
    lane, e = np.meshgrid(np.arange(64), np.arange(4), indexing="ij")
    row, col = 4 * (lane // 16) + e, lane % 16
    p, q = x.reshape(4, 16).T @ y.reshape(4, 16), y.reshape(4, 16).T @ x.reshape(4, 16)
    assert np.array_equal(out[0], p[row, col] + c)
    assert np.array_equal(out[1], q[row, col] + c)
    assert np.array_equal(out[2], p[row, col] + q[row, col] + 2)
