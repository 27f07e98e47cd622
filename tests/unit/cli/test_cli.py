"""The command line: every command on a small kernel, and what a user reads who names the wrong thing."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from wavedsl.codegen import TARGETS

import wavedsl as wd
from wavedsl import cli

KERNELS = """
import wavedsl as wd

M, N, BM, BN = wd.symbols("M N BM BN")


@wd.wave([wd.WorkgroupConstraint(M, BM, 0), wd.WorkgroupConstraint(N, BN, 1)], subs={BM: 16, BN: 16})
def double(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a) * 2.0, b)
"""
SIZES = "M=32,N=32"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels_of_the_cli_test.py"
    path.write_text(KERNELS)
    yield path
    sys.modules.pop(path.stem, None)
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]


def command(capsys, *arguments) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of one command."""
    status = cli.main([str(a) for a in arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "sm_80", "sm_90a"])
def test_compile_prints_text(capsys, kernels, target):
    status, out, _ = command(capsys, "compile", f"{kernels}:double", "--subs", SIZES, "--target", target)
    assert status == 0
    assert ("s_endpgm" if target.startswith("gfx") else f".target {target}") in out and "double" in out


def test_compile_writes_files(capsys, kernels, tmp_path, oracle):
    oracle("zig"), oracle("ptxas")
    base = ["compile", kernels, "--subs", SIZES]
    for target, suffix in (("gfx942", ".s"), ("gfx942", ".hsaco"), ("sm_80", ".ptx"), ("sm_80", ".cubin")):
        path = tmp_path / f"kernel{suffix}"
        status, out, err = command(capsys, *base, "--target", target, "-o", path)
        assert status == 0 and out == "" and "registers" in err
        assert (path.read_bytes()[:4] == b"\x7fELF") == (suffix in (".hsaco", ".cubin"))
    path = tmp_path / "kernel.json"
    command(capsys, *base, "--target", "gfx942", "-o", path)
    loaded = wd.load(path)
    assert (loaded.name, loaded.target) == ("double", "gfx942")
    assert loaded.asm == (tmp_path / "kernel.s").read_text()
    status, _, err = command(capsys, *base, "--target", "gfx942", "-o", tmp_path / "kernel.txt")
    assert status == 1 and "unknown kind of file" in err and ".hsaco" in err


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_emulate_reports_and_compares(capsys, kernels, target):
    status, out, err = command(capsys, "emulate", f"{kernels}:double", "--subs", SIZES, "--target", target)
    assert status == 0, out + err
    assert "b: largest difference from the graph evaluator 0\n" in out
    assert "no findings" in out
    counted = [int(n) for n in re.findall(r"^\S+ +(\d+)$", out, re.M)]
    assert counted and sum(counted) <= int(re.search(r"(\d+) instructions", out).group(1))


def test_run_and_bench(capsys, kernels, monkeypatch):
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx950")
    status, out, _ = command(capsys, "run", kernels, "--subs", SIZES, "--integers")
    assert status == 0 and "double on emulator:gfx950" in out and "evaluator 0\n" in out
    status, out, _ = command(capsys, "bench", kernels, "--subs", SIZES, "--repeat", 2, "--device", "emulator:sm_80")
    assert status == 0 and "median" in out and "of 2 (emulation" in out


@pytest.mark.parametrize("name", ["run", "bench"])
def test_a_launch_takes_a_device(capsys, kernels, name):
    status, _, err = command(capsys, name, kernels, "--subs", SIZES, "--target", "gfx950")
    assert status != 0 and "--target gfx950 names a chip" in err and "--device emulator:gfx950" in err


def test_inspect_shows_every_form(capsys, kernels):
    base = ["inspect", kernels, "--subs", SIZES, "--target", "gfx942"]
    expected = {
        "graph": "read memory=a",
        "dot": "digraph",
        "ir": "load.global",
        "schedule": "no loop is pipelined",
        "decisions": "asynchronous copies: none",
        "asm": "s_endpgm",
        "resources": "shared memory 0 B",
    }
    for what, part in expected.items():
        status, out, _ = command(capsys, *base, f"--{what}")
        assert status == 0 and part in out
    status, both, _ = command(capsys, *base, "--resources", "--graph")
    assert both.index("shared memory") < both.index("read memory=a")


def test_inspect_schedule_is_a_cycle_table(capsys):
    status, out, _ = command(
        capsys, "inspect", "wavedsl.demo:gemm", "--subs", "M=128,N=128,K=128", "--target", "gfx942", "--schedule"
    )
    assert status == 0
    assert re.search(r"loop \S+: \d+ stages, \w+, a trip every \d+ clocks", out)
    assert re.search(r"^ +clock +.*mfma", out, re.M) and "matrix instruction" in out


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_the_cycle_model_is_shown_with_its_error(capsys, target):
    where = "wavedsl.demo:gemm"
    sizes = ("--subs", "M=64,N=64,K=256", "--target", target)
    status, out, _ = command(capsys, "emulate", where, *sizes, "--no-checks", "--waits")
    assert status == 0 and re.search(r"model: \d+ cycles", out) and "busy: " in out
    status, loops, _ = command(capsys, "inspect", where, *sizes, "--cycles")
    assert status == 0
    if target == "gfx942":
        assert "llvm-mca" in out and "us at 2.1 GHz" in out and "clocks waited" in out
        assert "clocks per trip" in loops and "mfma" in loops and "llvm-mca" in loops
    else:
        assert "us at 1.41 GHz" in out and "clocks waited" in out and "published bf16 GEMMs" in out
        assert "llvm-mca" not in out and "nothing is modelled" in loops


def test_cache_lists_explains_and_clears(capsys, kernels, monkeypatch, tmp_path):
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    from wavedsl.find_kernel import find_kernel

    kernel = find_kernel(str(kernels))
    for rows in (16, 32):
        a, b = np.ones((rows, 16), np.float32), np.zeros((rows, 16), np.float32)
        kernel(a, b)
        assert (b == 2).all()
    status, out, _ = command(capsys, "cache", "ls")
    assert status == 0 and out.count("double") == 2 and "2 entries" in out
    status, out, _ = command(capsys, "cache", "why", "double")
    assert "first compile for gfx942" in out and "arguments, bindings differs from" in out
    assert "never compiled" in command(capsys, "cache", "why", "other")[1]
    assert "2 entries removed" in command(capsys, "cache", "clear")[1]
    assert "0 entries" in command(capsys, "cache", "ls")[1]


def test_doctor_names_what_there_is(capsys):
    status, out, _ = command(capsys, "doctor")
    assert status == 0
    for part in (
        "numpy",
        "AMDGCN assembler",
        "ptxas",
        "emulator: gfx90a, gfx942, gfx950, sm_80, sm_90a",
        "default device",
        f"hip-python {importlib.metadata.version('hip-python')}\n",
    ):
        assert part in out


def test_bindings_that_came_in_parts_have_no_release():
    assert cli._release("numpy") == np.__version__ and cli._release("no-such-package") == "installed"


def test_demo_is_right_on_every_target(capsys):
    status, out, _ = command(capsys, "demo")
    assert status == 0, out
    assert len(re.findall(r" ok$", out, re.M)) == 2 * len(TARGETS)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["compile", "missing.py:x"], ["there is no file missing.py"]),
        (["compile", "no.such.module:x"], ["there is no module no.such.module"]),
        (["compile", "wavedsl.demo"], ["has 2 kernels", "copy, gemm"]),
        (["compile", "wavedsl.demo:hemm"], ["has no kernel 'hemm'", "copy, gemm"]),
        (["compile", "wavedsl.demo:gemm", "--subs", "M"], ["'M' binds no symbol", "NAME=NUMBER"]),
        (["compile", "wavedsl.demo:copy", "--subs", "M=4,N=4", "--target", "gfx900"], ["gfx900", "gfx942"]),
        (["compile", "wavedsl.demo:hemm"], ["did you mean wavedsl.demo:gemm?"]),
        (["compile", __file__], ["test_cli.py has no kernels", "@wd.wave([…]) at the top level"]),
        (["emulate", "wavedsl.demo:copy", "--subs", "M=4"], ["copy: N has no value", "bind it", "--subs N=64"]),
        (["run", "wavedsl.demo:copy"], ["copy: M, N have no value", "bind them", "--subs M=64,N=64"]),
        (["compile", "wavedsl.demo:copy", "--subs", "M=4,MM=4"], ["subs binds MM, which the kernel does not", "M?"]),
        (["tune", "wavedsl.demo:copy", "--subs", "M=4,MM=4"], ["subs binds MM, which the kernel does not use"]),
        (["compile", "wavedsl.demo:copy", "--subs", "M=-4"], ["'M=-4' binds no symbol", "not below 0"]),
        (["demo", "--targets", "gfx9"], ["'gfx9' is not a target"]),
        (["run", "wavedsl.demo:copy", "--subs", "M=4,N=4", "--device", "tpu:0"], ["'tpu:0' is not a device"]),
    ],
)
def test_mistakes_end_in_one_message(capsys, arguments, parts):
    status, _, err = command(capsys, *arguments)
    assert status == 1 and err.startswith(f"wavedsl {arguments[0]}: ")
    for part in parts:
        assert part in err


def test_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "wavedsl", "--version"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0 and done.stdout.startswith("wavedsl ")


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        ("def x(:\n", [], "SyntaxError: invalid syntax\n  {path}:1\n    def x(:\n"),
        ("import surely_not_installed_anywhere\n", [], "ModuleNotFoundError: No module named 'surely_not_installed"),
        ("1 / 0\n", [], "ZeroDivisionError: division by zero\n  {path}:1\n    1 / 0\n"),
        (KERNELS, ["--subs", "M=64,N=64", "-o", "{path}/x.s"], "{path}/x.s: Not a directory"),
        (KERNELS, ["--subs", "M=64,N=64", "--target", "MI300X"], "unknown target 'MI300X'\n"),
    ],
    ids=["syntax", "import", "raises", "unwritable", "target"],
)
def test_mistakes_of_the_user_end_in_a_message(
    source: str, arguments: list[str], said: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    path = tmp_path / "mistaken.py"
    path.write_text(source)
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert cli.main(["compile", str(path), *(a.format(path=path) for a in arguments)]) == 1
    assert capsys.readouterr().err.startswith("wavedsl compile: " + said.format(path=path))


def test_a_file_that_is_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (tmp_path / "kernel.txt").write_text(KERNELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    status, _, err = command(capsys, "compile", "kernel.txt:double")
    assert status == 1 and "kernel.txt is no Python file" in err


@pytest.mark.parametrize(
    ("arguments", "said", "meant"),
    [
        (["compile", "wavedsl.demo:copy", "--subs", "M=4", "N=8", "BM=2"], "unrecognized arguments: N=8 BM=2",
         "--subs M=64,N=8,BM=2"),
        (["inspect", "wavedsl.demo:copy", "--roofine"], "unrecognized arguments: --roofine", "mean --roofline?"),
        (["compile", "wavedsl.demo:copy", "--targt=sm_80"], "unrecognized arguments: --targt=sm_80", "--target?"),
    ],
    ids=["bindings", "flag", "option"],
)  # fmt: skip
def test_arguments_that_a_command_does_not_know(capsys, arguments, said, meant) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.startswith(f"usage: wavedsl {arguments[0]} ")
    assert said in err and meant in err


def test_without_a_command_there_is_help(capsys) -> None:
    status, out, err = command(capsys)
    assert status == 2 and not out and "doctor" in err and "--help" in err


def test_pictures_of_a_kind_that_nobody_writes(capsys, kernels) -> None:
    pytest.importorskip("matplotlib")
    for option, name in (("--live-plot", "x.foo"), ("--plot", "y.foo")):
        picture = kernels.parent / name
        status, _, err = command(capsys, "inspect", kernels, "--subs", SIZES, "--target", "gfx942", option, picture)
        assert status == 1 and err.startswith(f"wavedsl inspect: {option}: Format 'foo' is not supported")
        assert ".svg" in err.splitlines()[-1] and not picture.exists()


def test_why_takes_a_kernel_as_it_is_compiled(capsys, kernels, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WAVEDSL_DEVICE", "emulator:gfx942")
    space: dict = {}
    exec(compile(kernels.read_text(), str(kernels), "exec"), space)
    space["double"](np.ones((4, 4), np.float32), np.empty((4, 4), np.float32))
    status, out, _ = command(capsys, "cache", "why", f"{kernels}:double")
    assert status == 0 and out.startswith("double:\n")
    assert "doubl: never compiled; there are double" in command(capsys, "cache", "why", "doubl")[1]


RACE = """
import wavedsl as wd

N = wd.sym.N


@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])
def crowded(x: wd.Memory[N, wd.f32], y: wd.Memory[N, wd.f32]):
    wd.write(wd.read(x), y, mapping=wd.IndexMapping((N,), {N: wd.index(N) // 128}))
"""


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_finding_quotes_the_kernels_line_and_says_what_is_right(capsys, tmp_path, target):
    """It gave a file and a number."""
    path = tmp_path / "crowded_of_the_cli_test.py"
    path.write_text(RACE)
    status, out, _ = command(capsys, "emulate", f"{path}:crowded", "--subs", "N=300", "--target", target)
    line = RACE.splitlines()[-1].strip()
    assert status == 1 and re.search(rf"{re.escape(f'{path}:9')}\n +{re.escape(line)}\n +\^\^\^", out)
    assert re.search(r"byte \d+ of argument `y`, which is y\[\d\]", out)
    assert out.count("help: workgroups run in no order") == 1
    assert out.rstrip().endswith(("1 finding", "2 findings"))


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_waits_are_the_kernels_lines(capsys, target):
    """Lines of the text alone do not say what to change in the kernel."""
    sizes = ("--subs", "M=64,N=64,K=256", "--target", target)
    _, out, _ = command(capsys, "emulate", "wavedsl.demo:gemm", *sizes, "--no-checks", "--waits")
    rows = re.findall(r"^demo\.py:\d+ +(\d+) +(\d+)% +(.+)$", out, re.M)
    assert any("wd.mma" in source or "wd.read" in source for _, _, source in rows), out
    assert [int(n) for n, _, _ in rows] == sorted((int(n) for n, _, _ in rows), reverse=True)
    assert sum(int(share) for _, share, _ in rows) <= 102
