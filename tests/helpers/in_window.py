"""Code of many products in one window, whether it pays or not. For tests of windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from wavedsl.ir import attempts
from wavedsl.ir.schedule.taps import Window


def in_this_window(monkeypatch: pytest.MonkeyPatch, window: Window) -> None:
    """Lower everything in this window, and in no other."""
    fitted = attempts.Attempts.fitted

    def so(self: Any, plan: Any, choices: Any = None) -> Any:
        return fitted(self, replace(plan, window=window), choices)

    monkeypatch.setattr(attempts.Attempts, "fitted", so)
    monkeypatch.setattr(attempts.Attempts, "in_windows", lambda self, given, *found: found)
