"""The units of a benchmark on a borrowed GPU, one after another, so that none takes the others with it.

A unit that raises, hangs, ends the process or leaves the GPU's context dead has a row that says so, and the next one
runs. Rows are kept in a file as they come, with the unit that is running. After a hang or with a dead context the
program starts itself again (`os.execv`, which also ends what runs on the GPU) with `--resume`, and goes on behind that
unit, in what is left of its time. A kind of units of which too many died is left out, since what they share must be
broken; so is the rest when the time is used up. Each left-out row says so, and the file stays: the same command with
`--resume` does the rest, in as much time again.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESUME = "--resume"
OURS = "wavedsl"
"""The provider whose failure ends a row."""
LIMIT = 180.0
"""Seconds that a unit may take where it does not say less."""
CHECK_LIMIT = 30.0
"""Seconds for a check of one kernel and its reference, or for one candidate: compiling included."""
TINY_LIMIT = 15.0
"""Seconds for a check of a few tiles. The first one loads torch's libraries."""
MOST_DEAD = 5
"""Units of a kind that may leave a dead context behind before the kind is left out; a hang counts twice. A kind most of
whose units are right goes on."""
MOST_STARTS = 40
"""Times that the program starts itself again."""


class Units:
    """What has been run. `kept`: the file of rows. `alive`: raises where the context is dead; None where nothing may be
    started again. `budget`: seconds from the first start. `keep`: whether there is a file. `again`: instead of starting
    the program again."""

    def __init__(
        self, kept: Path, *, budget: float | None = None, limit: float = LIMIT, resume: bool = False,
        alive: Callable[[], Any] | None = None, command: Sequence[str] | None = None, keep: bool = True,
        again: Callable[[], Any] | None = None,
    ):  # fmt: skip
        self.kept, self.limit, self.alive, self.keep = kept, limit, alive, keep
        self.command, self._other = list(command or sys.argv), again
        self.rows: dict[str, dict[str, Any]] = {}
        self.end = time.time() + budget if budget is not None else None
        self.share: float | None = None
        self.spent: dict[str, float] = {}
        self._part: tuple[str, float] | None = None
        self.left_out = False
        self.starts = 0
        self.counts: dict[str, dict[str, int]] = {}
        if resume and kept.exists():
            found = json.loads(kept.read_text())
            self.rows = found["rows"]
            if found["again"]:  # by itself: the time goes on
                self.end, self.counts, self.starts = found["end"], found["counts"], found["starts"] + 1
                self.spent = found["spent"]
            running = found.get("running")
            if running and running["key"] not in self.rows:
                self._count(running["kinds"], "dead")
                self.rows[running["key"]] = {**running["row"], "failed": "ended the process, or hung"}
            self._write()

    def run(
        self, key: str, row: dict[str, Any], work: Callable[[], dict[str, Any]], limit: float | None = None,
        kinds: Sequence[str] = ("",),
    ) -> dict[str, Any]:  # fmt: skip
        """`row` with what `work` gives, or with `failed`: why there is nothing. What has a row is not run again.

        `limit`: seconds that this one may take, where that is less than what any may; `kinds`: what it has in common
        with others, such as a feature.
        """
        if key in self.rows:
            return self.rows[key]
        why = self._hindered(kinds)
        if why:
            self.left_out = True
            return {**row, "failed": f"left out: {why}"}
        started = time.time()
        seconds = min(self.limit, limit or self.limit)
        left = max(0.1, self.end - started) if self.end is not None else seconds
        watch = threading.Timer(min(seconds, left), self._late, (key, row, seconds, kinds))
        watch.daemon = True
        if self.alive is not None:
            self._keep(running={"key": key, "row": row, "kinds": list(kinds), "since": started, "limit": seconds})
            watch.start()
        try:
            found = {**row, **work()}
        except Exception as error:
            found = {**row, "failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        alive = self._lives()  # a rival may have killed the context, which is not the next unit's fault
        watch.cancel()
        self._count(kinds, "dead" if not alive else "failed" if "failed" in found else "right")
        self.rows[key] = {**found, "took": round(time.time() - started, 2)}
        self._keep()
        if not alive:
            self._again()
        return self.rows[key]

    @contextlib.contextmanager
    def part(self, name: str, seconds: float | None) -> Iterator[None]:
        """Inside, what does not fit into these seconds is left out, those before a start of its own again included;
        None is as long as there is time."""
        self._part = (name, time.time() - self.spent.get(name, 0.0))
        self.share = self._part[1] + seconds if seconds is not None else None
        try:
            yield
        finally:
            self._note_spent()
            self._part, self.share = None, None

    def _note_spent(self) -> None:
        if self._part is not None:
            self.spent[self._part[0]] = time.time() - self._part[1]

    def forget(self, which: Callable[[str, dict[str, Any]], bool]) -> int:
        """Drop rows, so that their units run again; how many there were."""
        gone = [key for key, row in self.rows.items() if which(key, row)]
        for key in gone:
            del self.rows[key]
        return len(gone)

    def done(self) -> None:
        """All rows are written elsewhere. The file goes unless some were left out."""
        if self.left_out and self.rows:
            print(f"{RESUME} does what was left out", file=sys.stderr)
        else:
            self.kept.unlink(missing_ok=True)

    def _hindered(self, kinds: Sequence[str]) -> str:
        """Why no unit of these kinds runs now; nothing where one may."""
        if any(end is not None and time.time() > end for end in (self.end, self.share)):
            return "the time was used up"
        if self.starts >= MOST_STARTS:
            return f"started again {self.starts} times"
        for kind in kinds:
            found = self.counts.get(kind, {})
            dead = found.get("dead", 0) + 2 * found.get("hung", 0)
            most = 2 if kind.startswith("one ") else MOST_DEAD
            if dead >= most and dead > found.get("right", 0):
                return f"{found.get('hung', 0)} of this kind hung, {found.get('dead', 0)} left a dead context"
        return ""

    def _lives(self) -> bool:
        try:
            if self.alive is not None:
                self.alive()
        except Exception:
            return False
        return True

    def _count(self, kinds: Sequence[str], what: str) -> None:
        for kind in kinds:
            found = self.counts.setdefault(kind, {})
            found[what] = found.get(what, 0) + 1

    def _keep(self, running: dict[str, Any] | None = None) -> None:
        if self.keep:
            self._write(running=running)

    def _write(self, again: bool = False, running: dict[str, Any] | None = None) -> None:
        """The file; `again`: whether the program reads it next, having started itself. A program that ends while a unit
        is `running` is one that the unit has ended."""
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        self._note_spent()
        new = self.kept.with_suffix(".new")
        state = {"end": self.end, "counts": self.counts, "starts": self.starts, "again": again or running is not None,
                 "running": running, "spent": self.spent, "rows": self.rows}  # fmt: skip
        new.write_text(json.dumps(state))
        new.replace(self.kept)

    def _late(self, key: str, row: dict[str, Any], seconds: float, kinds: Sequence[str]) -> None:
        if self.end is None or time.time() < self.end:  # else it was not given its time
            self._count(kinds, "hung")
            self.rows[key] = {**row, "failed": f"took more than {seconds:g} s"}
        self._again()

    def _again(self) -> None:
        self._write(again=True)
        sys.stdout.flush()
        sys.stderr.flush()
        if self._other is not None:
            self._other()
        for name in os.listdir("/proc/self/fd"):  # the driver ends what runs on the GPU when its files are closed
            if int(name) > 2:
                with contextlib.suppress(OSError):
                    os.set_inheritable(int(name), False)
        more = [] if RESUME in self.command else [RESUME]
        os.execv(sys.executable, [sys.executable, *self.command, *more])


class Kept:
    """Rows of an earlier run in the place of `Units`: what was not run is not run now either."""

    def __init__(self, rows: Mapping[str, dict[str, Any]]):
        self.rows = rows

    def run(
        self, key: str, row: dict[str, Any], work: Any, limit: float | None = None, kinds: Sequence[str] = ()
    ) -> dict[str, Any]:
        return self.rows.get(key) or {**row, "failed": "not measured"}


def by_providers(
    done: Any, providers: Sequence[str], unit: Callable[[str], tuple[str, Callable[[], dict[str, Any]], str]],
    turns: int = 1,
) -> tuple[dict[str, dict[str, Any]], dict[str, str], str]:  # fmt: skip
    """What every provider's unit gives, why rivals gave nothing, and why ours (`OURS`, the first) did not, after which
    no rival is asked. `unit(provider)`: its key, what it does, and its kind. A rival's failure is its own.

    With two `turns` all that gave something are asked once more, in the opposite order, so that what a chip's heat
    does to the first it does to the last: `seconds` is the geometric mean of both, which are in `turns`.
    """
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for name in providers:
        key, work, kind = unit(name)
        seen = done.run(key, {}, work, 2 * CHECK_LIMIT, (kind,))
        if "failed" not in seen:
            found[name] = seen
        elif name == OURS:
            return found, missing, seen["failed"]
        else:
            missing[name] = seen["failed"]
    if turns == 2:
        for name in reversed(list(found)):
            key, work, kind = unit(name)
            seen = done.run(f"{key}, second turn", {}, work, 2 * CHECK_LIMIT, (kind,))
            if "failed" not in seen:
                both = found[name]["seconds"], seen["seconds"]
                found[name] = {**found[name], "seconds": math.sqrt(math.prod(both)), "turns": list(both)}
    return found, missing, ""


def alive(torch: Any) -> Callable[[], Any] | None:
    """What raises where the GPU's context is dead; None without a GPU."""
    return None if torch is None else torch.cuda.synchronize


def option(parser: Any) -> None:
    """What every benchmark with units takes."""
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="leave out what does not fit into this time")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="of a case (%(default)g)")
    parser.add_argument(RESUME, action="store_true", help="go on with the rows of a run that was cut off")


__all__ = [
    "CHECK_LIMIT", "LIMIT", "OURS", "RESUME", "TINY_LIMIT", "Kept", "Units", "alive", "by_providers", "option",
]  # fmt: skip
