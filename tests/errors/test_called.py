"""An argument that does not fit is shown where the call passes it, with the line that declares it."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading

import numpy as np
import pytest

import wavedsl as wd
from wavedsl import strategies

N = wd.sym.N


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def add(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], s: wd.Scalar[wd.f32], c: wd.Memory[N, wd.f32]):
    wd.write(wd.read(a) * s + wd.read(b), c)


@wd.wave([wd.WorkgroupConstraint(N, 256, 0)])
def scaled(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], s: wd.Scalar[wd.f32] = 2.0):
    wd.write(wd.read(a) * s, b)


x, y = np.ones(100, np.float32), np.ones(100, np.float32)
half, short, still = x.astype(np.float16), x[:50], np.broadcast_to(np.float32(1), 100)
of_x = functools.partial(scaled, x)
DECLARED = "def add(a: wd.Memory"


def refused(call):
    with pytest.raises(wd.LaunchError) as caught:
        call()
    return caught.value


def marked(loc):
    return loc.text()[loc.col : loc.end_col]


only_with_columns = pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects know no columns")


@only_with_columns
@pytest.mark.parametrize(
    "call, argument, passed",
    [
        (lambda: add(x, half, 1.0, y), "b", "half"),
        (lambda: add(x, y, s="2", c=x), "s", '"2"'),
        (lambda: add(x, short[:9], 1.0, y), "b", "short[:9]"),
        (lambda: add(x, [1.0, 2.0], 1.0, y), "b", "[1.0, 2.0]"),
        (lambda: add(c=x, b=y, a=x, s=1.0), "c", "x"),
        (lambda: add(x, x, 1.0, still), "c", "still"),
        (lambda: add.bind(x, x, 1.0, half), "c", "half"),
        (lambda: add.evaluate(x, x, 1.0, still), "c", "still"),
        (lambda: add.compile(x, x[::-1], 1.0, y, target="sm_80"), "b", "x[::-1]"),
        (lambda: add.compile(subs={N: 100}, target="sm_80").emulate(x, y[:4], 1.0, y), "b", "y[:4]"),
        (lambda: add.compile(subs={N: 100}, target="sm_80").emulate(x, x, 1e99, y), "s", "1e99"),
        (lambda: add.compile(subs={N: 100}, target="sm_80").emulate(x, x, 1.0, x), "c", "x"),
        (lambda: add(*[x, half, 1.0, y]), "b", "add(*[x, half, 1.0, y])"),
        (lambda: add(x, half, 1.0), "", "add(x, half, 1.0)"),
        (lambda: scaled(half, y), "a", "half"),
        (lambda: scaled.evaluate(x, half), "b", "half"),
        (lambda: of_x(half), "b", "of_x(half)"),
    ],
)
def test_the_argument_is_marked_in_the_call(call, argument, passed):
    error = refused(call)
    assert error.argument == argument and marked(error.location) == passed
    assert "declared in " in str(error) and str(error).count("\n") >= 5


def test_an_overlap_is_shown_at_the_call():
    """It pointed at the decorator, and only there."""
    error = refused(lambda: add(x, y, 1.0, x))
    assert error.location.file == __file__ and "add(x, y, 1.0, x)" in error.location.text()
    assert "argument `c`" in error.message and "@wd.wave" in error.declared.text()


@only_with_columns
def test_an_argument_on_a_line_of_its_own():
    error = refused(
        lambda: add(
            x,
            half,
            s=1.0,
            c=y,
        )
    )
    assert error.location.text().strip() == "half," and DECLARED in error.declared.text()


def test_functions_that_make_kernels_show_the_call_alone():
    a = np.ones((4, 8), np.float16)
    error = refused(lambda: strategies.matmul(a, a.T, a[:, :4].copy().astype(np.float32)[::-1]))
    assert "strategies.matmul" in error.location.text() and error.declared is None


@only_with_columns
@pytest.mark.parametrize("matrix", ["x8", "vector"])
def test_arguments_of_products_are_marked(matrix):
    a, given = np.ones((4, 4), np.float16), np.ones((4, 4), np.complex64) if matrix == "x8" else np.ones(4, np.float16)
    for error in (
        refused(lambda: strategies.matmul(a, given, a)),
        refused(lambda: strategies.gemm_choices(a, b=given, c=a)),
    ):
        assert error.argument == "b" and marked(error.location) == "given"


def test_a_thread_calls_as_anybody_does():
    found = []

    def work():
        found.append(refused(lambda: add(x, half, 1.0, y)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "add(x, half, 1.0, y)" in found[0].location.text()


def test_a_thread_whose_target_is_the_kernel_shows_the_declaration():
    thread = threading.Thread(target=add, args=(x, half, 1.0, y))
    error = refused(thread.run)  # as `start` does, but here
    assert DECLARED in error.location.text() and error.declared is None


def test_strict_says_which_call_would_compile(monkeypatch):
    monkeypatch.setenv("WAVEDSL_STRICT", "1")
    monkeypatch.setenv("WAVEDSL_CACHE_BYTES", "0")
    error = refused(lambda: add(x[:77], y[:77], 1.0, y[:77].copy()))
    assert "add(x[:77], y[:77]" in error.location.text()


def test_without_source(tmp_path):
    """The call's line cannot be read: the message alone must do."""
    space = {"add": add, "x": x, "half": half, "y": y}
    error = refused(lambda: exec("add(x, half, 1.0, y)", space))
    assert error.location.file == "<string>" and "<string>:1" in str(error) and "argument b" in str(error)


def test_the_command_line_has_no_call(tmp_path):
    (tmp_path / "k.py").write_text(
        "import wavedsl as wd\nN = wd.sym.N\n@wd.wave([wd.WorkgroupConstraint(N, 64, 0)], dynamic=[N])\n"
        "def k(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32]):\n    wd.write(wd.read(a), b)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "wavedsl", "compile", "k.py:k", "--subs", "N=-4", "--target", "sm_80"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode and "Traceback" not in done.stderr and "cli.py" not in done.stderr


def test_a_path_that_cannot_be_written(tmp_path):
    """It ended in FileNotFoundError, of a file of this package's."""
    compiled = add.compile(subs={N: 100}, target="sm_80")
    error = refused(lambda: compiled.save(tmp_path / "missing" / "kernel.json"))
    assert "kernel.json: No such file" in error.message and "compiled.save" in error.location.text()
