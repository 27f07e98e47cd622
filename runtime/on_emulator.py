"""Runs a prepared call on the emulator: the very text, on the user's arrays or on copies of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from wavedsl.ir.dataflow.device_log import SOURCE, clear
from wavedsl.ir.errors import EmulationError, LaunchError
from wavedsl.runtime.arrays import ArrayRef, covering_bytes, view
from wavedsl.runtime.device_log import log_of, speak
from wavedsl.runtime.emulator.report import EmulationReport, Finding
from wavedsl.runtime.parameters import tensor_map
from wavedsl.runtime.prepare import Call, Launchable, prepare, written_arrays
from wavedsl.runtime.workspace import Room


def emulate(compiled: Launchable, values: Sequence[Any], *, checks: Any = True) -> EmulationReport:
    """Run the kernel's text on the emulator, host arrays changed in place, findings or not."""
    call = prepare(compiled, values)
    if 0 in call.grid:
        return EmulationReport()
    if call.place[0] != "cpu":
        raise LaunchError(
            f"the emulator runs on host memory, but the arguments lie on {call.place[0]}:{call.place[1]}",
            compiled.location,
            "copy them to the host",
        )
    return run_on_emulator(compiled, call, checks, in_place=True)


def sample(compiled: Launchable, values: Sequence[Any]) -> EmulationReport:
    """Run only one workgroup, or cluster, of the grid on the emulator, unchecked: for the report's clocks, not for
    results. It is the first one; where workgroups share the trips of all tiles, one that has most to do. Where they
    share a loop's trips it is the last to arrive, which adds all parts, at one of the tiles that it comes to; of a unit
    that has several workgroups, the others are such as come before."""
    call = prepare(compiled, values)
    if 0 in call.grid:
        return EmulationReport()
    others = _others(compiled, [value for value in call.values if isinstance(value, Room)])
    begin = _busiest(compiled)

    tickets: list[np.ndarray] = []

    def first(arrived: int, tile: int | None = None) -> EmulationReport:
        """Where so many others have arrived: at each tile, or at one."""

        def made(room: Room) -> np.ndarray:
            array = room.fresh(unwritten=False, arrived=arrived if tile is None else 0)
            if room.counters:
                tickets.append(array.reshape(-1))
                if tile is not None:
                    tickets[-1][tile] = arrived
            return array

        return run_on_emulator(compiled, call, False, in_place=True, workgroups=1, begin=begin, made=made)

    report = first(others)
    if others:
        added = np.flatnonzero(tickets[-1] == 0)  # the last to arrive leaves a counter as it was before the launch
        if len(added) > 1:
            report = first(others, int(added[-1]))
        report.set_others(lambda: first(0))
    return report


def _others(compiled: Launchable, rooms: Sequence[Room]) -> int:
    """Workgroups that share the first one's tile with it."""
    return max(_marks(compiled, "one_of") or [r.shape[0] for r in rooms if not r.counters], default=1) - 1


def _busiest(compiled: Launchable) -> int:
    """The number of a workgroup that has most to do, as far as the kernel says."""
    cluster = getattr(getattr(compiled, "kernel_ir", None), "cluster", 1)
    return max(_marks(compiled, "busiest"), default=0) * cluster


def _marks(compiled: Launchable, name: str) -> list[int]:
    """What branches of the kernel say by this name of the workgroups that take them."""
    kernel = getattr(compiled, "kernel_ir", None)
    return [] if kernel is None else [op.attrs[name] for op in kernel.body.walk() if name in op.attrs]


def run_on_emulator(
    compiled: Launchable, call: Call, checks: Any, *, in_place: bool, workgroups: int | None = None,
    begin: int = 0, made: Callable[[Room], np.ndarray] = Room.fresh,
) -> EmulationReport:  # fmt: skip
    """Run on the emulator: on the arrays themselves if `in_place`, else on copies, stored when there is no finding.
    `workgroups`: so many of the grid from number `begin` on, all if None; `made`: what makes the arrays that a kernel
    asks for beside its own.

    A copy keeps the strides. Compiled text may rely on 16-byte alignment of host arrays, as a GPU's allocator gives
    it, so an array that lies otherwise is copied in any case.
    """
    from wavedsl.runtime import emulator
    from wavedsl.runtime.tensor_map import TensorMap

    args: list[Any] = []
    if compiled.sites:
        clear(log_of(compiled, call)[1])
    seen: dict[int, Any] = {}
    for value in call.values:
        if isinstance(value, ArrayRef) and id(value) in seen:
            args.append(seen[id(value)])
        elif isinstance(value, Room):
            args.append(made(value))
        elif not isinstance(value, ArrayRef) or (in_place and value.pointer % 16 == 0):
            args.append(value.numpy() if isinstance(value, ArrayRef) else value)
        else:
            args.append(view(value, _aligned_copy(covering_bytes(value))))
        if isinstance(value, ArrayRef):
            seen[id(value)] = args[-1]
    given = [
        TensorMap(arg, **tensor_map(param, value)) if param.map is not None and isinstance(value, ArrayRef) else arg
        for param, value, arg in zip(compiled.params, call.values, args)
    ]
    finished = False
    try:
        report = emulator.run(
            compiled.asm,
            target=compiled.target,
            grid=call.grid,
            block=call.block,
            args=given,
            kernel=compiled.name,
            # Static shared memory is declared in the text; an extern array is sized at launch.
            shared_bytes=compiled.shared_bytes if ".extern .shared" in compiled.asm else 0,
            checks=checks,
            workgroups=workgroups,
            first=begin,
            kept=[i for i, value in enumerate(call.values) if isinstance(value, Room)],
        )
        left = _left_counting(compiled, call, args) if workgroups is None else []
        report.findings.extend(left)
        finished = not report.findings
        if left and checks != "report":
            raise EmulationError(left[0].message, compiled.location, report=report)
        if compiled.sites:
            at, log = log_of(compiled, call)
            log[...] = args[at]
            failures = speak(compiled, call)
            finished = finished and not failures
            if failures and checks != "report":
                raise EmulationError(failures[0].message, failures[0].location, report=report)
            report.findings.extend(Finding("assertion", f.message, location=f.location) for f in failures)
    finally:
        if finished or in_place:
            for i, _, ref in written_arrays(compiled, call):
                if args[i] is not ref.keep and compiled.params[i].source != SOURCE:
                    ref.numpy()[...] = args[i]
    return report


def _left_counting(compiled: Launchable, call: Call, args: Sequence[Any]) -> list[Finding]:
    """Counters that the kernel did not leave at 0: the next launch on the stream would count on from there."""
    found = []
    for value, array in zip(call.values, args):
        if isinstance(value, Room) and value.counters and array.any():
            tile = int(np.flatnonzero(array)[0])
            message = f"{compiled.name} leaves the counter of tile {tile} at {array[tile]}: launches begin with 0"
            found.append(Finding("assertion", message, location=compiled.location))
    return found


def _aligned_copy(data: np.ndarray) -> np.ndarray:
    """A copy of bytes that starts at a multiple of 16."""
    room = np.empty(data.size + 15, np.uint8)
    start = -room.ctypes.data % 16
    room[start : start + data.size] = data
    return room[start : start + data.size]
