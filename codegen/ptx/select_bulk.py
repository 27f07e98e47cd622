"""Selection of bulk copies, barriers in shared memory and roles (see `select`).

A wait is a loop of its own: the instruction may give up and is tried again. A tensor map is a parameter whose generic
address the copies take. What one thread of a wave does stands behind an elected branch, so that ptxas knows that the
operands of its copies are the same in all threads that get there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wavedsl.codegen.ptx import cache
from wavedsl.codegen.ptx.machine import Imm, Label, Mem, Operand, Paired, Reg, Symbol, Tensor
from wavedsl.codegen.ptx.mma import WARP
from wavedsl.codegen.ptx.select_entry import special
from wavedsl.codegen.ptx.select_memory import barrier_of_wave, load, shared_address
from wavedsl.ir.kernel.kernel_ir import Op

if TYPE_CHECKING:
    from wavedsl.codegen.ptx.select import Selector

SINK = Symbol("_", "none")
"""Where a result goes that nobody wants."""

_OWN = ("shared::cta", "b64")


def _init(s: Selector, op: Op) -> None:
    s.emit(("mbarrier", "init", *_OWN), shared_address(s, op.args[0], 0), Imm(op.attrs["count"]))


def _publish(s: Selector, op: Op) -> None:
    s.emit(("fence", "mbarrier_init", "release", "cluster"))


def _expect(s: Selector, op: Op) -> None:
    address = shared_address(s, op.args[0], 0)
    s.emit(("mbarrier", "arrive", "expect_tx", *_OWN), SINK, address, Imm(op.attrs["bytes"]))


def _arrive(s: Selector, op: Op) -> None:
    mask = s.mask(op.args[1])
    if mask is not False:
        address = shared_address(s, op.args[0], 0)
        s.emit(("mbarrier", "arrive", *_OWN), SINK, address, guard=None if mask is True else mask)


def _copied(s: Selector, op: Op) -> None:
    s.emit(("cp", "async", "mbarrier", "arrive", "noinc", *_OWN), shared_address(s, op.args[0], 0))


def _wait(s: Selector, op: Op) -> None:
    address = shared_address(s, op.args[0], 0)
    parity = s.one(op.args[1])
    again = s.label("wait")
    s.out.append(Label(again))
    done = s.new("pred")
    s.emit(("mbarrier", "try_wait", "parity", *_OWN), done, address, parity)
    s.branch(again, done, negated=True)


def _arrive_at(s: Selector, op: Op) -> None:
    addr, cta, mask_v = op.args
    mask = s.mask(mask_v)
    if mask is False:
        return
    own = shared_address(s, addr, 0)
    base = own.base if type(own.base) is Reg else s.shared_base()
    here = s.set("b32", ("add", "s32"), base, Imm(own.offset)) if own.offset else base
    there = s.set("b32", ("mapa", "shared::cluster", "u32"), here, s.one(cta))
    # With the default scope, .cta: what is handed over is that reads are over, and they are when it is issued. For
    # .release.cluster ptxas puts a fence of the whole chip in front (MEMBAR.ALL.GPU, ERRBAR, CGAERRBAR), every trip.
    words = ("mbarrier", "arrive", "shared::cluster", "b64")
    s.emit(words, SINK, Mem(there), guard=None if mask is True else mask)


def _load_peer(s: Selector, op: Op) -> None:
    """The address in the other workgroup's memory is made once for all accesses that differ in their immediates."""
    addr, cta_v = op.args
    cta = s.one(cta_v)
    own = shared_address(s, addr, op.attrs["imm"])
    base = own.base if type(own.base) is Reg else s.shared_base()
    key = ("peer", base.id, cta.value if type(cta) is Imm else cta.id)
    words = ("mapa", "shared::cluster", "u32")
    there = s.hoisted(key, s.level_of(base, cta), lambda: s.set("b32", words, base, cta))
    load(s, op, "shared::cluster", Mem(there, own.offset), True)


def _rank(s: Selector, op: Op) -> None:
    s.values[op.result.id] = (special(s, "%cluster_ctarank"),)


def _cluster_barrier(s: Selector, op: Op) -> None:
    # `fence.mbarrier_init` has released what is to be known at first; ptxas fences the whole chip for .release.
    half = op.attrs.get("half")
    if half != "wait":
        s.emit(("barrier", "cluster", "arrive", "relaxed" if op.attrs["initial"] else "release"))
    if half != "arrive":
        s.emit(("barrier", "cluster", "wait", "acquire"))


def _copy(s: Selector, op: Op) -> None:
    map_, saddr, bar, to, *at = op.args
    where = Tensor(s.regs(map_)[0], tuple(s.reg(s.one(x)) for x in at))
    words: tuple[str, ...] = ("cp", "async", "bulk", "tensor", f"{len(at)}d", "shared::cluster", "global", "tile")
    target, signal = shared_address(s, saddr, 0), shared_address(s, bar, 0)
    hint = op.attrs.get("cache")
    policy, more = cache.policy(s, hint), cache.copy_words(hint)
    if op.attrs["receivers"] > 1:
        words = (*words, "mbarrier::complete_tx::bytes", "multicast::cluster", *more)
        s.emit(words, target, where, signal, _receivers(s, s.one(to)), *policy)
    else:
        s.emit((*words, "mbarrier::complete_tx::bytes", *more), target, where, signal, *policy)


def _receivers(s: Selector, mask: Operand) -> Reg:
    """A mask of workgroups in the 16 bits that multicast takes."""
    if type(mask) is Reg:
        return s.set("b16", ("cvt", "u16", "u32"), mask)
    return s.set("b16", ("mov", "b16"), mask)


def _store(s: Selector, op: Op) -> None:
    map_, saddr, mask_v, *at = op.args
    mask = s.mask(mask_v)
    if mask is False:
        return
    where = Tensor(s.regs(map_)[0], tuple(s.reg(s.one(x)) for x in at))
    dims = ("async", "bulk", "tensor", f"{len(at)}d", "global", "shared::cta")
    words = ("cp", "reduce", *dims, "add", "tile", "bulk_group") if op.attrs.get("adds") else (
        "cp", *dims, "tile", "bulk_group"
    )  # fmt: skip
    hint = op.attrs.get("cache")
    source, policy = shared_address(s, saddr, 0), cache.policy(s, hint)
    s.emit((*words, *cache.copy_words(hint)), where, source, *policy, guard=None if mask is True else mask)


def _prefetch(s: Selector, op: Op) -> None:
    map_, *at = op.args
    where = Tensor(s.regs(map_)[0], tuple(s.reg(s.one(x)) for x in at))
    s.emit(("cp", "async", "bulk", "prefetch", "tensor", f"{len(at)}d", "L2", "global", "tile"), where)


def _prefetch_map(s: Selector, op: Op) -> None:
    s.emit(("prefetch", "tensormap"), Mem(s.regs(op.args[0])[0]))


def _commit(s: Selector, op: Op) -> None:
    s.emit(("cp", "async", "bulk", "commit_group"))


def _bulk_wait(s: Selector, op: Op) -> None:
    read = ("read",) if op.attrs["reading"] else ()
    s.emit(("cp", "async", "bulk", "wait_group", *read), Imm(op.attrs["pending"]))


def _wave_barrier(s: Selector, op: Op) -> None:
    if s.kernel.wave_size == WARP:
        s.emit(("bar", "warp", "sync"), Imm(-1))
        return
    s.emit(("bar", "sync"), barrier_of_wave(s, op.attrs["id"]), Imm(s.kernel.wave_size))


def _warp_fence(s: Selector, op: Op) -> None:
    s.emit(("bar", "warp", "sync"), Imm(-1))


def _turn_take(s: Selector, op: Op) -> None:
    s.emit(("bar", "sync"), barrier_of_wave(s, op.attrs["id"]), Imm(2 * s.kernel.wave_size))


def _turn_give(s: Selector, op: Op) -> None:
    """The next wave: of two the other one."""
    first, waves = op.attrs["id"], op.attrs["waves"]
    own = barrier_of_wave(s, first)

    def number() -> Reg:
        if waves == 2:
            return s.set("b32", ("sub", "s32"), s.reg(Imm(2 * first + 1)), own)
        last = s.set("pred", ("setp", "eq", "s32"), own, Imm(first + waves - 1))
        return s.set("b32", ("selp", "b32"), Imm(first), s.set("b32", ("add", "s32"), own, Imm(1)), last)

    s.emit(("bar", "arrive"), s.hoisted(("turn", first, waves), 0, number), Imm(2 * s.kernel.wave_size))


def _elect(s: Selector, op: Op) -> None:
    """One lane of the wave's first warp: every warp elects one."""
    chosen: Reg = s.new("pred")
    s.emit(("elect", "sync"), Paired(chosen), Imm(-1))
    if s.kernel.wave_size > WARP:
        above = s.set("b32", ("and", "b32"), special(s, "%tid.x"), Imm(s.kernel.wave_size - WARP))
        first = s.set("pred", ("setp", "eq", "s32"), above, Imm(0))
        chosen = s.set("pred", ("and", "pred"), chosen, first)
    s.values[op.result.id] = (chosen,)


def _registers(s: Selector, op: Op) -> None:
    action = "inc" if op.attrs["more"] else "dec"
    s.emit(("setmaxnreg", action, "sync", "aligned", "u32"), Imm(op.attrs["count"]))


def _grid_wait(s: Selector, op: Op) -> None:
    s.emit(("griddepcontrol", "wait"))


def _grid_release(s: Selector, op: Op) -> None:
    s.emit(("griddepcontrol", "launch_dependents"))


SELECT: dict[str, Callable[[Selector, Op], None]] = {
    "signal.init": _init,
    "signal.publish": _publish,
    "signal.expect": _expect,
    "signal.arrive": _arrive,
    "signal.arrive.at": _arrive_at,
    "signal.copied": _copied,
    "signal.wait": _wait,
    "cluster.rank": _rank,
    "load.peer": _load_peer,
    "cluster.barrier": _cluster_barrier,
    "copy.bulk": _copy,
    "touch.bulk": _prefetch,
    "touch.map": _prefetch_map,
    "copy.bulk.store": _store,
    "bulk.commit": _commit,
    "bulk.wait": _bulk_wait,
    "wave.barrier": _wave_barrier,
    "warp.fence": _warp_fence,
    "turn.take": _turn_take,
    "turn.give": _turn_give,
    "elect": _elect,
    "registers": _registers,
    "grid.wait": _grid_wait,
    "grid.release": _grid_release,
}
