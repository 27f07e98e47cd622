"""A kernel as target text: what compiling gives, launching takes, and a file or the disk cache holds.

The text is what matters; the intermediate forms are kept for inspection and are not written to files.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavedsl.codegen import is_amd
from wavedsl.ir.called import door
from wavedsl.ir.cuts.register_file import BEYOND
from wavedsl.ir.dataflow.device_log import Site
from wavedsl.ir.dataflow.graph import Graph
from wavedsl.ir.dtypes import ALL
from wavedsl.ir.errors import LaunchError
from wavedsl.ir.kernel.kernel_ir import Kernel as KernelIR
from wavedsl.ir.kernel.kernel_ir import Param, TensorBoxes
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.ir.source import here
from wavedsl.targets import get_target

if TYPE_CHECKING:
    from wavedsl.ir.regions.decisions import Decisions


@dataclass(eq=False)
class CompiledKernel:
    """A kernel as target text, ready to launch. `grid` holds workgroups per axis (expressions of dynamic extents),
    `block` the threads per workgroup, `params` the arguments in order, then hidden ones."""

    target: str
    name: str
    asm: str
    grid: tuple[Any, ...]
    block: tuple[int, int, int]
    shared_bytes: int
    params: list[Param]
    resources: Any
    shapes: dict[str, tuple[Any, ...]]
    expects: dict[str, tuple[tuple[int | None, ...], tuple[int | None, ...], int]]
    divisors: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Per array argument, what its run-time extents and byte strides are multiples of."""
    tiles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Per array argument with run-time strides, the elements that are addressed from one place, per dimension."""
    sites: tuple[Site, ...] = ()
    """What `device_print` and `device_assert` report, by the numbers in the log; empty where there is no log."""
    location: Loc | None = None
    graph: Graph | None = None
    kernel_ir: KernelIR | None = None
    times: dict[str, float] = field(default_factory=dict)
    """Seconds per phase of the compile."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Values of arguments that a call leaves out."""

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target}: grid {self.grid}, block {self.block}>"

    def __reduce__(self) -> Any:
        """What files hold: without the graph and the kernel IR."""
        return from_json, (self.to_json(),)

    @property
    def decisions(self) -> Decisions | None:
        """The form of each copy and product, the place of each shared buffer, what the kernel needs and why; None for a
        kernel that was loaded."""
        return None if self.kernel_ir is None else self.kernel_ir.notes.get("decisions")

    @property
    def argument_names(self) -> list[str]:
        """The user's arguments, in order."""
        return [p.name for p in self.params if not p.source]

    def check_registers(self) -> None:
        """Ask ptxas, where it is at hand and registers seem to lack, which warns of what it spills."""
        lack = self.kernel_ir.notes.get(BEYOND, 0) if self.kernel_ir is not None else 0
        if lack:
            self.resources.ask()

    @door
    def binary(self) -> bytes:
        """The text assembled: a cubin or an hsaco. Raises ToolchainError where no assembler is at hand."""
        from wavedsl.runtime import binaries

        return binaries.binary(self.asm, self.target, self.name)

    @door
    def emulate(self, *args: Any, checks: Any = True, **kwargs: Any) -> Any:
        """Run the text on the emulator, arrays in place; the report. Raises EmulationError for findings
        (`checks=True`)."""
        from wavedsl.runtime.on_emulator import emulate

        return emulate(self, self._arguments(args, kwargs), checks=checks)

    @door
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch. Raises LaunchError if shapes or strides differ from what the text was compiled for."""
        from wavedsl.runtime import devices
        from wavedsl.runtime.launch import launch

        default = devices.default()
        fits = default.target == self.target
        launch(self, self._arguments(args, kwargs), default if fits else devices.parse(f"emulator:{self.target}"))

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        names = self.argument_names
        values: dict[str, Any] = dict(zip(names, args))
        for key, value in kwargs.items():
            if key not in names or key in values:
                takes = f"it takes {', '.join(names)}, and emulate checks="
                raise LaunchError(f"{self.name}: unexpected argument {key}", self.location, takes)
            values[key] = value
        values = {**self.defaults, **values}
        if len(args) > len(names) or len(values) < len(names):
            raise LaunchError(
                f"{self.name} takes {len(names)} arguments, got {len(args) + len(kwargs)}",
                self.location,
                f"{self.name}({', '.join(names)})",
            )
        return [values[n] for n in names]

    @door
    def save(self, path: str | Path) -> None:
        """Write the text and what a launch needs as one JSON file, to be read by `wd.load`. LaunchError where it cannot
        be written."""
        import json

        text = json.dumps(self.to_json(), indent=1)
        try:
            Path(path).write_text(text)
        except OSError as error:
            said = f"save: {path}: {error.strerror or error}"
            raise LaunchError(said, here(calls=False), "a file in a folder that exists") from error

    @door
    def c_header(self, prefix: str | None = None) -> str:
        """C (and C++) text with the binary, a struct of the arguments, and functions that launch: for programs without
        Python. Names begin with `prefix` (default: the kernel's name). Raises LaunchError for a kernel that prints or
        asserts, ToolchainError where no assembler is at hand."""
        from wavedsl.c_header import c_header

        return c_header(self, prefix)

    def to_json(self) -> dict[str, Any]:
        """Everything but the graph and the kernel IR as JSON values."""
        return {
            "format": 3,
            "target": self.target,
            "name": self.name,
            "asm": self.asm,
            "grid": [g if isinstance(g, int) else str(g) for g in self.grid],
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "params": [
                [p.name, p.kind, p.dtype.name, p.offset, p.size, p.source, p.access, *_map_json(p)] for p in self.params
            ],
            "shapes": {k: [d if isinstance(d, int) else str(d) for d in v] for k, v in self.shapes.items()},
            "expects": {k: [list(e), list(s), a] for k, (e, s, a) in self.expects.items()},
            "divisors": {k: [list(e), list(s)] for k, (e, s) in self.divisors.items()},
            "tiles": {k: list(v) for k, v in self.tiles.items()},
            "defaults": {k: v for k, v in self.defaults.items() if isinstance(v, (bool, int, float))},
            "sites": [dataclasses.asdict(s) for s in self.sites],
            "resources": resources_json(self.resources),
        }


def resources_json(resources: Any) -> dict[str, Any]:
    """The resources that need no assembler, as JSON values."""
    if dataclasses.is_dataclass(resources) and not isinstance(resources, type):
        return dataclasses.asdict(resources)
    return {
        "instructions": resources.instructions,
        "loops": [dataclasses.asdict(loop) for loop in resources.loops],
        "shared_bytes": resources.shared_bytes,
    }


def resources_from_json(data: Mapping[str, Any]) -> Any:
    """The resources of the kernel that `data` describes; on NVIDIA they assemble its text when asked for registers."""
    values = dict(data["resources"])
    if is_amd(data["target"]):
        from wavedsl.codegen.amdgcn.resources import LoopResources, Resources, Spilled

        values["loops"] = [LoopResources(**loop) for loop in values["loops"]]
        values["spilled"] = Spilled(**values.get("spilled", {}))
        return Resources(**values)
    from wavedsl.codegen.ptx.resources import PtxResources
    from wavedsl.codegen.ptx.text import LoopCount

    return PtxResources(
        data["asm"],
        values["instructions"],
        [LoopCount(**{**loop, "location": _loc_from_json(loop["location"])}) for loop in values["loops"]],
        values["shared_bytes"],
        math.prod(data["block"]),
        get_target(data["target"]).occupancy,
        assembler(data["target"], data["name"]),
    )


def _map_json(param: Param) -> list[Any]:
    """A tensor map's description as further fields of its parameter."""
    m = param.map
    return [] if m is None else [m.array, list(m.order), list(m.box), m.span, m.ended, m.paired]


def _map_from_json(fields: Sequence[Any]) -> TensorBoxes | None:
    if not fields:
        return None
    array, order, box, span, ended, paired = fields
    return TensorBoxes(array, tuple(order), tuple(box), span, ended, paired)


def _loc_from_json(data: Mapping[str, Any] | None) -> Loc | None:
    """A location with its call sites, from what `dataclasses.asdict` made of it."""
    return None if data is None else Loc(**{**data, "call_site": _loc_from_json(data["call_site"])})


def from_json(data: Mapping[str, Any]) -> CompiledKernel:
    """The kernel that `to_json` described."""
    if not isinstance(data, dict) or data.get("format") != 3:
        raise LaunchError("not a compiled kernel, or one of another version", hint="save it again with this version")
    from wavedsl.ir import symbols

    def parse(text: Any) -> Any:
        return text if isinstance(text, int) else symbols.parse(text)

    return CompiledKernel(
        target=data["target"],
        name=data["name"],
        asm=data["asm"],
        grid=tuple(parse(g) for g in data["grid"]),
        block=tuple(data["block"]),
        shared_bytes=data["shared_bytes"],
        params=[
            Param(n, k, ALL[d], o, s, src, acc, _map_from_json(rest))
            for n, k, d, o, s, src, acc, *rest in data["params"]
        ],
        resources=resources_from_json(data),
        shapes={k: tuple(parse(d) for d in v) for k, v in data["shapes"].items()},
        expects={k: (tuple(e), tuple(s), a) for k, (e, s, a) in data["expects"].items()},
        divisors={k: (tuple(e), tuple(s)) for k, (e, s) in data["divisors"].items()},
        tiles={k: tuple(v) for k, v in data["tiles"].items()},
        sites=tuple(
            Site(s["kind"], s["text"], tuple(s["dims"]), s["dtype"], _loc_from_json(s["location"]))
            for s in data["sites"]
        ),
        defaults=data.get("defaults", {}),
    )


@door
def load(path: str | Path) -> CompiledKernel:
    """A kernel written by `CompiledKernel.save`. Raises LaunchError when the file is not one."""
    import json

    if not isinstance(path, (str, os.PathLike)):
        raise LaunchError(
            f"load: {path!r} is no path", here(), "wd.load reads a file of CompiledKernel.save; in a kernel, wd.read(a)"
        )
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        said = f"load: {path}: {error.strerror or error}"
        raise LaunchError(said, here(calls=False), "a file that CompiledKernel.save wrote") from error
    except ValueError as error:
        raise LaunchError(
            f"load: {path} is no compiled kernel", here(calls=False), "a file that CompiledKernel.save wrote"
        ) from error
    try:
        return from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LaunchError(
            f"load: {path} lacks a part of a compiled kernel, or has it otherwise", here(calls=False),
            "a file that CompiledKernel.save wrote, as it was written",
        ) from error  # fmt: skip


def assembler(target: str, name: str) -> Any:
    """What the PTX resources of kernel `name` call when registers and spills are first asked for."""

    def assemble(text: str) -> Any:
        from wavedsl.runtime import binaries, toolchain

        if toolchain.find_cuda_tool("ptxas") is None:
            return None
        return binaries.ptx(text, target, name).entries[0]

    return assemble
