"""Symbols that are given and that the kernel does not say: the error names them, and the one that was meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from source import assert_points_at, run

import wavedsl as wd

KERNEL = """
Z, TOP, SPACE, WIDTH = wd.symbols("Z TOP SPACE WIDTH")
@wd.wave([wd.WorkgroupConstraint(M, BM, 0)], subs={BM: 16, Z: 9})
def kernel(a: wd.Memory[M, N, SPACE, wd.f32], c: wd.Memory[M, TOP, wd.f32]):
    values, _ = wd.topk(wd.read(a, elements_per_thread=WIDTH), TOP, dim=N)
    wd.write(values, c)
"""
GIVEN = {"M": 32, "N": 8, "TOP": 2, "SPACE": wd.GLOBAL, "WIDTH": 4}


def arrays() -> list[np.ndarray]:
    return [np.zeros((32, 8), np.float32), np.zeros((32, 2), np.float32)]


WAYS = {
    "trace": lambda k, subs: k.trace(subs=subs),
    "evaluate": lambda k, subs: k.evaluate(*arrays(), subs=subs),
    "compile": lambda k, subs: k.compile(target="sm_80", subs=subs),
    "compile with arrays": lambda k, subs: k.compile(*arrays(), target="sm_80", subs=subs),
}


@pytest.mark.parametrize("way", WAYS)
def test_subs_of_a_symbol_that_the_kernel_does_not_use(way: str) -> None:
    kernel = run(KERNEL)["kernel"]
    with pytest.raises(wd.ConstraintError) as raised:
        WAYS[way](kernel, {**GIVEN, "WIDHT": 3})
    assert raised.value.message == "kernel: subs binds WIDHT, which the kernel does not use"
    assert raised.value.hint == "did you mean WIDTH?"
    assert raised.value.location is not None and raised.value.location.file == __file__


def test_what_the_kernel_says_anywhere_may_be_bound() -> None:
    """As an extent, a tile, an address space, a vector width. The decorator may bind more: kernels share subs."""
    kernel = run(KERNEL)["kernel"]
    kernel.compile(target="sm_80", subs={**GIVEN, "BM": 32})


def test_dynamic_dimension_that_the_kernel_does_not_use() -> None:
    kernel = run(KERNEL)["kernel"]
    Z = wd.sym.Z
    with pytest.raises(wd.ConstraintError) as raised:
        kernel.compile(target="sm_80", subs=GIVEN, dynamic=(wd.sym.K, wd.sym.Q))
    assert raised.value.message == "kernel: dynamic lists K, Q, which the kernel does not use"
    assert "it has BM, M, N, SPACE, TOP, WIDTH" in str(raised.value)
    space = run("@wd.wave([wd.WorkgroupConstraint(M, 64, 0)], dynamic=[K])\n"
                "def kernel(a: wd.Memory[M, wd.f32]):\n    wd.write(wd.read(a), a)\n")  # fmt: skip
    with pytest.raises(wd.ConstraintError, match="dynamic lists K, which the kernel does not use"):
        space["kernel"].trace()
    assert Z not in kernel.trace(subs=GIVEN).named


LARGE: list[tuple[Any, ...]] = [
    ("wd.f32", "x * 1e39", "mul: 1e+39 does not fit f32", "3.40282e+38; for infinity write float('inf')"),
    ("wd.f32", "-3.5e38 - x", "sub: -3.5e+38 does not fit f32", "f32 holds up to 3.40282e+38"),
    ("wd.f16", "x + 65520", "add: 65520 does not fit f16", "f16 holds up to 65504; compute in a wider dtype"),
    ("wd.f16", "wd.where(x > 0, x, -1e9)", "where: -1000000000.0 does not fit f16", "or mean float('inf')"),
    ("wd.bf16", "wd.Register[M, wd.bf16](3.4e38)", "Register: 3.4e+38 does not fit bf16", "up to 3.38953e+38"),
    ("wd.f8e5m2", "wd.Register[M, wd.f8e5m2](1e6)", "Register: 1000000.0 does not fit f8e5m2", "up to 57344"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "expression", "message", "hint"), LARGE, ids=[c[1] for c in LARGE])
def test_numbers_beyond_the_dtype(dtype: str, expression: str, message: str, hint: str) -> None:
    space = run(
        f"@wd.wave([wd.WorkgroupConstraint(M, 64, 0)])\n"
        f"def kernel(a: wd.Memory[M, {dtype}]):\n    x = wd.read(a)\n    wd.write({expression}, a)\n"
    )
    with pytest.raises(wd.TraceError) as raised:
        space["kernel"].trace()
    assert raised.value.message == message
    assert hint in raised.value.hint
    assert raised.value.location is not None and expression in raised.value.location.text()


def test_the_largest_numbers_and_infinities_are_taken() -> None:
    space = run(
        "@wd.wave([wd.WorkgroupConstraint(M, 64, 0)])\n"
        "def kernel(a: wd.Memory[M, wd.f16], b: wd.Memory[M, wd.f32]):\n"
        "    wd.write(wd.where(wd.read(a) > 0, wd.read(a) * 0 + 65519.0, float('-inf')), a)\n"
        "    wd.write(wd.Register[M, wd.f32](3.4028235e38) + float('nan') * 0 , b)\n"
    )
    a, b = np.float16([1, -1]), np.zeros(2, np.float32)
    space["kernel"].evaluate(a, b)
    assert a.tolist() == [65504.0, -np.inf]


@pytest.mark.parametrize("owner", ["Memory", "Register", "Scalar"])
def test_brackets_with_nothing_in_them(owner: str) -> None:
    with pytest.raises(wd.TraceError, match=rf"{owner}\[…\] is empty") as caught:
        getattr(wd, owner)[()]
    assert f"wd.{owner}[" in caught.value.hint


def test_no_array_has_less_than_no_elements() -> None:
    with pytest.raises(wd.TraceError, match="-1 is not a dimension"):
        wd.Memory[-1, wd.f32]


@pytest.mark.parametrize("dtype", [wd.f4e2m1, wd.f6e2m3, wd.i4, wd.u4])
def test_scalars_of_less_than_a_byte(dtype: wd.DType) -> None:
    """1.5 became the bits of 1, which are 0.5 in f4e2m1."""
    with pytest.raises(wd.TraceError, match="is not passed by itself") as caught:
        wd.Scalar[dtype]
    assert f"wd.cast(x, wd.{dtype})" in caught.value.hint
    with pytest.raises(wd.TraceError) as caught:
        wd.Scalar[3]
    assert "wd.Scalar[wd.f32]" in caught.value.hint


@pytest.mark.parametrize(("extent", "said"), [("N / 2", "N/2 is 5/2"), ("N - 10", "N - 10 is -5")])
def test_extents_that_no_array_can_have(extent: str, said: str) -> None:
    kernel = run(f"""
        @wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
        def kernel(x: wd.Memory[{extent}, wd.f32], y: wd.Memory[N, wd.f32]):
            wd.write(wd.broadcast(wd.read(x[0]), N), y)
    """)["kernel"]
    with pytest.raises(wd.ConstraintError) as caught:
        kernel.compile(target="gfx942", subs={wd.sym.N: 5})
    assert caught.value.message == f"argument x: the extent {said}" and "whole number" in caught.value.hint
    assert_points_at(caught.value, f"x: wd.Memory[{extent}, wd.f32]")
    with pytest.raises(wd.WaveError):
        kernel.precompile(subs={wd.sym.N: 5}, target="gfx942")
