"""Code generator and emulator read the same instruction row, so a wrong row would agree with itself: every row that the
compiler emits has a witness from outside, or is named in docs/unverified.md.

Witnesses: text of other compilers with known answers that executes the row (tests/data/amdgcn_witness.txt,
tests/vectors/llvm, tests/vectors/ptx), the vendors' tables of matrix fragments, what ptxas and LLVM compute at
compile time.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import hopper
import numpy as np
import products
import pytest
import triton_texts
from emitted import texts
from products import AMD, TARGETS, K, M, N
from wavedsl.codegen.amdgcn import isa as amdgcn
from wavedsl.codegen.ptx import isa as ptx
from wavedsl.codegen.ptx.mma import MMAS
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


def amdgcn_rows(text: str, target: str) -> set[str]:
    """Rows of the instructions in a text; `_e32` and `_e64` are encodings of one row."""
    code = text.split(".amdhsa_kernel")[0] if text.count(".amdhsa_kernel") == 1 else text
    found = re.findall(r"^\s+([a-z]+_\w+)(?=\s|$)", code, re.M)
    return {re.sub(r"_e(32|64)$", "", amdgcn.lookup(name, target).mnemonic) for name in found}


def ptx_rows(text: str, target: str) -> set[str]:
    found = re.findall(r"^\s+(?:@!?%p\d+\s+)?([a-z][a-z0-9_]*(?:\.[\w:]+)*)\s*[^\s:.]?.*;", text, re.M)
    return {ptx.lookup(name, target).row.pattern for name in found}


def emitted(target: str) -> set[str]:
    rows = amdgcn_rows if target in AMD else ptx_rows
    found = set().union(*(rows(text, target) for text in texts(target)))
    if target == "sm_90a":
        found |= set().union(*(rows(text, target) for text in warpgroup_texts()))
    return found


# ----------------------------------------------------------------------------------------------------------- witnesses


def amdgcn_witnesses(target: str) -> set[str]:
    listed = (TESTS / "data" / "amdgcn_witness.txt").read_text().splitlines()
    found = {re.sub(r"_e(32|64)$", "", row) for t, row in (line.split() for line in listed) if t == target}
    # Every instruction of these kernels is executed by tests/emulator/amdgcn/test_llvm.py: none is branched over.
    compiled = (TESTS / "vectors" / "llvm" / f"kernels.{target}.s").read_text()
    bodies = re.findall(r"^\w+: +; @\w+\n(.*?)s_endpgm", compiled, re.M | re.S)
    assert len(bodies) == 8
    for body in bodies:
        found |= amdgcn_rows(body, target)
    calculated = json.loads((TESTS / "data" / "mfma_columns.json").read_text())["mfma"]
    return found | set(calculated[target])


def ptx_witnesses(target: str) -> set[str]:
    from wavedsl.runtime.emulator.ptx import run_ptx

    folder = TESTS / "vectors"
    spec = importlib.util.spec_from_file_location("vector_data", folder / "vector_data.py")
    assert spec is not None and spec.loader is not None
    data = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(data)
    found: set[str] = set()
    for path in sorted(p for t in {"sm_80", target.rstrip("a")} for p in (folder / "ptx").glob(f"*.{t}*/case.json")):
        case = json.loads(path.read_text())
        report = run_ptx(
            (path.parent / case["asm"]).read_text(), target=case["arch"], grid=case["grid"], block=case["block"],
            args=data.make_args(case), kernel=case["kernel"], shared_bytes=case["dynamic_shared_bytes"], checks=False,
        )  # fmt: skip
        found |= report.coverage
    if target == "sm_90a":
        found |= triton_texts.coverage()
    table = json.loads((TESTS / "data" / "nvidia_layouts.json").read_text())["mma_sync"]
    number = ptx.parse_target(target).number
    found |= {ptx.lookup(m.mnemonic, target).row.pattern for m in MMAS if m.witness in table and m.min_sm <= number}
    found.add(ptx.lookup("cvt.rna.tf32.f32", "sm_80").row.pattern)  # test_ptxas_rounds_to_tf32_as_the_row_does
    for name in PICKED:
        found.add(ptx.lookup(name, "sm_80").row.pattern)  # test_ptxas_picks_as_the_row_does
    found.add(ptx.lookup("prmt.b32", "sm_80").row.pattern)  # test_llvm_permutes_bytes_as_the_row_does
    return found


def unverified(target: str) -> set[str]:
    """Rows that docs/unverified.md names for a target: lines `| row | targets | … |`. On NVIDIA a row goes by one of
    its instructions: its pattern would take a table apart."""
    lines = (ROOT / "docs" / "unverified.md").read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    named = {row.strip("`") for row, targets, *_ in cells if target in targets.split(", ")}
    return named if target in AMD else {ptx.lookup(name, target).row.pattern for name in named}


@pytest.mark.parametrize("target", [*TARGETS, "sm_90a"])
def test_emitted_rows_have_a_witness(target: str) -> None:
    rows = emitted(target)
    assert len(rows) > 30
    witnessed = amdgcn_witnesses(target) if target in AMD else ptx_witnesses(target)
    without = rows - witnessed
    admitted = unverified(target)
    assert not without - admitted, "emitted, without a witness, and not in docs/unverified.md"
    assert not admitted & witnessed, "in docs/unverified.md, but witnessed"


def _stores(instruction: str, *words: int) -> str:
    """A kernel that stores what an instruction makes of constants."""
    names = [f"%r{i + 1}" for i in range(len(words))]
    moves = "\n".join(f"mov.b32 {name}, {word:#x};" for name, word in zip(names, words))
    return f"""
.version 7.4
.target sm_80
.address_size 64
.visible .entry k(.param .u64 o) {{
.reg .b32 %r<{len(words) + 1}>; .reg .b64 %d<2>;
ld.param.u64 %d0, [o];
cvta.to.global.u64 %d0, %d0;
{moves}
{instruction} %r0, {", ".join(names)};
st.global.b32 [%d0], %r0;
ret;
}}
"""


def _folded(text: str, ptxas: str, nvdisasm: str, cubin: Path) -> int:
    """The word that ptxas' code for such a kernel stores: ptxas has computed it."""
    subprocess.run([ptxas, "-arch=sm_80", "-o", str(cubin), "-"], input=text, text=True, check=True)
    code = subprocess.run([nvdisasm, str(cubin)], capture_output=True, text=True, check=True).stdout
    (stored,) = re.findall(r"STG\S* \[\S+\], (\w+)", code)
    if stored == "RZ":
        return 0
    (value,) = re.findall(rf"MOV\S* {stored}, (?:RZ, RZ, )?(-?0x[0-9a-f]+|RZ)", code)
    return 0 if value == "RZ" else int(value, 16) & 0xFFFFFFFF


TIES_AND_OTHERS = (0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0xBF801000, 0x7F7FEFFF, 0x00001000, 0x42F6E979)


@pytest.mark.parametrize("bits", TIES_AND_OTHERS, ids=hex)
def test_ptxas_rounds_to_tf32_as_the_row_does(bits: int, oracle: Callable[[str], str], tmp_path: Path) -> None:
    """To nearest, ties away from zero: ptxas folds the conversion of a constant."""
    text = _stores("cvt.rna.tf32.f32", bits)
    out = np.zeros(1, np.uint32)
    emulator.run(text, target="sm_80", grid=(1, 1, 1), block=(1, 1, 1), args=[out])
    folded = _folded(text, oracle("ptxas"), oracle("nvdisasm"), tmp_path / "k.cubin")
    assert int(out[0]) == folded == (bits + 0x1000) & 0xFFFFE000


WHOLE = [(3, 5), (0xFFFFFFFF, 1), (0x80000000, 0x7FFFFFFF), (7, 7)]
FLOATS = [(0x3F800000, 0xC0000000), (0x7FC00000, 0x40000000), (0x40000000, 0x7FC00000), (0x7F800000, 0xFF800000)]
PICKED = {"min.s32": WHOLE, "max.s32": WHOLE, "min.f32": FLOATS}


@pytest.mark.parametrize(("name", "pair"), [(n, p) for n, pairs in PICKED.items() for p in pairs], ids=str)
def test_ptxas_picks_as_the_row_does(
    name: str, pair: tuple[int, int], oracle: Callable[[str], str], tmp_path: Path
) -> None:
    """The smaller or larger of two signed numbers, a number before NaN: ptxas folds it for constants."""
    text = _stores(name, *pair)
    out = np.zeros(1, np.uint32)
    emulator.run(text, target="sm_80", grid=(1, 1, 1), block=(1, 1, 1), args=[out])
    assert int(out[0]) == _folded(text, oracle("ptxas"), oracle("nvdisasm"), tmp_path / "k.cubin")


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
        text = _stores(f"prmt.b32{'.' * bool(mode)}{mode}", first, second, selector)
        out = np.zeros(1, np.uint32)
        emulator.run(text, target="sm_80", grid=(1, 1, 1), block=(1, 1, 1), args=[out])
        assert int(out[0]) == want, hex(selector)
