"""The short ways of one kernel (`dispatch`), as a call looks them up: the one that was taken last, then by classes.

A way is a function of a call's arguments: it launches and gives True, or it does nothing and gives False, which is what
it does for arguments of other classes than its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _never(*args: Any) -> bool:
    return False


class Ways(dict[tuple[type, ...], Callable[..., bool]]):
    """Classes of the arguments → way. A call tries `last` first, then `other`. Threads may do so at once."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        super().__init__()
        self.last: Callable[..., bool] = _never

    def other(self, args: tuple[Any, ...]) -> bool:
        """Launch by another way than the last one. False, with nothing done, if none is for these arguments."""
        way = self.get(tuple(map(type, args)))
        if way is None or way is self.last or not way(*args):
            return False
        self.last = way
        return True

    def clear(self) -> None:
        super().clear()
        self.last = _never
