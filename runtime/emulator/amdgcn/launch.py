"""What a kernel of AMDGCN text finds when it starts: its arguments in memory, its first registers.

In: the text's description of the kernel, a grid, a block, arguments. Out: the segment of kernel arguments, and in every
wave's registers what the description asks the command processor to put there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from wavedsl.codegen.amdgcn.isa import Reg, Src
from wavedsl.codegen.amdgcn.target import lds_bytes
from wavedsl.ir.errors import LaunchError
from wavedsl.runtime.emulator.amdgcn.env import FLAT_SCRATCH_START, PRIVATE_BUFFER, WAVE_SCRATCH
from wavedsl.runtime.emulator.amdgcn.state import LANES, U8, U32, U64, State
from wavedsl.runtime.emulator.amdgcn.text import DATA_BASE, Kernel, Program
from wavedsl.runtime.emulator.memory import GlobalMemory

MODES = {
    "float_round_mode_32": (0,),
    "float_round_mode_16_64": (0,),
    "float_denorm_mode_32": (0, 3),
    "float_denorm_mode_16_64": (3,),
    "dx10_clamp": (1,),
    "ieee_mode": (1, 0),
    "fp16_overflow": (0, 1),
}
"""What a kernel may say of arithmetic, the default first. IEEE_MODE is for signalling NaNs, which rows do not tell
apart."""
MODE_BITS = dict(zip(MODES, (0, 2, 4, 6, 8, 9, 23)))
"""Where it lies in the register MODE."""


class Launch:
    """One launch of a kernel. Raises LaunchError where a workgroup has too many threads or too much LDS."""

    def __init__(
        self, program: Program, kernel: Kernel, target: str, grid: tuple[int, int, int], block: tuple[int, int, int],
        shared_bytes: int, memory: GlobalMemory,
    ):  # fmt: skip
        self.program, self.kernel, self.memory = program, kernel, memory
        self.grid, self.block = grid, block
        d = kernel.directives
        threads = block[0] * block[1] * block[2]
        if not 1 <= threads <= 1024:
            raise LaunchError(f"a workgroup has 1 to 1024 threads, not {threads}")
        self.threads = threads
        self.waves = -(-threads // LANES)
        self.lds = int(d.get("group_segment_fixed_size", 0)) + shared_bytes
        limit = lds_bytes(target)
        if self.lds > limit:
            raise LaunchError(f"{self.lds} bytes of LDS, {target} has {limit}")
        for name, values in MODES.items():
            if int(d.get(name, values[0])) not in values:
                known = " or ".join(map(str, values))
                raise LaunchError(f"the emulator computes with .amdhsa_{name} {known}, not {d[name]}")
        self.dynamic_shared = shared_bytes
        self.private = int(d.get("private_segment_fixed_size", 0))
        self._packet: int | None = None

    def bind(self, args: Sequence[Any]) -> None:
        """Lay out the segment of kernel arguments. Raises LaunchError for arguments that do not fit."""
        layout = self.kernel.args
        explicit = (
            [a for a in layout if not str(a.get(".value_kind", "")).startswith("hidden_")]
            if layout is not None
            else None
        )
        if explicit is not None and len(args) != len(explicit):
            raise LaunchError(f"kernel {self.kernel.name} takes {len(explicit)} arguments, not {len(args)}")
        blob = bytearray(
            max(
                int(self.kernel.meta.get(".kernarg_segment_size", 0)),
                int(self.kernel.directives.get("kernarg_size", 0)),
                16,
            )
        )
        at = 0
        for i, value in enumerate(args):
            meta = explicit[i] if explicit is not None else {}
            name = str(meta.get(".name", f"#{i}"))
            data = self._argument(value, name, int(meta.get(".size", 0)))
            offset = int(meta[".offset"]) if ".offset" in meta else -(-at // len(data)) * len(data)
            if ".size" in meta and len(data) != int(meta[".size"]):
                raise LaunchError(f"argument `{name}` has {len(data)} bytes, the kernel takes {meta['.size']}")
            blob.extend(bytes(max(0, offset + len(data) - len(blob))))
            blob[offset : offset + len(data)] = data
            at = offset + len(data)
        for a in layout or ():
            kind = str(a.get(".value_kind", ""))
            if kind.startswith("hidden_"):
                offset, size = int(a[".offset"]), int(a[".size"])
                blob.extend(bytes(max(0, offset + size - len(blob))))
                blob[offset : offset + size] = self._hidden(kind).to_bytes(8, "little")[:size]
        self.kernarg = self.memory.add(np.frombuffer(bytes(blob), U8).copy(), "kernel arguments")
        if self.program.data:
            self.memory.add_at(DATA_BASE, np.frombuffer(bytes(self.program.data), U8).copy(), "constant data")

    def _argument(self, value: Any, name: str, size: int) -> bytes:
        if value is None:
            return bytes(8)
        if isinstance(value, np.ndarray):
            return self.memory.add(value, name).to_bytes(8, "little")
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        if isinstance(value, int):
            return int(value).to_bytes(size or 4, "little", signed=value < 0)
        if isinstance(value, float):
            return np.float32(value).tobytes() if size in (0, 4) else np.float64(value).tobytes()
        if isinstance(value, np.generic):
            return value.tobytes()
        raise LaunchError(f"argument `{name}`: {type(value).__name__} is no array, scalar or bytes")

    def _hidden(self, kind: str) -> int:
        axis = {"x": 0, "y": 1, "z": 2}.get(kind[-1], 0)
        if kind.startswith("hidden_block_count"):
            return self.grid[axis]
        if kind.startswith("hidden_group_size"):
            return self.block[axis]
        if kind == "hidden_grid_dims":
            return 3 if self.grid[2] * self.block[2] > 1 else 2 if self.grid[1] * self.block[1] > 1 else 1
        if kind == "hidden_dynamic_lds_size":
            return self.dynamic_shared
        if kind == "hidden_private_base":
            return 2
        if kind == "hidden_shared_base":
            return 1
        return 0

    def registers(self, st: State, workgroups: np.ndarray) -> int:
        """Set what the waves of `workgroups` [n, 3] find in their registers; how many SGPRs hold something."""
        d = self.kernel.directives
        at = 0

        def pair(value: int) -> None:
            nonlocal at
            for half in (value & 0xFFFFFFFF, value >> 32):
                st.S32[at >> 1, :, at & 1] = half
                at += 1

        if d.get("user_sgpr_private_segment_buffer"):
            pair(PRIVATE_BUFFER)
            pair(0xFFFFFFFF | 0x27000 << 32)
        known = {"kernarg_segment_ptr": self.kernarg, "flat_scratch_init": FLAT_SCRATCH_START}
        for name in ("dispatch_ptr", "queue_ptr", "kernarg_segment_ptr", "dispatch_id", "flat_scratch_init"):
            if d.get(f"user_sgpr_{name}"):
                pair(self._dispatch_packet() if name == "dispatch_ptr" else known.get(name, 0))
        if d.get("user_sgpr_private_segment_size"):
            st.S32[at >> 1, :, at & 1] = self.private
            at += 1
        at = max(at, int(d.get("user_sgpr_count", 0)))
        # Preloaded arguments: the compatible prologue loads them; those SGPRs stay undefined.
        for axis, letter in enumerate("xyz"):
            if d.get(f"system_sgpr_workgroup_id_{letter}", 1 if axis == 0 else 0):
                st.S32[at >> 1, :, at & 1] = np.repeat(workgroups[:, axis], self.waves).astype(U32)
                at += 1
        if d.get("system_sgpr_private_segment_wavefront_offset") or d.get("enable_private_segment"):
            # Scratch is kept per lane, so every wave's begins at the buffer's base; FLAT_SCRATCH must still be set up.
            own = d.get("user_sgpr_flat_scratch_init") and not d.get("user_sgpr_private_segment_buffer")
            st.S32[at >> 1, :, at & 1] = WAVE_SCRATCH * st.wave if own else 0
            at += 1
        thread = np.arange(self.waves * LANES)
        bx, by, _ = self.block
        x, y, z = thread % bx, thread // bx % by, thread // (bx * by)
        # workitem ids are packed x | y << 10 | z << 20, all of them whatever the directive says
        packed = (x | y << 10 | z << 20).astype(U32).reshape(self.waves, LANES)
        st.U[0] = np.tile(packed, (len(workgroups), 1))
        alive = (thread < self.threads).reshape(self.waves, LANES)
        if not alive.all():
            st.S[63] = np.tile(np.packbits(alive, axis=1, bitorder="little").view(U64)[:, 0], len(workgroups))
            st.exec_changed()
        modes = {name: int(d.get(name, values[0])) for name, values in MODES.items()}
        st.mode[:] = sum(value << MODE_BITS[name] for name, value in modes.items())
        return at

    def _dispatch_packet(self) -> int:
        """Address of the packet that `hsa_kernel_dispatch_packet_t` describes; made when a kernel asks for it."""
        if self._packet is None:
            b, g = self.block, self.grid
            words = np.zeros(16, U32)
            words[1] = b[0] | b[1] << 16
            words[2] = b[2]
            words[3:6] = [g[i] * b[i] for i in range(3)]
            words[6], words[7] = self.private, self.lds
            words[10], words[11] = self.kernarg & 0xFFFFFFFF, self.kernarg >> 32
            self._packet = self.memory.add(words, "dispatch packet")
        return self._packet


def register_counts(program: Program) -> tuple[int, int]:
    """Highest VGPR and AGPR that any instruction of the text names, plus one."""
    top = {"v": 1, "a": 0}
    for line in program.lines:
        for x in line.operands:
            r = x.value if isinstance(x, Src) else x
            if isinstance(r, Reg) and r.file in top:
                top[r.file] = max(top[r.file], r.index + r.count)
    return top["v"], top["a"]


_COUNTS: dict[int, tuple[Program, tuple[int, int]]] = {}


def counted_registers(program: Program) -> tuple[int, int]:
    """`register_counts`, remembered for as long as few other programs run."""
    found = _COUNTS.get(id(program))
    if found is None or found[0] is not program:
        if len(_COUNTS) > 64:
            _COUNTS.clear()
        found = _COUNTS[id(program)] = (program, register_counts(program))
    return found[1]
