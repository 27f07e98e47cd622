"""Which candidates the compiler would refuse, by its own rules for cuts and layouts: no slot of a run is lost to them.

In: a kernel, its extents, a target. Out: per candidate the reason, or nothing where only a compile can tell. Traces,
cuts and layouts are made once for all candidates that share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sympy

from wavedsl.ir.errors import WaveError
from wavedsl.ir.symbols import AddressSpace, normalise
from wavedsl.schedule import Schedule
from wavedsl.tuning.candidates import Candidate

if TYPE_CHECKING:
    from wavedsl.ir.regions.plan_misfit import Ways


class Misfits:
    """Reasons by candidate. `dims`: extents and fixed symbols; `dynamic`: dimensions that stay run-time arguments."""

    def __init__(self, kernel: Any, dims: Mapping[Any, Any], dynamic: Sequence[Any], target: str):
        self.kernel, self.dynamic, self.target = kernel, list(dynamic), target
        known = {k: v for k, v in dims.items() if isinstance(v, (int, AddressSpace))}
        self.subs = {k: v for k, v in known.items() if k not in self.dynamic}
        self._ways: dict[Any, Ways] = {}

    def reason(self, candidate: Candidate) -> str:
        """Why the compiler refuses a candidate, as far as its cuts and layouts tell."""
        from wavedsl.compiler import request, ways_of

        subs = {**self.subs, **{normalise(sympy.Symbol(n)): v for n, v in candidate.subs}}
        fixed = candidate.fields()
        schedule = replace(self.kernel.schedule or Schedule(), **fixed) if fixed else None
        try:
            asked = request(self.kernel, None, self.target, subs, self.dynamic, schedule)
            choices = asked.choices
            # Where split is open, the schedule has a say in whether a loop is cut.
            roles = tuple(choices.roles) if choices.split is None and not choices.stream else ()
            order = (choices.swizzle, choices.turns)
            key = (candidate.subs, choices.split, choices.stream, choices.ping_pong, order, roles)
            if key not in self._ways:
                self._ways[key] = ways_of(asked)
        except WaveError as error:
            return error.message
        return self._ways[key].misfit(choices)
