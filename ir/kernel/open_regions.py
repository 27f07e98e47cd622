"""Loops and branches while they are built: what `with b.for_(…)` and `with b.if_(…)` give.

In: the builder and the op. Out: the op's regions, opened, filled and closed in the builder; its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from wavedsl.ir.kernel.kernel_ir import Op, Region, Value

if TYPE_CHECKING:
    from wavedsl.ir.kernel.build_core import Core


class Loop:
    """An open (then closed) `for`: `iv` and `carried` inside, `results` afterwards."""

    def __init__(self, builder: Core, op: Op, region: Region, declared: Sequence[bool] | None):
        self._builder = builder
        self.op = op
        self.region = region
        self.iv: Value = region.args[0]
        self.carried: tuple[Value, ...] = tuple(region.args[1:])
        self._declared = declared

    def yield_(self, *values: Any) -> None:
        """End the body: `values` (or one sequence of them) are the next carried values."""
        self._builder._yield(self.region, flatten(values), tuple(v.type for v in self.carried))

    @property
    def results(self) -> tuple[Value, ...]:
        return self.op.results

    def __enter__(self) -> Loop:
        self._builder._open(self.region, True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._builder._close_loop(self)


class If:
    """An `if`: the body of `with` runs when the condition holds, that of `with it.orelse()` when not."""

    def __init__(self, builder: Core, op: Op):
        self._builder = builder
        self.op = op

    def yield_(self, *values: Any) -> None:
        """End the open branch: its results. Both branches must yield the same types."""
        b = self._builder
        region = b._frames[-1].region
        types = None
        if region is self.op.regions[1]:
            types = tuple(v.type for v in self.op.regions[0].ops[-1].args)
        b._yield(region, flatten(values), types)

    @property
    def results(self) -> tuple[Value, ...]:
        return self.op.results

    def __enter__(self) -> If:
        self._builder._open(self.op.regions[0], False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._builder._close_branch(self.op, 0)

    @contextmanager
    def orelse(self) -> Iterator[If]:
        """The other branch; must follow at once."""
        self._builder._open_else(self.op)
        yield self
        self._builder._close_branch(self.op, 1)


def flatten(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else tuple(values)
