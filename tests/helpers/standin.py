"""Stand-ins for libcuda and libamdhip64: C libraries that do what little a launch needs, and record every call.

`built("cuda")` compiles one with zig's C compiler, once for all runs and workers. The types of every function are taken
from the prototypes that the installed bindings ship (`cydriver.pxd`; `cyhip.pxd`, before release 10 `chip.pxd`), so
what they pass is received as they declare it: a changed prototype does not compile, or shows in the record. Device
memory is host memory; a launched kernel is expected to take (float *in, float *out, int n) and computes
out[i] = 2 in[i]; a tensor map is its address, sizes and strides.

As the drivers do, it keeps contexts (CUDA) and devices (HIP) per thread, and answers an error where none is current,
where a function, stream or memory of another one is used, and where something that cannot be captured is asked for
while a stream is captured. Captured launches run with their graph. After `standin_busy(1)` events that are recorded
stay unfinished until `standin_busy(0)`.

In the environment: STANDIN_LOG, the file that calls are appended to; STANDIN_NAME, what the device is called
(default "stand-in"); STANDIN_FAIL, such as `cuMemAlloc:2:3`: the third call of cuMemAlloc answers 2 (`:0`: every one);
STANDIN_DEVICES, how many there are (default 1); STANDIN_EACH, how many numbers a thread computes (default 1);
STANDIN_IDLE: launches compute nothing; STANDIN_HIDDEN: kernels take two more pointers, of sums and of counters, and
what runs notes them and the first counter.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import subprocess
import tempfile
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
  return strcmp(wanted, name) == 0 && (!which || *calls == which) ? code : 0;
}

static long device_bytes;
static int busy;
static unsigned char behind_work[4096]; /* by event: whether it was recorded while streams were busy */
#define EVENT(e) behind_work[(long)(e) & 4095]

void standin_busy(int now) { busy = now; }

static int devices(void) {
  const char *count = getenv("STANDIN_DEVICES");
  return count && *count ? atoi(count) : 1;
}

/* Which device memory is on: -1 for memory that was not allocated here. */
enum { BLOCKS = 1024 };
static struct { char *start; size_t size; int device; } blocks[BLOCKS];
static int block_count;

static int device_of(const void *address) {
  for (int i = 0; i < block_count; i++)
    if (blocks[i].start <= (char *)address && (char *)address < blocks[i].start + blocks[i].size)
      return blocks[i].device;
  return -1;
}

static void *device_allocate(size_t size, int device) {
  void *memory = NULL;
  if (posix_memalign(&memory, 256, size + 8)) return NULL;
  memcpy(memory, "freshmem", size < 8 ? size : 8);
  device_bytes += 1;
  for (int i = 0; i < block_count; i++)
    if (blocks[i].start == memory) { blocks[i].size = size; blocks[i].device = device; return memory; }
  if (block_count < BLOCKS) {
    blocks[block_count].start = memory;
    blocks[block_count].size = size;
    blocks[block_count].device = device;
    block_count++;
  }
  return memory;
}

typedef struct { float *in, *out; int n; unsigned threads; int *sums, *counters; } launch_t;

static launch_t received(void **params, unsigned threads) {
  launch_t launch = {*(float **)params[0], *(float **)params[1], *(int *)params[2], threads};
  if (getenv("STANDIN_HIDDEN")) { launch.sums = *(int **)params[3]; launch.counters = *(int **)params[4]; }
  return launch;
}

static void run(launch_t launch) {
  if (getenv("STANDIN_IDLE")) return;
  if (launch.counters) note("ran with %p %p %d", (void *)launch.sums, (void *)launch.counters, *launch.counters);
  const char *each = getenv("STANDIN_EACH");
  int most = (int)launch.threads * (each ? atoi(each) : 1);
  for (int i = 0; i < launch.n && i < most; i++) launch.out[i] = 2 * launch.in[i];
}

/* Streams are numbered from 0x6000 on; others are taken as they are. Graphs and what they keep. */
typedef struct { void (*destroy)(void *); void *pointer; int references; } object_t;
typedef struct { launch_t nodes[64]; object_t *objects[64]; int count, kept, number; } graph_t;
enum { STREAMS = 64 };
static struct { int place; graph_t *graph; } streams[STREAMS];
static int stream_count, capturing, captures;
static __thread int capture_mode;  /* 2: this thread may do what cannot be captured */

static int stream_number(const void *stream) {
  long number = (long)stream - 0x6000;
  return number >= 0 && number < stream_count ? (int)number : -1;
}

static graph_t *captured(const void *stream) {
  int number = stream_number(stream);
  return number < 0 ? NULL : streams[number].graph;
}

static void *stream_create(int place) {
  streams[stream_count].place = place;
  return (void *)(0x6000 + (long)stream_count++);
}

static int capture_begin(void *stream) {
  int number = stream_number(stream);
  if (number < 0) return 1;
  streams[number].graph = calloc(1, sizeof(graph_t));
  streams[number].graph->number = ++captures;
  capturing++;
  return 0;
}

static graph_t *capture_end(void *stream) {
  graph_t *graph = captured(stream);
  streams[stream_number(stream)].graph = NULL;
  capturing--;
  return graph;
}

static graph_t *graph_copy(const graph_t *graph) {
  graph_t *copy = malloc(sizeof *copy);
  *copy = *graph;
  for (int i = 0; i < copy->kept; i++) copy->objects[i]->references++;
  return copy;
}

static void graph_free(graph_t *graph) {
  for (int i = 0; i < graph->kept; i++) {
    object_t *object = graph->objects[i];
    if (--object->references == 0) { object->destroy(object->pointer); free(object); }
  }
  free(graph);
}

static object_t *object_create(void *pointer, void *destroy, int references) {
  object_t *object = malloc(sizeof *object);
  object->destroy = (void (*)(void *))destroy;
  object->pointer = pointer;
  object->references = references;
  return object;
}

/* A launch runs, or becomes a node of the graph that its stream is captured into. */
static void accept(const void *stream, launch_t launch) {
  graph_t *graph = captured(stream);
  if (graph) graph->nodes[graph->count++] = launch;
  else run(launch);
}

static void replay(const graph_t *graph) {
  for (int i = 0; i < graph->count; i++) run(graph->nodes[i]);
}

/* 0 if a launch from `place` (a context or device) on a stream may use its memory on `device`. */
static int misplaced(const void *stream, launch_t launch, int place, int device) {
  int number = stream_number(stream), in = device_of(launch.in), out = device_of(launch.out);
  if (number >= 0 && streams[number].place != place) return 400;
  return (in >= 0 && in != device) || (out >= 0 && out != device) ? 700 : 0;
}
"""

CUDA_TYPES = r"""
#include <dlfcn.h>
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUdriverProcAddressQueryResult;
typedef int CUstreamCaptureMode, CUstreamCaptureStatus, CUpointer_attribute;
typedef int CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion;
typedef int CUtensorMapFloatOOBfill;
typedef unsigned long long CUdeviceptr;
typedef uint64_t cuuint64_t;
typedef uint32_t cuuint32_t;
typedef struct { uint64_t words[16]; } CUtensorMap;  /* the bindings do not align it */
typedef graph_t *CUgraph, *CUgraphExec;
typedef object_t *CUuserObject;
typedef void *CUgraphNode, *CUhostFn;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;
typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct {
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  struct { int id; int value[16]; } *attrs;
  unsigned numAttrs;
} CUlaunchConfig;

/* Contexts are numbered from 0x4100 on: the primary ones of the devices, then others from 16 on. Each thread has a
   stack of them, and functions are numbered after theirs. */
enum { CONTEXTS = 64, OWN = 16 };
static int context_device[CONTEXTS], own_contexts;
static __thread int stack[16];
static __thread int depth;

static int current(void) { return depth ? stack[depth - 1] : -1; }
static int on_device(int context) { return context < OWN ? context : context_device[context]; }
#define NEEDS_CONTEXT if (current() < 0) return 201
#define NOT_CAPTURED if (capturing && capture_mode != 2) return 900
#define CONTEXT(n) ((CUcontext)(long)(0x4100 + (n)))
"""

CUDA_BODIES = {
    "cuInit Flags": 'note("cuInit %u", Flags);',
    "cuDriverGetVersion driverVersion": "*driverVersion = 13000;",
    "cuDeviceGetCount count": "*count = devices();",
    "cuDeviceGet device ordinal": "if (ordinal < 0 || ordinal >= devices()) return 101; *device = 40 + ordinal;",
    "cuDeviceGetAttribute pi attrib dev": "*pi = attrib == 75 ? 9 : attrib == 76 ? 0 : attrib == 16 ? 132 : -1;",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor numBlocks func blockSize dynamicSMemSize": (
        'NEEDS_CONTEXT; note("cuOccupancyMaxActiveBlocksPerMultiprocessor %p %d %zu", (void *)func, blockSize, '
        "dynamicSMemSize); *numBlocks = 1;"
    ),
    "cuOccupancyMaxActiveClusters numClusters func config": (
        'NEEDS_CONTEXT; note("cuOccupancyMaxActiveClusters %p grid %u block %u shared %u", (void *)func, '
        "config->gridDimX, config->blockDimX, config->sharedMemBytes); "
        "*numClusters = 132 / config->gridDimX - (config->gridDimX > 2);"
    ),
    "cuDeviceGetName name len dev": (
        'const char *called = getenv("STANDIN_NAME"); snprintf(name, len, "%s", called ? called : "stand-in");'
    ),
    "cuDevicePrimaryCtxRetain pctx dev": 'note("cuDevicePrimaryCtxRetain %d", dev); *pctx = CONTEXT(dev - 40);',
    "cuCtxSetCurrent ctx": (
        'note("cuCtxSetCurrent %p", (void *)ctx); if (!depth) depth = 1; stack[depth - 1] = (int)(long)ctx - 0x4100;'
    ),
    "cuCtxGetCurrent pctx": "*pctx = current() < 0 ? NULL : CONTEXT(current());",
    "cuCtxPushCurrent ctx": 'note("cuCtxPushCurrent %p", (void *)ctx); stack[depth++] = (int)(long)ctx - 0x4100;',
    "cuCtxPopCurrent pctx": (
        'NEEDS_CONTEXT; *pctx = CONTEXT(stack[--depth]); note("cuCtxPopCurrent %p", (void *)*pctx);'
    ),
    "cuCtxGetDevice device": "NEEDS_CONTEXT; *device = 40 + on_device(current());",
    "cuCtxCreate pctx ctxCreateParams? flags dev": (
        "context_device[OWN + own_contexts] = dev - 40; stack[depth++] = OWN + own_contexts; "
        "*pctx = CONTEXT(OWN + own_contexts++);"
    ),
    "cuPointerGetAttribute data attribute ptr": (
        "if (device_of((void *)ptr) < 0) return 1; *(int *)data = device_of((void *)ptr);"
    ),
    "cuModuleLoadData module image": (
        'NEEDS_CONTEXT; NOT_CAPTURED; note("cuModuleLoadData %.4s", (const char *)image); '
        "*module = (CUmodule)(long)(0x4200 + (current() << 16));"
    ),
    "cuModuleLoadDataEx module image numOptions options optionValues": (
        'note("cuModuleLoadDataEx %u options, %d %d, size %d, text of %d", numOptions, options[0], options[1], '
        "(int)(size_t)optionValues[1], (int)strlen((const char *)image)); "
        'strcpy(optionValues[0], "line 3: no such thing"); *module = (CUmodule)(long)(0x4200 + (current() << 16));'
    ),
    "cuModuleGetFunction hfunc hmod name": (
        'note("cuModuleGetFunction %p %s", (void *)hmod, name); *hfunc = (CUfunction)((long)hmod + 0x100);'
    ),
    "cuFuncGetAttribute pi attrib hfunc": (
        '*pi = getenv("STANDIN_STATIC_SHARED") ? atoi(getenv("STANDIN_STATIC_SHARED")) : 0; '
        'note("cuFuncGetAttribute %d", attrib);'
    ),
    "cuFuncSetAttribute hfunc attrib value": 'note("cuFuncSetAttribute %p %d %d", (void *)hfunc, attrib, value);',
    "cuMemAlloc dptr bytesize": (
        'NEEDS_CONTEXT; NOT_CAPTURED; note("cuMemAlloc %zu", bytesize); '
        "*dptr = (CUdeviceptr)device_allocate(bytesize, on_device(current()));"
    ),
    "cuMemFree dptr": 'device_bytes -= 1; free((void *)dptr); note("cuMemFree, %ld left", device_bytes);',
    "cuMemcpyHtoD dstDevice srcHost ByteCount": (
        'NOT_CAPTURED; note("cuMemcpyHtoD %zu", ByteCount); memcpy((void *)dstDevice, srcHost, ByteCount);'
    ),
    "cuMemcpyDtoH dstHost srcDevice ByteCount": (
        'NOT_CAPTURED; note("cuMemcpyDtoH %zu", ByteCount); memcpy(dstHost, (void *)srcDevice, ByteCount);'
    ),
    "cuLaunchKernelEx config f kernelParams extra": (
        'note("cuLaunchKernelEx %p grid %u %u %u block %u %u %u shared %u stream %p attrs %u extra %p", (void *)f, '
        "config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY, "
        "config->blockDimZ, config->sharedMemBytes, (void *)config->hStream, config->numAttrs, (void *)extra); "
        'for (unsigned i = 0; i < config->numAttrs; i++) note("attribute %d = %d", config->attrs[i].id, '
        "config->attrs[i].value[1]); "
        "NEEDS_CONTEXT; if (!kernelParams) return 1; if ((long)f >> 16 != current()) return 400; "
        "launch_t launch = received(kernelParams, config->gridDimX * config->blockDimX); "
        "int wrong = misplaced(config->hStream, launch, current(), on_device(current())); if (wrong) return wrong; "
        "accept(config->hStream, launch);"
    ),
    "cuStreamCreate phStream Flags": "NEEDS_CONTEXT; *phStream = stream_create(current());",
    "cuStreamBeginCapture hStream mode": "return capture_begin(hStream);",
    "cuStreamEndCapture hStream phGraph": "*phGraph = capture_end(hStream);",
    "cuThreadExchangeStreamCaptureMode mode": "int before = capture_mode; capture_mode = *mode; *mode = before;",
    "cuStreamIsCapturing hStream captureStatus": "*captureStatus = captured(hStream) != NULL;",
    "cuStreamGetCaptureInfo hStream captureStatus_out id_out graph_out dependencies_out edgeData_out? "
    "numDependencies_out": (
        "*captureStatus_out = captured(hStream) != NULL; if (id_out && captured(hStream)) "
        "*id_out = captured(hStream)->number; "
        "if (graph_out) *graph_out = captured(hStream); if (dependencies_out) *dependencies_out = NULL; "
        "if (edgeData_out) *edgeData_out = NULL; if (numDependencies_out) *numDependencies_out = 0;"
    ),
    "cuGraphInstantiate phGraphExec hGraph flags": "*phGraphExec = graph_copy(hGraph);",
    "cuGraphLaunch hGraphExec hStream": 'note("cuGraphLaunch stream %p", (void *)hStream); replay(hGraphExec);',
    "cuGraphDestroy hGraph": "graph_free(hGraph);",
    "cuGraphExecDestroy hGraphExec": "graph_free(hGraphExec);",
    "cuUserObjectCreate object_out ptr destroy initialRefcount flags": (
        'note("cuUserObjectCreate %u %u", initialRefcount, flags); '
        "*object_out = object_create(ptr, (void *)destroy, initialRefcount);"
    ),
    "cuGraphRetainUserObject graph object count flags": (
        'note("cuGraphRetainUserObject %u %u", count, flags); '
        "graph->objects[graph->kept++] = object; if (!flags) object->references += count;"
    ),
    "cuTensorMapEncodeTiled tensorMap tensorDataType tensorRank globalAddress globalDim globalStrides boxDim "
    "elementStrides interleave swizzle l2Promotion oobFill": (
        'note("cuTensorMapEncodeTiled type %d rank %u address %s sizes %lu %lu strides %lu box %u %u steps %u %u '
        'interleave %d swizzle %d promotion %d fill %d", tensorDataType, tensorRank, globalAddress ? "given" : "null", '
        "globalDim[0], globalDim[1], tensorRank > 1 ? globalStrides[0] : 0, boxDim[0], boxDim[1], elementStrides[0], "
        "elementStrides[1], interleave, swizzle, l2Promotion, oobFill); "
        "memset(tensorMap, 0, sizeof *tensorMap); tensorMap->words[0] = (uint64_t)globalAddress; "
        "for (unsigned d = 0; d < tensorRank; d++) { tensorMap->words[1 + d] = globalDim[d]; "
        "if (d) tensorMap->words[6 + d] = globalStrides[d - 1]; }"
    ),
    "cuStreamSynchronize hStream": 'NOT_CAPTURED; note("cuStreamSynchronize %p", (void *)hStream);',
    "cuMemsetD8Async dstDevice uc N hStream": (  # what flushes a cache is large, and nobody reads it
        'note("cuMemsetD8Async %zu stream %p", N, (void *)hStream); if (N < 1 << 24) memset((void *)dstDevice, uc, N);'
    ),
    "cuEventCreate phEvent Flags": (
        'static long made; *phEvent = (CUevent)(0x5000 + made++); note("cuEventCreate %u", Flags);'
    ),
    "cuEventRecord hEvent hStream": (
        'NEEDS_CONTEXT; EVENT(hEvent) = busy; note("cuEventRecord %p stream %p", (void *)hEvent, (void *)hStream);'
    ),
    "cuEventElapsedTime pMilliseconds hStart hEnd": "*pMilliseconds = 0.25f * (float)((long)hEnd - (long)hStart);",
    "cuEventQuery hEvent": "return busy && EVENT(hEvent) ? 600 : 0;",
    "cuEventDestroy hEvent": 'note("cuEventDestroy %p", (void *)hEvent);',
    "cuGetErrorName error pStr": '*pStr = "CUDA_ERROR_OF_THE_STAND_IN";',
    "cuGetErrorString error pStr": '*pStr = "as the stand-in was told";',
    "cuGetProcAddress symbol pfn cudaVersion flags symbolStatus": (
        "char path[200], second[100]; snprintf(second, sizeof second, \"%s_v2\", symbol); "
        "*pfn = dlsym(RTLD_DEFAULT, symbol); "
        'if (!*pfn) { snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("STANDIN_FOLDER")); '
        "void *own = dlopen(path, RTLD_NOW); *pfn = dlsym(own, symbol); "
        "if (!*pfn) *pfn = dlsym(own, second); } return *pfn ? 0 : 500;"
    ),
}

HIP_TYPES = r"""
typedef int hipError_t, hipFunction_attribute, hipStreamCaptureMode, hipStreamCaptureStatus;
typedef graph_t *hipGraph_t, *hipGraphExec_t;
typedef object_t *hipUserObject_t;
typedef void *hipGraphNode_t, *hipHostFn_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef char hipDeviceProp_t;

static __thread int current;  /* the thread's device */
#define NOT_CAPTURED if (capturing && capture_mode != 2) return 900
"""

HIP_BODIES = {
    "hipInit flags": 'note("hipInit %u", flags);',
    "hipGetDeviceCount count": "*count = devices();",
    "hipSetDevice deviceId": (
        'note("hipSetDevice %d", deviceId); if (deviceId >= devices()) return 101; current = deviceId;'
    ),
    "hipGetDevice deviceId": "*deviceId = current;",
    "hipGetDeviceProperties prop deviceId": (
        "if (deviceId < 0 || deviceId >= devices()) return 101; "
        'const char *name = getenv("STANDIN_NAME"); strcpy(prop, name ? name : "stand-in"); '
        'strcpy(prop + atoi(getenv("STANDIN_ARCH_OFFSET")), "gfx942:sramecc+:xnack-");'
    ),
    "hipModuleLoadData module image": (
        'NOT_CAPTURED; note("hipModuleLoadData %.3s", (const char *)image + 1); '
        "*module = (hipModule_t)(long)(0x4200 + (current << 16));"
    ),
    "hipModuleGetFunction function module kname": (
        'note("hipModuleGetFunction %p %s", (void *)module, kname); *function = (hipFunction_t)((long)module + 0x100);'
    ),
    "hipMalloc ptr size": 'NOT_CAPTURED; note("hipMalloc %zu", size); *ptr = device_allocate(size, current);',
    "hipFree ptr": 'device_bytes -= 1; free(ptr); note("hipFree, %ld left", device_bytes);',
    "hipMemcpyHtoD dst src sizeBytes": 'note("hipMemcpyHtoD %zu", sizeBytes); memcpy(dst, src, sizeBytes);',
    "hipMemcpyDtoH dst src sizeBytes": 'note("hipMemcpyDtoH %zu", sizeBytes); memcpy(dst, src, sizeBytes);',
    "hipModuleLaunchKernel f gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ sharedMemBytes "
    "stream kernelParams extra": (
        'note("hipModuleLaunchKernel %p grid %u %u %u block %u %u %u shared %u stream %p extra %p", (void *)f, '
        "gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, (void *)stream, "
        "(void *)extra); if ((long)f >> 16 != current) return 400; "
        "launch_t launch = received(kernelParams, gridDimX * blockDimX); "
        "int wrong = misplaced(stream, launch, current, current); if (wrong) return wrong; accept(stream, launch);"
    ),
    "hipStreamCreate stream": "*stream = stream_create(current);",
    "hipStreamBeginCapture stream mode": "return capture_begin(stream);",
    "hipStreamEndCapture stream pGraph": "*pGraph = capture_end(stream);",
    "hipThreadExchangeStreamCaptureMode mode": "int before = capture_mode; capture_mode = *mode; *mode = before;",
    "hipStreamIsCapturing stream pCaptureStatus": "*pCaptureStatus = captured(stream) != NULL;",
    "hipStreamGetCaptureInfo_v2 stream captureStatus_out id_out graph_out dependencies_out numDependencies_out": (
        "*captureStatus_out = captured(stream) != NULL; if (id_out && captured(stream)) "
        "*id_out = captured(stream)->number; "
        "if (graph_out) *graph_out = captured(stream); if (dependencies_out) *dependencies_out = NULL; "
        "if (numDependencies_out) *numDependencies_out = 0;"
    ),
    "hipGraphInstantiate pGraphExec graph pErrorNode pLogBuffer bufferSize": "*pGraphExec = graph_copy(graph);",
    "hipGraphLaunch graphExec stream": 'note("hipGraphLaunch stream %p", (void *)stream); replay(graphExec);',
    "hipGraphDestroy graph": "graph_free(graph);",
    "hipGraphExecDestroy graphExec": "graph_free(graphExec);",
    "hipUserObjectCreate object_out ptr destroy initialRefcount flags": (
        'note("hipUserObjectCreate %u %u", initialRefcount, flags); '
        "*object_out = object_create(ptr, (void *)destroy, initialRefcount);"
    ),
    "hipGraphRetainUserObject graph object count flags": (
        'note("hipGraphRetainUserObject %u %u", count, flags); '
        "graph->objects[graph->kept++] = object; if (!flags) object->references += count;"
    ),
    "hipStreamSynchronize stream": 'NOT_CAPTURED; note("hipStreamSynchronize %p", (void *)stream);',
    "hipMemsetAsync dst value sizeBytes stream": (  # what flushes a cache is large, and nobody reads it
        'note("hipMemsetAsync %zu stream %p", sizeBytes, (void *)stream); '
        "if (sizeBytes < 1 << 24) memset(dst, value, sizeBytes);"
    ),
    "hipEventCreate event": 'static long made; *event = (hipEvent_t)(0x5000 + made++); note("hipEventCreate");',
    "hipEventCreateWithFlags event flags": (
        'static long made; *event = (hipEvent_t)(0x5800 + made++); note("hipEventCreateWithFlags %u", flags);'
    ),
    "hipEventQuery event": "return busy && EVENT(event) ? 600 : 0;",
    "hipEventRecord event stream": (
        'EVENT(event) = busy; note("hipEventRecord %p stream %p", (void *)event, (void *)stream);'
    ),
    "hipEventElapsedTime ms start stop": "*ms = 0.25f * (float)((long)stop - (long)start);",
    "hipEventDestroy event": 'note("hipEventDestroy %p", (void *)event);',
    "hipGetErrorString hipError": 'return "as the stand-in was told";',
}

SIDES = {
    "cuda": ("cuda.bindings", ("cydriver.pxd",), CUDA_TYPES, CUDA_BODIES, "libcuda.so.1"),
    "hip": ("rocm.bindings hip", ("cyhip.pxd", "chip.pxd"), HIP_TYPES, HIP_BODIES, "libamdhip64.so"),
}
EXPORTED = {"hipGetDeviceProperties": "hipGetDevicePropertiesR0600", "cuGetProcAddress": "cuGetProcAddress_v2",
            "cuGraphInstantiate": "cuGraphInstantiateWithFlags"}  # fmt: skip
"""Names under which the bindings look for a function, where they differ from the prototype's."""
RAW = ("cuGetProcAddress", "cuGetErrorName", "cuGetErrorString", "hipGetErrorString")
"""Functions that cannot be told to fail: they report failures."""


def folders(packages: str) -> list[str]:
    """Where those of the packages lie that are installed, in their order."""
    found: list[str] = []
    for package in packages.split():
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:  # nor is what it lies in
            continue
        found += (spec and spec.submodule_search_locations) or ()
    return found


def prototypes(side: str) -> dict[str, tuple[str, str]]:
    """Function name → (C prototype as the installed bindings declare it, start of its body).

    Types are the bindings', whose parameters have other names from release to release; names are those of the bodies'
    keys. One with a question mark is missing in some releases: then it is a null pointer in the body.
    """
    packages, files, _, bodies, _ = SIDES[side]
    places = (Path(folder, file) for folder in folders(packages) for file in files)
    text = next(place for place in places if place.exists()).read_text(encoding="utf-8")
    named = {name: names for name, *names in map(str.split, bodies)}
    found = {}
    for line in text.splitlines():
        match = re.match(r"cdef ((?:const )?[\w ]+?[ *]+)(\w+)\(([^()]*)\)", line)
        if match and match.group(2) in named:
            returns, name, declared = match.groups()
            types = [re.sub(r"\w+$", "", x.strip()) for x in declared.split(",") if x.strip()]
            names = [x.rstrip("?") for x in named[name]]
            absent = [x[:-1] for x in named[name] if x.endswith("?")] if len(types) < len(names) else []
            names = [x for x in names if x not in absent]
            assert len(names) == len(types), f"the installed bindings declare {name}({declared})"
            parameters = ", ".join(f"{kind}{own}" for kind, own in zip(types, names))
            head = f"{returns.strip()} {EXPORTED.get(name, name)}({parameters})"
            found[name] = head, "".join(f"void **{x} = NULL; (void){x}; " for x in absent)
    missing = set(named) - set(found)
    assert not missing, f"the installed bindings declare no {sorted(missing)}"
    return found


def built(side: str) -> Path:
    """The folder of the stand-in of `side`, compiled where no run of the tests has done so before: for another source,
    another bindings' prototype or another zig it is compiled anew. Skips, or fails, like `oracles.require`."""
    text, zig = source_of(side), oracles.require("zig")
    version = subprocess.run([zig, "version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256(f"{version}{platform.machine()}{text}".encode()).hexdigest()[:16]
    shelf = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "wavedsl", "standins")
    shelf.mkdir(parents=True, exist_ok=True)
    folder = shelf / f"{side}-{key}"
    with open(shelf / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait for the one that compiles
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=shelf) as made:
                build(side, text, zig, Path(made))
                (Path(made) / "out").rename(folder)
    return folder


def source_of(side: str) -> str:
    """The stand-in's C source, with the heads that the installed bindings declare."""
    packages, _, types, bodies, _ = SIDES[side]
    if not folders(packages):
        message = f"the bindings {packages} are not installed"
        if os.environ.get("WAVEDSL_REQUIRE_ORACLES") == "1":
            pytest.fail(message)
        pytest.skip(message)
    parts = [COMMON, types]
    declared = prototypes(side)
    for key, body in bodies.items():
        name = key.split()[0]
        head, absent = declared[name]
        told = "" if name in RAW else f'static int calls; int told = answer("{name}", &calls); if (told) return told; '
        finish = "" if name in ("cuGetProcAddress", "hipGetErrorString") else " return 0;"
        parts.append(f"{head} {{ {absent}{told}{body}{finish} }}\n")
    return "\n".join(parts)


def build(side: str, text: str, zig: str, folder: Path) -> None:
    """Compile a stand-in into `folder/out`. The C library is that of the process that loads it: zig would build its own
    first, which takes twenty seconds."""
    source, library = folder / f"{side}.c", folder / "out" / SIDES[side][-1]
    source.write_text(text)
    library.parent.mkdir()
    subprocess.run(
        [zig, "cc", "-shared", "-nostdlib", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(source)],
        check=True,
        env={**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder / "zig"), "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig")},
    )


def arch_offset() -> int:
    """Where the bindings' hipDeviceProp_t has `gcnArchName`, for STANDIN_ARCH_OFFSET."""
    from hip import hip

    properties = hip.hipDeviceProp_t()
    size = properties.c_sizeof()
    raw = (ctypes.c_char * size).from_address(int(properties))
    raw[:] = b"".join(b"%04x" % offset for offset in range(0, size, 4))  # every word spells its own offset
    return int(properties.gcnArchName[:4], 16)
