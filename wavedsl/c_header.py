"""A compiled kernel as one C header: its binary, a struct of its arguments, functions that load, bind and launch it.

In: a `CompiledKernel`. Out: C11 (and C++11) text that includes nothing but the driver's header, <stdint.h>, <stddef.h>
and <string.h>, so that a program without Python can launch what was compiled. What `runtime/prepare.py` checks of a
call's arrays, the header's `…_bind` checks: alignment, divisibility, reach, the grid. What it cannot see (the arrays'
real extents, overlaps) is the caller's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any

import sympy

from wavedsl.codegen.ptx.turns import taking_turns
from wavedsl.compiled_kernel import CompiledKernel
from wavedsl.ir.array_info import NEAR
from wavedsl.ir.dataflow.device_log import SOURCE
from wavedsl.ir.dtypes import DType
from wavedsl.ir.errors import LaunchError, ToolchainError
from wavedsl.ir.kernel.kernel_ir import Param
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.parameters import FOUR, MAP_ALIGN, STRIDE
from wavedsl.runtime.prepare import ADDRESS_BITS, check_grid, largest_grid
from wavedsl.runtime.tensor_map import DATA_TYPES, FILLS, INTERLEAVES, PROMOTION, PROMOTIONS, SWIZZLES, data_type
from wavedsl.runtime.workspace import ALIGN, ROOMS, TICKETS

_RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while workspace "
    "alignas alignof bool class catch delete explicit export false friend mutable namespace new operator private "
    "protected public template this throw true try typename using virtual and or not xor linux unix".split()
)
"""Words of C and C++ that no field can be called, what compilers define, and the header's own field."""

_SCALARS = {
    "f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t",
    "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "u8": "uint8_t", "i1": "uint8_t",
}  # fmt: skip
"""C types of scalar arguments; other floats are given as their bits."""


@dataclass(frozen=True)
class _Api:
    """How a vendor's driver is called."""

    include: str
    result: str
    success: str
    module: str
    function: str
    stream: str
    load: str
    unload: str
    find: str


_CUDA = _Api(
    "<cuda.h>", "CUresult", "CUDA_SUCCESS", "CUmodule", "CUfunction", "CUstream",
    "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
)  # fmt: skip
_HIP = _Api(
    "<hip/hip_runtime_api.h>", "hipError_t", "hipSuccess", "hipModule_t", "hipFunction_t", "hipStream_t",
    "hipModuleLoadData", "hipModuleUnload", "hipModuleGetFunction",
)  # fmt: skip


def c_header(compiled: CompiledKernel, prefix: str | None = None) -> str:
    """The header's text; every name in it begins with `prefix` (default: the kernel's name).

    Raises LaunchError for a kernel that prints or asserts (Python reads what those say), for a grid that no driver
    launches and for a prefix that is no C identifier; ToolchainError where the text has to be assembled and no
    assembler is at hand.
    """
    prefix = compiled.name if prefix is None else prefix
    if not re.fullmatch(r"[A-Za-z]\w*", prefix, re.ASCII) or prefix in _RESERVED:
        raise LaunchError(f"{prefix!r} cannot begin names of C", hint="a letter, then letters, digits and _: gemm_f16")
    if all(isinstance(n, int) for n in compiled.grid):
        check_grid(compiled, (*compiled.grid, 1, 1)[:3])
    if compiled.sites:
        raise LaunchError(
            f"{compiled.name} prints or asserts, and what it has to say is read by Python",
            compiled.location,
            "take device_print and device_assert out of kernels for C",
        )
    return "\n".join(_Header(compiled, prefix).lines()) + "\n"


class _Header:
    """One header while it is written. `dims` maps each run-time dimension to its field of the struct."""

    def __init__(self, compiled: CompiledKernel, prefix: str):
        self.compiled, self.prefix = compiled, prefix
        self.cuda = compiled.target.startswith("sm")
        self.api = _CUDA if self.cuda else _HIP
        self.declared = [p for p in compiled.params if not p.source]
        self.arrays = [p for p in self.declared if p.kind != "scalar"]
        self.rooms = [p for p in compiled.params if p.source in ROOMS]
        self.turns = taking_turns(compiled.asm) if self.cuda else None
        taken: set[str] = set(_RESERVED)
        self.fields = {p.name: _fresh(p.name, taken) for p in self.declared}
        shapes = [n for p in self.arrays for n in compiled.shapes[p.name]]
        found = {s for n in (*shapes, *compiled.grid) if isinstance(n, sympy.Basic) for s in n.free_symbols}
        self.dims = {s: _fresh(str(s), taken) for s in sorted(found, key=str)}
        self.strides = {
            (p.name, axis): _fresh(f"{p.name}_stride_{axis}", taken)
            for p in self.arrays
            for axis, known in enumerate(compiled.expects[p.name][1])
            if known is None
        }

    # ------------------------------------------------------------------------------------------------- numbers

    def number(self, size: Any) -> str:
        """An integer expression of run-time dimensions as C of int64_t. All of them are 0 or more."""
        if isinstance(size, (int, sympy.Integer)):
            return str(int(size))
        if isinstance(size, sympy.Symbol):
            return f"n_{self.dims[size]}"
        if isinstance(size, (sympy.ceiling, sympy.floor)):
            above, below = (self.number(part) for part in sympy.fraction(sympy.together(size.args[0])))
            return f"(({above}{f' + ({below}) - 1' if isinstance(size, sympy.ceiling) else ''}) / ({below}))"
        if isinstance(size, (sympy.Min, sympy.Max)):
            less = "<" if isinstance(size, sympy.Min) else ">"
            first, *rest = (self.number(part) for part in size.args)
            for other in rest:
                first = f"(({first}) {less} ({other}) ? ({first}) : ({other}))"
            return first
        if isinstance(size, (sympy.Add, sympy.Mul)) and all(not a.is_Rational or a.is_Integer for a in size.args):
            return "(" + (" + " if isinstance(size, sympy.Add) else " * ").join(map(self.number, size.args)) + ")"
        raise LaunchError(f"{self.compiled.name}: no C for the size {size}", self.compiled.location)

    def extent(self, p: Param, axis: int) -> str:
        return self.number(self.compiled.shapes[p.name][axis])

    def stride(self, p: Param, axis: int) -> str:
        """In elements: a constant, or the local that holds what was given."""
        if p.source in ROOMS:
            return self.number(prod(self.compiled.shapes[p.name][axis + 1 :]))
        known = self.compiled.expects[p.name][1][axis]
        return str(known) if known is not None else f"s_{self.strides[p.name, axis]}"

    def byte_stride(self, p: Param, axis: int) -> str:
        stride, bits = self.stride(p, axis), p.dtype.storage.itemsize * 8 if not _packed(p.dtype) else p.dtype.bits
        if stride.lstrip("-").isdigit():
            return str(int(stride) * bits // 8)
        return f"{stride} * {bits // 8}" if bits % 8 == 0 else f"{stride} * {bits} / 8"

    def room_bytes(self, p: Param) -> str:
        size = f"({self.number(prod(self.compiled.shapes[p.name]))}) * {p.dtype.storage.itemsize}"
        return f"({size} + {ALIGN - 1}) / {ALIGN} * {ALIGN}"

    # --------------------------------------------------------------------------------------------------- parts

    def lines(self) -> Iterator[str]:
        from wavedsl import __version__

        name, api = self.prefix, self.api
        guard = f"WAVEDSL_{name.upper()}_H"
        yield f"/* {self.compiled.name} for {self.compiled.target}, made by wavedsl {__version__}."
        yield from (f" * {line}".rstrip() for line in self.usage())
        yield " */"
        yield from (f"#ifndef {guard}", f"#define {guard}", "", f"#include {api.include}")
        yield from ("#include <stddef.h>", "#include <stdint.h>", "#include <string.h>", "")
        yield from (
            "#ifndef WAVEDSL_ALIGN",
            "#ifdef __cplusplus",
            "#define WAVEDSL_ALIGN(bytes) alignas(bytes)",
            "#else",
        )
        yield from ("#define WAVEDSL_ALIGN(bytes) _Alignas(bytes)", "#endif", "#endif", "")
        images = self.images()
        for kind, image in images.items():
            yield from _bytes(f"{name}_{kind}", image)
        yield from self.structs()
        yield from self.loading(*images)
        if self.rooms:
            yield from self.workspace()
        yield from self.binding()
        yield from self.launching()
        yield from ("", f"#endif /* {guard} */")

    def usage(self) -> Iterator[str]:
        name = self.prefix
        given = [f".{self.fields[p.name]} = …" for p in self.declared] + [f".{f} = …" for f in self.dims.values()]
        given += [".workspace = …"] if self.rooms else []
        yield ""
        yield f"  {name}_kernel kernel;                  once per context:  {name}_load(&kernel);"
        yield f"  {name}_arguments arguments = {{{', '.join(given)}}};"
        yield f"  {name}_call call;                      once per set of arguments:"
        yield f"  const char *wrong = {name}_bind(&call, &arguments);     NULL, or what is wrong with them"
        yield f"  {name}_launch(&kernel, &call, stream);                 as often as wanted"
        yield ""
        yield "Arrays are pointers to memory of the device; their elements are where the fields say. An array that is"
        yield "written overlaps no other one."

    def images(self) -> dict[str, bytes]:
        """What the driver loads, in the order of trying: the binary, and on NVIDIA the text, for drivers that do not
        take the binary."""
        text = {"text": self.compiled.asm.encode() + b"\0"} if self.cuda else {}
        try:
            return {"binary": self.compiled.binary(), **text}
        except ToolchainError:
            if not text:
                raise
            return text

    def structs(self) -> Iterator[str]:
        name, api, compiled = self.prefix, self.api, self.compiled
        most = " unsigned int most;" if self.turns else ""
        yield f"typedef struct {{ {api.module} module; {api.function} function;{most} }} {name}_kernel;"
        yield from ("", "typedef struct {")
        for p in self.declared:
            field = self.fields[p.name]
            if p.kind == "scalar":
                c = _SCALARS.get(p.dtype.name)
                note = "" if c is not None else f" /* the bits of a {p.dtype.name} */"
                yield f"  {c or f'uint{max(p.dtype.bits, 8)}_t'} {field};{note}"
                continue
            const = "const " if p.access == "read" else ""
            sizes = ", ".join(str(n) for n in compiled.shapes[p.name])
            strides = ", ".join(
                self.strides.get((p.name, a), str(s)) for a, s in enumerate(compiled.expects[p.name][1])
            )
            align = compiled.expects[p.name][2]
            note = f"[{sizes}] of {p.dtype.name}, strides [{strides}], aligned to {align} bytes"
            yield f"  {const}void *{field}; /* {note} */"
        for dim, field in self.dims.items():
            yield f"  int64_t {field}; /* extent {dim} */"
        for (array, axis), field in self.strides.items():
            yield f"  int64_t {field}; /* stride of {array} along axis {axis} in elements; 0: row-major without gaps */"
        if self.rooms:
            yield f"  void *workspace; /* {name}_workspace_bytes, aligned to {ALIGN}; clear the first"
            yield f"                      {name}_counter_bytes before the first launch; launches leave them cleared */"
        if not (self.declared or self.dims or self.rooms):
            yield "  char nothing;"
        size = max((p.offset + p.size for p in compiled.params), default=1)
        yield f"}} {name}_arguments;"
        yield from ("", "typedef struct {", f"  WAVEDSL_ALIGN({MAP_ALIGN}) unsigned char block[{size}];")
        yield from ("  unsigned int grid[3];", f"}} {name}_call;", "")

    def loading(self, first: str, *rest: str) -> Iterator[str]:
        name, api, compiled = self.prefix, self.api, self.compiled
        yield f"static inline {api.result} {name}_load({name}_kernel *kernel) {{"
        yield f"  {api.result} status = {api.load}(&kernel->module, {name}_{first});"
        for image in rest:
            yield f"  if (status != {api.success}) status = {api.load}(&kernel->module, {name}_{image});"
        yield f"  if (status != {api.success}) return status;"
        yield f'  status = {api.find}(&kernel->function, kernel->module, "{compiled.name}");'
        dynamic = self.dynamic_shared()
        if dynamic:
            yield f"  if (status == {api.success})"
            yield "    status = cuFuncSetAttribute(kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,"
            yield f"                                {dynamic});"
        if self.turns:
            yield from self.at_once(*self.turns, dynamic)
        yield f"  if (status != {api.success}) (void){api.unload}(kernel->module);"
        yield from ("  return status;", "}", "")
        yield f"static inline {api.result} {name}_unload({name}_kernel *kernel) {{"
        yield from (f"  return {api.unload}(kernel->module);", "}")
        yield ""

    def at_once(self, threads: int, cluster: int, dynamic: int) -> Iterator[str]:
        """As `runtime/cuda.py` finds how many workgroups run at once; 0: not known."""
        yield from ("  kernel->most = 0;", "  if (status == CUDA_SUCCESS) {", "    int found = 0;")
        if cluster > 1:
            yield from ("    CUlaunchConfig config;", "    memset(&config, 0, sizeof config);")
            yield f"    config.gridDimX = {cluster}; config.gridDimY = config.gridDimZ = 1;"
            yield f"    config.blockDimX = {threads}; config.blockDimY = config.blockDimZ = 1;"
            yield f"    config.sharedMemBytes = {dynamic};"
            yield "    if (cuOccupancyMaxActiveClusters(&found, kernel->function, &config) == CUDA_SUCCESS)"
            yield f"      kernel->most = {cluster}u * (unsigned int)found;"
        else:
            yield from ("    int units = 0;", "    CUdevice device;")
            yield "    if (cuOccupancyMaxActiveBlocksPerMultiprocessor(&found, kernel->function,"
            yield f"                                                    {threads}, {dynamic}) == CUDA_SUCCESS"
            yield "        && cuCtxGetDevice(&device) == CUDA_SUCCESS && cuDeviceGetAttribute("
            yield "          &units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) == CUDA_SUCCESS)"
            yield "      kernel->most = (unsigned int)(found * units);"
        yield "  }"

    def dynamic_shared(self) -> int:
        """Bytes of shared memory that the launch gives: as `runtime/cuda.py` has it."""
        return self.compiled.shared_bytes if self.cuda and ".extern .shared" in self.compiled.asm else 0

    def workspace(self) -> Iterator[str]:
        """Counters lie in front of sums, as each kind has its parameters."""
        for what, rooms in (
            ("counter", [p for p in self.rooms if p.source == TICKETS]),
            ("workspace", sorted(self.rooms, key=lambda p: p.source != TICKETS)),
        ):
            yield f"static inline size_t {self.prefix}_{what}_bytes(const {self.prefix}_arguments *arguments) {{"
            yield from self.locals(rooms)
            yield f"  return (size_t)({' + '.join(self.room_bytes(p) for p in rooms) or '0'});"
            yield from ("}", "")

    def locals(self, rooms: list[Param]) -> Iterator[str]:
        """The run-time dimensions that sizes of rooms name, as locals."""
        names = {
            s for p in rooms for n in self.compiled.shapes[p.name] if isinstance(n, sympy.Basic) for s in n.free_symbols
        }
        yield "  (void)arguments;"
        for s in sorted(names, key=str):
            yield f"  const int64_t n_{self.dims[s]} = arguments->{self.dims[s]};"

    def binding(self) -> Iterator[str]:
        name = self.prefix
        yield f"static inline const char *{name}_bind({name}_call *call, const {name}_arguments *arguments) {{"
        yield from ("  memset(call, 0, sizeof *call);", "  (void)arguments;")
        for field in self.dims.values():
            yield f"  const int64_t n_{field} = arguments->{field};"
            yield f'  if (n_{field} < 0) return "{field} is negative";'
        yield from self.grid()
        for p in self.arrays:
            yield from self.check(p)
        if self.rooms:
            yield f"  if (!arguments->workspace || (uintptr_t)arguments->workspace % {ALIGN})"
            yield f'    return "workspace is missing or not aligned to {ALIGN} bytes";'
        yield from self.values()
        yield from ("  return NULL;", "}", "")

    def grid(self) -> Iterator[str]:
        most = largest_grid(self.compiled)
        sizes = (*self.compiled.grid, 1, 1)[:3]
        for axis, size in enumerate(sizes):
            if isinstance(size, int):
                yield f"  call->grid[{axis}] = {size}u;"
                continue
            yield f"  {{ const int64_t count = {self.number(size)};"
            yield f'    if (count > {most[axis]}) return "too many workgroups along axis {axis} of the grid";'
            yield f"    call->grid[{axis}] = (unsigned int)count; }}"
        yield "  if (!call->grid[0] || !call->grid[1] || !call->grid[2]) return NULL; /* nothing to do */"

    def check(self, p: Param) -> Iterator[str]:
        """What `prepare` checks of an array."""
        compiled, field = self.compiled, self.fields[p.name]
        rank, align = len(compiled.shapes[p.name]), compiled.expects[p.name][2]
        place = f"(uintptr_t)arguments->{field}"
        yield f'  if (!arguments->{field}) return "{field} is a null pointer";'
        yield f'  if ({place} % {align}) return "{field} is not aligned to {align} bytes";'
        yield f'  if ((uint64_t){place} >> {ADDRESS_BITS}) return "{field} lies beyond {ADDRESS_BITS} bits of address";'
        for axis in reversed(range(rank)):  # a stride that is left out takes the one inside of it
            if (p.name, axis) in self.strides:
                given = self.strides[p.name, axis]
                dense = "1" if axis + 1 == rank else f"{self.extent(p, axis + 1)} * ({self.stride(p, axis + 1)})"
                yield f"  const int64_t s_{given} = arguments->{given} ? arguments->{given} : {dense};"
                yield f'  if (s_{given} < 0) return "{given} is negative";'
        extents, strides = compiled.divisors.get(p.name, ((), ()))
        for axis, by in enumerate(extents):
            if by > 1 and not self.extent(p, axis).isdigit():
                yield f'  if ({self.extent(p, axis)} % {by}) return "extent {axis} of {field} is no multiple of {by}";'
        for axis, by in enumerate(strides):
            if by > 1 and (p.name, axis) in self.strides:
                yield f"  if ({self.byte_stride(p, axis)} % {by})"
                yield f'    return "{self.strides[p.name, axis]} is no multiple of {by} bytes";'
        tile = compiled.tiles.get(p.name)
        if tile is None:
            return
        counts = [self.extent(p, axis) for axis in range(rank)]
        if tile:
            counts = [f"({n} < {t} ? {n} : {t})" for n, t in zip(counts, tile)]
        reach = " + ".join(f"({n} - 1) * ({self.byte_stride(p, axis)})" for axis, n in enumerate(counts)) or "0"
        limit, what = (
            ((1 << 32) - 1, "the elements of a tile") if tile else (NEAR - p.dtype.storage.itemsize, "its elements")
        )
        yield f'  if ({reach} > INT64_C({limit})) return "{field}: {what} lie too far apart";'

    def values(self) -> Iterator[str]:
        """The parameters at their offsets."""
        tops = {True: "0", False: " + ".join(self.room_bytes(p) for p in self.rooms if p.source == TICKETS) or "0"}
        for p in self.compiled.params:
            if p.source in ROOMS:
                counters = p.source == TICKETS
                yield from _put(
                    p, "uint64_t", f"(uint64_t)(uintptr_t)arguments->workspace + (uint64_t)({tops[counters]})"
                )
                tops[counters] += f" + {self.room_bytes(p)}"
            elif p.map is not None:
                yield from self.tensor_map(p)
            elif p.source:
                yield from self.hidden(p)
            elif p.kind == "scalar":
                field = f"arguments->{self.fields[p.name]}"
                if p.dtype.name in ("f32", "f64"):
                    yield from _put(p, _SCALARS[p.dtype.name], field)
                elif p.dtype.kind == "bool":
                    yield from _put(p, "uint64_t", f"{field} != 0")
                else:
                    yield from _put(p, "int64_t" if p.dtype.kind == "int" else "uint64_t", field)
            else:
                yield from _put(p, "uint64_t", f"(uint64_t)(uintptr_t)arguments->{self.fields[p.name]}")

    def hidden(self, p: Param) -> Iterator[str]:
        """An extent or a stride, by what `source` says (`prepare._hidden`)."""
        assert p.source != SOURCE
        what, _, which = p.source.partition(" ")
        text = None
        if what == "stride":
            name, _, axis = which.rstrip("]").partition("[")
            text = self.stride(next(q for q in self.compiled.params if q.name == name), int(axis))
        else:
            tiles = {f"{r.name}_tiles": self.compiled.shapes[r.name][int(r.source != TICKETS)] for r in self.rooms}
            named = {str(n): n for q in self.arrays for n in self.compiled.shapes[q.name]} | {
                str(s): s for s in self.dims
            }
            text = self.number({**named, **tiles}[which])
        yield f"  {{ const int64_t number = {text};"
        yield f'    if (number >= INT64_C(1) << {8 * p.size - 1}) return "{p.source} is too large";'
        yield f"    memcpy(call->block + {p.offset}, &number, {p.size}); }}"

    def tensor_map(self, p: Param) -> Iterator[str]:
        """As `parameters.map_geometry` and `TensorMapSpec.driver_arguments` have it."""
        boxes = p.map
        assert boxes is not None
        array = next(q for q in self.arrays if q.name == boxes.array)
        axes = boxes.order if boxes.ended is None else (*boxes.order, boxes.ended)
        packed = _packed(array.dtype)
        inner = len(self.compiled.shapes[array.name]) - 1
        extents = {a: self.extent(array, a) for a in axes}
        if packed:  # maps count bytes
            extents[inner] = f"{extents[inner]} * {array.dtype.bits} / 8"
        dims = [_if_several(extents[a], extents[a], "1") for a in axes]
        strides = [_if_several(extents[a], self.byte_stride(array, a), str(STRIDE)) for a in axes]
        strides[0] = "0"
        shift = "0"
        if boxes.ended is not None:
            shift = f"{strides[-1]} * ({dims[-1]} - 1)"
        if boxes.paired is not None:
            at = axes.index(boxes.paired)
            row = strides[at]
            dims[at], strides[at] = f"{dims[at]} / {FOUR}", f"{row} * {FOUR}"
            dims.insert(1, str(FOUR))
            strides.insert(1, row)
        rank, field = len(dims), self.fields[array.name]
        kind = DATA_TYPES[data_type("u8" if packed else array.dtype)]
        modes = (
            INTERLEAVES[0],
            SWIZZLES[boxes.span if boxes.span > STRIDE else 0],
            PROMOTIONS[PROMOTION],
            FILLS["zero"],
        )
        kinds = ("Interleave", "Swizzle", "L2promotion", "FloatOOBfill")
        yield "  { CUtensorMap map;"
        yield f"    const cuuint64_t sizes[{rank}] = {{{', '.join(f'(cuuint64_t)({d})' for d in dims)}}};"
        steps = ", ".join(f"(cuuint64_t)({s})" for s in strides[1:]) or "0"
        yield f"    const cuuint64_t strides[{max(rank - 1, 1)}] = {{{steps}}};"
        yield f"    const cuuint32_t box[{rank}] = {{{', '.join(map(str, boxes.box))}}};"
        yield f"    const cuuint32_t steps[{rank}] = {{{', '.join(['1'] * rank)}}};"
        yield f"    void *const first = (void *)((uintptr_t)arguments->{field} - (uintptr_t)({shift}));"
        yield f"    if (cuTensorMapEncodeTiled(&map, (CUtensorMapDataType){kind}, {rank}, first, sizes, strides, box,"
        yield "        steps,"
        yield f"        {', '.join(f'(CUtensorMap{k}){m}' for k, m in zip(kinds, modes))}) != CUDA_SUCCESS)"
        yield f'      return "the driver refuses a tensor map of {field}";'
        yield f"    memcpy(call->block + {p.offset}, &map, sizeof map); }}"

    def launching(self) -> Iterator[str]:
        name, api, compiled = self.prefix, self.api, self.compiled
        yield f"static inline {api.result} {name}_launch("
        yield f"    const {name}_kernel *kernel, const {name}_call *call, {api.stream} stream) {{"
        places = [f"(void *)(call->block + {p.offset})" for p in compiled.params]
        yield f"  void *parameters[] = {{{', '.join(places) or 'NULL'}}};"
        yield f"  if (!call->grid[0] || !call->grid[1] || !call->grid[2]) return {api.success};"
        x, y, z = (*compiled.block, 1, 1)[:3]
        if not self.cuda:
            yield "  return hipModuleLaunchKernel(kernel->function, call->grid[0], call->grid[1], call->grid[2],"
            yield f"                               {x}, {y}, {z}, 0, stream, parameters, NULL);"
            yield "}"
            return
        from wavedsl.codegen.ptx.isa_warp import GRID_WAIT

        yield from ("  CUlaunchConfig config;", "  memset(&config, 0, sizeof config);")
        for axis, threads in zip("XYZ", (x, y, z)):
            yield f"  config.gridDim{axis} = call->grid[{'XYZ'.index(axis)}];"
            yield f"  config.blockDim{axis} = {threads};"
        if self.turns:
            yield "  if (kernel->most && config.gridDimX > kernel->most) config.gridDimX = kernel->most;"
        yield f"  config.sharedMemBytes = {self.dynamic_shared()};"
        yield "  config.hStream = stream;"
        if GRID_WAIT in compiled.asm:
            yield from ("  CUlaunchAttribute overlap;", "  memset(&overlap, 0, sizeof overlap);")
            yield "  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;"
            yield "  overlap.value.programmaticStreamSerializationAllowed = 1;"
            yield from ("  config.attrs = &overlap;", "  config.numAttrs = 1;")
        yield "  return cuLaunchKernelEx(&config, kernel->function, parameters, NULL);"
        yield "}"


def _packed(dtype: DType) -> bool:
    return dtype.bits < 8 and dtype.kind != "bool"


def _fresh(name: str, taken: set[str]) -> str:
    """`name` as a field that nothing else is called."""
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not name[0].isalpha():
        name = f"n{name}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _bytes(name: str, data: bytes) -> Iterator[str]:
    yield f"WAVEDSL_ALIGN(16) static const unsigned char {name}[{len(data)}] = {{"
    for at in range(0, len(data), 32):
        yield ",".join(map(str, data[at : at + 32])) + ","
    yield from ("};", "")


def _if_several(extent: str, then: str, otherwise: str) -> str:
    """C for `then` where an extent is 2 or more."""
    if extent.isdigit():
        return then if int(extent) > 1 else otherwise
    return f"({extent} > 1 ? {then} : {otherwise})"


def _put(p: Param, c_type: str, value: str) -> Iterator[str]:
    yield f"  {{ const {c_type} value = {value}; memcpy(call->block + {p.offset}, &value, {p.size}); }}"
