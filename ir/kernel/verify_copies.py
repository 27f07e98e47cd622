"""Whether asynchronous copies have arrived where shared memory is read, and whether all waves come to each barrier.

In: a kernel whose ops are well formed. Out: findings in the `Check`.
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Kernel, Region, Value
from wavedsl.ir.kernel.meetings import MEETINGS
from wavedsl.ir.kernel.verify_ops import VARYING, Check


def check_copies(state: Check) -> None:
    """Walk the first trip of every loop: per buffer, how far its oldest copies have come.

    Ring slots are not told apart, so one finished group of a buffer is taken to allow reading it; copies that do not
    name their buffer are not followed.
    """
    open_: set[str] = set()
    groups: list[frozenset[str]] = []
    progress: dict[str, str] = {}
    waves = state.kernel.waves

    def walk(region: Region) -> None:
        for op in region.ops:
            name = op.name
            if name == "copy.async":
                buffer = op.attrs["buffer"]
                if buffer:
                    open_.add(buffer)
                    progress.setdefault(buffer, "not committed")
            elif name == "copy.commit":
                groups.append(frozenset(open_))
                for b in sorted(open_):
                    if progress[b] == "not committed":
                        progress[b] = "not waited for"
                open_.clear()
            elif name == "copy.wait":
                while len(groups) > op.attrs["pending"]:
                    for b in sorted(groups.pop(0)):
                        if progress[b] == "not waited for":
                            progress[b] = "waited for, but no barrier has passed" if waves > 1 else ""
            elif name == "signal.copied":
                for b in sorted(open_):
                    progress[b] = "told to a barrier in memory that nobody has waited for"
                open_.clear()
            elif name in MEETINGS or name == "signal.wait":
                for b, p in progress.items():
                    if p.startswith("told" if name == "signal.wait" else "waited"):
                        progress[b] = ""
            elif name == "load.shared":
                p = progress.get(op.attrs["buffer"], "")
                if p:
                    state.find("copies", op, f"reads buffer {op.attrs['buffer']!r}, whose copies are {p}")
                    progress[op.attrs["buffer"]] = ""
            for body in op.regions:
                walk(body)

    walk(state.kernel.body)


def only_read(kernel: Kernel, buffer: Value) -> bool:
    """Whether a buffer is an array argument, or lies in one, that the kernel does not write."""
    work, pointers = [buffer], set()
    while work:
        op = work.pop().op
        if op is None:
            return False
        if op.name == "param" and kernel.params[op.attrs["index"]].kind == "pointer":
            pointers.add(op.attrs["index"])
        work += op.args
    return len(pointers) == 1 and all(kernel.params[i].access == "read" for i in pointers)


def check_barriers(state: Check) -> None:
    """No barrier under a condition or loop bound that may differ between the waves of a workgroup."""
    if state.kernel.waves == 1:
        return
    varies: set[Value] = set()

    def walk(region: Region, culprit: Value | None) -> None:
        for op in region.ops:
            name = op.name
            if name in ("barrier", "fence") and culprit is not None and not {"threads", "half"} & set(op.attrs):
                state.find("barriers", op, f"not all waves may come here: {culprit} differs between waves")
            if name == "any_lane" and op.attrs.get("workgroup"):
                continue
            constant = name == "load.global" and only_read(state.kernel, op.args[0])
            # What nobody writes is the same for every wave that reads it in one place, as is its first lane's.
            if (name in VARYING and not constant) or not varies.isdisjoint(op.args):
                varies.update(op.results)
            if not op.regions:
                continue
            inner = culprit
            for a in op.args[: 3 if name == "for" else 1]:
                if inner is None and a in varies:
                    inner = a
            for body in op.regions:
                for arg, init in zip(body.args[1:], op.args[3:]):
                    if init in varies:
                        varies.add(arg)
                if inner is not None or (name == "for" and op.args[0] in varies):
                    varies.update(body.args[:1])
                walk(body, inner)
                for arg, out in zip(body.args[1:], body.ops[-1].args):
                    if out in varies and arg not in varies:
                        varies.add(arg)
                        varies.update(op.results)
                if inner is not None:
                    varies.update(op.results)

    walk(state.kernel.body, None)
