"""Fragment loads: how lanes address what they take from shared memory, or put there, in the layout of a value.

Waves are digits of the layout's offsets (`wave_digits`), so that a plan of addresses holds for all of them; address
registers are shared by all groups of a fragment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from wavedsl.ir.addresses.coordinates import combine_fields, total
from wavedsl.ir.cuts.partition import DimPlan
from wavedsl.ir.kernel.builder import Builder
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.layout import Digit, Layout
from wavedsl.ir.layouts.place import Place
from wavedsl.ir.layouts.plan_addresses import AddressPlan, plan_addresses
from wavedsl.ir.layouts.plan_load import LoadPlan
from wavedsl.ir.layouts.shared_search import PlaceChoice
from wavedsl.ir.target import LoadAtom


def wave_digits(layout: Layout, plans: Mapping[str, DimPlan]) -> tuple[Layout, list[str]]:
    """The layout with the waves of a workgroup as digits (so that address plans know them), and the dimension of each.

    A wave tile that is no multiple of the box has no digit; its offset is added to the address instead.
    """
    digits, dims = [], []
    for d in layout.dims:
        plan = plans[d]
        if plan.waves > 1 and plan.wave % layout.box(d) == 0:
            digits.append(Digit("wave", plan.waves, d, plan.wave // layout.box(d)))
            dims.append(d)
    return Layout(layout.inner, (*layout.digits, *digits), layout.extents), dims


VECTOR_ATOMS = tuple(LoadAtom("vector", n, n, (1, 2, 4, 8)) for n in (16, 8, 4, 2, 1))
"""Plain accesses of shared memory, one vector per lane."""

JOINED_ATOMS = tuple(LoadAtom("vector", n, n, (2,), joined=True) for n in (8, 4))
"""The same of 16-bit elements that are neighbours across words: what one word of a register takes, several loads
bring."""

UNIT_ATOMS = (LoadAtom("vector", 12, 12, (12,)),)
"""Accesses of units of three words."""


class Addressed(Protocol):
    """What lanes load from shared memory or store there: a staged read, or an operand that is computed."""

    @property
    def place(self) -> Place: ...
    @property
    def loads(self) -> LoadPlan | None: ...
    @property
    def addresses(self) -> AddressPlan | None: ...
    @property
    def offset(self) -> int: ...


class FragmentLoads:
    """Address registers of the fragment loads of one staged read, shared by all its groups."""

    def __init__(
        self,
        b: Builder,
        s: Addressed,
        wave_digit: Mapping[str, Any],
        plans: Mapping[str, DimPlan],
        digit_dims: Sequence[str],
    ):
        self.b, self.s = b, s
        plan = s.addresses
        assert plan is not None
        lane = combine_fields(b, plan.lane, b.lane(), plan.xor)
        added: Any = 0
        for (joined, fields), d in zip(plan.digits, digit_dims):
            value = wave_digit[d]
            if isinstance(value, int):
                part: Any = sum(f(value) for f in fields)
            else:
                part = combine_fields(b, fields, value, joined)
            if joined:
                lane = (
                    b.xor(lane if not isinstance(lane, int) else b.i32(lane), part)
                    if part.__class__ is not int or part
                    else lane
                )
            else:
                added = total(b, [added, part])
        for d in s.place.dims:
            if d not in digit_dims and plans[d].waves > 1:
                step = s.place.linear_address({x: plans[d].wave * (x == d) for x in s.place.dims})
                added = total(
                    b,
                    [added, b.mul(wave_digit[d], step) if not isinstance(wave_digit[d], int) else wave_digit[d] * step],
                )
        self.bases = []
        for constant in plan.registers:
            self.bases.append(self._base(lane, added, constant))

    def _base(self, lane: Any, added: Any, constant: int) -> Any:
        """(lane ^ constant) + added: the constant comes last where the summands share no bit with each other nor with
        it, so that all bases come from one sum."""
        b = self.b
        if not constant:
            return total(b, [lane, added])
        if isinstance(lane, int):
            return total(b, [lane ^ constant, added])
        if not isinstance(added, int) and b.disjoint(lane, added) and constant & ~added.zeros == 0:
            return b.xor(b.add(lane, added), constant)
        return total(b, [b.xor(lane, constant), added])

    def address(self, g: int, slot: Any) -> Any:
        """Byte of group g in shared memory, of the slot at byte `slot`."""
        s = self.s
        assert s.addresses is not None
        register, immediate = s.addresses.items[g]
        return total(self.b, [self.bases[register], slot, s.offset + immediate])

    def load(self, g: int, slot: Any, buffer: str) -> Value:
        """Group g of the fragment from the slot at byte `slot`."""
        b, s = self.b, self.s
        assert s.loads is not None
        return b.load_shared(self.address(g, slot), bytes=s.loads.bytes, atom=s.loads.atom.name, buffer=buffer)


def plan_place_addresses(choice: PlaceChoice, layout: Layout, plans: Mapping[str, DimPlan]) -> AddressPlan:
    """The address plan of every group of the fragment, waves included. Raises CompileError where offsets do not add
    up."""
    loads = choice.accesses[0].plan
    assert loads is not None
    full, _ = wave_digits(layout, plans)
    return plan_addresses(choice.place, loads.address, loads.offsets(layout), full)
