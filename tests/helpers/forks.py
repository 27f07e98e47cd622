"""Processes of their own that do not pay for the same imports again: a server imports them once and forks for each.

`Forks(modules, environment)` starts the server, `run` runs a script or code as `python` would, with arguments, a folder
and an environment, and gives what `subprocess.run(capture_output=True, text=True)` does. Nothing that one run imports,
sets or leaves behind is seen by another. What is fixed when Python starts is the server's: the seed of hashes, and
`environment`, for what the loader reads (LD_LIBRARY_PATH).

Imported as `forks` (pytest's `pythonpath` lists this folder); as a script it is the server, which imports nothing that
a test may want to find absent: no subprocess, no tempfile.
"""

from __future__ import annotations

import builtins
import importlib
import json
import os
import sys
import types
from typing import Any


class Forks:
    """A server that has imported `modules`."""

    def __init__(self, folder: Any, *modules: str, environment: dict[str, str] | None = None):
        import subprocess

        self.folder = os.path.join(str(folder), "")
        self.server = subprocess.Popen(
            [sys.executable, __file__, *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})},
            cwd="/",
        )  # fmt: skip

    def run(self, *arguments: str, code: str | None = None, cwd: Any = None, env: dict[str, str] | None = None) -> Any:
        """`python *arguments`, the first of which is a script, or `python -c code *arguments`."""
        import subprocess

        told = {"arguments": arguments, "code": code, "cwd": str(cwd or os.getcwd()), "env": env or dict(os.environ),
                "to": self.folder}  # fmt: skip
        assert self.server.stdin is not None and self.server.stdout is not None
        print(json.dumps(told), file=self.server.stdin, flush=True)
        answer = self.server.stdout.readline()
        assert answer, f"the server of forks has ended with {self.server.wait()}"
        texts = []
        for name in ("stdout", "stderr"):
            with open(self.folder + name, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        return subprocess.CompletedProcess([sys.executable, *arguments], int(answer), *texts)

    def close(self) -> None:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()


def serve(modules: list[str]) -> None:
    """Import, then run what is told line by line until the end of standard input."""
    sys.path.pop(0)  # this folder
    for name in modules:
        importlib.import_module(name)
    for line in sys.stdin:
        told = json.loads(line)
        sys.stdout.flush()
        child = os.fork()
        if not child:
            become(told)
            return
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def become(told: dict[str, Any]) -> None:
    """Be a new Python process that runs what is told, as far as the program can see."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(told["to"] + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(told["env"])
    os.chdir(told["cwd"])
    sys.argv = list(told["arguments"])
    source, path = told["code"], "<string>"
    first = ""
    if source is None:
        path = os.path.abspath(sys.argv[0])
        first = os.path.dirname(path)
        with open(path, encoding="utf-8") as file:
            source = file.read()
    else:
        sys.argv.insert(0, "-c")
    sys.path[:0] = [first, *filter(None, told["env"].get("PYTHONPATH", "").split(os.pathsep))]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins)
    if path != "<string>":
        main.__file__ = path
    sys.modules["__main__"] = main
    exec(compile(source, path, "exec"), main.__dict__)


if __name__ == "__main__":
    serve(sys.argv[1:])
