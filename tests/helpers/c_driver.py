"""C programs with headers of `CompiledKernel.c_header`, built by zig against libraries that say what they are given.

`program` compiles one that includes all headers, binds and launches; running it gives what the stand-in for the driver
received: per launch the grid, the block and each parameter's bytes. A tensor map is the arguments of
`cuTensorMapEncodeTiled`, packed by `MAP`. Programs are libraries without a C library of their own, which zig would
first have to build: the process that loads them has one. On NVIDIA prototypes and enumerations are those of CUDA's own
cuda.h; of HIP, what the headers use is declared here, as <hip/hip_runtime_api.h> has it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracles
import pytest
from wavedsl.runtime.tensor_map import TensorMapSpec, data_type

MAP = struct.Struct("<QII5Q4Q5I5I4BxxxxxxxxI")
"""Address, type, rank, sizes, strides, box, element strides, the four modes."""

RECORD = r"""
#include <stdio.h>
#include <stdlib.h>
static const int *sizes_of;  /* bytes of each parameter of the launch to come, then 0 */
static int says_no;          /* whether binaries are refused */
static char out[1 << 20];
static size_t written;
#define printf(...) (written += (size_t)snprintf(out + written, sizeof out - written, __VA_ARGS__))
static void record(unsigned x, unsigned y, unsigned z, unsigned u, unsigned v, unsigned w, unsigned shared,
                   void *stream, unsigned attributes, void **parameters) {
  printf("launch %u %u %u %u %u %u %u %u %u", x, y, z, u, v, w, shared, (unsigned)(uintptr_t)stream, attributes);
  for (int i = 0; sizes_of[i]; i++) {
    printf(" ");
    for (int j = 0; j < sizes_of[i]; j++) printf("%02x", ((unsigned char *)parameters[i])[j]);
  }
  printf("\n");
}
"""

CUDA = r"""
CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image) {
  int binary = memcmp(image, "\177ELF", 4) == 0;
  printf("load %s\n", binary ? "binary" : "text");
  *module = (CUmodule)(uintptr_t)0x1000;
  return binary && says_no ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) { (void)module; printf("unload\n"); return CUDA_SUCCESS; }
CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  (void)module;
  printf("function %s\n", name);
  *function = (CUfunction)(uintptr_t)0x2000;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
  (void)function;
  printf("attribute %d %d\n", (int)which, value);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice *device) { *device = 7; return CUDA_SUCCESS; }
CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT && device == 7 ? 50 : -1;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                             size_t shared) {
  (void)function;
  printf("at once per SM: %d threads, %zu bytes\n", threads, shared);
  *blocks = 2;
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *config) {
  (void)function;
  printf("at once: clusters of %u, %u threads, %u bytes\n", config->gridDimX, config->blockDimX,
         config->sharedMemBytes);
  *clusters = 11;
  return config->numAttrs ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
#pragma pack(push, 1)
typedef struct { uint64_t address; uint32_t type, rank; uint64_t sizes[5], strides[4]; uint32_t box[5], steps[5];
                 uint8_t modes[4], gap[8]; uint32_t end; } said;
#pragma pack(pop)
_Static_assert(sizeof(said) <= 144, "");
static said maps[64];
static unsigned map_count;
CUresult CUDAAPI cuTensorMapEncodeTiled(
    CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address, const cuuint64_t *sizes,
    const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  said *s = &maps[map_count];
  memset(s, 0, sizeof *s);
  s->address = (uintptr_t)address; s->type = (uint32_t)type; s->rank = rank;
  for (unsigned i = 0; i < rank; i++) { s->sizes[i] = sizes[i]; s->box[i] = box[i]; s->steps[i] = steps[i]; }
  for (unsigned i = 0; i + 1 < rank; i++) s->strides[i] = strides[i];
  s->modes[0] = (uint8_t)interleave; s->modes[1] = (uint8_t)swizzle; s->modes[2] = (uint8_t)promotion;
  s->modes[3] = (uint8_t)fill;
  memset(map, 0, sizeof *map);
  memcpy(map, &map_count, sizeof map_count);  /* a map's bytes are its number here */
  printf("map ");
  for (unsigned i = 0; i < sizeof *s; i++) printf("%02x", ((unsigned char *)s)[i]);
  printf("\n");
  map_count++;
  return sizes[1] == 4321 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  (void)function; (void)extra;
  record(config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, config->blockDimZ,
         config->sharedMemBytes, config->hStream, config->numAttrs, parameters);
  return CUDA_SUCCESS;
}
"""

HIP_HEADER = r"""
#pragma once
#include <stddef.h>
typedef enum { hipSuccess = 0, hipErrorInvalidValue = 1 } hipError_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipStream_t *hipStream_t;
hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *kname);
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                 unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                 unsigned int sharedMemBytes, hipStream_t stream, void **kernelParams, void **extra);
"""

HIP = r"""
hipError_t hipModuleLoadData(hipModule_t *module, const void *image) {
  printf("load %s\n", memcmp(image, "\177ELF", 4) == 0 ? "binary" : "text");
  *module = (hipModule_t)(uintptr_t)0x1000;
  return says_no ? hipErrorInvalidValue : hipSuccess;
}
hipError_t hipModuleUnload(hipModule_t module) { (void)module; printf("unload\n"); return hipSuccess; }
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  (void)module;
  printf("function %s\n", name);
  *function = (hipFunction_t)(uintptr_t)0x2000;
  return hipSuccess;
}
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned x, unsigned y, unsigned z, unsigned u, unsigned v,
                                 unsigned w, unsigned shared, hipStream_t stream, void **parameters, void **extra) {
  (void)f; (void)extra;
  record(x, y, z, u, v, w, shared, stream, 0, parameters);
  return hipSuccess;
}
"""


def cuda_include() -> Path:
    """The folder of CUDA's own cuda.h, which comes with ptxas' package."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for found in sorted(Path(folder).glob("*/include/cuda.h")):
            return found.parent
    if os.environ.get("WAVEDSL_REQUIRE_ORACLES") == "1":
        pytest.fail("no cuda.h: install nvidia-cuda-runtime")
    pytest.skip("no cuda.h")


def zig(folder: Path, *arguments: str) -> None:
    """zig with its caches in a folder, warnings being errors. Raises AssertionError with what it says."""
    cache = {"ZIG_LOCAL_CACHE_DIR": str(folder / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig")}
    include = ["-I", str(folder), "-I", str(cuda_include())]
    command = [oracles.require("zig"), *arguments, "-Wall", "-Wextra", "-Werror", *include]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **cache}, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]


def program(folder: Path, headers: dict[str, str], side: str, body: str) -> Callable[[bool], list[str]]:
    """A C program whose main function has this body: a function that runs it, `True` for a driver that takes no
    binaries, and gives the lines that it prints."""
    for name, text in headers.items():
        (folder / f"{name}.h").write_text(text)
    (folder / "hip").mkdir(exist_ok=True)
    (folder / "hip/hip_runtime_api.h").write_text(HIP_HEADER)
    includes = "".join(f'#include "{name}.h"\n' for name in headers)
    entry = "const char *entry(int no);\nconst char *entry(int no) {\n  says_no = no; written = 0;\n"
    driver = {"cuda": CUDA, "hip": HIP}[side]
    (folder / "main.c").write_text(f"{includes}{RECORD}{driver}{entry}{body}\n  return out;\n}}\n")
    zig(folder, "cc", "-std=c11", "-pedantic", "-O1", "-nostdlib", "-shared", "-fPIC", "main.c", "-o", "program.so")
    library = ctypes.CDLL(str(folder / "program.so"))
    library.entry.restype = ctypes.c_char_p
    return lambda refuses: library.entry(int(refuses)).decode().splitlines()


class Maps:
    """In a driver's place for `ParameterBlock`: notes what tensor maps are asked for; their bytes are their number."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def tensor_map(self, address: int, **spec: Any) -> bytes:
        found = TensorMapSpec(
            data_type(spec["dtype"]), spec["dims"], spec["strides"], spec["box"], swizzle=spec["swizzle"]
        )
        kind, rank, start, dims, strides, box, steps, *modes = found.driver_arguments(address + spec["shift"])

        def padded(numbers: tuple[int, ...], count: int) -> tuple[int, ...]:
            return (*numbers, *[0] * (count - len(numbers)))

        sizes = (*padded(dims, 5), *padded(strides, 4), *padded(box, 5), *padded(steps, 5))
        self.said.append(MAP.pack(start, kind, rank, *sizes, *modes, 0))
        return (len(self.said) - 1).to_bytes(4, "little").ljust(128, b"\0")
