"""What stands for the short ways of calls (`wavedsl.runtime.ways`) until a kernel has some: importing the language must
not import what launches."""

from __future__ import annotations

from typing import Any


class Unlaunched:
    """No ways at all."""

    @staticmethod
    def last(*args: Any) -> bool:
        return False

    @staticmethod
    def other(args: tuple[Any, ...]) -> bool:
        return False


UNLAUNCHED = Unlaunched()

__all__ = ["UNLAUNCHED"]
