"""What a `Lowering` decides and keeps of one kernel, by concern: shared memory, reads, writes, asynchronous products.

Filled by those who plan (`plan_reads`, `rings`, `bulk_store`, `regions/decisions.py`), read by those who emit. Plain
state: what can be computed from it is a method of `Lowering`, or of the file whose decision it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from wavedsl.ir.addresses.staged import Staged
from wavedsl.ir.dataflow.graph import Node
from wavedsl.ir.kernel.kernel_ir import Value
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.wave_meeting import MeetingPlaces
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.schedule.steps import Env
from wavedsl.ir.schedule.taps import NO_WINDOW, Window


@dataclass
class SharedRoom:
    """Shared memory: what has been given out, and the buffer in which waves exchange values."""

    top: int = 0
    """Bytes given out."""
    depths: dict[str, int] = field(default_factory=dict)
    """Ring depth per shared buffer."""
    buffers: dict[int, str] = field(default_factory=dict)
    """Names of the buffers that reads and computed operands lie in, by node id."""
    scratch: int = 0
    """Byte where the buffer of exchanges starts."""
    scratch_share: int = 0
    """Bytes of that buffer that each wave has to itself."""
    sliced: dict[tuple[int, int], int] = field(default_factory=dict)
    """(product, position) of operands that are read from there as they are multiplied (`sliced_operands`): their first
    byte."""
    in_scratch: tuple[Any, Layout, Sequence[Value], Any] | None = None
    """What each wave has last left in its part of the scratch buffer to pick elements of: the region of the code,
    layout and elements, and the operation behind the last store."""
    meeting: MeetingPlaces = field(default_factory=MeetingPlaces)
    """Where waves leave what they reduce together."""
    counts: dict[str, Any] = field(default_factory=dict)
    """Arrays whose atomics go to shared memory first: name → `place_counts.PlaceCounts`."""
    parts: dict[int, Any] = field(default_factory=dict)
    """Where sums that a cluster's workgroups add lie: node id → `join_parts.PartsPlace`."""


@dataclass
class ReadPlans:
    """How the tiles of reads get to where they are used, and computed operands that lie beside them."""

    matrix_uses: Any
    """Reads that matrix instructions take from shared memory themselves."""
    staged: dict[int, Staged] = field(default_factory=dict)
    """Reads that go through shared memory, by node id."""
    made: dict[int, Any] = field(default_factory=dict)
    """Computed operands that lie in shared memory: node id → `made_tiles.MadeTile`."""
    fetched: frozenset[int] = frozenset()
    """Reads that bulk copies bring as well, and whose elements lanes take from shared memory."""
    by_threads: frozenset[int] = frozenset()
    """Reads whose tiles the threads of a copying warpgroup bring, by vectors: gathers, and what no tensor map can."""
    spared: frozenset[int] = frozenset()
    """Reads that waves fetch themselves, because shared memory has no room for their tiles."""
    window: Window = NO_WINDOW
    """How far ahead of their users loads of straight code start (`windows`)."""
    dense: bool = False
    """Whether tiles are planned without gaps between rows at the moment, whatever banks their copies meet in."""
    kept: set[int] = field(default_factory=set)
    """Reads before a loop whose tiles stay in shared memory: lanes take elements from there in every trip."""
    taken: dict[int, int] = field(default_factory=dict)
    """Staged reads of a loop whose elements lanes take in the one branch that uses them: id → the branch's."""
    rings: list[Any] = field(default_factory=list)
    ring_of: dict[int, Any] = field(default_factory=dict)
    """Reads whose tiles bulk copies bring: id → their `Ring`."""
    fillers: dict[str, Any] = field(default_factory=dict)
    """Where the thread that fills rings beside the products stands in each, by the ring's name."""
    rows: dict[int, Any] = field(default_factory=dict)
    """Reads of rows by index that are staged: id → their `gathered_rows.GatheredRows`."""
    settled: list[Callable[[Env], None]] = field(default_factory=list)
    """Emit what a loop's copies need of the rows that they copy in all trips, in front of it."""
    homes: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """Per read, element → (load, position in it)."""


@dataclass
class WritePlans:
    """How results leave."""

    outlets: dict[int, Any] = field(default_factory=dict)
    """Writes that leave through shared memory: node id → `bulk_store.Outlet`."""
    outlets_used: int = 0
    outlets_waiting: list[Any] = field(default_factory=list)
    """Writes that leave together with one that has yet to come: (outlet, value, where the tile starts)."""
    stores_waiting: list[Any] = field(default_factory=list)
    """The same of ordinary stores: `late_stores.LateStore`s."""
    leaving: dict[int, dict[int, list[Node]]] = field(default_factory=dict)
    """Per region, by `id`, the writes that leave together: node id → group (`late_stores`)."""
    only_stored: dict[int, bool] = field(default_factory=dict)
    """Node id → whether only elementwise steps and stores use its value (`late_reads`), of those asked about."""
    wished: list[Any] | None = None
    """(late read, group) that somebody will ask for, while these are only noted (`late_reads.Ahead`)."""
    turns: Any = None
    """The loads of a store that go in turn (`late_reads.Turns`), if there are any."""


@dataclass
class ProductPlans:
    """Products, above all those that run while their warpgroup goes on."""

    strategy: Any = None
    """How operands of asynchronous products get to shared memory (`strategy.Strategy`)."""
    running: Any = None
    """Asynchronous products that run in the trip that is being emitted (`ring_loops.Products`)."""
    started_early: set[int] = field(default_factory=set)
    """Asynchronous products that have overtaken what waits for one before them (`product_order`)."""
    zero_started: set[int] = field(default_factory=set)
    """Carried values that hold nothing before the first trip: the product that adds to them starts at zero."""
    late_sums: set[int] = field(default_factory=set)
    """Products whose waves' shares are added behind their loop."""
    give_turn: Any = None
    """Emits what lets another team use the rings, once the tile's products have."""
    behind_loads: Any = None
    """Emits what follows the outermost region's last loads."""
