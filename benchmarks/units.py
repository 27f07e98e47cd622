"""The units of a benchmark on a borrowed GPU, one after another, so that none takes the others with it.

A unit that raises, hangs, or leaves the GPU's context dead has a row that says so, and the next one runs. Rows are kept
in a file as they come. After a hang or with a dead context the program starts itself again (`os.execv`, which also ends
what runs on the GPU) with `--resume`, and goes on behind that unit, in what is left of its time. When the time is used
up, or so many units have hung that what they share must be broken, the rest is left out, each left-out row says so, and
the file stays: the same command with `--resume` does the rest, in as much time again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

RESUME = "--resume"
LIMIT = 180.0
"""Seconds that a unit may take: compiling its candidates, references and rivals included."""
CHECK_LIMIT = 60.0
"""Seconds for a check of one kernel and its reference."""
MOST_HANGS = 3
"""Units that may hang before the rest is left out."""


class Units:
    """What has been run. `kept`: the file of rows. `alive`: raises where the context is dead; None where nothing may be
    started again. `budget`: seconds from the first start. `keep`: whether there is a file."""

    def __init__(
        self, kept: Path, *, budget: float | None = None, limit: float = LIMIT, resume: bool = False,
        alive: Callable[[], Any] | None = None, command: Sequence[str] | None = None, keep: bool = True,
    ):  # fmt: skip
        self.kept, self.limit, self.alive, self.keep = kept, limit, alive, keep
        self.command = list(command or sys.argv)
        self.rows: dict[str, dict[str, Any]] = {}
        self.end = time.time() + budget if budget is not None else None
        self.left_out = False
        self.hangs = 0
        if resume and kept.exists():
            found = json.loads(kept.read_text())
            self.rows = found["rows"]
            if found["again"]:  # by itself: the time goes on
                self.end, self.hangs = found["end"], found["hangs"]
                self._write(again=False)

    def run(
        self, key: str, row: dict[str, Any], work: Callable[[], dict[str, Any]], limit: float | None = None
    ) -> dict[str, Any]:
        """`row` with what `work` gives, or with `failed`: why there is nothing. What has a row is not run again.

        `limit`: seconds that this one may take, where that is less than what any may.
        """
        if key in self.rows:
            return self.rows[key]
        late = self.end is not None and time.time() > self.end
        if late or self.hangs >= MOST_HANGS:
            self.left_out = True
            why = "the time was used up" if late else f"{self.hangs} others hung"
            return {**row, "failed": f"left out: {why}"}
        started = time.time()
        seconds = min(self.limit, limit or self.limit)
        watch = threading.Timer(seconds, self._late, (key, row, seconds))
        watch.daemon = True
        if self.alive is not None:
            watch.start()
        try:
            found = {**row, **work()}
        except Exception as error:
            found = {**row, "failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        alive = self._lives()  # a rival may have killed the context, which is not the next unit's fault
        watch.cancel()
        self._keep(key, {**found, "took": round(time.time() - started, 2)})
        if not alive:
            self._again()
        return self.rows[key]

    def done(self) -> None:
        """All rows are written elsewhere. The file goes unless some were left out."""
        if self.left_out and self.rows:
            print(f"{RESUME} does what was left out", file=sys.stderr)
        else:
            self.kept.unlink(missing_ok=True)

    def _lives(self) -> bool:
        try:
            if self.alive is not None:
                self.alive()
        except Exception:
            return False
        return True

    def _keep(self, key: str, row: dict[str, Any]) -> None:
        self.rows[key] = row
        if self.keep:
            self._write(again=False)

    def _write(self, again: bool) -> None:
        """The file; `again`: whether the program reads it next, having started itself."""
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        new = self.kept.with_suffix(".new")
        state = {"end": self.end, "hangs": self.hangs, "again": again, "rows": self.rows}
        new.write_text(json.dumps(state, indent=1))
        new.replace(self.kept)

    def _late(self, key: str, row: dict[str, Any], seconds: float) -> None:
        self.hangs += 1
        self._keep(key, {**row, "failed": f"took more than {seconds:g} s"})
        self._again()

    def _again(self) -> None:
        self._write(again=True)
        sys.stdout.flush()
        sys.stderr.flush()
        for name in os.listdir("/proc/self/fd"):  # the driver ends what runs on the GPU when its files are closed
            if int(name) > 2:
                with contextlib.suppress(OSError):
                    os.set_inheritable(int(name), False)
        more = [] if RESUME in self.command else [RESUME]
        os.execv(sys.executable, [sys.executable, *self.command, *more])


def alive(torch: Any) -> Callable[[], Any] | None:
    """What raises where the GPU's context is dead; None without a GPU."""
    return None if torch is None else torch.cuda.synchronize


def option(parser: Any) -> None:
    """What every benchmark with units takes."""
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="leave out what does not fit into this time")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="of a case (%(default)g)")
    parser.add_argument(RESUME, action="store_true", help="go on with the rows of a run that was cut off")


__all__ = ["CHECK_LIMIT", "LIMIT", "RESUME", "Units", "alive", "option"]
