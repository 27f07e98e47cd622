"""docs/measured.md, and its picture, from what was measured on a GPU.

    python benchmarks/measured.py                  writes the page and the picture
    python benchmarks/measured.py --check          fails if they are not what the results give

In: `results/h200.json` of `gpu_session.py`, and beside it `h200_launch.json`, `h200_power.json`, `h200_ranking.json`
where they are. Out: tables in Markdown, nothing that the JSON has not.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from measured_plot import Panel, digest, draw, drawn_from

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "measured.md"
PICTURE = PAGE.with_suffix(".svg")

Rows = Sequence[dict[str, Any]]

BOUND_BY_MEMORY = ("copy", "elementwise", "softmax", "rms_norm", "row_sum", "transpose", "gemv", "skinny", "small_k")
"""Rows of memory-bound kernels whose rate of bytes says how good they are."""


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of a Markdown table; numbers with four digits, None is a dash."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(map(_cell, row))} |"
    yield ""


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _size(row: dict[str, Any]) -> str:
    return " x ".join(map(str, row["size"]))


def environment(session: dict[str, Any]) -> Iterator[str]:
    calls = session["environment"]
    last = calls[-1]
    gpu = last["gpu"]
    commits = ", ".join(dict.fromkeys(call["commit"] for call in calls))
    dates = " and ".join(dict.fromkeys(call["date"][:10] for call in calls))
    yield f"One {gpu['name']} ({', '.join(gpu['driver, power limit, clock'])}), CUDA {gpu['cuda']}, torch"
    yield f"{gpu['torch']}, Triton {gpu['triton']}, Python {last['python']}; {dates}, commits {commits}."
    yield "`benchmarks/results/h200.json` has every row and what each was measured on. Times of products are those of a"
    yield "chip that multiplies without a pause: its 700 W, not its clock of 1980 MHz, limit every provider alike."
    yield "`by turn` has the quartiles of the ratios of slices that the providers of a row took in turn. Attention,"
    yield "rates and host times are of calls before the last (which had no pairs of workgroups left that nobody asks"
    yield "for), gradients of d 256 of the day's first (`h200_earlier.json`)."
    yield ""


def checks(session: dict[str, Any]) -> Iterator[str]:
    for part, what in (
        ("ladder", "rungs from one tile upwards"),
        ("checks", "checks of results"),
    ):
        rows = session[part]
        right = sum(row.get("error", math.inf) <= 1 for row in rows)
        yield f"* {right} of {len(rows)} {what} are right against float64."
    yield ""


def rates(session: dict[str, Any]) -> Iterator[str]:
    rows = [row for row in session["rates"] if "measured" in row]
    yield from table(
        ("probe", "unit", "measured", "assumed before"),
        ((r["probe"], r["unit"], r["measured"], r.get("model")) for r in rows),
    )


def products(session: dict[str, Any]) -> Iterator[str]:
    rows = [row for row in session["gemm"] if "failed" not in row]

    def rate(row: dict[str, Any], name: str) -> float | None:
        return row["flops"] / row["seconds"][name] / 1e12 if name in row["seconds"] else None

    yield from table(
        ("case", "M x N x K", "wavedsl TFLOP/s", "cuBLAS", "Triton tutorial", "Triton TMA", "of cuBLAS", "by turn",
         "of Triton", "tiles"),
        (
            (r["case"], _size(r), *(rate(r, n) for n in ("wavedsl", "cublas", "triton", "triton tma")), r["of_cublas"],
             _turns(r), r["of_triton"], r.get("does", r["tiles"]))
            for r in rows
        ),
    )  # fmt: skip
    for case in dict.fromkeys(row["case"] for row in rows):
        ratios = [row["of_cublas"] for row in rows if row["case"] == case and row["of_cublas"]]
        mean = statistics.geometric_mean(ratios)
        yield f"* {case}: {min(ratios):.3f} of cuBLAS at least, {mean:.3f} by geometric mean."
    yield ""


def _turns(row: dict[str, Any]) -> str | None:
    """The ratio to cuBLAS in each turn; the quartiles of those in slices."""
    slices = row.get("slices", {})
    if "cublas" in slices and "wavedsl" in slices:
        low, _, high = statistics.quantiles([b / a for a, b in zip(slices["wavedsl"], slices["cublas"])], n=4)
        return f"{low:.3f} to {high:.3f}"
    turns = row.get("turns", {})
    if "cublas" not in turns or "wavedsl" not in turns:
        return None
    return " / ".join(f"{theirs / ours:.3f}" for ours, theirs in zip(turns["wavedsl"], turns["cublas"]))


def attention(session: dict[str, Any]) -> Iterator[str]:
    def rate(row: dict[str, Any], name: str) -> float | None:
        return row["flops"] / row[name]["seconds"] / 1e12 if name in row else None

    found = []
    for row in session["attention"]:
        if "failed" in row or "wavedsl" not in row:
            continue
        ours, *others = (rate(row, name) for name in ("wavedsl", "cudnn", "flash"))
        best = max(x for x in others if x)
        kind = "gradients" if row["gradients"] else "forward"
        mask = "causal" if row["causal"] else "full"
        found.append((kind, row["d"], mask, row["keys"], ours, *others, ours / best, row.get("tiles")))
    found.sort(key=lambda r: (r[0], r[1], r[2], r[3]))
    yield from table(
        ("what", "d", "mask", "keys", "wavedsl TFLOP/s", "cuDNN", "torch's flash", "of best", "tiles"), found
    )


def memory(session: dict[str, Any]) -> Iterator[str]:
    def rate(row: dict[str, Any], name: str) -> float | None:
        return row["bytes"] / row[name]["seconds"] / 1e9 if name in row else None

    found = []
    for row in session["memory"]:
        if "wavedsl" not in row:
            continue
        ours, *others = (rate(row, name) for name in ("wavedsl", "torch", "triton"))
        known = [x for x in others if x]
        ratio = ours / max(known) if known else None
        us, shares = row["wavedsl"]["seconds"] * 1e6, (row.get("of_copy"), row.get("of_alike"))
        found.append((row["case"], _size(row), us, ours, *others, ratio, *shares))
    yield from table(
        ("case", "size", "us", "wavedsl GB/s", "torch", "Triton", "of best", "of the copy peak", "of a copy as large"),
        found,
    )


def goals(session: dict[str, Any]) -> Iterator[str]:
    """The lines of the goals, as `gpu_session.py` judges them."""
    sys.path.append(str(HERE))
    import gpu_memory_bound
    import gpu_session

    lines = [*gpu_session.gemm_criteria(session["gemm"]), *gpu_session.attention_criteria(session["attention"])]
    lines += gpu_memory_bound.criteria(session["memory"])
    yield from table(
        ("case", "of", "measured", "asked for", "verdict"),
        (
            (what, of, value, float(least), "not measured" if value is None else "yes" if value >= least else "no")
            for what, of, value, least in lines
        ),
    )


def panels(session: dict[str, Any]) -> list[Panel]:
    """What the picture shows: rates of products in 16 bits, of attention, and of what memory bounds."""

    def grouped(title: str, unit: str, providers: tuple[str, ...], rows: Sequence[tuple[str, str, Any]]) -> Panel:
        counts: dict[str, int] = {}
        for group, _, _ in rows:
            counts[group] = counts.get(group, 0) + 1
        return Panel(title, unit, providers, tuple(r[1] for r in rows), tuple(r[2] for r in rows), (*counts.items(),))

    def products_of(row: dict[str, Any]) -> tuple[str, str, Any]:
        ours, library, *triton = (
            row["flops"] / row["seconds"][name] / 1e12 if name in row["seconds"] else None
            for name in ("wavedsl", "cublas", "triton", "triton tma")
        )
        best = max((x for x in triton if x), default=None)
        return row["case"], _size(row).replace(" ", ""), (ours, library, best)

    def attention_of(row: dict[str, Any]) -> tuple[str, str, Any]:
        rates = (row["flops"] / row[n]["seconds"] / 1e12 if n in row else None for n in ("wavedsl", "cudnn", "flash"))
        group = f"{'gradients' if row['gradients'] else 'forward'}, d {row['d']}"
        return group, f"{row['keys']}{' causal' if row['causal'] else ''}", (*rates,)

    def memory_of(row: dict[str, Any]) -> tuple[str, str, Any]:
        rates = (row["bytes"] / row[n]["seconds"] / 1e12 if n in row else None for n in ("wavedsl", "torch", "triton"))
        return row["case"].replace("_", " "), _size(row).replace(" ", ""), (*rates,)

    def order(row: dict[str, Any]) -> Any:
        return row["gradients"], row["d"], row["causal"], row["keys"]

    multiplied = [products_of(r) for r in session["gemm"] if "failed" not in r]
    attended = [attention_of(r) for r in sorted(session["attention"], key=order) if "wavedsl" in r]
    moved = [memory_of(r) for r in session["memory"] if "wavedsl" in r and r["case"] in BOUND_BY_MEMORY]
    gpu = session["environment"][-1]["gpu"]["name"]
    return [
        grouped(f"Products of 16 bits, {gpu}", "TFLOP/s", ("wavedsl", "cuBLAS", "Triton, best of two"), multiplied),
        grouped("Attention", "TFLOP/s", ("wavedsl", "cuDNN", "torch's flash"), attended),
        grouped("Memory-bound kernels", "TB/s", ("wavedsl", "torch", "Triton"), moved),
    ]


def launches(found: dict[str, Any]) -> Iterator[str]:
    yield from table(
        ("group", "call", "us, median", "us, least"),
        ((r["group"], r["call"], r["us"], r["least_us"]) for r in found["rows"] if "us" in r),
    )


def power(found: dict[str, Any]) -> Iterator[str]:
    rows = sorted((r for r in found["rows"] if "seconds" in r), key=lambda r: (r["size"], r["seconds"]))
    yield from table(
        ("N", "way", "us", "MHz"),
        ((r["size"], r["way"], r["seconds"] * 1e6, "/".join(str(t["megahertz"]) for t in r["turns"])) for r in rows),
    )


def ranking(found: dict[str, Any]) -> Iterator[str]:
    yield from table(
        ("problem", "size", "candidates", "rank correlation", "place of the best by prediction", "kept", "best is kept",
         "best kept is slower by"),
        ((r["problem"], r["size"], r["candidates"], r["correlation"], r["place of the best"], r["kept"],
          "yes" if r["best is kept"] else "no", r["best kept is slower by"]) for r in found["rows"]),
    )  # fmt: skip
    if "again" in found:
        yield f"The same times beside predictions of a later model (commit {found['again'][0]['commit']}):"
        yield ""
        yield from table(
            ("problem", "rank correlation", "place of the best by prediction", "kept", "best kept is slower by"),
            ((r["problem"], r["correlation"], r["place of the best"], r["kept"], r["best kept is slower by"])
             for r in found["again"]),
        )  # fmt: skip


def more(found: dict[str, Any]) -> Iterator[str]:
    """What the session did not come to: each way beside the library's call of the same product."""
    yield f"{found['date'][:10]}, commits {found['commit']}; {found['how']}."
    yield ""
    rivals: dict[Any, float] = {}
    for row in found["rows"]:
        if row["way"].startswith("cuBLAS"):
            rivals.setdefault(_product(row), row["us"])
    yield from table(
        ("dtype", "M x N x K", "numbers", "way", "us", "of cuBLAS", "error", "largest error"),
        ((r["dtype"], _size(r), r["numbers"], r["way"], r["us"], rivals[_product(r)] / r["us"], r.get("error"),
          r.get("largest error")) for r in found["rows"]),
    )  # fmt: skip


def _product(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row of `more` computes."""
    return row["dtype"], tuple(row["size"]), row["numbers"], row["way"].endswith("A^T B")


def _of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row of attention measures."""
    return row["d"], row["keys"], row["causal"], row["gradients"]


def fuzz(found: dict[str, Any]) -> Iterator[str]:
    counts = ", ".join(f"{n} {kind}" for kind, n in sorted(found["counts"].items(), key=lambda item: -item[1]))
    yield f"{found['pairs']} pairs of a drawn kernel and a target (sm_90a, and sm_80 on the same chip) in"
    yield f"{found['seconds']:.0f} s, generator {found['generator']}, commit {found['commit']}: {counts}."
    yield "Those that were not right:"
    yield ""
    shown = [(r["seed"], r.get("target"), r["kind"], r.get("detail", "").splitlines()[0][:110]) for r in found["odd"]]
    yield from table(("seed", "target", "what", "said"), shown)


SECTIONS: Sequence[tuple[str, str, Callable[[dict[str, Any]], Iterator[str]]]] = (
    ("Right or wrong", "h200", checks),
    ("What was asked for", "h200", goals),
    ("Products", "h200", products),
    ("Attention", "h200", attention),
    ("Memory-bound kernels", "h200", memory),
    ("Products of f32, f64 and 8 bits", "h200_more", more),
    ("Products without a pause", "h200_power", power),
    ("Host time of launches", "h200_launch", launches),
    ("The prediction beside an exhaustive search", "h200_ranking", ranking),
    ("Drawn kernels", "h200_fuzz", fuzz),
    ("Rates of the chip", "h200", rates),
)


def _read(results: Path, name: str) -> dict[str, Any] | None:
    path = results / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def session_in(results: Path) -> dict[str, Any]:
    """The last session, with what it did not come to from the one before."""
    session, earlier = _read(results, "h200"), _read(results, "h200_earlier")
    assert session is not None
    if earlier is not None:
        known = {_of(row): row for row in earlier["attention"] if "wavedsl" in row}
        session["attention"] = [r if "wavedsl" in r else known.get(_of(r), r) for r in session["attention"]]
    return session


def page(results: Path) -> str:
    """The page's text."""
    session = session_in(results)
    lines = ["# Measured on an H200", "", "Written by `benchmarks/measured.py`; not to be edited.", ""]
    lines += environment(session)
    lines += [f"![rates beside those of others]({PICTURE.name})", ""]
    for title, name, section in SECTIONS:
        found = session if name == "h200" else _read(results, name)
        if found is not None:
            lines += [f"## {title}", "", *section(found)]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    text, shown = page(HERE / "results"), panels(session_in(HERE / "results"))
    if given.check:
        return int(PAGE.read_text() != text or drawn_from(PICTURE) != digest(shown))
    PAGE.write_text(text)
    draw(shown, PICTURE)
    print(f"written to {PAGE} and {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
