"""The mutation net: every mutant of every example on every target, and what became of each.

In: the name of a case and a target. Out: mutants, their fates, and the list of survivors that a person has reviewed.
A mutant is found (a finding, wrong numbers, refused, endless), or proven redundant (`proofs`), or listed in
survivors.json with a reason; anything else is open.

    python tests/mutation/net.py [gfx942 …] [--changed] [--jobs N] [-v]

runs everything (some ten minutes of processor time), or some targets, or the examples whose instructions are others
than when their row was made, and prints what nothing accounts for. Each row goes to fates.json as soon as it is known,
and docs/mutation.md is made from all of them: a run may be cut into parts.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import multiprocessing
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mutants
import proofs
import trial
from mutants import Mutant

RANDOM = 200
HOW = ("found", "proven", "listed", "open")
SEED = 7
HERE = Path(__file__).resolve().parent
SURVIVORS = HERE / "survivors.json"
FATES = HERE / "fates.json"
TABLE = HERE.parents[1] / "docs" / "mutation.md"


@dataclass(frozen=True)
class Fate:
    """`how`: one of HOW; `why`: kind of finding, name of the proof, or reason."""

    how: str
    why: str


@functools.lru_cache(maxsize=4)
def mutants_of(name: str, target: str) -> tuple[Mutant, ...]:
    """All mutants of an example on a target, in a fixed order."""
    text = trial.case(name, target).asm
    return (*mutants.synchronisation(text), *mutants.random_slips(text, RANDOM, SEED))


def key(mutant: Mutant) -> str:
    """What a list entry calls a mutant: no line number, which changes with everything above it."""
    return f"{mutant.kind}: {mutant.what}"


@functools.lru_cache(maxsize=1)
def listed() -> dict[str, dict[str, str]]:
    """Reviewed survivors: case on target → mutant → reason."""
    return json.loads(SURVIVORS.read_text())


def fate(name: str, target: str, mutant: Mutant) -> Fate:
    case = trial.case(name, target)
    how = trial.verdict(case, mutant.text)
    if how is not None:
        return Fate("found", how)
    proof = proofs.prove(case, mutant)
    if proof is not None:
        return Fate("proven", proof)
    reason = listed().get(f"{name} on {target}", {}).get(key(mutant))
    return Fate("open", "nothing accounts for it") if reason is None else Fate("listed", reason)


# ---- the table


@dataclass(frozen=True)
class Row:
    """All mutants of an example on a target: how often each (how, why). `text`: digest of its instructions."""

    name: str
    target: str
    text: str
    fates: Counter[tuple[str, str]]


def digest(name: str, target: str) -> str:
    """Tells the instructions of an example on a target from all others; comments and lines of source are not in it."""
    lines = "\n".join(str(x) for x in mutants.instructions(trial.case(name, target).asm))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def stored() -> list[Row]:
    """The rows of fates.json, in the order of `trial.PLACES`."""
    held = json.loads(FATES.read_text()) if FATES.exists() else {}
    rows = []
    for name, target in trial.PLACES:
        if (entry := held.get(f"{name} on {target}")) is not None:
            fates = Counter({(how, why): n for how, why, n in entry["fates"]})
            rows.append(Row(name, target, entry["text"], fates))
    return rows


def store(new: Row) -> None:
    """Put a row into fates.json, in the place of an older one of that example and target."""
    rows = {(r.name, r.target): r for r in stored()} | {(new.name, new.target): new}
    held = {
        f"{r.name} on {r.target}": {"text": r.text, "fates": [[*key, n] for key, n in sorted(r.fates.items())]}
        for place in trial.PLACES
        if (r := rows.get(place)) is not None
    }
    lines = ",\n".join(f"{json.dumps(where)}: {json.dumps(entry)}" for where, entry in held.items())
    FATES.write_text("{\n" + lines + "\n}\n")


def _row(place: tuple[str, str], verbose: bool) -> tuple[Row, list[str]]:
    """All mutants of an example on a target; and lines about those that are open, if `verbose` about proofs too."""
    name, target = place
    fates: Counter[tuple[str, str]] = Counter()
    lines = []
    for mutant in mutants_of(name, target):
        f = fate(name, target, mutant)
        fates[f.how, f.why if f.how in ("found", "proven") else ""] += 1
        if f.how == "open":
            lines.append(f"{name} on {target}: {mutant}")
        elif verbose and f.how == "proven" and f.why not in ("independent", "commutes"):
            lines.append(f"  {name} on {target}: {f.why}: {mutant}")
    return Row(name, target, digest(name, target), fates), [*lines, f"{name} on {target}: {dict(fates)}"]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(trial.TARGETS)}; default: all")
    options.add_argument("--changed", action="store_true", help="only rows whose instructions have changed")
    options.add_argument("--jobs", type=int, help="processes (default: one per core)")
    options.add_argument("-v", dest="verbose", action="store_true", help="say what was proven, and how")
    given = options.parse_args()
    if unknown := set(given.targets) - set(trial.TARGETS):
        options.error(f"no such target: {', '.join(sorted(unknown))}")
    known = {(r.name, r.target): r.text for r in stored()} if given.changed else {}
    places = [
        place
        for place in trial.PLACES
        if (not given.targets or place[1] in given.targets) and not (place in known and known[place] == digest(*place))
    ]
    if places:
        with multiprocessing.Pool(min(given.jobs or multiprocessing.cpu_count(), len(places))) as pool:
            for row, lines in pool.imap(functools.partial(_row, verbose=given.verbose), places):
                store(row)
                print("\n".join(lines), flush=True)
    rows = stored()
    if len(rows) == len(trial.PLACES):
        TABLE.write_text(table(rows))
    return int(any(how == "open" for row in rows for how, _ in row.fates))


def table(rows: list[Row]) -> str:
    """docs/mutation.md."""
    total: Counter[tuple[str, str]] = Counter()
    body = []
    for row in rows:
        total.update(row.fates)
        how: Counter[str] = Counter()
        for (h, _), n in row.fates.items():
            how[h] += n
        counts = " | ".join(str(how[h]) for h in HOW)
        body.append(f"| {row.name} | {row.target} | {sum(row.fates.values())} | {counts} |")
    everything = sum(total.values())
    sums = {h: sum(n for (x, _), n in total.items() if x == h) for h in HOW}
    body.append(f"| **all** | | {everything} | " + " | ".join(str(n) for n in sums.values()) + " |")
    found = "\n".join(f"| {why} | {n} |" for (h, why), n in total.most_common() if h == "found")
    proven = "\n".join(
        f"| {why} | {n} | {proofs.REASONS[why]} |" for (h, why), n in total.most_common() if h == "proven"
    )
    entries = "\n".join(
        f"* {where}: `{what}`: {reason}" for where, group in listed().items() for what, reason in group.items()
    )
    return f"""# The mutation net

Written by `python tests/mutation/net.py`; do not edit.

Each example's text, on each target, is broken in one place at a time: every wait, barrier, nop and commit is deleted,
every wait and nop weakened by one, and {RANDOM} random slips are made (a register or an immediate shifted, two operands
or two neighbouring instructions swapped, an instruction dropped). The emulator runs each mutant under checks, with
results arriving as late, as early and as randomly as is legal, with arrays across a carry of their addresses, and with
data that are integers, zeros and infinities. A mutant is found, or proven redundant by reasoning that shares nothing
with the compiler's passes or the emulator's checks, or listed with a reason. Nothing may stay open.

A proof is about the text: it is compiled for its sizes, so ids, paths and offsets are known and the contents and
addresses of arrays are not. *Same terms*, which settles what no rule of form does, runs both texts with an unknown for
every byte of every array: each byte stored must be the same expression of them in both, at the same place, while waits
and hazards are kept on every path (AMDGCN) or every copy is waited for (PTX) and no two waves (PTX: threads) meet in
shared memory. A mutant that reads or writes outside its arrays, uses what nothing has written, or lets data decide a
path, a mask or an address is never proven. `tests/mutation/test_terms.py` holds the names against runs and shows what
the proof refuses; `pytest -m exhaustive tests/mutation` gives the provers every mutant that a run has found, too.

| example | target | mutants | found | proven redundant | listed | open |
|---|---|---|---|---|---|---|
{chr(10).join(body)}

How mutants were found (`unsupported`: the text or its operands are illegal; `numbers`: wrong results without a finding;
`endless`: no end in reasonable time):

| how | mutants |
|---|---|
{found}

Why survivors are redundant:

| proof | mutants | meaning |
|---|---|---|
{proven}

Listed survivors:

{entries or "none"}
"""


if __name__ == "__main__":
    sys.exit(main())
