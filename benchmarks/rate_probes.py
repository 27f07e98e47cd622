"""PTX texts that each measure one rate or latency of a Hopper chip, and nothing else.

In: nothing. Out: `PROBES`, rows of text, launch and meaning. A text has the parameters `source` (bytes that it may
read and write), `found` (a u64 per CTA: clocks of the measured part) and `steps`, and a second entry where links have
to be laid first. Written by hand, because a compiler's own kernels never do one thing alone.

A latency is measured by a chain, each step of which needs the one before; a rate by as much on its way as fits. Clocks
are the SM's (`%clock64`), so what the board's clock does plays no part, except for memory's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

KB, MB = 1 << 10, 1 << 20
HEAD = """.version 8.3
.target sm_90a
.address_size 64
"""
PARAMETERS = ".param .u64 source, .param .u64 found, .param .u32 steps"
SLOTS, SLOT = 8, 16 * KB
"""Bulk copies on their way of a streaming CTA, and bytes of each."""
FILL = "fill"
"""Entry that lays the links of a chain, where there is one."""


@dataclass(frozen=True)
class Probe:
    """`made(source)` is the text with the entry `probe`, for a launch of `grid` CTAs of `block` threads with `shared`
    bytes.

    `source`: bytes there; `cold`: whether caches are swept first. `value(clocks, steps)` makes the number out of the
    clocks of each CTA. `models`: the field of `SmModel` that stands for it, None where it has none; `unit` of both.
    """

    name: str
    made: Callable[[int], str]
    unit: str
    models: str | None
    value: Callable[[list[int], int], float]
    grid: int = 1
    block: int = 32
    shared: int = 0
    source: int = 64 * KB
    steps: int = 4096
    cold: bool = False

    @property
    def text(self) -> str:
        return self.made(self.source)

    @property
    def linked(self) -> bool:
        """Whether the entry `FILL` has to lay links first."""
        return f".entry {FILL}(" in self.text


def entry(body: str, *, name: str = "probe", shared: bool = False, attributes: str = "") -> str:
    """An entry whose `body` leaves the clocks in %rd31; thread 0 of each CTA stores them."""
    return f"""{".extern .shared .align 1024 .b8 memory[];" if shared else ""}
.visible .entry {name}({PARAMETERS})
{attributes}
{{
 .reg .pred %p<8>;
 .reg .b32 %r<32>;
 .reg .b64 %rd<32>;
 ld.param.u64 %rd1, [source];
 ld.param.u64 %rd2, [found];
 ld.param.u32 %r1, [steps];
 cvta.to.global.u64 %rd1, %rd1;
 cvta.to.global.u64 %rd2, %rd2;
 mov.u32 %r2, %tid.x;
 mov.u32 %r3, %ctaid.x;
{body}
 setp.ne.u32 %p0, %r2, 0;
 @%p0 bra LEAVE;
 mul.wide.u32 %rd30, %r3, 8;
 add.s64 %rd30, %rd2, %rd30;
 st.global.u64 [%rd30], %rd31;
LEAVE:
 ret;
}}
"""


def timed(loop: str) -> str:
    """`loop` between two readings of the clock, and the difference in %rd31. %r10 counts up to `steps`."""
    return f"""
 mov.u64 %rd29, %clock64;
 mov.u32 %r10, 0;
STEP:
{loop}
 add.u32 %r10, %r10, 1;
 setp.lt.u32 %p7, %r10, %r1;
 @%p7 bra STEP;
 mov.u64 %rd31, %clock64;
 sub.s64 %rd31, %rd31, %rd29;"""


def cleared(threads: int, size: int) -> str:
    """Zeros in `size` bytes of shared memory, for what reads it by another proxy; %r4 is where it begins."""
    return f"""
 mov.u32 %r4, memory;
 mov.u32 %r5, %r2;
CLEAR:
 shl.b32 %r6, %r5, 2;
 add.u32 %r6, %r6, %r4;
 st.shared.u32 [%r6], 0;
 add.u32 %r5, %r5, {threads};
 setp.lt.u32 %p1, %r5, {size // 4};
 @%p1 bra CLEAR;
 fence.proxy.async.shared::cta;
 bar.sync 0;"""


def chain(space: str, stride: int, rounds: int, size: int) -> str:
    """Links through `size` bytes, `stride` apart, each the address of the next; `rounds` through them before the clock
    starts. Unrolled fourfold, so that the loop's own instructions run while a load is on its way."""
    fill = entry(
        f"""
 mov.u64 %rd31, 0;
 mov.u32 %r4, %ntid.x;
 mov.u32 %r5, %nctaid.x;
 mad.lo.u32 %r6, %r3, %r4, %r2;
 mul.lo.u32 %r7, %r4, %r5;
LINK:
 setp.ge.u32 %p1, %r6, {size // stride};
 @%p1 bra LAID;
 add.u32 %r8, %r6, 1;
 rem.u32 %r8, %r8, {size // stride};
 mul.wide.u32 %rd3, %r6, {stride};
 mul.wide.u32 %rd4, %r8, {stride};
 add.s64 %rd3, %rd1, %rd3;
 add.s64 %rd4, %rd1, %rd4;
 st.global.u64 [%rd3], %rd4;
 add.u32 %r6, %r6, %r7;
 bra LINK;
LAID:""",
        name=FILL,
    )
    load = f" ld.global.{space}.u64 %rd5, [%rd5];\n" * 4
    warm = f"""
 mov.u32 %r9, {rounds * size // stride};
WARM:
 ld.global.{space}.u64 %rd5, [%rd5];
 sub.u32 %r9, %r9, 1;
 setp.ne.u32 %p1, %r9, 0;
 @%p1 bra WARM;"""
    # So that the chain is needed; the clocks overwrite it.
    kept = " st.global.u64 [%rd2], %rd5;\n bar.sync 0;"
    return HEAD + fill + entry(f" mov.u64 %rd5, %rd1;{warm if rounds else ''}{timed(load)}\n{kept}")


LINKS = 64
"""Links of a chain in shared memory, a word each."""


def shared_chain(remote: bool, size: int) -> str:
    """A chain through shared memory: the CTA's own, or that of the other one of a cluster of two, from either side."""
    if not remote:
        begin, load, end = " mov.u32 %r12, memory;", "ld.shared.u32", ""
    else:
        begin = """
 mov.u32 %r13, %cluster_ctarank;
 xor.b32 %r13, %r13, 1;
 mov.u32 %r12, memory;
 mapa.shared::cluster.u32 %r12, %r12, %r13;"""
        load = "ld.shared::cluster.u32"
        end = "\n barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;"
    # A word holds the address of the next one; of a cluster, as the CTA that follows it sees it.
    own = "memory" if not remote else "%r14"
    lay = f"""
 mov.u32 %r4, memory;
{" mov.u32 %r14, %cluster_ctarank;" if remote else ""}
{" mapa.shared::cluster.u32 %r14, %r4, %r14;" if remote else ""}
 mov.u32 %r15, {own};
 mov.u32 %r5, 0;
LINK:
 add.u32 %r6, %r5, 1;
 and.b32 %r6, %r6, {LINKS - 1};
 shl.b32 %r6, %r6, 2;
 add.u32 %r6, %r6, %r15;
 shl.b32 %r7, %r5, 2;
 add.u32 %r7, %r7, %r4;
 setp.eq.u32 %p1, %r2, 0;
 @%p1 st.shared.u32 [%r7], %r6;
 add.u32 %r5, %r5, 1;
 setp.lt.u32 %p2, %r5, {LINKS};
 @%p2 bra LINK;
 bar.sync 0;{end}"""
    body = f"{lay}\n{begin}\n{timed(f' {load} %r12, [%r12];{chr(10)}' * 4)}{end}"
    kept = """
 mul.wide.u32 %rd30, %r3, 8;
 add.s64 %rd30, %rd2, %rd30;
 cvt.u64.u32 %rd28, %r12;
 st.global.u64 [%rd30], %rd28;
 bar.sync 0;"""
    cluster = ".explicitcluster\n.reqnctapercluster 2,1,1" if remote else ""
    return HEAD + entry(body + kept, shared=True, attributes=cluster)


def meeting(cluster: bool, size: int) -> str:
    """A barrier of all threads of a CTA, or of a cluster of two, again and again."""
    if cluster:
        loop = " barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;"
        return HEAD + entry(timed(loop), attributes=".explicitcluster\n.reqnctapercluster 2,1,1")
    return HEAD + entry(timed(" bar.sync 0;"))


def signal(size: int) -> str:
    """Two warps that wait for one another: a step is two arrivals, each waited for by the other warp."""
    loop = timed("""
 @%p3 mbarrier.arrive.shared::cta.b64 _, [%r7];
ASK:
 mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r6], %r9;
 @!%p4 bra ASK;
 xor.b32 %r9, %r9, 1;
 @%p5 mbarrier.arrive.shared::cta.b64 _, [%r7];""")
    return HEAD + entry(
        f"""
 mov.u32 %r4, memory;
 setp.ne.u32 %p1, %r2, 0;
 @%p1 bra READY;
 mbarrier.init.shared::cta.b64 [%r4], 1;
 mbarrier.init.shared::cta.b64 [%r4+8], 1;
READY:
 bar.sync 0;
 shr.u32 %r5, %r2, 5;
 shl.b32 %r6, %r5, 3;
 add.u32 %r6, %r4, %r6;
 xor.b32 %r7, %r5, 1;
 shl.b32 %r7, %r7, 3;
 add.u32 %r7, %r4, %r7;
 and.b32 %r8, %r2, 31;
 mov.u32 %r9, 0;
 setp.eq.u32 %p2, %r5, 0;
 setp.eq.and.u32 %p3, %r8, 0, %p2;
 setp.eq.and.u32 %p5, %r8, 0, !%p2;
{loop}""",
        shared=True,
    )


def bulk(size: int, source: int) -> str:
    """One bulk copy of `size` bytes that hit L2, waited for, again and again."""
    loop = timed(f"""
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {size};
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], {size}, [%r4];
ASK:
 mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r4], %r9;
 @!%p4 bra ASK;
 xor.b32 %r9, %r9, 1;""")
    return HEAD + entry(
        f"""
 mov.u32 %r4, memory;
 setp.ne.u32 %p1, %r2, 0;
 @%p1 bra LEAVE;
 mbarrier.init.shared::cta.b64 [%r4], 1;
 fence.mbarrier_init.release.cluster;
 mov.u32 %r9, 0;
 add.u32 %r5, %r4, 1024;
{loop}""",
        shared=True,
    )


def stream(size: int) -> str:
    """CTAs that copy neighbouring slots of `size` bytes of memory into rings; whoever waits for a slot has all others
    of its ring on their way."""
    ahead = "\n".join(
        f" add.u32 %r6, %r4, {8 * i};\n add.u32 %r7, %r5, {SLOT * i};\n{_ask('%r6', '%r7', size)}"
        for i in range(SLOTS)
    )
    loop = timed(f"""
 shl.b32 %r6, %r8, 3;
 add.u32 %r6, %r6, %r4;
 mad.lo.u32 %r7, %r8, {SLOT}, %r5;
ASK:
 mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r6], %r9;
 @!%p4 bra ASK;
{_ask('%r6', '%r7', size)}
 add.u32 %r8, %r8, 1;
 setp.eq.u32 %p5, %r8, {SLOTS};
 selp.u32 %r8, 0, %r8, %p5;
 selp.u32 %r12, 1, 0, %p5;
 xor.b32 %r9, %r9, %r12;""")
    return HEAD + entry(
        f"""
 setp.ne.u32 %p1, %r2, 0;
 @%p1 bra LEAVE;
 mov.u32 %r4, memory;
 add.u32 %r5, %r4, 1024;
 mov.u32 %r11, %nctaid.x;
 mul.wide.u32 %rd6, %r3, {SLOT};
 mul.wide.u32 %rd7, %r11, {SLOT};
{"".join(f" mbarrier.init.shared::cta.b64 [%r4+{8 * i}], 1;{chr(10)}" for i in range(SLOTS))}
 fence.mbarrier_init.release.cluster;
{ahead}
 mov.u32 %r8, 0;
 mov.u32 %r9, 0;
{loop}
 mov.u32 %r10, 0;
DRAIN:
 shl.b32 %r6, %r8, 3;
 add.u32 %r6, %r6, %r4;
LAST:
 mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r6], %r9;
 @!%p4 bra LAST;
 add.u32 %r8, %r8, 1;
 setp.eq.u32 %p5, %r8, {SLOTS};
 selp.u32 %r8, 0, %r8, %p5;
 selp.u32 %r12, 1, 0, %p5;
 xor.b32 %r9, %r9, %r12;
 add.u32 %r10, %r10, 1;
 setp.lt.u32 %p7, %r10, {SLOTS};
 @%p7 bra DRAIN;""",
        shared=True,
    )


def _ask(barrier: str, slot: str, size: int) -> str:
    """Ask for the next slot, and step on, around the end of the source."""
    return f"""
 add.s64 %rd8, %rd1, %rd6;
 mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {SLOT};
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{slot}], [%rd8], {SLOT}, [{barrier}];
 add.s64 %rd6, %rd6, %rd7;
 setp.ge.u64 %p6, %rd6, {size};
 @%p6 sub.s64 %rd6, %rd6, {size};"""


def product(n: int, together: int, size: int) -> str:
    """A warpgroup that multiplies 64 x n x 16 in bf16, `together` of them before it waits. Both operands are the same
    zeros in shared memory, K-major in rows of 128 bytes, swizzled: 8 rows every 1024 bytes."""
    sums = [f"%f{i}" for i in range(n // 2)]
    listed = "{" + ", ".join(sums) + "}"
    one = f" wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {listed}, %rd10, %rd10, 1, 1, 1, 0, 0;\n"
    clear = "".join(f" mov.f32 {x}, 0f00000000;\n" for x in sums)
    total = "".join(f" add.f32 %f0, %f0, {x};\n" for x in sums[1:])
    return HEAD + entry(
        f"""
 .reg .f32 %f<{n // 2}>;
{cleared(128, TILE)}
 shr.u32 %r4, %r4, 4;
 and.b32 %r4, %r4, 0x3fff;
 cvt.u64.u32 %rd10, %r4;
 or.b64 %rd10, %rd10, 0x4000004000010000;
{clear}{timed(f''' wgmma.fence.sync.aligned;
{one * together} wgmma.commit_group.sync.aligned;
 wgmma.wait_group.sync.aligned 0;''')}
{total} setp.eq.f32 %p3, %f0, 0f7F800000;
 @%p3 st.global.f32 [%rd1], %f0;""",
        shared=True,
        attributes=".reqntid 128,1,1",
    )


def per_step(count: int) -> Callable[[list[int], int], float]:
    """Clocks of one of `count` links or instructions of a step."""
    return lambda clocks, steps: max(clocks) / (steps * count)


def bytes_per_clock(clocks: list[int], steps: int) -> float:
    """Of all CTAs of a stream; the slots asked for before the clock starts weigh as much as those awaited behind it."""
    return len(clocks) * steps * SLOT / max(clocks)


def neighbour(store: bool, ranks: int, size: int) -> str:
    """CTAs of a cluster of `ranks`, each of which reads, or writes, all of the next one's shared memory again and
    again: 16 bytes by each thread, `WORDS` times a step, none of which waits for another."""
    if store:
        words = "{%r2, %r2, %r2, %r2}"
        loop = "".join(f" st.shared::cluster.v4.u32 [%r12+{ACROSS * i}], {words};\n" for i in range(WORDS))
    else:  # volatile, or ptxas loads once what no one has changed; all used, or it loads fewer bytes
        loop = "".join(
            f" ld.volatile.shared::cluster.v4.u32 {{%r16, %r17, %r18, %r19}}, [%r12+{ACROSS * i}];\n"
            + "".join(f" xor.b32 %r15, %r15, %r{16 + j};\n" for j in range(4))
            for i in range(WORDS)
        )
    clear = "".join(f" st.shared.v4.u32 [%r5+{ACROSS * i}], {{%r2, %r10, %r11, %r3}};\n" for i in range(WORDS))
    meet = " barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;"
    return HEAD + entry(
        f"""
 mov.u32 %r4, memory;
 shl.b32 %r5, %r2, 4;
 add.u32 %r5, %r5, %r4;
 mul.lo.u32 %r10, %r2, 3;
 mul.lo.u32 %r11, %r2, 5;
{clear}
 mov.u32 %r13, %cluster_ctarank;
 mov.u32 %r14, %cluster_nctarank;
 add.u32 %r13, %r13, 1;
 rem.u32 %r13, %r13, %r14;
 mapa.shared::cluster.u32 %r12, %r5, %r13;
 mov.u32 %r15, 0;
{meet}
{timed(loop)}
{meet}
 setp.eq.u32 %p3, %r15, 0xffffffff;
 @%p3 st.global.u32 [%rd1], %r15;""",
        shared=True,
        attributes=f".explicitcluster\n.reqnctapercluster {ranks},1,1",
    )


def leaving(how: str, size: int) -> str:
    """CTAs whose neighbouring slots of shared memory leave to `size` bytes of memory, as many on their way as a ring
    has: stored, or added to what is there."""
    loop = timed(f"""
 add.s64 %rd8, %rd1, %rd6;
 {how} [%rd8], [%r4], {SLOT};
 cp.async.bulk.commit_group;
 cp.async.bulk.wait_group {SLOTS - 1};
 add.s64 %rd6, %rd6, %rd7;
 setp.ge.u64 %p6, %rd6, {size};
 @%p6 sub.s64 %rd6, %rd6, {size};""")
    return HEAD + entry(
        f"""
{cleared(32, SLOT)}
 setp.ne.u32 %p1, %r2, 0;
 @%p1 bra LEAVE;
 mov.u32 %r11, %nctaid.x;
 mul.wide.u32 %rd6, %r3, {SLOT};
 mul.wide.u32 %rd7, %r11, {SLOT};
{loop}
 cp.async.bulk.wait_group 0;""",
        shared=True,
    )


def added(size: int) -> str:
    """CTAs whose lanes each add a number of f32 to `size` bytes of memory, neighbours side by side, `WORDS` a step."""
    loop = "".join(f" red.relaxed.gpu.global.add.f32 [%rd8+{1024 * i}], 0f00000000;\n" for i in range(WORDS))
    step = f"""
 add.s64 %rd8, %rd1, %rd6;
{loop} add.s64 %rd6, %rd6, %rd7;
 setp.ge.u64 %p6, %rd6, {size};
 @%p6 sub.s64 %rd6, %rd6, {size};"""
    return HEAD + entry(
        f"""
 mul.wide.u32 %rd6, %r3, {1024 * WORDS};
 mov.u32 %r11, %nctaid.x;
 mul.wide.u32 %rd7, %r11, {1024 * WORDS};
 mul.wide.u32 %rd3, %r2, 4;
 add.s64 %rd1, %rd1, %rd3;
{timed(step)}"""
    )


WORDS = 8
"""Accesses of a thread and step."""
ACROSS = 16 * 256
"""Bytes that the threads of a CTA have of a neighbour at once."""
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
ADD = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"


def per_sm(size: int) -> Callable[[list[int], int], float]:
    """Bytes per clock of a CTA that moves `size` in a step; the mean of all."""
    return lambda clocks, steps: steps * size * len(clocks) / sum(clocks)


RING = 1024 + SLOTS * SLOT
TILE = 256 * 128
"""Bytes of shared memory: a ring behind its barriers, and 256 rows of 128 bytes."""


def f64_product(deep: int, size: int) -> str:
    """Eight warps, two to a sub-core, that multiply 16 x 8 x `deep` in f64, each into `CHAINS` sums in turn."""
    a, b = (", ".join(["%fd0"] * (count * deep // 4)) for count in (2, 1))
    one = "".join(
        f" mma.sync.aligned.m16n8k{deep}.row.col.f64.f64.f64.f64 {{{d}}}, {{{a}}}, {{{b}}}, {{{d}}};\n"
        for d in (", ".join(f"%fd{1 + 4 * i + j}" for j in range(4)) for i in range(CHAINS))
    )
    count = 1 + 4 * CHAINS
    clear = "".join(f" mov.f64 %fd{i}, 0d0000000000000000;\n" for i in range(count))
    total = "".join(f" add.f64 %fd1, %fd1, %fd{i};\n" for i in range(2, count))
    return HEAD + entry(
        f""" .reg .f64 %fd<{count}>;
{clear}{timed(one)}
{total} setp.gt.f64 %p3, %fd1, 0d0000000000000000;
 @%p3 st.global.f64 [%rd1], %fd1;"""
    )


CHAINS = 4
"""Products of a warp that do not wait for one another."""
_stream = partial(Probe, made=stream, unit="bytes/clock", value=bytes_per_clock, shared=RING)
PROBES = (
    Probe("L1 hit", partial(chain, "ca", 128, 2), "clocks", "l1_latency", per_step(4), source=16 * KB),
    Probe("L2 hit", partial(chain, "cg", 512, 2), "clocks", "hit_latency", per_step(4), source=1 * MB),
    Probe(
        "memory", partial(chain, "cg", 64 * KB + 128, 0), "clocks", "memory_latency", per_step(4), source=512 * MB,
        steps=1024, cold=True,
    ),
    Probe("shared memory", partial(shared_chain, False), "clocks", "shared_latency", per_step(4), shared=4 * LINKS),
    Probe(
        "shared memory of a neighbour", partial(shared_chain, True), "clocks", "remote_latency", per_step(4), grid=2,
        shared=4 * LINKS,
    ),
    Probe("barrier, 8 warps", partial(meeting, False), "clocks", "barrier", per_step(1), block=256),
    Probe("barrier of a cluster, 2 x 8 warps", partial(meeting, True), "clocks", None, per_step(1), grid=2, block=256),
    Probe("mbarrier", signal, "clocks", "signal_latency", per_step(2), block=64, shared=16),
    *(
        Probe(f"bulk copy of {size} bytes, L2 hit", partial(bulk, size), "clocks", None, per_step(1), shared=RING)
        for size in (128, 2 * KB, SLOT)
    ),
    *(
        Probe(
            f"product of 64 x {n} x 16, {together} together", partial(product, n, together), "clocks", None,
            per_step(together), block=128, shared=TILE,
        )
        for n in (8, 64, 256) for together in (1, 8)
    ),
    *(
        Probe(
            f"f64 product of 16 x 8 x {deep} in a sub-core", partial(f64_product, deep), "clocks", None,
            per_step(2 * CHAINS), block=256,
        )
        for deep in (4, 8, 16)
    ),
    *(
        Probe(
            f"shared memory of a neighbour, {what}, {many} x {ranks} SMs", partial(neighbour, store, ranks),
            "bytes/clock", None, per_sm(ACROSS * WORDS), grid=many * ranks, block=256, shared=ACROSS * WORDS,
        )
        for what, store in (("read", False), ("written", True)) for ranks, many in ((2, 1), (2, 66), (4, 32), (8, 16))
    ),
    *(
        Probe(
            f"{what} by {grid} SM{'s' * (grid > 1)} {where}", partial(leaving, how), "bytes/clock", None,
            bytes_per_clock, grid=grid, shared=SLOT, source=source, steps=2048, cold=source > 16 * MB,
        )
        for what, how in (("stored", STORE), ("added", ADD)) for grid in (1, 132)
        for where, source in (("to L2", 16 * MB), ("to memory", 1024 * MB))
    ),
    *(
        Probe(
            f"f32 added by lanes of {grid} SM{'s' * (grid > 1)} to L2", added, "bytes/clock", None,
            lambda clocks, steps: len(clocks) * per_sm(1024 * WORDS)(clocks, steps), grid=grid, block=256,
            source=16 * MB,
        )
        for grid in (1, 132)
    ),
    _stream("L2 to 1 SM", models="unit_rate", source=16 * MB),
    *(_stream(f"L2 to {n} SMs", models=None, grid=n, source=16 * MB) for n in (16, 66)),
    _stream("L2 to 132 SMs", models="l2_rate", grid=132, source=16 * MB),
    *(_stream(f"memory to {n} SMs", models=None, grid=n, source=1024 * MB, steps=2048, cold=True) for n in (16, 66)),
    _stream("memory to 132 SMs", models="dram_rate", grid=132, source=1024 * MB, steps=2048, cold=True),
)  # fmt: skip
"""L2's streams read 16 MB again and again, so that only the first round is memory's."""
