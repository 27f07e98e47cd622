"""Assemblers and linkers: target text in, loadable binaries out.

In comes the text of a kernel, out come the bytes of an hsaco (AMDGCN) or a cubin (PTX) and what the assembler said of
them. This is the only file that starts outside programs. Tools are looked for in a fixed order and nothing is
downloaded; a missing one is a `ToolchainError` that says what to install.

* AMDGCN: ROCm's clang and ld.lld, then an LLVM of at least 19 on PATH (`clang` or `llvm-mc`, with or without a version
  in its name), then the `ziglang` package, which carries clang and lld.
* PTX: `ptxas` on PATH, under CUDA_HOME, from the package `nvidia-cuda-nvcc`, then under /usr/local/cuda.

Invariant: the same text and the same tool give the same bytes, so `fingerprint` may stand for the tool in a cache key.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from wavedsl.codegen import is_amd
from wavedsl.ir.errors import ToolchainError
from wavedsl.ir.quick_dataclass import dataclass

MINIMUM_LLVM = 19
"""The oldest LLVM whose AMDGPU assembler knows gfx950."""
_LLVM_NAMES = ("", *(f"-{n}" for n in range(30, MINIMUM_LLVM - 1, -1)))
INSTALLED_CUDA = "/usr/local/cuda/bin"
"""Where NVIDIA's installer and containers have the toolkit."""
_TIMEOUT = 300.0
"""Seconds after which an assembler is taken to hang."""

INSTALL_AMDGCN = (
    f"install ROCm, or LLVM >= {MINIMUM_LLVM} with lld on PATH, or the Python package ziglang "
    "(pip install 'wavedsl[asm]')"
)
INSTALL_PTXAS = (
    "install the CUDA toolkit (ptxas on PATH or under CUDA_HOME), or the Python package nvidia-cuda-nvcc "
    "(pip install 'wavedsl[asm]')"
)
INSTALL_NVDISASM = (
    "install the CUDA toolkit (nvdisasm on PATH or under CUDA_HOME), or the Python package nvidia-cuda-nvdisasm"
)


@dataclass(frozen=True)
class AmdgcnTools:
    """How to assemble and link AMDGCN: two command prefixes, and what they are."""

    name: str
    """`ROCm`, `LLVM` or `ziglang`."""
    assemble: tuple[str, ...]
    link: tuple[str, ...]
    version: str
    is_clang: bool
    """Whether `assemble` is a compiler driver (`-c -mcpu`) or `llvm-mc` (`-filetype=obj`)."""


@dataclass(frozen=True)
class PtxasEntry:
    """What `ptxas -v` says of one entry function. Sizes in bytes; spills and stack per thread."""

    name: str
    arch: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared_bytes: int
    barriers: int


@dataclass(frozen=True)
class PtxasResult:
    """A cubin with ptxas' account of it. `warnings` holds every warning and every coded (C75xx) remark."""

    cubin: bytes
    entries: tuple[PtxasEntry, ...]
    warnings: tuple[str, ...]
    log: str

    def entry(self, name: str) -> PtxasEntry:
        """The account of entry `name`; KeyError if the text has none of that name."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)


@dataclass(frozen=True)
class Tool:
    """One line of `wavedsl doctor`: `path` and `version`, or what to install where both are empty."""

    name: str
    path: str
    version: str
    missing: str = ""


# ------------------------------------------------------------------------------------------------------------ AMDGCN


def assemble_amdgcn(text: str, target: str) -> bytes:
    """The hsaco of AMDGCN `text` for `target` (`gfx942`). ToolchainError with the assembler's words if it refuses."""
    tools = amdgcn_tools()
    with tempfile.TemporaryDirectory(prefix="wavedsl-asm-") as folder:
        source, obj, linked = (str(Path(folder, name)) for name in ("kernel.s", "kernel.o", "kernel.hsaco"))
        Path(source).write_text(text, encoding="utf-8")
        if tools.is_clang:
            options: tuple[str, ...] = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-c", source, "-o", obj)
        else:
            options = ("-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj", source, "-o", obj)
        _run(
            (*tools.assemble, *options), f"{tools.name} {tools.version} does not assemble the text for {target}", folder
        )
        _run(
            (*tools.link, "-shared", obj, "-o", linked),
            f"{tools.name} {tools.version} does not link the object",
            folder,
        )
        return Path(linked).read_bytes()


def amdgcn_tools() -> AmdgcnTools:
    """The first complete set of AMDGCN tools in the documented order; ToolchainError if there is none."""
    return _amdgcn_tools(*_surroundings("ROCM_PATH"))


@lru_cache(maxsize=8)
def _amdgcn_tools(path: str, rocm_path: str) -> AmdgcnTools:
    passed_over: list[str] = []
    for find in (_rocm_tools, _llvm_tools, _zig_tools):
        found = find(path, rocm_path, passed_over)
        if found is not None:
            return found
    seen = f" (passed over: {', '.join(passed_over)})" if passed_over else ""
    raise ToolchainError(f"no assembler for AMDGCN was found{seen}", hint=INSTALL_AMDGCN)


def _rocm_tools(path: str, rocm_path: str, passed_over: list[str]) -> AmdgcnTools | None:
    for root in dict.fromkeys(p for p in (rocm_path, "/opt/rocm") if p):
        clang, lld = (Path(root, "llvm", "bin", name) for name in ("clang", "ld.lld"))
        if clang.exists() and lld.exists():
            return AmdgcnTools("ROCm", (str(clang),), (str(lld),), version_of(str(clang)), True)
    return None


def _llvm_tools(path: str, rocm_path: str, passed_over: list[str]) -> AmdgcnTools | None:
    linker = next(_versioned("ld.lld", path, passed_over), None)
    if linker is None:
        return None
    for program, is_clang in (("clang", True), ("llvm-mc", False)):
        for assembler in _versioned(program, path, passed_over):
            if _knows_amdgpu(assembler, is_clang):
                return AmdgcnTools("LLVM", (assembler,), (linker,), version_of(assembler), is_clang)
            passed_over.append(f"{assembler} (built without AMDGPU)")
    return None


def _zig_tools(path: str, rocm_path: str, passed_over: list[str]) -> AmdgcnTools | None:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        return None
    zig = str(Path(spec.origin).parent / ("zig.exe" if os.name == "nt" else "zig"))
    if not os.path.exists(zig):
        return None
    from importlib.metadata import version  # which imports a mail parser

    return AmdgcnTools("ziglang", (zig, "clang"), (zig, "ld.lld"), version("ziglang"), True)


def _versioned(program: str, path: str, passed_over: list[str]) -> Iterator[str]:
    """Every `program` on PATH, under its plain and its versioned names, of an LLVM that is new enough."""
    for suffix in _LLVM_NAMES:
        found = shutil.which(program + suffix, path=path)
        if found is None:
            continue
        version = version_of(found)
        if int(version.split(".")[0] or 0) >= MINIMUM_LLVM:
            yield found
        else:
            passed_over.append(f"{found} {version or 'of unknown version'}")


@lru_cache(maxsize=64)
def _knows_amdgpu(program: str, is_clang: bool) -> bool:
    option = "--print-targets" if is_clang else "--version"
    done = subprocess.run([program, option], capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    return done.returncode == 0 and "amdgcn" in done.stdout


# --------------------------------------------------------------------------------------------------------------- PTX


def assemble_ptx(text: str, arch: str, *, options: tuple[str, ...] = ()) -> PtxasResult:
    """The cubin of PTX `text` for `arch` (`sm_80`), with ptxas' account. ToolchainError if it refuses the text."""
    ptxas = find_ptxas()
    with tempfile.TemporaryDirectory(prefix="wavedsl-asm-") as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text, encoding="utf-8")
        log = _run(
            (ptxas, "-v", f"-arch={arch}", *options, str(source), "-o", str(cubin)),
            f"ptxas {version_of(ptxas)} does not assemble the text for {arch}",
            folder,
        )
        return PtxasResult(cubin.read_bytes(), *parse_ptxas(log), log)


_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


def parse_ptxas(log: str) -> tuple[tuple[PtxasEntry, ...], tuple[str, ...]]:
    """Entries and warnings of the output of `ptxas -v`.

    A spill line belongs to the function named before it: a called function's must not be taken for its entry's.
    """
    entries: list[PtxasEntry] = []
    warnings: list[str] = []
    entry = arch = function = ""
    stacks: dict[str, tuple[int, int, int]] = {}
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entry, arch = found.groups()
            stacks.clear()
        elif found := _PROPERTIES.search(line):
            function = found.group(1)
        elif found := _STACK.search(line):
            stack, stores, loads = (int(g) for g in found.groups())
            stacks[function] = stack, stores, loads
        elif found := _USED.search(line):
            stack, stores, loads = stacks.get(entry, (0, 0, 0))
            shared, barriers = _amount(r"(\d+) bytes smem", line), _amount(r"used (\d+) barriers", line)
            entries.append(PtxasEntry(entry, arch, int(found.group(1)), stores, loads, stack, shared, barriers))
        elif "warning" in line or re.search(r"\(C\d+\)", line):
            warnings.append(line.strip())
    return tuple(entries), tuple(warnings)


def _amount(pattern: str, line: str) -> int:
    found = re.search(pattern, line)
    return int(found.group(1)) if found else 0


def find_ptxas() -> str:
    """Path of ptxas; ToolchainError if there is none."""
    found = find_cuda_tool("ptxas")
    if found is None:
        raise ToolchainError("ptxas was not found", hint=INSTALL_PTXAS)
    return found


def find_nvdisasm() -> str:
    """Path of nvdisasm; ToolchainError if there is none."""
    found = find_cuda_tool("nvdisasm")
    if found is None:
        raise ToolchainError("nvdisasm was not found", hint=INSTALL_NVDISASM)
    return found


def find_cuda_tool(program: str) -> str | None:
    """Path of a program of the CUDA toolkit: PATH, CUDA_HOME, the NVIDIA packages of this Python, where its installer
    puts it; None if missing."""
    return _cuda_tool(program, *_surroundings("CUDA_HOME"))


@lru_cache(maxsize=16)
def _cuda_tool(program: str, path: str, cuda_home: str) -> str | None:
    found = shutil.which(program, path=path)
    if found is None and cuda_home:
        found = shutil.which(program, path=str(Path(cuda_home, "bin")))
    if found is not None:
        return found
    spec = importlib.util.find_spec("nvidia")  # a namespace package: one folder per CUDA release or component in it
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for sub in sorted(Path(folder).iterdir(), reverse=True) if Path(folder).is_dir() else ():
            found = shutil.which(program, path=str(sub / "bin"))
            if found is not None:
                return found
    return shutil.which(program, path=INSTALLED_CUDA)  # containers often leave it out of PATH


def disassemble_cubin(cubin: bytes) -> str:
    """SASS text of a cubin, by nvdisasm."""
    nvdisasm = find_nvdisasm()
    with tempfile.TemporaryDirectory(prefix="wavedsl-asm-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        return _run((nvdisasm, "-c", str(path)), f"nvdisasm {version_of(nvdisasm)} does not read the cubin", folder)


# --------------------------------------------------------------------------------------------------------- both sides


def fingerprint(target: str) -> str:
    """A string that changes with the tools that would assemble for `target`, without assembling."""
    paths = [*amdgcn_tools().assemble[:1], amdgcn_tools().link[0]] if is_amd(target) else [find_ptxas()]
    stamps = []
    for path in paths:
        stat = os.stat(path)
        stamps.append(f"{os.path.realpath(path)} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:16]


_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)|(?:version|LLD|HIP)\s+(\d+(?:\.\d+)+)")


@lru_cache(maxsize=64)
def version_of(program: str) -> str:
    """What `program --version` says its version is; empty if it does not say."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except OSError as error:
        raise ToolchainError(f"{program} cannot be started: {error}") from error
    found = _VERSION.search(done.stdout + done.stderr)
    return (found.group(1) or found.group(2)) if found else ""


def inventory() -> list[Tool]:
    """Every tool that this package can make use of, found or not, for `wavedsl doctor`."""
    out = []
    try:
        tools = amdgcn_tools()
        out.append(Tool(f"AMDGCN assembler ({tools.name})", " ".join(tools.assemble), tools.version))
        out.append(Tool(f"AMDGCN linker ({tools.name})", " ".join(tools.link), tools.version))
    except ToolchainError as error:
        out.append(Tool("AMDGCN assembler and linker", "", "", error.hint))
    finders: tuple[tuple[str, Callable[[], str]], ...] = (("ptxas", find_ptxas), ("nvdisasm", find_nvdisasm))
    for name, find in finders:
        try:
            path = find()
            out.append(Tool(name, path, version_of(path)))
        except ToolchainError as error:
            out.append(Tool(name, "", "", error.hint))
    return out


def _surroundings(variable: str) -> tuple[str, str]:
    """What a search depends on, as the key of its memory: PATH and one more variable."""
    return os.environ.get("PATH", ""), os.environ.get(variable, "")


def _run(command: tuple[str, ...], complaint: str, folder: str) -> str:
    """Standard output and error of a tool that must succeed. Paths in `folder` are shortened."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"{complaint}: no answer within {_TIMEOUT:.0f} s") from error
    except OSError as error:
        raise ToolchainError(f"{complaint}: {command[0]} cannot be started: {error}") from error
    said = (done.stdout + done.stderr).replace(folder + os.sep, "")
    if done.returncode != 0:
        raise ToolchainError(f"{complaint} (exit status {done.returncode}):\n{said.rstrip()}")
    return said
