"""Arguments that do not fit a kernel's declaration: the error names the argument, its shape, and what would fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from source import assert_points_at, run

import wavedsl as wd
from wavedsl.cli import main

GEMM = """
@wd.wave([wd.WorkgroupConstraint(M, BM, 0)], subs={BM: 16})
def gemm(
    a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32], s: wd.Scalar[wd.f32] = 1.0
):
    wd.write(wd.mma(wd.read(a), wd.read(b)) * s, c)
"""


def _arrays(m: int = 4, n: int = 5, k: int = 6) -> list:
    return [np.zeros((m, k), np.float16), np.zeros((n, k), np.float16), np.zeros((m, n), np.float32)]


@pytest.fixture(scope="module")
def gemm() -> wd.Kernel:
    return run(GEMM)["gemm"]


def test_disagreement_names_both_arguments_and_shapes(gemm: wd.Kernel) -> None:
    a, _, c = _arrays()
    with pytest.raises(wd.LaunchError) as raised:
        gemm.evaluate(a, np.zeros((5, 7), np.float16), c)
    assert raised.value.declared is not None and "b: wd.Memory[N, K, wd.f16]" in raised.value.declared.text()
    assert raised.value.message == (
        "gemm: arguments disagree about K: a with shape (4, 6) for [M, K] has 6, b with shape (5, 7) for [N, K] has 7"
    )
    assert_points_at(raised.value, "~np.zeros((5, 7), np.float16)")


def test_a_compiled_kernel_takes_the_defaults_of_its_parameters(gemm: wd.Kernel, tmp_path: Path) -> None:
    a, b, c = (np.ones_like(x) for x in _arrays())
    compiled = gemm.compile(a, b, c, target="gfx942")
    compiled.emulate(a, b, c)
    assert (c == 6.0).all()
    compiled.emulate(a, b, c, 2.0)
    assert (c == 12.0).all()
    compiled.save(tmp_path / "kernel.json")
    c[:] = 0
    wd.load(tmp_path / "kernel.json").emulate(a, b=b, c=c)
    assert (c == 6.0).all()
    with pytest.raises(wd.LaunchError, match=r"gemm takes 4 arguments, got 2"):
        compiled(a, b)


@pytest.mark.parametrize("way", ["evaluate", "call", "compile"])
def test_masked_array(gemm: wd.Kernel, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    a, b, c = _arrays()
    use = {"evaluate": gemm.evaluate, "call": gemm, "compile": lambda *x: gemm.compile(*x, target="gfx942")}[way]
    with pytest.raises(wd.LaunchError, match=r"argument `?a`? is a masked array") as raised:
        use(np.ma.masked_array(a, mask=True), b, c)
    assert "pass x.filled(…)" in str(raised.value)


def test_rank(gemm: wd.Kernel) -> None:
    a, b, c = _arrays()
    with pytest.raises(
        wd.LaunchError, match=r"argument a has 1 dimensions, shape \(24,\), but is declared a: \[M, K\] f16"
    ):
        gemm.evaluate(a.reshape(-1), b, c)


def test_dtype(gemm: wd.Kernel) -> None:
    a, b, c = _arrays()
    with pytest.raises(wd.LaunchError) as raised:
        gemm.evaluate(a.astype(np.float32), b, c)
    assert raised.value.message == "gemm: argument a has dtype float32, but is declared f16"
    assert raised.value.hint == "pass float16, or declare it wd.f32"


def test_not_an_array(gemm: wd.Kernel) -> None:
    a, b, _ = _arrays()
    with pytest.raises(wd.LaunchError, match="argument c is None, not an array") as raised:
        gemm.evaluate(a, b, None)
    assert "make a kernel without it, where its annotation is None" in raised.value.hint


def test_scalar_kind(gemm: wd.Kernel) -> None:
    with pytest.raises(wd.LaunchError, match=r"argument s is a str, but is declared Scalar\[f32\]"):
        gemm.evaluate(*_arrays(), "1")


def test_call_does_not_fit_the_signature(gemm: wd.Kernel) -> None:
    a, b, c = _arrays()
    with pytest.raises(wd.LaunchError, match=r"gemm lacks a value for c\n(.*\n)*.*c: wd.Memory"):
        gemm.evaluate(a, b)
    with pytest.raises(wd.LaunchError, match="gemm takes 4 arguments, got 5"):
        gemm.evaluate(a, b, c, 1.0, 2)
    with pytest.raises(wd.LaunchError, match="gemm has no parameter d"):
        gemm.evaluate(a, b, c, d=1)
    with pytest.raises(wd.LaunchError, match="gemm got two values for a"):
        gemm.evaluate(a, b, c, a=a)


def test_subs_against_shapes(gemm: wd.Kernel) -> None:
    with pytest.raises(wd.LaunchError) as raised:
        gemm.evaluate(*_arrays(), subs={wd.sym.K: 8})
    assert raised.value.message == "gemm: argument a has shape (4, 6) for [M, K], but K is bound to 8"


def test_a_symbol_without_a_value(gemm: wd.Kernel) -> None:
    with pytest.raises(wd.ConstraintError) as raised:
        gemm.binding(None, subs={wd.sym.M: 4, wd.sym.N: 4})
    assert raised.value.message == "gemm: K has no value (in argument a)"
    assert raised.value.hint == "bind it: subs={K: …}, dynamic=(K,), or pass arrays"


def test_all_symbols_without_a_value_are_named(
    gemm: wd.Kernel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, and on the command line by its options."""
    with pytest.raises(wd.ConstraintError) as raised:
        gemm.binding(None, subs={})
    assert raised.value.message == "gemm: M, K, N have no value"
    assert raised.value.hint == "bind it: subs={M: …, K: …, N: …}, dynamic=(M, K, N), or pass arrays"
    file = tmp_path / "kernels.py"
    symbols = "import wavedsl as wd\n\nM, N, K, BM = wd.symbols('M N K BM')\n"
    file.write_text(symbols + GEMM)
    assert main(["compile", f"{file}:gemm", "--target", "gfx942"]) == 1
    text = capsys.readouterr().err
    assert "help: bind it on the command line: --subs M=64,K=64,N=64, or --dynamic M,K,N" in text


def test_a_tile_without_a_value_shows_the_decorator() -> None:
    kernel = run(GEMM.replace(", subs={BM: 16}", ""))["gemm"]
    with pytest.raises(wd.ConstraintError) as raised:
        kernel.evaluate(*_arrays())
    assert raised.value.message == "gemm: BM has no value" and raised.value.hint == "bind it: subs={BM: …}"
    assert_points_at(raised.value, "~wd.wave([wd.WorkgroupConstraint(M, BM, 0)]")


def test_dynamic_and_bound(gemm: wd.Kernel) -> None:
    with pytest.raises(wd.ConstraintError, match="M is both dynamic and bound to 4"):
        gemm.binding(None, subs={wd.sym.M: 4}, dynamic=[wd.sym.M])


def test_expression_extents() -> None:
    kernel = run(
        """
        @wd.wave([])
        def kernel(a: wd.Memory[M, K, wd.f32], s: wd.Memory[M, K / 32, wd.f8e8m0]):
            wd.write(wd.read(a), a)
        """
    )["kernel"]
    import ml_dtypes

    scales = np.zeros((4, 3), ml_dtypes.float8_e8m0fnu)
    assert kernel.binding({"a": np.zeros((4, 96), np.float32), "s": scales}).dims[wd.sym.K] == 96
    with pytest.raises(wd.LaunchError) as raised:
        kernel.evaluate(np.zeros((4, 64), np.float32), scales)
    assert raised.value.message == (
        "kernel: argument s has shape (4, 3), but [M, K/32] needs 2 along K/32 "
        "(K = 64 from a with shape (4, 64) for [M, K])"
    )
    with pytest.raises(wd.LaunchError, match=r"argument s is declared with K/32 elements, which is 25/8"):
        kernel.evaluate(np.zeros((4, 100), np.float32), scales)


def test_packed_extents() -> None:
    kernel = run(
        """
        @wd.wave([])
        def kernel(a: wd.Memory[M, K, wd.f6e2m3]):
            wd.write(wd.read(a), a)
        """
    )["kernel"]
    assert kernel.binding({"a": np.zeros((2, 12), np.uint8)}).dims[wd.sym.K] == 16
    with pytest.raises(wd.LaunchError, match="10 bytes along K, which is no whole number of f6e2m3 elements"):
        kernel.binding({"a": np.zeros((2, 10), np.uint8)})
    assert kernel.binding({"a": np.zeros((2, 10), np.uint8)}, subs={wd.sym.K: 13}).dims[wd.sym.K] == 13
    with pytest.raises(wd.LaunchError, match=r"needs 12 bytes along K \(K = 16 from subs\)"):
        kernel.binding({"a": np.zeros((2, 10), np.uint8)}, subs={wd.sym.K: 16})
    with pytest.raises(wd.LaunchError, match="has dtype float32, but is declared f6e2m3"):
        kernel.binding({"a": np.zeros((2, 10), np.float32)})


def test_packed_extents_follow_unpacked_ones() -> None:
    kernel = run(
        """
        @wd.wave([])
        def kernel(a: wd.Memory[M, K, wd.i4], b: wd.Memory[N, K, wd.i8]):
            wd.write(wd.read(a), a)
        """
    )["kernel"]
    arguments = {"a": np.zeros((2, 4), np.uint8), "b": np.zeros((3, 7), np.int8)}
    assert kernel.binding(arguments).dims[wd.sym.K] == 7


def test_an_address_space_is_no_extent() -> None:
    kernel = run(
        """
        @wd.wave([], subs={K: wd.SHARED})
        def kernel(a: wd.Memory[K, M, wd.f32]):
            wd.write(wd.read(a), a)
        """
    )["kernel"]
    with pytest.raises(wd.WaveError, match="K"):
        kernel.binding({"a": np.zeros((2, 10), np.float32)})


def test_a_read_only_output(gemm: wd.Kernel) -> None:
    a, b, c = _arrays()
    c.flags.writeable = False
    with pytest.raises(wd.LaunchError, match="writes argument c, but its array is read-only"):
        gemm.evaluate(a, b, c)


def test_no_extent_is_negative() -> None:
    """12 elements along 8 - K would make K -4."""
    kernel = run(
        """
        @wd.wave([])
        def kernel(a: wd.Memory[M, 8 - K, wd.f32]):
            wd.write(wd.read(a), a)
        """
    )["kernel"]
    assert kernel.binding({"a": np.zeros((2, 3), np.float32)}).dims[wd.sym.K] == 5
    with pytest.raises(wd.LaunchError, match="12 elements of argument a along 8 - K do not tell it"):
        kernel.binding({"a": np.zeros((2, 12), np.float32)})


def test_a_compiled_kernel_is_shown_in_a_line(gemm: wd.Kernel) -> None:
    """In a notebook it was the whole text."""
    shown = repr(gemm.compile(target="gfx942", subs={"M": 64, "N": 64, "K": 64}))
    assert shown.startswith("<gemm for gfx942") and len(shown) < 100
