"""What lowering chose and why: read by reports, `inspect` and the record of decisions.

In: filled by `lower.py` and what it calls. Out: `Kernel.notes["lowering"]`. Nothing is emitted because of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from wavedsl.ir.grid.die_order import Numbering
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import BodySchedule, Step


@dataclass
class LoopNote:
    """What was decided for one loop, for `inspect`."""

    label: str
    steps: Sequence[Step]
    body: BodySchedule
    slots: int
    trips: int | None = None
    """None when a run-time extent decides."""
    dim: str = ""
    most: int | None = None
    """Trips that it has at most, where its dimension's extent is known."""


@dataclass
class Notes:
    """What the compiler chose and why: read by reports."""

    atoms: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    after: dict[str, Sequence[str]] = field(default_factory=dict)
    """Per shared buffer those whose places it takes when these are done with (`windows`)."""
    loops: list[LoopNote] = field(default_factory=list)
    strategy: Any = None
    """How operands of asynchronous products get to shared memory, and why so."""
    rings: list[str] = field(default_factory=list)
    """What each ring holds."""
    roles: dict[str, list[str]] = field(default_factory=dict)
    """Role → what it does, in order, loops indented: hand-overs and products."""
    order: Any = None
    """In which order workgroups take output tiles, where they take several (`tile_order.TileOrder`)."""
    graph: tuple[str, ...] = ()
    """What passes on the graph have decided."""
    plain: str = ""
    """Why a loop with products has no ping-pong schedule."""
    rows_left: bool = False
    """Whether rows that straight code gathers would be copied to shared memory by `Window.rows`, and are not."""
    numbering: Numbering | None = None
    """In which order workgroups that take one tile each take them; None: as they come."""
    exchanges: dict[str, str] = field(default_factory=dict)
    """Uses that need an operand in another layout, and what that takes: `renaming` is free."""
