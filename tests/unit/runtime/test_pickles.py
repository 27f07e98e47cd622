"""Kernels sent to other processes: a kernel by its name, as functions are, a compiled one as what a file holds."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import wavedsl as wd
from wavedsl.demo import gemm

N, BN = wd.symbols("N BN")


@wd.autotune(space={BN: (64, 128)})
@wd.wave([wd.WorkgroupConstraint(N, BN, 0)])
def doubled(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    wd.write(wd.read(x) + wd.read(x), y)


def test_a_kernel_is_pickled_by_name():
    assert pickle.loads(pickle.dumps(gemm)) is gemm and copy.deepcopy(gemm) is gemm
    assert pickle.loads(pickle.dumps(doubled)) is doubled and copy.copy(doubled) is doubled


def test_another_process_compiles():
    """The kernel goes there, its text comes back."""
    a, c = np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        compiled = pool.submit(gemm.compile, a, a, c, target="gfx942").result()
    assert compiled.asm == gemm.compile(a, a, c, target="gfx942").asm
    compiled.emulate(a, a, c)
    assert (c == 64).all()


def test_one_that_its_module_does_not_have_is_refused():
    @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
    def inner(x: wd.Memory[N, wd.f32]):
        wd.write(wd.read(x) + 1, x)

    with pytest.raises((pickle.PicklingError, AttributeError), match="inner"):
        pickle.dumps(inner)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a"])
def test_a_compiled_kernel_keeps_text_and_launch(target):
    a, c = np.ones((64, 64), np.float16), np.zeros((64, 64), np.float32)
    compiled = gemm.compile(a, a, c, target=target)
    other = pickle.loads(pickle.dumps(compiled))
    assert other.asm == compiled.asm and other.grid == compiled.grid and other.to_json() == compiled.to_json()
    other.emulate(a, a, c)
    assert (c == 64).all()
