"""The measurement of launches on a real driver runs end to end against the stand-in, and says what is missing there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import standin

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import contextlib, json, sys, types
sys.path[:0] = sys.argv[1:3]
import device_arrays, numpy as np
torch = sys.modules["torch"] = device_arrays.module("torch")
kept = []
def zeros(shape, device):
    kept.append(np.zeros(64 * 256 + 64, np.float32))
    shape = (shape,) if isinstance(shape, int) else shape
    return device_arrays.Tensor(kept[-1].ctypes.data // 64 * 64 + 64, shape, device_arrays.row_major(shape))
class Stream:
    cuda_stream = 0x6001
@contextlib.contextmanager
def stream(which):
    device_arrays.STREAMS["torch", 0] = which.cuda_stream
    yield
    del device_arrays.STREAMS["torch", 0]
torch.zeros = zeros
torch.cuda = types.SimpleNamespace(synchronize=lambda: None, Stream=Stream, stream=stream, current_device=lambda: 0)
import gpu_launch
rows = gpu_launch.measure(1)
print("\\n".join(gpu_launch.summary(rows)), file=sys.stderr)
print(json.dumps(rows))
"""


def test_every_part_that_a_stand_in_has(tmp_path):
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(standin.built("cuda")),
        "STANDIN_FOLDER": str(standin.built("cuda")),
        "STANDIN_IDLE": "1",
        "WAVEDSL_CACHE_DIR": str(tmp_path),
    }
    folders = [str(ROOT / "benchmarks"), str(ROOT / "tests" / "helpers")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    found = {(row["group"], row["call"]): row for row in rows}
    assert len(found) == len(rows)
    missing = {key: row["failed"] for key, row in found.items() if "failed" in row}
    there = {key for key in found if key[0] in ("ours", "driver", "python")}
    # CuPy is not installed; the stand-in's driver has one entry for launches, which takes parameters in one form.
    assert there & set(missing) == {
        ("ours", "kernel(), CuPy"),
        ("driver", "cuLaunchKernel, ctypes"),
        ("driver", "cuLaunchKernelEx, C, parameters as one buffer"),
    }, missing
    assert {key for key in missing if key[0] == "rivals"} == {key for key in found if key[0] == "rivals"}
    assert all(row["us"] >= row["least_us"] > 0 for row in rows if "failed" not in row)
