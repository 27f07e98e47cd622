"""Warpgroup matrix instructions of sm_90a as rows: shapes, dtypes, fragments, and the shared-memory descriptor.

In: nothing. Out: `wgmma` (operand types and width to a `Wgmma`), their rows in `isa`, `Descriptor`. A warpgroup is
four warps whose first is a multiple of four; lane bits l0…l4 are the lane, l5 and l6 the warp in the warpgroup, so the
layouts below read like those of `mma`. Widths that are no power of two have no bit layout; register i of a result still
holds row 16 w + lane / 4 + 8 ((i >> 1) & 1) and column 8 (i >> 2) + 2 (lane % 4) + (i & 1).

Descriptor and orders: K-major means that a row of K is contiguous. `swizzle` is the span in bytes within which 16-byte
chunks are exchanged, by exclusive or of address bits 7… into bits 4….
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavedsl.codegen.ptx.isa import Arg, Unit, add_row
from wavedsl.codegen.ptx.mma import _PTX_TYPE, Layout
from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.quick_dataclass import dataclass

WARPGROUP = 128
_ROW = "l2 l3 l4"
_A_LAYOUTS: dict[int, Layout] = {
    32: {"M": f"{_ROW} e0 l5 l6", "K": "l0 l1 e1"},
    16: {"M": f"{_ROW} e1 l5 l6", "K": "e0 l0 l1 e2"},
    8: {"M": f"{_ROW} e2 l5 l6", "K": "e0 e1 l0 l1 e3"},
}
"""Fragments of A in registers, by bits per element."""


@dataclass(frozen=True)
class Wgmma:
    """One warpgroup matrix instruction: D[64, n] = A[64, k] B[k, n] (+ D). A lies in registers or shared memory, B in
    shared memory; 16-bit operands there may have either order, others are K-major."""

    n: int
    k: int
    a_dtype: DType
    b_dtype: DType
    d_dtype: DType

    m = 64

    @property
    def shape(self) -> str:
        return f"m64n{self.n}k{self.k}"

    @property
    def name(self) -> str:
        """The `wd.MMAType` name: result, shape, operand types."""
        types = self.a_dtype.name + ("" if self.a_dtype == self.b_dtype else f"_{self.b_dtype.name}")
        return f"{self.d_dtype.name.upper()}_64x{self.n}x{self.k}_{types.upper()}"

    @property
    def mnemonic(self) -> str:
        d, a, b = (_PTX_TYPE[t] for t in (self.d_dtype, self.a_dtype, self.b_dtype))
        return f"wgmma.mma_async.sync.aligned.{self.shape}.{d}.{a}.{b}"

    @property
    def a_regs(self) -> int:
        """Registers of A where it is in registers: always four."""
        return 4

    @property
    def d_regs(self) -> int:
        return self.n // 4 if self.d_dtype == dt.f16 else self.n // 2

    @property
    def a(self) -> Layout:
        """Bits of (lane, element of the lane) of A's coordinates."""
        return _A_LAYOUTS[self.a_dtype.bits]

    @property
    def d(self) -> Layout:
        """The same for D; for widths that are powers of two."""
        columns = " ".join(f"e{i}" for i in range(2, (self.n // 8).bit_length() + 1))
        return {"M": f"{_ROW} e1 l5 l6", "N": f"e0 l0 l1 {columns}".strip()}

    @property
    def transposable(self) -> bool:
        """Whether operands in shared memory may be MN-major."""
        return self.a_dtype.bits == 16

    @property
    def cycles(self) -> int:
        """Clocks that all four tensor cores of an SM are busy, from the dense peak (4096 16-bit FLOP per clock)."""
        return max(1, self.n // 2)


@dataclass(frozen=True)
class WgmmaData:
    """A wgmma row's `data`: which types it multiplies. Counts and costs depend on the width in the name."""

    a_dtype: DType
    b_dtype: DType
    d_dtype: DType
    k: int

    def what(self, mods: dict[str, Any]) -> Wgmma:
        """The instruction of a name's modifiers."""
        n = int(mods["shape"][4:].split("k")[0])
        return Wgmma(n, self.k, self.a_dtype, self.b_dtype, self.d_dtype)

    def registers(self, operand: str, mods: dict[str, Any]) -> int:
        return {"d": self.what(mods).d_regs, "a": 4}.get(operand, 0)

    def interval(self, mods: dict[str, Any]) -> int:
        return self.what(mods).cycles


def widths(a_dtype: DType) -> list[int]:
    """Legal n: multiples of 8 up to 256; for integers of 16 from 32 on."""
    if a_dtype in (dt.i8, dt.u8):
        return [8, 16, 24, *range(32, 257, 16)]
    return list(range(8, 257, 8))


def _types() -> list[tuple[DType, DType, DType, int]]:
    out = [
        (dt.f16, dt.f16, dt.f32, 16),
        (dt.f16, dt.f16, dt.f16, 16),
        (dt.bf16, dt.bf16, dt.f32, 16),
        (dt.tf32, dt.tf32, dt.f32, 8),
    ]
    for a in (dt.f8e4m3, dt.f8e5m2):
        for b in (dt.f8e4m3, dt.f8e5m2):
            out += [(a, b, dt.f32, 32), (a, b, dt.f16, 32)]
    for a in (dt.i8, dt.u8):
        for b in (dt.i8, dt.u8):
            out.append((a, b, dt.i32, 32))
    return out


TYPES = _types()
"""(A, B, D, k) of every kind."""


def wgmma(a: DType, b: DType, d: DType, n: int) -> Wgmma | None:
    """The instruction of these types and width, or None if there is none."""
    for ta, tb, td, k in TYPES:
        if (ta, tb, td) == (a, b, d) and n in widths(a):
            return Wgmma(n, k, a, b, d)
    return None


# ---------------------------------------------------------------- rows


def _operands(args: Sequence[Arg], tail: int) -> str:
    """What the kinds do not say: the order flag of A is there exactly if A is in shared memory; scales are 1 or -1."""
    in_registers = args[1].kind == "vec"
    want = 4 + tail - (1 if in_registers and tail == 4 else 0)
    if len(args) != want:
        return f"with A in {'registers' if in_registers else 'shared memory'} it takes {want} operands, got {len(args)}"
    if args[3].kind == "imm" and args[3].text not in ("0", "1"):
        return f"scale-d is a predicate, 0 or 1, not {args[3].text}"
    for i, arg in enumerate(args[4:]):
        if i < 2 and arg.text not in ("1", "-1"):
            return f"imm-{'ab'[i]} is 1 or -1, not {arg.text}"
        if i >= 2 and arg.text not in ("0", "1"):
            return f"the order of an operand is 0 (K-major) or 1 (MN-major), not {arg.text}"
    return ""


_REGISTER = {dt.f32: "f32", dt.f16: "b32", dt.i32: "s32"}
_LIST = "d:vec({}) <- a:frag, b:frag, scale_d:pred"
_TAIL = {4: ", scale_a:imm, scale_b:imm, a_order?:imm, b_order:imm", 2: ", scale_a:imm, scale_b:imm", 0: ""}

for _a, _b, _d, _k in TYPES:
    _tail = 4 if _a.bits == 16 else 0 if _d == dt.i32 else 2
    _shapes = "|".join(f"m64n{n}k{_k}" for n in widths(_a))
    add_row(
        f"wgmma.mma_async.sync.aligned.shape:{_shapes}.{_PTX_TYPE[_d]}.{_PTX_TYPE[_a]}.{_PTX_TYPE[_b]}"
        + ("{.satfinite}" if _d == dt.i32 else ""),
        _LIST.format(_REGISTER[_d]) + _TAIL[_tail],
        Unit.TENSOR,
        latency=128,
        effects="wgmma multiply warpgroup convergent",
        ptx=(8, 0),
        sm=90,
        needs_a=True,
        source="cycles from the dense peak of the data sheet; latency unverified",
        data=WgmmaData(_a, _b, _d, _k),
        check=lambda args, tail=_tail: _operands(args, tail),  # type: ignore[misc]
        doc=f"D = A B (+ D) of a warpgroup, {_a} x {_b} -> {_d}, without waiting; products exact, sums in {_d}",
    )

_GROUP: dict[str, Any] = {"unit": Unit.TENSOR, "sm": 90, "ptx": (8, 0), "needs_a": True, "source": "latency unverified"}
add_row(
    "wgmma.fence.sync.aligned",
    "",
    effects="wgmma fence warpgroup convergent",
    doc="order accesses to registers before wgmma that use them",
    **_GROUP,
)
add_row(
    "wgmma.commit_group.sync.aligned",
    "",
    effects="wgmma commit warpgroup convergent",
    doc="close a group of the warpgroup's matrix instructions",
    **_GROUP,
)
add_row(
    "wgmma.wait_group.sync.aligned",
    "n:imm",
    effects="wgmma wait warpgroup convergent",
    doc="wait until at most n groups are pending; then the others' registers and shared memory are free",
    **_GROUP,
)

# ---------------------------------------------------------------- descriptors

SWIZZLES = {0: 0, 128: 1, 64: 2, 32: 3}
"""Swizzle span in bytes -> the descriptor's code (bits 62 and 63). Tensor maps number them otherwise."""


@dataclass(frozen=True)
class Descriptor:
    """A shared-memory matrix descriptor. `start`, `leading` and `stride` in bytes, multiples of 16; `swizzle` 0, 32,
    64 or 128; `base_offset` is bits 7 to 9 of where the swizzle pattern starts, 0 if that is a multiple of 8 spans.
    """

    start: int
    leading: int
    stride: int
    swizzle: int
    base_offset: int = 0

    def encode(self) -> int:
        """The 64 bits. Byte quantities drop their four low bits; `start` keeps its low 18."""
        fields = (
            (self.start & 0x3FFFF) >> 4,
            (self.leading & 0x3FFFF) >> 4 << 16,
            (self.stride & 0x3FFFF) >> 4 << 32,
            (self.base_offset & 7) << 49,
            SWIZZLES[self.swizzle] << 62,
        )
        return sum(fields)

    @staticmethod
    def decode(bits: int) -> Descriptor:
        span = {code: s for s, code in SWIZZLES.items()}[bits >> 62 & 3]
        return Descriptor(
            (bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, span, bits >> 49 & 7
        )
