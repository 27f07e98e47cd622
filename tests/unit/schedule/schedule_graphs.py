"""Loop bodies for the scheduler's tests: the GEMM and attention loops of one CDNA wave, and random graphs."""

from __future__ import annotations

import random

from hypothesis import strategies as st
from wavedsl.ir.schedule.schedule_bounds import SchedEdge, SchedNode

CAPACITY = {"issue": 1, "mfma": 1, "lds": 1, "vmem": 1, "valu": 1}


class Body:
    """Collects nodes and edges."""

    def __init__(self) -> None:
        self.nodes: list[SchedNode] = []
        self.edges: list[SchedEdge] = []

    def node(self, name: str, *resources: tuple[str, int]) -> int:
        self.nodes.append(SchedNode(len(self.nodes), (("issue", 1), *resources), name))
        return len(self.nodes) - 1

    def edge(self, src: int, dst: int, latency: int, distance: int = 0) -> None:
        self.edges.append(SchedEdge(src, dst, latency, distance))


def gemm(m: int = 2, n: int = 2, k: int = 4, waves: int = 4, slots: int = 2) -> Body:
    """gfx942, wave tile 16m x 16n, k steps of 16, in ticks of 4 clocks. The CU's waves share its LDS: an access counts
    `waves` times. Writes return to a slot when the reads of `slots` iterations ago are done."""
    body = Body()
    writes = []
    for i in range(m + n):
        load = body.node(f"load{i}", ("vmem", 4))
        write = body.node(f"write{i}", ("lds", 2 * waves))
        body.edge(load, write, 200)
        writes.append(write)
    read = {}
    for operand, count in (("a", m), ("b", n)):
        for i in range(count):
            for s in range(k // 2):
                r = read[operand, i, s] = body.node(f"read {operand}{i}{s}", ("lds", 2 * waves))
                for w in writes:
                    body.edge(w, r, 16)
                    body.edge(r, w, 1, slots)
    last: dict[tuple[int, int], int] = {}
    for s in range(k):
        for i in range(m):
            for j in range(n):
                x = body.node(f"mfma{i}{j}", ("mfma", 4))
                body.edge(read["a", i, s // 2], x, 32)
                body.edge(read["b", j, s // 2], x, 32)
                if s == 0:
                    body.edge(x, x, 16, 1)
                else:
                    body.edge(last[i, j], x, 4)
                last[i, j] = x
    return body


ATTENTION_STAGES = [0] * 8 + [1] * 4 + [3] * 4 + [2] * 16 + [2] * 32 + [3] * 250 + [4] * 16 + [4] * 32
"""Loads, writes of K and V, reads of K, QK two tiles ahead, softmax one ahead, reads of V, PV."""


def attention(valu: int = 250) -> Body:
    """gfx942 attention 128 x 64, d 128: QK, a synthetic softmax of `valu` instructions, PV; ticks of 4 clocks."""
    rng = random.Random(1)
    body = Body()
    loads = [body.node("load", ("vmem", 4)) for _ in range(8)]
    writes = [body.node("write", ("lds", 8)) for _ in range(8)]
    for a, b in zip(loads, writes):
        body.edge(a, b, 200)

    def reads(name: str, into: list[int]) -> list[int]:
        found = [body.node(name, ("lds", 8)) for _ in range(16)]
        for w in into:
            for r in found:
                body.edge(w, r, 16)
                body.edge(r, w, 1, 2)
        return found

    k = reads("read k", writes[:4])
    qk: list[int] = []
    for i in range(32):
        qk.append(body.node("qk", ("mfma", 8)))
        body.edge(k[i // 2], qk[i], 32)
        if i >= 2:
            body.edge(qk[i - 2], qk[i], 8)
    v: list[int] = []
    for i in range(valu):
        v.append(body.node("softmax", ("valu", 1)))
        if i < 32:
            body.edge(qk[30 + i % 2], v[i], 11)
        else:
            body.edge(v[rng.randrange(max(0, i - 64), i - 16)], v[i], 2)
            body.edge(v[i - 32], v[i], 2)
    vr = reads("read v", writes[4:])
    pv: list[int] = []
    for i in range(32):
        pv.append(body.node("pv", ("mfma", 8)))
        body.edge(vr[i // 2], pv[i], 32)
        body.edge(v[valu - 32 + i], pv[i], 2)
        if i >= 4:
            body.edge(pv[i - 4], pv[i], 8)
    for i in range(4):
        body.edge(pv[28 + i], pv[i], 8, 1)
    body.edge(v[64], v[64], 8, 1)
    return body


@st.composite
def loop_bodies(draw: st.DrawFn) -> tuple[list[SchedNode], list[SchedEdge], dict[str, int]]:
    """Random loop bodies: acyclic within an iteration, anything across iterations, one to three copies of a unit."""
    capacity = {"issue": 1, "alu": draw(st.integers(1, 3)), "mem": draw(st.integers(1, 2))}
    count = draw(st.integers(1, 12))
    nodes = []
    for i in range(count):
        units = draw(st.lists(st.sampled_from(["issue", "alu", "mem"]), unique=True, max_size=3))
        nodes.append(SchedNode(i, tuple((u, draw(st.integers(1, 4))) for u in units), f"n{i}"))
    edges = []
    for _ in range(draw(st.integers(0, 20))):
        a, b = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        distance = draw(st.integers(0, 2)) if a < b else draw(st.integers(1, 3))
        edges.append(SchedEdge(a, b, draw(st.integers(-2, 12)), distance))
    return nodes, edges, capacity
