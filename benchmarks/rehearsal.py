"""What a benchmark would compile on a GPU, compiled and assembled without one: what fails, spills, or is serialised.

    rehearsal = Rehearsal("sm_90a")
    rehearsal.run("softmax (8192, 4096)", lambda: case.make(space, size))     # what is bound there is compiled for the
    return rehearsal.report()                                                  # target, nothing runs

For a chip of NVIDIA every text also goes through ptxas (where it is at hand): spills, its coded remarks (C75xx: matrix
instructions run one after another, setmaxnreg is ignored) and warnings are named with the registers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import wavedsl as wd


class Rehearsal:
    """The kernels of a benchmark, unit by unit. `failed`: unit → why it cannot be compiled; `notes`: what ptxas has
    against a kernel, of units that are timed and of others."""

    def __init__(self, target: str):
        self.target = target
        self.failed: dict[str, str] = {}
        self.notes: list[tuple[str, bool, str]] = []
        self.kernels = 0
        self._seen: set[str] = set()
        self._new: list[Any] = []
        os.environ["WAVEDSL_DEVICE"] = f"emulator:{target}"

    def run(self, name: str, work: Callable[[], Any], timed: bool = True) -> None:
        """A unit that is this function."""
        with self.unit(name, timed):
            work()

    @contextlib.contextmanager
    def unit(self, name: str, timed: bool = True) -> Iterator[None]:
        """Whatever is compiled inside belongs to the unit; an error ends the unit, and is kept."""
        own = wd.Kernel.compile_cached

        def watched(*args: Any, **kwargs: Any) -> Any:
            compiled = own(*args, **kwargs)
            self._new.append(compiled)
            return compiled

        wd.Kernel.compile_cached = watched  # type: ignore[method-assign]
        try:
            yield
        except wd.WaveError as error:
            self.failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        finally:
            wd.Kernel.compile_cached = own  # type: ignore[method-assign]
        for compiled in self._new:
            self._assemble(name, timed, compiled)
        self._new.clear()

    def add(self, compiled: Any) -> None:
        """A kernel that the unit compiled by itself."""
        self._new.append(compiled)

    def _assemble(self, name: str, timed: bool, compiled: Any) -> None:
        if compiled.asm in self._seen:
            return
        self._seen.add(compiled.asm)
        self.kernels += 1
        from wavedsl.runtime import toolchain

        if not self.target.startswith("sm_") or toolchain.find_cuda_tool("ptxas") is None:
            return
        found = toolchain.assemble_ptx(compiled.asm, compiled.target)
        entry = found.entries[0]
        said = [f"{entry.spill_stores} bytes of spills"] if entry.spill_stores or entry.spill_loads else []
        said += found.warnings
        if said:
            self.notes.append((name, timed, f"{compiled.name}, {entry.registers} registers: {'; '.join(said)}"))

    def report(self) -> int:
        """Print what was found; 1 where something cannot be compiled, or what is timed has a note."""
        for name, why in self.failed.items():
            print(f"FAILED: {name}: {why}")
        for name, timed, said in self.notes:
            print(f"{'NOTE' if timed else 'note (not timed)'}: {name}: {said}")
        print(f"{self.kernels} kernels for {self.target}, {len(self.failed)} failures, {len(self.notes)} with notes")
        return 1 if self.failed or any(timed for _, timed, _ in self.notes) else 0


__all__ = ["Rehearsal"]
