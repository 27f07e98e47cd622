"""AMDGCN back end for gfx90a, gfx942 and gfx950: instruction tables, selection, allocation, waits, hazards, text.

`compile_kernel_ir` turns kernel IR into text; `get_target` describes the chips to the compiler's middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wavedsl.codegen.amdgcn.emit import AmdProgram, compile_kernel_ir
    from wavedsl.codegen.amdgcn.target import TARGETS, get_target

__all__ = ["TARGETS", "AmdProgram", "compile_kernel_ir", "get_target"]


def __getattr__(name: str) -> Any:
    """Load the back end when it is first used."""
    if name in ("AmdProgram", "compile_kernel_ir"):
        from wavedsl.codegen.amdgcn import emit

        return getattr(emit, name)
    if name in ("TARGETS", "get_target"):
        from wavedsl.codegen.amdgcn import target

        return getattr(target, name)
    raise AttributeError(name)
