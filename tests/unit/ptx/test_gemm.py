"""A multistage GEMM in kernel IR: its text (golden), its counts, its numbers on the emulator, ptxas on every chip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ptx_kernels import gemm
from wavedsl.codegen.ptx.emit import compile_kernel_ir
from wavedsl.codegen.ptx.target import TARGETS
from wavedsl.runtime.toolchain import assemble_ptx

SM80 = TARGETS["sm_80"]
GOLDEN = Path(__file__).parents[2] / "golden" / "ptx"


def test_text_is_the_golden_one() -> None:
    """WAVEDSL_UPDATE_GOLDEN=1 rewrites the file; read the difference before committing it."""
    text = compile_kernel_ir(gemm(SM80, 128, 128, 96), SM80).text
    path = GOLDEN / "gemm_64x64x32.ptx"
    if os.environ.get("WAVEDSL_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()


def test_loop_holds_what_the_schedule_needs_and_no_more() -> None:
    program = compile_kernel_ir(gemm(SM80, 128, 128, 256), SM80)
    (loop,) = program.resources.loops
    counts = {k: v for k, v in loop.instructions.items() if v}
    # Per trip: 16 mma, 8 ldmatrix, 4 cp.async with commit and wait, one barrier, one branch; the rest is 2 ring
    # offsets, 4 shared and 2 global addresses, one mask, the induction variable.
    assert counts.pop("alu") <= 20
    assert counts == {"cvt": 1, "lsu": 12, "tensor": 16, "async": 2, "barrier": 1, "branch": 1}
    assert program.resources.instructions["accmove"] == 0
    assert sum(program.resources.instructions.values()) == sum(
        line.endswith(";") and not line.strip().startswith((".", "//"))
        for line in program.text.split("{", 1)[1].split("\n")
    )


@pytest.mark.parametrize(
    ("m", "n", "k", "stages"), [(64, 64, 32, 2), (128, 128, 96, 3), (65, 127, 104, 3), (7, 17, 8, 4), (100, 66, 256, 4)]
)
def test_numbers(m: int, n: int, k: int, stages: int) -> None:
    from wavedsl.runtime import emulator

    kernel = gemm(SM80, m, n, k, stages=stages)
    program = compile_kernel_ir(kernel, SM80)
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-4, 5, s).astype(np.float16) for s in ((m, k), (n, k)))
    c = np.full((m, n), np.nan, np.float32)
    report = emulator.run(
        program.text,
        target="sm_80",
        grid=kernel.grid,
        block=(kernel.block, 1, 1),
        args=[a, b, c],
        shared_bytes=program.dynamic_shared_bytes,
        checks=True,
    )
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
    assert report.bank_conflicts == 0


@pytest.mark.parametrize("k", [0, 8, 40, 64, 200])
def test_dynamic_extent(k: int) -> None:
    from wavedsl.runtime import emulator

    kernel = gemm(SM80, 64, 64, 200, dynamic_k=True)
    program = compile_kernel_ir(kernel, SM80)
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-4, 5, (64, 200)).astype(np.float16) for _ in range(2))
    c = np.full((64, 64), np.nan, np.float32)
    emulator.run(
        program.text,
        target="sm_80",
        grid=kernel.grid,
        block=(128, 1, 1),
        args=[a, b, c, np.int32(k)],
        checks=True,
    )
    np.testing.assert_array_equal(c, a[:, :k].astype(np.float32) @ b[:, :k].astype(np.float32).T)


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
def test_ptxas_needs_no_spills(stages: int, oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    program = compile_kernel_ir(gemm(SM80, 127, 130, 264, stages=stages), SM80)
    for arch in ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120"):
        (entry,) = assemble_ptx(program.text, arch).entries
        assert (entry.spill_stores, entry.spill_loads, entry.stack) == (0, 0, 0)
        assert entry.registers <= 128


def test_hopper_takes_the_same_path(oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    chip = TARGETS["sm_90a"]
    text = compile_kernel_ir(gemm(chip, 256, 256, 256, stages=4), chip).text
    assert ".target sm_90a" in text and ".version 8.0" in text
    (entry,) = assemble_ptx(text, "sm_90a").entries
    assert (entry.spill_stores, entry.spill_loads) == (0, 0)


def test_resources_assemble_on_first_access(oracle: Callable[[str], str]) -> None:
    oracle("ptxas")
    asked = []

    def assemble(text: str):
        asked.append(text)
        return assemble_ptx(text, "sm_80").entries[0]

    program = compile_kernel_ir(gemm(SM80, 128, 128, 128), SM80, assemble)
    assert program.resources.shared_bytes == 24576 and not asked
    assert 32 <= program.resources.registers <= 128 and program.resources.spills == 0
    # 6 workgroups of 25600 bytes with the system's 1 KB fit in 167936 bytes of shared memory.
    assert program.resources.occupancy == min(6, 65536 // (-(-program.resources.registers // 8) * 8 * 128)) * 4
    assert len(asked) == 1


def test_resources_without_an_assembler_warn_once() -> None:
    program = compile_kernel_ir(gemm(SM80, 128, 128, 128), SM80)
    with pytest.warns(UserWarning, match="ptxas"):
        assert program.resources.registers is None
    assert program.resources.spills is None and program.resources.occupancy is None


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    here = Path(__file__).parents[2] / "helpers"
    script = (
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        "from ptx_kernels import gemm\nfrom wavedsl.codegen.ptx.emit import compile_kernel_ir\n"
        "from wavedsl.codegen.ptx.target import TARGETS\n"
        "print(compile_kernel_ir(gemm(TARGETS['sm_80'], 100, 66, 104), TARGETS['sm_80']).text)"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    ]
    assert texts[0] == texts[1] and "mma.sync" in texts[0]
