"""What a tuning run says at its end."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.tuning.candidates import Candidate
from wavedsl.tuning.merging import STATUSES, Outcome


@dataclass
class TuningResult:
    """What a run found. `best` is None where no candidate is right; `seconds` None where nothing has timed the best;
    `entries` has a dict per candidate key. `pinned` is what the results file holds now: another than `best` where
    that was measured on a device, or written by hand."""

    kernel: str
    target: str
    product: str
    bucket: str
    best: Candidate | None
    seconds: float | None
    by: str
    message: str
    path: Path
    entries: dict[str, Outcome] = field(default_factory=dict)
    pinned: Candidate | None = None

    def count(self, status: str) -> int:
        """Candidates with this status."""
        return sum(e["status"] == status for e in self.entries.values())

    def __str__(self) -> str:
        from wavedsl.analysis.text import duration
        from wavedsl.reports import table

        counts = {s: self.count(s) for s in STATUSES}
        said = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
        lines = [f"{self.kernel} for {self.target} ({self.product}), {self.bucket}: {said or 'no candidates'}"]
        measured = sorted((e["seconds"], k) for k, e in self.entries.items() if e.get("seconds"))
        if measured:
            rows = [(k, duration(s), duration(self.entries[k].get("predicted") or s)) for s, k in measured[:5]]
            lines.append(table(("candidate", self.by, "roofline"), rows))
        lines.append(self.message)
        return "\n".join(lines)


class TuningInterrupted(KeyboardInterrupt):
    """Ctrl-C in a tuning run, after what it knows was written to the results file; `result` is what it found so far."""

    def __init__(self, result: TuningResult):
        super().__init__(result.message)
        self.result = result
