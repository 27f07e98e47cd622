"""Which of two reports of a candidate counts, and which candidate of a bucket is pinned.

In: entries of a results file, as JSON values. Out: entries. No file is touched here (`results` does). The rules:

(VERDICT) What was measured, or found wrong, refused, crashed or hung, gives way only to a newer such verdict.
(DEVICE)  A device's time counts before a model's, and both before a prediction that nothing has measured.
(HAND)    A pinned choice that no run has chosen was written by hand, and stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from wavedsl.tuning.candidates import Candidate

BY_DEVICE = "device time"
BY_MODEL = "emulator cycle model"
BY_PREDICTION = "roofline prediction"
BY_HAND = "hand"
STATUSES = ("ok", "pruned", "refused", "wrong", "crashed", "hung", "skipped")
"""`pruned` by limits or model before it ran, `refused` by the compiler, `skipped` for want of budget."""
BAD = ("refused", "wrong", "crashed", "hung")

Outcome = dict[str, Any]


def measured(outcome: Mapping[str, Any]) -> bool:
    """Whether it was found right, and timed."""
    return outcome.get("status") == "ok" and bool(outcome.get("seconds"))


def _knows(outcome: Mapping[str, Any]) -> int:
    if outcome.get("status") in BAD or outcome.get("seconds"):
        return 3
    return 2 if outcome.get("checked") else 1 if outcome.get("predicted") is not None else 0


def merged_candidates(old: Mapping[str, Outcome], new: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Every candidate of either; of both the newer one, unless it knows less (VERDICT)."""
    found = dict(old)
    for key, outcome in new.items():
        before = found.get(key)
        if not isinstance(before, dict) or _knows(outcome) >= _knows(before):
            found[key] = outcome
    return found


def merged_run(old: Any, new: Mapping[str, Any]) -> dict[str, Any]:
    """A run with what the file has of it. Environment and counts are the newer one's."""
    before = old.get("candidates") if isinstance(old, dict) else None
    kept = old if isinstance(old, dict) else {}
    return {
        **kept,
        **new,
        "candidates": merged_candidates(before if isinstance(before, dict) else {}, new["candidates"]),
    }


def pinned_choice(entry: dict[str, Any], by: str, fresh: Collection[str]) -> dict[str, Any] | None:
    """What the bucket pins (DEVICE, HAND); notes in each run what it has `chosen`. Of the run measured `by`, candidates
    in `fresh` come first."""
    old, runs = entry.get("pinned"), entry["runs"]
    by_hand = old is not None and _key(old) not in {run.get("chosen") for run in runs.values() if isinstance(run, dict)}
    found: dict[str, Any] | None = None
    for how in (BY_DEVICE, BY_MODEL):
        run = runs.get(how)
        if not isinstance(run, dict):
            continue
        best = fastest(run["candidates"], fresh if how == by else ()) or fastest(run["candidates"])
        how_known, key = (how, "seconds") if best else (BY_PREDICTION, "predicted")
        best = best or likeliest(run["candidates"])
        if best is None:
            continue
        run["chosen"] = best.key
        better = found is None or (found["by"] == BY_PREDICTION and how_known != BY_PREDICTION)
        if better:
            found = {**best.to_json(), "by": how_known, key: run["candidates"][best.key][key]}
    if by_hand:
        assert old is not None
        return {**old, "by": BY_HAND}
    return found if found is not None else old


def fastest(candidates: Mapping[str, Outcome], among: Collection[str] | None = None) -> Candidate | None:
    """The fastest of the right candidates (of those keys); None where none was timed. The model's seconds of one that
    lacks registers are too few."""
    ranked = [
        (_lacks(e) if "clocks" in e else 0, e["seconds"], c)
        for k, e, c in _readable(candidates)
        if measured(e) and (among is None or k in among)
    ]
    return min(ranked)[-1] if ranked else None


def likeliest(candidates: Mapping[str, Outcome]) -> Candidate | None:
    """The best by prediction of those that passed their check, though nothing has timed it."""
    ranked = [
        (*by_prediction(e), c)
        for _, e, c in _readable(candidates)
        if e.get("checked") and e.get("status") not in BAD and e.get("predicted") is not None
    ]
    return min(ranked)[-1] if ranked else None


def _readable(candidates: Mapping[str, Outcome]) -> Iterator[tuple[str, Outcome, Candidate]]:
    """The candidates of a file that say what they are."""
    for key, outcome in candidates.items():
        try:
            yield key, outcome, Candidate.from_json(outcome)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue


def by_prediction(entry: Mapping[str, Any]) -> tuple[int, float, float]:
    """The key by which the model ranks: what lacks registers, of which it knows nothing, comes last. Candidates that
    memory or shared memory holds up alike are told apart by what their units do."""
    return _lacks(entry), entry["predicted"], entry.get("issue_seconds", 0.0)


def _lacks(entry: Mapping[str, Any]) -> int:
    """`work.registers_lacking`, of entries that have it."""
    found = entry.get("lacks", 0)
    return found if isinstance(found, int) else 0


def counted(reasons: Iterable[str]) -> dict[str, int]:
    """How many candidates each reason took out; reasons that differ in their numbers alone count as one."""
    return dict(sorted(Counter(re.sub(r"\b\d+\b", "#", reason) for reason in reasons).items()))


def _key(pinned: Any) -> str | None:
    try:
        return Candidate.from_json(pinned).key
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def upgraded(kernels: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The kernels of a file of format 1, which had one run per target and bucket, whatever the chip."""
    found: dict[str, Any] = {}
    for name, targets in kernels.items():
        for target, buckets in targets.items():
            for bucket, entry in buckets.items():
                stamp = entry.get("environment") if isinstance(entry, dict) else None
                stamp = stamp if isinstance(stamp, dict) else {}
                product = str(stamp.get("product", "unknown"))
                places = found.setdefault(name, {}).setdefault(target, {}).setdefault(product, {})
                places[bucket] = _upgraded_entry(entry, stamp)
    return found


def _upgraded_entry(entry: Any, stamp: Mapping[str, Any]) -> Any:
    if not isinstance(entry, dict):
        return entry
    candidates = entry.get("candidates")
    candidates = {k: v for k, v in candidates.items() if isinstance(v, dict)} if isinstance(candidates, dict) else {}
    never = {k for k, v in candidates.items() if v.get("status") == "pruned" and "predicted" not in v}
    by, pinned = entry.get("by"), entry.get("pinned")
    by = by if by in (BY_DEVICE, BY_MODEL) else BY_MODEL
    kept = {k: v for k, v in candidates.items() if k not in never}
    best = fastest(kept)
    run = {
        "chosen": best.key if best is not None else _key(pinned),
        "environment": dict(stamp),
        "candidates": kept,
        "pruned": counted(str(candidates[k].get("reason", "")) for k in never),
    }
    if isinstance(pinned, dict):
        pinned = {**pinned, "by": by, "seconds": entry.get("seconds")}
    return {"kernel": stamp.get("kernel"), "pinned": pinned, "runs": {by: run}}
