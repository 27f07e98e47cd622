"""Measured times beside the roofline: the file, the picture, what the command line refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import wavedsl as wd
from wavedsl import cli
from wavedsl.analysis.measured import Point, read_measured
from wavedsl.analysis.plot import plot_roofline

M, N = wd.symbols("M N")
DEMO = ["inspect", "wavedsl.demo:gemm", "--subs", "M=128,N=128,K=128", "--target", "gfx942"]


@wd.wave([wd.WorkgroupConstraint(M, 16, 0), wd.WorkgroupConstraint(N, 64, 1)])
def copied(a: wd.Memory[M, N, wd.f32], b: wd.Memory[M, N, wd.f32]):
    wd.write(wd.read(a), b)


def written(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def test_both_kinds_of_files(tmp_path: Path):
    assert read_measured(written(tmp_path / "a.json", {"gemm": 1e-4})) == ({"gemm": 1e-4}, [])
    rows = [
        {"case": "copy", "size": [64, 32], "bytes": 16384, "flops": 0, "wavedsl": {"seconds": 1e-6}},
        {"case": "square", "size": [8, 8, 8], "bytes": 384, "flops": 1024, "seconds": {"wavedsl": 2e-6, "torch": 1e-6}},
        {"case": "failed", "size": [1], "bytes": 4, "flops": 2},
    ]
    points = [Point("copy 64 x 32", 0, 16384, 1e-6), Point("square 8 x 8 x 8", 1024, 384, 2e-6)]
    assert read_measured(written(tmp_path / "b.json", {"rows": rows})) == ({}, points)


@pytest.mark.parametrize("value", [[], {}, {"gemm": "fast"}, {"gemm": -1}, {"rows": []}, {"rows": [3]}])
def test_other_files_are_refused(tmp_path: Path, value):
    with pytest.raises(wd.LaunchError, match="no measured times"):
        read_measured(written(tmp_path / "x.json", value))


def test_a_copy_is_a_line_at_its_bandwidth(tmp_path: Path):
    pytest.importorskip("matplotlib")
    r = wd.analyze(copied, target="sm_80", subs={M: 1024, N: 1024})
    alone = plot_roofline(r, tmp_path / "a.svg").read_text()
    beside = plot_roofline(r, tmp_path / "b.svg", {"copied": 1e-5}).read_text()
    assert "copied:" in alone and "predicted -->" in alone
    assert "copied: 839 GB/s measured" in beside


def test_the_command_line_draws_measured_points(tmp_path: Path, capsys):
    pytest.importorskip("matplotlib")
    picture, times = tmp_path / "q.svg", written(tmp_path / "t.json", {"gemm": 1e-5})
    assert cli.main([*DEMO, "--roofline", "--plot", str(picture), "--measured", str(times)]) == 0
    assert "filled measured" in picture.read_text()
    assert cli.main([*DEMO, "--plot", str(picture), "--measured", str(written(times, {"other": 1.0}))]) != 0
    assert "no time of gemm" in capsys.readouterr().err


def test_a_plot_of_another_view_is_refused(tmp_path: Path, capsys):
    assert cli.main([*DEMO, "--schedule", "--plot", str(tmp_path / "q.png")]) != 0
    assert "--plot draws the roofline" in capsys.readouterr().err and not (tmp_path / "q.png").exists()
    assert cli.main([*DEMO, "--roofline", "--measured", str(tmp_path / "t.json")]) != 0
    assert "give --plot FILE too" in capsys.readouterr().err
