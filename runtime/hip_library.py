"""Which libamdhip64 this process uses.

torch's packages for ROCm bring a library of their own beside the system's. Each keeps its own streams, so a stream of
one is refused by the other (`hipErrorContextIsDestroyed`), and two of them share no error. Whoever came first must be
asked: hip-python looks where the system's lies, under ROCM_PATH, and asks no one.

In: the files that are mapped (/proc/self/maps, so Linux only; elsewhere nothing is known). Out: where hip-python is to
look while it loads its library, and what errors say where two are there after all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "libamdhip64.so"
MAPS = Path("/proc/self/maps")


def loaded() -> list[str]:
    """Paths of the HIP runtimes in this process: one for each file, whatever links lead there."""
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    found: dict[tuple[str, str], str] = {}
    for line in lines:
        fields = line.split(None, 5)  # range, rights, offset, device, inode, path
        if len(fields) == 6 and os.path.basename(fields[5]).startswith(NAME):
            found.setdefault((fields[3], fields[4]), fields[5])
    return list(found.values())


@contextmanager
def found_by_bindings() -> Iterator[None]:
    """While hip-python loads its library: let it be the one that is there. It is looked for as ROCM_PATH/lib/NAME;
    releases before 10 open what `hip.chip.DLL` says, which is a name for the loader."""
    there = loaded()
    chip: Any = sys.modules.get("hip.chip")
    if there and hasattr(chip, "DLL"):
        chip.DLL = os.fsencode(there[0])
    folder = os.path.dirname(there[0]) if there else ""
    if os.path.basename(folder) != "lib" or not os.path.exists(os.path.join(folder, NAME)):
        yield
        return
    before = os.environ.get("ROCM_PATH")
    os.environ["ROCM_PATH"] = os.path.dirname(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["ROCM_PATH"]
        else:
            os.environ["ROCM_PATH"] = before


def mixed() -> str:
    """What to do where this process has two HIP runtimes; empty where it has one."""
    there = loaded()
    if len(there) < 2:
        return ""
    return (
        f"two HIP runtimes are loaded, {' and '.join(there)}: neither knows the other's streams. Set ROCM_PATH "
        "before Python starts so that ROCM_PATH/lib has the one that the arrays' package brings (before hip-python "
        "10, LD_LIBRARY_PATH to that folder), or install that package for the ROCm that is installed"
    )
