"""How PTX spells cache hints (`ir/cache_hints.py`).

Priorities of the second-level cache are given by a policy register, which loads, stores and bulk copies take alike;
other asynchronous copies get none (`isa_memory` says why). The first-level cache has modifiers of its own on loads and
stores; copies of 16 bytes and bulk copies pass it by anyway. What is streamed is read whole, so loads ask L2 for lines
of 128 bytes at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wavedsl.codegen.ptx.machine import Reg

if TYPE_CHECKING:
    from wavedsl.codegen.ptx.select import Selector

PRIORITY = {"stream": "L2::evict_first", "keep": "L2::evict_last"}
"""Hint → the second-level cache's priority."""
POLICY = "L2::cache_hint"
FIRST_LEVEL = {"stream": "L1::no_allocate"}
LINE = "L2::128B"
"""What a load of 16 bytes that is streamed brings into L2."""


def policy(s: Selector, hint: str | None) -> tuple[Reg, ...]:
    """The operand that goes with `POLICY`: nothing where the hint says nothing of the second-level cache."""
    priority = PRIORITY.get(hint or "")
    if priority is None:
        return ()
    words = ("createpolicy", "fractional", priority, "b64")
    return (s.hoisted(("policy", priority), 0, lambda: s.set("b64", words)),)


def access_words(hint: str | None, space: str, bytes_: int, load: bool) -> tuple[str, ...]:
    """State space and modifiers of a load or store."""
    if hint == "bypass":
        return (space, "cg")
    if hint is None:
        return (space,)
    words = (space, *((FIRST_LEVEL[hint],) if hint in FIRST_LEVEL else ()), POLICY)
    return (*words, LINE) if load and hint == "stream" and bytes_ == 16 else words


def copy_words(hint: str | None) -> tuple[str, ...]:
    """Modifiers of a bulk copy."""
    return (POLICY,) if hint in PRIORITY else ()
