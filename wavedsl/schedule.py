"""`Schedule`: choices that the compiler would make, fixed by the user."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from wavedsl.ir.errors import ConstraintError
from wavedsl.ir.options import with_options
from wavedsl.ir.source import here

MOST_WORKERS = 1024
"""Workgroups that may be asked for: more than any chip has compute units."""


def _budgets(pair: Any) -> bool:
    """Whether these are two numbers of registers that `setmaxnreg` takes (PTX ISA: 24 to 256 in steps of 8)."""
    whole = isinstance(pair, tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in pair)
    return whole and len(pair) == 2 and all(24 <= n <= 256 and n % 8 == 0 for n in pair)


_WAVES = "waves are a constraint of @wd.wave: wd.WaveConstraint(M, BM / 4)"
ELSEWHERE = {
    "num_stages": "stages", "pipeline_stages": "stages", "loop_num_stages": "stages", "depth": "stages",
    "num_buffers": "stages", "warp_specialize": "specialize", "warp_specialization": "specialize",
    "num_consumer_groups": "specialize", "num_producer_warps": "specialize", "maxnreg": "registers",
    "setmaxnreg": "registers", "num_ctas": "cluster", "cluster_dims": "cluster", "cluster_shape": "cluster",
    "cluster_shape_mn": "cluster", "ctas_per_cga": "cluster", "group_m": "swizzle", "group_size_m": "swizzle",
    "swizzle_size": "swizzle", "rasterization": "swizzle", "persistent_kernel": "persistent",
    "split_k_slices": "split_k", "k_splits": "split_k", "launch_pdl": "dependent", "use_pdl": "dependent",
    "use_tma": "direct_to_shared", "cp_async": "direct_to_shared", "async_copy": "direct_to_shared",
    "pingpong": "ping_pong", "warp_scheduler_barrier": "products_in_turn",
    "num_warps": _WAVES, "num_waves": _WAVES, "waves_per_block": _WAVES,
    "matrix_instr_nonkdim": "wd.HardwareConstraint(mma_type=wd.MMAType.F32_16x16x16_F16) in the constraints",
    "waves_per_eu": "occupancy follows from tiles and registers; compiled.resources.occupancy says it",
}  # fmt: skip
"""What Triton, CUTLASS, Helion and others call a choice → which of `Schedule` it is, or how it is made here."""
FLAGS = (
    "direct_to_shared", "swizzle", "dependent", "ping_pong", "products_in_turn", "specialize", "persistent",
    "bulk_atomics",
)  # fmt: skip
"""Choices that are True or False."""


@with_options(ELSEWHERE)
@dataclass(frozen=True)
class Schedule:
    """Each field left None is chosen by the compiler. Raises ConstraintError for a value that no kernel can have.

    The target checks what it cannot do: `cluster` and `specialize` need sm_90a, `direct_to_shared` a copy
    instruction, `prefetch` an instruction that brings lines into L2.
    """

    stages: int | None = None
    """Tiles in flight in a software-pipelined loop; 1 is no pipeline. Loads that go straight to registers start
    `stages - 1` trips ahead, one at least (on sm_90a in kernels without bulk copies)."""
    specialize: bool | None = None
    """Whether some waves only copy while the others compute (warp specialisation)."""
    registers: tuple[int, int] | None = None
    """Registers per thread of (the warpgroup that only copies, each one that computes), whole eights from 24 to 256:
    how a workgroup divides what it started with (sm_90a, kernels with such a warpgroup)."""
    cluster: tuple[int, ...] | None = None
    """Workgroups of a cluster along grid axes 0 and 1, at most 8 together. Those along an axis share the operand tiles
    that do not depend on it: of (2, 2, 1), B in a row and A in a column. The third extent counts the parts of
    `split_k`, where the workgroups of a cluster add them through shared memory, each its share of the tile: (1, 1, 4)
    with `split_k=4`, (2, 1, 4) for two tiles along axis 0 side by side. Only elementwise work may follow such a
    loop."""
    direct_to_shared: bool | None = None
    """Whether copies go from global to shared memory without passing through registers."""
    prefetch: int | None = None
    """Trips of a loop by which tiles are brought into the L2 cache before they are copied (NVIDIA)."""
    swizzle: bool | None = None
    """Whether workgroups are numbered so that neighbours share data in an L2 cache; chips of several dies (AMD's
    XCDs) have one on each."""
    persistent: bool | None = None
    """Whether each workgroup computes several output tiles in turn: as many workgroups as the chip has compute units
    take the tiles of the grid, but for dimensions whose tile is 1, of which each place has workgroups of its own."""
    split_k: int | None = None
    """Parts in which workgroups share the trips of the kernel's loop of sums; the last to finish a tile adds the parts,
    in one order, and does what comes after the loop. 1: one workgroup has all trips of its tile. With a third extent of
    `cluster` of as many, a cluster adds them instead: no memory of the launch's, nobody comes last."""
    stream_k: bool | int | None = None
    """Whether workgroups, one per compute unit, share the trips of the kernel's loop of sums for all output tiles
    equally: whole tiles in rounds, then equal runs of the trips of the tiles left over, whose parts are added as for
    `split_k`. A number: so many workgroups, for each place along index dimensions."""
    dependent: bool | None = None
    """Whether the launch may begin while the one in front of it in the stream still runs (programmatic dependent
    launch, sm_90a): it waits for its end before it touches global memory, and lets the next one begin when its last
    loads are issued."""
    ping_pong: bool | None = None
    """AMD: whether the waves of a loop with products work in two groups half a trip apart: one multiplies at raised
    priority while the other reads and copies (two waves per SIMD). sm_90a: whether two warpgroups take output tiles in
    turn, one storing results while the other's products run (tiles of one warpgroup, 64 x 256 or 128 x 128 at most,
    of which a workgroup takes several: `persistent`)."""
    bulk_atomics: bool | None = None
    """Whether sums of a warpgroup's products that `atomic_add` adds to an f32 array leave through shared memory, by
    one thread's bulk reductions (sm_90a, kernels whose operands come by bulk copies), and not from each lane's
    registers. The compiler's choice: those of loops do."""
    products_in_turn: bool | None = None
    """Whether the warpgroups that compute a tile start the products of a trip in turn, by named barriers, so that the
    products of one run while the others compute what lies between theirs (sm_90a, loops whose products run beside those
    of the next trip, two to six warpgroups). The compiler's choice: two do where enough lies between products."""
    cache_swizzle: bool | int | None = None
    """Whether buffer descriptors ask for the cache swizzle (gfx942 and gfx950), which spreads rows over the channels of
    the caches: True with the elements between an array's rows where those are at most 8192, a number with that one."""

    def __post_init__(self) -> None:
        for name, least in (("stages", 1), ("prefetch", 1), ("split_k", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ConstraintError(
                    f"Schedule: {name}={value!r}", here(calls=False), hint=f"a whole number from {least} on"
                )
        workers = self.stream_k
        many = isinstance(workers, int) and not isinstance(workers, bool)
        if workers is not None and not isinstance(workers, bool) and not (many and 1 <= workers <= MOST_WORKERS):
            raise ConstraintError(
                f"Schedule: stream_k={workers!r}", here(calls=False),
                hint=f"True, False or a number of workgroups from 1 to {MOST_WORKERS}",
            )  # fmt: skip
        if workers and self.split_k is not None and self.split_k > 1:
            raise ConstraintError(
                f"Schedule: split_k={self.split_k} and stream_k={workers}", here(calls=False),
                hint="both divide the loop's trips: choose one",
            )  # fmt: skip
        for name in FLAGS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise ConstraintError(f"Schedule: {name}={value!r}", here(calls=False), hint="True or False")
        stride = self.cache_swizzle
        whole = isinstance(stride, int) and not isinstance(stride, bool)
        if stride is not None and not isinstance(stride, bool) and not (whole and 1 <= stride <= 8192):
            raise ConstraintError(
                f"Schedule: cache_swizzle={stride!r}", here(calls=False), hint="True, False or a stride from 1 to 8192"
            )
        if self.registers is not None and not _budgets(self.registers):
            raise ConstraintError(
                f"Schedule: registers={self.registers!r}", here(calls=False),
                hint="(copying, computing), registers per thread, whole eights from 24 to 256: for example (40, 232)",
            )  # fmt: skip
        if self.cluster is not None:
            given: Any = self.cluster
            shape = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            if not 1 <= len(shape) <= 3 or not all(isinstance(n, int) and n >= 1 for n in shape):
                raise ConstraintError(
                    f"Schedule: cluster={self.cluster!r}",
                    here(calls=False),
                    hint="workgroups along up to three grid axes, for example (2, 1, 1)",
                )
            object.__setattr__(self, "cluster", shape)

    def items(self) -> list[tuple[str, Any]]:
        """The fixed choices, in order of declaration."""
        return [(f.name, getattr(self, f.name)) for f in fields(self) if getattr(self, f.name) is not None]

    def __str__(self) -> str:
        return f"Schedule({', '.join(f'{k}={v}' for k, v in self.items())})"
