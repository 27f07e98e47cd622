"""The PTX emulator: runs PTX text on NumPy arrays and reports what a GPU would hide.

In: text, launch shape, arguments. Out: the arrays changed in place and an `EmulationReport`. CTAs run in batches of
some 256 warps, in lock-step while their control flow agrees; what an instruction does comes from its row in
`codegen.ptx.isa`. With checks on, the order of CTAs, of diverging warps and of atomics, and the arrival of
asynchronous copies, follow a seed.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from wavedsl.codegen.ptx import isa
from wavedsl.codegen.ptx.target import CHIPS, Chip
from wavedsl.ir.errors import CompileError, LaunchError
from wavedsl.runtime.emulator.memory import GlobalMemory
from wavedsl.runtime.emulator.ptx import flow as ptx_flow
from wavedsl.runtime.emulator.ptx import inline as ptx_inline
from wavedsl.runtime.emulator.ptx import parse as ptx_parse
from wavedsl.runtime.emulator.ptx.cost import Cost
from wavedsl.runtime.emulator.ptx.flow import Flow
from wavedsl.runtime.emulator.ptx.gather import entry_registers
from wavedsl.runtime.emulator.ptx.machine import Launch, Machine, place_statics
from wavedsl.runtime.emulator.ptx.mbarrier import Deadlock
from wavedsl.runtime.emulator.ptx.module import Function, Inst, Module, Param
from wavedsl.runtime.emulator.ptx.program import Stop, looked_up, prepare
from wavedsl.runtime.emulator.ptx.run import Runner
from wavedsl.runtime.emulator.ptx.warp_ops import registers
from wavedsl.runtime.emulator.report import Collector, EmulationReport, Finding, conclude, seed_or_default
from wavedsl.runtime.tensor_map import ALIGNMENT, BYTES, TensorMap, encode

BATCH_WARPS = 256
"""Warps that run together: NumPy's cost is per call up to about here."""
SPIN_WARPS = 4096
"""The same where CTAs may wait for each other through memory: they must all be resident."""


def run_ptx(
    asm: str,
    *,
    target: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    kernel: str | None = None,
    shared_bytes: int = 0,
    checks: bool | str = True,
    seed: int | None = None,
    cluster: Sequence[int] | None = None,
    workgroups: int | None = None,
    registers: int = 0,
    first: int = 0,
    kept: Collection[int] = (),
) -> EmulationReport:
    """Run a PTX kernel. `grid` in CTAs, `block` in threads; `args` as in `runtime.emulator.run`. `cluster` in CTAs,
    where the text does not fix it. `workgroups`: run only so many of the grid (whole clusters), where nothing is
    checked those from number `first` on. `kept`: as in `runtime.emulator.run`. `registers`: of a thread, where the
    assembler has said so, for how many workgroups reside together by the clocks (0: estimated).

    `seed` fixes the adversarial order (default: WAVEDSL_SEED, else 0). Raises EmulationError for findings when
    `checks` is True and for unsupported text always; LaunchError for a launch that the driver would refuse.
    """
    seed = seed_or_default(seed)
    collector = Collector()
    report = EmulationReport(seed=seed)
    try:
        module, function, flow = _read(asm, kernel)
        _fits(module, target)
    except CompileError as e:
        line = e.location.line if e.location is not None and e.location.file == "<ptx>" else 0
        text = asm.splitlines()[line - 1].strip() if line else ""
        report.findings = [
            Finding("unsupported", e.message + (f" ({e.hint})" if e.hint else ""), text, None, line=line)
        ]
        return conclude(report, checks)
    grid3, block3 = _three(grid, "grid"), _three(block, "block")
    _check_launch(function, block3)
    memory = GlobalMemory()
    params = _pack(function.params, args, memory)
    total = grid3[0] * grid3[1] * grid3[2]
    if not total or flow is None:
        return conclude(report, checks)
    cluster3 = _cluster(function, grid3, cluster)
    statics = place_statics(module, function, memory)
    launch = Launch(
        module, function, grid3, block3, target, bool(checks), memory, params, shared_bytes, statics, cluster3,
        min([a.spec.item_size for a in args if isinstance(a, TensorMap)], default=16),
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    ranks = cluster3[0] * cluster3[1] * cluster3[2]
    order = rng.permutation(total // ranks) if checks else np.arange(total // ranks)
    if workgroups is not None:
        count = max(1, workgroups // ranks)
        begin = min(first // ranks, max(0, len(order) - count))
        order = order[begin : begin + count]
        total = len(order) * ranks
    if ranks > 1:
        order = _members(order, grid3, cluster3)
    warps = (block3[0] * block3[1] * block3[2] + 31) // 32
    batch = max(1, min(total // ranks, (SPIN_WARPS if _spins(function) else BATCH_WARPS) // (warps * ranks)))
    batch = -(-(total // ranks) // -(-(total // ranks) // batch)) * ranks
    executed: list[Counter[str]] = []
    with np.errstate(all="ignore"):
        machine = Machine(launch, batch, collector, rng, order)
        _check_shared(machine, target)
        runner = Runner(prepare(machine, flow))
        cost = Cost(runner, order[:total], grid3[0] * grid3[1] * grid3[2], registers, [args[i] for i in kept])
        try:
            for start in range(0, total, batch):
                runner.run(start)
        except (Stop, Deadlock):
            pass
    report.findings = collector.findings
    for names, n in zip(runner.p.names, runner.executed):
        if n:
            executed.append(names)
            for name, k in names.items():
                report.instructions[name] += k * n
    report.bank_conflicts = machine.bank_conflicts
    rows = {inst.name: row for inst, row in zip(function.insts, runner.p.rows) if row is not None}
    report.coverage = frozenset(rows[name].row.pattern for names in executed for name in names if name in rows)
    report.set_model(cost.timing, cost.place, cost.launch)
    return conclude(report, checks)


@functools.lru_cache(maxsize=64)
def _read(asm: str, kernel: str | None) -> tuple[Module, Function, Flow | None]:
    """The text, the kernel in it with every call inlined, and its control flow. A run changes none of them."""
    module = ptx_parse.parse(asm)
    function = ptx_inline.inline(module, _entry(module, kernel))
    return module, function, ptx_flow.build(function) if function.insts else None


def instructions(asm: str, kernel: str | None = None) -> list[Inst]:
    """The instructions of a kernel, calls inlined, as a replay numbers them."""
    return _read(asm, kernel)[1].insts


def registers_of(asm: str, kernel: str, threads: int) -> int:
    """The registers of a thread that the replay expects ptxas to give this text, in workgroups of so many threads."""
    module, function, flow = _read(asm, kernel)
    if flow is None:
        return 1
    rows, _, effects = looked_up(function.insts, module.version, module.target, False)
    return registers(function, flow, rows, effects, entry_registers(function, threads))


def _entry(module: Module, kernel: str | None) -> Function:
    entries = [f for f in module.functions.values() if f.entry]
    if kernel is not None:
        for f in entries:
            if f.name == kernel:
                return f
        raise CompileError(
            f"no entry {kernel!r} in the text", hint=f"it has {', '.join(f.name for f in entries) or 'none'}"
        )
    if len(entries) != 1:
        raise CompileError(
            f"the text has {len(entries)} entries: {', '.join(f.name for f in entries)}", hint="say which with kernel="
        )
    return entries[0]


def _fits(module: Module, target: str) -> None:
    """The text's `.target` must run on the chip: no newer, and the same chip where it is architecture-specific."""
    chip, text = isa.parse_target(target), isa.parse_target(module.target or target)
    if text.number > chip.number or (text.arch_specific and text.number != chip.number):
        raise CompileError(f"text for {module.target} does not run on {target}")


def _three(shape: Sequence[int] | int, what: str) -> tuple[int, int, int]:
    values = (shape,) if isinstance(shape, int) else tuple(int(x) for x in shape)
    if not 1 <= len(values) <= 3 or any(v < 0 for v in values):
        raise LaunchError(f"{what} {tuple(values)} is not one to three sizes")
    return (*values, 1, 1, 1)[:3]  # type: ignore[return-value]


def _cluster(f: Function, grid: tuple[int, int, int], given: Sequence[int] | None) -> tuple[int, int, int]:
    """CTAs per cluster, which the text or the launch may fix."""
    fixed = _three(f.cluster, "cluster") if f.cluster else None
    shape = _three(given, "cluster") if given is not None else fixed or (1, 1, 1)
    if fixed is not None and shape != fixed:
        raise LaunchError(f"kernel {f.name} requires clusters of {fixed}, launched with {shape}")
    if any(g % c for g, c in zip(grid, shape)):
        raise LaunchError(f"a grid of {grid} CTAs does not divide into clusters of {shape}")
    if not 1 <= shape[0] * shape[1] * shape[2] <= 16:
        raise LaunchError(f"clusters of {shape}: a cluster has 1 to 16 CTAs")
    return shape


def _members(order: np.ndarray, grid: tuple[int, int, int], cluster: tuple[int, int, int]) -> np.ndarray:
    """The CTAs of clusters in this order, by rank within each."""
    cx, cy, cz = cluster
    nx, ny = grid[0] // cx, grid[1] // cy
    x, y, z = order % nx, order // nx % ny, order // (nx * ny)
    rank = np.arange(cx * cy * cz)
    px = x[:, None] * cx + rank % cx
    py = y[:, None] * cy + rank // cx % cy
    pz = z[:, None] * cz + rank // (cx * cy)
    return (px + grid[0] * (py + grid[1] * pz)).reshape(-1)


def _check_launch(f: Function, block: tuple[int, int, int]) -> None:
    threads = block[0] * block[1] * block[2]
    if not 1 <= threads <= 1024:
        raise LaunchError(f"{threads} threads per CTA", hint="a CTA has 1 to 1024 threads")
    if f.reqntid:
        wanted = (*f.reqntid, 1, 1)[:3]
        if wanted != block:
            raise LaunchError(f"kernel {f.name} requires blocks of {wanted}, launched with {block}")
    if f.maxntid:
        limit = int(np.prod(f.maxntid))
        if threads > limit:
            raise LaunchError(f"kernel {f.name} allows {limit} threads per CTA, launched with {threads}")


def _chip(target: str) -> Chip | None:
    """The limits of a target, where they are known."""
    number = isa.parse_target(target).number
    return next((c for c in CHIPS if c.number == number), None)


def _check_shared(m: Machine, target: str) -> None:
    chip = _chip(target)
    if chip is not None and m.shared_bytes > chip.shared_block:
        raise LaunchError(f"{m.shared_bytes} bytes of shared memory: a CTA on {target} has {chip.shared_block}")


def _pack(params: list[Param], args: Sequence[Any], memory: GlobalMemory) -> np.ndarray:
    """The parameter block. Arrays are mapped into memory, everything else goes by value."""
    if len(params) != len(args):
        raise LaunchError(f"the kernel has {len(params)} parameters, {len(args)} arguments were given")
    size = max([p.offset + p.size for p in params], default=0)
    block = np.zeros(max(size, 1), np.uint8)
    for p, a in zip(params, args):
        data = _bytes_of(p, a, memory)
        if len(data) != p.size:
            raise LaunchError(f"parameter {p.name} has {p.size} bytes, the argument {len(data)}")
        block[p.offset : p.offset + p.size] = np.frombuffer(data, np.uint8)
    return block


def _name(p: Param) -> str:
    """What findings call an array: the user's name, where the text is ours."""
    return p.name.removeprefix("param_") or p.name


def _bytes_of(p: Param, a: Any, memory: GlobalMemory) -> bytes:
    if a is None:
        return bytes(p.size)
    if isinstance(a, bytes | bytearray):
        return bytes(a)
    if isinstance(a, TensorMap):
        if p.size != BYTES or p.align % ALIGNMENT:
            raise LaunchError(f"parameter {p.name} is no tensor map: {BYTES} bytes aligned to {ALIGNMENT} are needed")
        return encode(a.spec, memory.add(a.array, _name(p)) + a.shift)
    if isinstance(a, np.ndarray) and a.ndim == 0 and p.size == a.itemsize and p.size != 8:
        return a.tobytes()
    if isinstance(a, np.ndarray):
        if p.size != 8:
            raise LaunchError(f"parameter {p.name} has {p.size} bytes and cannot hold the address of an array")
        return memory.add(a, _name(p)).to_bytes(8, "little")
    if isinstance(a, np.generic):
        return a.tobytes()
    if isinstance(a, bool | int):
        return (int(a) & ((1 << 8 * p.size) - 1)).to_bytes(p.size, "little")
    if isinstance(a, float):
        return {4: np.float32, 8: np.float64}[p.size](a).tobytes()
    raise LaunchError(
        f"argument of type {type(a).__name__} for parameter {p.name}",
        hint="arrays, NumPy scalars, tensor maps, bytes or None",
    )


def _spins(f: Function) -> bool:
    """Whether CTAs may wait for each other: a loop may watch memory through an acquiring, volatile or atomic access."""
    words = ("acquire", "volatile", "relaxed", "cas")
    return any(i.name.startswith(("ld.", "atom.")) and any(w in i.name.split(".") for w in words) for i in f.insts)
