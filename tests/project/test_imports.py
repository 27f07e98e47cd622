"""Imports point one way, heavy packages are imported only when needed, mnemonics live in tables."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "ir": {"ir"},
    "tracer": {"tracer", "ir"},
    "codegen": {"codegen", "ir"},
    "runtime": {"runtime", "codegen", "ir"},
    "wavedsl": {"wavedsl", "runtime", "codegen", "tracer", "ir"},
}
IR = (
    "kernel", "schedule", "dataflow", "layouts", "functions", "cuts", "evaluator", "addresses", "inference", "grid",
    "lower", "staging", "regions",
)  # fmt: skip
"""Packages of the compiler's middle: each imports those before it, and what lies in the folder itself but for `TOP`."""
TOP = ("pipeline", "attempts", "lower_kernel", "earlier_roles")
SOURCES = [path for folder in MAY_IMPORT for path in sorted((ROOT / folder).rglob("*.py"))]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements, and what holds some; expressions, which are most of a tree, hold none."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        left += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


def imported(source: str, module: str) -> list[tuple[int, str]]:
    """(line, absolute dotted name) of every import in `source`, nested ones included; `module` resolves dots."""
    found: list[tuple[int, str]] = []
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: -node.level]
                base = ".".join([*parents, base] if base else parents)
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def package_of(name: str) -> str | None:
    """Which of our packages an absolute name belongs to; None if it is not ours."""
    parts = name.split(".")
    if parts[0] != "wavedsl":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT and parts[1] != "wavedsl" else "wavedsl"


def back_edges(source: str, module: str, package: str) -> list[str]:
    return [
        f"line {line}: {package} imports {name}"
        for line, name in imported(source, module)
        if (target := package_of(name)) is not None and target not in MAY_IMPORT[package]
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_back_edge(path: Path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    package = parts[0]
    module = ".".join(parts if package == "wavedsl" else ("wavedsl", *parts))
    assert back_edges(path.read_text(encoding="utf-8"), module, package) == []


@pytest.mark.parametrize(
    "source",
    [
        "from wavedsl.runtime import cache",
        "def f():\n    import wavedsl.codegen.targets",
        "from ..tracer import proxies",
        "from wavedsl import wave",
        "import wavedsl",
    ],
)
def test_a_back_edge_is_seen(source: str):
    assert len(back_edges(source, "wavedsl.ir.symbols", "ir")) == 1


def upward(source: str, package: str) -> list[str]:
    """Imports in `source`, of a module of the middle's package ("" is the folder itself), of what lies above it."""
    found = []
    for line, name in imported(source, f"wavedsl.ir.{package}.x"):
        parts = name.split(".")
        if parts[:2] != ["wavedsl", "ir"]:
            continue
        if parts[2] in TOP or (parts[2] in IR and (not package or IR.index(parts[2]) > IR.index(package))):
            found.append(f"line {line}: {name}")
    return found


@pytest.mark.parametrize("path", sorted((ROOT / "ir").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_packages_of_the_middle_stand_one_on_the_other(path: Path):
    folder = path.parent.relative_to(ROOT / "ir").name
    assert folder in ("", *IR)
    if folder or path.stem not in TOP:
        assert upward(path.read_text(encoding="utf-8"), folder) == []


def test_an_import_upward_is_seen():
    assert upward("from wavedsl.ir.lower.exchange import exchange", "layouts") != []
    assert upward("from wavedsl.ir.kernel.builder import Builder", "") != []
    assert upward("def f():\n    from wavedsl.ir import pipeline", "regions") != []
    assert upward("from wavedsl.ir.kernel.builder import Builder\nfrom wavedsl.ir import errors", "layouts") == []


APART = {
    "codegen/amdgcn": ("codegen.ptx",),
    "codegen/ptx": ("codegen.amdgcn",),
    "runtime/emulator/amdgcn": ("codegen.ptx", "runtime.emulator.ptx"),
    "runtime/emulator/ptx": ("codegen.amdgcn", "runtime.emulator.amdgcn"),
    "runtime/emulator": ("runtime.launch", "runtime.dispatch", "runtime.devices", "runtime.cuda", "runtime.hip"),
    "wavedsl/analysis": ("strategies", "tuning"),
    "wavedsl/strategies": ("tuning",),
    "wavedsl/tuning": ("strategies",),
}
"""Folder → what it has no use for: the other vendor, drivers where text is emulated, what stands on analysis."""


@pytest.mark.parametrize("folder", APART)
def test_what_has_nothing_to_do_with_each_other_stays_apart(folder: str):
    parts = ("wavedsl", *(x for x in folder.split("/") if x != "wavedsl"), "x")
    others = tuple(f"wavedsl.{name}." for name in APART[folder])
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in imported(path.read_text(encoding="utf-8"), ".".join(parts))
        if f"{name}.".startswith(others)
    ]
    assert found == []


def test_a_root_folder_is_never_imported_by_its_bare_name():
    bare = set(MAY_IMPORT) - {"wavedsl"}
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "examples").rglob("*.py"))]
        for line, name in imported(path.read_text(encoding="utf-8"), "wavedsl.x.y")
        if name.split(".")[0] in bare
    ]
    assert found == []


def test_import_pulls_in_nothing_heavy(capsys: pytest.CaptureFixture[str]):
    """`import wavedsl` loads its four dependencies and the standard library; what it takes is printed, not asserted."""
    code = (
        "import time, sys, numpy, sympy, networkx, ml_dtypes\n"
        "start = time.perf_counter(); before = set(sys.modules)\n"
        "import wavedsl\n"
        "print(time.perf_counter() - start)\n"
        "print(*sorted({n.split('.')[0] for n in set(sys.modules) - before}))\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    seconds, loaded = said.splitlines()
    with capsys.disabled():
        print(f" import wavedsl: {float(seconds) * 1e3:.0f} ms on top of its dependencies")
    ours = {"wavedsl", "numpy", "sympy", "networkx", "ml_dtypes", "mpmath"}
    assert set(loaded.split()) - ours - set(sys.stdlib_module_names) - editable_finders() == set()


def editable_finders() -> set[str]:
    return {name for name in sys.modules if name.startswith("__editable__")}
