"""`MMAType`: the names of matrix instructions, `{result}_{M}x{N}x{K}[_{blocks}B]_{A}[_{B}]`.

A name is parsed into its parts. Which names a chip has, and in which registers their operands lie, is in the targets'
tables; a name that parses here and that a target lacks is that target's ConstraintError.
"""

from __future__ import annotations

import difflib
import re

from wavedsl.ir import dtypes as dt
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.source import here

_NAME = re.compile(r"([A-Z0-9]+)_(\d+)x(\d+)x(\d+)(?:_(\d+)B)?_([A-Z0-9]+)(?:_([A-Z0-9]+))?")

_DTYPES = {name.upper(): dtype for name, dtype in dt.ALL.items()}


@dataclass(frozen=True)
class MMATypeName:
    """One matrix instruction by shape and dtypes: result[M, N] += A[M, K] B[K, N], `blocks` times at once."""

    name: str
    result: DType
    m: int
    n: int
    k: int
    blocks: int
    a: DType
    b: DType

    def __repr__(self) -> str:
        return f"MMAType.{self.name}"

    def __str__(self) -> str:
        return self.name


def parse(name: str) -> MMATypeName | None:
    """The parts of a name, None where it does not follow the pattern."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    result, m, n, k, blocks, a, b = match.groups()
    if result not in _DTYPES or a not in _DTYPES or (b or a) not in _DTYPES:
        return None
    return MMATypeName(name, _DTYPES[result], int(m), int(n), int(k), int(blocks or 1), _DTYPES[a], _DTYPES[b or a])


COMMON = (
    *(f"F32_{shape}_{a}" for shape in ("16x16x16", "32x32x8") for a in ("F16", "BF16")),
    *(f"F32_{shape}_{a}" for shape in ("16x16x32", "32x32x16") for a in ("F16", "BF16")),
    *(f"F32_{shape}_{a}" for shape in ("16x16x32", "32x32x16") for a in ("F8E4M3FNUZ", "F8E5M2FNUZ")),
    *(f"F32_{shape}_{a}" for shape in ("16x16x32", "32x32x16") for a in ("F8E4M3", "F8E5M2")),
    "F32_16x16x4_F32", "F32_32x32x2_F32", "F32_16x16x8_TF32", "F32_32x32x4_TF32", "F64_16x16x4_F64",
    "I32_16x16x16_I8", "I32_32x32x8_I8", "I32_16x16x32_I8", "I32_32x32x16_I8", "I32_16x16x64_I8", "I32_32x32x32_I8",
    "F32_16x16x128_F8E4M3", "F32_32x32x64_F8E4M3", "F32_4x4x4_16B_F16",
    "F32_16x8x16_F16", "F32_16x8x16_BF16", "F32_16x8x8_F16", "F32_16x8x8_TF32", "F32_16x8x4_TF32", "F16_16x8x16_F16",
    "F64_8x8x4_F64", "I32_16x8x32_I8", "I32_16x8x16_I8",
    *(f"F32_64x{n}x16_{a}" for n in (64, 128, 256) for a in ("F16", "BF16")),
    *(f"F32_64x{n}x32_{a}" for n in (64, 128, 256) for a in ("F8E4M3", "F8E5M2")),
)  # fmt: skip
"""Names shown by `dir(wd.MMAType)`; every name of the pattern is accepted as an attribute."""


class _MMATypes:
    """`MMAType.F32_16x16x16_F16` names a matrix instruction of either vendor."""

    def __getattr__(self, name: str) -> MMATypeName:
        if name.startswith("_"):
            raise AttributeError(name)
        found = parse(name)
        if found is None:
            near = difflib.get_close_matches(name.upper().replace("X", "x"), COMMON, n=3)
            raise ConstraintError(
                f"MMAType.{name}: no such matrix instruction",
                here(calls=False),
                hint="names are {result}_{M}x{N}x{K}[_{blocks}B]_{A}[_{B}]"
                + (f"; close ones: {', '.join(near)}" if near else ", for example F32_16x16x16_F16"),
            )
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return list(COMMON)

    def __repr__(self) -> str:
        return "MMAType"


MMAType = _MMATypes()
