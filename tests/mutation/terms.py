"""What a text computes, for all data and all addresses of its arrays: the names of every byte it stores.

In: a case and a text. Out: an `Outcome`. `terms_amd` and `terms_ptx` run the text on the emulator with checks off and
keep names (`names.py`) of all registers and shared memory beside it. Ids and constants are known; array addresses, what
is loaded, and what nothing has written are not. Paths, masks, offsets and shared addresses must be known, else Unknown.

Two texts with equal outcomes, each of whose waits and hazards are kept, store the same for all data: paths and shared
addresses do not depend on data, so what `order.py` finds for one run holds for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import names
import numpy as np
import order
import terms_amd
import terms_ptx
import trial
from names import Unknown


@dataclass
class Recorder:
    """What a run leaves: accesses to shared memory, and loads and stores of arrays."""

    accesses: list[order.Access] = field(default_factory=list)
    stores: list[tuple[Any, Any, Any]] = field(default_factory=list)
    """(names of places, addresses, names of bytes), flat."""
    loads: list[Any] = field(default_factory=list)
    """Addresses, flat."""
    arrays: list[tuple[int, int]] = field(default_factory=list)
    """Where each array begins and ends."""
    marked: frozenset[int] = frozenset()
    """For tests: addresses of bytes that are named otherwise, to see what depends on them."""
    writes: list[tuple[Any, Any]] | None = None
    """For tests: (names, values) of all registers as they are written."""

    def loaded(self, place: Any, address: Any) -> Any:
        """Names of what is loaded from places; `address` has the same shape."""
        self.loads.append(address.reshape(-1))
        out = names.mix(names.label("loaded"), place)
        if self.marked:
            out = np.where(np.isin(address, list(self.marked)), names.mix(names.label("marked"), place), out)
        return out

    def stored(self, place: Any, address: Any, what: Any) -> None:
        self.stores.append((place.reshape(-1), address.reshape(-1), names.written(what).reshape(-1)))

    def wrote(self, what: Any, values: Any) -> None:
        """Hold names of a register's bytes against the run."""
        names.agree(what, values)
        if self.writes is not None:
            self.writes.append((what.reshape(-1).copy(), values.reshape(-1).copy()))


@dataclass(frozen=True)
class Outcome:
    """`stores`: names of places and of what is stored there, [byte, 2], in order of places. `conflicts`: of shared
    accesses, by `order`."""

    stores: Any
    conflicts: int

    def same(self, other: Outcome) -> bool:
        return self.conflicts == other.conflicts == 0 and np.array_equal(self.stores, other.stores)


def outcome(case: trial.Case, text: str) -> Outcome:
    """Run a text. Raises Unknown where nothing can be said, WaveError for a text that is refused."""
    r = Recorder()
    record(case, text, r)
    return Outcome(_final(r), order.conflicts(r.accesses))


def record(case: trial.Case, text: str, r: Recorder, data: int = 0) -> None:
    """Run a text on some of its data and leave what it does in `r`."""
    try:
        with trial.limited(trial.CPU_LIMIT):
            (terms_amd if case.target.startswith("gfx") else terms_ptx).run(case, text, r, data)
    except trial.Endless:
        raise Unknown("a run that does not end") from None
    except trial.Found as found:
        raise Unknown(f"a finding: {found}") from None


def _final(r: Recorder) -> Any:
    """The stores of a run as a map. Raises Unknown where their order would matter, or an access is in no array."""
    for addresses in (*r.loads, *(s[1] for s in r.stores)):
        if not np.logical_or.reduce([(addresses >= low) & (addresses < high) for low, high in r.arrays]).all():
            raise Unknown("an access to no array")
    if not r.stores:
        return np.zeros((0, 2), np.uint64)
    place, address, what = (np.concatenate([s[i] for s in r.stores]) for i in range(3))
    whole = np.unique(np.stack((address.astype(np.uint64), place, what), axis=1), axis=0)
    if (whole[1:, 0] == whole[:-1, 0]).any():
        raise Unknown("a byte is stored twice")
    if r.loads and np.isin(np.concatenate(r.loads).astype(np.uint64), whole[:, 0]).any():
        raise Unknown("a byte is loaded and stored")
    stores = whole[:, 1:]
    return stores[np.lexsort((stores[:, 1], stores[:, 0]))]
