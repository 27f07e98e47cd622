"""Assemblers: the order they are looked for in, what they make, what is said where one is missing or refuses."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from wavedsl.ir.errors import ToolchainError
from wavedsl.runtime import toolchain

AMDGCN = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text
.globl nothing
.p2align 8
.type nothing,@function
nothing:
  s_endpgm
"""
PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing(.param .u64 p)
{
  .shared .align 16 .b8 tile[256];
  .reg .u64 %rd<3>;
  .reg .u32 %r<3>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  st.shared.u32 [tile], %r1;
  bar.sync 0;
  ld.shared.u32 %r2, [tile];
  st.global.u32 [%rd1], %r2;
  ret;
}
"""
SAID = """\
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Function properties for helper
    64 bytes stack frame, 32 bytes spill stores, 32 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
ptxas warning : something is not as it should be
"""


def fake(folder: Path, name: str, says: str, extra: str = "") -> Path:
    """A program that answers `--version` with `says` and otherwise does `extra`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(
        f'#!/bin/sh\ncase "$1" in --version|--print-targets) printf \'%b\' "{says}";; *) {extra or "exit 1"};; esac\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PATH holds one empty folder; no ROCm, no CUDA."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "no-rocm"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(toolchain, "INSTALLED_CUDA", str(tmp_path / "no-cuda"))
    return folder


def test_ptxas_account_of_a_real_kernel(oracle):
    oracle("ptxas")
    result = toolchain.assemble_ptx(PTX, "sm_80")
    entry = result.entry("nothing")
    assert result.cubin[:4] == b"\x7fELF"
    assert (entry.arch, entry.shared_bytes, entry.barriers, entry.spill_stores, entry.spill_loads) == (
        "sm_80",
        256,
        1,
        0,
        0,
    )
    assert 0 < entry.registers <= 32
    assert result.warnings == ()
    with pytest.raises(KeyError):
        result.entry("another")


def test_ptxas_output_is_attributed_to_its_entry():
    entries, warnings = toolchain.parse_ptxas(SAID)
    first, second = entries
    assert (first.name, first.arch, first.registers, first.barriers) == ("first", "sm_90a", 168, 1)
    assert (first.stack, first.spill_stores, first.spill_loads, first.shared_bytes) == (16, 8, 12, 4096)
    assert (second.name, second.registers, second.spill_stores, second.stack) == ("second", 12, 0, 0)
    assert len(warnings) == 2 and "C7508" in warnings[0] and "not as it should be" in warnings[1]


def test_disassembly_shows_the_shared_store(oracle):
    oracle("ptxas"), oracle("nvdisasm")
    assert "STS" in toolchain.disassemble_cubin(toolchain.assemble_ptx(PTX, "sm_80").cubin)


def test_the_user_s_lines_are_in_the_cubin(oracle, tmp_path):
    """`.loc` of the text is what profilers and debuggers find the Python source by."""
    oracle("ptxas"), oracle("nvdisasm")
    import inspect

    import hopper
    from products import BF16, TILE, K, M, N

    kernel = hopper.gemm(BF16)
    text = kernel.compile(target="sm_90a", subs={**dict(zip(TILE, (64, 64, 64, 64, 64))), M: 64, N: 64, K: 128}).asm
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(toolchain.assemble_ptx(text, "sm_90a").cubin)
    done = subprocess.run([toolchain.find_nvdisasm(), "-g", "-c", cubin], capture_output=True, text=True, check=True)
    lines = inspect.getsource(hopper).splitlines()
    here, products = "", set()
    for said in done.stdout.splitlines():
        if found := re.search(r'File "(.*)", line (\d+)', said):
            here = lines[int(found.group(2)) - 1] if found.group(1) == hopper.__file__ else ""
        elif "HGMMA" in said:
            products.add(here.strip())
    assert any("wd.mma(" in line for line in products) and "" not in products


def test_ptxas_names_the_bad_line(oracle):
    oracle("ptxas")
    with pytest.raises(ToolchainError) as caught:
        toolchain.assemble_ptx(PTX.replace("bar.sync 0;", "bar.sunk 0;"), "sm_80")
    assert "kernel.ptx, line 13" in str(caught.value)
    assert "for sm_80" in str(caught.value)
    assert os.sep + "kernel.ptx" not in str(caught.value)


def test_hsaco_is_an_amdgpu_shared_object(oracle):
    oracle("zig")
    hsaco = toolchain.assemble_amdgcn(AMDGCN, "gfx942")
    assert hsaco[:4] == b"\x7fELF"
    assert int.from_bytes(hsaco[16:18], "little") == 3  # ET_DYN
    assert int.from_bytes(hsaco[18:20], "little") == 224  # EM_AMDGPU
    assert hsaco[48] == 0x4C  # EF_AMDGPU_MACH_AMDGCN_GFX942


def test_llvm_and_zig_make_the_same_code(oracle, monkeypatch, empty_path):
    zig = oracle("zig")
    monkeypatch.undo()
    tools = [Path(oracle(name)) for name in ("llvm-mc", "ld.lld")]
    monkeypatch.setenv("ROCM_PATH", str(empty_path))
    for tool in tools:
        os.symlink(tool, empty_path / tool.name)
    # The wrappers of .ci/install-llvm are shell scripts: they need a shell's PATH behind the tools.
    monkeypatch.setenv("PATH", f"{empty_path}:/usr/bin:/bin")
    chosen = toolchain.amdgcn_tools()
    assert chosen.name == "LLVM"
    by_llvm = toolchain.assemble_amdgcn(AMDGCN, "gfx942")
    # The linker leaves its own name in .comment: compare what comes before it.
    end = by_llvm.index(b"Linker: ")
    assert zig and end > 0
    for tool in tools:
        os.unlink(empty_path / tool.name)
    monkeypatch.setenv("PATH", str(empty_path))
    assert toolchain.amdgcn_tools().name == "ziglang"
    by_zig = toolchain.assemble_amdgcn(AMDGCN, "gfx942")
    assert text_section(by_zig) == text_section(by_llvm)


def text_section(elf: bytes) -> bytes:
    """Contents of `.text` of a 64-bit little-endian ELF file."""
    at = int.from_bytes(elf[40:48], "little")
    size, count, names = (int.from_bytes(elf[i : i + 2], "little") for i in (58, 60, 62))

    def header(i: int) -> tuple[int, int, int]:
        h = elf[at + i * size : at + (i + 1) * size]
        return int.from_bytes(h[0:4], "little"), int.from_bytes(h[24:32], "little"), int.from_bytes(h[32:40], "little")

    strings = header(names)[1]
    for i in range(count):
        name, offset, length = header(i)
        if elf[strings + name :].startswith(b".text\0"):
            return elf[offset : offset + length]
    raise AssertionError("no .text section")


def test_amdgcn_assembler_names_the_bad_line(oracle):
    oracle("zig")
    with pytest.raises(ToolchainError) as caught:
        toolchain.assemble_amdgcn(AMDGCN.replace("s_endpgm", "v_frobnicate v0"), "gfx942")
    assert "kernel.s:8" in str(caught.value)


def test_rocm_is_preferred(tmp_path, empty_path, monkeypatch):
    root = tmp_path / "rocm"
    clang = fake(root / "llvm" / "bin", "clang", "AMD clang version 20.0.0")
    fake(root / "llvm" / "bin", "ld.lld", "LLD 20.0.0")
    fake(empty_path, "llvm-mc", "LLVM version 22.1.0\\namdgcn")
    fake(empty_path, "ld.lld", "LLD 22.1.0")
    monkeypatch.setenv("ROCM_PATH", str(root))
    tools = toolchain.amdgcn_tools()
    assert (tools.name, tools.assemble, tools.version) == ("ROCm", (str(clang),), "20.0.0")


def test_an_old_llvm_and_one_without_amdgpu_are_passed_over(empty_path):
    fake(empty_path, "ld.lld", "LLD 22.1.0")
    fake(empty_path, "llvm-mc", "LLVM version 14.0.6\\namdgcn")
    fake(empty_path, "clang", "clang version 22.1.0\\nx86-64")
    versioned = fake(empty_path, "llvm-mc-21", "LLVM version 21.1.0\\namdgcn")
    assert toolchain.amdgcn_tools().assemble == (str(versioned),)


def test_missing_tools_say_what_to_install(empty_path, monkeypatch):
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    fake(empty_path, "llvm-mc", "LLVM version 14.0.6\\namdgcn")
    fake(empty_path, "ld.lld", "LLD 14.0.6")
    toolchain._amdgcn_tools.cache_clear()
    with pytest.raises(ToolchainError) as caught:
        toolchain.assemble_amdgcn(AMDGCN, "gfx942")
    assert "ziglang" in str(caught.value) and "ROCm" in str(caught.value) and "14.0.6" in str(caught.value)
    for call in (lambda: toolchain.assemble_ptx(PTX, "sm_80"), lambda: toolchain.disassemble_cubin(b"")):
        with pytest.raises(ToolchainError, match="install the CUDA toolkit"):
            call()
    assert [tool.missing != "" for tool in toolchain.inventory()] == [True, True, True]


def test_a_tool_that_cannot_run_is_a_toolchain_error(tmp_path):
    broken = tmp_path / "ptxas"
    broken.write_text("no program")
    broken.chmod(0o755)
    with pytest.raises(ToolchainError, match="cannot be started"):
        toolchain.version_of(str(broken))


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")
def test_fingerprint_follows_the_tool(empty_path, tmp_path):
    path = fake(empty_path, "ptxas", "release 13.0, V13.0.1")
    before = toolchain.fingerprint("sm_80")
    assert toolchain.fingerprint("sm_90a") == before
    path.write_text(path.read_text() + "# another build\n")
    assert toolchain.fingerprint("sm_80") != before


def test_an_installed_toolkit_is_found_at_last(empty_path, tmp_path, monkeypatch):
    path = fake(tmp_path / "cuda" / "bin", "ptxas", "release 13.0, V13.0.88")
    monkeypatch.setattr(toolchain, "INSTALLED_CUDA", str(path.parent))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    toolchain._cuda_tool.cache_clear()
    assert toolchain.find_ptxas() == str(path)


def test_cuda_home_is_searched(empty_path, tmp_path, monkeypatch):
    home = tmp_path / "cuda"
    path = fake(home / "bin", "ptxas", "release 12.8, V12.8.93")
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert toolchain.find_ptxas() == str(path)
    assert toolchain.version_of(str(path)) == "12.8.93"
