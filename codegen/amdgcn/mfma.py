"""One row per matrix instruction: shape, dtypes, registers, passes per target, fragment layouts.

In: nothing. Out: `dense(target)`, the rows (`Mfma`) of a target, `sparse(target)` those of structured sparsity; every
spelling is registered in `isa` with its row in `Inst.extra`. The idea: D = A B + C per block, where which lane and
element holds A[m, k] is linear over bits, so a layout is one string of bits per coordinate, bit 0 first:

    A of 16x16x16 f16: {"M": "l0 l1 l2 l3", "K": "e0 e1 l4 l5"}      lane bits l, element-in-lane bits e

and all layouts follow one rule: the low lane bits are the row of A (column of B, of D); elements are the low bits of
K; the lane bits left over are first blocks, then K. `B` names the block of forms that multiply several small matrices.
Exact products; sums in the accumulator's dtype, in no promised order. A *pass* is 4 clocks of the matrix unit.
Checked against AMD's matrix instruction calculator (tests/data/mfma_columns.json) and LLVM's scheduling model.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field

import numpy as np
from wavedsl.codegen.amdgcn.isa import CDNA3_UP, CDNA4, TARGETS, Unit, inst
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.quick_dataclass import dataclass

SOURCE = "LLVM 22 scheduling model (llvm-mca -instruction-tables); AMD's matrix calculator agrees on 90a and 942"


@dataclass(frozen=True)
class Mfma:
    """One matrix instruction. `passes` by target also says where it exists."""

    mnemonic: str
    """The spelling of the first target that has it; `spelling(target)` gives the right one."""
    legacy: str
    m: int
    n: int
    k: int
    blocks: int
    a_dtype: DType
    b_dtype: DType
    d_dtype: DType
    a_regs: int
    b_regs: int
    d_regs: int
    passes: Mapping[str, int] = field(compare=False)
    a: Mapping[str, str] = field(compare=False)
    b: Mapping[str, str] = field(compare=False)
    d: Mapping[str, str] = field(compare=False)
    kind: str = "xdl"
    """Hazard class: `xdl`, `sgemm` (f32 inputs) or `dgemm` (f64)."""
    scaled: bool = False
    formats: bool = False
    """A and B formats are chosen by cbsz and blgp (f8f6f4)."""
    sparse: bool = False
    """Two of every four elements of A along K are there, in the layout `a` with half of K; an index register says which
    (`index_byte`). D is the addend."""

    @property
    def name(self) -> str:
        """The public `wd.MMAType` name."""
        block = f"_{self.blocks}B" if self.blocks > 1 else ""
        ab = self.a_dtype.name.upper()
        if self.b_dtype is not self.a_dtype:
            ab += f"_{self.b_dtype.name.upper()}"
        return f"{self.d_dtype.name.upper()}_{self.m}x{self.n}x{self.k}{block}_{ab}"

    def spelling(self, target: str) -> str:
        return self.legacy if target == "gfx90a" and self.legacy else self.mnemonic

    def cycles(self, target: str) -> int:
        """Clocks that the matrix unit of one SIMD is busy."""
        return 4 * self.passes[target]


def _lanes(first: int, last: int = 6) -> list[str]:
    return [f"l{i}" for i in range(first, last)]


def _elements(n: int) -> list[str]:
    return [f"e{i}" for i in range(n.bit_length() - 1)]


def _named(**bits: list[str]) -> dict[str, str]:
    return {name: " ".join(b) for name, b in bits.items() if b}


@functools.cache
def operand_layout(side: str, rows: int, k: int, blocks: int) -> Mapping[str, str]:
    """A (`side` "M") or B ("N"): low lanes are rows, elements the low bits of K, then blocks, then the rest of K."""
    m = rows.bit_length() - 1
    b = blocks.bit_length() - 1
    e = _elements(k * rows * blocks // 64)
    return _named(**{side: _lanes(0, m), "K": e + _lanes(m + b), "B": _lanes(m, m + b)})


@functools.cache
def result_layout(m: int, blocks: int, wide: bool) -> Mapping[str, str]:
    """C and D: low lanes are the column; 4 consecutive elements are 4 rows (f64: rows run over the lanes first)."""
    n = m.bit_length() - 1
    b = blocks.bit_length() - 1
    if wide:
        return _named(M=_lanes(n + b) + _elements(m * m * blocks // 64), N=_lanes(0, n), B=_lanes(n, n + b))
    if m == 4:
        return _named(M=["e0", "e1"], N=_lanes(0, 2), B=_lanes(2))
    high = ["e2", "e3"] if m == 32 else []
    first = 2 + len(high)
    return _named(M=["e0", "e1", *_lanes(n), *high], N=_lanes(0, n), B=[f"e{i}" for i in range(first, first + b)])


_ROWS: list[Mfma] = []
_SIZES = {4: 16, 16: 4, 32: 2}
_SUFFIX = {dt.f16: "f16", dt.bf16: "bf16", dt.f32: "f32", dt.f64: "f64", dt.i8: "i8", dt.tf32: "xf32",
           dt.f8e4m3: "fp8", dt.f8e5m2: "bf8", dt.f8e4m3fnuz: "fp8", dt.f8e5m2fnuz: "bf8"}  # fmt: skip


def _row(
    shape: str,
    a: DType,
    passes: tuple[int, int, int],
    *,
    b: DType | None = None,
    legacy: str = "",
    only_legacy: bool = False,
) -> None:
    """Register one matrix instruction: `shape` as in "32x32x4_2b"; passes on gfx90a, gfx942, gfx950 (0: absent)."""
    b = b or a
    size, _, block = shape.partition("_")
    m, n, k = (int(x) for x in size.split("x"))
    blocks = int(block[:-1]) if block else 1
    d = {dt.i8: dt.i32, dt.f64: dt.f64}.get(a, dt.f32)
    suffix = _SUFFIX[a] + (f"_{_SUFFIX[b]}" if a.bits == 8 and a.is_float else "")
    wide = d is dt.f64
    at = {t: p for t, p in zip(TARGETS, passes) if p}
    per_lane = m * k * blocks // 64
    row = Mfma(
        f"v_mfma_{d.name}_{shape}_{suffix}",
        f"v_mfma_{d.name}_{size}{legacy or suffix}" if at.get("gfx90a") else "",
        m, n, k, blocks, a, b, d,
        max(1, per_lane * a.bits // 32), max(1, per_lane * b.bits // 32), m * n * blocks // 64 * (2 if wide else 1),
        at, operand_layout("M", m, k, blocks), operand_layout("N", n, k, blocks), result_layout(m, blocks, wide),
        {dt.f32: "sgemm", dt.f64: "dgemm"}.get(a, "xdl"),
    )  # fmt: skip
    _ROWS.append(row)
    new = frozenset(t for t in at if t != "gfx90a" and not only_legacy)
    if new:
        _register(row, row.mnemonic, new)
    if row.legacy:
        _register(row, row.legacy, frozenset(("gfx90a",)) if only_legacy else frozenset(at))


def _register(row: Mfma, mnemonic: str, targets: frozenset[str]) -> None:
    """One registration per target: passes, hence latency, differ."""
    for target in sorted(targets):
        mods = ("cbsz", "abid", "blgp") if not row.formats else ("cbsz", "blgp")
        if row.scaled:
            mods = ("op_sel", "op_sel_hi", *mods)
        a_regs, b_regs = (0, 0) if row.formats else (row.a_regs, row.b_regs)
        sd, sa, sb = row.d_dtype.name, row.a_dtype.name, row.b_dtype.name
        spec = f"d:va*{row.d_regs}.{sd} <- a:va*{a_regs}.{sa}, b:va*{b_regs}.{sb}, c:van*{row.d_regs}.{sd}"
        if row.scaled:
            spec += ", sa:vsn.u32, sb:vsn.u32"
        passes = row.passes[target]
        small = "mfma_4x4" if row.m == 4 else "mfma_large"
        inst(
            mnemonic, spec, Unit.MFMA, "MFMA", latency=4 * passes + 16, issue=4 * passes, source=SOURCE,
            hazard=("mfma", row.kind, small), targets=frozenset((target,)), modifiers=mods, special="mfma", extra=row,
            doc=f"D = A B + C, {row.m}x{row.n}x{row.k}" + (f", {row.blocks} blocks" if row.blocks > 1 else ""),
        )  # fmt: skip


# fmt: off
#    shape         A        90a 942 950
_row("32x32x1_2b", dt.f32, (16, 16, 16))
_row("16x16x1_4b", dt.f32, (8, 8, 8))
_row("4x4x1_16b", dt.f32, (2, 2, 2))
_row("32x32x2", dt.f32, (16, 16, 16))
_row("16x16x4", dt.f32, (8, 8, 8))
_row("32x32x4_2b", dt.f16, (16, 16, 16))
_row("16x16x4_4b", dt.f16, (8, 8, 8))
_row("4x4x4_16b", dt.f16, (2, 2, 2))
_row("32x32x8", dt.f16, (16, 8, 8))
_row("16x16x16", dt.f16, (8, 4, 4))
_row("32x32x16", dt.f16, (0, 0, 8))
_row("16x16x32", dt.f16, (0, 0, 4))
_row("32x32x2_2b", dt.bf16, (16, 0, 0), only_legacy=True)
_row("16x16x2_4b", dt.bf16, (8, 0, 0), only_legacy=True)
_row("4x4x2_16b", dt.bf16, (2, 0, 0), only_legacy=True)
_row("32x32x4", dt.bf16, (16, 0, 0), only_legacy=True)
_row("16x16x8", dt.bf16, (8, 0, 0), only_legacy=True)
_row("32x32x4_2b", dt.bf16, (16, 16, 16), legacy="bf16_1k")
_row("16x16x4_4b", dt.bf16, (8, 8, 8), legacy="bf16_1k")
_row("4x4x4_16b", dt.bf16, (2, 2, 2), legacy="bf16_1k")
_row("32x32x8", dt.bf16, (16, 8, 8), legacy="bf16_1k")
_row("16x16x16", dt.bf16, (8, 4, 4), legacy="bf16_1k")
_row("32x32x16", dt.bf16, (0, 0, 8))
_row("16x16x32", dt.bf16, (0, 0, 4))
_row("32x32x4", dt.tf32, (0, 8, 0))
_row("16x16x8", dt.tf32, (0, 4, 0))
_row("32x32x4_2b", dt.i8, (16, 16, 16))
_row("16x16x4_4b", dt.i8, (8, 8, 8))
_row("4x4x4_16b", dt.i8, (2, 2, 2))
_row("32x32x8", dt.i8, (16, 0, 0), only_legacy=True)
_row("16x16x16", dt.i8, (8, 0, 0), only_legacy=True)
_row("32x32x16", dt.i8, (0, 8, 8))
_row("16x16x32", dt.i8, (0, 4, 4))
_row("32x32x32", dt.i8, (0, 0, 8))
_row("16x16x64", dt.i8, (0, 0, 4))
_row("16x16x4", dt.f64, (8, 8, 16))
_row("4x4x4_4b", dt.f64, (4, 4, 4))
# fmt: on
for _fp8, _bf8, _p in ((dt.f8e4m3fnuz, dt.f8e5m2fnuz, (0, 1, 0)), (dt.f8e4m3, dt.f8e5m2, (0, 0, 1))):
    for _a in (_bf8, _fp8):
        for _b in (_bf8, _fp8):
            _row("32x32x16", _a, (0, 8 * _p[1], 8 * _p[2]), b=_b)
            _row("16x16x32", _a, (0, 4 * _p[1], 4 * _p[2]), b=_b)


_SPARSE: list[Mfma] = []


def _sparse(m: int, k: int, dtype: DType, passes: int) -> None:
    """Register one product of structured sparsity: D += A B, where A has two of every four elements of K.

    Lane l holds, of row l % m of A, elements 4 (l // m) .. of those that are there, and in the index register where
    they stand in their fours: two bits each, lowest element first. Passes are those of the dense product of half the K
    (LLVM's scheduling model), fragments its too; B has all of K, 8 neighbours a lane (Composable
    Kernel's layouts; docs/unverified.md).
    """
    row = Mfma(
        f"v_smfmac_f32_{m}x{m}x{k}_{_SUFFIX[dtype]}", "", m, m, k, 1, dtype, dtype, dt.f32,
        m * k // 2 // 64 // 2, m * k // 64 // 2, m * m // 64, {t: passes for t in TARGETS if t in CDNA3_UP},
        operand_layout("M", m, k // 2, 1), operand_layout("N", m, k, 1), result_layout(m, 1, False), "xdl", sparse=True,
    )  # fmt: skip
    _SPARSE.append(row)
    spec = f"d=:va*{row.d_regs}.f32 <- a:va*{row.a_regs}.{dtype.name}, b:va*{row.b_regs}.{dtype.name}, index:v.u32"
    inst(
        row.mnemonic, spec, Unit.MFMA, "MFMA", latency=4 * passes + 16, issue=4 * passes, source=SOURCE,
        hazard=("mfma", row.kind, "mfma_large"), targets=CDNA3_UP, modifiers=("cbsz", "abid"), special="mfma",
        extra=row, doc=f"D += A B, {m}x{m}x{k}, two of every four elements of A along K",
    )  # fmt: skip


for _dtype in (dt.f16, dt.bf16):
    _sparse(32, 16, _dtype, 8)
    _sparse(16, 32, _dtype, 4)


def index_byte(cbsz: int, abid: int) -> int:
    """The byte of the index register that a sparse product of 16-bit elements takes (CDNA3 guide: CBSZ 0 lets ABID name
    one of four sets, else the first is taken)."""
    return abid & 3 if cbsz & 3 == 0 else 0


FORMATS = (dt.f8e4m3, dt.f8e5m2, dt.f6e2m3, dt.f6e3m2, dt.f4e2m1)
"""Element format by the value of cbsz (A) and blgp (B) of the f8f6f4 instructions."""


SCALE_BLOCK = 32
"""Elements of K that share a scale."""


@functools.cache
def f8f6f4_layout(side: str, rows: int, bits: int) -> Mapping[str, str]:
    """8-bit operands split K in chunks of 16 elements; narrower ones hold 32 consecutive k per lane (see
    `operand_layout`).
    """
    m = rows.bit_length() - 1
    low = ["e0", "e1", "e2", "e3"]
    k = [*low, *_lanes(m), "e4"] if bits == 8 else [*low, "e4", *_lanes(m)]
    return _named(**{side: _lanes(0, m), "K": k})


def f8f6f4_passes(shape_m: int, a: DType, b: DType) -> int:
    """Half the passes when neither operand is 8 bits wide."""
    full = 8 if shape_m == 16 else 16
    return full if a.bits == 8 or b.bits == 8 else full // 2


def _f8f6f4(m: int, k: int) -> None:
    for scaled in (False, True):
        name = f"v_mfma_{'scale_' if scaled else ''}f32_{m}x{m}x{k}_f8f6f4"
        for a in FORMATS:
            for b in FORMATS:
                row = Mfma(
                    name, "", m, m, k, 1, a, b, dt.f32, a.bits, b.bits, m * m // 64,
                    {"gfx950": f8f6f4_passes(m, a, b)}, f8f6f4_layout("M", m, a.bits), f8f6f4_layout("N", m, b.bits),
                    result_layout(m, 1, False), "xdl", scaled, True,
                )  # fmt: skip
                _ROWS.append(row)
                if a is b is dt.f8e4m3:
                    _register(row, name, CDNA4)


_f8f6f4(16, 128)
_f8f6f4(32, 64)


@functools.lru_cache(maxsize=8)
def dense(target: str) -> tuple[Mfma, ...]:
    """The matrix instructions of a target. f8f6f4 forms appear once per pair of operand formats."""
    return tuple(r for r in _ROWS if target in r.passes)


@functools.lru_cache(maxsize=8)
def sparse(target: str) -> tuple[Mfma, ...]:
    """The matrix instructions of structured sparsity of a target."""
    return tuple(r for r in _SPARSE if target in r.passes)


@functools.lru_cache(maxsize=256)
def with_formats(row: Mfma, cbsz: int, blgp: int) -> Mfma:
    """The f8f6f4 row for the formats that cbsz (A) and blgp (B) select. Raises KeyError for a reserved format."""
    if max(cbsz, blgp) >= len(FORMATS):
        raise KeyError(f"cbsz:{cbsz} blgp:{blgp} is no f8f6f4 format")
    a, b = FORMATS[cbsz], FORMATS[blgp]
    for r in _ROWS:
        if r.mnemonic == row.mnemonic and r.a_dtype is a and r.b_dtype is b:
            return r
    raise KeyError(row.mnemonic)


@functools.lru_cache(maxsize=1024)
def coordinates(layout_items: tuple[tuple[str, str], ...], elements: int) -> dict[str, np.ndarray]:
    """Coordinate → int array [element, lane] of the layout given as sorted items, every lane of the wave."""
    e = np.arange(elements)[:, None]
    lane = np.arange(64)[None, :]
    out = {}
    for name, bits in layout_items:
        total = np.zeros((elements, 64), np.int64)
        for i, bit in enumerate(bits.split()):
            source = e if bit[0] == "e" else lane
            total = total + ((source >> int(bit[1:]) & 1) << i)
        out[name] = total
    return out


__all__ = ["FORMATS", "Mfma", "coordinates", "dense", "f8f6f4_passes", "index_byte", "sparse", "with_formats"]
