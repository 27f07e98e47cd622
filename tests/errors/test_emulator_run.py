"""What `emulator.run` is given that is no launch: errors that point at the call, on both emulators alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from source import assert_points_at
from wavedsl.runtime import emulator

import wavedsl as wd

N = wd.sym.N


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def double(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    wd.write(wd.read(x) * 2, y)


def refused(chip: str, **wrong: Any) -> wd.LaunchError:
    """What a launch of `double` on two workgroups raises, with this in place of what is right."""
    compiled = double.compile(target=chip, subs={N: 128})
    x, y = np.ones(128, np.float32), np.empty(128, np.float32)
    given = {"asm": compiled.asm, "target": chip, "grid": compiled.grid, "block": compiled.block, "args": [x, y]}
    given |= wrong
    with pytest.raises(wd.LaunchError) as caught:
        emulator.run(**given)
    assert_points_at(caught.value, "emulator.run(**given)")
    return caught.value


BOTH = pytest.mark.parametrize("target", ["gfx942", "sm_80"])


@BOTH
@pytest.mark.parametrize("grid", [(-1, 1, 1), (1, 1, 1, 1), (), 1.5, "2", (True,)])
def test_a_grid_that_is_none(target: str, grid: Any) -> None:
    error = refused(target, grid=grid)
    assert error.message == f"grid={grid!r}" and "whole numbers from 0 on" in error.hint


@BOTH
def test_a_block_of_no_threads_or_of_too_many(target: str) -> None:
    assert "whole numbers from 1 on" in refused(target, block=(0, 1, 1)).hint
    assert "4096" in refused(target, block=(4096, 1, 1)).message


@BOTH
def test_sizes_may_be_numbers_alone(target: str) -> None:
    compiled = double.compile(target=target, subs={N: 128})
    x, y = np.ones(128, np.float32), np.empty(128, np.float32)
    emulator.run(compiled.asm, target=target, grid=np.int64(2), block=compiled.block, args=[x, y])
    assert (y == 2).all()


@BOTH
def test_checks_that_do_not_exist(target: str) -> None:
    assert refused(target, checks="yes").message == "checks='yes'"
    compiled = double.compile(target=target, subs={N: 128})
    with pytest.raises(wd.LaunchError, match="checks='yes'"):
        compiled.emulate(np.ones(128, np.float32), np.empty(128, np.float32), checks="yes")


@BOTH
def test_text_of_the_other_vendor(target: str) -> None:
    other = "sm_80" if target == "gfx942" else "gfx942"
    assert f"but {target} runs" in refused(target, asm=double.compile(target=other, subs={N: 128}).asm).message


@BOTH
def test_a_kernel_in_the_place_of_its_text(target: str) -> None:
    assert "compiled.asm" in refused(target, asm=double.compile(target=target, subs={N: 128})).hint


@pytest.mark.parametrize("target", ["sm_86", "sm_90", "sm_100", "sm_120"])
def test_later_chips_run_the_text_of_earlier_ones(target: str) -> None:
    compiled = double.compile(target="sm_80", subs={N: 128})
    x, y = np.ones(128, np.float32), np.zeros(128, np.float32)
    emulator.run(compiled.asm, target=target, grid=compiled.grid, block=compiled.block, args=[x, y])
    assert (y == 2).all()


@pytest.mark.parametrize("target", ["sm_70", "gfx1100", "foo", "", None])
def test_a_target_without_an_emulator(target: Any) -> None:
    error = refused("gfx942", target=target)
    assert error.message == f"no emulator for target {target!r}" and "sm_90a" in error.hint


def test_an_array_that_cannot_be_written() -> None:
    y = np.empty(128, np.float32)
    y.flags.writeable = False
    error = refused("gfx942", args=[np.ones(128, np.float32), y])
    assert error.message == "argument `y` is read-only, but the kernel writes it"


@pytest.mark.parametrize("line", [".loc x y", "ds_read_b32 v0, [foo, bar]", ".p2align x"])
def test_lines_that_are_no_amdgcn(line: str) -> None:
    """They end in an error of ours, not in one of the reader's."""
    compiled = double.compile(target="gfx942", subs={N: 128})
    asm = compiled.asm.replace("s_endpgm", f"{line}\n    s_endpgm", 1)
    x, y = np.ones(128, np.float32), np.empty(128, np.float32)
    try:
        emulator.run(asm, target="gfx942", grid=compiled.grid, block=compiled.block, args=[x, y])
    except wd.WaveError as error:
        assert line in str(error) and error.location is not None
