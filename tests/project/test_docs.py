"""What the documents show is so: the README's program runs, links lead somewhere, commands are commands."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

import wavedsl as wd
from wavedsl.cli import main, parser

ROOT = Path(__file__).parents[2]
PAGES = sorted(p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))


def run_page(page: str, folder: Path) -> None:
    """The Python of a page, as one file from top to bottom: kernels read their source."""
    programs = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    path = folder / f"{Path(page).stem.lower()}.py"
    path.write_text("\n\n".join(programs))
    exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_page("README.md", tmp_path)
    words, number = capsys.readouterr().out.strip().rsplit(" ", 1)
    assert words == "largest error:" and float(number) < 1e-4


@pytest.mark.slow
def test_the_guide_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its programs check their own results; the error that it shows is the one that is printed."""
    run_page("docs/guide.md", tmp_path)
    said = capsys.readouterr().out.replace(f"{tmp_path}/", "")
    shown = re.search(r"^    a traced value.*?\n\n", (ROOT / "docs/guide.md").read_text(), re.M | re.S)
    assert shown is not None and said.startswith(re.sub("^    ", "", shown.group().rstrip(), flags=re.M))


SNIPPETS = {
    "docs/launch.md": ("kernel(", "kernel.bind("),
    "docs/debugging.md": ("wavedsl.registers.", "report.findings"),
}
"""Pages whose Python stands in the text, without a program around it → what it begins with."""


@pytest.mark.slow
@pytest.mark.parametrize("page", SNIPPETS)
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a kernel and arrays that are called as in the page; torch's graphs are a stand-in."""
    monkeypatch.chdir(tmp_path)
    space = snippet_names(tmp_path)
    text = (ROOT / page).read_text()
    blocks = [re.sub("^    ", "", b, flags=re.M) for b in re.findall(r"(?:^    .*\n)+", text, re.M)]
    inline = re.findall(r"`(wavedsl\.[\w.]+\(.*?\))`", text)
    ran = [b for b in (*blocks, *inline) if re.search("|".join(map(re.escape, SNIPPETS[page])), b)]
    assert len(ran) >= 2
    for block in ran:
        lines = [line for line in block.splitlines() if not line.startswith("wavedsl ")]
        exec(compile("\n".join(lines), page, "exec"), space)


def snippet_names(folder: Path) -> dict[str, object]:
    import contextlib
    import types

    import numpy as np

    import wavedsl.registers

    path = folder / "snippets.py"
    path.write_text(
        "import wavedsl as wd\nN = wd.sym.N\n@wd.wave([wd.WorkgroupConstraint(N, 64, 0)])\n"
        "def kernel(a: wd.Memory[N, wd.f32], b: wd.Memory[N, wd.f32], c: wd.Memory[N, wd.f32],\n"
        "           s: wd.Scalar[wd.f32] = 1):\n"
        "    wd.device_assert(wd.read(a) > 0)\n    wd.write(wd.read(a) * s + wd.read(b), c)\n"
    )
    found: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), found)
    a, b, c = np.zeros(100, np.float32), np.ones(100, np.float32), np.empty(100, np.float32)
    compiled = found["kernel"].compile(a, b, c, target="gfx942")  # type: ignore[attr-defined]
    report = compiled.emulate(a, b, c, checks="report")
    graphs = types.SimpleNamespace(graph=lambda graph: contextlib.nullcontext())
    return {
        **found, "a": a + 1, "b": b, "c": c, "compiled": compiled, "report": report, "wavedsl": wavedsl, "graph": None,
        "torch": types.SimpleNamespace(cuda=graphs),
    }  # fmt: skip


def test_files_that_pages_name_are_there() -> None:
    """By their path from the root, or by its end: pages about a folder name what is below it."""
    inside = [p for p in ROOT.rglob("*") if not {".git", ".venv", "build"} & set(p.relative_to(ROOT).parts)]
    known = "".join(f"/{p.relative_to(ROOT)}{'/' * p.is_dir()}\n" for p in inside)
    for page in PAGES:
        said = re.findall(r"`((?:\w+/)+[\w-]+\.(?:py|md|json|txt)|\w+\.py|(?:\w+/)+)`", page.read_text())
        gone = [name for name in said if f"/{name}\n" not in known]
        assert not gone or page.name == "CHANGELOG.md", (page, gone)  # which says what was


def test_names_are_names() -> None:
    """What the documents say of `wd.` is there."""
    for page in PAGES:
        said = set(re.findall(r"\bwd\.(\w+)", page.read_text()))
        assert not [name for name in said if not hasattr(wd, name)], page


def test_choices_of_a_schedule_are_in_the_guide() -> None:
    text = (ROOT / "docs/guide.md").read_text()
    names = {f.name for f in dataclasses.fields(wd.Schedule)}
    assert {n for n in names if not re.search(rf"\b{n}\b", text)} == set()
    said = {n for page in PAGES for call in re.findall(r"wd\.Schedule\(([^)]*)\)", page.read_text())
            for n in re.findall(r"(\w+)=", call)}  # fmt: skip
    assert said <= names


def test_extras_are_those_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    said = (ROOT / "README.md").read_text().partition("Extras: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", said)) == set(re.findall(r"^(\w+) = \[", project, re.M))


def test_what_the_changelog_says_of_speed_is_measured() -> None:
    """Its ranges are those of docs/measured.md, to two digits."""
    tables = (ROOT / "docs/measured.md").read_text()
    said = (ROOT / "CHANGELOG.md").read_text().partition("### Measured on an H200")[2]

    def ratios(rows: str, column: int) -> list[float]:
        lines = re.findall(rf"^\| (?:{rows}) \|.*$", tables, re.M)
        cells = [line.split("|")[column].strip() for line in lines if line.count("|") > column + 1]
        return [float(cell) for cell in cells if re.fullmatch(r"[\d.]+", cell)]

    for words, rows, column in (
        ("squares", "squares bf16|squares f16", 7),
        ("depths", "depths", 7),
        ("MLP shapes", "mlp up|mlp down", 7),
        ("attention forward", r"forward \| \d+ \| \w+", 8),
        ("row norms and softmax", "softmax|rms_norm", 7),
    ):
        low, high = map(float, re.search(rf"{words} ([\d.]+) to\s+([\d.]+)", said).groups())  # type: ignore[union-attr]
        found = ratios(rows, column)
        assert len(found) >= 6 and abs(min(found) - low) < 0.006, words
        assert abs(max(found) - high) < (0.006 if high < 2 else 0.06), words


def test_the_command_line_is_whole() -> None:
    """docs/commands.md has every command with its options, and no others."""
    import argparse

    rows = re.findall(r"^\| (`.*?) \|.*\| (.*?) ?\|$", (ROOT / "docs/commands.md").read_text(), re.M)
    said = {re.findall(r"\w+", command)[0]: set(re.findall(r"`(-[\w-]+)", options)) for command, options in rows}
    said.pop("WAVEDSL_DEVICE", None)
    choices = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    there = {
        name: {o for a in sub._actions if a.help != argparse.SUPPRESS for o in a.option_strings} - {"-h", "--help"}
        for name, sub in choices.items()
    }
    assert said == there


def test_environment_variables_are_whole() -> None:
    """docs/commands.md lists those that the package reads (WAVEDSL_ALIGN is a macro of its C headers)."""
    folders = ("wavedsl", "tracer", "ir", "codegen", "runtime")
    source = "".join(p.read_text() for folder in folders for p in (ROOT / folder).rglob("*.py"))
    table = "\n".join(re.findall(r"^\| `WAVEDSL.*?\|", (ROOT / "docs/commands.md").read_text(), re.M))
    assert set(re.findall(r"WAVEDSL_\w+", table)) == set(re.findall(r"\bWAVEDSL_[A-Z_]+\b", source)) - {"WAVEDSL_ALIGN"}


@pytest.mark.slow
def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As they stand, on the README's kernel as gemm.py; KERNEL … is that one for small sizes."""
    source = re.search(r"^```python\n(.*?)^a, b =", (ROOT / "README.md").read_text(), re.M | re.S)
    assert source is not None
    (tmp_path / "gemm.py").write_text(source[1])
    monkeypatch.chdir(tmp_path)
    small = "gemm.py:gemm --subs M=256,N=256,K=256 --target gfx942"
    for line in commands():
        line = line.replace("KERNEL --subs M=256,… --target gfx942", small).replace("KERNEL …", small)
        assert main(shlex.split(line.replace("KERNEL", "gemm.py:gemm"))[1:]) == 0, (line, capsys.readouterr().err)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    words = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", words)
    named = re.findall(r"`((?:docs|examples|benchmarks|tests)/[\w/.-]+\.(?:md|py|json|txt))`", words)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    missing += [t for t in named if not (ROOT / t).exists()]
    assert not missing


def commands() -> list[str]:
    """Lines `wavedsl COMMAND …` of the documents, without their remarks; … stands for arguments of one's own."""
    found = []
    for page in PAGES:
        for line in re.findall(r"^(?:    )?(wavedsl [a-z].*)$", page.read_text(), re.M):
            found.append(line.split("   #")[0].split(" # ")[0].strip())
    return found


def test_the_list_of_operations_is_whole() -> None:
    """docs/operations.md names every function of the language, and nothing that is none."""
    text = (ROOT / "docs/operations.md").read_text()
    there = {n for n in wd.__all__ if getattr(getattr(wd, n), "__module__", "") == "wavedsl.language"}
    code = re.findall(r"`@?([a-z]\w+)(?:\([^`]*)?`", "\n".join(x for x in text.splitlines() if x.startswith("|")))
    assert there - set(code) == set()
    assert set(code) - there <= {"acc", "dim"}  # operands


def test_the_reference_is_whole() -> None:
    """docs/reference.md takes in every public name but the element types, which docs/numerics.md has."""
    shown = set(re.findall(r"^\.\. auto\w+:: (\w+)(?:\(\))?$", (ROOT / "docs/reference.md").read_text(), re.M))
    dtypes = {n for n in wd.__all__ if isinstance(getattr(wd, n), wd.DType)} | {"GLOBAL", "SHARED"}
    assert shown == set(wd.__all__) - dtypes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # myst-parser's own, of Sphinx's future
def test_the_site_builds(tmp_path: Path) -> None:
    """Without a warning: no link into nothing, no docstring that Sphinx cannot read."""
    build = pytest.importorskip("sphinx.cmd.build")
    assert build.main(["-q", "-W", "-b", "html", str(ROOT / "docs"), str(tmp_path)]) == 0
    reference = (tmp_path / "reference.html").read_text()
    assert 'id="wavedsl.mma"' in reference and "Contracts the dimensions" in reference


def test_commands_are_commands() -> None:
    lines = commands()
    assert lines
    for line in lines:
        words = [w for w in shlex.split(line.replace("KERNEL", "k.py:k").replace("…", ""))[1:] if w]
        parser().parse_args(words)  # exits where a command or an option is unknown
