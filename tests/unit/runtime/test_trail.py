"""WAVEDSL_DUMP and WAVEDSL_DEBUG: every stage is written, decisions are explained, and nothing else changes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from wavedsl.ir import trail

import wavedsl as wd
from wavedsl import registers
from wavedsl.demo import K, M, N, gemm

SIZES = {M: 128, N: 64, K: 96}
AMD = ["graph", "cut", "layouts", "lowered", "after", "selected", "allocated", "allocation", "registers-placed", "text"]


@pytest.mark.parametrize(("target", "stages"), [("gfx942", AMD), ("sm_80", ["graph", "cut", "lowered", "text"])])
def test_every_stage_is_written_in_order(monkeypatch, tmp_path, target, stages):
    plain = gemm.compile(target=target, subs=SIZES)
    monkeypatch.setenv("WAVEDSL_DUMP", str(tmp_path))
    assert gemm.compile(target=target, subs=SIZES).asm == plain.asm
    folder = tmp_path / f"gemm.{target}"
    names = sorted(p.name for p in folder.iterdir())
    assert [int(n[:2]) for n in names] == list(range(1, len(names) + 1))
    at = -1
    for stage in stages:
        at = next(i for i, n in enumerate(names) if i > at and n[3:].startswith(stage))
    assert (folder / names[-1]).read_text().rstrip() == plain.asm.rstrip()
    assert "= mma" in (folder / names[0]).read_text()
    gemm.compile(target=target, subs=SIZES)
    assert sorted(p.name for p in folder.iterdir()) == names, "a second compile replaces the first one's dump"


def test_decisions_are_explained(monkeypatch, capsys):
    monkeypatch.setenv("WAVEDSL_DEBUG", "regalloc,offsets,liveness")
    compiled = gemm.compile(target="gfx942", subs=SIZES)
    said = capsys.readouterr().err
    for what in (
        r"^liveness: gemm: most vector .* are live at instruction \d+ \(line \d+\)$",
        r"^liveness: %v\d+:4\s+v\[\d+:\d+\]\s+instructions \d+-\d+",
        r"^regalloc: %v\d+ in v0 \(workitem\): given$",
        r"^regalloc: .*the lowest free place: the one below is %[vs]\d+.*'s, live at instruction \d+$",
        r"^offsets: line \d+: load.global of 16 bytes: immediate 0 folded; the uniform part stays scalar",
        r"^offsets: line \d+: store.global of \d+ bytes: ",
        r"^offsets: line \d+: store.shared of \d+ bytes: immediate \d+ folded; address in \d+\.\.\d+$",
        r"^offsets: line \d+: load.shared of \d+ bytes: immediate [1-9]\d* folded; address in \d+\.\.\d+$",
    ):
        assert re.search(what, said, re.M), what
    monkeypatch.delenv("WAVEDSL_DEBUG")
    assert gemm.compile(target="gfx942", subs=SIZES).asm == compiled.asm and capsys.readouterr().err == ""


def test_an_unknown_topic_is_named(monkeypatch, capsys):
    monkeypatch.setenv("WAVEDSL_DEBUG", "registers")
    gemm.compile(target="gfx950", subs=SIZES)
    assert "WAVEDSL_DEBUG knows liveness, regalloc, offsets and all, not registers" in capsys.readouterr().err


def test_a_full_file_is_explained(monkeypatch, capsys):
    @wd.wave([wd.WorkgroupConstraint(M, 64, 0), wd.HardwareConstraint(waves_per_block=(1, 1, 1))])
    def wide(a: wd.Memory[M, K, wd.f32], b: wd.Memory[M, K, wd.f32]):
        x = wd.read(a)
        wd.write(x * wd.sum(x, dim=K), b)

    monkeypatch.setenv("WAVEDSL_DEBUG", "regalloc")
    compiled = wide.compile(target="gfx950", subs={M: 64, K: 1280})
    said = capsys.readouterr().err
    assert compiled.resources.spills > 0, compiled.resources
    assert re.search(r"^regalloc: vector registers run out: \d+ are live at instruction \d+ \(line \d+\)", said, re.M)
    assert re.search(r"^regalloc: elsewhere: Spilled\(.*accumulation=[1-9]", said, re.M)


def test_the_cache_is_not_read_when_a_trail_is_wanted(monkeypatch, tmp_path):
    monkeypatch.setenv("WAVEDSL_CACHE_DIR", str(tmp_path / "cache"))
    a, b = (np.ones((64, 32), np.float16) for _ in range(2))
    arrays = {"a": a, "b": b, "c": np.zeros((64, 64), np.float32)}
    assert gemm.compile_cached(arrays, "gfx942").asm == gemm.compile_cached(arrays, "gfx942").asm
    monkeypatch.setenv("WAVEDSL_DUMP", str(tmp_path / "dump"))
    gemm.compile_cached(arrays, "gfx942")
    assert (tmp_path / "dump" / "gemm.gfx942").is_dir()


def test_nothing_is_built_when_nobody_asks():
    def never() -> str:
        raise AssertionError("the text of a stage was built")

    trail.stage("x", never)
    assert not trail.explains("regalloc") and not trail.asked()


@pytest.mark.parametrize("view", registers.VIEWS)
def test_views_of_registers(view):
    compiled = gemm.compile(target="gfx942", subs=SIZES)
    text = registers.text(compiled, view)
    if view == "allocation":
        assert f"used: {compiled.resources.vgprs} vector" in text and "v0: %v" in text
    elif view == "machine":
        assert text.count("v_mfma") == compiled.resources.instructions["mfma"]
        live = [int(v) for v in re.findall(r"live (\d+)v", text)]
        assert 0 < max(live) <= compiled.resources.vgprs and live[-1] == 0
    else:
        assert "workitem" in text
    with pytest.raises(wd.LaunchError, match="only AMDGCN"):
        registers.text(gemm.compile(target="sm_80", subs=SIZES), view)


def test_live_registers_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = registers.plot(gemm.compile(target="gfx942", subs=SIZES), tmp_path / "live.svg")
    assert path.read_text().count("<path") > 10
