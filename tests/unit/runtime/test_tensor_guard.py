"""Torch's guards tell what a call depends on, where torch is installed; `test_dispatch` has calls that use them."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
from wavedsl.runtime import tensor_guard

torch = pytest.importorskip("torch")


def test_what_guards_tell():
    first, second = torch.zeros((4, 8)), torch.zeros((4, 8))
    check = tensor_guard.guard_of((first, second))
    assert check is not None and check(first, second) and check(torch.ones((4, 8)), first)
    others = {
        "extents": torch.zeros((4, 7)),
        "rank": torch.zeros((32,)),
        "strides": torch.zeros((8, 4)).t(),
        "dtype": torch.zeros((4, 8), dtype=torch.int32),
        "device": torch.zeros((4, 8), device="meta"),
        "gradient": torch.zeros((4, 8), requires_grad=True),
        "negation": torch.zeros((4, 8))._neg_view(),
        "class": torch.nn.Parameter(torch.zeros((4, 8)), requires_grad=False),
    }
    for modes in (contextlib.nullcontext, torch.no_grad, torch.inference_mode):
        with modes():
            for what, other in others.items():
                assert not check(other, second) and not check(first, other), what
    with torch.no_grad():
        assert check(first, second)
    assert not check(first, first)


def test_changes_in_place():
    tensor, other = torch.zeros((4, 8)), torch.zeros((4, 8))
    check = tensor_guard.guard_of((tensor, other))
    for change in (
        lambda: tensor.resize_(2, 8),
        lambda: tensor.resize_(4, 8).as_strided_((4, 8), (1, 4)),
        lambda: tensor.set_(torch.zeros((4, 8)).requires_grad_(False)).requires_grad_(),
    ):
        change()
        assert not check(tensor, other)
    tensor.requires_grad_(False)
    assert check(tensor, other)


def test_guards_hold_no_tensor():
    tensors = [torch.zeros((4, 8)) for _ in range(2)]
    check = tensor_guard.guard_of(tensors)
    alive = [weakref.ref(t) for t in tensors]
    del tensors
    gc.collect()
    assert check is not None and not any(ref() is not None for ref in alive)
