"""Every kernel IR op on every chip that has it: compiled, assembled by LLVM, run on the emulator with all checks, and
compared with NumPy."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import amdgcn_kernels as kernels
import amdgcn_op_cases as op_cases
import numpy as np
import pytest
from wavedsl.codegen.amdgcn import compile_kernel_ir, get_target
from wavedsl.runtime.emulator import run

CHIPS = ("gfx90a", "gfx942", "gfx950")
PAIRS = [(chip, c) for chip in CHIPS for c in op_cases.CASES if chip in c.chips]


@pytest.mark.parametrize(("chip", "case"), PAIRS, ids=[f"{chip} {c.name}" for chip, c in PAIRS])
def test_op_equals_numpy(chip: str, case: op_cases.Case) -> None:
    rng = np.random.default_rng(1)
    if case.values is not None:
        inputs = case.values(rng)
    else:
        inputs = [op_cases.numbers(t, rng, i) for i, t in enumerate(case.inputs)]
    with np.errstate(all="ignore"):
        want = np.asarray(case.reference(*inputs))
    out_type = op_cases.NUMPY[case.output.kind]
    out = np.zeros(op_cases.N * case.output.n, out_type)
    kernel = kernels.elementwise(chip, case.inputs, case.output, case.body)
    program = compile_kernel_ir(kernel, get_target(chip))
    run(program.text, target=chip, grid=(1, 1, 1), block=(64, 1, 1), args=[*inputs, out], checks=True)
    _compare(out, want, case)


def _compare(got: np.ndarray, want: np.ndarray, case: op_cases.Case) -> None:
    if case.packed is not None:
        x, y = (np.ascontiguousarray(words).view(case.packed.numpy) for words in (got, want))
        nan = np.isnan(y.astype(np.float32))
        assert np.array_equal(np.isnan(x.astype(np.float32)), nan)
        bits = np.dtype(f"u{x.dtype.itemsize}")
        assert np.array_equal(x.view(bits)[~nan], y.view(bits)[~nan]), (x, y)
        return
    if case.output.is_float:
        with np.errstate(invalid="ignore"):
            exact = want.astype(np.float64)
        want = want.astype(got.dtype)
        nan = np.isnan(want)
        assert np.array_equal(np.isnan(got), nan)
        got, want, exact = got[~nan], want[~nan], exact[~nan]
        if case.ulp == 0 and case.absolute == 0:
            same = got == want
            assert same.all(), (got[~same], want[~same])
            return
        bound = case.ulp * np.spacing(np.abs(want)).astype(np.float64) + case.absolute
        with np.errstate(invalid="ignore"):
            error = np.where(got == want, 0, np.abs(got.astype(np.float64) - exact))
        assert (error <= bound).all(), (got[error > bound], want[error > bound])
    else:
        assert np.array_equal(got, want.astype(want.dtype).view(got.dtype) if want.dtype.itemsize == got.dtype.itemsize
                              else want.astype(got.dtype)), (got, want)  # fmt: skip


@pytest.mark.parametrize("chip", CHIPS)
def test_all_ops_are_accepted_by_the_assembler(chip: str, oracle: Callable[[str], str], tmp_path: Path) -> None:
    texts = []
    for i, case in enumerate(c for c in op_cases.CASES if chip in c.chips):
        kernel = kernels.elementwise(chip, case.inputs, case.output, case.body, name=f"op{i}")
        text = compile_kernel_ir(kernel, get_target(chip)).text.split("\t.amdgpu_metadata")[0]
        if i:
            text = "\n".join(
                line for line in text.split("\n") if "amdgcn_target" not in line and "code_object" not in line
            )
        texts.append(f"; {case.name}\n{text}")
    source = tmp_path / "ops.s"
    source.write_text("\n".join(texts))
    command = [oracle("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={chip}", "-filetype=obj", str(source)]
    done = subprocess.run([*command, "-o", str(tmp_path / "ops.o")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


def test_fp8_on_a_chip_without_it_is_an_error() -> None:
    from wavedsl.ir import dtypes as dt
    from wavedsl.ir.errors import CompileError
    from wavedsl.ir.kernel.kernel_ir import B32, F32

    kernel = kernels.elementwise("gfx90a", [B32], F32, lambda b, x: b.unpack(x, dt.f8e4m3, 0))
    with pytest.raises(CompileError, match="8-bit floats need gfx942"):
        try:
            compile_kernel_ir(kernel, get_target("gfx90a"))
        except CompileError as error:
            raise CompileError(str(error)) from None
    kernel = kernels.elementwise("gfx942", [B32], F32, lambda b, x: b.unpack(x, dt.f8e4m3, 0))
    with pytest.raises(CompileError) as failure:
        compile_kernel_ir(kernel, get_target("gfx942"))
    assert "f8e4m3fnuz" in failure.value.hint


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("other", ["itself", "a constant"])
def test_half_of_a_packed_pair_is_rounded_once(dtype: str, other: str) -> None:
    """It was rounded twice where it is the other half too, and constants were rounded while the kernel ran."""
    name = f"pack {dtype} of None and {None if other == 'itself' else 0.0}"
    case = next(c for c in op_cases.CASES if c.name == name)
    kernel = kernels.elementwise("gfx942", case.inputs, case.output, case.body)
    text = compile_kernel_ir(kernel, get_target("gfx942")).text
    assert text.count("v_cvt_f16_f32" if dtype == "f16" else "v_add3_u32") == 1
