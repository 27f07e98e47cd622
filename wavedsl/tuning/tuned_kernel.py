"""`@wd.autotune`: a kernel that looks its tiles up in the results file, and tunes itself where nothing is pinned."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wavedsl.ir.errors import ConstraintError, LaunchError, TraceError
from wavedsl.ir.source import here
from wavedsl.kernel_object import Kernel
from wavedsl.outside import Snapshot
from wavedsl.tuning.candidates import Candidate, check_space, enumerate_space
from wavedsl.tuning.results import ResultsFile, TuningWarning, beside
from wavedsl.tuning.tuner import TuningResult, tune

ON_MISS = ("tune", "default", "raise")


def autotune(
    space: Mapping[Any, Sequence[int]] | None = None,
    *,
    on_miss: str = "tune",
    results: str | Path | None = None,
    reference: Callable[..., Any] | None = None,
    **options: Any,
) -> Callable[[Kernel], TunedKernel]:
    """Decorates a kernel (above `@wd.wave`); gives a `TunedKernel`.

    `space`: values per tile symbol and for `"stages"` (default: derived). `on_miss`: what a call does where nothing is
    pinned for its shapes: `tune` them, take the decorator's own `subs` as `default`, or `raise`; WAVEDSL_STRICT=1
    always raises. `results`: the file (default: beside the source). `options` are those of `tune`: budget, executor, …
    """
    if isinstance(space, Kernel):
        return TunedKernel(space, None, on_miss, results, reference, options)
    if on_miss not in ON_MISS:
        raise ConstraintError(f"autotune: on_miss={on_miss!r}", here(calls=False), hint=f"one of {', '.join(ON_MISS)}")

    def decorate(kernel: Kernel) -> TunedKernel:
        if not isinstance(kernel, Kernel):
            raise TraceError(
                f"@wd.autotune decorates a kernel, not {kernel!r}", here(calls=False), hint="put it above @wd.wave(…)"
            )
        return TunedKernel(kernel, space, on_miss, results, reference, options)

    return decorate


class TunedKernel:
    """A kernel whose free tiles come from tuning. Call it like the kernel; `kernel` is the one underneath."""

    def __init__(
        self,
        kernel: Kernel,
        space: Mapping[Any, Sequence[int]] | None,
        on_miss: str,
        results: str | Path | None,
        reference: Callable[..., Any] | None,
        options: Mapping[str, Any],
    ):
        self.kernel = kernel
        self.space = None if space is None else check_space(kernel, space)
        if self.space is not None and not enumerate_space(self.space):
            raise ConstraintError(f"the search space of {kernel.name} is empty", kernel.loc, hint="give values to try")
        self.on_miss = on_miss
        self.file = ResultsFile(results if results is not None else beside(kernel))
        self.reference = reference
        self.options = dict(options)
        self._choices: dict[tuple[str, str], Candidate | None] = {}
        self._arity = len(kernel.parameters)
        self._dispatch: Any = None
        self._outside: Snapshot | None = None
        self._unchanged: Callable[[], bool] | None = None
        self.__name__ = kernel.__name__
        self.__doc__ = kernel.__doc__
        self.__wrapped__ = kernel

    def __repr__(self) -> str:
        return f"<tuned {self.kernel!r}>"

    def tune(self, *args: Any, **options: Any) -> TuningResult:
        """`wavedsl.tuning.tune` with the decorator's options; `options` go over them."""
        merged = {
            "space": self.space,
            "reference": self.reference,
            "results": self.file.path,
            **self.options,
            **options,
        }
        result = tune(self.kernel, *args, **merged)
        self._choices.pop((result.target, result.bucket), None)
        if self._dispatch is not None:
            self._dispatch.forget()
        return result

    def choice(
        self, *args: Any, target: str | None = None, subs: Mapping[Any, Any] | None = None, **kwargs: Any
    ) -> Candidate:
        """The candidate for these arguments or extents: pinned, or as `on_miss` says. LaunchError, ConstraintError."""
        from wavedsl.runtime import devices
        from wavedsl.tuning.tuner import tuned_extents

        arguments = self.kernel.bind_arguments(args, kwargs) if args or kwargs else None
        dims, _ = tuned_extents(self.kernel, arguments, subs)
        target = target or devices.default().target
        bucket = self.kernel.bucket(dims)
        key = (target, bucket)
        if self._choices.get(key) is None:
            self._choices[key] = self._look_up(target, bucket) or self._miss(dims, target, bucket)
        found = self._choices[key]
        assert found is not None
        return found

    def _look_up(self, target: str, bucket: str) -> Candidate | None:
        entry = self.file.entry(self.kernel, target, bucket)
        if entry is None or entry["pinned"] is None:
            return None
        pinned = Candidate.from_json(entry["pinned"])
        known = {str(s) for s in self.kernel._tile_symbols()} | {str(s) for s in self.kernel.subs}
        strange = [n for n, _ in pinned.subs if n not in known]
        if strange:
            warnings.warn(
                f"{self.file.path}: the pinned choice binds {', '.join(strange)}, which {self.kernel.name} has not",
                TuningWarning,
                stacklevel=3,
            )
            return None
        return pinned

    def _miss(self, dims: Mapping[Any, Any], target: str, bucket: str) -> Candidate:
        from wavedsl.compile_policy import strict

        name = self.kernel.name
        if self.on_miss == "default" and not strict():
            return Candidate(())
        if self.on_miss == "raise" or strict():
            raise LaunchError(
                f"{name} has no pinned choice for {target}, {bucket} in {self.file.path}",
                self.kernel.loc,
                hint=f"tune it first: {name}.tune(…), or wavedsl tune",
            )
        result = self.tune(subs=dict(dims), target=target)
        if result.best is None:
            raise LaunchError(f"{name}: {result.message}", self.kernel.loc, hint="see its results file for the reasons")
        return result.best

    def for_arguments(self, *args: Any, target: str | None = None, **kwargs: Any) -> Kernel:
        """The kernel with the choice for these arguments."""
        return self.kernel.variant(self.choice(*args, target=target, **kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch with the tuned choice for the arguments' bucket."""
        if kwargs or len(args) != self._arity:
            args = self.kernel.in_order(args, kwargs)
        if self._unchanged is not None and not self._unchanged():
            self._refresh()
        way = None if self._dispatch is None else self._dispatch.ways.get(tuple(map(type, args)))
        if way is None or not way(*args):
            self._launch(self.kernel.bind_arguments(args, {}))

    def _launch(self, arguments: dict[str, Any]) -> None:
        """Look the choice up, launch, and remember both."""
        from wavedsl.runtime.dispatch import Dispatch
        from wavedsl.runtime.launch import launch_kernel, target_of

        if self._dispatch is None:
            self._dispatch = Dispatch(self.kernel.buckets)
        chosen = self.for_arguments(**arguments, target=target_of(arguments))
        launch_kernel(chosen, arguments, self._dispatch)
        if self._outside is None:
            self._outside = Snapshot(self.kernel.function)
            self._unchanged = self._outside.unchanged

    def _refresh(self) -> None:
        """Forgets the short ways of calls if what the function reads from outside has changed since."""
        if self._outside is not None and not self._outside.same():
            self._dispatch = self._outside = self._unchanged = None

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """As `Kernel.bind`, with the tuned choice."""
        from wavedsl.runtime.launch import target_of

        arguments = self.kernel.bind_arguments(args, kwargs)
        return self.for_arguments(**arguments, target=target_of(arguments)).bind(**arguments)

    def compile(
        self, *args: Any, target: str | None = None, subs: Mapping[Any, Any] | None = None, **kwargs: Any
    ) -> Any:
        """As `Kernel.compile`, with the tuned choice."""
        choice = self.choice(*args, target=target, subs=subs, **kwargs)
        return self.kernel.variant(choice).compile(*args, target=target, subs=subs, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """As `Kernel.evaluate`: the meaning does not depend on tiles."""
        self.kernel.evaluate(*args, **kwargs)
