"""What was decided for a kernel, node by node: the hardware form of each copy and product, where each shared buffer
lies, what the kernel needs of the chip, and the reasons.

In: a finished lowering. Out: `Decisions`, which compiled kernels carry and reports print. `problems` derives the same
from the kernel IR alone, where it can, and says what does not agree: the record is checked like any fact.

Invariant: the text is the same for the same input; a form is spelled in the kernel IR's words, so that it holds before
instructions are selected.
"""

from __future__ import annotations

from dataclasses import field

from wavedsl.ir.addresses.vectors import vector_elements
from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.dataflow.graph import Node, node_text
from wavedsl.ir.dataflow.views import is_tile
from wavedsl.ir.kernel.kernel_ir import Kernel
from wavedsl.ir.layouts.layout import Layout
from wavedsl.ir.lower.exchange import OVER_TILES, PARTS_OVER_TILES
from wavedsl.ir.lower.in_place import order_problem
from wavedsl.ir.lower.late_reads import is_late
from wavedsl.ir.lower.lowering import Lowering
from wavedsl.ir.lower.whole_tiles import whole_plans
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.staging.strategy import most_registers

ASYNC_COPIES = ("copy.async", "copy.bulk", "copy.bulk.store")
"""Ops of the kernel IR that copy beside the waves that start them."""


@dataclass(frozen=True)
class Atom:
    """The hardware form of one node of the graph. `ops`: the kernel IR's ops that carry it out; `text`: in words."""

    node: int
    line: str
    ops: tuple[str, ...]
    text: str


OVER = (OVER_TILES, PARTS_OVER_TILES)
"""Buffers that lie in the place of tiles that are done with."""


@dataclass(frozen=True)
class Buffer:
    """A shared buffer: bytes from `offset` on, `slots` tiles of them, and how elements lie in a tile."""

    name: str
    offset: int
    bytes: int
    slots: int
    place: str
    after: tuple[str, ...] = ()
    """Buffers whose place it takes when they have been read for the last time."""


@dataclass(frozen=True)
class Needs:
    """What a kernel needs of the chip. `registers` per thread, by role, that the strategy asks for, or that its widest
    loop carries; the assembler's count is in `.resources`."""

    threads: int
    shared_bytes: int
    registers: dict[str, int]
    tensor_cores: tuple[str, ...]
    async_copies: tuple[str, ...]
    cluster: int


@dataclass(frozen=True)
class Decisions:
    """The record of a kernel."""

    atoms: tuple[Atom, ...]
    buffers: tuple[Buffer, ...]
    needs: Needs
    reasons: tuple[str, ...] = field(default=())

    def atom(self, node: int) -> Atom | None:
        """That of a node of the graph."""
        return next((a for a in self.atoms if a.node == node), None)

    def text(self) -> str:
        """One line per choice."""
        n = self.needs
        registers = ", ".join(f"{count} {role}" for role, count in n.registers.items())
        out = [
            f"needs {n.threads} threads, {n.shared_bytes} bytes of shared memory, registers: {registers}",
            f"tensor cores: {', '.join(n.tensor_cores) or 'none'}; asynchronous copies: "
            f"{', '.join(n.async_copies) or 'none'}; cluster of {n.cluster}",
        ]
        for a in self.atoms:
            out += [a.line, f"    {a.text}"]
        for b in self.buffers:
            slots = f", {b.slots} slots" if b.slots > 1 else ""
            after = f", after {', '.join(b.after)}" if b.after else ""
            where = f"shared {b.offset} .. {b.offset + b.bytes}: {b.name}{slots}{after}"
            out.append(where + (f", {b.place}" * bool(b.place)))
        out += [f"because: {reason}" for reason in self.reasons]
        return "\n".join(out) + "\n"


def decisions(low: Lowering) -> Decisions:
    """The record of a lowering that is done."""
    kernel, strategy = low.kernel, low.matrix.strategy
    atoms = []
    for n in low.graph.all_nodes():
        found = _atom(low, n)
        if found is not None:
            atoms.append(Atom(n.id, node_text(n), *found))
    buffers = [
        Buffer(
            name, offset, size, _slots(low, name), low.notes.places.get(name, "").split("\n")[0].split(": ")[0],
            tuple(low.notes.after.get(name, ())),
        )
        for name, (offset, size) in sorted(kernel.shared_names.items(), key=lambda item: item[1])
    ]
    asked = {"copying": strategy.registers[0], "computing": strategy.registers[1]}
    registers = asked if strategy.registers[1] else {"carried": most_registers(low)}
    cores = [plan.atom.name for plan in low.inference.mmas.values() if plan.atom.instruction != "fma"]
    copies = [op for op in ASYNC_COPIES if any(op in a.ops for a in atoms)]
    over = sum(kernel.shared_names.get(OVER_TILES, (0, 0)))
    needs = Needs(
        kernel.waves * low.target.wave_size, max(low.room.top, over), registers, tuple(dict.fromkeys(cores)),
        tuple(copies), kernel.cluster,
    )  # fmt: skip
    reasons = (*low.graph.notes, *(f"{k}: {v}" for k, v in strategy.why.items()))
    return Decisions(tuple(atoms), tuple(buffers), needs, reasons)


def _slots(low: Lowering, name: str) -> int:
    return low.room.depths.get(name, 1)


def _atom(low: Lowering, n: Node) -> tuple[tuple[str, ...], str] | None:
    """(ops, words) of a node that moves a tile or multiplies; None for others."""
    if n.id in low.unreached:
        return ((), "never: its loop has no trip") if n.op in ("mma", "read", "write") else None
    if n.op == "mma":
        return _product(low, n)
    if n.op == "read":
        return _read(low, n)
    if n.op == "write":
        return _write(low, n)
    if n.op.startswith("atomic_") and n.id in low.writes.outlets:
        span = low.writes.outlets[n.id].tile.span
        return ("store.shared", "copy.bulk.store"), f"bulk reductions of {span}-byte rows"
    if n.op.startswith("atomic_") and n.attrs["memory"] in low.room.counts:
        return ("atomic.shared", "atomic.global"), "counted in shared memory, each place added to the array at the end"
    if n.op == "join_parts":
        parts = low.matrix.strategy.shape.sizes[0]
        return ("store.shared", "load.peer"), f"added in {parts} parts, each from its workgroup"
    if n.id in low.reads.made:
        made = low.reads.made[n.id]
        return ("store.shared",), f"stored to {made.name} in {made.loads.bytes} bytes per lane, for products to read"
    return None


def _product(low: Lowering, n: Node) -> tuple[tuple[str, ...], str]:
    plan = low.inference.mmas[n.id]
    how = plan.atom.name + (" with its operands swapped" if plan.swapped else "")
    if plan.atom.asynchronous:
        where = ["shared memory" if shared else "registers" for shared in plan.in_shared]
        return ("matrix.start",), f"{how}, A from {where[0]}, B from {where[1]}"
    return ("ffma" if plan.atom.instruction == "fma" else "mma",), f"{how}, A and B from registers"


def _read(low: Lowering, n: Node) -> tuple[tuple[str, ...], str]:
    """(kernel IR ops that carry a read out, the form in words)."""
    info = low.arrays[n.attrs["memory"]]
    ring, staged = low.reads.ring_of.get(n.id), low.reads.staged.get(n.id)
    taken = ""
    if staged is not None and n.id in low.reads.rows:
        taken = " of rows by index"
    if staged is not None and staged.loads is not None:
        taken += f", taken by lanes in {staged.loads.bytes} bytes ({staged.loads.atom.name})"
    loads = ("load.shared",) if taken else ()
    if ring is not None and staged is not None and n.id in ring.threaded:
        size = staged.vector * info.elsize
        return ("copy.async",), f"asynchronous copies of {size} bytes per lane{taken} into ring {ring.name}"
    if ring is not None and staged is not None and staged.tile is not None:
        receivers = ring.cluster.along(ring.axes(n))
        shared = f" to {receivers} workgroups" if receivers > 1 else ""
        words = f"bulk copies of {staged.tile.span}-byte rows{shared} into ring {ring.name}"
        return ("copy.bulk", *loads), words + taken
    if staged is not None:
        size = staged.vector * info.elsize
        if staged.asynchronous or staged.direct is not None:
            return ("copy.async", *loads), f"asynchronous copies of {size} bytes per lane" + taken
        piece = staged.piece * info.elsize
        words = f"copies of {size} bytes per lane through registers, stored in {piece}"
        return ("load.global", "store.shared", *loads), words + taken
    when = _when(low, n)
    if not is_tile(low.graph, n):
        return ("load.global",), "gathered, each lane its own elements" + when
    return ("load.global",), "loads of " + _widths(low, info, low.layout(n)) + when


def _when(low: Lowering, n: Node) -> str:
    """When an array that its region also writes is loaded, where results are computed as they are stored."""
    region = low.region_of(n)
    if not low.computes_late(region):
        return ""
    if n.attrs["memory"] not in low.written(region):
        return ""
    if is_late(low, n):
        return ", as results are stored in their place"
    problem = order_problem(low, n)
    return f", before all stores: {problem}" if problem else ""


def _write(low: Lowering, n: Node) -> tuple[tuple[str, ...], str]:
    outlet = low.writes.outlets.get(n.id)
    if outlet is not None:
        turned = ", transposed on the way" if outlet.transposed else ""
        return ("store.shared", "copy.bulk.store"), f"bulk copies of {outlet.tile.span}-byte rows{turned}"
    if not is_tile(low.graph, n):
        return ("store.global",), "scattered, each lane its own elements"
    return ("store.global",), "stores of " + _widths(low, low.view_info(n), low.layout(n.inputs[0]))


def _widths(low: Lowering, info: ArrayInfo, layout: Layout) -> str:
    """Bytes that a lane accesses at a time, of a tile that lies inside the array and of one that may not."""
    plans = (whole_plans(low, low.whole), low.plans)
    usual, last = (max(1, vector_elements(info, layout, p)[0] * info.dtype.bits // 8) for p in plans)
    return f"{usual} bytes per lane" + (f", of {last} in the last tile" if last != usual else "")


def problems(found: Decisions, kernel: Kernel) -> list[str]:
    """Where the record and the kernel IR disagree, as sentences."""
    out = []
    ops: dict[str, int] = {}
    cores: set[str] = set()
    used: set[str] = set()
    for op in kernel.body.walk():
        ops[op.name] = ops.get(op.name, 0) + 1
        atom = op.attrs.get("atom")
        if op.name in ("mma", "matrix.start") and atom is not None:
            cores.add(atom.name)
        if op.attrs.get("buffer"):
            used.add(op.attrs["buffer"])
    said = {op for a in found.atoms for op in a.ops}
    copies = [op for op in ASYNC_COPIES if ops.get(op)]
    if not set(copies) <= set(found.needs.async_copies):
        out.append(f"the kernel copies by {', '.join(copies)}, the record has {', '.join(found.needs.async_copies)}")
    if not cores <= set(found.needs.tensor_cores):
        out.append(f"the kernel multiplies by {', '.join(sorted(cores))}, not by what the record has")
    out += [f"nothing of the kernel is {op}" for op in sorted(said - set(ops)) if op in ("matrix.start", *ASYNC_COPIES)]
    before: list[Buffer] = []
    for b in found.buffers:
        apart = all(x.offset + x.bytes <= b.offset or x.name in b.after or b.name in x.after for x in before)
        if (b.name not in OVER and not apart) or b.offset + b.bytes > found.needs.shared_bytes:
            out.append(f"buffer {b.name} overlaps another or exceeds the {found.needs.shared_bytes} bytes")
        if b.bytes % b.slots:
            out.append(f"buffer {b.name} of {b.bytes} bytes has no {b.slots} equal slots")
        if b.name not in OVER:
            before.append(b)
    missing = used - {b.name for b in found.buffers}
    out += [f"buffer {name} has no assignment" for name in sorted(missing)]
    if kernel.shared_bytes != found.needs.shared_bytes:
        out.append(f"the kernel has {kernel.shared_bytes} bytes of shared memory")
    return out


__all__ = ["Atom", "Buffer", "Decisions", "Needs", "decisions", "problems"]
