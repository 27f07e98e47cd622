"""Whether tensors of torch's are what others were, told by one call into C: torch's own guards.

In come tensors, out comes a function that takes as many and tells whether each has the dispatch keys (device, lazy
negation and conjugation, what modes add), dtype, extents, strides and `requires_grad` that the first had. It takes a
fourth of the time that it takes to ask for these one by one. Guards are not part of torch's documented interface:
they are tried out once, and where they are missing or do not tell all of that, there are none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any


def usable() -> bool:
    """Whether this torch has guards, and they tell what a call depends on."""
    torch = sys.modules.get("torch")
    return torch is not None and _tell(torch)


def guard_of(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """The function, where guards are usable; None if a tensor is there twice, which guards refuse."""
    check = _made(sys.modules["torch"], tensors)
    return check if check(*tensors) else None


def _made(torch: Any, tensors: Sequence[Any]) -> Callable[..., bool]:
    made = torch._C._dynamo.guards.TensorGuards(
        *tensors,
        dynamic_dims_sizes=[list(t.shape) for t in tensors],
        dynamic_dims_strides=[list(t.stride()) for t in tensors],
    )
    return made.check


@lru_cache(maxsize=1)
def _tell(torch: Any) -> bool:
    """Whether there are guards that tell apart everything that a call depends on."""
    try:
        with torch.inference_mode(False), torch.enable_grad():
            first, second = (torch.empty((2, 3), device="cpu") for _ in range(2))
            check = _made(torch, (first, second))
            others = [
                torch.empty((2, 4), device="cpu"),
                torch.empty((6,), device="cpu"),
                torch.empty((3, 2), device="cpu").t(),
                torch.empty((2, 3), dtype=torch.float16, device="cpu"),
                torch.empty((2, 3), device="meta"),
                torch.empty((2, 3), device="cpu", requires_grad=True),
                torch.empty((2, 3), device="cpu")._neg_view(),
            ]
            same = check(first, second) and check(second, first) and check(torch.empty((2, 3), device="cpu"), second)
            found = [check(*pair) for other in others for pair in ((other, second), (first, other))]
            with torch.no_grad():
                found += [check(first, other) for other in others]
        return same is True and not any(found)
    except Exception:  # another torch, with guards that are made otherwise
        return False
