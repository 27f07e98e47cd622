"""What the documents show is so: the README's program runs, links lead somewhere, commands are commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import wavedsl as wd
from wavedsl.cli import parser

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
