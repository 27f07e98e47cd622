"""What tuning found, kept in a JSON file beside the kernel's source, to be read, reviewed and committed.

    {"format": 1, "kernels": {NAME: {TARGET: {BUCKET: {
        "pinned": {"subs": {"BM": 64, ...}, "schedule": {"stages": 2}},
        "by": "emulator cycle model" or "device time", "seconds": …,
        "environment": {wavedsl, python, platform, product, kernel, date},
        "candidates": {KEY: {"status": …, "predicted": …, "seconds": …, "reason": …}}}}}}}

Edit `pinned` by hand to overrule a measurement. `environment.kernel` is a digest of the traced kernel: results of a
kernel that has changed since are reported and not used. A file that is no such JSON is never overwritten: it is moved
aside. Writing merges with what others have written since, and replaces the file in one step.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import platform
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import wavedsl
from wavedsl.tuning.candidates import Candidate

FORMAT = 1
STATUSES = ("ok", "pruned", "refused", "wrong", "crashed", "hung", "skipped")
"""`pruned` by limits or model before it ran, `refused` by the compiler, `skipped` for want of budget."""


class TuningWarning(UserWarning):
    """A results file, or an entry in it, that could not be used."""


def beside(kernel: Any) -> Path:
    """The results file of a kernel: `gemm.tuning.json` beside `gemm.py`."""
    return Path(kernel.function.__code__.co_filename).with_suffix(".tuning.json")


def kernel_digest(kernel: Any) -> str:
    """A digest of what the kernel computes, whatever its tiles: its graph with names of symbols, without locations."""
    from wavedsl.ir.graph import node_text

    graph = kernel.trace()
    lines = [*(str(a) for a in graph.arguments), *(str(c) for c in kernel.constraints)]
    lines += [node_text(n) for n in graph.all_nodes()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def environment(kernel: Any, product: str) -> dict[str, str]:
    """Where and with what a result was found."""
    return {
        "wavedsl": wavedsl.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "product": product,
        "kernel": kernel_digest(kernel),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


class ResultsFile:
    """One results file. Reading never raises: what cannot be used is a `TuningWarning`."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def read(self) -> dict[str, Any]:
        """The kernels of the file; empty where there is none or it is not one of ours."""
        kernels, _ = self._load()
        return kernels

    def entry(self, kernel: Any, target: str, bucket: str) -> dict[str, Any] | None:
        """What is known of one kernel, target and bucket, checked entry by entry; None where nothing usable is."""
        found = self.read().get(kernel.name, {})
        found = found.get(target, {}) if isinstance(found, dict) else {}
        entry = found.get(bucket) if isinstance(found, dict) else None
        if entry is None:
            return None
        try:
            return _checked(entry, kernel)
        except _Unusable as error:
            warnings.warn(
                f"{self.path}: the results of {kernel.name} for {target}, {bucket} are not used: {error}",
                TuningWarning,
                stacklevel=3,
            )
            return None

    def write(self, kernel: Any, target: str, bucket: str, entry: Mapping[str, Any]) -> None:
        """Store one entry, keeping all others. A foreign file moves aside to `….rejected`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path):
            kernels, foreign = self._load(quiet=True)
            if foreign:
                os.replace(self.path, _free_name(self.path))
            kernels.setdefault(kernel.name, {}).setdefault(target, {})[bucket] = dict(entry)
            text = json.dumps({"format": FORMAT, "kernels": kernels}, indent=1, sort_keys=True) + "\n"
            temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self.path)

    def _load(self, quiet: bool = False) -> tuple[dict[str, Any], bool]:
        """The kernels, and whether the file is there but not ours."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}, False
        except (OSError, UnicodeDecodeError) as error:
            return self._foreign(str(error), quiet)
        try:
            data = json.loads(text)
        except ValueError as error:
            return self._foreign(f"it is not JSON ({error})", quiet)
        if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("kernels"), dict):
            return self._foreign(f"it is not a results file of format {FORMAT}", quiet)
        if not all(
            isinstance(t, dict) and all(isinstance(b, dict) for b in t.values()) for t in data["kernels"].values()
        ):
            return self._foreign("its kernels are not tables of targets and buckets", quiet)
        return data["kernels"], False

    def _foreign(self, why: str, quiet: bool) -> tuple[dict[str, Any], bool]:
        if not quiet:
            warnings.warn(f"{self.path} is not used: {why}", TuningWarning, stacklevel=4)
        return {}, True


class _Unusable(Exception):
    pass


def _checked(entry: Any, kernel: Any) -> dict[str, Any]:
    """The entry with its candidates that make sense. `_Unusable` where it belongs to something else."""
    if not isinstance(entry, dict):
        raise _Unusable(f"the entry is {entry!r}")
    stamp = entry.get("environment")
    if not isinstance(stamp, dict) or not isinstance(stamp.get("kernel"), str):
        raise _Unusable("it has no environment stamp")
    if stamp["kernel"] != kernel_digest(kernel):
        raise _Unusable("the kernel has changed since")
    try:
        pinned = None if entry.get("pinned") is None else Candidate.from_json(entry["pinned"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _Unusable(f"its pinned choice cannot be read ({error})") from None
    kept = {}
    candidates = entry.get("candidates")
    for key, found in candidates.items() if isinstance(candidates, dict) else ():
        if isinstance(found, dict) and found.get("status") in STATUSES:
            seconds = found.get("seconds")
            if seconds is None or (isinstance(seconds, (int, float)) and seconds > 0):
                kept[key] = found
    return {**entry, "candidates": kept, "pinned": None if pinned is None else pinned.to_json()}


def _free_name(path: Path) -> Path:
    """A name for a file that is moved aside: no earlier one is lost."""
    for n in range(1000):
        other = path.with_name(f"{path.name}.rejected{n or ''}")
        if not other.exists():
            return other
    return path.with_name(f"{path.name}.rejected-{os.getpid()}")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Others who write this file wait. Where files cannot be locked, the last writer wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path.with_name(f".{path.name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
