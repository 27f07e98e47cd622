"""What a worker does with one candidate: compile it, predict it, check it, count its clocks. No state, no GPU.

In: a `Task`. Out: a dict of JSON values with `status`: `ok`, `refused` (a WaveError), or `wrong` (differs from the
reference, or the emulator found a defect). Everything else that goes wrong is an exception.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
import sympy

from wavedsl.codegen import is_amd
from wavedsl.collector import PAUSED
from wavedsl.ir.cuts.register_file import BEYOND
from wavedsl.ir.errors import ConstraintError, EmulationError, WaveError
from wavedsl.ir.product import Product
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.symbols import AddressSpace, normalise
from wavedsl.runtime import spill_warning
from wavedsl.tuning.candidates import Candidate
from wavedsl.tuning.kernel_ref import KernelRef

CHECK_LOOPS = 3
"""Whole trips of a loop that a check runs, besides a ragged last one."""


class BadReference(ConstraintError):
    """What judges candidates cannot: nothing is said of them."""


@dataclass(frozen=True)
class Task:
    """One candidate of one kernel for one chip. `dims`: extents and fixed symbols by name; `spaces` the address spaces
    among them; `dynamic`: dimensions that stay run-time arguments."""

    ref: KernelRef
    candidate: Candidate
    target: str
    product: Product
    dims: tuple[tuple[str, int], ...]
    spaces: tuple[tuple[str, str], ...] = ()
    dynamic: tuple[str, ...] = ()
    reference: Callable[..., Any] | None = None
    seed: int = 0

    def symbols(self) -> dict[Any, Any]:
        """Extents and the candidate's values by symbol."""
        values: dict[Any, Any] = {_symbol(n): v for n, v in (*self.dims, *self.candidate.subs)}
        return values | {_symbol(n): AddressSpace[space] for n, space in self.spaces}

    def kernel(self) -> Any:
        """The kernel with the candidate's choice."""
        return self.ref.load().variant(self.candidate)

    def compiled(self, dims: Mapping[Any, Any] | None = None) -> Any:
        """The candidate compiled for `dims` (default: its own), run-time dimensions left open. Unlike
        `Kernel.compile`, ptxas is not asked about registers: a search tries many that lack some."""
        from wavedsl.compiler import compile_kernel

        values = self.symbols() if dims is None else dims
        dynamic = [_symbol(n) for n in self.dynamic]
        subs = {k: v for k, v in values.items() if k not in dynamic}
        return compile_kernel(self.kernel(), None, target=self.target, subs=subs, dynamic=dynamic)


def _symbol(name: str) -> Any:
    return normalise(sympy.Symbol(name))


def compile_candidate(task: Task) -> dict[str, Any]:
    """Compile and predict: `predicted` seconds by the roofline, `issue_seconds` those of the fullest unit alone,
    `lacks` registers that the prediction takes for granted, `text` the digest of the target text."""
    return compiled_and_predicted(task)[1]


def compiled_and_predicted(task: Task) -> tuple[Any, dict[str, Any]]:
    """The compiled kernel, None where the compiler refuses, and what `compile_candidate` says of it."""
    from wavedsl.analysis.roofline import analyze_compiled

    started, cpu = time.perf_counter(), time.process_time()
    try:
        with PAUSED:
            compiled = task.compiled()
            record = analyze_compiled(compiled, task.symbols(), product=task.product)
    except WaveError as error:
        return None, {"status": "refused", "reason": error.message}
    return compiled, {
        "status": "ok",
        "predicted": record.seconds,
        "issue_seconds": record.seconds_by["issue"],
        "bound": record.bound,
        "lacks": registers_lacking(compiled),
        "shared_bytes": compiled.shared_bytes,
        "occupancy": compiled.resources.occupancy if is_amd(task.target) else None,
        "text": hashlib.sha256(compiled.asm.encode()).hexdigest()[:16],
        "compile_seconds": time.perf_counter() - started,
        "compile_cpu_seconds": time.process_time() - cpu,
    }


def registers_lacking(compiled: Any) -> int:
    """Registers of a lane that values of loops seem to have beyond those there are: the cycle model knows of none that
    ptxas spills. An H200 took five times as long as predicted where products lacked 8. 0 where ptxas, if it is at hand,
    finds room."""
    lack: int = compiled.kernel_ir.notes.get(BEYOND, 0)
    if not lack:
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate's spills are no news to who tunes
        spills = compiled.resources.spills
    return lack if spills is None or spills > spill_warning.FEW else 0


def check_candidate(task: Task) -> dict[str, Any]:
    """Run the candidate on the emulator with all checks, on a small problem that keeps its ragged edges.

    Arguments are whole numbers, so that sums are exact where the dtypes hold them; the reference is the graph
    evaluator, or the user's function of the arguments by name, which changes them in place.
    """
    started = time.perf_counter()
    dims = small_problem(task.kernel(), task.symbols())
    try:
        compiled = task.compiled(dims)
        arguments, want = right_outputs(task, dims)
        compiled.emulate(**arguments)
    except EmulationError as error:
        return {"status": "wrong", "reason": error.message.splitlines()[0]}
    except BadReference:
        raise
    except WaveError as error:
        return {"status": "refused", "reason": error.message}
    for p in outputs_of(compiled):
        reason = difference(arguments[p.name], want[p.name], p.dtype)
        if reason:
            return {"status": "wrong", "reason": f"{p.name}: {reason}"}
    return {"status": "ok", "check_seconds": time.perf_counter() - started}


def right_outputs(task: Task, dims: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments for extents `dims` whose outputs are poisoned, and what the reference makes of them. BadReference where
    that raises, or changes nothing."""
    from wavedsl.find_kernel import make_arguments

    kernel = task.kernel()
    arguments = make_arguments(kernel, dims, task.seed, True)
    want = {n: v.copy() if hasattr(v, "copy") else v for n, v in arguments.items()}
    if task.reference is not None:
        name = getattr(task.reference, "__name__", "the function")
        try:
            task.reference(**want)
        except Exception as error:
            said = f"the reference {name} raised {type(error).__name__}: {error}"
            raise BadReference(said, hint=f"it is called as {name}({', '.join(f'{n}=…' for n in want)})") from error
        if all(_same(want[n], v) for n, v in arguments.items()) and 0 not in dims.values():
            hint = "it puts the right outputs into its array arguments: c[...] = …"
            raise BadReference(f"the reference {name} left every argument as it was", hint=hint)
    else:
        kernel.evaluate(**want, subs=dims)
    return arguments, want


def _same(a: Any, b: Any) -> bool:
    """Whether an argument has the bytes that it had."""
    if not isinstance(a, np.ndarray):
        return True
    return a.tobytes() == b.tobytes()


def outputs_of(compiled: Any) -> list[Any]:
    """The parameters that a compiled kernel writes to."""
    return [p for p in compiled.params if not p.source and p.access in ("write", "readwrite")]


def difference(got: np.ndarray, want: np.ndarray, dtype: Any) -> str:
    """Why two arrays differ by more than rounding in `dtype` explains; empty where they do not."""
    if got.size == 0:
        return ""
    left, right = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(left - right))
    error = np.where(np.isnan(error), np.inf, error)
    scale = float(np.max(np.abs(right[np.isfinite(right)]), initial=1.0))
    allowed = 0.0 if dtype.is_int else 8 * 2.0 ** -(dtype.mantissa + 1) * scale
    worst = float(error.max())
    if worst <= allowed:
        return ""
    at = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
    return f"differs by {worst:.3g} at {at}, {allowed:.3g} is allowed"


def small_problem(kernel: Any, values: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same kernel on fewer tiles: one whole tile and the ragged rest of a workgroup dimension, a few trips. The
    grid axes keep as many tiles as a cluster has workgroups along them."""
    from wavedsl.ir.dataflow.constraints import TilingConstraint, WorkgroupConstraint
    from wavedsl.ir.symbols import evaluate_int

    out = dict(values)
    schedule = getattr(kernel, "schedule", None)
    cluster = schedule.cluster if schedule is not None and schedule.cluster else ()
    for c in kernel.constraints:
        extent = values.get(getattr(c, "dim", None))
        if not isinstance(extent, int) or not isinstance(c, (TilingConstraint, WorkgroupConstraint)):
            continue
        tile = evaluate_int(c.tile, values)
        whole = CHECK_LOOPS if isinstance(c, TilingConstraint) else (2 if tile == 1 else 1)
        if isinstance(c, WorkgroupConstraint) and c.axis < len(cluster):
            whole = max(whole, cluster[c.axis] - (extent % tile > 0))
        out[c.dim] = min(extent, whole * tile + extent % tile)
    return out


def count_clocks(task: Task) -> dict[str, Any]:
    """Emulate the candidate's first workgroup on the whole problem; seconds of the grid by the cycle model, which
    replays it as part of the launch."""
    from wavedsl.analysis.own_clock import model_of_product
    from wavedsl.runtime.on_emulator import sample

    started = time.perf_counter()
    compiled = task.compiled()
    values = task.symbols()
    groups = prod(int(_extent(g, values)) for g in compiled.grid)
    if not groups:  # an extent is 0
        return {"status": "ok", "clocks": 0, "groups": 0, "seconds": 0.0, "emulation_seconds": 0.0}
    arguments = [_zeros(compiled, p, values) for p in compiled.params if not p.source]
    report = sample(compiled, arguments)
    clocks = report.replay(chip=model_of_product(task.product)).cycles
    return {
        "status": "ok",
        "clocks": clocks,
        "groups": groups,
        "seconds": clocks / task.product.clock,
        "emulation_seconds": time.perf_counter() - started,
    }


def _extent(expr: Any, values: Mapping[Any, Any]) -> int:
    from wavedsl.ir.symbols import evaluate_int

    return evaluate_int(expr, values)


def _zeros(compiled: Any, p: Any, values: Mapping[Any, Any]) -> Any:
    """An argument of the compiled shape, all zeros: pages that nobody writes take no memory."""
    if p.kind == "scalar":
        return 1.0 if p.dtype.is_float else 1
    shape = [_extent(d, values) for d in compiled.shapes[p.name]]
    if p.dtype.bits < 8 and p.dtype.kind != "bool" and shape:
        shape[-1] = -(-shape[-1] * p.dtype.bits // 8)
    return np.zeros(shape, p.dtype.storage)
