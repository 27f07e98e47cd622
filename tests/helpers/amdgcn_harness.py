"""Small AMDGCN kernels for tests of rows and emulator: one instruction over arrays, a body with arguments, sample
operands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn import isa
from wavedsl.codegen.amdgcn.isa import EXEC, M0, OFF, VCC, Inst, Operand, Reg
from wavedsl.runtime.emulator import EmulationReport
from wavedsl.runtime.emulator.amdgcn.emulator import run_amdgcn

VECTORS = Path(__file__).parent.parent / "vectors" / "amdgcn"


def vector_cases() -> list[str]:
    return sorted(p.parent.name for p in VECTORS.glob("*/case.json"))


def load_case(name: str) -> tuple[dict[str, Any], str]:
    """The description and the text of one conformance vector."""
    folder = VECTORS / name
    case = json.loads((folder / "case.json").read_text())
    return case, (folder / case["asm"]).read_text()


def module(body: str, *, pointers: int = 1, scalars: int = 0, lds: int = 0, private: int = 0, **directives: int) -> str:
    """A kernel `k`: kernarg pointer in s[0:1], workgroup ids in s2 to s4, pointers then 4-byte scalars as arguments."""
    size = 8 * pointers + 4 * scalars
    args = [f"{{.offset: {8 * i}, .size: 8, .value_kind: global_buffer}}" for i in range(pointers)]
    args += [f"{{.offset: {8 * pointers + 4 * i}, .size: 4, .value_kind: by_value}}" for i in range(scalars)]
    settings = {
        "group_segment_fixed_size": lds, "private_segment_fixed_size": private, "kernarg_size": size,
        "user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": 2, "system_sgpr_workgroup_id_x": 1,
        "system_sgpr_workgroup_id_y": 1, "system_sgpr_workgroup_id_z": 1, "system_vgpr_workitem_id": 0,
        "next_free_vgpr": 512, "next_free_sgpr": 100, "accum_offset": 256, "float_denorm_mode_32": 3, **directives,
    }  # fmt: skip
    lines = "\n".join(f"  .amdhsa_{k} {v}" for k, v in settings.items())
    return f"""
.text
.p2align 8
k:
{body}
s_endpgm
.rodata
.p2align 6
.amdhsa_kernel k
{lines}
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - {{.name: k, .symbol: k.kd, .kernarg_segment_size: {size}, .args: [{", ".join(args)}]}}
.end_amdgpu_metadata
"""


def run(
    body: str, args: Sequence[Any], *, target: str = "gfx942", grid: Any = 1, block: Any = 64, checks: Any = "report",
    seed: int = 0, **settings: int,
) -> EmulationReport:  # fmt: skip
    """Run a body; arrays are the pointer arguments, in order, and NumPy scalars follow them."""
    pointers = sum(isinstance(a, np.ndarray) or a is None for a in args)
    text = module(body, pointers=pointers, scalars=len(args) - pointers, **settings)
    return run_amdgcn(
        text,
        target=target,
        grid=(grid,) if isinstance(grid, int) else grid,
        block=(block,) if isinstance(block, int) else block,
        args=args,
        checks=checks,
        seed=seed,
    )


def line_of(report: EmulationReport, kind: str) -> str:
    """The instruction that the first finding of a kind blames; fails with all findings if there is none."""
    for f in report.findings:
        if f.kind == kind:
            return f.instruction
    raise AssertionError(f"no {kind} among {[str(f) for f in report.findings]}")


def apply(
    mnemonic: str, inputs: Sequence[np.ndarray], *, target: str = "gfx942", modifiers: str = "", outs: int = 1,
    constants: Sequence[str] = (), before: str = "", tail: str = "", order: str = "{d}, {s}", **settings: int,
) -> np.ndarray:  # fmt: skip
    """Run one vector instruction on arrays of uint32 words, [words, n] per input; returns [outs, n].

    Registers: inputs lie in v[10:], v[20:], v[30:], results in v[40:], which hold zeros before. `before`, `tail`: lines
    around the instruction.
    """
    arrays = [np.ascontiguousarray(np.atleast_2d(x)) for x in inputs]
    n = arrays[0].shape[1]
    pad = -n % 64
    arrays = [np.pad(a, ((0, 0), (0, pad))) for a in arrays]
    total = n + pad
    flat = [np.ascontiguousarray(a.T).astype(np.uint32) for a in arrays]
    result = np.zeros((total, outs), np.uint32)
    lines = [
        "s_load_dwordx16 s[16:31], s[0:1], 0x0",
        "v_and_b32 v0, 0x3ff, v0",
        "s_lshl_b32 s5, s2, 6",
        "v_add_u32 v0, s5, v0",
        "s_waitcnt lgkmcnt(0)",
    ]
    for i, a in enumerate(arrays):
        words = a.shape[0]
        lines.append(f"v_mul_u32_u24 v1, {4 * words}, v0")
        for w in range(words):
            lines.append(f"global_load_dword v{10 * (i + 1) + w}, v1, s[{16 + 2 * i}:{17 + 2 * i}] offset:{4 * w}")
    lines += [f"v_mov_b32 v{40 + i}, 0" for i in range(outs)]
    lines.append("s_waitcnt vmcnt(0)")
    lines += [before, "s_nop 7"]
    sources = [name(10 * (i + 1), a.shape[0]) for i, a in enumerate(arrays)] + list(constants)
    lines.append(f"{mnemonic} " + order.format(d=name(40, outs), s=", ".join(sources)) + f" {modifiers}")
    lines += ["s_nop 15", "s_nop 15", tail]
    k = len(arrays)
    lines.append(f"v_mul_u32_u24 v1, {4 * outs}, v0")
    for w in range(outs):
        lines.append(f"global_store_dword v1, v{40 + w}, s[{16 + 2 * k}:{17 + 2 * k}] offset:{4 * w}")
    run("\n".join(lines), [*flat, result], target=target, grid=total // 64, checks=True, kernarg_size=64, **settings)
    return np.ascontiguousarray(result[:n].T)


def name(first: int, count: int, file: str = "v") -> str:
    return f"{file}{first}" if count == 1 else f"{file}[{first}:{first + count - 1}]"


# ---------------------------------------------------------------------------------------------------------- sample
# operands


def sample(inst: Inst) -> tuple[list[Any], dict[str, Any]]:
    """Legal operands for a row: registers wherever it takes them, each operand its own."""
    v, s = 8, 20
    operands: list[Any] = []
    modifiers: dict[str, Any] = {}
    for o in inst.explicit:
        operands.append(_value(inst, o, v, s))
        v += 8 if o.regs <= 8 else 40
        s += 4 if o.regs <= 4 else 16
    if inst.encoding == "DPP":
        modifiers["dpp"] = "row_newbcast:1" if inst.destinations[0].regs == 2 else "row_shr:1"
        modifiers |= {"row_mask": 15, "bank_mask": 15}
    if inst.encoding == "SDWA":
        sources = sum(o.reads and not o.writes and o.dtype != "mask" for o in inst.explicit)
        if inst.destinations[0].dtype != "mask" and "fp8" not in inst.base and "bf8" not in inst.base:
            modifiers |= {"dst_sel": "DWORD", "dst_unused": "UNUSED_PAD"}
        modifiers |= {f"src{i}_sel": "DWORD" for i in range(min(2, sources))}
    if "bitop3" in inst.modifiers:
        modifiers["bitop3"] = 0x96
    if inst.encoding == "MFMA" and inst.extra.scaled:
        modifiers["op_sel_hi"] = (0, 0, 0)
    return operands, modifiers


def _value(inst: Inst, o: Operand, v: int, s: int) -> Any:
    if "v" in o.kinds:
        regs = o.regs
        if regs == 0:
            if o.name == "addr":
                return Reg("v", v, 2) if inst.encoding == "GLOBAL" else OFF
            regs = {"a": inst.extra.a_regs, "b": inst.extra.b_regs}[o.name]
        return Reg("v", v, regs)
    if "a" in o.kinds:
        return Reg("a", v, o.regs)
    if o.kinds == "c":
        return VCC
    if o.kinds == "m":
        return M0
    if "o" in o.kinds:
        return OFF
    if o.kinds == "nk":
        return 0x12345
    if "s" in o.kinds:
        if inst.unit is isa.Unit.VALU and "v" not in o.kinds and o.name == "lane":
            return 5
        return Reg("s", s + (-s % 4), o.regs)
    if "i" in o.kinds:
        return 1
    if "l" in o.kinds:
        return "target"
    return {"r": "hwreg(HW_REG_MODE, 0, 4)", "count": "vmcnt(0) lgkmcnt(0)", "m": "sendmsg(MSG_INTERRUPT)"}[o.name]


__all__ = ["EXEC", "apply", "isa", "line_of", "load_case", "module", "name", "run", "sample", "vector_cases"]
