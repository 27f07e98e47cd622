"""Binaries on disk: an assembler is started once per text, whoever asks for it."""

from __future__ import annotations

import pytest
from wavedsl.ir.errors import ToolchainError
from wavedsl.runtime import binaries, cache, toolchain

AMDGCN = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text
.globl nothing
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
  .reg .u64 %rd<2>;
  .reg .u32 %r<2>;
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""


@pytest.fixture(autouse=True)
def assembled(tmp_path, monkeypatch) -> list[str]:
    """An empty cache; the targets that something was assembled for, in order."""
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WAVEDSL_CACHE_BYTES", raising=False)
    done: list[str] = []
    for name in ("assemble_ptx", "assemble_amdgcn"):
        tool = getattr(toolchain, name)

        def counted(text, target, tool=tool):
            done.append(target)
            return tool(text, target)

        monkeypatch.setattr(toolchain, name, counted)
    return done


def test_ptx_is_assembled_once_with_its_account(oracle, assembled):
    oracle("ptxas")
    first, again = (binaries.ptx(PTX, "sm_80", "nothing") for _ in range(2))
    assert again == first and first.entry("nothing").registers > 0
    assert binaries.binary(PTX, "sm_80", "nothing") == first.cubin
    assert assembled == ["sm_80"]
    assert binaries.ptx(PTX, "sm_90", "nothing").cubin != first.cubin
    assert assembled == ["sm_80", "sm_90"]
    assert [(e.name, e.target) for e in cache.entries()] == [("nothing.cubin", "sm_90"), ("nothing.cubin", "sm_80")]


def test_amdgcn_is_assembled_once(oracle, assembled):
    oracle("llvm-mc")
    first, again = (binaries.binary(AMDGCN, "gfx942", "nothing") for _ in range(2))
    assert again == first and first[:4] == b"\x7fELF"
    assert assembled == ["gfx942"]


def test_another_assembler_assembles_anew(oracle, assembled, monkeypatch):
    oracle("llvm-mc")
    binaries.hsaco(AMDGCN, "gfx942", "nothing")
    monkeypatch.setattr(toolchain, "fingerprint", lambda target: "another release")
    binaries.hsaco(AMDGCN, "gfx942", "nothing")
    assert assembled == ["gfx942", "gfx942"]


def test_what_is_refused_is_not_kept(oracle, assembled):
    oracle("llvm-mc")
    for _ in range(2):
        with pytest.raises(ToolchainError):
            binaries.hsaco("v_nonsense v0\n", "gfx942", "nothing")
    assert assembled == ["gfx942", "gfx942"] and cache.entries() == []


def test_without_a_cache_every_call_assembles(oracle, assembled, monkeypatch):
    oracle("llvm-mc")
    monkeypatch.setenv("WAVEDSL_CACHE_BYTES", "0")
    assert binaries.hsaco(AMDGCN, "gfx942", "nothing") == binaries.hsaco(AMDGCN, "gfx942", "nothing")
    assert assembled == ["gfx942", "gfx942"]
