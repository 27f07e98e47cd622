"""The distribution holds every folder with code, and takes no top-level name but `wavedsl`."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import wavedsl

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("wavedsl", "tracer", "ir", "codegen", "runtime")


def listed() -> tuple[dict[str, str], list[str]]:
    """`package-dir` and `packages` of pyproject.toml (read by hand: tomllib is not in Python 3.10)."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.split("[tool.setuptools.package-dir]")[1].split("\n[")[0]
    packages = text.split("packages = [")[1].split("]")[0]
    return dict(re.findall(r'"([^"]+)" = "([^"]+)"', table)), re.findall(r'"([^"]+)"', packages)


def test_every_folder_with_code_is_a_package():
    mapping, packages = listed()
    assert sorted(mapping) == sorted(packages)
    with_code = {str(path.parent.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert with_code == set(mapping.values())
    for folder in with_code:
        assert (ROOT / folder / "__init__.py").exists(), f"{folder} has no __init__.py"


def test_the_distribution_takes_one_name():
    # Asked for from elsewhere: in the root, the build's own wavedsl.egg-info would answer.
    code = "import importlib.metadata as m; print(*(f.parts[0] for f in m.files('wavedsl')), sep='\\n')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    tops = {top for top in said.split() if not top.startswith(("..", "__editable__", "__pycache__"))}
    assert tops
    assert {top for top in tops if not top.endswith((".dist-info", ".egg-info", ".pth"))} <= {"wavedsl"}


def test_versions_agree():
    assert importlib.metadata.version("wavedsl") == wavedsl.__version__
    assert f"## {wavedsl.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_sources_without_metadata_run(monkeypatch: pytest.MonkeyPatch):
    """A copy of the package in someone's tree has no metadata; calls went through it for the cache's key."""

    def missing(name: str):
        raise importlib.metadata.PackageNotFoundError(name)

    N = wavedsl.sym.N

    @wavedsl.wave([wavedsl.WorkgroupConstraint(N, 64, 0)])
    def double(a: wavedsl.Memory[N, wavedsl.f32], b: wavedsl.Memory[N, wavedsl.f32]):
        wavedsl.write(wavedsl.read(a) * 2, b)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    a, b = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    double(a, b)
    assert (b == 2 * a).all()


def test_modules_run_as_a_program_from_anywhere(tmp_path: Path):
    for folder in (tmp_path, ROOT):
        done = subprocess.run(
            [sys.executable, "-c", "import wavedsl.ir.errors, wavedsl.runtime.toolchain; print(wavedsl.__name__)"],
            capture_output=True,
            text=True,
            cwd=folder,
        )
        if folder == ROOT and not is_editable():
            continue  # the bare folder in the root shadows an installed wheel there; nobody works like that
        assert done.stdout.strip() == "wavedsl", done.stderr


def is_editable() -> bool:
    code = "import importlib.metadata as m; print(any('__editable__' in str(f) for f in m.files('wavedsl')))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    return said.strip() == "True"
