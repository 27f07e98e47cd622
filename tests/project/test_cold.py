"""What a fresh process pays for: which modules an import, a first compile and a cached call load, what is made of the
instruction tables, how often sympy is asked. Structure, not seconds: those are in benchmarks/compile_time.py.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import sympy
from forks import Forks
from wavedsl.ir.lower.lower_values import EMITTERS, LOWERED_IN

import wavedsl as wd
from wavedsl.collector import PAUSED, lasting

M, N, K, BM, BN, BK = wd.symbols("M N K BM BN BK")
KERNEL = Path(__file__).parents[1] / "helpers" / "cold_gemm.py"
TARGETS = ("gfx90a", "gfx942", "gfx950", "sm_80")
PACKAGES = {"torch", "triton", "cupy", "scipy", "cuda", "hip", "ziglang", "subprocess", "ctypes", "multiprocessing"}
"""What neither an import nor a compile has a use for."""


SCRIPT = (
    "import sys, json, numpy, sympy, networkx, ml_dtypes\n"
    "before = set(sys.modules)\n"
    "def loaded():\n"
    "    return sorted(set(sys.modules) - before)\n"
    "{}\n"
    "print(json.dumps(answer))\n"
)


@pytest.fixture
def fresh(fresh_processes: Forks) -> Callable[..., Any]:
    """What code, which assigns `answer`, finds in a process of its own that has imported the four dependencies."""

    def run(code: str, **environment: str) -> Any:
        path = os.pathsep.join(filter(None, (str(KERNEL.parent), os.environ.get("PYTHONPATH"))))
        surroundings = {**os.environ, "PYTHONPATH": path, **environment}
        done = fresh_processes.run(code=SCRIPT.format(code), env=surroundings, cwd="/")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def under(modules: list[str], *names: str) -> list[str]:
    """The modules that are one of `names` or inside of it."""
    return [m for m in modules if any(m == n or m.startswith(n + ".") for n in names)]


def test_a_fresh_process_has_loaded_what_its_dependencies_do(fresh: Callable[..., Any]) -> None:
    """What is found absent below is not there because the processes had it before: a plain one has as little."""
    code = SCRIPT.format("answer = sorted(before)")
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    added = set(fresh("answer = sorted(before)")) - set(json.loads(plain))
    assert not under(sorted(added), "wavedsl", *PACKAGES), added


def test_import_loads_the_language_only(fresh: Callable[..., Any]) -> None:
    modules = fresh("import wavedsl; answer = loaded()")
    assert "wavedsl.language" in modules
    assert under(modules, "wavedsl.codegen", "wavedsl.runtime", "wavedsl.compiler", *PACKAGES) == []
    allowed = {
        "cache_hints", "called", "constraints", "dtypes", "errors", "graph", "loc", "mma_type", "ops", "options",
        "quick_dataclass", "same_values", "source", "symbols", "tracebacks", "walks",
    }  # fmt: skip
    loaded = {m.rpartition(".")[2] for m in under(modules, "wavedsl.ir") if m != "wavedsl.ir"}
    assert loaded <= allowed | {"dataflow"}


@pytest.mark.parametrize("target", TARGETS)
def test_first_compile_loads_the_compiler_only(target: str, fresh: Callable[..., Any]) -> None:
    modules = fresh(f"from cold_gemm import compiled; compiled({target!r}); answer = loaded()")
    mine, other = ("amdgcn", "ptx") if target.startswith("gfx") else ("ptx", "amdgcn")
    assert f"wavedsl.codegen.{mine}.emit" in modules
    assert under(modules, f"wavedsl.codegen.{other}", "wavedsl.runtime", *PACKAGES) == []
    unused = ["evaluator", "regions.ring_loops"]
    unused += [f"kernel.{m}" for m in ("kernel_eval", "kernel_text", "kernel_parse", "fold_compile")]
    unused += [f"lower.lower_{m}" for m in ("log", "pick", "random", "scan", "shape", "sort")]
    assert under(modules, *(f"wavedsl.ir.{m}" for m in unused)) == []


@pytest.mark.parametrize(("target", "other"), [("gfx942", "ptx"), ("sm_80", "amdgcn")])
def test_a_cached_call_loads_no_compiler(target: str, other: str, tmp_path: Path, fresh: Callable[..., Any]) -> None:
    code = "from cold_gemm import call; call(); answer = loaded()"
    environment = {"WAVEDSL_CACHE_DIR": str(tmp_path), "WAVEDSL_DEVICE": f"emulator:{target}"}
    first, second = fresh(code, **environment), fresh(code, **environment)
    parts = ("pipeline", "lower_kernel", "inference.infer", "kernel.builder", "kernel.kernel_verify")
    compiler = [f"wavedsl.ir.{m}" for m in parts]
    compiler += [f"wavedsl.codegen.{vendor}.{m}" for vendor in ("amdgcn", "ptx") for m in ("emit", "select")]
    assert under(first, "wavedsl.ir.pipeline")
    assert under(second, "wavedsl.runtime.emulator")
    assert under(second, "wavedsl.compiler", *compiler, f"wavedsl.codegen.{other}") == []


def test_a_compile_makes_few_of_the_rows(fresh: Callable[..., Any]) -> None:
    """The tables have thousands of rows; a GEMM looks up the matrix instructions and what it emits."""
    made, all_of_them = fresh(
        "from cold_gemm import compiled; compiled('gfx942')\n"
        "from wavedsl.codegen.amdgcn import isa\n"
        "made = isa._rows_of.cache_info().currsize\n"
        "answer = made, len(isa._BUILDERS)"
    )
    assert 0 < made < all_of_them // 4
    parsed, rows = fresh(
        "from cold_gemm import compiled; compiled('sm_80')\n"
        "from wavedsl.codegen.ptx import isa\n"
        "rows = [r for of in isa._ROWS.values() for r in of]\n"
        "answer = sum('operands' in r.__dict__ for r in rows), len(rows)"
    )
    assert 0 < parsed < rows // 4


def test_every_operation_is_lowered_in_the_file_that_is_listed() -> None:
    for file in set(LOWERED_IN.values()):
        importlib.import_module(f"wavedsl.ir.lower.{file}")
    assert {op: emitter.__module__.rpartition(".")[2] for op, emitter in EMITTERS.items()} == LOWERED_IN


def test_what_users_do_not_make_is_a_quick_dataclass() -> None:
    """The standard library compiles up to six methods of each class when its module is imported."""
    root = Path(__file__).parents[2]
    standard = re.compile(r"^(from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass)", re.MULTILINE)
    compiled = {
        str(path.relative_to(root))
        for folder in ("ir", "tracer", "codegen", "runtime", "wavedsl")
        for path in (root / folder).rglob("*.py")
        if standard.search(path.read_text())
    }
    slots = "ir/dataflow/graph.py"
    assert compiled == {"ir/dataflow/constraints.py", "wavedsl/schedule.py", "wavedsl/testing.py", slots}


# ------------------------------------------------------------------------------------------------------ in this process


def gemm() -> Any:
    """A GEMM that nothing has traced yet."""

    @wd.wave(
        [
            wd.WorkgroupConstraint(M, BM, 0),
            wd.WorkgroupConstraint(N, BN, 1),
            wd.TilingConstraint(K, BK),
            wd.WaveConstraint(M, BM / 2),
            wd.WaveConstraint(N, BN / 2),
        ],
        subs={BM: 64, BN: 64, BK: 64},
    )
    def kernel(
        a: wd.Memory[M, K, wd.SHARED, wd.f16], b: wd.Memory[N, K, wd.SHARED, wd.f16], c: wd.Memory[M, N, wd.f32]
    ):
        acc = wd.Register[M, N, wd.f32](0.0)

        @wd.iterate(K, init_args=[acc])
        def loop(acc: wd.Register[M, N, wd.f32]):
            return wd.mma(wd.read(a), wd.read(b), acc)

        wd.write(loop, c)

    return kernel


LOOKS = frozenset({"__hash__", "__eq__", "__ne__", "__str__", "__repr__", "__format__", "free_symbols"})
"""Using a symbol as a key or printing its name computes nothing."""


class SympyCalls:
    """Counts the calls from elsewhere into sympy, except `LOOKS`."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __enter__(self) -> SympyCalls:
        self._before = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or not self._sympy(frame) or self._sympy(caller):
            return
        if frame.f_code.co_name not in LOOKS:
            where = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
            self.calls.append(f"{frame.f_code.co_name} from {where}")

    @staticmethod
    def _sympy(frame: FrameType) -> bool:
        return frame.f_globals.get("__name__", "").partition(".")[0] == "sympy"


def test_the_counter_counts() -> None:
    three = sympy.Integer(3)
    M * three + three  # sympy imports some of itself when it first adds
    with SympyCalls() as counter:
        assert (M * three + three).xreplace({M: three}) == 12
        assert str(M) == "M"
    assert len(counter.calls) == 3


@pytest.mark.parametrize("target", TARGETS)
def test_sympy_computes_at_the_border_only(target: str) -> None:
    """Trace and compile of a GEMM: at most 20 calls, and none that grow with the tile."""
    kernel = gemm()
    counts = []
    for tile in (64, 128):
        with SympyCalls() as counter:
            kernel.compile(target=target, subs={M: 1024, N: 1024, K: 1024, BM: tile, BN: tile, BK: 32})
        counts.append(len(counter.calls))
        assert len(counter.calls) <= 20, counter.calls
    assert counts[0] == counts[1]


def test_names_are_not_printed_element_by_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a read goes through a mapping, sympy is not asked for more names where the tile is larger."""
    n, t, bn = wd.symbols("N T BN")

    @wd.wave([wd.WorkgroupConstraint(n, bn, 0), wd.WaveConstraint(n, bn)])
    def kernel(rows: wd.Memory[n, wd.i32], a: wd.Memory[t, wd.f32], c: wd.Memory[n, wd.f32]):
        wd.write(wd.read(a, mapping=wd.IndexMapping((n,), {t: wd.read(rows)})), c)
        wd.write(wd.read(a, mapping=wd.IndexMapping((n,), {t: 2 * n + 1})) + wd.read(c), c)

    printed: list[Any] = []
    of_sympy = sympy.Symbol.__str__
    monkeypatch.setattr(sympy.Symbol, "__str__", lambda s: printed.append(s) or of_sympy(s))
    counts = []
    for tile in (256, 2048):
        printed.clear()
        kernel.compile(target="gfx942", subs={n: 4096, t: 4096, bn: tile})
        counts.append(len(printed))
    assert counts[0] == counts[1]


def test_no_garbage_collection_while_compiling() -> None:
    kernel = gemm()
    phases: list[str] = []

    def watch(phase: str, _: dict[str, int]) -> None:
        phases.append(phase)

    kernel.compile(target="gfx942", subs={M: 1024, N: 1024, K: 1024})
    gc.collect()
    gc.callbacks.append(watch)
    try:
        with PAUSED:
            kernel.compile(target="gfx942", subs={M: 1024, N: 1024, K: 512})
            assert phases == []
            assert not gc.isenabled()
    finally:
        gc.callbacks.remove(watch)
    assert gc.isenabled()


def test_importing_is_not_collected() -> None:
    """Importing sympy started 130 collections, one of which looked at all there is; what it has made is old at once."""
    code = (
        "import gc, numpy; seen = []\n"
        "gc.callbacks.append(lambda phase, found: seen.append(found['generation']))\n"
        "import wavedsl; print(len(seen) // 2, 2 in seen, gc.isenabled(), gc.get_freeze_count())"
    )
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    collections, full, *state = plain.split()
    assert int(collections) < 40 and full == "False" and state == ["True", "0"]


def test_what_somebody_keeps_from_the_collector_stays_kept() -> None:
    gc.freeze()
    try:
        kept = gc.get_freeze_count()
        with lasting():
            pass
        assert gc.get_freeze_count() == kept > 0
    finally:
        gc.unfreeze()


def test_the_collector_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with PAUSED:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_overlapping_pauses_end_with_the_last() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with PAUSED:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with PAUSED:
        thread.start()
        inside.wait()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(ZeroDivisionError), PAUSED:
        1 // 0  # noqa: B018
    assert gc.isenabled()


def test_causal_attention_asks_sympy_for_no_difference(fresh: Callable[..., Any]) -> None:
    """The first difference of two symbols makes sympy import its tensors, 20 ms: the example adds and subtracts values
    of the kernel instead."""
    examples = str(KERNEL.parents[2] / "examples")
    found = fresh(
        f"sys.path.append({examples!r})\n"
        "import wavedsl as wd\n"
        "from attention import Variant, arguments_of, attention_kernel\n"
        "variant = Variant(wd.f16, causal=True, window=32)\n"
        "given = arguments_of(variant, dict(b=1, h=1, m=64, n=64, d=32, e=32))\n"
        "attention_kernel(variant, tile=(64, 32)).compile(*given.values(), target='gfx942')\n"
        "answer = loaded()"
    )
    assert under(found, "attention") and not under(found, "sympy.tensor.tensor", "sympy.combinatorics")
