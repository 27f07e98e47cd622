"""The state of an emulated PTX launch: registers, memories and findings of a batch of CTAs that run in lock-step.

In: a parsed function, the launch. Out: `Machine`, which decoded instructions read and write. Every register is one
array over all threads of the batch, `thread = (cta * warps + warp) * 32 + lane`; the arrays live as long as the
machine, so decoded instructions bind views of them. A *mask* is a boolean array over threads, or None for all of them.
Invariant: masks are never changed in place (the list of their lanes is remembered by identity).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from wavedsl.codegen.ptx.isa import NUMPY, PACKED, TYPE_BITS
from wavedsl.ir.errors import CompileError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.memory import GlobalMemory
from wavedsl.runtime.emulator.ptx.module import Function, Inst, Module, Param, Reg, Variable
from wavedsl.runtime.emulator.ptx.shadow import Defect, SharedShadow
from wavedsl.runtime.emulator.report import Collector, Finding

Array = Any
"""A NumPy array over the threads of the batch, of any dtype."""
Mask = Any
"""bool [thread], or None for all threads."""

SHARED_BASE = 1024
"""Address of the first byte of a CTA's shared memory in its window (sm_90 keeps the first KiB for itself)."""
LOCAL_BASE = 0x100
PARAM_BASE = 0x160
SHARED_WINDOW = 0x7F00_0000_0000
LOCAL_WINDOW = 0x7E00_0000_0000
PARAM_WINDOW = 0x7D00_0000_0000
"""Where the state spaces lie among generic addresses; global memory is below."""
WINDOW = 0x0100_0000_0000
CLUSTER_SHIFT = 24
"""In a cluster a shared address, from `mapa` or of a variable, holds the CTA's rank from this bit on; here plus one, so
that what cannot bear it is found in every CTA."""

_REG_DTYPE = {1: np.bool_, 8: np.uint16, 16: np.uint16, 32: np.uint32, 64: np.uint64, 128: np.uint64}


@dataclass(frozen=True)
class Launch:
    """What does not change between batches."""

    module: Module
    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    target: str
    checks: bool
    memory: GlobalMemory
    params: np.ndarray
    dynamic_shared: int
    statics: dict[str, tuple[str, int]]
    """Space and address of each `.global` and `.const` variable."""
    cluster: tuple[int, int, int] = (1, 1, 1)
    """CTAs per cluster along each axis; the grid is a multiple of it."""
    item_size: int = 16
    """Bytes of the smallest element of a tensor map, 16 without one."""


class Machine:
    """State of `ctas` CTAs at a time. `start(first)` points it at CTAs first, first + 1, … of the permuted grid."""

    def __init__(self, launch: Launch, ctas: int, collector: Collector, rng: np.random.Generator, order: np.ndarray):
        self.launch, self.collector, self.rng, self.order = launch, collector, rng, order
        self.checks = launch.checks
        self.memory = launch.memory
        self.function, self.module = launch.function, launch.module
        bx, by, bz = launch.block
        self.threads_per_cta = bx * by * bz
        self.warps = (self.threads_per_cta + 31) // 32
        self.ctas = ctas
        self.cluster = int(np.prod(launch.cluster))
        self.T = ctas * self.warps * 32
        self.NW = ctas * self.warps
        self.regs: dict[int, np.ndarray] = {}
        self.carry = np.zeros(self.T, np.bool_)
        self.params = launch.params
        self.instructions: Counter[str] = Counter()
        self.bank_conflicts = 0
        self.clock = 0
        self._lanes: tuple[Any, Array] = (None, None)
        self._layout_variables()
        self._specials()
        self.live = np.zeros(self.T, np.bool_)
        self.first = 0
        self._conflict_memo: dict[bytes, int] = {}
        self.globals: Any = None
        """The watch over global memory (`global_memory.WatchedMemory`), None without checks."""
        self.trace: Any = None
        """The `Tracer` while a batch runs of which something is recorded."""
        self.visits: dict[tuple[int, int], tuple[int, Inst, int]] = {}
        """(Warp, CTA) -> clock, instruction and thread of the last use of another CTA's shared memory."""
        self.barrier_words: Array | None = None
        """Which 8 bytes of the batch's shared memory are an mbarrier; None while nothing is."""
        self.undefined: dict[int, np.ndarray] = {}
        self.suspects: set[int] = set()
        self.fragments: dict[Any, Any] = {}
        self.fragment_users: dict[int, list[Any]] = {}
        self.fragment_values: dict[Any, Array] = {}

    # ------------------------------------------------------------------------------------------------ layout

    def _layout_variables(self) -> None:
        """Addresses of variables: shared and local per CTA and thread, global and const once."""
        self.symbols: dict[str, tuple[str, int]] = {}
        shared, local = 0, 0
        dynamic: list[Variable] = []
        variables = {**self.module.variables, **self.function.variables}
        params: list[Param] = self.function.params
        formal = {p.name for p in params}
        for v in variables.values():
            if v.space == "shared":
                if v.extern:
                    dynamic.append(v)
                    continue
                shared = _round_up(shared, v.align)
                self.symbols[v.name] = ("shared", SHARED_BASE + shared)
                shared += v.size
            elif v.space == "local" or (v.space == "param" and v.name not in formal):
                local = _round_up(local, max(v.align, 1))
                self.symbols[v.name] = ("local", LOCAL_BASE + local)
                local += _round_up(v.size, 4)
        start = _round_up(shared, max([v.align for v in dynamic], default=1))
        for v in dynamic:
            self.symbols[v.name] = ("shared", SHARED_BASE + start)
        self.shared_bytes = (start if dynamic else shared) + self.launch.dynamic_shared
        for p in params:
            self.symbols[p.name] = ("param", PARAM_BASE + p.offset)
        for name, (space, address) in self.launch.statics.items():
            self.symbols[name] = (space, address)
        # Rows of 16 bytes, and one more so that a vector access at the end stays inside.
        self.shared_stride = _round_up(self.shared_bytes, 16)
        self.local_stride = _round_up(local, 16)
        self.local_bytes = local
        self.shared = np.zeros(self.ctas * self.shared_stride, np.uint8)
        self.local = np.zeros(self.T * self.local_stride, np.uint8)
        self.local_valid = np.zeros(self.T * self.local_stride, np.bool_) if self.checks else None

    def _specials(self) -> None:
        bx, by, _ = self.launch.block
        self.slots: dict[tuple[int, int], int] = {}
        """Of mbarriers and of lanes that arrive alone, see `SharedShadow`; the same for all batches."""
        self.every = t = np.arange(self.T, dtype=np.int64)
        in_cta = t % (self.warps * 32)
        self.cta_of = t // (self.warps * 32)
        self.warp_of = (in_cta // 32).astype(np.int64)
        self.lane_of = t % 32
        self.global_warp = t // 32
        self.thread_in_cta = in_cta
        self.exists = in_cta < self.threads_per_cta
        u = np.uint32
        gx, gy, gz = self.launch.grid
        one = np.ones(1, u)
        s: dict[str, np.ndarray] = {
            "%tid.x": (in_cta % bx).astype(u),
            "%tid.y": (in_cta // bx % by).astype(u),
            "%tid.z": (in_cta // (bx * by)).astype(u),
            "%laneid": self.lane_of.astype(u),
            "%warpid": self.warp_of.astype(u),
            "%nwarpid": one * self.warps,
            "%smid": np.zeros(self.T, u),
            "%nsmid": one * 108,
            "%gridid": np.ones(1, np.uint64),
            "%dynamic_smem_size": one * self.launch.dynamic_shared,
            "%total_smem_size": one * self.shared_bytes,
            "%aggr_smem_size": one * self.shared_bytes,
            "%cluster_ctarank": (self.cta_of % self.cluster).astype(u),
            "%cluster_nctarank": one * self.cluster,
            "%is_explicit_cluster": np.array([bool(self.function.cluster) or self.cluster > 1]),
        }
        for axis, n, g, c in zip("xyz", self.launch.block, (gx, gy, gz), self.launch.cluster):
            s[f"%ntid.{axis}"] = one * n
            s[f"%nctaid.{axis}"] = one * g
            s[f"%ctaid.{axis}"] = np.zeros(self.T, u)
            s[f"%cluster_ctaid.{axis}"] = np.zeros(self.T, u)
            s[f"%cluster_nctaid.{axis}"] = one * c
            s[f"%nclusterid.{axis}"] = one * (g // c)
            s[f"%clusterid.{axis}"] = np.zeros(self.T, u)
        lane = self.lane_of.astype(np.uint64)
        bit = np.uint64(1) << lane
        for name, value in {
            "eq": bit,
            "lt": bit - np.uint64(1),
            "le": (bit << np.uint64(1)) - np.uint64(1),
            "gt": ~((bit << np.uint64(1)) - np.uint64(1)),
            "ge": ~(bit - np.uint64(1)),
        }.items():
            s[f"%lanemask_{name}"] = (value & np.uint64(0xFFFFFFFF)).astype(u)
        self.special = s
        self.shared_origin = self.cta_of * self.shared_stride - SHARED_BASE
        self.local_origin = t * self.local_stride - LOCAL_BASE

    def start(self, first: int) -> None:
        """Fresh state for CTAs `order[first : first + ctas]`; lanes past the grid's or the block's end do not live."""
        self.first = first
        gx, gy, _ = self.launch.grid
        index = np.minimum(first + self.cta_of, len(self.order) - 1)
        cta = self.order[index]
        self.special["%ctaid.x"][:] = cta % gx
        self.special["%ctaid.y"][:] = cta // gx % gy
        self.special["%ctaid.z"][:] = cta // (gx * gy)
        self.special["%smid"][:] = cta % 108
        for axis, c in zip("xyz", self.launch.cluster):
            where = self.special[f"%ctaid.{axis}"]
            self.special[f"%cluster_ctaid.{axis}"][:] = where % c
            self.special[f"%clusterid.{axis}"][:] = where // c
        self.live = self.exists & (first + self.cta_of < len(self.order))
        self.carry[:] = False
        self.fragment_values.clear()
        self.visits.clear()
        self.barrier_words = None
        if self.checks:
            self.shared[:] = 0xBD
            if self.local_valid is not None:
                self.local_valid[:] = False
            self.shadow = SharedShadow(
                self.ctas,
                self.warps,
                self.shared_stride,
                self.granule,
                self.cluster,
                self.agents,
                self.swaps,
                self.slots,
                lambda: self.live,
            )
            if self.globals is not None:
                self.globals.new_batch()

    def is_barrier(self, key: int, yes: bool) -> None:
        """An mbarrier has been made at a byte of the batch's shared memory, or has gone."""
        if self.barrier_words is None:
            self.barrier_words = np.zeros(len(self.shared) // 8, np.bool_)
        self.barrier_words[key >> 3] = yes

    def over_barriers(self, inst: Inst, at: Array, width: int, threads: Array) -> None:
        """Whether a write to bytes of the batch's shared memory [n], by these threads, reaches into an mbarrier."""
        words = self.barrier_words
        if words is None or not len(at):
            return
        hit = words[at >> 3] | words[(at + width - 1) >> 3]
        if hit.any():
            i = int(np.argmax(hit))
            first = int(at[i]) % self.shared_stride
            text = f"writes {self.place(first)}, where an mbarrier is that nobody has invalidated: undefined"
            self.tell("hazard", inst, text, int(threads[i]))

    def visit(self, inst: Inst, cta: Array, lanes: Array) -> None:
        """Threads use shared memory of CTAs of the cluster, which must not end before they know of it."""
        if not self.checks:
            return
        for there, lane in zip(cta.tolist(), lanes.tolist()):
            if there != self.cta_of[lane]:
                warp = int(self.global_warp[lane])
                self.visits[warp, there] = int(self.shadow.know[warp, self.shadow.own[warp]]), inst, lane

    def farewell(self) -> None:
        """At the end of a batch: whose shared memory was used last without its knowing?"""
        for (warp, cta), (clock, inst, thread) in self.visits.items():
            own = self.shadow.own[warp]
            alone = self.shadow.lane_table[own, thread & 31] or own
            self.shadow.tell_all(self.shadow.rows)
            known = self.shadow.know.reshape(self.ctas, self.warps, -1)[cta][:, [own, alone]].max()
            if clock > known and not self.seen("race", inst):
                rank = cta % self.cluster
                text = (
                    f"CTA {rank} of the cluster may have ended: nothing makes it wait for this use of its shared memory"
                )
                self.report("race", inst, text, thread)

    granule = 4
    agents = False
    """Whether the program has asynchronous agents (bulk copies, wgmma) or clusters."""
    swaps = False
    """Whether it compares and swaps."""

    # ------------------------------------------------------------------------------------------------ registers

    def reg(self, r: Reg) -> np.ndarray:
        """The register's own array: unsigned, of its width."""
        a = self.regs.get(r.index)
        if a is None:
            bits = TYPE_BITS[r.type]
            if bits == 128:
                raise CompileError(f"128-bit register {r.name} is not supported")
            a = self.regs[r.index] = np.zeros(self.T, _REG_DTYPE[bits])
        return a

    def view(self, r: Reg, type_: str) -> np.ndarray:
        """The register as an instruction's operand type: `[threads]`, or `[threads, 2]` for packed types."""
        a = self.reg(r)
        if type_ == "pred":
            return a
        want = np.dtype(NUMPY[type_])
        bits = TYPE_BITS[type_]
        if type_ in PACKED:
            return a.view(want).reshape(self.T, 2)
        have = a.dtype.itemsize * 8
        if have == bits:
            return a.view(want)
        if have > bits:
            return a.view(want)[:: have // bits]
        raise CompileError(f"register {r.name} is too narrow for .{type_}")

    def lanes(self, mask: Mask) -> Array:
        """Thread numbers of a mask."""
        if self._lanes[0] is not mask:
            self._lanes = (mask, np.flatnonzero(mask))
        return self._lanes[1]

    @cached_property
    def own_rank(self) -> Array:
        """What each thread's own shared addresses hold above their place in the window: int64 [threads]."""
        return (self.cta_of.astype(np.int64) % self.cluster + 1) << CLUSTER_SHIFT

    def near(self, address: Array, lanes: Array) -> Array:
        """Shared addresses (int64; `lanes` None: of all threads), those in the own CTA without its rank."""
        if self.cluster == 1:
            return address
        own = self.own_rank if lanes is None else self.own_rank[lanes]
        return np.where(address >> CLUSTER_SHIFT == own >> CLUSTER_SHIFT, address - own, address)

    def resolve(self, address: Array, lanes: Array) -> tuple[Array, Array]:
        """CTA of the batch and window address of shared addresses that may name another CTA of the cluster."""
        cta = self.cta_of[lanes]
        far = address >> CLUSTER_SHIFT
        if self.cluster > 1 and far.any():
            there = (cta // self.cluster) * self.cluster + far - 1
            cta = np.where((far > 0) & (far <= self.cluster), there, cta)
            address = np.where((far > 0) & (far <= self.cluster), address & ((1 << CLUSTER_SHIFT) - 1), address)
        return cta, address

    def place(self, offset: int) -> str:
        """A byte of shared memory by the variable that it lies in."""
        best, name = -1, ""
        for symbol, (space, address) in self.symbols.items():
            if space == "shared" and best < address - SHARED_BASE <= offset:
                best, name = address - SHARED_BASE, symbol
        if not name:
            return f"byte {offset} of shared memory"
        return name if offset == best else f"{name}+{offset - best}"

    # ------------------------------------------------------------------------------------------------ findings

    def report(self, kind: str, inst: Inst, message: str, thread: int | None = None) -> None:
        """List a defect of an instruction, shown by one thread."""
        loc = self._location(inst)
        group, wave, lane = None, None, None
        if thread is not None:
            group, wave, lane = self.whereabouts(thread)
        self.collector.add(Finding(kind, message, " ".join(inst.text.split()), loc, group, wave, lane, inst.line))

    def _location(self, inst: Inst) -> Loc | None:
        """The user's line of an instruction, where the text names it."""
        if inst.loc is not None and inst.loc[0] in self.module.files and inst.loc[1] > 0:
            return self.module.location(inst.loc, inst.line)
        return None

    def tell(self, kind: str, inst: Inst, message: str, thread: int) -> None:
        """`report`, once for an instruction and kind."""
        if not self.seen(kind, inst):
            self.report(kind, inst, message, thread)

    def defects(self, inst: Inst, found: Sequence[Defect], threads: Array) -> None:
        """List what the shadow has found in an access; row i of it is that of `threads[i]`."""
        for d in found:
            self.tell(d.kind, inst, self.in_words(d) + self.other_line(d.other), int(threads[d.row]))

    def in_words(self, d: Defect) -> str:
        """What a defect is, with the names of the place and of the mbarrier that a copy signals."""
        what = d.what
        if d.copy >= 0:
            key = next((key for key, n in self.shadow.slots.items() if self.shadow.barriers + n == d.copy), None)
            if key is not None and key[0] >= 0:
                what += f", {self.place(key[1])}"
        if d.at >= 0:
            what += f": {self.place(d.at % self.shadow.per_cta * self.shadow.granule)}"
        return what

    def other_line(self, pc: int) -> str:
        """How a finding names the other instruction of a pair; nothing where it is not known (-1)."""
        if pc < 0:
            return ""
        other = self.function.insts[pc]
        loc = self._location(other)
        where = f" ({loc})" if loc is not None else ""
        return f"; the other is line {other.line}: {' '.join(other.text.split())}{where}"

    def whereabouts(self, thread: int) -> tuple[tuple[int, int, int], int, int]:
        """(CTA, warp, lane) of a thread number of this batch."""
        gx, gy, _ = self.launch.grid
        cta = int(self.order[min(self.first + int(self.cta_of[thread]), len(self.order) - 1)])
        return (cta % gx, cta // gx % gy, cta // (gx * gy)), int(self.warp_of[thread]), int(self.lane_of[thread])

    def seen(self, kind: str, inst: Inst) -> bool:
        return self.collector.has(kind, inst.line)

    # ------------------------------------------------------------------------------------------------ bank conflicts

    def count_conflicts(self, offsets: Array, width: int, warps: Array, atomic: bool = False) -> None:
        """Add the extra cycles of one shared-memory access: `offsets` are byte offsets in the CTA, `warps` who makes
        them.

        32 banks of 4 bytes. Lanes go in phases of 32 (up to 4 bytes each), 16 (8 bytes) or 8 (16 bytes); a phase takes
        as many cycles as its busiest bank holds different words, or of an atomic words of lanes. Patterns are
        remembered relative to their first address.
        """
        if not len(offsets):
            return
        first = int(offsets[0])
        relative = offsets - (first & ~127)
        key = relative.astype(np.int32).tobytes() + bytes([width & 255, atomic])
        hit = self._conflict_memo.get(key)
        if hit is None:
            hit = conflicts(offsets, width, warps, self.lane_count(warps), atomic)
            if len(self._conflict_memo) < 4096:
                self._conflict_memo[key] = hit
        self.bank_conflicts += hit

    @staticmethod
    def lane_count(warps: Array) -> Array:
        """Position of each access within its warp."""
        starts = np.flatnonzero(np.concatenate(([True], warps[1:] != warps[:-1])))
        return np.arange(len(warps)) - np.repeat(starts, np.diff(np.append(starts, len(warps))))


def conflicts(offsets: Array, width: int, warps: Array, position: Array, atomic: bool = False) -> int:
    """Cycles beyond one for each phase. `atomic`: a bank changes one word per clock, so lanes that meet in one place
    take turns as those do that meet in one bank (not published)."""
    offsets = offsets - (int(offsets.min()) & ~127)  # of a neighbour's shared memory they may lie below zero
    per_phase = 32 if width <= 4 else 128 // width
    phase = warps * (32 // per_phase) + position // per_phase
    words = max(1, width // 4)
    word = (offsets[:, None] // 4 + np.arange(words)).reshape(-1)
    phase = np.repeat(phase, words)
    pair = phase * (1 << 32) + word
    pair.sort()
    if not atomic:
        pair = pair[np.concatenate(([True], pair[1:] != pair[:-1]))]
    slot = (pair >> 32) * 32 + (pair & 31)
    fullest = np.bincount(slot, minlength=32 * (int(pair[-1] >> 32) + 1)).reshape(-1, 32).max(axis=1)
    return int(fullest.sum()) - int(np.count_nonzero(fullest))


def place_statics(module: Module, function: Function, memory: GlobalMemory) -> dict[str, tuple[str, int]]:
    """Put `.global` and `.const` variables into memory; returns their spaces and addresses."""
    found: dict[str, tuple[str, int]] = {}
    arrays: list[tuple[Variable, np.ndarray]] = []
    for v in (*module.variables.values(), *function.variables.values()):
        if v.space in ("global", "const"):
            data = np.frombuffer((v.init or b"").ljust(max(v.size, 1), b"\0"), np.uint8).copy()
            arrays.append((v, data))
            found[v.name] = (v.space, memory.add(data, v.name))
    for v, data in arrays:
        for offset, name in v.refs:
            if name not in found:
                raise CompileError(
                    f"initialiser of {v.name} refers to {name}, which is not a .global or .const variable"
                )
            at = data[offset : offset + 8]
            at[:] = np.frombuffer(
                (int.from_bytes(at.tobytes(), "little") + found[name][1]).to_bytes(8, "little"), np.uint8
            )
    return found


def _round_up(x: int, to: int) -> int:
    return (x + to - 1) // to * to
