"""Fixtures for all tests: outside oracles, surroundings that do not depend on the user's, and what LLVM has to say of
every line that the AMD back end prints.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import canonical
import hypothesis
import oracles
import pytest
import selected
from forks import Forks

hypothesis.settings.register_profile("untimed", deadline=None)  # no test asserts a time
hypothesis.settings.load_profile("untimed")

TESTS = Path(__file__).parent
INSTALLED = (TESTS / "project",)
"""Tests of the package as a whole, which CI runs on the wheel too."""


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], str]:
    """`oracle("llvm-mc")` is the program's path; without it the test is skipped, or fails if oracles are required."""
    return oracles.require


def bytecode(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a Python that keeps bytecode in a folder of the test run."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path_factory.getbasetemp() / "bytecode")}


@pytest.fixture(scope="session")
def fresh_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Processes that have imported the package's four dependencies, and nothing else that is ours."""
    found = Forks(tmp_path_factory.mktemp("forks"), "numpy", "sympy", "networkx", "ml_dtypes",
                  environment=bytecode(tmp_path_factory))  # fmt: skip
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test run's own and the emulator as device, whatever the user has set. Processes that tests start
    find what others have compiled of our sources, also where Python is told to write no bytecode beside them."""
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "wavedsl-cache"))
    monkeypatch.delenv("WAVEDSL_DEVICE", raising=False)
    monkeypatch.setenv("WAVEDSL_TRACEBACK", "full")  # a test that fails shows where
    for name, value in bytecode(tmp_path_factory).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session", autouse=True)
def _every_amd_line_is_llvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lines that tests of this process make the AMD back end print are spelled as LLVM's disassembler spells them, and
    that spelling assembles to the same bytes. Asked once, at the end, where there is an LLVM; branches stand in
    tests/project/test_canonical.py, with the texts they belong to."""
    from wavedsl.codegen.amdgcn import emit

    found: dict[str, set[str]] = {}
    render = emit.render

    def recorded(program: Any, *rest: Any) -> str:
        text = render(program, *rest)
        found.setdefault(program.chip, set()).update(canonical.code_of(text))
        return text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emit, "render", recorded)
        yield
    llvm_mc, objdump = oracles.find("llvm-mc"), oracles.find("llvm-objdump")
    for target, lines in found.items():
        plain = sorted(line for line in lines if not (line.endswith(":") or canonical.BRANCH.match(line.strip())))
        if plain and llvm_mc and objdump:
            folder = tmp_path_factory.mktemp("lines")
            assert not canonical.spelled_otherwise(plain, target, llvm_mc, objdump, folder)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite reviewed texts with what is made now")
    parser.addoption("--until", type=float, metavar="TIME", help="skip what has not begun at this second of the epoch")
    parser.addoption("--begin", metavar="SEED", help="begin with a file that this decides, and go round")


def pytest_configure(config: pytest.Config) -> None:
    """The option stands for WAVEDSL_UPDATE_GOLDEN=1, which tests with reviewed texts look at."""
    if config.getoption("--update-golden"):
        os.environ["WAVEDSL_UPDATE_GOLDEN"] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("no time was left")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where no driver offers a device; `installed` are those of `INSTALLED`."""
    begin = config.getoption("--begin")
    if begin is not None:
        items[:] = selected.beginning(items, begin)
    for item in items:
        if any(selected.inside(item.path, folder) for folder in INSTALLED):
            item.add_marker(pytest.mark.installed)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked:
        from wavedsl.runtime.devices import gpus

        if not gpus():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="no GPU"))
