"""What ptxas spills of the NVIDIA kernels that tests and examples compile, in one table.

    python benchmarks/ptx_spills.py                            tests/e2e and tests/examples, as the default run samples
    python benchmarks/ptx_spills.py tests/e2e -k attention     any arguments of pytest
    python benchmarks/ptx_spills.py --out FILE.json ...        keeps all rows, spilled or not
    python benchmarks/ptx_spills.py --against FILE.json ...    and says what differs from those kept before
    python benchmarks/ptx_spills.py --texts FOLDER ...         and keeps the texts that spill
    python benchmarks/ptx_spills.py --session H200             what `gpu_session.py` would compile, at full sizes

The tests run, but for AMD's and with an emulator that does nothing: texts are what is wanted, and whether a test then
passes says nothing. Each text is assembled once. A row has bytes of spills (stores and loads of a thread), registers,
threads, and what the compiler thought before: registers that are live together by the kernel IR
and by the text, and those that warpgroups lack by their values.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from wavedsl.codegen.ptx import emit
from wavedsl.ir.cuts.register_file import BEYOND
from wavedsl.ir.errors import ToolchainError
from wavedsl.ir.kernel.pressure import pressure
from wavedsl.runtime import launch, on_emulator, toolchain
from wavedsl.runtime.emulator.report import EmulationReport

from wavedsl.analysis.roofline import product_named

HERE = Path(__file__).resolve().parent
PLACES = ("tests/e2e", "tests/examples")


class Texts:
    """Texts as they are emitted, each once, by the digest of what ptxas reads of them."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[str, dict[str, Any]]] = {}
        self.who = ""

    def emitted(self, compile_kernel_ir: Callable[..., Any]) -> Callable[..., Any]:
        """`compile_kernel_ir`, whose programs are kept."""

        def watched(kernel: Any, target: Any, *rest: Any, **options: Any) -> Any:
            made = compile_kernel_ir(kernel, target, *rest, **options)
            bare = re.sub(r"^\s*(//|\.loc|\.file).*$", "", re.sub(r"//.*", "", made.text), flags=re.M)
            key = hashlib.sha256(bare.encode()).hexdigest()
            if key not in self.found:
                budgets = [op.attrs["count"] for op in kernel.body.walk() if op.name == "registers"]
                self.found[key] = made.text, {
                    "target": target.name, "who": self.who, "kernel": kernel.name, "threads": kernel.block,
                    "budgets": budgets, "live": pressure(kernel, target), "text": made.pressure,
                    "beyond": kernel.notes.get(BEYOND, 0),
                }  # fmt: skip
            return made

        return watched


class Collector:
    """pytest's part: AMD's tests are left out, and each text belongs to the test that emitted it."""

    def __init__(self, texts: Texts):
        self.texts = texts

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Tests named after a chip of AMD's are left out."""
        items[:] = [item for item in items if "gfx" not in item.name]

    def pytest_runtest_setup(self, item: Any) -> None:
        """The test that what follows belongs to."""
        self.texts.who = item.nodeid


def of_tests(arguments: list[str]) -> Texts:
    """What the tests of these arguments of pytest emit."""
    texts = Texts()
    nothing = EmulationReport()
    with (
        mock.patch.object(emit, "compile_kernel_ir", texts.emitted(emit.compile_kernel_ir)),
        mock.patch.object(on_emulator, "run_on_emulator", lambda *_, **__: nothing),
        mock.patch.object(launch, "run_on_emulator", lambda *_, **__: nothing),
    ):
        given = ["-q", "--no-header", "--tb=no", "-r", "", "-p", "no:cacheprovider", *arguments]
        pytest.main(given, plugins=[Collector(texts)])
    return texts


def of_session(chip: str) -> Texts:
    """What a session on a chip of this name would compile."""
    sys.path.append(str(HERE))
    import ahead

    texts = Texts()

    class Named(ahead.Rehearsal):
        def run(self, name: str, work: Callable[[], Any], timed: bool = True) -> None:
            texts.who = name
            super().run(name, work, timed)

        def _assemble(self, name: str, timed: bool, compiled: Any) -> None:
            pass

    with mock.patch.object(emit, "compile_kernel_ir", texts.emitted(emit.compile_kernel_ir)):
        ahead.compile_parts(ahead.gpu_session.PARTS, Named(product_named(chip).target), f"NVIDIA {chip}")
    return texts


def rows_of(texts: Texts) -> list[dict[str, Any]]:
    """The texts' rows, with what ptxas says."""

    def said(key: str) -> dict[str, Any]:
        text, row = texts.found[key]
        try:
            done = toolchain.assemble_ptx(text, row["target"])
        except ToolchainError as error:
            return {**row, "key": key, "refused": str(error).splitlines()[0]}
        entry = done.entries[0]
        spills = entry.spill_stores + entry.spill_loads
        return {**row, "key": key, "spills": spills, "registers": entry.registers, "warnings": list(done.warnings)}

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1)) as pool:
        return list(pool.map(said, texts.found))


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Those that spill, the worst first."""
    bad = sorted((r for r in rows if r.get("spills")), key=lambda r: (r["target"], -r["spills"]))
    for r in bad:
        budgets = f" {r['budgets']}" if r["budgets"] else ""
        print(f"{r['target']:8}{r['spills']:6} B {r['registers']:4}{budgets} x {r['threads']:4}, live {r['live']}, "
              f"text {r['text']}, beyond {r['beyond']}: {r['kernel']}, {r['who']}")  # fmt: skip
    for r in rows:
        if "refused" in r:
            print(f"{r['target']:8}refused: {r['kernel']}, {r['who']}: {r['refused']}")
    for target in sorted({r["target"] for r in rows}):
        mine = [r for r in rows if r["target"] == target]
        spilled = [r["spills"] for r in mine if r.get("spills")]
        wrong = [r for r in mine if r["beyond"] and not r.get("spills")]
        for r in wrong:
            print(f"{target:8}{r['beyond']} registers lack, but none is spilled: {r['kernel']}, {r['who']}")
        print(f"{target}: {len(mine)} texts, {len(spilled)} spill, {sum(spilled)} bytes in all")


def compare(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """Texts that differ from those of the same test and kernel, with registers and bytes before and now."""

    def grouped(found: list[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
        groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        for r in found:
            groups.setdefault((r["target"], r["who"], r["kernel"]), []).append(r)
        return groups

    known = {r["key"] for r in before}
    now, then = grouped(rows), grouped(before)
    for key in now:
        new = [r for r in now[key] if r["key"] not in known]
        kept = {r["key"] for r in now[key]}
        old = [r for r in then.get(key, []) if r["key"] not in kept]
        for r, o in zip(new, old):
            said = f"{o.get('spills')} -> {r.get('spills')} B, registers {o.get('registers')} -> {r.get('registers')}"
            print(f"{key[0]:8}{said}: {key[2]}, {key[1]}")


def main() -> int:
    """The command line; 1 where something spills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep all rows")
    parser.add_argument("--against", type=Path, metavar="FILE", help="say what differs from these rows")
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="keep the texts that spill")
    parser.add_argument("--session", metavar="CHIP", help="what a session on a GPU would compile, not tests")
    given, rest = parser.parse_known_args()
    begun = time.time()
    texts = of_session(given.session) if given.session else of_tests(rest or list(PLACES))
    print(f"{len(texts.found)} texts in {time.time() - begun:.0f} s")
    rows = rows_of(texts)
    if given.out:
        given.out.write_text(json.dumps(rows, indent=1))
    if given.texts:
        given.texts.mkdir(parents=True, exist_ok=True)
        for r in rows:
            if r.get("spills"):
                (given.texts / f"{r['key'][:12]}.ptx").write_text(texts.found[r["key"]][0])
    print_rows(rows)
    if given.against:
        compare(rows, json.loads(given.against.read_text()))
    return 1 if any(r.get("spills") for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
