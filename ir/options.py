"""Options by keyword of what a user calls: one that there is none of ends in an error that names the right one.

`with_options` decorates a class or function. Where Python would raise its own TypeError for a call that does not fit
the signature, it raises a ConstraintError at the user's line, which says what else the option may have been: a name of
other kernel languages, or the nearest one of its own. Calls that fit cost nothing but the wrapper.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from wavedsl.ir.called import leave
from wavedsl.ir.errors import ConstraintError, WaveError
from wavedsl.ir.source import here

Made = TypeVar("Made", bound=Callable[..., Any])


def with_options(
    elsewhere: Mapping[str, str] | None = None,
    name: str | None = None,
    example: str = "",
    error: type[WaveError] = ConstraintError,
) -> Callable[[Made], Made]:
    """Decorates a class (its constructor) or a function. `elsewhere`: what others call an option → the option, or a
    phrase that says how it is written here. `name`: how it is called, `wd.` and its own name where None. `example`: a
    call, where parameters' names say too little. `error`: its kind."""

    def decorate(made: Made) -> Made:
        called = name or f"wd.{made.__name__}"
        function: Callable[..., Any] = getattr(made, "__init__") if isinstance(made, type) else made  # noqa: B009

        parameters = [p for p in inspect.signature(function).parameters if p != "self"]

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            try:
                try:
                    return function(*args, **kwargs)
                except TypeError:
                    said = _refusal(called, function, args, kwargs, elsewhere or {}, example)
                    if said is None:  # of what it does, not of how it is called
                        raise
                    message, hint = said
                    raise error(message, here(calls=False), hint) from None
            except Exception as raised:
                leave(raised, parameters, made.__name__)
                raise

        if not isinstance(made, type):
            return checked  # type: ignore[return-value]
        setattr(made, "__init__", checked)  # noqa: B010
        return made

    return decorate


def _refusal(
    called: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    elsewhere: Mapping[str, str],
    example: str,
) -> tuple[str, str] | None:
    """What is said of arguments that do not fit the signature of `function`, and what is right; None where they do."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
        return None
    except TypeError:
        pass
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "loc")]
    places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    given = args[int("self" in signature.parameters) :]
    known = [p.name for p in parameters]
    whole = example or f"{called}({', '.join(_shown(p) for p in parameters)})"
    for key in kwargs:
        if key not in signature.parameters:
            instead = option(key, known, elsewhere)
            return f"{called} has no option {key}", f"{instead}; it has {', '.join(known)}" if instead else whole
    if len(given) > len(places):
        most = f"{len(places)} argument{'s' * (len(places) != 1)}"
        return f"{called} takes at most {most} without names, got {len(given)}", whole
    twice = [n for n in places[: len(given)] if n in kwargs]
    if twice:
        return f"{called} got two values for {twice[0]}", whole
    lacking = [p.name for p in parameters[len(given) :] if p.default is p.empty and p.name not in kwargs]
    return f"{called} lacks {' and '.join(lacking)}", whole


def option(key: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    """What an unknown option is here: `stages=…` for num_stages; empty where nothing is like it."""
    import difflib

    plain = {k.lower().replace("_", ""): k for k in (*elsewhere, *known)}
    found = difflib.get_close_matches(key.lower().replace("_", ""), plain, n=1, cutoff=0.7)
    if not found:
        return ""
    name = plain[found[0]]
    name = elsewhere.get(name, name)
    if name in known:
        return f"{name}=…"
    return "" if name.isidentifier() else name


def _shown(p: inspect.Parameter) -> str:
    """A parameter without its type, as a call gives it."""
    return p.name if p.default is p.empty else f"{p.name}="
