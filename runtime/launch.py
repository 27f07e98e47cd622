"""Launching: a compiled kernel and its arguments in, changed arrays out.

`launch` runs what `prepare` has worked out on a GPU or on the emulator; `bind` keeps everything for launching again.
This is the long way, which checks everything; `dispatch` has the short one for calls that have been made before.

Invariant: a launch that raises has left the arrays as they were, or its error names those that are undefined.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from wavedsl.ir.array_info import NEAR
from wavedsl.ir.called import Argument
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime import arrays, devices
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.devices import Device
from wavedsl.runtime.emulator.report import EmulationReport
from wavedsl.runtime.on_emulator import run_on_emulator
from wavedsl.runtime.prepare import Call, Launchable, prepare

_COMPILED: weakref.WeakKeyDictionary[Any, dict[Any, Launchable]] = weakref.WeakKeyDictionary()
"""Kernel object → what it was compiled to, by target and by what of the arguments the text may rely on."""


def launch_kernel(kernel: Any, arguments: Mapping[str, Any], dispatch: Any = None) -> None:
    """What calling a kernel object does: compile for these arguments and their device if need be, and launch.

    `dispatch` remembers the call: the kernel's own, or that of the tuned kernel which chose this one for it.
    """
    compiled, device = _compiled(kernel, arguments)
    values = list(arguments.values())
    call = prepare(compiled, values)
    _launch(compiled, call, device, True)
    if call.place[0] != "cpu" and 0 not in call.grid and not compiled.sites:
        driver = devices.open_driver(device.kind, device.index)
        function = driver.load(compiled.asm, compiled.target, compiled.name, compiled.shared_bytes)
        remembering = kernel.dispatch if dispatch is None else dispatch
        remembering.remember(kernel, compiled, values, call, driver, function)


def bind_kernel(kernel: Any, arguments: Mapping[str, Any]) -> Callable[[], None]:
    """What `kernel.bind` does: see `bind`."""
    compiled, device = _compiled(kernel, arguments)
    return bind(compiled, list(arguments.values()), device)


def device_of(arguments: Mapping[str, Any]) -> Device:
    """Where a call with these arguments goes: the device where they lie, or the default."""
    return devices.for_place(*arrays.common_place(_references(arguments)))


def _references(arguments: Mapping[str, Any]) -> list[tuple[str, ArrayRef]]:
    """The arguments that are arrays, by name. LaunchError, which names it, for one whose memory cannot be had."""
    found = []
    for name, value in arguments.items():
        if _is_array(value):
            with Argument(name):
                found.append((name, arrays.describe(value, name)))
    return found


def target_of(arguments: Mapping[str, Any]) -> str:
    """The target that a call with these arguments compiles for."""
    return device_of(arguments).target


def _is_array(value: Any) -> bool:
    return arrays.is_array(value) and not (isinstance(value, np.ndarray) and value.ndim == 0)


def forget(kernel: Any) -> None:
    """Let the next call of this kernel object compile anew."""
    _COMPILED.pop(kernel, None)


def compile_ahead(kernel: Any, arguments: Mapping[str, Any], target: str | None = None) -> Launchable:
    """What a call with such arguments will find: compiled now if need be, for `target` or their device."""
    return _compiled(kernel, arguments, target, asked=True)[0]


def _compiled(
    kernel: Any, arguments: Mapping[str, Any], target: str | None = None, asked: bool = False
) -> tuple[Launchable, Device]:
    """The text for these arguments, from the table of those met before or compiled, and the device that it runs on."""
    kernel.refresh()
    refs: list[tuple[str, ArrayRef]] = []
    key: list[Any] = []
    scalars = kernel.scalars
    for name, value in arguments.items():
        if name in scalars or not _is_array(value):  # an array where a number is asked for is refused by its name
            key.append(type(value))
            continue
        with Argument(name):
            ref = arrays.describe(value, name)
        refs.append((name, ref))
        # Host arrays are copied to aligned memory before they are used: only what lies on a device specialises.
        alignment = 16 if ref.place == "cpu" else arrays.divisibility(ref.pointer)
        shape, strides = _relied_on(kernel, name, ref)
        low, high = ref.extent_bytes()
        key.append((ref.storage, shape, strides, alignment, high - low > NEAR))
    device = devices.for_place(*arrays.common_place(refs)) if target is None else Device("emulator", 0, target)
    table = _COMPILED.setdefault(kernel, {})
    full_key = (device.target, *key)
    compiled = table.get(full_key)
    if compiled is None:
        why = "it was asked for" if asked else _why(list(arguments), full_key, table, kernel.forgotten)
        compiled = table[full_key] = kernel.compile_cached(arguments, device.target, why, asked)
    return compiled, device


def _why(names: Sequence[str], key: tuple[Any, ...], table: Mapping[tuple[Any, ...], Any], forgotten: str) -> str:
    """What a call has that no compiled kernel fits: against the one that differs least. `forgotten`: why those from
    before do not count."""
    known = [k for k in table if k[0] == key[0]]
    if not table:
        return forgotten or "first call in this process"
    if not known:
        return f"first call for {key[0]}"
    near = min(known, key=lambda k: sum(a != b for a, b in zip(k[1:], key[1:])))
    said = []
    for name, new, old in zip(names, key[1:], near[1:]):
        if new == old:
            continue
        if not isinstance(new, tuple) or not isinstance(old, tuple):
            said.append(f"`{name}` is another kind of argument")
            continue
        for what, a, b in zip(("dtype", "shape", "strides", "alignment", "beyond 4 GiB"), new, old):
            if what == "shape" and _laid_out(new, old):
                continue
            if a != b:
                said.append(f"`{name}` has {what} {_sizes(a)}, not {_sizes(b)}")
                break  # strides follow from the shape
    return "; ".join(said)


def _laid_out(new: tuple[Any, ...], old: tuple[Any, ...]) -> bool:
    """Whether another order of dimensions in memory is what makes arrays different: what divides run-time extents is
    relied on along the contiguous dimension alone, so it differs because strides do, not the other way round."""

    def fixed(a: Sequence[Any], b: Sequence[Any]) -> bool:
        return len(a) != len(b) or any(x != y and not (isinstance(x, tuple) and isinstance(y, tuple))
                                       for x, y in zip(a, b))  # fmt: skip

    return not fixed(new[1], old[1]) and fixed(new[2], old[2])


def _sizes(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return "(" + ", ".join(f"{n[0]} {n[1]}" if isinstance(n, tuple) else str(n) for n in value) + ")"


def _relied_on(kernel: Any, name: str, ref: ArrayRef) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Extents and byte strides as far as compiled text depends on them: of run-time ones only what divides them.

    Strides outside a run-time dimension follow from it, so they are run-time arguments as well.
    """
    dynamic = kernel.dynamic
    if not dynamic:
        return ref.shape, arrays.byte_strides(ref)
    dims = kernel.memory_dims(name)
    shape: list[Any] = list(ref.shape)
    strides: list[Any] = list(arrays.byte_strides(ref))
    outside = False
    for i in reversed(range(len(dims))):
        if outside:
            strides[i] = ("a multiple of", math.gcd(strides[i], 16))
        if dims[i] in dynamic:
            contiguous = strides[i] == ref.storage.itemsize
            shape[i] = ("a multiple of", math.gcd(shape[i], 16) if contiguous else 1)
            outside = True
    return tuple(shape), tuple(strides)


def launch(
    compiled: Launchable, values: Sequence[Any], device: Device | None = None, *, checks: Any = True
) -> EmulationReport | None:
    """Run the kernel on its arguments; outputs are arguments. The emulator's report, None from a GPU.

    `device` is where NumPy arrays go; arrays on a GPU run there. Raises LaunchError, and EmulationError for findings.
    """
    return _launch(compiled, prepare(compiled, values), device, checks)


def _launch(compiled: Launchable, call: Call, device: Device | None, checks: Any) -> EmulationReport | None:
    if 0 in call.grid:
        return EmulationReport()
    device = _choose(call, device)
    if device.kind == "emulator":
        return run_on_emulator(compiled, call, checks, in_place=False)
    from wavedsl.runtime.on_gpu import run_on_gpu  # the emulator needs no driver

    run_on_gpu(compiled, call, device)
    return None


def bind(compiled: Launchable, values: Sequence[Any], device: Device | None = None) -> Callable[[], None]:
    """A function that launches again with the same arguments, on the stream that is then current: nothing is checked
    or decided anew on a GPU."""
    call = prepare(compiled, values)
    device = _choose(call, device)
    if 0 in call.grid or device.kind == "emulator" or call.place[0] == "cpu" or compiled.sites:

        def bound() -> None:
            if 0 not in call.grid:
                _run(compiled, call, device)

        return bound
    from wavedsl.runtime.on_gpu import Bound

    return Bound(compiled, call, devices.open_driver(device.kind, device.index), values)


def _run(compiled: Launchable, call: Call, device: Device) -> None:
    if device.kind == "emulator":
        run_on_emulator(compiled, call, True, in_place=False)
    else:
        from wavedsl.runtime.on_gpu import run_on_gpu

        run_on_gpu(compiled, call, device)


def _choose(call: Call, device: Device | None) -> Device:
    """Where the call runs: with its arrays if they lie on a GPU, else on `device` or the default one."""
    place, index = call.place
    if place == "cpu":
        return device if device is not None else devices.default()
    if device is not None and (device.kind, device.index) != (place, index):
        raise LaunchError(
            f"the arguments lie on {place}:{index}, but the launch is for {device}",
            hint=f"pass host arrays, or leave the device to the arguments ({place}:{index})",
        )
    return devices.for_place(place, index)
