"""Matrix instructions through the PTX back end: every atom of a target computes A B + C in its own fragment layout."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from wavedsl.codegen.ptx.emit import compile_kernel_ir
from wavedsl.codegen.ptx.target import TARGETS
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.kernel_ir import Kernel, Param, vector
from wavedsl.ir.target import MmaAtom, Target
from wavedsl.runtime.toolchain import assemble_ptx

CHIPS = {"sm_80": "sm_80", "sm_89": "sm_89", "sm_90a": "sm_90a"}
ATOMS = [(t, a) for t in CHIPS for a in TARGETS[t].mma_atoms if t == "sm_80" or a not in TARGETS["sm_80"].mma_atoms]
ATOMS = [(t, a) for i, (t, a) in enumerate(ATOMS) if a not in [x for _, x in ATOMS[:i]]]


def mma_kernel(target: Target, atom: MmaAtom, *, words: bool = False) -> Kernel:
    """Lane l loads its fragments from rows l of a, b, c; then d = A B + C and c = A B.

    `words`: float64 fragments are handed over as pairs of 32-bit words.
    """
    wide = atom.acc_dtype is dt.f64 and not words
    acc = (
        vector(atom.d_words // 2, "f64") if wide else vector(atom.d_words, "f32" if atom.acc_dtype is dt.f32 else "b32")
    )
    sizes = [4 * w for w in (atom.a_words, atom.b_words, atom.d_words, atom.d_words)]
    params = [
        Param(n, "pointer", dt.u32, 8 * i, 8, access="read" if n != "d" else "write") for i, n in enumerate("abcd")
    ]
    b = Builder(new_kernel("mma", target.name, wave_size=32, waves=1, params=params, grid=(1, 1, 1)), target)
    lane = b.lane()
    bufs = [b.buffer(b.param(i), 32 * s) for i, s in enumerate(sizes)]

    def fragment(i: int, type_: Any) -> Any:
        kind, size = (type_.kind, 8 if type_.kind == "f64" else 4)
        step = next(s for s in (16, 8, 4) if sizes[i] % s == 0 and s >= size)
        parts = [
            b.load_global(bufs[i], b.mul(lane, sizes[i]), bytes=step, imm=at, type=vector(step // size, kind))
            for at in range(0, sizes[i], step)
        ]
        return b.vec(*parts) if len(parts) > 1 else parts[0]

    operand = (lambda w: vector(w // 2, "f64")) if wide else vector
    fa, fb = fragment(0, operand(atom.a_words)), fragment(1, operand(atom.b_words))
    first = b.mma(atom, fa, fb, fragment(2, acc))
    again = b.mma(atom, fa, fb, b.zero(acc))
    for buf, value in ((bufs[3], first), (bufs[2], again)):
        for i, part in enumerate(b.elements(value)):
            b.store_global(buf, b.mul(lane, sizes[3]), part, imm=4 * part.type.words * i)
    return b.finish()


def coordinates(layout: Any, rows: str, cols: str, elements: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) of every (lane, element) from a layout's bit strings."""
    lane, element = np.meshgrid(np.arange(32), np.arange(elements), indexing="ij")

    def axis(name: str) -> np.ndarray:
        out = np.zeros_like(lane)
        for i, bit in enumerate(layout[name].split()):
            out |= (({"l": lane, "e": element}[bit[0]] >> int(bit[1:])) & 1) << i
        return out

    return axis(rows), axis(cols)


def random_matrix(dtype: DType, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    small = rng.integers(-3 if dtype.is_signed else 0, 4, shape)
    return small.astype(np.float64)


def to_words(values: np.ndarray, dtype: DType) -> np.ndarray:
    """[32, elements] numbers as packed 32-bit words per lane."""
    if dtype.bits == 4:
        nibbles = values.astype(np.int64) & 15
        return np.sum(nibbles.reshape(32, -1, 8) << (4 * np.arange(8)), axis=2).astype(np.uint32)
    storage = np.float32 if dtype is dt.tf32 else dtype.numpy
    return np.ascontiguousarray(values.astype(storage)).view(np.uint32).reshape(32, -1)


def from_words(words: np.ndarray, dtype: DType) -> np.ndarray:
    return words.reshape(32, -1).view(dtype.numpy).astype(np.float64)


@pytest.mark.parametrize(("chip", "atom"), ATOMS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_matrix_instruction(chip: str, atom: MmaAtom) -> None:
    from wavedsl.runtime import emulator

    target = TARGETS[chip]
    rng = np.random.default_rng(11)
    a = random_matrix(atom.a_dtype, (atom.m, atom.k), rng)
    b = random_matrix(atom.b_dtype, (atom.k, atom.n), rng)
    c = random_matrix(atom.acc_dtype, (atom.m, atom.n), rng)
    at_a = coordinates(atom.a, "M", "K", atom.m * atom.k // 32)
    at_b = coordinates(atom.b, "K", "N", atom.k * atom.n // 32)
    at_d = coordinates(atom.d, "M", "N", atom.m * atom.n // 32)
    words = [to_words(a[at_a], atom.a_dtype), to_words(b[at_b], atom.b_dtype), to_words(c[at_d], atom.acc_dtype)]
    assert [w.shape[1] for w in words] == [atom.a_words, atom.b_words, atom.d_words]
    out = np.zeros((32, atom.d_words), np.uint32)
    args = [np.ascontiguousarray(w) for w in (*words, out)]
    text = compile_kernel_ir(mma_kernel(target, atom), target).text
    emulator.run(text, target=chip, grid=(1, 1, 1), block=(32, 1, 1), args=args, checks=True)
    np.testing.assert_array_equal(from_words(args[3], atom.acc_dtype), (a @ b + c)[at_d])
    np.testing.assert_array_equal(from_words(args[2], atom.acc_dtype), (a @ b)[at_d])


def test_float64_fragments_may_come_as_words() -> None:
    target = TARGETS["sm_80"]
    atom = next(a for a in target.mma_atoms if a.name == "F64_8x8x4_F64")
    both = [compile_kernel_ir(mma_kernel(target, atom, words=w), target) for w in (False, True)]
    assert [p.text.count("mma.sync") for p in both] == [2, 2]
    assert [re.search(r"mov\.b64 .*\{%r\d", p.text) is not None for p in both] == [False, True]


@pytest.mark.parametrize(("chip", "atom"), ATOMS, ids=lambda x: x if isinstance(x, str) else x.name)
def test_ptxas_takes_it(chip: str, atom: MmaAtom, oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    target = TARGETS[chip]
    # ptxas 13 has no 4-bit matrix instructions for sm_90 and later, so they are assembled for their own chip only.
    archs = ["sm_80", "sm_90"] if chip == "sm_80" and atom.a_dtype.bits > 4 else [CHIPS[chip]]
    for arch in archs:
        (entry,) = assemble_ptx(compile_kernel_ir(mma_kernel(target, atom), target).text, arch).entries
        assert entry.spill_stores == 0


def test_a_zero_accumulator_costs_no_move_per_element() -> None:
    target = TARGETS["sm_80"]
    atom = next(a for a in target.mma_atoms if a.name == "F32_16x8x16_F16")
    text = compile_kernel_ir(mma_kernel(target, atom), target).text
    assert text.count("0f00000000") == 1


def test_tf32_inputs_are_rounded_without_a_mask() -> None:
    target = TARGETS["sm_80"]
    atom = next(a for a in target.mma_atoms if a.name == "F32_16x8x8_TF32")
    params = [Param(n, "pointer", dt.f32, 8 * i, 8, access="readwrite") for i, n in enumerate("xd")]
    b = Builder(new_kernel("round", "sm_80", wave_size=32, waves=1, params=params, grid=(1, 1, 1)), target)
    x, d = (b.buffer(b.param(i), 512) for i in range(2))
    lane = b.mul(b.lane(), 16)
    f = b.load_global(x, lane, bytes=16, type=vector(4, "f32"))
    rounded = [b.bitcast(b.round_tf32(e), vector(1)) for e in b.elements(f)]
    out = b.mma(atom, b.vec(*rounded), b.vec(*rounded[:2]), b.zero(vector(4, "f32")))
    b.store_global(d, lane, out)
    text = compile_kernel_ir(b.finish(), target).text
    assert text.count("cvt.rna.tf32.f32") == 4 and "0xffffe000" not in text


def test_names_are_those_of_the_public_types() -> None:
    from wavedsl.ir.mma_type import parse

    for chip in CHIPS:
        for atom in TARGETS[chip].mma_atoms:
            said = parse(atom.name)
            assert said is not None, atom.name
            assert (said.m, said.n, said.k, said.a, said.b, said.result) == (
                atom.m, atom.n, atom.k, atom.a_dtype, atom.b_dtype, atom.acc_dtype,
            )  # fmt: skip


def test_fp8_matrix_instructions_start_with_sm_89() -> None:
    names = {chip: {a.name for a in TARGETS[chip].mma_atoms} for chip in CHIPS}
    assert "F32_16x8x32_F8E4M3" not in names["sm_80"] and "F32_16x8x32_F8E4M3" in names["sm_89"]
    assert "F64_16x8x16_F64" in names["sm_90a"] - names["sm_89"]
