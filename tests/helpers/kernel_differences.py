"""What distinguishes two kernels: how the text's round trip, and passes that should change nothing, are checked.

Imported as `kernel_differences` (pytest's `pythonpath` lists this folder).
"""

from __future__ import annotations

from wavedsl.ir.kernel.kernel_ir import Kernel, Region, Value


def differences(a: Kernel, b: Kernel, *, facts: bool = True, locations: bool = True) -> list[str]:
    """What distinguishes two kernels, up to numbering and the place of constants; empty when they are equal."""
    out: list[str] = []
    for key in ("name", "target", "params", "wave_size", "waves", "shared_bytes", "shared_names"):
        if getattr(a, key) != getattr(b, key):
            out.append(f"{key}: {getattr(a, key)} and {getattr(b, key)}")
    if [str(g) for g in a.grid] != [str(g) for g in b.grid]:
        out.append(f"grid: {a.grid} and {b.grid}")
    same: dict[Value, Value] = {}

    def match(x: Value, y: Value, where: str) -> None:
        same[x] = y
        if (x.type, x.uniform, x.name) != (y.type, y.uniform, y.name):
            out.append(f"{where}: {x}: {x.type} uniform={x.uniform} and {y}: {y.type} uniform={y.uniform}")
        if facts and (x.lo, x.hi, x.zeros) != (y.lo, y.hi, y.zeros):
            out.append(
                f"{where}: {x} in {x.lo}..{x.hi} zeros {x.zeros:#x} and {y} in {y.lo}..{y.hi} zeros {y.zeros:#x}"
            )

    def operands_equal(x: Value, y: Value) -> bool:
        cx, cy = x.const, y.const
        if cx is not None or cy is not None:
            return x.type is y.type and repr(cx) == repr(cy)
        return same.get(x) is y

    def region(x: Region, y: Region, where: str) -> None:
        if len(x.args) != len(y.args):
            out.append(f"{where}: {len(x.args)} and {len(y.args)} region arguments")
            return
        for p, q in zip(x.args, y.args):
            match(p, q, where)
        xs = [op for op in x.ops if op.name != "const"]
        ys = [op for op in y.ops if op.name != "const"]
        if len(xs) != len(ys):
            out.append(f"{where}: {len(xs)} and {len(ys)} ops")
        for i, (f, g) in enumerate(zip(xs, ys)):
            here = f"{where}[{i}] {f.name}"
            if f.name != g.name or f.attrs != g.attrs or len(f.args) != len(g.args):
                out.append(f"{here}: {f} and {g}")
                return
            if not all(map(operands_equal, f.args, g.args)):
                out.append(f"{here}: operands {f.args} and {g.args}")
            if locations and f.loc != g.loc:
                out.append(f"{here}: locations {f.loc} and {g.loc}")
            if len(f.regions) != len(g.regions) or len(f.results) != len(g.results):
                out.append(f"{here}: {f} and {g}")
                return
            for s, t in zip(f.regions, g.regions):
                region(s, t, here)
            for u, v in zip(f.results, g.results):
                match(u, v, here)

    region(a.body, b.body, "body")
    return out
