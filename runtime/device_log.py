"""What a kernel had to say: `device_print` and `device_assert`, read from the log that the launch brought."""

from __future__ import annotations

import numpy as np
from wavedsl.ir.dataflow.device_log import SOURCE, Failure, clear, read_log
from wavedsl.runtime.arrays import ArrayRef
from wavedsl.runtime.prepare import Call, Launchable


def log_of(compiled: Launchable, call: Call) -> tuple[int, np.ndarray]:
    """Position and words of the log."""
    at = next(i for i, p in enumerate(compiled.params) if p.source == SOURCE)
    value = call.values[at]
    assert isinstance(value, ArrayRef)
    return at, value.numpy()


def speak(compiled: Launchable, call: Call) -> list[Failure]:
    """Print what `device_print` left in the log and empty it; the assertions that failed."""
    if not compiled.sites:
        return []
    _, log = log_of(compiled, call)
    lines, failures = read_log(log, compiled.sites)
    clear(log)
    for line in lines:
        print(line)
    return failures
