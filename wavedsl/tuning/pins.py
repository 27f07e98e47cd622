"""Pinned choices: what a results file says a kernel should have for the sizes at hand.

`pinned_in` is what calls of a tuned kernel look up. `with_pin` is for the command line, whose commands never tune on
the way: a tuned kernel takes the choice of its results file, a plain one that of the file beside its source where its
tiles are left open and nothing else binds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wavedsl.ir.errors import LaunchError, WaveError
from wavedsl.tuning.candidates import Candidate, tile_symbols
from wavedsl.tuning.chip import Chip, chip_for
from wavedsl.tuning.results import ResultsFile, beside, warn
from wavedsl.tuning.tuner import tuned_extents


def pinned_in(file: ResultsFile, kernel: Any, chip: Chip, bucket: str) -> Candidate | None:
    """The choice pinned for this kernel, chip and bucket; None, and a warning, for one that does not fit."""
    entry = file.entry(kernel, chip.target.name, chip.name, bucket)
    if entry is None or entry["pinned"] is None:
        return None
    pinned = Candidate.from_json(entry["pinned"])
    known = {str(s) for s in kernel._tile_symbols()} | {str(s) for s in kernel.subs}
    strange = [n for n, _ in pinned.subs if n not in known]
    if strange:
        warn(f"{file.path}: the pinned choice binds {', '.join(strange)}, which {kernel.name} has not")
        return None
    return pinned


def with_pin(
    kernel: Any, subs: Mapping[Any, Any], target: str | None, product: Any = None, needed: bool = True
) -> tuple[Any, str]:
    """The kernel with its pinned choice for the extents that `subs` binds, and what to say of it (empty: it has none).
    What `subs` binds goes over the choice. LaunchError where nothing is pinned, tiles are open and `needed`."""
    tuned = kernel if hasattr(kernel, "for_arguments") else None
    plain = kernel if tuned is None else tuned.kernel
    merged = plain.merged(subs)
    left = [str(s) for s in tile_symbols(plain) if s not in merged]
    if tuned is None and not left:
        return plain, ""
    file = ResultsFile(beside(plain)) if tuned is None else tuned.file
    try:
        dims, _ = tuned_extents(plain, None, subs)
    except WaveError:  # sizes are missing: the command says which it wants
        return plain, ""
    chip = chip_for(target, product) if tuned is None else tuned.chip(target, product)
    bucket = plain.bucket(dims)
    pinned = pinned_in(file, plain, chip, bucket)
    if pinned is not None:
        return plain.variant(pinned), f"{plain.name} takes the choice pinned in {file.path}: {pinned.key}"
    if left and needed:
        raise LaunchError(
            f"{plain.name} has no pinned choice for {chip}, {bucket} in {file.path}, and {', '.join(left)} no value",
            plain.loc,
            hint=f"run `wavedsl tune` with these sizes first, or bind the tiles: --subs {left[0]}=64",
        )
    return plain, ""
