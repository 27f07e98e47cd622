"""Environment variables with values that mean nothing: the message names the variable and says what it takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from wavedsl.runtime import cache

import wavedsl as wd

N = wd.sym.N


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def double(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    wd.write(wd.read(x) * 2, y)


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("WAVEDSL_DEVICE", "gfx950", "emulator:TARGET"),
        ("WAVEDSL_DEVICE", "emulator:h100", "use one of gfx90a"),
        ("WAVEDSL_SEED", "abc", "a whole number from 0 on"),
        ("WAVEDSL_SEED", "-1", "a whole number from 0 on"),
        ("WAVEDSL_DUMP", __file__, "a folder to write into"),
    ],
)
@pytest.mark.parametrize("device", ["emulator:gfx942", "emulator:sm_80"])
def test_named_in_the_message(
    name: str, value: str, hint: str, device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("WAVEDSL_DEVICE", device)
    monkeypatch.setenv(name, value)
    kernel = wd.wave(double.constraints)(double.function)
    x, y = np.ones(100, np.float32), np.empty(100, np.float32)
    with pytest.raises(wd.WaveError) as caught:
        kernel(x, y)
    assert caught.value.message.startswith(f"{name}={value}") and hint in caught.value.hint


def test_a_size_of_the_cache_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """`1GB` was taken for nothing, and the cache for one of the usual size."""
    monkeypatch.setenv("WAVEDSL_CACHE_BYTES", "1GB")
    with pytest.warns(cache.CacheWarning, match="WAVEDSL_CACHE_BYTES=1GB is no whole number of bytes"):
        assert cache.limit() == cache.DEFAULT_LIMIT
    monkeypatch.setenv("WAVEDSL_CACHE_BYTES", "4096")
    assert cache.limit() == 4096


def test_a_seed_repeats_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.ones(100, np.float32), np.empty(100, np.float32)
    compiled = double.compile(x, y, target="gfx942")
    monkeypatch.setenv("WAVEDSL_SEED", "7")
    assert compiled.emulate(x, y).seed == 7
    monkeypatch.setenv("WAVEDSL_SEED", "")
    assert compiled.emulate(x, y).seed == 0
