"""What the user fixed of what the compiler would choose (`wd.Schedule`), in the compiler's own terms."""

from __future__ import annotations

from wavedsl.ir.quick_dataclass import dataclass


@dataclass(frozen=True)
class Choices:
    """Of every field, None: the compiler's choice."""

    split: int | None = None
    """Parts in which the trips of a loop of sums are shared by workgroups (`split_k`)."""
    stream: bool | int | None = None
    """Whether the trips of all output tiles are dealt to workgroups that run at once, or to how many (`stream_k`)."""
    stages: int | None = None
    """Ring depth of shared buffers in pipelined loops; loads straight into fragments run one trip less ahead."""
    specialize: bool | None = None
    """Whether some waves only copy."""
    unaided: bool = False
    """Whether none does because waves that copy for themselves are done earlier (`earlier_roles`)."""
    registers: tuple[int, int] | None = None
    """Registers per thread of the waves that only copy and of those that compute."""
    persistent: bool | None = None
    """Whether a workgroup takes several tiles."""
    turns: bool = False
    """Whether a workgroup takes several tiles of a kernel that has no products of warpgroups (`turns`)."""
    swizzle: bool | None = None
    """Whether tiles that share operands are neighbours in time."""
    cluster: tuple[int, ...] | None = None
    """Workgroups of a cluster along the grid's axes."""
    ping_pong: bool | None = None
    """Whether two groups of waves take turns at the matrix units (`ping_pong`), or two warpgroups at output tiles."""
    direct: bool | None = None
    """Whether tiles are copied to shared memory without passing through registers."""
    prefetch: int | None = None
    """Trips by which tiles are brought into the second-level cache before they are copied."""
    cache_swizzle: bool | int | None = None
    """Whether buffers ask for the cache swizzle, or with which stride."""
    dependent: bool | None = None
    """Whether the launch may begin before the one in front of it has ended."""
    bulk_atomics: bool | None = None
    """Whether sums of products are added to arrays by bulk reductions (`bulk_atomics`). None: those of loops are."""
    products_in_turn: bool | None = None
    """Whether the warpgroups of a workgroup start a loop's products in turn (`ring_loops.takes_turns`)."""
    in_step: bool = False
    """Whether all waves of a workgroup run the same trips of loops that would let each have its own (`own_trips`)."""
    ahead: tuple[tuple[str, int], ...] = ()
    """Labels of loops whose loads straight into fragments run several trips ahead, and how many (`trips_ahead`)."""
    first: tuple[str, ...] = ()
    """Labels of loops whose trips load for the next one before they compute, whatever that holds (`first_loads`)."""
    counted: tuple[str, ...] = ()
    """Arrays to which a workgroup adds what it has counted in shared memory (`place_counts`)."""
    modulo: bool = True
    """Whether loop bodies are modulo scheduled or only list scheduled."""

    @property
    def roles(self) -> list[str]:
        """What of the asked-for needs asynchronous products whose operands come by bulk copies."""
        asked = {
            "specialize": self.specialize,
            "registers": self.registers is not None,
            "persistent": self.persistent,
            "cluster": self.cluster is not None and any(n > 1 for n in self.cluster),
        }
        return [name for name, value in asked.items() if value]
