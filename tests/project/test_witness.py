"""Code generator and emulator read the same instruction row, so a wrong row would agree with itself: every row that the
compiler emits has a witness from outside, or is named in docs/unverified.md.

Witnesses: text of other compilers with known answers that executes the row (tests/data/amdgcn_witness.txt,
tests/vectors/llvm, tests/vectors/ptx), the vendors' tables of matrix fragments, what ptxas and LLVM compute at
compile time.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import hopper
import numpy as np
import oracles
import products
import pytest
import witnesses
from emitted import texts
from products import K, M, N
from wavedsl.runtime import emulator

import wavedsl as wd

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent


# ----------------------------------------------------------------------------------------------------- what is emitted


def warpgroup_texts() -> Iterator[str]:
    """Texts of warpgroup kernels: types, orders, with and without roles, clusters, edges that bulk copies cannot do."""
    subs = hopper.tiles(64, 64, 64, 64, 64)
    whole, odd = {**subs, M: 128, N: 128, K: 256}, {**subs, M: 65, N: 63, K: 37}
    fp8 = products.Kind("f8e4m3", wd.f8e4m3, wd.f32, wd.bf16)
    for kind in (products.F16, products.BF16, products.F16_OUT, products.I8, products.TF32, fp8):
        yield hopper.gemm(kind).compile(target="sm_90a", subs=whole).asm
        yield hopper.gemm(kind, b_order="KN").compile(target="sm_90a", subs=odd).asm
    for schedule in (
        wd.Schedule(specialize=False),
        wd.Schedule(cluster=(2, 1, 1)),
        wd.Schedule(persistent=True, stages=2),
    ):
        yield hopper.gemm(products.BF16, schedule=schedule).compile(target="sm_90a", subs=whole).asm
    large = {**hopper.tiles(128, 256, 64, 64, 256), M: 4096, N: 4096, K: 4096}
    for epilogue in ("bias relu", "alpha beta"):
        yield hopper.gemm(products.BF16, epilogue=epilogue).compile(target="sm_90a", subs=large).asm


def emitted(target: str) -> set[str]:
    more = warpgroup_texts() if target == "sm_90a" else ()
    return set().union(*(witnesses.rows(text, target) for text in (*texts(target), *more)))


@pytest.mark.exhaustive  # every end-to-end test asks the same of the rows that it emits (tests/e2e/conftest.py)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_emitted_rows_have_a_witness(target: str) -> None:
    """Those of AMD's chips: tests/project/test_canonical.py, of the same texts."""
    witnesses.expect_witnessed(emitted(target), target)


def _stores(instruction: str, *words: int, name: str = "k") -> str:
    """An entry that stores what an instruction makes of constants."""
    names = [f"%r{i + 1}" for i in range(len(words))]
    moves = "\n".join(f"mov.b32 {name}, {word:#x};" for name, word in zip(names, words))
    return f"""
.visible .entry {name}(.param .u64 o) {{
.reg .b32 %r<{len(words) + 1}>; .reg .b64 %d<2>;
ld.param.u64 %d0, [o];
cvta.to.global.u64 %d0, %d0;
{moves}
{instruction} %r0, {", ".join(names)};
st.global.b32 [%d0], %r0;
ret;
}}
"""


HEAD = """
.version 7.4
.target sm_80
.address_size 64
"""


def _emulated(entry: str, name: str = "k") -> int:
    out = np.zeros(1, np.uint32)
    emulator.run(HEAD + entry, target="sm_80", grid=(1, 1, 1), block=(1, 1, 1), args=[out], kernel=name)
    return int(out[0])


TIES_AND_OTHERS = (0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0xBF801000, 0x7F7FEFFF, 0x00001000, 0x42F6E979)
WHOLE = [(3, 5), (0xFFFFFFFF, 1), (0x80000000, 0x7FFFFFFF), (7, 7)]
FLOATS = [(0x3F800000, 0xC0000000), (0x7FC00000, 0x40000000), (0x40000000, 0x7FC00000), (0x7F800000, 0xFF800000)]
PICKED = {"min.s32": WHOLE, "max.s32": WHOLE, "min.f32": FLOATS}
ROUNDED = [("cvt.rna.tf32.f32", (bits,)) for bits in TIES_AND_OTHERS]
"""To nearest, ties away from zero."""
CONSTANTS = [*ROUNDED, *((name, pair) for name, pairs in PICKED.items() for pair in pairs)]
"""Instructions of constants, which ptxas computes itself. Of minima and maxima, a number comes before NaN."""


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """The word that ptxas' code for each of them stores."""
    cubin = tmp_path_factory.mktemp("folded") / "k.cubin"
    text = HEAD + "".join(_stores(name, *words, name=f"k{i}") for i, (name, words) in enumerate(CONSTANTS))
    subprocess.run([oracles.require("ptxas"), "-arch=sm_80", "-o", str(cubin), "-"], input=text, text=True, check=True)
    command = [oracles.require("nvdisasm"), str(cubin)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    code = dict(re.findall(r"\.section\s+\.text\.k(\d+),(.*?)(?=\n\s*\.section\s|\Z)", said, re.S))
    return [_stored(code[str(i)]) for i in range(len(CONSTANTS))]


def _stored(code: str) -> int:
    (stored,) = re.findall(r"STG\S* \[\S+\], (\w+)", code)
    if stored == "RZ":
        return 0
    (value,) = re.findall(rf"MOV\S* {stored}, (?:RZ, RZ, )?(-?0x[0-9a-f]+|RZ)", code)
    return 0 if value == "RZ" else int(value, 16) & 0xFFFFFFFF


@pytest.mark.parametrize("which", range(len(CONSTANTS)), ids=[f"{n}-{w}" for n, w in CONSTANTS])
def test_ptxas_computes_as_the_row_does(which: int, folded: list[int]) -> None:
    name, words = CONSTANTS[which]
    assert _emulated(_stores(name, *words)) == folded[which]
    if (name, words) in ROUNDED:
        assert folded[which] == (words[0] + 0x1000) & 0xFFFFE000


SELECTORS = {"": (0x5410, 0x7632, 0x0040, 0x3210, 0x9A7F, 0xB840, 0xFEDC)}


@pytest.mark.parametrize("mode", ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_llvm_permutes_bytes_as_the_row_does(mode: str, oracle: Callable[[str], str]) -> None:
    """Any four bytes of two words, a sign repeated, and the fixed patterns: LLVM folds the permutation of constants."""
    first, second = 0x8473A251, 0x1EE93C96
    selectors = SELECTORS.get(mode, range(4))
    name = "@llvm.nvvm.prmt" + (f".{mode}" if mode else "")
    words = [first, second] if mode in ("", "f4e", "b4e") else [first]  # the other patterns permute one word
    calls = "\n".join(
        f"%r{s} = call i32 {name}({', '.join(f'i32 {w}' for w in (*words, s))})\nstore volatile i32 %r{s}, ptr %o"
        for s in selectors
    )
    module = (
        f'target triple = "nvptx64-nvidia-cuda"\ndeclare i32 {name}({", ".join(["i32"] * (len(words) + 1))})\n'
        f"define void @k(ptr %o) {{\n{calls}\nret void\n}}\n"
    )
    command = [oracle("llc"), "-mcpu=sm_80", "-o", "-"]
    text = subprocess.run(command, input=module, text=True, capture_output=True, check=True).stdout
    assert "prmt" not in text, "LLVM has left the permutation to the chip"
    folded = [int(word) & 0xFFFFFFFF for word in re.findall(r"st\.volatile\.b32 +\t?\[%rd1\], (-?\d+);", text)]
    assert len(folded) == len(selectors)
    for selector, want in zip(selectors, folded):
        assert _emulated(_stores(f"prmt.b32{'.' * bool(mode)}{mode}", first, second, selector)) == want, hex(selector)
