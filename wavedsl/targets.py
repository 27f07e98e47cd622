"""The chips that the compiler writes for, by name, and what else people call them."""

from __future__ import annotations

import functools

from wavedsl.codegen import TARGETS, is_amd
from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.product import Product
from wavedsl.ir.target import Target


@functools.cache
def get_target(name: str) -> Target:
    """The description of a chip. Raises ConstraintError with the legal names."""
    if not isinstance(name, str):
        raise ConstraintError(f"the target is {name!r}", hint=f"one of {', '.join(map(repr, TARGETS))}")
    if name in TARGETS and is_amd(name):
        from wavedsl.codegen.amdgcn.target import get_target as amd

        return amd(name)
    if name in TARGETS:
        from wavedsl.codegen.ptx.target import target as nvidia

        return nvidia(name)
    meant = _meant(name)
    raise ConstraintError(
        f"unknown target {name!r}", hint=(f"did you mean {meant}? " if meant else "") + f"one of {', '.join(TARGETS)}"
    )


_CHIPS = {
    "gfx90a": ("mi210", "mi250", "mi250x"),
    "gfx942": ("mi300", "mi300a", "mi300x", "mi325x"),
    "gfx950": ("mi350x", "mi355x"),
    "sm_80": ("a100", "sm_86", "sm_89", "sm_100", "sm_120"),
    "sm_90a": ("h100", "h200", "sm_90"),
}
"""Target → other names of what it runs on."""


def _meant(name: str) -> str:
    """The target that somebody means who writes `name`; empty if there is no telling."""
    plain = name.lower().removeprefix("emulator:").split(":")[0].replace("-", "_")
    plain = plain.replace("sm", "sm_", 1) if plain.startswith("sm") and "_" not in plain else plain
    return next((t for t, chips in _CHIPS.items() if plain == t or plain in chips), "")


def reference_product(name: str) -> Product:
    """The product that a target's decisions are made for where none is at hand."""
    if is_amd(name):
        from wavedsl.codegen.amdgcn.products import PRODUCTS
    else:
        from wavedsl.codegen.ptx.products import PRODUCTS
    return next(p for p in PRODUCTS if p.target == name)
