"""Which arrays a workgroup adds to by way of shared memory (`lower/place_counts.py`).

In: a kernel whose atomics go to memory one by one, its graph, arrays, target, how many workgroups a unit has of the
grid. Out: the arrays by which it is lowered again (`Choices.counted`), and for others whose places data decide the
reason: only the kernel shows how often a workgroup comes to its atomics, and what shared memory and registers leave.

What is compared are clocks of what a unit's waves share: its ports, its part of memory's rate, which brings the keys
meanwhile, and of L2's. A wave's atomic costs L2 a line for each that its lanes fall into, and in each line, which all
units' lanes meet in, as many clocks as lanes fall into the fullest word; in shared memory as many as lanes fall into
the fullest bank. For that every element is made neutral once, read once and added once, and waves meet twice. Data are
taken to fall anywhere.

Invariant: as many waves stay resident, and everything else in shared memory lies as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, log, prod, sqrt

from wavedsl.ir.array_info import ArrayInfo
from wavedsl.ir.cuts.partition import Partition
from wavedsl.ir.dataflow.graph import Graph, Node
from wavedsl.ir.kernel.kernel_ir import Kernel, Op, Region
from wavedsl.ir.kernel.kernel_meaning import ANY_ORDER
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.ir.kernel.unit_clocks import UNKNOWN
from wavedsl.ir.kernel.unroll import static_trips
from wavedsl.ir.layouts.fragment import scalar_type
from wavedsl.ir.lower.place_counts import how_of, window
from wavedsl.ir.target import Target

GAIN = 1.5
"""How many times over what is spared has to pay for what counting costs."""
INSTRUCTIONS = 8
"""That a wave issues for the elements of its lanes."""
PREFIX = "counts of "


def counted_arrays(
    kernel: Kernel, graph: Graph, partition: Partition, arrays: Mapping[str, ArrayInfo], target: Target, grid: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(arrays to count in shared memory, in words why others are not). `grid`: workgroups of it, 0 where nobody
    knows."""
    groups = -(-grid // target.units)
    chosen: list[str] = []
    why: list[str] = []
    left = kernel.shared_bytes
    for memory, atomics in _at_places_of_data(graph).items():
        info = arrays[memory]
        own, span = window(info, atomics, partition.dims)
        problem = _problem(kernel, graph, memory, atomics, info, target, own, span)
        if not problem and span:
            windows = prod(info.extents[i] or target.units for i in own)
            problem = _dear(kernel, info, span, target, grid, windows) or _no_room(kernel, left, span, target, groups)
        if problem:
            why.append(f"atomics on {memory} go to memory one by one: {problem}")
        else:
            chosen.append(memory)
            left += span or 0
    return tuple(chosen), tuple(why)


def _at_places_of_data(graph: Graph) -> dict[str, list[Node]]:
    """Array → its atomics, of arrays of which data decide some atomic's place."""
    found: dict[str, list[Node]] = {}
    for n in graph.all_nodes():
        if n.op.startswith("atomic_"):
            found.setdefault(n.attrs["memory"], []).append(n)
    return {memory: atomics for memory, atomics in found.items() if any(map(_decided_by_data, atomics))}


def _decided_by_data(n: Node) -> bool:
    mapping = n.attrs["mapping"]
    return mapping is not None and any(isinstance(c, int) and n.inputs[c].dims for c in mapping.coords)


def _problem(
    kernel: Kernel, graph: Graph, memory: str, atomics: list[Node], info: ArrayInfo, target: Target,
    own: tuple[int, ...], span: int | None,
) -> str:  # fmt: skip
    """What forbids it, whatever it gains."""
    used = {x.id for n in graph.all_nodes() for x in n.inputs} | {y.id for r in graph.regions() for y in r.yields}
    kind = scalar_type(info.dtype).kind
    hows = {how_of(n.op, info.dtype) for n in atomics}
    if any(n.id in used for n in atomics):
        return "what was there is asked for"
    if any(n.attrs.get("memory") == memory and n not in atomics for n in graph.all_nodes()):
        return "the kernel reads or writes the array otherwise"
    if len(hows) > 1 or any(how not in ANY_ORDER for how in hows):
        return f"{', '.join(sorted({n.op for n in atomics}))} of {info.dtype} depend on their order"
    if info.dtype.bits < 32 or any((how, kind) not in target.shared_atomics for how in hows):
        return f"{target.name} has no {atomics[0].op} of {info.dtype} in shared memory"
    if kernel.notes["lowering"].strategy.bulk:
        return "waves have roles"
    if span is None or info.far:
        return "its size is known at run time only" if span is None else "its elements have addresses of 64 bits"
    if any(s is None or s % info.elsize for i, s in enumerate(info.strides) if i not in own):
        return "its elements are not aligned"
    return "" if span else "it is empty"


def _no_room(kernel: Kernel, shared: int, span: int, target: Target, groups: int) -> str:
    """Why there is no room beside `shared` bytes; empty where there is."""
    if shared + span > target.shared_bytes:
        return f"{span} bytes beside {shared} are more than the {target.shared_bytes} of shared memory"
    held = pressure(kernel, target)

    def resident(bytes: int) -> int:
        """Workgroups. (A unit has hardly more shared memory than one of them may use.)"""
        found = target.resident_waves(held, bytes, kernel.block) // kernel.waves
        found = min(found, target.shared_bytes // bytes) if bytes else found
        return min(found, groups) if groups else found

    before, behind = resident(kernel.shared_bytes), resident(shared + span)
    if behind >= before:
        return ""
    return f"beside {span} bytes of shared memory {behind} workgroups are resident on a unit, not {before}"


def _dear(kernel: Kernel, info: ArrayInfo, span: int, target: Target, grid: int, windows: int) -> str:
    """Why counting does not pay; empty where it does. `windows`: parts of the array that are different workgroups'."""
    busy = min(target.units, grid or target.units)
    sharing = max(1.0, busy / target.dies / windows)
    beside = min(-(-grid // target.units) if grid else target.simds, target.simds)

    def atomics(op: Op) -> int:
        return op.name == "atomic.global" and _array(op.args[0]) == info.param

    def loaded(op: Op) -> int:
        return op.attrs["bytes"] * kernel.wave_size if op.name in ("load.global", "copy.async") else 0

    accesses = _of_wave(kernel.body, atomics) * kernel.waves
    brought = _of_wave(kernel.body, loaded) * kernel.waves * busy / (target.memory_rate or inf)
    one = max(brought, accesses * _by_itself(info, span, target, sharing))
    counted = max(brought, accesses * _in_shared(info, span, target))
    cost = _once(kernel, info, span, target, sharing, beside)
    if one - counted >= GAIN * cost:
        return ""
    return f"they take {one:.0f} clocks so, {counted:.0f} in shared memory, and {cost:.0f} to begin and end there"


def _of_wave(region: Region, number: Callable[[Op], int]) -> int:
    """The sum of a number over the ops that a wave comes to: the more of what a branch may do, `UNKNOWN` trips where
    nobody knows better, one of a loop that goes on until data say no more: few lanes may have something to do in it (a
    Hough transform of 7 angles took 1.5 times as long with its 700 places in shared memory)."""
    count = 0
    for op in region.ops:
        if op.name == "for":
            trips = 1 if op.attrs.get("again") else static_trips(op)
            most = op.args[1].hi
            if trips is None:
                trips = most if most is not None and most < UNKNOWN else UNKNOWN
            count += trips * _of_wave(op.regions[0], number)
        elif op.regions:
            count += max(_of_wave(body, number) for body in op.regions)
        else:
            count += number(op)
    return count


def _array(buffer: object) -> int | None:
    """The parameter that a buffer's base is."""
    value = buffer
    while (op := getattr(value, "op", None)) is not None:
        if op.name == "param":
            return int(op.attrs["index"])
        value = op.args[0] if op.args else None
    return None


def _by_itself(info: ArrayInfo, span: int, target: Target, sharing: float) -> float:
    """Clocks of a wave's atomic in memory: the lines that its lanes fall into, the turns in these, or the port.
    `sharing`: units whose lanes meet in them."""
    lines = -(-span // target.line_bytes)
    touched = lines * (1 - (1 - 1 / lines) ** target.wave_size)
    turns = touched * _fullest(target.wave_size / touched, target.line_bytes // info.elsize)
    port = target.cost("store.global", info.elsize).cycles
    return max(port, touched * target.line_bytes / _rate(target), turns * sharing / lines)


def _fullest(balls: float, boxes: float) -> float:
    """How many balls about the fullest box has that has some."""
    mean = balls / boxes
    return max(1.0, min(balls, mean + sqrt(2 * mean * log(boxes)))) if boxes > 1 else balls


def _rate(target: Target) -> float:
    """Bytes per clock between a unit and L2."""
    port = 16 * target.wave_size / target.cost("store.global", 16).cycles
    return min(port, target.cache_rate or port)


def _in_shared(info: ArrayInfo, span: int, target: Target) -> float:
    """Clocks of a wave's atomic in shared memory: lanes in the fullest bank, of each group that is served together."""
    together = min(target.wave_size, 4 * target.banks[info.elsize] // info.elsize)
    return target.wave_size / together * _fullest(together, min(span // info.elsize, together))


def _once(kernel: Kernel, info: ArrayInfo, span: int, target: Target, sharing: float, groups: int) -> float:
    """Clocks of a workgroup to make elements neutral, read them and add them, and to meet; where `groups` of them issue
    and wait beside each other, its part."""
    rounds = -(-span // (info.elsize * target.wave_size))
    stored, loaded = (target.cost(f"{kind}.shared", info.elsize) for kind in ("store", "load"))
    added = max(span / _rate(target), rounds * target.cost("store.global", info.elsize).cycles, sharing)
    moved = rounds * (stored.cycles + loaded.cycles) + added
    issued = -(-span // (info.elsize * kernel.block)) * INSTRUCTIONS * target.cost("valu").cycles
    issued *= -(-kernel.waves * groups // target.simds)
    return moved + (issued + stored.latency + 2 * target.cost("barrier").latency + loaded.latency) / groups


def as_before(kernel: Kernel, found: Kernel) -> bool:
    """Whether a kernel that counts has everything else in shared memory, and its waves do, as in the kernel that does
    not."""
    here, there = (
        ({name: size for name, (_, size) in k.shared_names.items() if not name.startswith(PREFIX)}, k.waves)
        for k in (kernel, found)
    )
    return here == there and not found.notes["lowering"].strategy.bulk


__all__ = ["as_before", "counted_arrays"]
