"""Compiling beside a session: every unit once, by one of the processes, and as the session itself would compile it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import benchmark_files
import device_arrays
import numpy as np
import pytest
from wavedsl.runtime import binaries, toolchain

import wavedsl as wd


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:sm_90a")
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "cache"))
    with benchmark_files.imported("ahead") as module:
        yield module


def test_each_unit_is_done_by_one(ahead, tmp_path):
    done: list[tuple[int, str]] = []
    both = [ahead.Ahead("sm_90a", tmp_path) for _ in range(2)]
    for name in ("a", "b", "c"):
        for i, one in enumerate(both if name != "b" else reversed(both)):
            one.run(name, lambda name=name, i=i: done.append((i, name)))
    assert done == [(0, "a"), (0, "b"), (0, "c")]
    both[1].run("fails", lambda: plain.bind(np.zeros(3, np.float32)))
    assert list(both[1].failed) == ["fails"]


N, BN = wd.symbols("N BN")


@wd.wave([wd.WorkgroupConstraint(N, BN, 0)], subs={BN: 64})
def plain(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32]):
    wd.write(wd.read(a), b)


def on_a_gpu(arguments: tuple[Any, ...]) -> list[Any]:
    """The arrays as a GPU's package has them: elsewhere, and described by another protocol."""
    found, pointer = [], 1 << 40
    for x in arguments:
        if isinstance(x, np.ndarray) and x.ndim:
            strides = tuple(s // x.itemsize for s in x.strides)
            found.append(device_arrays.Dlpack(pointer, x.shape, strides, x.dtype.name))
            pointer += (x.nbytes + 511) // 512 * 512
        else:
            found.append(x)
    return found


def test_the_session_finds_what_it_would_compile(ahead, monkeypatch, tmp_path, oracle):
    """Products, strategies for the chip at hand, streams and attention: what is bound to a GPU's arrays has its text
    and its binary in the cache."""
    oracle("ptxas")
    import gemm_cases
    import gpu_attention
    import memory_bound_cases

    square = next(c for c in gemm_cases.CASES if c.name == "squares bf16")
    small = replace(square, sizes=((256, 256, 512),))
    monkeypatch.setattr(gemm_cases, "CASES", (small,))
    few = lambda form, m, tiny, own=gemm_cases.candidates: own(form, m, tiny)[:2]  # noqa: E731
    monkeypatch.setattr(gemm_cases, "candidates", few)
    streams = [c for c in memory_bound_cases.CASES if c.name in ("copy", "split_k")]
    cases = [replace(c, sizes=((64, 512) if c.name == "copy" else (64, 64, 1024),)) for c in streams]
    monkeypatch.setattr(memory_bound_cases, "CASES", tuple(cases))
    monkeypatch.setattr(ahead.gpu_session, "ATTENTION", [(64, 256, True)])
    monkeypatch.setattr(gpu_attention, "TOKENS", 256)
    bound: list[tuple[Any, tuple[Any, ...]]] = []
    own = wd.Kernel.bind
    monkeypatch.setattr(wd.Kernel, "bind", lambda k, *args: bound.append((k, args)) or own(k, *args))
    rehearsal = ahead.Ahead("sm_90a", tmp_path)
    ahead.compile_parts(("gemm", "attention", "memory"), rehearsal, "NVIDIA H200")
    assert not rehearsal.failed and rehearsal.kernels >= 10
    monkeypatch.setenv("WAVEDSL_STRICT", "1")  # compiling is an error from here on

    def never(*args: Any) -> None:
        raise AssertionError("assembled again")

    monkeypatch.setattr(toolchain, "assemble_ptx", never)
    for kernel, arguments in bound:
        there = kernel.bind_arguments(on_a_gpu(arguments), {})
        compiled = kernel.compile_cached(there, "sm_90a")
        assert binaries.ptx(compiled.asm, compiled.target, compiled.name).cubin
    other = np.empty(100, np.float32)
    with pytest.raises(wd.LaunchError, match="WAVEDSL_STRICT forbids"):
        plain.compile_cached(plain.bind_arguments(on_a_gpu((other, other.copy())), {}), "sm_90a")


def test_processes_end_with_what_they_stand_beside(ahead, tmp_path):
    log = tmp_path / "log.txt"
    with ahead.beside(log, ["rates"], "NVIDIA H200", 2) as running:  # of which nothing is compiled ahead
        assert [process.wait(60) for process in running] == [0, 0]
    assert log.read_text().count("0 kernels for sm_90a, 0 failures") == 2
    with ahead.beside(log, ["checks"], "NVIDIA H200", 1) as running:
        assert running[0].poll() is None
    assert running[0].returncode == -9
    with ahead.beside(log, ["checks"], "", 0) as running:
        assert running == []
