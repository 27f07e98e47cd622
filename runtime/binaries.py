"""Binaries for the drivers, assembled once and kept on disk.

In comes the text of a kernel, out comes what a driver loads; an assembler is started only where no process has given
it this text before (ptxas takes half a second over attention, longer than compiling it to text). An entry's key holds
the text and the assembler's fingerprint: another release assembles anew.
"""

from __future__ import annotations

from wavedsl.codegen import is_amd
from wavedsl.runtime import cache, toolchain
from wavedsl.runtime.spill_warning import warn_of_spills
from wavedsl.runtime.toolchain import PtxasResult

_BINARY, _LOG = "binary", "log"


def binary(text: str, target: str, name: str) -> bytes:
    """What a driver loads for `text` of kernel `name`: an hsaco for `gfx…`, a cubin for `sm_…`.

    Raises ToolchainError where there is no assembler, or it refuses the text.
    """
    return hsaco(text, target, name) if is_amd(target) else ptx(text, target, name).cubin


def hsaco(text: str, target: str, name: str) -> bytes:
    """`toolchain.assemble_amdgcn(text, target)`, from disk where it is there."""
    parts = _parts(text, target)
    key = cache.key_of(parts)
    found = cache.load(key)
    if found is not None:
        return found[_BINARY]
    made = toolchain.assemble_amdgcn(text, target)
    cache.store(key, {_BINARY: made}, name=f"{name}.hsaco", target=target, parts=parts)
    return made


def ptx(text: str, arch: str, name: str) -> PtxasResult:
    """`toolchain.assemble_ptx(text, arch)`, with ptxas' account, from disk where it is there. Warns once of a text that
    spills."""
    parts = _parts(text, arch)
    key = cache.key_of(parts)
    found = cache.load(key)
    if found is not None:
        log = found[_LOG].decode()
        made = PtxasResult(found[_BINARY], *toolchain.parse_ptxas(log), log)
    else:
        made = toolchain.assemble_ptx(text, arch)
        files = {_BINARY: made.cubin, _LOG: made.log.encode()}
        cache.store(key, files, name=f"{name}.cubin", target=arch, parts=parts)
    for entry in made.entries:
        warn_of_spills(text, name, entry)
    return made


def _parts(text: str, target: str) -> dict[str, str]:
    return {"text": text, "target": target, "assembler": toolchain.fingerprint(target)}
