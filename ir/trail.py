"""What the compiler says about itself while it works: WAVEDSL_DUMP writes its stages, WAVEDSL_DEBUG explains decisions.

    WAVEDSL_DUMP=out            every stage of every compile as text: out/<kernel>.<target>/03-after-unroll.txt …
    WAVEDSL_DEBUG=regalloc,…    lines on standard error (and in the dump): liveness, regalloc, offsets

Both are read when a compile begins (`begin`); outside of one, and when neither is set, nothing is built and nothing
written. Numbers count stages in order, so the folder reads as the compile ran.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from wavedsl.ir.errors import LaunchError
from wavedsl.ir.quick_dataclass import dataclass

TOPICS = ("liveness", "regalloc", "offsets")


@dataclass
class Trail:
    """One compile's folder and topics. `number`: stages written."""

    folder: Path | None
    topics: frozenset[str]
    number: int = 0


_CURRENT: contextvars.ContextVar[Trail | None] = contextvars.ContextVar("wavedsl_trail", default=None)


def asked() -> bool:
    """Whether the next compile will leave a trail: then it must not be skipped for a cache's sake."""
    return bool(os.environ.get("WAVEDSL_DUMP") or os.environ.get("WAVEDSL_DEBUG"))


@contextlib.contextmanager
def begin(kernel: str, target: str) -> Iterator[None]:
    """The compile of one kernel. An earlier dump of the same kernel and target is replaced."""
    if not asked():
        yield
        return
    where = os.environ.get("WAVEDSL_DUMP")
    folder = None
    if where:
        folder = Path(where) / f"{re.sub('[^A-Za-z0-9_.-]', '_', kernel)}.{target}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(
                f"WAVEDSL_DUMP={where}: no folder can be made there ({error.strerror})", hint="a folder to write into"
            ) from error
        for old in (*folder.glob("[0-9][0-9]-*.txt"), *folder.glob("debug-*.txt")):
            old.unlink()
    given = {t.strip() for t in os.environ.get("WAVEDSL_DEBUG", "").split(",") if t.strip()}
    unknown = sorted(given - {*TOPICS, "all"})
    if unknown:
        print(f"wavedsl: WAVEDSL_DEBUG knows {', '.join(TOPICS)} and all, not {', '.join(unknown)}", file=sys.stderr)
    token = _CURRENT.set(Trail(folder, frozenset(TOPICS if "all" in given else given)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def stage(name: str, text: Callable[[], str]) -> None:
    """Write one stage, if stages are written; `text` is called only then."""
    trail = _CURRENT.get()
    if trail is None or trail.folder is None:
        return
    trail.number += 1
    file = re.sub("[^A-Za-z0-9_.-]+", "-", name).strip("-")
    (trail.folder / f"{trail.number:02}-{file}.txt").write_text(text().rstrip("\n") + "\n", encoding="utf-8")


def explains(topic: str) -> bool:
    """Whether decisions of this topic are to be explained. Ask before building a message."""
    trail = _CURRENT.get()
    return trail is not None and topic in trail.topics


def explain(topic: str, message: str) -> None:
    """One decision, or several lines about one."""
    trail = _CURRENT.get()
    if trail is None or topic not in trail.topics:
        return
    lines = "".join(f"{topic}: {line}\n" for line in message.splitlines())
    sys.stderr.write(lines)
    if trail.folder is not None:
        with (trail.folder / f"debug-{topic}.txt").open("a", encoding="utf-8") as file:
            file.write(lines)
