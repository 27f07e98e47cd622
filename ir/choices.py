"""What the user fixed of what the compiler would choose (`wd.Schedule`), in the compiler's own terms."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Choices:
    """None: the compiler's choice. `stages`: ring depth of shared buffers in pipelined loops; `specialize`: whether
    some waves only copy; `persistent`: whether a workgroup takes several tiles; `swizzle`: whether tiles that share
    operands are neighbours in time; `cluster`: workgroups of a cluster along the grid's axes; `ping_pong`: whether two
    groups of waves take turns at the matrix units (`ping_pong`); `modulo`: whether loop bodies are modulo scheduled or
    only list scheduled; `prefetch`: trips by which tiles are brought into the second-level cache before they are
    copied; `direct`: whether tiles are copied to shared memory without passing through registers; `dependent`: whether
    the launch may begin before the one in front of it has ended."""

    stages: int | None = None
    specialize: bool | None = None
    persistent: bool | None = None
    swizzle: bool | None = None
    cluster: tuple[int, ...] | None = None
    ping_pong: bool | None = None
    modulo: bool = True
    direct: bool | None = None
    prefetch: int | None = None
    dependent: bool | None = None

    @property
    def roles(self) -> list[str]:
        """What of the asked-for needs asynchronous products whose operands come by bulk copies."""
        asked = {
            "specialize": self.specialize,
            "persistent": self.persistent,
            "cluster": self.cluster is not None and any(n > 1 for n in self.cluster),
        }
        return [name for name, value in asked.items() if value]
