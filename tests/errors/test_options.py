"""An option by another language's name, a misspelt one, or a call that does not fit: named, with the right one."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from wavedsl.ir.options import option, with_options

import wavedsl as wd
from wavedsl import schedule

M = wd.sym.M


@pytest.mark.parametrize(
    "call, message, hint",
    [
        (lambda: wd.Schedule(num_stages=3), "wd.Schedule has no option num_stages", "stages=…; it has stages, "),
        (lambda: wd.Schedule(num_warps=4), "wd.Schedule has no option num_warps", "wd.WaveConstraint(M, BM / 4)"),
        (lambda: wd.Schedule(stagse=3), "wd.Schedule has no option stagse", "stages=…"),
        (lambda: wd.Schedule(splitK=3), "wd.Schedule has no option splitK", "split_k=…"),
        (lambda: wd.Schedule(waves_per_eu=2), "wd.Schedule has no option waves_per_eu", "compiled.resources.occupancy"),
        (lambda: wd.Schedule(colour=3), "wd.Schedule has no option colour", "wd.Schedule(stages=, specialize=, "),
        (lambda: wd.wave([], num_warps=4), "wd.wave has no option num_warps", "wd.WaveConstraint(M, BM / 4)"),
        (lambda: wd.wave([], num_stages=4), "wd.wave has no option num_stages", "schedule=wd.Schedule(stages=3)"),
        (lambda: wd.wave([], split_k=4), "wd.wave has no option split_k", "schedule=wd.Schedule(split_k=…)"),
        (lambda: wd.wave([], sub={M: 4}), "wd.wave has no option sub", "subs=…; it has constraints, subs, "),
        (lambda: wd.wave([], {M: 4}), "wd.wave takes at most 1 arguments without names, got 2", "wd.wave(constraints="),
        (lambda: wd.WorkgroupConstraint(M, 64), "wd.WorkgroupConstraint lacks axis", "(dim, tile, axis)"),
        (lambda: wd.WorkgroupConstraint(M), "wd.WorkgroupConstraint lacks tile and axis", "(dim, tile, axis)"),
        (lambda: wd.WorkgroupConstraint(M, 64, workgroup_dim=0), "no option workgroup_dim", "axis=…"),
        (lambda: wd.WaveConstraint(M, block_size=64), "wd.WaveConstraint has no option block_size", "tile=…"),
        (lambda: wd.TilingConstraint(M, 4, tile=4), "wd.TilingConstraint got two values for tile", "(dim, tile)"),
        (lambda: wd.TilingConstraint(M, 4, 1), "wd.TilingConstraint takes at most 2 arguments", "(dim, tile)"),
        (lambda: wd.HardwareConstraint(num_warps=4), "has no option num_warps", "waves_per_block"),
        (lambda: wd.HardwareConstraint(warp_size=32), "no option warp_size", "threads_per_wave=…"),
    ],
)
def test_names_the_right_option(call, message, hint):
    with pytest.raises(wd.ConstraintError) as caught:
        call()
    assert message in caught.value.message and hint in caught.value.hint
    assert caught.value.location is not None and caught.value.location.file == __file__
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_what_fits_is_as_it_was():
    assert wd.Schedule(stages=3) == wd.Schedule(3) == dataclasses.replace(wd.Schedule(), stages=3)
    assert list(inspect.signature(wd.WorkgroupConstraint).parameters) == ["dim", "tile", "axis", "loc"]
    assert list(inspect.signature(wd.wave).parameters)[:2] == ["constraints", "subs"]


def test_a_type_error_of_another_kind_stays_one():
    @with_options()
    def longer(x):
        return len(x)

    with pytest.raises(TypeError, match="has no len"):
        longer(3)


def test_a_cluster_that_is_no_shape():
    """It ended in Python's TypeError."""
    with pytest.raises(wd.ConstraintError, match=r"cluster=2\.5"):
        wd.Schedule(cluster=2.5)


@pytest.mark.parametrize("name", schedule.ELSEWHERE)
def test_synonyms_are_options_or_say_how(name):
    known = [f.name for f in dataclasses.fields(wd.Schedule)]
    assert name not in known
    said = option(name, known, schedule.ELSEWHERE)
    assert said.removesuffix("=…") in known or " " in said
