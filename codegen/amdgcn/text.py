"""A finished program as the assembler's text: code with source locations, kernel descriptor, metadata (code object v5).

In: a physical `Program`, its `Resources`, the kernel's parameters. Out: text that clang and llvm-mc accept for the
chip. Only what the kernel uses is requested (workgroup ids, the argument pointer); single-precision denormals are kept.
"""

from __future__ import annotations

import os

from wavedsl.codegen.amdgcn import spelling
from wavedsl.codegen.amdgcn.machine import Inst, Program
from wavedsl.codegen.amdgcn.resources import Resources, accum_offset
from wavedsl.ir.kernel.kernel_ir import NO_STRINGS, Param
from wavedsl.ir.loc import Loc

_COMMENT_COLUMN = 56
_NOP = 0xBF800000
"""`s_nop 0`."""
_FETCHED = 256
"""Words behind the code that a wave may fetch before it ends: 16 cache lines, as LLVM pads the code of these chips."""


def render(program: Program, resources: Resources, params: list[Param]) -> str:
    """The whole file."""
    out: list[str] = []
    name = program.name
    files = _files(program)
    out += [
        f'\t.amdgcn_target "amdgcn-amd-amdhsa--{program.chip}"',
        "\t.amdhsa_code_object_version 5",
        "\t.text",
        f"\t.globl {name}",
        "\t.p2align 8",
        f"\t.type {name},@function",
    ]
    for path, number in files.items():
        folder, base = os.path.split(path)
        out.append(f'\t.file {number} "{folder or "."}" "{base}"')
    spilled = _spilled(resources)
    out += [f"; {line}" for line in spilled]
    out.append(f"{name}:")
    _code(program, files, out)
    out.append(f".L{name}_end:")
    out.append(f"\t.size {name}, .L{name}_end-{name}")
    # Instructions are fetched ahead of s_endpgm: what lies there must be mapped, and code.
    out += [f"\t.p2alignl 6, {_NOP}", f"\t.fill {_FETCHED}, 4, {_NOP}"]
    _descriptor(program, resources, params, out)
    _metadata(program, resources, params, out)
    return "\n".join(out) + "\n"


def _spilled(resources: Resources) -> list[str]:
    """What found no register, in words; nothing where everything did."""
    s = resources.spilled
    parts = [
        f"{n} {what}"
        for n, what in (
            (s.scalars, "scalar registers live in vector lanes"),
            (s.accumulation, "vector registers are copied to the accumulation file and back"),
            (s.scratch, f"vector registers live in {resources.scratch_bytes} bytes of scratch per lane"),
            (s.again, "values are computed again where they are read"),
        )
        if n
    ]
    return [f"spills: {'; '.join(parts)}"] if parts else []


def _files(program: Program) -> dict[str, int]:
    files: dict[str, int] = {}
    for block in program.blocks:
        for inst in block.insts:
            if inst.loc is not None and inst.loc.file not in files:
                files[inst.loc.file] = len(files) + 1
    return files


def _code(program: Program, files: dict[str, int], out: list[str]) -> None:
    """Blocks and instructions, with `.loc` where the place changes, and the source line beside the first of its
    instructions."""
    last: tuple[str, int, int] | None = None
    shown: tuple[str, int] | None = None
    for block in program.blocks:
        if block.label:
            line = f"{block.label}:"
            out.append(f"{line:<{_COMMENT_COLUMN}} ; {block.comment}" if block.comment else line)
        for inst in block.insts:
            loc = inst.loc
            line = "\t" + instruction(inst)
            if loc is not None:
                here = (loc.file, loc.line, loc.col)
                if here != last:
                    out.append(f"\t.loc {files[loc.file]} {loc.line} {loc.col + 1}")
                    last = here
                if inst.added:
                    line = f"{line:<{_COMMENT_COLUMN}} ; {inst.added}"
                elif (loc.file, loc.line) != shown:
                    shown = (loc.file, loc.line)
                    line = f"{line:<{_COMMENT_COLUMN}} ; {_source(loc)}"
            out.append(line)


def _source(loc: Loc) -> str:
    text = loc.text().strip()
    where = f"{os.path.basename(loc.file)}:{loc.line}"
    return f"{where}  {text}" if text else where


def instruction(inst: Inst) -> str:
    """One line of code: mnemonic, padded, then operands and modifiers."""
    head, space, rest = spelling.text(inst.row, inst.ops, inst.mods).partition(" ")
    return f"{head:<23} {rest}" if space else head


def _descriptor(program: Program, resources: Resources, params: list[Param], out: list[str]) -> None:
    """The kernel descriptor: what the packet processor sets up before the first instruction."""
    agprs = resources.agprs
    offset = accum_offset(resources.vgprs)
    fields = [
        ("group_segment_fixed_size", program.shared_bytes),
        ("private_segment_fixed_size", program.scratch_bytes),
        ("kernarg_size", kernarg_size(params)),
        ("user_sgpr_kernarg_segment_ptr", 1 if program.user_sgprs else 0),
        *_scratch_setup(program),
        ("user_sgpr_count", program.user_sgprs + (2 if program.scratch_base is not None else 0)),
        ("system_sgpr_workgroup_id_x", int(0 in program.workgroup_ids)),
        ("system_sgpr_workgroup_id_y", int(1 in program.workgroup_ids)),
        ("system_sgpr_workgroup_id_z", int(2 in program.workgroup_ids)),
        ("system_vgpr_workitem_id", 0),
        ("next_free_vgpr", offset + agprs if agprs else max(1, resources.vgprs)),
        ("next_free_sgpr", max(1, resources.sgprs)),
        ("accum_offset", offset),
        ("float_denorm_mode_32", 3),
        ("float_denorm_mode_16_64", 3),
        ("dx10_clamp", 1),
        ("ieee_mode", 1),
    ]
    out += ["\t.section .rodata", "\t.p2align 6", f"\t.amdhsa_kernel {program.name}"]
    out += [f"\t\t.amdhsa_{field} {value}" for field, value in fields]
    out += ["\t.end_amdhsa_kernel", "\t.text"]


def _scratch_setup(program: Program) -> list[tuple[str, int]]:
    """What asks for scratch: where the chip does not keep a wave's place itself, its start and the wave's offset."""
    if program.scratch_base is not None:
        return [("user_sgpr_flat_scratch_init", 1), ("system_sgpr_private_segment_wavefront_offset", 1)]
    return [("enable_private_segment", 1)] if program.scratch_bytes else []


def kernarg_size(params: list[Param]) -> int:
    """Bytes of the argument block: whole words, which is how much of it a scalar load reads."""
    return -(-max((p.offset + p.size for p in params), default=0) // 4) * 4


def _argument_name(name: str) -> str:
    """A parameter's name in the metadata, where only people read it."""
    plain = "".join(c if c.isascii() else f"_{ord(c):x}_" for c in name)
    return f"{plain}_" if plain.lower() in NO_STRINGS else plain


def _metadata(program: Program, resources: Resources, params: list[Param], out: list[str]) -> None:
    """The code object's metadata (v5): what a loader must know of the kernel and its arguments."""
    name = program.name
    out += [
        "\t.amdgpu_metadata",
        "---",
        "amdhsa.version: [1, 2]",
        f"amdhsa.target: amdgcn-amd-amdhsa--{program.chip}",
        "amdhsa.kernels:",
        f"  - .name: {name}",
        f"    .symbol: {name}.kd",
        f"    .kernarg_segment_size: {kernarg_size(params)}",
        "    .kernarg_segment_align: 8",
        f"    .group_segment_fixed_size: {program.shared_bytes}",
        f"    .private_segment_fixed_size: {program.scratch_bytes}",
        "    .wavefront_size: 64",
        f"    .sgpr_count: {resources.sgprs}",
        f"    .vgpr_count: {resources.registers}",
        f"    .agpr_count: {resources.agprs}",
        f"    .max_flat_workgroup_size: {program.block_threads}",
    ]
    if params:
        out.append("    .args:")
        for p in params:
            kind = "global_buffer" if p.kind == "pointer" else "by_value"
            space = ", .address_space: global" if p.kind == "pointer" else ""
            name = _argument_name(p.name)
            out.append(f"      - {{.name: {name}, .offset: {p.offset}, .size: {p.size}, .value_kind: {kind}{space}}}")
    else:
        out.append("    .args: []")
    out += ["...", "\t.end_amdgpu_metadata"]
