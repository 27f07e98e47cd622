"""What tuning found, kept in a JSON file beside the kernel's source, to be read, reviewed and committed.

    {"format": 2, "kernels": {NAME: {TARGET: {PRODUCT: {BUCKET: {
        "kernel": DIGEST,
        "pinned": {"subs": {"BM": 64, ...}, "schedule": {"stages": 2}, "by": …, "seconds": …},
        "runs": {"device time" or "emulator cycle model": {
            "chosen": KEY, "environment": {wavedsl, python, platform, product, kernel, date, device},
            "candidates": {KEY: {"status": …, "predicted": …, "seconds": …, "reason": …}},
            "pruned": {REASON: how many}}},
        "earlier": {DIGEST: what was found for the kernel when it was another one}}}}}}}

`runs` are apart by how they were measured, buckets by the chip, so that nothing that a model said replaces what a
device measured: `pinned` is the fastest on the device where there is one, else the fastest by the model. Edit it by
hand to overrule both: a choice that no run has chosen stays until it is taken out.

Writing merges candidate by candidate with what others have written since, under a lock, and replaces the file in one
step. `kernel` is a digest of the traced kernel: results of a kernel that has changed since are reported, not used, and
kept under `earlier`; they count again when it is changed back. A file that is no such JSON is never overwritten: it is
moved aside. Files of format 1 are read, and written in this one.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import platform
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import wavedsl
from wavedsl.ir.errors import ConstraintError, LaunchError
from wavedsl.ir.source import here
from wavedsl.tuning.candidates import Candidate
from wavedsl.tuning.merging import STATUSES, merged_run, pinned_choice, upgraded

FORMAT = 2


class TuningWarning(UserWarning):
    """A results file, or an entry in it, that could not be used."""


def warn(message: str) -> None:
    """A `TuningWarning` at the user's line, or at none: lines of this package say nothing to a user."""
    loc = here(calls=False)
    if loc is None:
        warnings.warn_explicit(message, TuningWarning, "wavedsl", 0, "wavedsl.tuning")
    else:
        warnings.warn_explicit(message, TuningWarning, loc.file, loc.line, "wavedsl.tuning")


def beside(kernel: Any) -> Path:
    """The results file of a kernel: `gemm.tuning.json` beside `gemm.py`."""
    return Path(kernel.function.__code__.co_filename).with_suffix(".tuning.json")


def kernel_digest(kernel: Any) -> str:
    """A digest of what the kernel computes, whatever its tiles: its graph with names of symbols, without locations."""
    from wavedsl.ir.dataflow.graph import node_text

    graph = kernel.trace()
    lines = [*(str(a) for a in graph.arguments), *(str(c) for c in kernel.constraints)]
    lines += [node_text(n) for n in graph.all_nodes()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def environment(kernel: Any, product: str, device: str = "") -> dict[str, str]:
    """Where and with what a result was found. `device`: what the driver calls the GPU, where there was one."""
    stamp = {
        "wavedsl": wavedsl.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "product": product,
        "kernel": kernel_digest(kernel),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
    return {**stamp, "device": device} if device else stamp


class ResultsFile:
    """One results file. What in it cannot be used is a `TuningWarning`; a directory in its place is a ConstraintError,
    and what the system refuses (permissions, a full disk) a LaunchError."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def check(self) -> None:
        """Raises ConstraintError or LaunchError where no results could be written, before anything is measured."""
        self._no_directory()
        folder = self.path.parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise LaunchError(f"{self.path} cannot be written: {folder} is no folder that one may write to")

    def read(self) -> dict[str, Any]:
        """The kernels of the file; empty where there is none or it is not one of ours."""
        kernels, why = self._load()
        if why:
            warn(f"{self.path} is not used: {why}")
        return kernels

    def products(self, kernel: Any, target: str, bucket: str) -> list[str]:
        """Products that this bucket has a pinned choice for."""
        found = self._load()[0].get(kernel.name, {}).get(target, {})
        return sorted(p for p, buckets in found.items() if (buckets.get(bucket) or {}).get("pinned"))

    def entry(self, kernel: Any, target: str, product: str, bucket: str) -> dict[str, Any] | None:
        """What is known of one kernel, chip and bucket, checked candidate by candidate; None if nothing usable."""
        entry = self.read().get(kernel.name, {}).get(target, {}).get(product, {}).get(bucket)
        if entry is None:
            return None
        try:
            return _checked(entry, kernel)
        except _Unusable as error:
            warn(f"{self.path}: the results of {kernel.name} for {target} ({product}), {bucket} are not used: {error}")
            return None

    def write(
        self,
        kernel: Any,
        target: str,
        product: str,
        bucket: str,
        by: str,
        run: Mapping[str, Any],
        fresh: Collection[str] = (),
    ) -> dict[str, Any]:
        """Merge a run (`environment`, `candidates`, `pruned`) that was measured `by` something into the bucket; the
        entry as it then is. Keys of `fresh` candidates are those among which the fastest is looked for, where one of
        them was measured. A foreign file moves aside to `….rejected`, and a warning says so."""
        try:
            self._no_directory()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path):
                kernels, why = self._load()
                if why:
                    aside = _free_name(self.path)
                    os.replace(self.path, aside)
                    warn(f"{self.path} was moved aside to {aside}: {why}")
                buckets = kernels.setdefault(kernel.name, {}).setdefault(target, {}).setdefault(product, {})
                entry = buckets[bucket] = _for_kernel(buckets.get(bucket), kernel_digest(kernel))
                entry["runs"][by] = merged_run(entry["runs"].get(by), run)
                entry["pinned"] = pinned_choice(entry, by, fresh)
                self._replace(json.dumps({"format": FORMAT, "kernels": kernels}, indent=1, sort_keys=True) + "\n")
        except OSError as error:
            raise LaunchError(f"{self.path} cannot be written: {error.strerror or error}") from error
        return dict(entry)

    def _replace(self, text: str) -> None:
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _no_directory(self) -> None:
        if self.path.is_dir():
            raise ConstraintError(
                f"{self.path} is a directory", hint=f"name a file for the results: {self.path / 'kernels.tuning.json'}"
            )

    def _load(self) -> tuple[dict[str, Any], str]:
        """The kernels, and why the file is not ours where it is not."""
        self._no_directory()
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}, ""
        except UnicodeDecodeError as error:
            return {}, str(error)
        except OSError as error:
            raise LaunchError(f"{self.path} cannot be read: {error.strerror or error}") from error
        try:
            data = json.loads(text)
        except ValueError as error:
            return {}, f"it is not JSON ({error})"
        found = data.get("format") if isinstance(data, dict) else None
        if found not in (1, FORMAT) or isinstance(found, bool) or not isinstance(data.get("kernels"), dict):
            return {}, f"it is not a results file of format {FORMAT}"
        kernels = data["kernels"]
        if found == 1 and _nested(kernels, 2):
            kernels = upgraded(kernels)
        if not _nested(kernels, 3):
            return {}, "its kernels are not tables of targets, products and buckets"
        return kernels, ""


class _Unusable(Exception):
    pass


def _nested(table: Any, depth: int) -> bool:
    """Whether this is a dict of dicts, `depth` times."""
    return isinstance(table, dict) and (depth == 0 or all(_nested(inner, depth - 1) for inner in table.values()))


def _for_kernel(entry: Any, digest: str) -> dict[str, Any]:
    """The entry of a bucket for the kernel as it is: results of another go to `earlier`, its own come back."""
    if isinstance(entry, dict) and entry.get("kernel") == digest and isinstance(entry.get("runs"), dict):
        return dict(entry)
    earlier: dict[str, Any] = {}
    if isinstance(entry, dict):
        kept = entry.get("earlier")
        earlier = dict(kept) if isinstance(kept, dict) else {}
        entry = {k: v for k, v in entry.items() if k != "earlier"}
    if entry is not None:
        earlier[_free_key(earlier, entry)] = entry
    own = earlier.pop(digest, None)
    found = dict(own) if isinstance(own, dict) and isinstance(own.get("runs"), dict) else _blank(digest)
    return {**found, "earlier": earlier} if earlier else found


def _free_key(earlier: Mapping[str, Any], entry: Any) -> str:
    key = entry.get("kernel") if isinstance(entry, dict) else None
    if not isinstance(key, str) or key in earlier:
        key = next(f"unknown {n}" for n in range(len(earlier) + 1) if f"unknown {n}" not in earlier)
    return key


def _blank(digest: str) -> dict[str, Any]:
    return {"kernel": digest, "pinned": None, "runs": {}}


def _checked(entry: Any, kernel: Any) -> dict[str, Any]:
    """The entry with its candidates that make sense. `_Unusable` where it belongs to something else."""
    if not isinstance(entry, dict):
        raise _Unusable(f"the entry is {entry!r}")
    if not isinstance(entry.get("kernel"), str):
        raise _Unusable("it has no environment stamp")
    digest = kernel_digest(kernel)
    if entry["kernel"] != digest:
        earlier = entry.get("earlier")
        own = earlier.get(digest) if isinstance(earlier, dict) else None
        if not isinstance(own, dict):
            raise _Unusable("the kernel has changed since (they are kept, under `earlier` once it is tuned again)")
        entry = own
    try:
        pinned = None if entry.get("pinned") is None else Candidate.from_json(entry["pinned"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _Unusable(f"its pinned choice cannot be read ({error})") from None
    runs = entry.get("runs")
    found = {}
    for by, run in runs.items() if isinstance(runs, dict) else ():
        candidates = run.get("candidates") if isinstance(run, dict) else None
        if isinstance(candidates, dict):
            found[by] = {**run, "candidates": {k: e for k, e in candidates.items() if _sensible(e)}}
    told = entry["pinned"] if isinstance(entry.get("pinned"), dict) else {}
    return {**entry, "runs": found, "pinned": None if pinned is None else {**told, **pinned.to_json()}}


def _sensible(outcome: Any) -> bool:
    if not isinstance(outcome, dict) or outcome.get("status") not in STATUSES:
        return False
    seconds = outcome.get("seconds")
    return seconds is None or (isinstance(seconds, (int, float)) and seconds > 0)


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
