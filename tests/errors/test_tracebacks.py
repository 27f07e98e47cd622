"""Tracebacks of errors have the user's frames, and ours where somebody asks for them or the defect is ours."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from wavedsl.ir.source import is_ours

import wavedsl as wd

N, B = wd.symbols("N B")
CUT = [wd.WorkgroupConstraint(N, B, 0)]

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise restores the traceback of Python 3.10")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAVEDSL_TRACEBACK")


def frames(call: Callable[[], Any], kind: type[Exception]) -> list[Any]:
    """The frames below the one that calls, outermost first."""
    try:
        call()
    except kind as error:
        assert error.__traceback__ is not None
        return [frame for frame, _ in traceback.walk_tb(error.__traceback__)][2:]
    raise AssertionError("nothing was raised")


def names(call: Callable[[], Any], kind: type[Exception] = wd.WaveError) -> list[str]:
    found = frames(call, kind)
    assert not any(is_ours(f) for f in found)
    return [f.f_code.co_name for f in found]


def doubled(value: Any) -> Any:
    return value.twice


@wd.wave(CUT, subs={B: 64})
def wrong(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    wd.write(doubled(wd.read(x)), y)


@wd.wave(CUT, subs={B: 64})
def right(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    wd.write(wd.read(x), y)


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(8, np.float32), np.zeros(8, np.float32)


@pytest.mark.parametrize("way", ["__call__", "compile", "bind", "evaluate", "precompile"])
def test_an_error_of_the_kernel_shows_the_kernels_lines(way: str) -> None:
    assert names(lambda: getattr(wrong, way)(*arrays()), wd.TraceError) == ["wrong", "doubled"]


def test_tracing_alone_does_too() -> None:
    assert names(lambda: wrong.trace(), wd.TraceError) == ["wrong", "doubled"]


@pytest.mark.parametrize("way", ["__call__", "compile", "bind", "evaluate", "precompile"])
def test_an_error_of_the_call_shows_the_call_alone(way: str) -> None:
    x, _ = arrays()
    assert names(lambda: getattr(right, way)(x), wd.LaunchError) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: wd.Schedule(num_stages=3),
        lambda: wd.symbols(3),
        lambda: wd.WorkgroupConstraint(N, B, 7),
        lambda: wd.load("/nowhere/at/all.json"),
        lambda: wd.analyze(right, target="gfx1"),
        lambda: right.compile(*arrays(), target="gfx942").emulate(arrays()[0]),
        lambda: right.compile(*arrays(), target="gfx942")(arrays()[0]),
        lambda: wd.strategies.matmul(*arrays(), arrays()[0]),
        lambda: wd.strategies.tuned_matmul(*arrays(), arrays()[0]),
    ],
)
def test_so_do_errors_of_what_else_users_call(call: Callable[[], Any]) -> None:
    assert names(call) == []


def test_tuned_kernels_are_kernels() -> None:
    tuned = wd.autotune(on_miss="default")(wrong)
    assert names(lambda: tuned(*arrays()), wd.TraceError) == ["wrong", "doubled"]
    assert names(lambda: tuned.tune(*arrays(), limt=3), wd.WaveError) == []


def test_the_users_own_exceptions_show_the_users_lines() -> None:
    @wd.wave(CUT, subs={B: 64})
    def kernel(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
        wd.write(wd.read(x) + {}["missing"], y)

    assert names(lambda: kernel(*arrays()), KeyError) == ["kernel"]


def test_what_an_error_came_from_is_shown_in_a_line() -> None:
    """Twelve lines of pathlib stood in front of a file that is not there."""
    with pytest.raises(wd.LaunchError) as caught:
        wd.load("/nowhere/at/all.json")
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.__traceback__ is None


def test_an_exception_that_begins_here_keeps_every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    from wavedsl.tracer import trace

    monkeypatch.setattr(trace, "call_user", lambda *_: eval("1 / 0", {"__name__": "wavedsl.tracer.trace"}))
    fresh = wd.wave(CUT, subs={B: 64})(right.function)
    found = frames(lambda: fresh(*arrays()), ZeroDivisionError)
    assert found and is_ours(found[-1])


def test_all_frames_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAVEDSL_TRACEBACK", "full")
    found = frames(lambda: wrong(*arrays()), wd.TraceError)
    assert is_ours(found[0]) and is_ours(found[-1]) and "wrong" in [f.f_code.co_name for f in found]
