"""Kernels that are compiled by Triton for comparison: every argument has a type or a constant, and no name is made up.

Triton is not needed: its decorator is replaced by one that leaves functions as they are.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
OURS = ("rivals_triton", "triton_sass", "triton_hip", "triton_cuda")


def _module(name: str, **names: Any) -> types.ModuleType:
    found = types.ModuleType(name)
    found.__dict__.update(names)
    return found


@pytest.fixture
def without_triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a script of `benchmarks` where `triton` is a few names."""
    language = _module("triton.language", constexpr=object)
    for module in (
        _module("triton", jit=lambda f: f, language=language, __version__="none"),
        language,
        _module("triton.backends"),
        _module("triton.backends.compiler", GPUTarget=None),
        _module("triton.compiler", ASTSource=None, compile=None),
    ):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in OURS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in OURS:
        sys.modules.pop(name, None)


def _fits(kernel: Any, types_of: dict[str, str], constants: dict[str, Any], what: str) -> None:
    """Arguments with a type come first, in order: their attributes are told by place."""
    names = [*inspect.signature(kernel).parameters]
    assert (names[: len(types_of)], {*names[len(types_of) :]}) == ([*types_of], {*constants}), what


def test_kernels_of_machine_code(without_triton: Any) -> None:
    rows = without_triton("triton_sass").KERNELS
    assert {kernel.__name__ for _, kernel, *_ in rows} >= {"tiles", "persistent", "attention", "softmax"}
    for name, kernel, _, _, kept, constants, _, _ in rows:
        _fits(kernel, kept, constants, name)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_kernels_of_amd(without_triton: Any, target: str) -> None:
    rows = without_triton("triton_hip").kernels(target)
    assert len(rows) > 20
    for name, kernel, kept, constants, _ in rows:
        _fits(kernel, kept, constants, name)


def test_kernels_of_the_replay(without_triton: Any) -> None:
    rows = without_triton("triton_cuda").kernels()
    assert {kernel.__name__ for _, kernel, *_ in rows} == {"tiles", "maps", "persistent", "attention"}
    for name, kernel, kept, constants, _ in rows:
        _fits(kernel, kept, constants, name)
