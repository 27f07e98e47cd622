"""The object file around the code, beside what LLVM's own code generator makes of a kernel: modes, e_flags, metadata,
and what lies behind the last instruction."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import amdgcn_kernels as kernels
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.ir.kernel.kernel_ir import F32, entry_name

CHIPS = ("gfx90a", "gfx942", "gfx950")
S_NOP, S_ENDPGM = 0xBF800000, 0xBF810000
KERNEL = """
declare i32 @llvm.amdgcn.workitem.id.x()
define amdgpu_kernel void @op(ptr addrspace(1) noalias %in0, ptr addrspace(1) noalias %out) #0 {
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr float, ptr addrspace(1) %in0, i32 %t
  %q = getelementptr float, ptr addrspace(1) %out, i32 %t
  %x = load float, ptr addrspace(1) %p
  %y = fadd float %x, %x
  store float %y, ptr addrspace(1) %q
  ret void
}
attributes #0 = { nounwind "amdgpu-flat-work-group-size"="64,64" "amdgpu-no-implicitarg-ptr" "amdgpu-no-workitem-id-y"
  "amdgpu-no-workitem-id-z" "amdgpu-no-dispatch-ptr" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
"""


class Object:
    """An assembled text: bytes of its sections, flags of its header, its notes."""

    def __init__(self, text: str, chip: str, oracle: Callable[[str], str], folder: Path):
        source, path = folder / "k.s", folder / "k.o"
        source.write_text(text)
        mc = [oracle("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-filetype=obj", str(source)]
        subprocess.run([*mc, "-o", str(path)], check=True)

        def read(*options: str) -> str:
            command = [oracle("llvm-readelf"), *options, str(path)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        self.flags = re.search(r"Flags:\s+(0x[0-9a-f]+)", read("-h")).group(1)  # type: ignore[union-attr]
        self.code, self.descriptor = (self._bytes(read("-x", name)) for name in (".text", ".rodata"))
        self.notes = {
            key: value.strip() for key, value in re.findall(r"^ +(?:- )?\.(\w+): *(\S.*)$", read("--notes"), re.M)
        }

    @staticmethod
    def _bytes(dump: str) -> bytes:
        rows = re.findall(r"^0x[0-9a-f]+ ((?:[0-9a-f]{2,8} ){1,4})", dump, re.M)
        return bytes.fromhex("".join(row.replace(" ", "") for row in rows))

    def behind(self) -> int:
        """Words behind the last `s_endpgm`; all of them are `s_nop 0`."""
        words = struct.unpack(f"<{len(self.code) // 4}I", self.code)
        end = len(words) - 1 - words[::-1].index(S_ENDPGM)
        assert set(words[end + 1 :]) <= {S_NOP}
        return len(words) - 1 - end


@pytest.fixture(params=CHIPS)
def objects(request, oracle: Callable[[str], str], tmp_path: Path) -> tuple[str, Object, Object]:
    """(chip, ours, LLVM's)."""
    chip = request.param
    kernel = kernels.elementwise(chip, [F32], F32, lambda b, x: b.fadd(x, x))
    ours = Object(compile_kernel_ir(kernel, get_target(chip)).text, chip, oracle, tmp_path)
    source = tmp_path / "k.ll"
    source.write_text(KERNEL)
    llc = [oracle("llc"), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={chip}", str(source), "-o", "-"]
    text = subprocess.run(llc, capture_output=True, text=True, check=True).stdout
    return chip, ours, Object(text, chip, oracle, tmp_path)


def test_instructions_may_be_fetched_past_the_end(objects: tuple[str, Object, Object]) -> None:
    """As far as LLVM allows for: 1024 bytes on these chips."""
    _, ours, llvm = objects
    assert llvm.behind() >= 256
    assert ours.behind() >= 256 and len(ours.code) % 64 == 0


def test_descriptor_and_metadata_are_llvms(objects: tuple[str, Object, Object]) -> None:
    chip, ours, llvm = objects
    assert ours.flags == llvm.flags  # chip, xnack and sramecc: any
    sizes = slice(0, 12)  # LDS, scratch, arguments
    assert ours.descriptor[sizes] == llvm.descriptor[sizes]
    words = [struct.unpack_from("<III", o.descriptor, 44) for o in (ours, llvm)]
    (place, modes, inputs), (their_place, their_modes, their_inputs) = words
    assert place >> 6 == their_place >> 6 == 0  # beside accum_offset: tg_split
    assert modes >> 10 == their_modes >> 10  # rounding, denormals, DX10 clamp, IEEE, priority
    scratch, workitem = 1, 3 << 11
    assert inputs & (scratch | workitem) == their_inputs & (scratch | workitem) == 0
    kernarg = 1 << 3
    properties = [struct.unpack_from("<H", o.descriptor, 56)[0] for o in (ours, llvm)]
    assert properties[0] == kernarg and properties[1] & kernarg
    if chip != "gfx90a":  # there llc asks for a scratch descriptor that nobody reads
        assert properties[0] == properties[1]
    for key in ("kernarg_segment_size", "kernarg_segment_align", "wavefront_size", "max_flat_workgroup_size",
                "group_segment_fixed_size", "private_segment_fixed_size", "symbol", "name", "offset", "size",
                "value_kind", "address_space"):  # fmt: skip
        assert ours.notes[key] == llvm.notes[key], key


@pytest.mark.parametrize("name", ["copy", "_k", "größe", "nan", "Inf", "null", "v0", "s_nop", "on"])
def test_any_python_name_makes_a_legal_entry(name: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    """Of a kernel and of its arguments; LLVM's reader of metadata takes some words for numbers."""
    kernel = kernels.elementwise("gfx942", [F32], F32, lambda b, x: b.fadd(x, x), name=entry_name(name))
    kernel.params[0].name = name
    made = Object(compile_kernel_ir(kernel, get_target("gfx942")).text, "gfx942", oracle, tmp_path)
    assert made.notes["symbol"] == f"{entry_name(name)}.kd"
    assert entry_name(entry_name(name)) == entry_name(name)
