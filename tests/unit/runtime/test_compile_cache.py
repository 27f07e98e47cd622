"""Kernels in the disk cache: found again by another process, never when anything that the text depends on differs."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from forks import Forks
from wavedsl.runtime import cache

import wavedsl as wd
from wavedsl import compile_cache

MODULE = """
import sys
import numpy as np
import wavedsl as wd
from helper_of_the_cache_test import scaled
M, N, BM, BN = wd.symbols("M N BM BN")
FACTOR = {factor}

@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={{BM: {tile}, BN: 16}})
def kernel(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(scaled(wd.read(a)) * FACTOR, b)

rows = int(sys.argv[1])
a, b = np.ones((rows, 32), np.float32)[:, {slice}], np.zeros((rows, 16), np.float32)
kernel(a, b)
print(b[0, 0], b.min() == b.max(), "wavedsl.ir.lower_kernel" in sys.modules or "wavedsl.ir.pipeline" in sys.modules)
"""
HELPER = "def scaled(x):\n    return x * {scale}\n"


class Project:
    """A module with a kernel and one with a helper that it calls, run in processes of their own."""

    def __init__(self, folder: Path, processes: Forks):
        self.folder, self.processes = folder, processes
        self.factor, self.tile, self.slice, self.scale = "3.0", "16", ":16", "2.0"
        self.seconds = 1_000_000_000

    def run(self, rows: int = 16, device: str = "emulator:gfx942") -> list[str]:
        """[the result, whether all elements are equal, whether the compiler's middle was loaded]"""
        helper = self.folder / "helper_of_the_cache_test.py"
        helper.write_text(HELPER.format(scale=self.scale))
        # Python takes its own bytecode for that of a file of the same size and second.
        self.seconds += 1
        os.utime(helper, (self.seconds, self.seconds))
        text = MODULE.format(factor=self.factor, tile=self.tile, slice=self.slice)
        (self.folder / "main_of_the_cache_test.py").write_text(text)
        done = self.processes.run(
            "main_of_the_cache_test.py",
            str(rows),
            cwd=self.folder,
            env={**os.environ, "WAVEDSL_CACHE_DIR": str(self.folder / "cache"), "WAVEDSL_DEVICE": device},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()


@pytest.fixture
def project(tmp_path, monkeypatch, fresh_processes) -> Project:
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "cache"))
    return Project(tmp_path, fresh_processes)


def test_a_second_process_does_not_compile(project):
    assert project.run() == ["6.0", "True", "True"]
    assert project.run() == ["6.0", "True", "False"]
    assert len(cache.entries()) == 1


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"scale": "5.0"}, "15.0"),  # a helper in another module
        pytest.param({"factor": "4.0"}, "8.0", marks=pytest.mark.slow),  # a global of the kernel's module
        pytest.param({"tile": "32"}, "6.0", marks=pytest.mark.slow),
        pytest.param({"slice": "::2"}, "6.0", marks=pytest.mark.slow),  # strides
    ],
)
def test_a_change_is_compiled(project, change, result):
    project.run()
    for name, value in change.items():
        setattr(project, name, value)
    assert project.run() == [result, "True", "True"]
    assert project.run() == [result, "True", "False"]


@pytest.mark.slow
def test_sizes_and_targets_are_kept_apart(project):
    for device in ("emulator:gfx942", "emulator:gfx950", "emulator:sm_80"):
        for rows in (16, 17):
            assert project.run(rows, device)[:2] == ["6.0", "True"]
    assert len(cache.entries()) == 6
    assert sorted({e.target for e in cache.entries()}) == ["gfx942", "gfx950", "sm_80"]


def test_a_damaged_entry_is_compiled_anew(project):
    project.run()
    (only,) = cache.entries()
    (only.path / "kernel.json").write_text("{}")
    assert project.run() == ["6.0", "True", "True"]
    assert project.run() == ["6.0", "True", "False"]


M, N = wd.symbols("M N")


# A run-time N: sympy has a function of that name.
@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 16, 1)], dynamic=[N])
def halve(a: wd.Memory[M, N, wd.f16], b: wd.Memory[M, N, wd.f16]):
    wd.write(wd.read(a) * 0.5, b)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80"])
def test_a_stored_kernel_is_the_same(target, tmp_path, monkeypatch):
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path))
    a, b = np.ones((20, 40), np.float16), np.zeros((20, 40), np.float16)
    arguments = {"a": a, "b": b}
    fresh = compile_cache.compile_cached(halve, arguments, target)
    stored = compile_cache.compile_cached(halve, arguments, target)
    assert stored is not fresh and stored.kernel_ir is None and fresh.kernel_ir is not None
    for what in ("asm", "name", "target", "grid", "block", "shared_bytes", "params", "shapes", "expects"):
        assert getattr(stored, what) == getattr(fresh, what), what
    assert stored.resources.instructions == fresh.resources.instructions
    assert [vars(loop) for loop in stored.resources.loops] == [vars(loop) for loop in fresh.resources.loops]
    stored.emulate(a, b)
    assert (b == 0.5).all()


def test_every_part_of_the_key_matters():
    a, b = np.ones((32, 32), np.float16), np.zeros((32, 32), np.float16)
    parts = compile_cache.key_parts(halve, halve.trace(), {"a": a, "b": b}, "gfx942")
    assert set(parts) == {"graph", "constraints", "bindings", "arguments", "schedule", "target", "compiler"}
    keys = {cache.key_of({**parts, name: parts[name] + "x"}) for name in parts}
    assert len(keys | {cache.key_of(parts)}) == len(parts) + 1
    assert "0x" not in parts["graph"], "an object without a name of its own: its address is no part of a key"
