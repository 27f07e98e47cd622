"""What a session on a GPU is about to compile, compiled beside it: text and binary are in the cache on disk before they
are asked for, and the GPU does not wait for one processor.

    python benchmarks/ahead.py --claims DIR --gpu "NVIDIA H200" --part checks gemm      one of several such processes

Each process goes through all units of the parts, in the session's order, and does those that no other has claimed: a
claim is an empty file that only one can make. Nothing here touches the GPU. A kernel is found by the session only if it
is the one that the session would compile, for the same shapes, strides and chip (`tests/benchmarks/test_ahead.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).resolve().parent))

import gpu_session  # finds wavedsl where it is not installed
from rehearsal import Rehearsal

TARGET = "sm_90a"
SPARE = 3
"""Processors that are left to the session and what it starts."""
MOST = 24


class Ahead(Rehearsal):
    """A rehearsal of the units that no other process has claimed, whose binaries are kept."""

    def __init__(self, target: str, claims: Path):
        super().__init__(target)
        self.claims = claims

    def run(self, name: str, work: Callable[[], Any], timed: bool = True) -> None:
        if self._claimed(name):
            super().run(name, work, timed)

    def _claimed(self, name: str) -> bool:
        """Whether this process is the first to ask for a unit."""
        try:
            os.close(os.open(self.claims / hashlib.sha256(name.encode()).hexdigest()[:32], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _assemble(self, name: str, timed: bool, compiled: Any) -> None:
        from wavedsl.ir.errors import ToolchainError
        from wavedsl.runtime import binaries, toolchain

        if compiled.asm in self._seen:
            return
        self._seen.add(compiled.asm)
        self.kernels += 1
        if toolchain.find_cuda_tool("ptxas") is not None:
            with contextlib.suppress(ToolchainError):  # the session says so where it meets the text
                binaries.ptx(compiled.asm, compiled.target, compiled.name)


def compile_parts(parts: Sequence[str], rehearsal: Rehearsal, gpu: str) -> None:
    """All units of a session's parts, for the product of this name."""
    import gemm_cases
    import gemm_checks
    import gpu_attention
    import gpu_gemm
    import gpu_memory_bound
    import memory_bound_cases

    from wavedsl.analysis.roofline import product_called
    from wavedsl.strategies import choices, grouped, plan, tuned

    chip = product_called(gpu, rehearsal.target)
    with contextlib.ExitStack() as stack:
        for module in (plan, choices, grouped, tuned):
            stack.enter_context(mock.patch.object(module, "chip_of", lambda product, *arrays: chip))
        if "checks" in parts:
            gpu_gemm.compile_all(gemm_checks.CHECKS, (), rehearsal)
            gpu_attention.compile_all(rehearsal, (), None, False)
        if "gemm" in parts:
            first = sorted(gemm_cases.CASES, key=lambda case: gpu_session.WORTH.get(case.name, len(gpu_session.WORTH)))
            gpu_gemm.compile_all((), first, rehearsal)
        if "attention" in parts:
            gpu_attention.compile_all(rehearsal, gpu_session.ATTENTION, None, True)
        if "memory" in parts:
            gpu_memory_bound.compile_all(memory_bound_cases.CASES, rehearsal)


@contextlib.contextmanager
def beside(log: Path, parts: Sequence[str], gpu: str, count: int | None = None) -> Iterator[list[subprocess.Popen]]:
    """So many such processes (None: what the machine has to spare) while something else runs; they end with it. What
    they say is added to `log`."""
    if count is None:
        count = min(MOST, max(0, len(os.sched_getaffinity(0)) - SPARE))
    with tempfile.TemporaryDirectory(prefix="wavedsl-") as claims, open(log, "a") as said:
        command = [sys.executable, str(Path(__file__).resolve()), f"--claims={claims}", f"--gpu={gpu}"]
        command += ["--part", *parts]
        running = [subprocess.Popen(command, stdout=said, stderr=said) for _ in range(count)]
        try:
            yield running
        finally:
            for process in running:
                process.kill()
            for process in running:
                process.wait()


def gpu_at_hand() -> str:
    """The driver's name of the first GPU; empty where nobody says."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()[0]
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=Path, required=True, metavar="DIR", help="folder that all processes share")
    parser.add_argument("--gpu", default="", help="the driver's name of the GPU")
    parser.add_argument("--part", nargs="+", default=list(gpu_session.PARTS), choices=gpu_session.PARTS)
    parser.add_argument("--target", default=TARGET)
    given = parser.parse_args(arguments)
    with contextlib.suppress(OSError):
        os.nice(5)
    given.claims.mkdir(parents=True, exist_ok=True)
    rehearsal = Ahead(given.target, given.claims)
    compile_parts(given.part, rehearsal, given.gpu)
    return rehearsal.report()


if __name__ == "__main__":
    sys.exit(main())
