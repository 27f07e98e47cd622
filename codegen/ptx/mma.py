"""Matrix instructions of NVIDIA chips as rows: shapes, dtypes, registers, cost and fragment layouts.

In: nothing. Out: `MMAS` (every `mma.sync` shape), `MATRIX_MOVES` (`ldmatrix`, `stmatrix`) and their rows in `isa`.
The one idea: a fragment is a linear map from bits to bits. A layout names, for each matrix dimension, which bit of the
(lane, element) index each bit of the coordinate is, bit 0 first: A of m16n8k16 is `M: l2 l3 l4 e1`, `K: e0 l0 l1 e2`,
so row = lane // 4 + 8 * ((element >> 1) & 1). Elements are packed into a lane's registers low bits first.
Invariant: each layout is a bijection between (lane, element) and (row, column); a test compares them with a vendor
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from wavedsl.codegen.ptx.isa import Row, Unit, add_row
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.quick_dataclass import dataclass

Layout = Mapping[str, str]
"""Dimension -> bit names (`l0`…`l4` lane, `e0`… element in lane), bit 0 first."""

WARP = 32

_PTX_TYPE = {
    dt.f16: "f16",
    dt.bf16: "bf16",
    dt.tf32: "tf32",
    dt.f32: "f32",
    dt.f64: "f64",
    dt.i32: "s32",
    dt.i8: "s8",
    dt.u8: "u8",
    dt.i4: "s4",
    dt.u4: "u4",
    dt.f8e4m3: "e4m3",
    dt.f8e5m2: "e5m2",
}


@dataclass(frozen=True)
class Mma:
    """One matrix instruction of one warp: D[m, n] = A[m, k] B[k, n] + C[m, n].

    `a`, `b`, `d` are fragment layouts (C has D's); `a_regs`… count registers of 32 bits (64 for f64). `cycles` is how
    long one warp occupies its tensor core on sm_80, derived from the dense peak of the data sheet (f64 of 16 rows: on
    sm_90, measured); `latency` is issue to use.
    """

    m: int
    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    d_dtype: DType
    a: Layout
    b: Layout
    d: Layout
    cycles: int
    latency: int
    min_sm: int
    min_ptx: tuple[int, int]
    witness: str
    """Where the layout can be checked: `mma_sync` entry of the vendor table, or `unverified`."""
    last_sm: int = 999
    """The last chip that has it; ptxas makes other instructions of it for later ones."""

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def name(self) -> str:
        """The `wd.MMAType` name: result, shape, operand types."""
        types = self.a_dtype.name + ("" if self.a_dtype == self.b_dtype else f"_{self.b_dtype.name}")
        return f"{self.d_dtype.name.upper()}_{self.m}x{self.n}x{self.k}_{types.upper()}"

    @property
    def mnemonic(self) -> str:
        a, b, d = _PTX_TYPE[self.a_dtype], _PTX_TYPE[self.b_dtype], _PTX_TYPE[self.d_dtype]
        return f"mma.sync.aligned.{self.shape}.row.col.{d}.{a}.{b}.{d}"

    @property
    def a_elements(self) -> int:
        return self.m * self.k // WARP

    @property
    def b_elements(self) -> int:
        return self.n * self.k // WARP

    @property
    def d_elements(self) -> int:
        return self.m * self.n // WARP

    def _regs(self, elements: int, dtype: DType) -> int:
        return elements if dtype.bits == 64 else max(1, elements * dtype.bits // 32)

    @property
    def a_regs(self) -> int:
        return self._regs(self.a_elements, self.a_dtype)

    @property
    def b_regs(self) -> int:
        return self._regs(self.b_elements, self.b_dtype)

    @property
    def d_regs(self) -> int:
        return self._regs(self.d_elements, self.d_dtype)

    @property
    def operand_reg(self) -> str:
        """PTX register type of A and B."""
        return "f64" if self.a_dtype == dt.f64 else "b32"

    @property
    def result_reg(self) -> str:
        """PTX register type of C and D."""
        return {dt.f64: "f64", dt.f32: "f32", dt.i32: "s32", dt.f16: "b32"}[self.d_dtype]


@dataclass(frozen=True)
class MatrixMove:
    """`ldmatrix` or `stmatrix`: 8x8 matrices of 16-bit elements between shared memory and fragments.

    Each row of 8 elements (16 bytes) lies at the address that one lane supplies. `L` gives the bits of that lane, `x`
    those of the element within the row, both as bits of the (lane, element) that holds the value, bit 0 first.
    """

    name: str
    count: int
    trans: bool
    store: bool
    L: str
    x: str

    @property
    def mnemonic(self) -> str:
        op = "stmatrix" if self.store else "ldmatrix"
        return f"{op}.sync.aligned.m8n8.x{self.count}{'.trans' if self.trans else ''}.shared.b16"


# Fragments, keyed by how many elements of K one 32-bit register holds.
_G = "l2 l3 l4"
_D = {"M": f"{_G} e1", "N": "e0 l0 l1"}
_16_K16 = ({"M": f"{_G} e1", "K": "e0 l0 l1 e2"}, {"N": _G, "K": "e0 l0 l1 e1"})
_16_K8 = ({"M": f"{_G} e1", "K": "e0 l0 l1"}, {"N": _G, "K": "e0 l0 l1"})
_32_K8 = ({"M": f"{_G} e0", "K": "l0 l1 e1"}, {"N": _G, "K": "l0 l1 e0"})
_32_K4 = ({"M": f"{_G} e0", "K": "l0 l1"}, {"N": _G, "K": "l0 l1"})
_32_K16 = ({"M": f"{_G} e0", "K": "l0 l1 e1 e2"}, {"N": _G, "K": "l0 l1 e0 e1"})
_8_K32 = ({"M": f"{_G} e2", "K": "e0 e1 l0 l1 e3"}, {"N": _G, "K": "e0 e1 l0 l1 e2"})
_8_K16 = ({"M": f"{_G} e2", "K": "e0 e1 l0 l1"}, {"N": _G, "K": "e0 e1 l0 l1"})
_4_K64 = ({"M": f"{_G} e3", "K": "e0 e1 e2 l0 l1 e4"}, {"N": _G, "K": "e0 e1 e2 l0 l1 e3"})
_4_K32 = ({"M": f"{_G} e3", "K": "e0 e1 e2 l0 l1"}, {"N": _G, "K": "e0 e1 e2 l0 l1"})
_F64_884 = ({"M": _G, "K": "l0 l1"}, {"N": _G, "K": "l0 l1"})
_D_884 = {"M": _G, "N": "e0 l0 l1"}

# Dense multiply-adds per clock of one of an SM's four tensor cores on sm_80, from the A100 data sheet's peaks (312
# TFLOP/s f16 at 1.41 GHz on 108 SMs) divided out.
_RATE = {
    dt.f16: 256,
    dt.bf16: 256,
    dt.tf32: 128,
    dt.i8: 512,
    dt.u8: 512,
    dt.i4: 1024,
    dt.u4: 1024,
    dt.f64: 16,
    dt.f8e4m3: 512,
    dt.f8e5m2: 512,
}
_F64_CLOCKS = {4: 17, 8: 32, 16: 68}
"""Clocks of Hopper's own instructions for f64 by their depth, measured on an H200: 17.14, 32.33 and 67.72, where 16, 32
and 64 are the data sheet's 67 TFLOP/s. The one of sm_80 stays at half of that rate there: Triton had 31 TFLOP/s with it
on an H100, and 53 with m16n8k4, beside cuBLAS' 56 (triton-lang/triton, pull request 10313)."""


def _mma(
    m: int,
    n: int,
    k: int,
    a: DType,
    b: DType,
    d: DType,
    layouts: tuple[Layout, Layout],
    witness: str,
    d_layout: Layout = _D,
    sm: int = 80,
    ptx: tuple[int, int] = (7, 0),
    cycles: int = 0,
    last_sm: int = 999,
) -> Mma:
    cycles = cycles or max(1, m * n * k // _RATE[a])
    return Mma(m, n, k, a, b, d, *layouts, d_layout, cycles, 17 + 2 * cycles, sm, ptx, witness, last_sm)


def _table() -> tuple[Mma, ...]:
    rows = [
        _mma(16, 8, 16, dt.f16, dt.f16, dt.f32, _16_K16, "m16n8k16.f16/bf16"),
        _mma(16, 8, 16, dt.bf16, dt.bf16, dt.f32, _16_K16, "m16n8k16.f16/bf16"),
        _mma(16, 8, 16, dt.f16, dt.f16, dt.f16, _16_K16, "m16n8k16.f16/bf16"),
        _mma(16, 8, 8, dt.f16, dt.f16, dt.f32, _16_K8, "m16n8k8.f16/bf16"),
        _mma(16, 8, 8, dt.bf16, dt.bf16, dt.f32, _16_K8, "m16n8k8.f16/bf16"),
        _mma(16, 8, 8, dt.f16, dt.f16, dt.f16, _16_K8, "m16n8k8.f16/bf16"),
        _mma(16, 8, 8, dt.tf32, dt.tf32, dt.f32, _32_K8, "m16n8k8.tf32"),
        _mma(16, 8, 4, dt.tf32, dt.tf32, dt.f32, _32_K4, "m16n8k4.tf32"),
        _mma(8, 8, 4, dt.f64, dt.f64, dt.f64, _F64_884, "m8n8k4.f64", _D_884),
        *(
            _mma(16, 8, k, dt.f64, dt.f64, dt.f64, layout, f"m16n8k{k}.f64", _D, 90, (7, 8), _F64_CLOCKS[k])
            for k, layout in ((4, _32_K4), (8, _32_K8), (16, _32_K16))
        ),
    ]
    for a in (dt.i8, dt.u8):
        for b in (dt.i8, dt.u8):
            rows.append(_mma(16, 8, 32, a, b, dt.i32, _8_K32, "m16n8k32.s8/u8/e4m3/e5m2"))
            rows.append(_mma(16, 8, 16, a, b, dt.i32, _8_K16, "m16n8k16.s8/u8"))
    for a in (dt.i4, dt.u4):
        for b in (dt.i4, dt.u4):
            # From sm_90 on ptxas 13 makes 20 (u4 x u4) to 191 (i4 x i4) of one, two of them products of bytes.
            rows.append(_mma(16, 8, 64, a, b, dt.i32, _4_K64, "unverified", last_sm=89))
            rows.append(_mma(16, 8, 32, a, b, dt.i32, _4_K32, "unverified", last_sm=89))
    for a in (dt.f8e4m3, dt.f8e5m2):
        for b in (dt.f8e4m3, dt.f8e5m2):
            rows.append(_mma(16, 8, 32, a, b, dt.f32, _8_K32, "m16n8k32.s8/u8/e4m3/e5m2", sm=89, ptx=(8, 4)))
            rows.append(_mma(16, 8, 32, a, b, dt.f16, _8_K32, "m16n8k32.s8/u8/e4m3/e5m2", sm=89, ptx=(8, 7)))
    return tuple(rows)


MMAS: tuple[Mma, ...] = _table()
"""Every `mma.sync` instruction, dense."""


def of_halves(sums: DType) -> Mma:
    """The product of f16 that is as high and wide as those of bytes, and half as deep."""
    return next(m for m in MMAS if (m.a_dtype, m.b_dtype, m.d_dtype, m.k) == (dt.f16, dt.f16, sums, 16))


MATRIX_MOVES: tuple[MatrixMove, ...] = tuple(
    MatrixMove(
        f"{'stmatrix' if store else 'ldmatrix'}.x{count}{'.trans' if trans else ''}",
        count,
        trans,
        store,
        " ".join(
            (["e0", "l0", "l1"] if trans else ["l2", "l3", "l4"]) + [f"e{1 + i}" for i in range(count.bit_length() - 1)]
        ),
        "l2 l3 l4" if trans else "e0 l0 l1",
    )
    for store in (False, True)
    for trans in (False, True)
    for count in (1, 2, 4)
)
MOVES_BY_NAME: dict[str, MatrixMove] = {m.name: m for m in MATRIX_MOVES}

_SOURCE = (
    "cycles from the data sheet's dense peak; latency 17 + 2 * cycles fits published sm_80 figures roughly (unverified)"
)


@lru_cache(maxsize=1)
def rows() -> dict[str, Row]:
    """The `isa` rows of the matrix instructions by mnemonic. Built once, when `isa` loads its tables."""
    out = {}
    for m in MMAS:
        d, a, b = _PTX_TYPE[m.d_dtype], _PTX_TYPE[m.a_dtype], _PTX_TYPE[m.b_dtype]
        sat = "{.satfinite}" if d == "s32" else ""
        out[m.mnemonic] = add_row(
            f"mma.sync.aligned.{m.shape}.row.col{sat}.{d}.{a}.{b}.{d}",
            f"d:vec({m.result_reg}) <- a:vec({m.operand_reg}), b:vec({m.operand_reg}), c:vec({m.result_reg})",
            Unit.TENSOR,
            latency=m.latency,
            interval=m.cycles,
            ptx=m.min_ptx,
            sm=m.min_sm,
            source=_SOURCE,
            effects="convergent matrix",
            data=MmaData(m, {"d": m.d_regs, "a": m.a_regs, "b": m.b_regs, "c": m.d_regs}),
            doc=f"D = A B + C on {m.m}x{m.n}x{m.k} {a} x {b} -> {d}, one warp; products exact, sums in {d}",
        )
    for mv in MATRIX_MOVES:
        counts = {"d": mv.count, "a": mv.count}
        common: dict[str, Any] = {"unit": Unit.LSU, "interval": mv.count, "data": MmaData(mv, counts)}
        trans = ".trans" if mv.trans else ""
        if mv.store:
            out[mv.mnemonic] = add_row(
                f"stmatrix.sync.aligned.m8n8.x{mv.count}{trans}{{.space:shared::cta|shared}}.b16",
                "p:addr, a:vec(b32)",
                latency=30,
                sm=90,
                ptx=(7, 8),
                effects="store convergent matrix",
                source="unverified",
                doc=f"store {mv.count} 8x8 matrices of 16-bit elements, row addresses from lanes",
                **common,
            )
        else:
            out[mv.mnemonic] = add_row(
                f"ldmatrix.sync.aligned.m8n8.x{mv.count}{trans}{{.space:shared::cta|shared}}.b16",
                "d:vec(b32) <- p:addr",
                latency=33,
                effects="load convergent matrix",
                source="unverified: published sm_80 microbenchmarks give about 33",
                doc=f"load {mv.count} 8x8 matrices of 16-bit elements, row addresses from lanes",
                **common,
            )
    return out


@dataclass(frozen=True)
class MmaData:
    """A matrix row's `data`: the instruction and how many registers each operand's braces hold."""

    what: Mma | MatrixMove
    counts: Mapping[str, int]

    def get(self, name: str, default: int = 0) -> int:
        return self.counts.get(name, default)


rows()
