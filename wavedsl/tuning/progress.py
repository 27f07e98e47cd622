"""What a tuning run shows while it works: a bar with the best so far and the time left.

With rich (`pip install 'wavedsl[tune]'`) and a terminal, a live bar; otherwise a line on standard error now and then,
or nothing.
"""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

EVERY = 5.0
"""Seconds between lines where there is no bar."""


class Progress:
    """Call `stage` when a phase starts, `step` after each candidate, `close` at the end. This one shows nothing."""

    def stage(self, name: str, total: int) -> None: ...

    def step(self, best: str = "") -> None: ...

    def close(self) -> None: ...


class Lines(Progress):
    """Plain lines, at most one in `EVERY` seconds and one at the end of a phase."""

    def __init__(self, stream: TextIO | None = None, every: float = EVERY):
        self.stream = stream or sys.stderr
        self.every = every
        self.name, self.total, self.done = "", 0, 0
        self.started = self.said = time.monotonic()

    def stage(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self.started = self.said = time.monotonic()

    def step(self, best: str = "") -> None:
        self.done += 1
        now = time.monotonic()
        if now - self.said < self.every and self.done < self.total:
            return
        self.said = now
        left = (now - self.started) / self.done * (self.total - self.done)
        words = [f"tuning: {self.name} {self.done}/{self.total}", f"{left:.0f} s left"]
        print(", ".join(words + ([f"best {best}"] if best else [])), file=self.stream, flush=True)


class Bar(Progress):
    """rich's live bar."""

    def __init__(self, console: Any = None):
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            TextColumn("tuning: {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[best]}"),
            console=console,
            transient=True,
        )
        self.bar.start()
        self.task: Any = None

    def stage(self, name: str, total: int) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(name, total=total, best="")

    def step(self, best: str = "") -> None:
        self.bar.update(self.task, advance=1, best=f"best {best}" if best else "")

    def close(self) -> None:
        self.bar.stop()


def make_progress(asked: bool | Progress | None) -> Progress:
    """`True`: a bar, or lines without rich; `None`: a bar on a terminal with rich, else nothing; or one's own."""
    if isinstance(asked, Progress):
        return asked
    if asked is False or (asked is None and not sys.stderr.isatty()):
        return Progress()
    try:
        from rich.console import Console

        return Bar(Console(stderr=True))
    except ImportError:
        return Lines() if asked else Progress()
