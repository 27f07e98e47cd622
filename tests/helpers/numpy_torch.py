"""A stand-in for torch on a GPU, of NumPy arrays: what the benchmarks use of it. Graphs count their replays and run
nothing; a clock goes on by 1 ms. (`device_arrays` stands for torch's arrays as a launch sees them.)"""

from __future__ import annotations

import contextlib
import types

import ml_dtypes
import numpy as np


class Tensor(np.ndarray):
    """A NumPy array with the methods of a tensor that the benchmark uses."""

    def to(self, kind):
        return self if kind == "cuda" else np.asarray(self).astype(kind).view(Tensor)

    def float(self):
        return self if self.dtype == np.float32 else self.to(np.float32)

    def double(self):
        return self.to(np.float64)

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self)

    def fill_(self, value):
        self[...] = value

    def abs(self):
        return np.abs(self)

    def t(self):
        return self.T

    def clone(self):
        return self.copy()

    def mul_(self, value):
        self[...] *= value


class Event:
    """The clock of the stand-in goes on by 1 ms per replay or round."""

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        pass

    def elapsed_time(self, end):
        return 1.0


def module():
    """What stands for `torch`; `graphs` has all that were made."""
    dtypes = {"bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}
    kinds = {n: np.dtype(dtypes.get(n, n)) for n in ("bfloat16", "float16", "float32", "float64", "float8_e4m3fn")}
    graphs = []

    class Graph:
        def __init__(self):
            self.replays = 0
            graphs.append(self)

        def replay(self):
            self.replays += 1

    def matmul(a, b, out):
        out[...] = np.asarray(a, np.float32) @ np.asarray(b, np.float32)

    def scaled(a, b, scale_a, scale_b, out_dtype, use_fast_accum):
        return (np.asarray(a, np.float32) @ np.asarray(b, np.float32) * scale_a * scale_b).astype(out_dtype)

    properties = types.SimpleNamespace(name="NVIDIA H200", multi_processor_count=132, total_memory=1 << 37)
    cuda = types.SimpleNamespace(
        is_available=lambda: True, synchronize=lambda: None, Event=Event, CUDAGraph=Graph,
        graph=lambda graph: contextlib.nullcontext(), current_device=lambda: 0, Stream=object,
        stream=contextlib.nullcontext,
        get_device_properties=lambda device: properties,
    )  # fmt: skip
    random = np.random.default_rng()
    return types.SimpleNamespace(
        **kinds, cuda=cuda, matmul=matmul, _scaled_mm=scaled, graphs=graphs, __version__="0",
        version=types.SimpleNamespace(cuda="0", hip=None),
        randn=lambda shape, device, dtype: random.standard_normal(shape).astype(dtype).view(Tensor),
        full=lambda shape, value, device, dtype: np.full(shape, value).astype(dtype).view(Tensor),
        zeros=lambda shape, device: np.zeros(shape, np.float32).view(Tensor),
        ones=lambda shape, device: np.ones(shape, np.float32).view(Tensor),
    )  # fmt: skip
