"""Attention on a GPU: every option checked first, then times beside torch and Triton, in one run.

    python benchmarks/gpu_attention.py                             on cuda:0; needs torch
    python benchmarks/gpu_attention.py --d 128 --sequence 4096 --triton ~/triton/python/tutorials/06-fused-attention.py
    python benchmarks/gpu_attention.py --budget 900                what fits into 15 minutes of a borrowed chip
    python benchmarks/gpu_attention.py --emulate sm_90a            tiny sizes on the emulator: right or wrong, no times
    python benchmarks/gpu_attention.py --compile sm_90a            full sizes compiled and assembled, nothing runs

First every option of the examples (forward, packed sequences, pages, gradients) runs on fresh random data, with outputs
filled with NaN, and is compared with float64 NumPy. Then heads of each size, causal and full, from 2k to 16k keys:
16384 queries in all, 2048 / d heads, bf16. The forward pass is the fastest right one of `candidates`, the gradients of
`gradient_candidates`: dQ by a kernel of its own, the same bits on every run, or by atomics. What is timed is
checked as well: some rows against float64, and no NaN anywhere. A rate counts 4 d FLOP per query and key that it sees
(10 d for the gradients), over the median time with a cold L2 cache. Beside it: torch's scaled_dot_product_attention by
its cuDNN and flash back ends, and the kernel of Triton's tutorial where `--triton` names the file or `fused_attention`
can be imported. A provider that cannot do a case has no number. A check or case that is wrong, fails, hangs or kills
the context is named and the run ends with an error, but the next one runs (`units`). Rows, GPU, driver, machine and
versions go to results/gpu_attention.json, a picture beside it where matplotlib is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.util
import io
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from wavedsl.ir.symbols import evaluate_int

import wavedsl as wd

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "examples")]

import attention as forward
import record
import units
from attention_checks import Place, checks
from attention_ways import (
    SIZES,
    TOKENS,
    WIDTH,
    Choice,
    Way,
    candidates,
    extents,
    flops,
    forward_kernel,
    gradient_candidates,
    gradient_kernels,
    kernels_of,
)
from rehearsal import Rehearsal

SEQUENCES = (2048, 4096, 8192, 16384)
SAMPLES = 16
"""Rows of what is timed that are compared with float64."""
BOUND = 4e-2
"""How far such a row may be off: bf16 weights and outputs of rows whose values are normal numbers."""
PROVIDERS = ("wavedsl", "cudnn", "flash", "triton")

# -------------------------------------------------------------------------------------------------------------- times


def moved(kernels: Sequence[Any], sizes: dict[Any, int]) -> int:
    """The least bytes that kernels move, counted from their graphs: the arrays of each once per direction."""
    from wavedsl.analysis.arrays import least_bytes

    return sum(least_bytes(kernel.trace(), sizes) for kernel in kernels)


def sampled(arrays: Sequence[np.ndarray], causal: bool, scale: float, rows: Sequence[Any]) -> list[Any]:
    """Rows (batch, head, query) of exact attention."""
    q, k, v = arrays
    out = []
    for b, h, m in rows:
        last = m + 1 if causal else k.shape[2]
        scores = k[b, h, :last].astype(np.float64) @ q[b, h, m].astype(np.float64) * scale
        weights = np.exp(scores - scores.max())
        out.append(weights @ v[b, h, :last].astype(np.float64) / weights.sum())
    return out


class Work:
    """One shape on the GPU: our calls, the others', and whether ours are right."""

    def __init__(self, place: Place, target: str, n: int, d: int, causal: bool, tokens: int = TOKENS):
        self.place, self.causal, self.n, self.d = place, causal, n, d
        self.b, self.h = max(1, tokens // n), max(1, WIDTH // d)
        self.scale = 1 / math.sqrt(d)
        self.variant = forward.Variant(wd.bf16, causal=causal, lse=True)
        torch = place.torch
        shape = self.b, self.h, n, d
        self.q, self.k, self.v, self.d_o = (
            torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4)
        )  # fmt: skip
        self.o, self.d_q, self.d_k, self.d_v = (torch.full_like(self.q, math.nan) for _ in range(4))
        self.lse, self.delta = (torch.full(shape[:3], math.nan, device="cuda") for _ in range(2))
        self.d_q_sums = torch.full(shape, math.nan, device="cuda")
        self.target = target

    @functools.cached_property
    def forward(self) -> Callable[[], Any]:
        """The forward pass in the example's own tiles."""
        return self.bound(candidates(self.target, self.n, self.d, self.causal)[0])

    def bound(self, choice: Choice | Way) -> Callable[[], Any]:
        """The forward pass by one of `candidates`, or the gradients by one of `gradient_candidates`."""
        if isinstance(choice, Way):
            own = {name: getattr(self, name) for name in "q k v o d_o lse delta d_q_sums d_q d_k d_v".split()}
            own["scale"] = np.float32(self.scale)
            kernels = gradient_kernels(self.variant, choice)
            steps = tuple(step.bind(*(own[p.name] for p in step.parameters)) for step in kernels)

            def gradients() -> None:
                for step in steps:
                    step()

            return gradients
        kernel = forward_kernel(self.variant, choice)
        return kernel.bind(self.q, self.k, self.v, self.o, np.float32(self.scale), self.lse)

    def poison(self, gradients: bool) -> None:
        """NaN in all that the forward pass writes, or the gradients' kernels."""
        for x in (self.delta, self.d_q_sums, self.d_q, self.d_k, self.d_v) if gradients else (self.o, self.lse):
            x.fill_(math.nan)

    def error(self, gradients: bool) -> float:
        """The largest difference of sampled rows from float64 over what is allowed; infinite where NaN is left."""
        outputs = (self.d_q, self.d_k, self.d_v) if gradients else (self.o, self.lse)
        if not all(bool(x.isfinite().all()) for x in outputs):
            return math.inf
        if gradients:
            want = self._reference_gradients()
            return max(float((x - y).abs().max() / (BOUND * y.abs().max())) for x, y in want)
        random = np.random.default_rng()
        rows = [tuple(int(random.integers(x)) for x in self.o.shape[:3]) for _ in range(SAMPLES)]
        host = [x.float().cpu().numpy() for x in (self.q, self.k, self.v)]
        exact = sampled(host, self.causal, self.scale, rows)
        got = [self.o[row].double().cpu().numpy() for row in rows]
        return max(float(np.abs(x - y).max()) for x, y in zip(got, exact)) / BOUND

    def _reference_gradients(self) -> list[tuple[Any, Any]]:
        """(ours, float64's by torch) of one head."""
        torch = self.place.torch
        q, k, v = (x[:1, :1].double().requires_grad_() for x in (self.q, self.k, self.v))
        d_o = self.d_o[:1, :1].double()
        scores = q @ k.transpose(-1, -2) * self.scale
        if self.causal:
            scores = scores.masked_fill(torch.ones(self.n, self.n, device="cuda").triu(1).bool(), -math.inf)
        (scores.softmax(-1) @ v).backward(d_o)
        pairs = ((self.d_q, q), (self.d_k, k), (self.d_v, v))
        return [(ours[:1, :1].double(), theirs.grad) for ours, theirs in pairs]

    def others(self, gradients: bool, tutorial: Any) -> dict[str, Callable[[], Callable[[], Any]]]:
        """By provider what makes its call, and raises in its own words where it cannot do this shape."""
        torch = self.place.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        inputs = [x.detach().requires_grad_(gradients) for x in (self.q, self.k, self.v)]

        def sdpa(backend: Any) -> Callable[[], Any]:
            def run() -> Any:
                with sdpa_kernel(backend):
                    return torch.nn.functional.scaled_dot_product_attention(
                        *inputs, is_causal=self.causal, scale=self.scale
                    )

            return run

        def made(call: Callable[[], Any]) -> Callable[[], Any]:
            if not gradients:
                return call
            out = call()
            return lambda: out.backward(self.d_o, retain_graph=True)

        calls = {"cudnn": sdpa(SDPBackend.CUDNN_ATTENTION), "flash": sdpa(SDPBackend.FLASH_ATTENTION)}
        if tutorial is not None:
            calls["triton"] = lambda: tutorial.attention(*inputs, self.causal, self.scale)
        return {name: functools.partial(made, call) for name, call in calls.items()}


class Held:
    """The work of one shape, made when the first unit asks for it."""

    def __init__(self, place: Place, target: str, n: int, d: int, causal: bool, tutorial: Any):
        self.make, self.tutorial = functools.partial(Work, place, target, n, d, causal), tutorial

    @functools.cached_property
    def work(self) -> Work:
        return self.make()


def measure(
    place: Place, target: str, shapes: Sequence[tuple[int, int, bool]], tutorial: Any, done: Any
) -> list[dict[str, Any]]:
    """Rows of times: forward and gradients of every (d, keys, causal)."""
    rows = []
    for d, n, causal in shapes:
        for gradients in (False, True):
            row: dict[str, Any] = {"d": d, "keys": n, "causal": causal, "gradients": gradients}
            b, h = max(1, TOKENS // n), max(1, WIDTH // d)
            row["case"] = ", ".join(["attention", *["causal"] * causal, *["gradients"] * gradients])
            row["size"] = [b, h, n, d]
            row["flops"] = flops(b, h, n, d, causal, gradients)
            row["bytes"] = moved(kernels_of(target, n, d, causal, gradients), extents(n, d))
            key = f"attention {d} {n} {causal} {gradients}"
            choices = gradient_candidates(target, d, causal) if gradients else candidates(target, n, d, causal)
            rows.append(timed(Held(place, target, n, d, causal, tutorial), key, row, choices, done))
            print(text(rows[-1:]).splitlines()[-1], flush=True)
    return rows


def timed(held: Any, key: str, row: dict[str, Any], choices: Sequence[Any], done: Any) -> dict[str, Any]:
    """The row with the error of ours and every provider's times. Every candidate and every provider is a unit of
    `done` (`Units`, or `Kept`). Gradients begin with a forward pass: its output is theirs."""
    gradients = row["gradients"]
    tries = {
        str(c): _unit(done, f"{key} with {c}", functools.partial(trial, held, c, gradients), f"one attention {c}")
        for c in choices
    }
    row["tried"] = {n: t.get("unfit") or t.get("failed") or t.get("seconds") for n, t in tries.items()}
    row["wrong"] = {n: t["error"] for n, t in tries.items() if not t.get("error", 0.0) <= 1}
    right = [n for n, t in tries.items() if t.get("error", math.inf) <= 1]
    if not right:
        whys = [t[what] for what in ("failed", "unfit") for t in tries.values() if what in t]
        return {**row, "failed": (whys or ["no candidate is right"])[0]}
    ours = row["tiles"] = min(right, key=lambda name: tries[name]["seconds"])
    row["error"] = tries[ours]["error"]
    chosen = next((c for c in choices if str(c) == ours), None)

    def unit(name: str) -> tuple[str, Callable[[], dict[str, Any]], str]:
        of = f"{key} by {name}" + (f", {ours}" if name == units.OURS else "")
        return of, functools.partial(provided, held, name, gradients, chosen), f"attention by {name}"

    found, missing, failed = units.by_providers(done, PROVIDERS, unit, turns=2)
    row |= {**found, "missing": missing} if missing else found
    return {**row, "failed": failed} if failed else row


def _unit(done: Any, key: str, work: Callable[[], dict[str, Any]], kind: str = "one attention") -> dict[str, Any]:
    return done.run(key, {}, work, 2 * units.CHECK_LIMIT, ("attention", kind))


def trial(held: Any, choice: Any, gradients: bool) -> dict[str, Any]:
    """Roughly the seconds of a candidate, and its error on outputs filled with NaN; `unfit` and why where it cannot do
    this shape."""
    from wavedsl.testing import bench

    if gradients:
        held.work.forward()
    try:
        call = held.work.bound(choice)
        seconds = bench(call, 0.004, 0.01).median
    except wd.WaveError as error:
        return {"unfit": f"{type(error).__name__}: {error}"}
    held.work.poison(gradients)
    call()
    return {"seconds": seconds, "error": held.work.error(gradients)}


def provided(held: Any, name: str, gradients: bool, choice: Any) -> dict[str, Any]:
    """A provider's times."""
    from wavedsl.testing import bench

    work = held.work
    if name == "wavedsl":
        work.forward()
        call = work.bound(choice)
    else:
        others = work.others(gradients, held.tutorial)
        if name not in others:
            raise NotImplementedError("not at hand")
        call = others[name]()
        call()
    times = bench(call, 0.1, 0.08)  # long enough before for the clock to settle: a first call plans, and the chip rests
    return {"seconds": times.median, "best": times.best, "runs": times.count}


def run_checks(
    done: Any, place: Place, target: str, seed: int, tiny: bool, word: str | None = None
) -> list[dict[str, Any]]:
    """A row per option: whether it is `wrong`, or why there is no result."""
    rows = []
    for name, run in checks(tiny):
        if not skipped(name, target, word):
            print(f"{name}:", flush=True)
            one = functools.partial(lambda run: {"wrong": bool(run(place, target, seed))}, run)
            row = {"check": name, "seed": seed}
            rows.append(done.run(f"attention check {name}", row, one, units.CHECK_LIMIT, ("attention checks",)))
    return rows


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a table: TFLOP/s by provider, and ours over the best of the others."""
    from wavedsl.reports import table

    out = []
    for row in rows:
        rates = [row["flops"] / row[p]["seconds"] / 1e12 if p in row else None for p in PROVIDERS]
        others = [r for r in rates[1:] if r]
        ratio = rates[0] / max(others) if rates[0] and others else None
        what = "gradients" if row["gradients"] else "forward"
        mask = "causal" if row["causal"] else "full"
        said = row.get("error", row.get("failed"))
        out.append((what, row["d"], mask, row["keys"], *rates, ratio, said, row.get("tiles", "")))
    heads = [f"{p} TFLOP/s" for p in PROVIDERS]
    return table(("what", "d", "mask", "keys", *heads, "of best", "error of allowed", "our tiles"), out)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> Path | None:
    """TFLOP/s over the number of keys, a picture per head size and mask, forward above gradients; None without
    matplotlib."""
    from wavedsl.ir.errors import ToolchainError

    from wavedsl.analysis.plot import pyplot

    try:
        plt = pyplot()
    except ToolchainError:
        return None
    if not rows:
        return None
    columns = sorted({(row["d"], row["causal"]) for row in rows})
    kinds = sorted({row["gradients"] for row in rows})
    figure, grid = plt.subplots(
        len(kinds), len(columns), figsize=(3 * len(columns), 3 * len(kinds)), squeeze=False, sharey="row"
    )
    for line, gradients in zip(grid, kinds):
        for axes, (d, causal) in zip(line, columns):
            mine = [r for r in rows if (r["d"], r["causal"], r["gradients"]) == (d, causal, gradients)]
            for provider in PROVIDERS:
                points = [(r["keys"], r["flops"] / r[provider]["seconds"] / 1e12) for r in mine if provider in r]
                if points:
                    axes.plot(*zip(*sorted(points)), marker="o", markersize=3, label=provider)
            axes.set_xscale("log", base=2)
            axes.set_title(f"d {d}, {'causal' if causal else 'full'}{', gradients' if gradients else ''}", fontsize=8)
    grid[0][0].set_ylabel("TFLOP/s")
    grid[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return path


# ---------------------------------------------------------------------------------------------------------------- run


def tutorial_at(path: str | None) -> Any:
    """The module of Triton's tutorial on fused attention: the file, or what can be imported; None without either."""
    if path is None:
        try:
            return importlib.import_module("fused_attention")
        except ImportError:
            return None
    spec = importlib.util.spec_from_file_location("fused_attention", Path(path).expanduser())
    if spec is None or spec.loader is None:
        raise SystemExit(f"--triton {path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_all(
    rehearsal: Rehearsal, shapes: Sequence[tuple[int, int, bool]], word: str | None, timed_only: bool
) -> None:  # fmt: skip
    """Compile every kernel of the checks (`word`: of those whose name has it), and every one that would be timed."""
    target, place = rehearsal.target, Place(rehearsal=rehearsal)

    def checked(run: Any) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            run(place, target, 0)  # whose verdict is of outputs that nobody wrote

    def bound(kernels: Sequence[Any], subs: dict[Any, int]) -> None:
        for kernel in kernels:
            kernel.bind(*empty_arguments(kernel, subs))

    for name, run in () if timed_only else checks(tiny=False):
        if not skipped(name, target, word):
            rehearsal.run(f"check {name}", functools.partial(checked, run), timed=False)
    for d, n, causal in () if word else shapes:
        variant = forward.Variant(wd.bf16, causal=causal, lse=True)
        subs = extents(n, d)
        what = f"d {d}, {n} keys, {'causal' if causal else 'full'}"
        ways = gradient_candidates(target, d, causal)
        units = {f"{what}, gradients, {way}": gradient_kernels(variant, way) for way in ways}
        for choice in candidates(target, n, d, causal):
            units[f"{what}, {choice}"] = [forward_kernel(variant, choice)]
        for name, kernels in units.items():
            rehearsal.run(name, functools.partial(bound, kernels, subs))


def empty_arguments(kernel: Any, subs: dict[Any, int]) -> list[Any]:
    """Arguments of these extents, with nothing in the arrays."""
    found: dict[str, Any] = {}
    for argument in kernel.trace().arguments:
        if argument.dims:
            shape = tuple(evaluate_int(dim, subs) for dim in argument.dims)
            found[argument.name] = np.empty(shape, argument.dtype.storage)
    return [found.get(p.name, np.float32(1.0)) for p in kernel.parameters]


def skipped(name: str, target: str, word: str | None) -> bool:
    """Whether a check is not asked for, or of a product that the chip does not have."""
    return bool(word and word not in name) or ("f8" in name and target in ("gfx90a", "sm_80"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--d", type=int, nargs="*", default=SIZES, help="head sizes to time")
    parser.add_argument("--sequence", type=int, nargs="*", default=SEQUENCES, help="numbers of keys to time")
    parser.add_argument("--triton", metavar="FILE", help="Triton's tutorial on fused attention")
    parser.add_argument("--only", metavar="WORD", help="only checks whose name has this word, and no times")
    parser.add_argument("--seed", type=int, help="of the checks' data (fresh on every run)")
    parser.add_argument("--compile", metavar="TARGET", help="compile all at full sizes, run nothing")
    parser.add_argument("--emulate", metavar="TARGET", help="the checks at tiny sizes on the emulator")
    parser.add_argument("--skip-checks", action="store_true")
    parser.add_argument("--out", type=Path, help="folder of JSON and picture (default: benchmarks/results)")
    units.option(parser)
    given = parser.parse_args(arguments)
    shapes = [(d, n, causal) for d in given.d for causal in (False, True) for n in given.sequence]
    if given.compile:
        rehearsal = Rehearsal(given.compile)
        compile_all(rehearsal, shapes, given.only, given.skip_checks)
        return rehearsal.report()
    torch: Any = None
    if given.emulate:
        os.environ["WAVEDSL_DEVICE"] = f"emulator:{given.emulate}"
        target = given.emulate
    else:
        import torch

        if not torch.cuda.is_available():
            print("no GPU: --emulate TARGET runs tiny sizes without times", file=sys.stderr)
            return 1
        target = "sm_90a" if torch.cuda.get_device_capability()[0] == 9 else "sm_80"
    place = Place(torch)
    seed = int.from_bytes(os.urandom(3), "little") if given.seed is None else given.seed
    print(f"checks with --seed {seed}")
    done = units.Units(
        (given.out or record.HERE / "results") / "gpu_attention.part.json", budget=given.budget, limit=given.limit,
        resume=given.resume, alive=units.alive(torch) if arguments is None else None, keep=torch is not None,
    )  # fmt: skip
    made = [] if given.skip_checks else run_checks(done, place, target, seed, torch is None, given.only)
    wrong = [row for row in made if row.get("wrong", True)]
    for row in wrong:
        print(f"WRONG: {row['check']} {row.get('failed', '')}".rstrip(), file=sys.stderr)
    if torch is None or given.only:
        done.done()
        return 1 if wrong else 0
    rows = measure(place, target, shapes, tutorial_at(given.triton), done)
    print(text(rows))
    path = record.write("gpu_attention", rows, given.out, gpu=record.gpu(torch), checks=made)
    done.done()
    picture = plot([row for row in rows if "failed" not in row], path.with_suffix(".png"))
    print(f"written to {path}" + (f" and {picture}" if picture else ""))
    late = [row for row in rows if not row.get("error", math.inf) <= 1 or row.get("wrong")]
    for row in late:
        print(f"WRONG: {text([row]).splitlines()[-1]}", file=sys.stderr)
    return 1 if wrong or late else 0


if __name__ == "__main__":
    sys.exit(main())
