"""The compile times' benchmark runs, and the predictions' error is what its numbers say."""

from __future__ import annotations

import pytest
from wavedsl.runtime.emulator.amdgcn import cycle_error
from wavedsl.runtime.emulator.model_error import error_text
from wavedsl.runtime.emulator.ptx import warp_error

from tests.helpers.benchmark_files import imported


@pytest.mark.slow  # a dozen processes
def test_every_row_of_a_target_is_timed() -> None:
    target = "gfx942"
    with imported("compile_time") as script:
        rows = script.measure(1, (target,))
    assert {row["target"] for row in rows} == {"", target}
    assert all(0 < row["cpu_ms"] and 0 < row["best_ms"] <= row["median_ms"] for row in rows)
    cold = [row for row in rows if row["what"].startswith("cold")]
    assert len(cold) == 4 and all(row["lines"] > 100 and row["phases_ms"]["middle"] > 0 for row in cold)


@pytest.mark.parametrize("target", ["gfx942", "sm_90a"])
def test_errors_are_those_that_were_found(target: str) -> None:
    text = error_text(target)
    numbers = cycle_error.PUBLISHED if target == "gfx942" else warp_error.PUBLISHED | warp_error.MEASURED
    assert all(f"{product} {low} to {high}" in text for product, (low, high) in numbers.items())


def test_scripts_write_the_files_that_are_there() -> None:
    """What they would write of the numbers at hand is what stands there: neither has drifted."""
    with imported("cycle_model") as script:
        mca, published = (script._literal(numbers) for numbers in (cycle_error.MCA, cycle_error.PUBLISHED))
        written = script._ERROR_FILE.format(mca=mca, published=published)
    with open(cycle_error.__file__, encoding="utf-8") as file:
        assert file.read() == written
    with imported("warp_model") as script:
        published, measured = (repr(x).replace("'", '"') for x in (warp_error.PUBLISHED, warp_error.MEASURED))
        written = script._ERROR_FILE.format(published=published, measured=measured)
    with open(warp_error.__file__, encoding="utf-8") as file:
        assert file.read() == written
