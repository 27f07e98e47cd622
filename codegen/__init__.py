"""Targets, instruction tables and the two back ends: kernel IR in, AMDGCN or PTX text out."""

TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a")
"""The chips that text is written for, by name. Later NVIDIA chips run sm_80's."""


def is_amd(target: str) -> bool:
    """Whether a target's text is AMDGCN; else it is PTX."""
    return target.startswith("gfx")
