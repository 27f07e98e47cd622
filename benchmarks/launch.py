"""Host time of a launch, without a GPU: our code and the vendor's bindings in front of a driver that computes nothing.

    python benchmarks/launch.py [--repeat 40]

A kernel of 3 arrays and 5 scalars is called (`kernel(...)`) and a bound one is launched (`bound()`), for the ways in
which arrays give themselves away. The driver is the tests' stand-in, a C library behind the real bindings. Tensors are
torch's own where it is installed (`torch` in the file says which), of host memory that is taken for the device's; other
arrays are Python classes that answer what torch's, CuPy's, Numba's and DLPack's do. "DLPack, capsule at hand" gives the
same capsule in each call, as cheaply as a producer written in C: what remains is ours. Further rows: a GEMM whose M is
new in every call (with tensor maps on sm_90a), the same once each M has been seen, and a tuned kernel. On a real driver
`gpu_launch.py` measures.

A number is the least of `--repeat` medians of rounds, in three passes, in microseconds of the process's CPU time,
without collecting garbage: other work on the machine counts as little as it can. What is asked for counts the whole
call; beside it stand what of that the arrays take to answer (`arrays_us`) and what bindings and stand-in take for the
same driver calls (`driver_us`). Where torch or JAX are installed, rows without a launch tell what their own arrays take
to answer.

The rows are written to results/launch.json with machine and versions.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

HELPERS = Path(__file__).resolve().parents[1] / "tests" / "helpers"
CALL_US, BOUND_US = 5.0, 3.0
"""What is asked for: microseconds of a call with 3 arrays and 5 scalars, and of a bound launch."""
SCALARS = (2, 0.5, 1.5, -3, 7)
NEW_EXTENT_US = 10.0
"""What is asked for of a call with extents that were never seen."""
PASSES = 3
"""Times that everything is measured, each in processes of its own: a busy machine has quiet minutes."""
ROUND, ROUNDS = 500, 5
"""Calls in a round, and rounds that a median is taken of."""
ASK: dict[str, Callable[[Any], Any]] = {
    "torch": lambda x: (x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.is_neg(), x.data_ptr()),
    "cupy": lambda x: (x.shape, x.strides, x.dtype, x.data.device_id, x.data.ptr),
    "DLPack": lambda x: x.__dlpack__(stream=1, max_version=(1, 0)),
    "DLPack, capsule at hand": lambda x: x.__dlpack__(stream=1, max_version=(1, 0)),
    "__cuda_array_interface__": lambda x: x.__cuda_array_interface__,
}
"""What is asked of an array in a call."""


def best(call: Callable[[], Any], repeat: int) -> float:
    """Microseconds of one call: the least median of `repeat` times a few rounds, the loop's own time taken off."""

    def rounds(function: Callable[[], Any]) -> float:
        found = float("inf")
        for _ in range(repeat):
            times = []
            for _ in range(ROUNDS):
                start = time.process_time_ns()
                for _ in range(ROUND):
                    function()
                times.append(time.process_time_ns() - start)
            found = min(found, statistics.median(times) / ROUND)
        return found

    gc.collect()
    gc.disable()
    try:
        return 1e-3 * (rounds(call) - rounds(lambda: None))
    finally:
        gc.enable()


def scaled_sum() -> Any:
    """A kernel of three arrays and five scalars."""
    import wavedsl as wd

    M, N, BM, BN = wd.symbols("M N BM BN")
    f32, i32 = wd.Scalar[wd.f32], wd.Scalar[wd.i32]

    @wd.wave([wd.WorkgroupConstraint(M, BM, 1), wd.WorkgroupConstraint(N, BN, 0)], subs={BM: 4, BN: 256})
    def kernel(
        a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32], c: wd.Memory[M, N, wd.f32],
        n: i32, alpha: f32, beta: f32, low: i32, high: i32,
    ):  # fmt: skip
        x = wd.read(a) * alpha + wd.read(b) * beta
        wd.write(wd.where(wd.index(N) < n, wd.clamp(x, wd.cast(low, wd.f32), wd.cast(high, wd.f32)), x), c)

    return kernel


def gemm(**options: Any) -> Any:
    """A GEMM with a run-time M."""
    import wavedsl as wd

    M, N, K, BM = wd.symbols("M N K BM")

    @wd.wave(
        [wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, 64, 1), wd.TilingConstraint(K, 32)],
        subs={BM: 64},
        dynamic=[M],
        **options,
    )
    def kernel(a: wd.Memory[M, K, wd.f16], b: wd.Memory[N, K, wd.f16], c: wd.Memory[M, N, wd.f32]):
        acc = wd.Register[M, N, wd.f32](0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return kernel


def tensors(side: str) -> Callable[[int, tuple[int, ...], str], Any]:
    """What makes torch's tensors of memory at an address, row-major: its own where it is installed."""
    import device_arrays

    place = {"cuda": 2, "hip": 10}[side]
    try:
        import torch
    except ImportError:
        sys.modules["torch"] = device_arrays.module("torch")
        del sys.modules["torch"]._C._dynamo  # guards written in Python would take longer than what they replace

        def standing_in(address: int, shape: tuple[int, ...], dtype: str) -> Any:
            return device_arrays.Tensor(address, shape, device_arrays.row_major(shape), dtype, device_type=place)

        return standing_in
    from wavedsl.runtime import arrays

    torch._C._cuda_getCurrentRawStream = lambda index: 0x6001  # builds for the host have none
    described = arrays.describe

    def on_device(value: Any, name: str = "") -> Any:
        found = described(value, name)
        return replace(found, place=side, index=0, stream=0x6001) if isinstance(value, torch.Tensor) else found

    arrays.describe = on_device

    def own(address: int, shape: tuple[int, ...], dtype: str) -> Any:
        storage = (ctypes.c_char * (math.prod(shape) * getattr(torch, dtype).itemsize)).from_address(address)
        return torch.frombuffer(storage, dtype=getattr(torch, dtype)).view(shape)

    return own


def extents(side: str, tensor: Callable[[int, tuple[int, ...], str], Any]) -> list[dict[str, Any]]:
    """Rows of calls whose M varies, and of a tuned kernel."""
    import numpy as np

    import wavedsl as wd
    from wavedsl.tuning import Candidate

    n, k = 512, 512
    room = [np.zeros(1 << 20, np.float32) for _ in range(3)]
    at = [r.ctypes.data // 256 * 256 + 256 for r in room]

    def operands(m: int) -> tuple[Any, ...]:
        shapes = ((m, k, "float16"), (n, k, "float16"), (m, n, "float32"))
        return tuple(tensor(p, (rows, columns), dtype) for p, (rows, columns, dtype) in zip(at, shapes))

    def passing(function: Any, calls: list[tuple[Any, ...]]) -> float:
        times = []
        for i in range(0, len(calls), 100):
            start = time.process_time_ns()
            for call in calls[i : i + 100]:
                function(*call)
            times.append((time.process_time_ns() - start) / 1e3 / len(calls[i : i + 100]))
        return statistics.median(times)

    kernel = gemm()
    many = [operands(m) for m in range(100, 1000)]
    kernel(*operands(99))
    gc.collect()
    gc.disable()
    kernel(*many[0])
    new = []
    for _ in range(5):  # forgotten in between but for the text, and what follows from it
        for way in kernel.dispatch.known():
            way.plans.clear()
        new.append(passing(kernel, many))
    seen = min(passing(kernel, many) for _ in range(5))
    gc.enable()
    BM = wd.symbols("BM")[0]
    M = wd.symbols("M")[0]
    tuned = wd.autotune({BM: [32, 64]}, results="none.tuning.json")(gemm(buckets={M: (512,)}))
    tuned._look_up = lambda target, bucket: Candidate((("BM", 64),))
    tuned(*many[0])
    rows = [
        ("torch, M new in every call", min(new), NEW_EXTENT_US),
        ("torch, M seen before", seen, CALL_US),
        ("torch, tuned kernel", best(lambda: tuned(*many[0]), 20), CALL_US),
    ]
    return [{"vendor": side, "arrays": what, "call_us": us, "call_limit_us": limit} for what, us, limit in rows]


def packages(repeat: int) -> list[dict[str, Any]]:
    """What three arrays of installed packages take to answer what a call asks, on the host: the least that a call of
    theirs can take."""
    rows = []
    for name in ("torch", "jax"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        zeros = module.zeros if name == "torch" else module.numpy.zeros
        three = [zeros((64, 256)) for _ in range(3)]
        asked = [("DLPack", lambda x: x.__dlpack__(max_version=(1, 0)))]
        if name == "torch":
            asked.append(("torch", ASK["torch"]))
        for kind, ask in asked:
            us = best(lambda: [ask(x) for x in three], repeat)  # noqa: B023
            rows.append({"vendor": "", "arrays": f"{name}'s own, by {kind}", "arrays_us": us})
    return rows


def driver_calls(side: str, stream: int) -> Callable[[], None]:
    """The driver calls of one launch alone, through the bindings: which context, whether captured, the launch."""
    from wavedsl.runtime import devices

    driver = devices.open_driver(side, 0)
    with driver.entered():
        pass
    function = next(iter(driver._functions.values()))
    room = (ctypes.c_uint64 * 16)()
    pointers = (ctypes.c_void_p * 8)(*[ctypes.addressof(room)] * 8)
    start = driver.prepared(function, (1, 1, 1), ctypes.addressof(pointers))
    current, capturing = driver.current, driver.capturing

    def run(_kept: Any = (room, pointers)) -> None:
        current()
        start(stream, (1, 1, 1))
        capturing(stream)

    return run


def measure(side: str, repeat: int) -> list[dict[str, Any]]:
    """The rows of one vendor; runs in a process that finds the stand-in as its driver."""
    sys.path.append(str(HELPERS))
    import device_arrays
    import numpy as np

    shape = (64, 256)
    memory = [np.zeros(shape, np.float32) for _ in range(3)]
    strides = device_arrays.row_major(shape)
    pointers = [m.ctypes.data // 16 * 16 for m in memory]
    place = {"cuda": 2, "hip": 10}[side]
    sys.modules["cupy"] = device_arrays.module("cupy")
    tensor = tensors(side)
    device_arrays.STREAMS.update({("torch", 0): 0x6001, ("cupy", 0): 0x6001})
    kinds: dict[str, Callable[[int], Any]] = {
        "torch": lambda p: tensor(p, shape, "float32"),
        "DLPack": lambda p: device_arrays.Dlpack(p, shape, strides, device_type=place),
        "DLPack, capsule at hand": lambda p: AtHand(p, shape, strides, device_type=place),
    }

    class AtHand(device_arrays.Dlpack):
        def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
            if not self.keep:
                self.made = super().__dlpack__(stream=stream)
            return self.made

    if side == "cuda":
        kinds["cupy"] = lambda p: device_arrays.ndarray(p, shape, strides)
        kinds["__cuda_array_interface__"] = lambda p: device_arrays.Interface(p, shape, strides)
    rows = []
    kernel = scaled_sum()
    for kind, make in kinds.items():
        ask = ASK[kind]
        a, b, c = map(make, pointers)
        n, alpha, beta, low, high = SCALARS
        kernel(a, b, c, n, alpha, beta, low, high)
        bound = kernel.bind(a, b, c, n, alpha, beta, low, high)
        row = {"vendor": side, "arrays": kind}
        row["call_us"] = best(lambda: kernel(a, b, c, n, alpha, beta, low, high), repeat)  # noqa: B023
        row["keywords_us"] = best(lambda: kernel(a, b, c, n=n, alpha=alpha, beta=beta, low=low, high=high), repeat)  # noqa: B023
        row["bound_us"] = best(bound, repeat)
        row["arrays_us"] = best(lambda: [ask(x) for x in (a, b, c)], repeat)  # noqa: B023
        row["driver_us"] = best(driver_calls(side, 0x6001), repeat)
        row["call_limit_us"], row["bound_limit_us"] = CALL_US, BOUND_US
        rows.append(row)
    return rows + extents(side, tensor)


def least(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The least of each number in rows of the same case."""
    return {key: min(r[key] for r in rows) if key.endswith("_us") else value for key, value in rows[0].items()}


def on_standin(side: str, repeat: int) -> list[dict[str, Any]]:
    """`measure` in a process whose driver is the stand-in."""
    import json

    sys.path.append(str(HELPERS))
    import standin

    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(standin.built(side)),
            "ROCM_PATH": str(Path(folder, "no-rocm")),
            "STANDIN_FOLDER": str(standin.built(side)),
            "STANDIN_IDLE": "1",
            "STANDIN_ARCH_OFFSET": str(standin.arch_offset()) if side == "hip" else "0",
            "WAVEDSL_CACHE_DIR": str(Path(folder, "cache")),
        }
        done = subprocess.run(
            [sys.executable, __file__, "--repeat", str(repeat), "--in-standin", side],
            capture_output=True,
            text=True,
            env=environment,
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=40)
    options.add_argument("--in-standin", choices=["cuda", "hip"], help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.in_standin:
        import json

        print(json.dumps(measure(given.in_standin, given.repeat)))
        return 0
    import record

    from wavedsl.reports import table

    each = -(-given.repeat // PASSES)
    passes = [
        [row for side in ("cuda", "hip") for row in on_standin(side, each)] + packages(each) for _ in range(PASSES)
    ]
    rows = [least(same) for same in zip(*passes)]
    limits = ("call_limit_us", "bound_limit_us")
    head = ("vendor", "arrays", "call_us", "keywords_us", "bound_us", "arrays_us", "driver_us", *limits)
    print(table(head, [[row.get(key, "") for key in head] for row in rows]))
    print(record.write("launch", rows, torch=record._version("torch")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
