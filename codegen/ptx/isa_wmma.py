"""Rows of `wmma`, the older matrix interface whose fragments have no documented layout.

The compiler does not emit these; texts of others do. A fragment's layout is the emulator's choice (`Fragment`):
element n of the row-major matrix lies in lane n // per_lane. f16 operands fill twice the registers that they need, as
on the chip.
"""

from __future__ import annotations

from typing import Any

from wavedsl.codegen.ptx.isa import Unit, add_row
from wavedsl.ir.quick_dataclass import dataclass

_SHAPES_16 = {"m16n16k16": (16, 16, 16), "m8n32k16": (8, 32, 16), "m32n8k16": (32, 8, 16)}
SHAPES = {**_SHAPES_16, "m16n16k8": (16, 16, 8), "m8n8k4": (8, 8, 4)}
_ELEMENT_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s8": 8, "u8": 8, "s32": 32}


@dataclass(frozen=True)
class Fragment:
    """One operand: a `rows` x `cols` matrix of `type`; `registers` per lane, each element `copies` times."""

    rows: int
    cols: int
    type: str
    registers: int
    copies: int

    @property
    def bits(self) -> int:
        return _ELEMENT_BITS[self.type]

    @property
    def per_lane(self) -> int:
        return self.rows * self.cols // 32


def fragment(operand: str, shape: str, type_: str) -> Fragment:
    """The fragment of operand a, b, c or d."""
    m, n, k = SHAPES[shape]
    rows, cols = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[operand]
    per_lane = rows * cols // 32
    registers = per_lane if type_ == "f64" else max(1, per_lane * _ELEMENT_BITS[type_] // 32)
    copies = 1
    if type_ == "f16" and operand in "ab":
        copies, registers = 8 // registers, 8
    return Fragment(rows, cols, type_, registers, copies)


class WmmaData:
    """A row's `data`: the registers in an operand's braces depend on the modifiers, so they are not fixed here."""

    def get(self, name: str, default: int = 0) -> int:
        return default


def _register(type_: str) -> str:
    return {"f32": "f32", "f64": "f64", "s32": "s32"}.get(type_, "b32")


_SPACE = "{.space:global|shared::cta|shared}"
_LAYOUT = "row|col"
_common: dict[str, Any] = {"source": "unverified", "data": WmmaData()}
for _op, _shapes, _types in (
    ("a", "m16n16k16|m8n32k16|m32n8k16", ("f16", "bf16", "s8", "u8")),
    ("a", "m16n16k8", ("tf32",)),
    ("a", "m8n8k4", ("f64",)),
    ("c", "m16n16k16|m8n32k16|m32n8k16", ("f16", "f32", "s32")),
    ("c", "m16n16k8", ("f32",)),
    ("c", "m8n8k4", ("f64",)),
):
    for _type in _types:
        for _name in ("a", "b") if _op == "a" else ("c",):
            add_row(
                f"wmma.load.{_name}.sync.aligned.layout:{_LAYOUT}.shape:{_shapes}{_SPACE}.type:{_type}",
                f"d:vec({_register(_type)}) <- p:addr, stride?:u32",
                Unit.LSU,
                latency=290,
                interval=8,
                effects="load convergent wmma",
                doc=f"load fragment {_name} of {_type} elements, rows or columns `stride` elements apart",
                **_common,
            )
        if _op == "c":
            add_row(
                f"wmma.store.d.sync.aligned.layout:{_LAYOUT}.shape:{_shapes}{_SPACE}.type:{_type}",
                f"p:addr, a:vec({_register(_type)}), stride?:u32",
                Unit.LSU,
                interval=8,
                effects="store convergent wmma",
                doc=f"store fragment d of {_type} elements, rows or columns `stride` elements apart",
                **_common,
            )

_MMA = f"wmma.mma.sync.aligned.alayout:{_LAYOUT}.blayout:{_LAYOUT}"
for _d in ("f16", "f32"):
    for _c in ("f16", "f32"):
        add_row(
            f"{_MMA}.shape:m16n16k16|m8n32k16|m32n8k16.{_d}.{_c}",
            f"d:vec({_register(_d)}) <- a:vec(b32), b:vec(b32), c:vec({_register(_c)})",
            Unit.TENSOR,
            latency=66,
            interval=16,
            effects="convergent wmma",
            doc=f"D = A B + C on fragments, f16 x f16, C {_c}, D {_d}",
            source="unverified",
            data={"types": ("f16", "f16", _c, _d)},
        )
for _shapes, _a, _b, _c, _sat in (
    ("m16n16k16|m8n32k16|m32n8k16", "bf16", "bf16", "f32", ""),
    ("m16n16k8", "tf32", "tf32", "f32", ""),
    ("m8n8k4", "f64", "f64", "f64", ""),
    ("m16n16k16|m8n32k16|m32n8k16", "s8", "s8", "s32", "{.satfinite}"),
    ("m16n16k16|m8n32k16|m32n8k16", "u8", "u8", "s32", "{.satfinite}"),
):
    add_row(
        f"{_MMA}.shape:{_shapes}{'{.rnd:rn}' if _a == 'f64' else ''}.{_c}.{_a}.{_b}.{_c}{_sat}",
        f"d:vec({_register(_c)}) <- a:vec({_register(_a)}), b:vec({_register(_b)}), c:vec({_register(_c)})",
        Unit.TENSOR,
        latency=66,
        interval=16,
        effects="convergent wmma",
        doc=f"D = A B + C on fragments, {_a} x {_b}, sums in {_c}",
        source="unverified",
        data={"types": (_a, _b, _c, _c)},
    )
