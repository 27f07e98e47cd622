"""Ways to call a drawn kernel beside `compile` and `emulate`: all end in the same arrays.

call         `kernel(*arguments)` on the emulator as the default device; arrays are copied there and back
bind         `kernel.bind(*arguments)`, called twice on the same contents
saved        the compiled kernel written to a file, read back, run
precompiled  `kernel.precompile`, then a call by another kernel object of the same text, under WAVEDSL_STRICT
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import wavedsl as wd


@contextmanager
def alone(target: str) -> Iterator[str]:
    """The emulator of a target is the default device, and nothing has been compiled yet. Gives a folder."""
    known = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(WAVEDSL_DEVICE=f"emulator:{target}", WAVEDSL_CACHE_DIR=folder)
        try:
            yield folder
        finally:
            os.environ.clear()
            os.environ.update(known)


def launch(way: str, kernel: Any, again: Callable[[], Any], compiled: Any, target: str, got: Sequence[Any]) -> None:
    """Runs a kernel on `got` in place. `again`: another kernel object of the same text; `compiled`: for the target."""
    with alone(target) as folder:
        if way == "call":
            kernel(*got)
        elif way == "bind":
            first = [x.copy() if isinstance(x, np.ndarray) else x for x in got]
            bound = kernel.bind(*got)
            bound()
            for x, old in zip(got, first):
                if isinstance(x, np.ndarray) and x.flags.writeable:
                    x[...] = old
            bound()
        elif way == "saved":
            path = Path(folder) / "drawn.kernel"
            compiled.save(path)
            wd.load(path).emulate(*got)
        else:
            assert way == "precompiled", way
            kernel.precompile(*got, target=target)
            os.environ["WAVEDSL_STRICT"] = "1"
            again()(*got)
