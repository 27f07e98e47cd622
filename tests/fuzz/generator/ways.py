"""Ways to call a drawn kernel beside `compile` and `emulate`: all end in the same arrays.

call         `kernel(*arguments)` on the emulator as the default device; arrays are copied there and back
bind         `kernel.bind(*arguments)`, called twice on the same contents
saved        the compiled kernel written to a file, read back, run
precompiled  `kernel.precompile`, then a call by another kernel object of the same text, under WAVEDSL_STRICT
tuned        a kernel whose tile of M is open, called under `wd.autotune` of a few tiles, then once more as chosen
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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


def launch(
    way: str, kernel: Any, again: Callable[..., Any], compiled: Any, target: str, got: Sequence[Any],
    tiles: tuple[int, ...] = (),
) -> None:  # fmt: skip
    """Runs a kernel on `got` in place. `again`: another kernel object of the same text, also with its tile open;
    `compiled`: for the target; `tiles`: those to choose from."""
    with alone(target) as folder:
        if way == "call":
            kernel(*got)
        elif way == "bind":
            first = [x.copy() if isinstance(x, np.ndarray) else x for x in got]
            bound = kernel.bind(*got)
            bound()
            put_back(got, first)
            bound()
        elif way == "saved":
            path = Path(folder) / "drawn.kernel"
            compiled.save(path)
            wd.load(path).emulate(*got)
        elif way == "tuned":
            first = [x.copy() if isinstance(x, np.ndarray) else x for x in got]
            space = {wd.sym.BM: list(tiles)}
            with ThreadPoolExecutor(1) as executor:
                options = {"executor": executor, "keep": 1.0, "progress": False}
                tuned = wd.autotune(space, results=Path(folder) / "results.json", **options)(again(tuned=True))
                tuned(*got)
            put_back(got, first)
            os.environ["WAVEDSL_STRICT"] = "1"
            tuned.precompile(*got, target=target)
            tuned(*got)
        else:
            assert way == "precompiled", way
            kernel.precompile(*got, target=target)
            os.environ["WAVEDSL_STRICT"] = "1"
            again()(*got)


def put_back(got: Sequence[Any], first: Sequence[Any]) -> None:
    """Makes the arrays what they were before a call."""
    for x, old in zip(got, first):
        if isinstance(x, np.ndarray) and x.flags.writeable:
            x[...] = old
