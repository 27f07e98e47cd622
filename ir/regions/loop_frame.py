"""What every way of emitting a loop over the tiles of rings starts from.

In: the steps of a loop's body and what it carries. Out: environments for its trips, and the loop itself, which carries
beside its values where the rings are. `ring_loops` and `operands_ahead` say what a trip is.

Invariant: in the loop and behind it the rings that it moves are where its carried values say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wavedsl.ir.dataflow.graph import Region
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.kernel.open_regions import Loop
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.rings import Ring
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.regions.copying import ring_states, set_states, unless_empty
from wavedsl.ir.regions.own_trips import OwnTrips
from wavedsl.ir.schedule.steps import Env, Key, Step


@dataclass(frozen=True)
class LoopFrame:
    """A loop to emit. `env`: values from outside; `trips`: how many, an int or a value; `carried`: keys with their
    first values; `next_keys`: where a trip leaves those of the next, one each; `label` names it in the text. `own`: the
    trips that are this wave's, where not all of the workgroup's are."""

    low: Lowering
    region: Region
    steps: Sequence[Step]
    env: Env
    trips: Any
    carried: Sequence[tuple[Key, Value]]
    next_keys: Sequence[Key]
    label: str
    own: OwnTrips | None = None

    @property
    def after(self) -> dict[Key, Key]:
        """Carried key → the key that replaces it."""
        return dict(zip((k for k, _ in self.carried), self.next_keys))

    @property
    def last(self) -> Any:
        """The number of the last trip, like `trips`."""
        return self.trips - 1 if isinstance(self.trips, int) else self.low.b.sub(self.trips, 1)

    def inside(self, values: Sequence[Value]) -> Env:
        """The environment of a trip: what is carried has these values; more of them are left aside."""
        return self.env_with((k, v) for (k, _), v in zip(self.carried, values))

    def env_with(self, pairs: Iterable[tuple[Key, Any]]) -> Env:
        """The environment of a trip in which these keys have these values."""
        inner = Env(self.env.fixed)
        inner.fixed.update(pairs)
        return inner

    @contextmanager
    def loop(self, count: Any, inits: Sequence[Any], moving: Sequence[Ring], which: str = "") -> Iterator[Loop]:
        """`count` trips that carry `inits`, then where the rings `moving` are: the body ends with `again`. `which`
        trips these are, for notes. One trip at least is known where the number of all trips is."""
        states, least = ring_states(moving), int(isinstance(self.trips, int))
        with (
            self.low.noted_loop(f"{self.region.dim}{which}"),
            self.low.b.for_(0, count, 1, [*inits, *states], label=self.label, min_trips=least) as loop,
        ):
            set_states(moving, loop.carried[len(inits) :])
            yield loop
        set_states(moving, loop.results[len(inits) :])

    @staticmethod
    def again(loop: Loop, values: Sequence[Value], moving: Sequence[Ring]) -> None:
        """End of a trip of `loop`: what the next has for `inits`."""
        loop.yield_([*values, *ring_states(moving)])

    def unless_empty(self, play: Callable[[], list[Value]], otherwise: Callable[[], Any] | None = None) -> list[Value]:
        """What `play` leaves in the carried values; it is skipped whole where there is no trip, and `otherwise` is
        done."""
        return unless_empty(self.low, self.region, self.trips, self.carried, play, otherwise)


__all__ = ["LoopFrame"]
