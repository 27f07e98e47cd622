"""Stand-ins for libcuda and libamdhip64: C libraries that do what little a launch needs, and record every call.

`build("cuda", folder)` compiles one with zig's C compiler. The head of every function is taken from the prototypes that
the installed bindings ship (`cydriver.pxd`, `cyhip.pxd`), so what they pass is received as they declare it: a changed
prototype does not compile, or shows in the record. Device memory is host memory; a launched kernel is expected to take
(float *in, float *out, int n) and computes out[i] = 2 in[i].

In the environment: STANDIN_LOG, the file that calls are appended to; STANDIN_FAIL, such as `cuMemAlloc:2:3`: the third
call of cuMemAlloc answers 2.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import oracles
import pytest

COMMON = r"""
#include <stdarg.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void note(const char *format, ...) {
  const char *path = getenv("STANDIN_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  va_list list;
  va_start(list, format);
  vfprintf(file, format, list);
  va_end(list);
  fputc('\n', file);
  fclose(file);
}

/* What STANDIN_FAIL makes this call answer; 0 is success. */
static int answer(const char *name, int *calls) {
  char wanted[100];
  int code, which = 1;
  const char *fail = getenv("STANDIN_FAIL");
  ++*calls;
  if (!fail || sscanf(fail, "%99[^:]:%d:%d", wanted, &code, &which) < 2) return 0;
  return strcmp(wanted, name) == 0 && *calls == which ? code : 0;
}

static long device_bytes;

static void *device_allocate(size_t size) {
  void *memory = NULL;
  if (posix_memalign(&memory, 256, size + 8)) return NULL;
  memcpy(memory, "freshmem", size < 8 ? size : 8);
  device_bytes += 1;
  return memory;
}

static void run(void **params, unsigned threads) {
  float *in = *(float **)params[0], *out = *(float **)params[1];
  int n = *(int *)params[2];
  for (int i = 0; i < n && i < (int)threads; i++) out[i] = 2 * in[i];
}
"""

CUDA_TYPES = r"""
#include <dlfcn.h>
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUdriverProcAddressQueryResult;
typedef unsigned long long CUdeviceptr;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  void *attrs;
  unsigned numAttrs;
} CUlaunchConfig;
"""

CUDA_BODIES = {
    "cuInit": 'note("cuInit %u", Flags);',
    "cuDriverGetVersion": "*driverVersion = 13000;",
    "cuDeviceGetCount": "*count = 1;",
    "cuDeviceGet": "if (ordinal != 0) return 101; *device = 40;",
    "cuDeviceGetAttribute": "*pi = attrib == 75 ? 9 : attrib == 76 ? 0 : -1;",
    "cuDeviceGetName": 'snprintf(name, len, "stand-in");',
    "cuDevicePrimaryCtxRetain": 'note("cuDevicePrimaryCtxRetain %d", dev); *pctx = (CUcontext)0x4100;',
    "cuCtxSetCurrent": 'note("cuCtxSetCurrent %p", (void *)ctx);',
    "cuModuleLoadData": 'note("cuModuleLoadData %.4s", (const char *)image); *module = (CUmodule)0x4200;',
    "cuModuleLoadDataEx": (
        'note("cuModuleLoadDataEx %u options, %d %d, size %d, text of %d", numOptions, options[0], options[1], '
        "(int)(size_t)optionValues[1], (int)strlen((const char *)image)); "
        'strcpy(optionValues[0], "line 3: no such thing"); *module = (CUmodule)0x4200;'
    ),
    "cuModuleGetFunction": 'note("cuModuleGetFunction %p %s", (void *)hmod, name); *hfunc = (CUfunction)0x4300;',
    "cuFuncGetAttribute": '*pi = getenv("STANDIN_STATIC_SHARED") ? atoi(getenv("STANDIN_STATIC_SHARED")) : 0;'
    ' note("cuFuncGetAttribute %d", attrib);',
    "cuFuncSetAttribute": 'note("cuFuncSetAttribute %p %d %d", (void *)hfunc, attrib, value);',
    "cuMemAlloc": 'note("cuMemAlloc %zu", bytesize); *dptr = (CUdeviceptr)device_allocate(bytesize);',
    "cuMemFree": 'device_bytes -= 1; free((void *)dptr); note("cuMemFree, %ld left", device_bytes);',
    "cuMemcpyHtoD": 'note("cuMemcpyHtoD %zu", ByteCount); memcpy((void *)dstDevice, srcHost, ByteCount);',
    "cuMemcpyDtoH": 'note("cuMemcpyDtoH %zu", ByteCount); memcpy(dstHost, (void *)srcDevice, ByteCount);',
    "cuLaunchKernelEx": (
        'note("cuLaunchKernelEx %p grid %u %u %u block %u %u %u shared %u stream %p attrs %u extra %p", (void *)f, '
        "config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, "
        "config->blockDimZ, config->sharedMemBytes, (void *)config->hStream, config->numAttrs, (void *)extra); "
        "run(kernelParams, config->gridDimX * config->blockDimX);"
    ),
    "cuStreamSynchronize": 'note("cuStreamSynchronize %p", (void *)hStream);',
    "cuMemsetD8Async": (
        'note("cuMemsetD8Async %zu stream %p", N, (void *)hStream); memset((void *)dstDevice, uc, N);'
    ),
    "cuEventCreate": 'static long made; *phEvent = (CUevent)(0x5000 + made++); note("cuEventCreate %u", Flags);',
    "cuEventRecord": 'note("cuEventRecord %p stream %p", (void *)hEvent, (void *)hStream);',
    "cuEventElapsedTime": "*pMilliseconds = 0.25f * (float)((long)hEnd - (long)hStart);",
    "cuEventDestroy": 'note("cuEventDestroy %p", (void *)hEvent);',
    "cuGetErrorName": '*pStr = "CUDA_ERROR_OF_THE_STAND_IN";',
    "cuGetErrorString": '*pStr = "as the stand-in was told";',
    "cuGetProcAddress": (
        "*pfn = dlsym(RTLD_DEFAULT, symbol); char path[200]; "
        'if (!*pfn) { snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("STANDIN_FOLDER")); '
        "*pfn = dlsym(dlopen(path, RTLD_NOW), symbol); } return *pfn ? 0 : 500;"
    ),
}

HIP_TYPES = r"""
typedef int hipError_t, hipFunction_attribute;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef char hipDeviceProp_t;
"""

HIP_BODIES = {
    "hipInit": 'note("hipInit %u", flags);',
    "hipGetDeviceCount": "*count = 1;",
    "hipSetDevice": 'note("hipSetDevice %d", deviceId);',
    "hipGetDeviceProperties": (
        'if (deviceId != 0) return 101; strcpy(prop, "stand-in"); '
        'strcpy(prop + atoi(getenv("STANDIN_ARCH_OFFSET")), "gfx942:sramecc+:xnack-");'
    ),
    "hipModuleLoadData": 'note("hipModuleLoadData %.3s", (const char *)image + 1); *module = (hipModule_t)0x4200;',
    "hipModuleGetFunction": (
        'note("hipModuleGetFunction %p %s", (void *)module, kname); *function = (hipFunction_t)0x4300;'
    ),
    "hipMalloc": 'note("hipMalloc %zu", size); *ptr = device_allocate(size);',
    "hipFree": 'device_bytes -= 1; free(ptr); note("hipFree, %ld left", device_bytes);',
    "hipMemcpyHtoD": 'note("hipMemcpyHtoD %zu", sizeBytes); memcpy(dst, src, sizeBytes);',
    "hipMemcpyDtoH": 'note("hipMemcpyDtoH %zu", sizeBytes); memcpy(dst, src, sizeBytes);',
    "hipModuleLaunchKernel": (
        'note("hipModuleLaunchKernel %p grid %u %u %u block %u %u %u shared %u stream %p extra %p", (void *)f, '
        "gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, (void *)stream, "
        "(void *)extra); run(kernelParams, gridDimX * blockDimX);"
    ),
    "hipStreamSynchronize": 'note("hipStreamSynchronize %p", (void *)stream);',
    "hipMemsetAsync": (
        'note("hipMemsetAsync %zu stream %p", sizeBytes, (void *)stream); memset(dst, value, sizeBytes);'
    ),
    "hipEventCreate": 'static long made; *event = (hipEvent_t)(0x5000 + made++); note("hipEventCreate");',
    "hipEventRecord": 'note("hipEventRecord %p stream %p", (void *)event, (void *)stream);',
    "hipEventElapsedTime": "*ms = 0.25f * (float)((long)stop - (long)start);",
    "hipEventDestroy": 'note("hipEventDestroy %p", (void *)event);',
    "hipGetErrorString": 'return "as the stand-in was told";',
}

SIDES = {
    "cuda": ("cuda.bindings", "cydriver.pxd", CUDA_TYPES, CUDA_BODIES, "libcuda.so.1"),
    "hip": ("rocm.bindings", "cyhip.pxd", HIP_TYPES, HIP_BODIES, "libamdhip64.so"),
}
EXPORTED = {"hipGetDeviceProperties": "hipGetDevicePropertiesR0600", "cuGetProcAddress": "cuGetProcAddress_v2"}
"""Names under which the bindings look for a function, where they differ from the prototype's."""
RAW = ("cuGetProcAddress", "cuGetErrorName", "cuGetErrorString", "hipGetErrorString")
"""Functions that cannot be told to fail: they report failures."""


def prototypes(side: str) -> dict[str, str]:
    """Function name → C prototype, as the installed bindings declare it."""
    package, file, _, bodies, _ = SIDES[side]
    spec = importlib.util.find_spec(package)
    assert spec is not None
    folders = list(spec.submodule_search_locations or ())
    text = next(Path(f, file) for f in folders if Path(f, file).exists()).read_text(encoding="utf-8")
    found = {}
    for line in text.splitlines():
        match = re.match(r"cdef ((?:const )?[\w ]+?[ *]+)(\w+)\(([^()]*)\)", line)
        if match and match.group(2) in bodies:
            returns, name, parameters = match.groups()
            found[name] = f"{returns.strip()} {EXPORTED.get(name, name)}({parameters})"
    missing = set(bodies) - set(found)
    assert not missing, f"the installed bindings declare no {sorted(missing)}"
    return found


def build(side: str, folder: Path) -> Path:
    """Compile the stand-in of `side` into `folder`; its path. Skips, or fails, like `oracles.require`."""
    package, _, types, bodies, library = SIDES[side]
    try:
        there = importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        message = f"the bindings {package} are not installed"
        if os.environ.get("WAVEDSL_REQUIRE_ORACLES") == "1":
            pytest.fail(message)
        pytest.skip(message)
    zig = oracles.require("zig")
    parts = [COMMON, types]
    for name, head in prototypes(side).items():
        told = "" if name in RAW else f'static int calls; int told = answer("{name}", &calls); if (told) return told; '
        finish = "" if name in ("cuGetProcAddress", "hipGetErrorString") else " return 0;"
        parts.append(f"{head} {{ {told}{bodies[name]}{finish} }}\n")
    source = folder / f"{side}.c"
    source.write_text("\n".join(parts))
    subprocess.run(
        [zig, "cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(folder / library), str(source), "-ldl"],
        check=True,
        env={**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig")},
    )
    return folder / library
