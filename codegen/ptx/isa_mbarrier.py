"""Rows of synchronisation between warps and CTAs on sm_90: mbarriers, cluster barriers, addresses of other CTAs, roles.

An mbarrier counts arrivals and, from sm_90, bytes: its phase completes when no arrival and no byte is outstanding. A
remote mbarrier (`.shared::cluster`, an address from `mapa`) can be arrived on but not waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavedsl.codegen.ptx.isa import Arg, Unit, add_row
from wavedsl.codegen.ptx.isa_memory import legal_order

_OWN = "{.space:shared::cta|shared}"
_REMOTE = ".space:shared::cluster"
_RELEASE = "{.sem:release}{.scope:cta|cluster}"
_ACQUIRE = "{.sem:acquire}{.scope:cta|cluster}"
_LSU: dict[str, Any] = {"unit": Unit.LSU, "latency": 20, "source": "latency unverified"}


def _sink_only(args: Sequence[Arg]) -> str:
    return "" if args[0].kind == "none" else "a remote arrival gives no state: its destination is '_'"


add_row(
    f"mbarrier.init{_OWN}.b64",
    "p:addr, count:u32",
    effects="mbarrier init",
    doc="make an mbarrier that expects `count` arrivals per phase",
    **_LSU,
)
add_row(f"mbarrier.inval{_OWN}.b64", "p:addr", effects="mbarrier inval", doc="end an mbarrier's life", **_LSU)
add_row(
    f"mbarrier.arrive{_RELEASE}{_OWN}.b64",
    "state:b64 <- p:addr, count?:u32",
    effects="mbarrier arrive",
    legal=legal_order,
    doc="arrive `count` times (once; a count needs sm_90); state = the phase before",
    **_LSU,
)
add_row(
    f"mbarrier.arrive.noComplete{{.sem:release}}{{.scope:cta}}{_OWN}.b64",
    "state:b64 <- p:addr, count:u32",
    effects="mbarrier arrive",
    legal=legal_order,
    doc="arrive `count` times, which must not complete the phase",
    **_LSU,
)
add_row(
    f"mbarrier.arrive{_RELEASE}{_REMOTE}.b64",
    "state:b64 <- p:addr, count?:u32",
    effects="mbarrier arrive remote",
    legal=legal_order,
    check=_sink_only,
    sm=90,
    ptx=(8, 0),
    doc="arrive on an mbarrier of any CTA of the cluster",
    **_LSU,
)
add_row(
    f"mbarrier.arrive.expect_tx{_RELEASE}{_OWN}.b64",
    "state:b64 <- p:addr, bytes:u32",
    effects="mbarrier arrive expect",
    legal=legal_order,
    sm=90,
    ptx=(8, 0),
    doc="let the phase wait for `bytes` more bytes, then arrive once",
    **_LSU,
)
add_row(
    f"mbarrier.arrive.expect_tx{_RELEASE}{_REMOTE}.b64",
    "state:b64 <- p:addr, bytes:u32",
    effects="mbarrier arrive expect remote",
    legal=legal_order,
    check=_sink_only,
    sm=90,
    ptx=(8, 0),
    doc="the same on an mbarrier of any CTA of the cluster",
    **_LSU,
)
for _name, _effect, _what in (
    ("expect_tx", "expect", "let the phase wait for `bytes` more bytes"),
    ("complete_tx", "complete", "account for `bytes` bytes as a copy would"),
):
    add_row(
        f"mbarrier.{_name}{{.sem:relaxed}}{{.scope:cta|cluster}}{{.space:shared::cta|shared::cluster|shared}}.b64",
        "p:addr, bytes:u32",
        effects=f"mbarrier {_effect}",
        legal=legal_order,
        sm=90,
        ptx=(8, 0),
        doc=_what,
        **_LSU,
    )
add_row(
    f"mbarrier.test_wait{_ACQUIRE}{_OWN}.b64",
    "done:pred <- p:addr, state:b64",
    effects="mbarrier test",
    legal=legal_order,
    doc="done = the phase of `state` has completed",
    **_LSU,
)
add_row(
    f"mbarrier.test_wait.parity{_ACQUIRE}{_OWN}.b64",
    "done:pred <- p:addr, parity:u32",
    effects="mbarrier test parity",
    legal=legal_order,
    ptx=(7, 1),
    doc="done = the phase of this parity has completed",
    **_LSU,
)
add_row(
    f"mbarrier.try_wait{_ACQUIRE}{_OWN}.b64",
    "done:pred <- p:addr, state:b64, ns?:u32",
    effects="mbarrier test suspend",
    legal=legal_order,
    sm=90,
    ptx=(7, 8),
    doc="as test_wait, may suspend the thread for a while",
    **_LSU,
)
add_row(
    f"mbarrier.try_wait.parity{_ACQUIRE}{_OWN}.b64",
    "done:pred <- p:addr, parity:u32, ns?:u32",
    effects="mbarrier test suspend parity",
    legal=legal_order,
    sm=90,
    ptx=(7, 8),
    doc="as test_wait.parity, may suspend the thread for a while",
    **_LSU,
)

# ---------------------------------------------------------------- clusters

_CLUSTER: dict[str, Any] = {"unit": Unit.BARRIER, "latency": 200, "sm": 90, "source": "latency unverified"}
add_row(
    "barrier.cluster.arrive{.sem:release|relaxed}{.aligned}",
    "",
    effects="barrier cluster arrive",
    ptx=(8, 0),
    doc="arrive at the barrier of all threads of the cluster",
    **_CLUSTER,
)
add_row(
    "barrier.cluster.wait{.sem:acquire}{.aligned}",
    "",
    effects="barrier cluster sync",
    ptx=(8, 0),
    doc="wait until all threads of the cluster that live have arrived",
    **_CLUSTER,
)
add_row(
    "mapa{.space:shared::cluster}.type:u32|u64",
    "d:type <- a:type, cta:u32",
    Unit.ALU,
    effects="mapa",
    sm=90,
    ptx=(7, 8),
    doc="d = the address in CTA number `cta` of the cluster of what a is in this one",
)
add_row(
    "getctarank{.space:shared::cluster}.type:u32|u64",
    "d:u32 <- a:type",
    Unit.ALU,
    effects="mapa rank",
    sm=90,
    ptx=(7, 8),
    doc="d = rank of the CTA that address a lies in",
)

# ---------------------------------------------------------------- roles


def _budget(args: Sequence[Arg]) -> str:
    n = int(args[0].text, 0) if args[0].text else 0
    return "" if 24 <= n <= 256 and n % 8 == 0 else f"{n} registers: a multiple of 8 from 24 to 256 is needed"


add_row(
    "setmaxnreg.action:inc|dec.sync.aligned.u32",
    "n:imm",
    Unit.UNIFORM,
    effects="registers convergent warpgroup",
    check=_budget,
    sm=90,
    ptx=(8, 0),
    needs_a=True,
    doc="set the warpgroup's register budget per thread; an increase waits until the CTA has that many free",
)
