"""What an emulated run found and counted: `Finding`, `EmulationReport`, and the collector both emulators write to.

In: events of a run. Out: what `emulate` returns. A finding is listed once per kind, instruction and location, with the
first workgroup, wave and lane that showed it and how often it happened, so a defect in a loop is one line.
"""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from wavedsl.ir.errors import EmulationError, LaunchError
from wavedsl.ir.loc import Loc
from wavedsl.ir.quick_dataclass import dataclass
from wavedsl.runtime.emulator.timeline import Timeline

KINDS = (
    "out-of-bounds", "uninitialised-read", "missing-wait", "hazard", "race", "register-race", "proxy-fence",
    "barrier-divergence", "deadlock", "misaligned", "assertion", "unsupported",
)  # fmt: skip

_OURS = "in text of this package's it is the compiler's mistake: report it with what WAVEDSL_DUMP=folder writes"
HINTS = {
    "out-of-bounds": f"only what lies inside of the arguments' arrays is theirs; {_OURS}",
    "uninitialised-read": f"write it first, on every path and in every lane; {_OURS}",
    "missing-wait": f"wait for the earlier one's end between the two; {_OURS}",
    "hazard": f"other instructions between the two: the chip does not wait by itself; {_OURS}",
    "race": f"a barrier of all waves between the two; {_OURS}",
    "register-race": f"wait for what still uses the registers; {_OURS}",
    "proxy-fence": f"a fence between the generic and the asynchronous access; {_OURS}",
    "barrier-divergence": f"all waves must come by, as often as the barrier expects; {_OURS}",
    "deadlock": "what is waited for must come from a wave that runs: a workgroup may have to end before another begins",
    "misaligned": f"an address that is a multiple of the access's size; {_OURS}",
}
"""Kind of finding → what would be right."""
LANES_MEET = "bar.warp.sync of both lanes, or a barrier of the workgroup, between the two: lanes run in no order"
SAYS = (
    ("another lane of", LANES_MEET),
    (
        "reads shared memory that nothing has written",
        "write it first, on every path and in every lane; where a copy is to bring it, wait for the phase of its "
        "mbarrier: a wait for parity 1 passes before the first phase has ended",
    ),
    ("another workgroup", "workgroups run in no order: each element is one workgroup's, or reached by atomics"),
    ("had not waited for", f"s_waitcnt for that counter in front of the barrier; {_OURS}"),
    ("no wait for", f"s_waitcnt with a count that covers it, between the two; {_OURS}"),
    ("griddepcontrol.wait", "griddepcontrol.wait in front of the first access, or in front of a barrier before it"),
    (
        "waited for the copy's mbarrier",
        "try_wait, until it says yes, for the phase of that mbarrier which the copy completes: the parity is 0 for the "
        "first phase, 1 for the next, and so on; and arrive.expect_tx in that phase, of as many bytes as come, or the "
        "phase ends before they do",
    ),
    ("who waited for it", "arrive at an mbarrier, or a barrier, behind that wait, and wait for it here"),
    ("a wgmma that nobody", "wgmma.commit_group behind it and wgmma.wait_group before others may write there"),
    ("a bulk store that nobody", "cp.async.bulk.commit_group behind it, cp.async.bulk.wait_group.read in its thread"),
    ("initialises", "fence.mbarrier_init and a barrier of all who use it, behind the initialisation"),
    (
        "with no proxy fence",
        "fence.proxy.async behind the store: by the thread that stored, or behind a barrier with it, and before what "
        "tells the thread of the access",
    ),
    ("arrivals are missing", "as many arrivals in each phase as mbarrier.init says, by threads that come there"),
    ("expected bytes have not come", "arrive.expect_tx of exactly the bytes of the copies that name this mbarrier"),
    ("bytes came that nobody expects", "arrive.expect_tx of exactly the bytes of the copies that name this mbarrier"),
    ("nobody initialises", "mbarrier.init before it is used"),
    ("was copied with", "one swizzle for the copy's tensor map and the descriptor, from the same 1024 bytes on"),
)
"""What a message says → what would be right, before what its kind does."""


@dataclass(frozen=True)
class Finding:
    """One defect. `instruction` is the text's line, `location` the user's line if the text carries `.loc`, else
    None.
    """

    kind: str
    message: str
    instruction: str = ""
    location: Loc | None = None
    workgroup: tuple[int, int, int] | None = None
    wave: int | None = None
    lane: int | None = None
    line: int = 0
    """Line of the text, from 1; 0 where no single instruction is to blame."""

    def __str__(self) -> str:
        return self._what() + ("" if self.location is None else f"\n    {self.location}")

    def _what(self) -> str:
        """All but the user's line."""
        where = []
        if self.workgroup is not None:
            where.append(f"workgroup {self.workgroup}")
        if self.wave is not None:
            where.append(f"wave {self.wave}")
        if self.lane is not None:
            where.append(f"lane {self.lane}")
        out = f"{self.kind}: {self.message}"
        if self.instruction:
            out += f"\n    line {self.line}: {self.instruction}" if self.line else f"\n    {self.instruction}"
        if where:
            out += f"\n    {', '.join(where)}"
        return out

    def shown(self) -> str:
        """As `str`, with the user's line quoted and marked."""
        if self.location is None:
            return self._what()
        return f"{self._what()}\n{textwrap.indent(self.location.caret(), '  ')}"

    @property
    def hint(self) -> str:
        """What would be right; empty where the message says it."""
        for said, right in SAYS:
            if said in self.message:
                return right
        return HINTS.get(self.kind, "")


@dataclass
class EmulationReport:
    """The result of one emulated launch.

    `findings`: defects, in order of discovery. `instructions`: executed instructions by mnemonic, one per hardware
    wave that issues it. `cycles`: modelled clocks of the slowest compute unit. `utilisation`: unit → busy share of
    those cycles. Both are modelled when first asked for; `timing` is all that the model found (None where nothing ran).
    `bank_conflicts`: extra shared-memory cycles beyond conflict-free. `seed`: the order in which things were
    adversarial.
    """

    findings: list[Finding] = field(default_factory=list)
    instructions: Counter[str] = field(default_factory=Counter)
    bank_conflicts: int = 0
    seed: int = 0
    coverage: frozenset[str] = frozenset()
    """Table rows that were executed, for the witness test."""

    _cycles: int = 0
    _utilisation: Mapping[str, float] = field(default_factory=dict)
    _timing: Any = None
    _model: Callable[..., Any] | None = field(default=None, repr=False, compare=False)
    _place: Callable[[int], tuple[str, str]] | None = field(default=None, repr=False, compare=False)
    _launch: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return not self.findings

    def set_cycles(self, cycles: int, utilisation: Mapping[str, float]) -> None:
        self._cycles, self._utilisation = cycles, utilisation

    def set_model(
        self, model: Callable[..., Any], place: Callable[[int], tuple[str, str]], launch: Callable[[Any], Any]
    ) -> None:
        """`model()` gives a `cycle_queue.Timing`; it is called when the cycles are first asked for. `place(n)`: the
        text of instruction number n and the user's line. `launch(chip)`: how what ran loads a chip (None: its own)."""
        self._model, self._place, self._launch = model, place, launch

    def set_others(self, others: Callable[[], EmulationReport]) -> None:
        """What ran is the workgroup that comes last to a tile and does more than `others()`, a run of one that does
        not: of a unit that has several one is such. They run when somebody asks for the cycles of such a unit."""
        last, launch = self._model, self._launch
        assert last is not None and launch is not None
        found: list[EmulationReport] = []

        def model(given: Any = None, chip: Any = None, timeline: Timeline | None = None) -> Any:
            if (given or launch(chip)).groups == 1:
                return last(given, chip, timeline)
            if not found:
                found.append(others())
            early, early_launch = found[0]._model, found[0]._launch
            assert early is not None and early_launch is not None
            whole = given or early_launch(chip)
            one = replace(whole, groups=1, resident=1)
            return early(whole, chip, timeline).and_more(last(one, chip), early(one, chip))

        self._model = model

    def replay(self, launch: Any = None, chip: Any = None) -> Any:
        """The cycle model once more, as part of another `cycle_queue.Launch`, or on a changed `ChipModel`."""
        if self._model is None:
            raise ValueError("nothing ran that could be replayed")
        return self._model(launch, chip)

    def timeline(self) -> dict[str, Any]:
        """What the cycle model has each warp and unit do when, in the Trace Event Format, for ui.perfetto.dev: waits
        with their reasons, matrix units, copies. A clock is shown as a microsecond. Raises ValueError if nothing ran.
        """
        if self._place is None:
            raise ValueError("nothing ran that could be replayed")
        found = Timeline(self._place)
        assert self._model is not None
        self._model(None, None, found)
        return found.trace()

    def place(self, instruction: int) -> tuple[str, str]:
        """The text of instruction number `instruction`, and the user's line, empty where the text names none."""
        return ("", "") if self._place is None else self._place(instruction)

    @property
    def timing(self) -> Any:
        if self._timing is None and self._model is not None:
            self._timing = self._model()
            self.set_cycles(self._timing.cycles, self._timing.utilisation)
        return self._timing

    @property
    def cycles(self) -> int:
        return self._cycles if self.timing is None else self._timing.cycles

    @property
    def utilisation(self) -> Mapping[str, float]:
        return self._utilisation if self.timing is None else self._timing.utilisation


class Collector:
    """Gathers findings during a run: one per (kind, line), the first occurrence kept. `limit` bounds the list."""

    def __init__(self, limit: int = 100):
        self.findings: list[Finding] = []
        self.limit = limit
        self._seen: dict[tuple[str, int, str], int] = {}

    def add(self, finding: Finding) -> None:
        key = (finding.kind, finding.line, finding.message if not finding.line else "")
        count = self._seen.get(key, 0)
        self._seen[key] = count + 1
        if not count and len(self.findings) < self.limit:
            self.findings.append(finding)

    def has(self, kind: str, line: int) -> bool:
        """Whether this defect is already listed, so that its message need not be built again."""
        return bool(line) and (kind, line, "") in self._seen


def seed_or_default(seed: int | None) -> int:
    """The seed of the adversarial order: as given, else WAVEDSL_SEED, else 0. LaunchError for what is no seed."""
    if seed is not None:
        return seed
    given = os.environ.get("WAVEDSL_SEED") or "0"
    if not given.isdecimal():
        raise LaunchError(f"WAVEDSL_SEED={given}", hint="a whole number from 0 on")
    return int(given)


def conclude(report: EmulationReport, checks: bool | str) -> EmulationReport:
    """The report, or EmulationError with all findings when `checks` is True and there are any.

    `unsupported` and `deadlock` raise whatever `checks` says, except "report": text that was not executed to its end
    has no answer.
    """
    fatal = report.findings if checks is True else [f for f in report.findings if f.kind in ("unsupported", "deadlock")]
    if fatal and checks != "report":
        first = fatal[0]
        more = f"\n  and {len(fatal) - 5} more" if len(fatal) > 5 else ""
        quoted = [f.shown() if f.location != first.location else str(f) for f in fatal[:5]]  # the first's stands below
        text = "\n  ".join(f.replace("\n", "\n  ") for f in quoted)
        hint = "; ".join([first.hint] * bool(first.hint) + [f"checks were adversarial with seed {report.seed}"])
        raise EmulationError(
            f"the emulator found {len(fatal)} defect(s):\n  {text}{more}",
            first.location,
            hint if checks is True and first.kind != "unsupported" else first.hint,
            report,
        )
    return report
