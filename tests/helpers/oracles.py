"""Programs that others wrote and that tests compare ours with: where they are, and what happens where they are not.

Imported as `oracles` (pytest's `pythonpath` lists this folder). `require("llvm-mc")` gives the program's path.
Without it the test is skipped, unless WAVEDSL_REQUIRE_ORACLES=1 (continuous integration sets it): then the test fails.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

LLVM = ("llvm-mc", "llc", "llvm-objdump", "llvm-readelf", "ld.lld", "opt", "llvm-mca")
OLDEST_LLVM = 19


def require(program: str) -> str:
    """Path of `program`: an LLVM tool (version 19 at least, 22 first), `ptxas`, `nvdisasm` or `zig`."""
    path = find(program)
    if path is None:
        message = f"the oracle {program} is not installed"
        if os.environ.get("WAVEDSL_REQUIRE_ORACLES") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return path


def find(program: str) -> str | None:
    """Path of `program`, or None."""
    if program in LLVM:
        return _llvm(program, os.environ.get("PATH", ""))
    if program == "zig":
        return _in_package("ziglang", "zig")
    return shutil.which(program) or _in_package("nvidia", program)


@lru_cache(maxsize=32)
def _llvm(program: str, path: str) -> str | None:
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "wavedsl", "llvm-22", "bin")
    path = f"{path}{os.pathsep}{own}"  # where .ci/install-llvm puts it by default
    for suffix in ("-22", "", *(f"-{n}" for n in (23, 24, 21, 20, 19))):
        found = shutil.which(program + suffix, path=path)
        if found is None:
            continue
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        version = re.search(r"(?:version|LLD)\s+(\d+)", said)
        if version is not None and int(version.group(1)) >= OLDEST_LLVM:
            return found
    return None


def _in_package(package: str, program: str) -> str | None:
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for candidate in (Path(folder, program), *sorted(Path(folder).glob(f"*/bin/{program}"), reverse=True)):
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return None
