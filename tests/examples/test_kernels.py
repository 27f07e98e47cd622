"""Every small example gets the right answer on every target, at sizes that divide nothing and with each option."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")

CASES: dict[str, tuple[str, ...]] = {
    "vector_add": ("--n 1000 --dtype f16", "--n 5000 --dtype i32"),
    "transpose": ("--m 100 --n 70", "--m 17 --n 130 --dtype i8"),
    "softmax": ("--m 9 --n 333", "--m 8 --n 64 --dtype bf16"),
    "norms": ("--m 20 --n 130", "--kind rms --m 33 --n 64"),
    "swiglu": ("--m 70 --n 40 --k 65", "--m 64 --n 64 --k 64 --dtype bf16"),
    "batched_gemm": ("--batch 2 --m 65 --n 40 --k 33", "--dtype bf16"),
    "convolution": ("--height 5 --width 7 --channels 12 --filters 20", "--size 1 --channels 32"),
    "grouped_gemm": ("--tokens 70 --experts 4 --n 40 --k 37", "--tokens 5 --experts 1"),
    "ragged_gemm": ("--groups 3 --rows 150 --n 40 --k 72", "--groups 6 --rows 20 --dtype bf16"),
    "quantised_gemm": (
        "--bits 4 --m 40 --n 70 --k 50", "--bits 8 --m 33 --n 64 --k 64 --dtype bf16",
        "--format mxfp4 --m 40 --n 70 --k 160", "--format mxfp4 --activations mxfp4 --k 256",
    ),
    "block_sparse_attention": (
        "--tokens 150 --d 32", "--mask causal --tokens 130 --heads 1 --dtype f16", "--tokens 400 --heads 4 --batch 2",
    ),
    "block_scaled_gemm": ("--m 70 --n 140 --k 200", "--m 64 --n 130 --k 128 --dtype bf16"),
    "cross_entropy": ("--m 9 --n 100", "--m 4 --n 513", "--rows long --dtype bf16 --m 2 --n 9000"),
    "sampling": (
        "--m 3 --n 9000", "--m 2 --how drawn --temperature 0.7", "--how head --m 5 --n 768 --dtype f16",
        "--m 2 --n 300 --dtype f32",
    ),
    "policy_loss": ("--m 3 --n 4200", "--m 5 --n 300 --dtype f16 --beta 0"),
    "norm_quantise": ("--m 9 --n 130", "--m 5 --n 1000 --dtype f16"),
    "causal_conv": ("--time 20 --channels 40", "--time 3 --channels 64 --dtype bf16"),
    "mla_decode": ("--lengths 70,0 --heads 16", "--heads 64 --lengths 33,64 --dtype f16 --splits 1"),
    "retention": (
        "--time 70 --d 40 --e 50", "--heads 1 --time 33 --d 64 --dtype f16", "--time 65 --d 128 --e 128",
        "--heads 1 --time 40 --d 100",
    ),
    "rope": ("--tokens 33 --heads 3 --d 20", "--tokens 16 --d 128 --dtype bf16"),
    "histogram": ("--n 700 --bins 30", "--n 300 --bins 1"),
    "scan": ("--m 5 --n 700", "--m 4 --n 256"),
    "recurrence": ("--batch 2 --time 70 --channels 40", "--batch 1 --time 100 --channels 70"),
    "alignment": ("--pairs 3 --rows 20 --columns 33", "--pairs 2 --rows 90 --columns 1"),
    "fft": ("--rows 2 --n 128", "--rows 1 --n 1024 --direction back"),
    "routing": ("--tokens 37 --experts 7 --d 40", "--tokens 5 --experts 60 --chosen 6 --d 129 --dtype bf16"),
    "splatting": ("--height 33 --width 20 --splats 30", "--height 16 --width 1 --splats 200"),
    "stencil": ("--m 37 --n 70", "--m 1 --n 5"),
}
"""Example → command lines; the first is part of the default run on two chips, all of them run on every chip."""


def load(name: str) -> Any:
    """An example as a module, its folder last on the path: it has a copy.py, and so has the standard library."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_listed() -> None:
    others = {"common", "copy", "gemm", "torch_op"}  # and attention*.py: tests/examples/test_examples.py runs them
    found = {p.stem for p in EXAMPLES.glob("*.py") if not p.stem.startswith("attention")}
    assert found - others == set(CASES)


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
@pytest.mark.parametrize("name", CASES)
def test_right(name: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert load(name).main([*CASES[name][0].split(), "--target", target]) == 0
    said = capsys.readouterr().out
    assert "no findings" in said and "of what is allowed" in said


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_right_with_every_option(name: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("", *CASES[name])[TARGETS.index(target) % 2 :: 2]:  # chips take turns
        assert load(name).main([*line.split(), "--target", target]) == 0, line
    said = capsys.readouterr().out
    assert "WRONG" not in said
    if name in ("mla_decode", "retention"):  # sums as wide as registers allow
        assert set(re.findall(r"spills (\S+),", said)) <= {"0", "-"}


@pytest.mark.parametrize("name", [n if n == "swiglu" else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_newer_chips_assemble_the_text_of_sm_80(name: str, monkeypatch: pytest.MonkeyPatch, oracle: Any) -> None:
    """sm_100 and sm_120 run what is written for sm_80: nothing in it needs a suffix, nothing spills."""
    oracle("ptxas")
    from wavedsl.runtime import toolchain

    example, texts = load(name), []

    def compiled(kernel: Any, arguments: list[Any], given: Any, subs: Any = None) -> Any:
        found = kernel.compile(*arguments, target=given.target, subs=subs)
        texts.append(found.asm)
        return found

    monkeypatch.setattr(example.common, "run", compiled)
    monkeypatch.setattr(example.common, "verdict", lambda *found: 0)
    example.main([*CASES[name][0].split(), "--target", "sm_80"])
    assert texts
    for text in texts:
        for arch in ("sm_89", "sm_100", "sm_120"):
            log = toolchain.assemble_ptx(text, arch).log
            assert "Used" in log and "warning" not in log.lower()
