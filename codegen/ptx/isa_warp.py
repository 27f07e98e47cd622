"""Rows of PTX control and communication between lanes: branches, barriers, shuffles, votes, reductions.

Shuffle-class semantics see arrays `[warps, 32]` and the mask of executing lanes; the engine does barriers and control.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from wavedsl.codegen.ptx.isa import Unit, add_row, inst

Mods = dict[str, Any]
Array = Any

LANE = np.arange(32, dtype=np.int64)[None, :]
BIT = (np.uint32(1) << np.arange(32, dtype=np.uint32))[None, :]

add_row("bra{.uni}", "target:label", Unit.BRANCH, latency=8, effects="branch", doc="go to a label")
add_row(
    "brx.idx{.uni}",
    "index:u32, targets:label",
    Unit.BRANCH,
    latency=12,
    effects="branch",
    doc="go to the index-th label of a list",
)
add_row("call{.uni}", "callee:label", Unit.BRANCH, latency=20, effects="branch call", doc="call a function")
add_row("ret{.uni}", "", Unit.BRANCH, latency=8, effects="exit return", doc="return; from an entry, end the thread")
add_row("exit", "", Unit.BRANCH, latency=8, effects="exit", doc="end the thread")
add_row("trap", "", Unit.BRANCH, effects="trap", doc="stop the kernel with an error")
add_row("brkpt", "", Unit.BRANCH, effects="trap", doc="stop at a breakpoint")
add_row(
    "nanosleep.u32", "t:u32", Unit.UNIFORM, latency=32, effects="hint", doc="suspend the thread for about t nanoseconds"
)
GRID_WAIT = "griddepcontrol.wait"
"""A text with this may be launched before the grid in front of it has completed."""
add_row(
    GRID_WAIT,
    "",
    Unit.UNIFORM,
    effects="fence grid",
    sm=90,
    ptx=(7, 8),
    doc="wait until the grids that this one depends on have completed; what they wrote is seen after",
)
add_row(
    "griddepcontrol.launch_dependents",
    "",
    Unit.UNIFORM,
    effects="hint",
    sm=90,
    ptx=(7, 8),
    doc="grids that depend on this one may be launched once all its CTAs have executed this or completed",
)
add_row("pmevent{.mask}", "a:imm", Unit.UNIFORM, effects="hint", doc="trigger performance monitor events")
_BAR: dict[str, Any] = {"unit": Unit.BARRIER, "latency": 20, "source": "unverified"}
add_row(
    "bar{.cta}.sync",
    "id:u32, count?:u32",
    effects="barrier convergent sync",
    doc="wait for the other warps of the barrier",
    **_BAR,
)
add_row(
    "bar{.cta}.arrive", "id:u32, count:u32", effects="barrier convergent arrive", doc="arrive without waiting", **_BAR
)
add_row(
    "bar{.cta}.red.popc.u32",
    "d:u32 <- id:u32, count?:u32, c:pred",
    effects="barrier convergent sync reduce",
    doc="wait; d = number of threads with c",
    **_BAR,
)
add_row(
    "bar{.cta}.red.op:and|or.pred",
    "d:pred <- id:u32, count?:u32, c:pred",
    effects="barrier convergent sync reduce",
    doc="wait; d = whether all (any) threads have c",
    **_BAR,
)
add_row("bar.warp.sync", "mask:b32", effects="warpsync", doc="wait for the named lanes of this warp", **_BAR)
add_row(
    "barrier{.cta}.sync{.aligned}",
    "id:u32, count?:u32",
    effects="barrier sync",
    doc="wait for the other warps of the barrier",
    **_BAR,
)
add_row(
    "barrier{.cta}.arrive{.aligned}",
    "id:u32, count:u32",
    effects="barrier arrive",
    doc="arrive without waiting",
    **_BAR,
)
add_row(
    "barrier{.cta}.red.popc{.aligned}.u32",
    "d:u32 <- id:u32, count?:u32, c:pred",
    effects="barrier sync reduce",
    doc="wait; d = number of threads with c",
    **_BAR,
)
add_row(
    "barrier{.cta}.red.op:and|or{.aligned}.pred",
    "d:pred <- id:u32, count?:u32, c:pred",
    effects="barrier sync reduce",
    doc="wait; d = whether all (any) threads have c",
    **_BAR,
)

# ---------------------------------------------------------------- shuffles and votes


@inst(
    "shfl.sync.mode:up|down|bfly|idx.b32",
    "d:b32, |p?:pred <- a:b32, b:u32, c:u32, mask:b32",
    Unit.LSU,
    latency=23,
    interval=2,
    source="arXiv:2208.11174 (sm_80 microbenchmarks), unverified",
    effects="shuffle",
    doc="d = a of another lane; p = that lane was in range",
)
def _shfl(m: Mods) -> Any:
    mode = m["mode"]

    def run(a: Array, b: Array, c: Array, mask: Array) -> tuple[Array, Array, Array]:
        """Arrays [warps, 32]. Gives the values, the predicates, and the lane that each lane read."""
        off = (b & np.uint32(31)).astype(np.int64)
        clamp, seg = (c & np.uint32(31)).astype(np.int64), ((c >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
        low = LANE & seg
        top = low | (clamp & ~seg)
        if mode == "up":
            j = LANE - off
            ok = j >= top
        elif mode == "down":
            j = LANE + off
            ok = j <= top
        elif mode == "bfly":
            j = LANE ^ off
            ok = j <= top
        else:
            j = low | (off & ~seg)
            ok = j <= top
        src = np.where(ok, j, LANE)
        return np.take_along_axis(a, src, axis=1), np.broadcast_to(ok, a.shape), src

    return run


def _ballot(p: Array) -> Array:
    """[warps, 32] booleans to [warps, 1] masks."""
    return np.where(p, BIT, np.uint32(0)).sum(axis=1, dtype=np.uint32, keepdims=True)


@inst(
    "vote.sync.mode:all|any|uni.pred",
    "d:pred <- a:pred, mask:b32",
    Unit.ALU,
    latency=10,
    effects="shuffle",
    doc="d = whether all (any, equal) lanes have a",
)
def _vote(m: Mods) -> Any:
    def run(a: Array, mask: Array) -> Array:
        member = (mask & BIT) != 0
        every, some = (a | ~member).all(axis=1, keepdims=True), (a & member).any(axis=1, keepdims=True)
        r = {"all": every, "any": some, "uni": every | ~some}[m["mode"]]
        return np.broadcast_to(r, a.shape)

    return run


@inst(
    "vote.sync.ballot.b32",
    "d:b32 <- a:pred, mask:b32",
    Unit.ALU,
    latency=10,
    effects="shuffle",
    doc="d = mask of lanes that have a",
)
def _vote_ballot(m: Mods) -> Any:
    return lambda a, mask: np.broadcast_to(_ballot(a & ((mask & BIT) != 0)), a.shape)


@inst(
    "match.any.sync.type:b32|b64",
    "d:b32 <- a:type, mask:b32",
    Unit.ALU,
    latency=30,
    effects="shuffle",
    doc="d = lanes that hold the same value",
)
def _match_any(m: Mods) -> Any:
    def run(a: Array, mask: Array) -> Array:
        member = (mask & BIT) != 0
        same = (a[:, :, None] == a[:, None, :]) & member[:, None, :]
        return np.where(same, BIT[:, None, :], np.uint32(0)).sum(axis=2, dtype=np.uint32)

    return run


@inst(
    "match.all.sync.type:b32|b64",
    "d:b32, |p?:pred <- a:type, mask:b32",
    Unit.ALU,
    latency=30,
    effects="shuffle",
    doc="d = mask if all its lanes hold the same value, else 0",
)
def _match_all(m: Mods) -> Any:
    def run(a: Array, mask: Array) -> tuple[Array, Array]:
        member = (mask & BIT) != 0
        first = np.take_along_axis(a, np.argmax(member, axis=1)[:, None], axis=1)
        same = ((a == first) | ~member).all(axis=1, keepdims=True)
        return np.where(same, mask, np.uint32(0)), np.broadcast_to(same, a.shape)

    return run


_REDUX: dict[str, Any] = {
    "add": (np.add, 0),
    "min": (np.minimum, None),
    "max": (np.maximum, None),
    "and": (np.bitwise_and, -1),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


@inst(
    "redux.sync.op:add|min|max.type:u32|s32",
    "d:type <- a:type, mask:b32",
    Unit.SFU,  # as few results per clock: 16 per SM, by the programming guide's table of throughput
    latency=20,
    effects="shuffle",
    doc="d = reduction over the lanes of mask",
)
def _redux(m: Mods) -> Any:
    fn, start = _REDUX[m["op"]]

    def run(a: Array, mask: Array) -> Array:
        member = (mask & BIT) != 0
        info = np.iinfo(a.dtype)
        neutral = a.dtype.type(start if start is not None else (info.max if m["op"] == "min" else info.min))
        return np.broadcast_to(fn.reduce(np.where(member, a, neutral), axis=1, keepdims=True, dtype=a.dtype), a.shape)

    return run


@inst(
    "redux.sync.op:and|or|xor.b32",
    "d:b32 <- a:b32, mask:b32",
    Unit.SFU,  # as few results per clock: 16 per SM, by the programming guide's table of throughput
    latency=20,
    effects="shuffle",
    doc="d = reduction over the lanes of mask",
)
def _redux_bits(m: Mods) -> Any:
    fn, start = _REDUX[m["op"]]

    def run(a: Array, mask: Array) -> Array:
        member = (mask & BIT) != 0
        neutral = np.uint32(start & 0xFFFFFFFF)
        return np.broadcast_to(fn.reduce(np.where(member, a, neutral), axis=1, keepdims=True), a.shape)

    return run


@inst("activemask.b32", "d:b32 <-", Unit.ALU, effects="shuffle activemask", doc="d = mask of executing lanes")
def _activemask(m: Mods) -> Any:
    return None


@inst(
    "elect.sync",
    "d:b32, |p:pred <- mask:b32",
    Unit.UNIFORM,
    effects="shuffle",
    sm=90,
    ptx=(8, 0),
    doc="p = this lane is the elected one; d = its number",
)
def _elect(m: Mods) -> Any:
    def run(mask: Array) -> tuple[Array, Array]:
        member = (mask & BIT) != 0
        leader = np.argmax(member, axis=1)[:, None]
        return np.broadcast_to(leader.astype(np.uint32), member.shape), leader == LANE

    return run
