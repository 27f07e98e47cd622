"""Compiles the fold rules into `fold_matchers.py`: one function per op that tries its rules in order.

In: `fold_rules.RULES`. Out: Python source, committed, so that a compile pays for no parsing. Run
`python -m wavedsl.ir.kernel.fold_compile` to write it. INVARIANT: the committed file is what `source()` returns
(tested).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wavedsl.ir.kernel import fold_rules
from wavedsl.ir.kernel.facts import disjoint
from wavedsl.ir.kernel.fold_rules import BITWISE, RULES, FoldRule
from wavedsl.ir.kernel.kernel_ir import ROWS

CONSTANT_NAMES = frozenset("cdkm")
_VALUE_NAMES = frozenset("xyzp")


class _Emitter:
    """Writes the Python source of one rule: nested tests, then the return."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.bound: set[str] = set()

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def when(self, condition: str) -> None:
        self.line(f"if {condition}:")
        self.depth += 1

    def roots(self, args: list[ast.expr]) -> None:
        """Tests of the root's operands: first what they are, all at once, then what is inside them."""
        conditions = []
        for i, node in enumerate(args):
            if isinstance(node, ast.Call):
                conditions.append(f'n{i} == "{_op(node)}"')
            elif not isinstance(node, ast.Name):
                conditions.append(f'n{i} == "const" and p{i}.attrs["value"] == {ast.literal_eval(node)!r}')
            elif node.id in CONSTANT_NAMES:
                conditions.append(f'n{i} == "const"')
        if conditions:
            self.when(" and ".join(conditions))
        for i, node in enumerate(args):
            if isinstance(node, ast.Call):
                self.inside(node, f"p{i}")
            elif isinstance(node, ast.Name):
                self.name(node, f"a{i}", f"p{i}")

    def name(self, node: ast.Name, value: str, op: str) -> None:
        """Bind a name, or test that it means the same again."""
        name = node.id
        if name in CONSTANT_NAMES:
            if name in self.bound:
                self.when(f'{op}.attrs["value"] == {name}')
            else:
                self.line(f'{name} = {op}.attrs["value"]')
        elif name in self.bound:
            self.when(f"{value} is {name}")
        else:
            self.line(f"{name} = {value}")
        self.bound.add(name)

    def inside(self, call: ast.Call, op: str) -> None:
        """Tests of the operands of a nested op, which is held in the local `op`."""
        args = call.args
        if _op(call) == "cmp":
            assert isinstance(args[0], ast.Name)
            how = args[0].id
            if how in self.bound:
                self.when(f'{op}.attrs["how"] == {how}')
            else:
                self.line(f'{how} = {op}.attrs["how"]')
            self.bound.add(how)
            args = args[1:]
        for i, node in enumerate(args):
            value = f"{op}.args[{i}]"
            plain = isinstance(node, ast.Name) and node.id not in CONSTANT_NAMES
            if plain:
                assert isinstance(node, ast.Name)
                self.name(node, value, "")
                continue
            self.count += 1
            inner = f"q{self.count}"
            self.line(f"{inner} = {value}.op")
            kind = _op(node) if isinstance(node, ast.Call) else "const"
            test = f'{inner} is not None and {inner}.name == "{kind}"'
            if isinstance(node, ast.Call):
                self.when(test)
                self.inside(node, inner)
            elif isinstance(node, ast.Name):
                self.when(test)
                self.name(node, "", inner)
            else:
                self.when(f'{test} and {inner}.attrs["value"] == {ast.literal_eval(node)!r}')


def _op(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Name)
    return BITWISE.get(call.func.id, call.func.id)


class _ToBuilder(ast.NodeTransformer):
    """`add(x, c)` → `b.add(x, c)` for names of ops; helpers stay."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and BITWISE.get(node.func.id, node.func.id) in ROWS:
            target = ast.Attribute(ast.Name("b", ast.Load()), node.func.id, ast.Load())
            return ast.copy_location(ast.Call(target, node.args, []), node)
        return node


def _result_source(rule: FoldRule) -> str:
    tree = ast.parse(rule.result, mode="eval")
    body = tree.body
    is_op = isinstance(body, ast.Call) and isinstance(body.func, ast.Name) and body.func.id not in ("decided",)
    is_value = isinstance(body, ast.Name) and body.id in _VALUE_NAMES
    text = ast.unparse(ast.fix_missing_locations(_ToBuilder().visit(tree)))
    return text if is_op or is_value else f"b.const({text}, t)"


def _orders(pattern: ast.Call) -> list[list[ast.expr]]:
    """The operand orders in which a pattern must be tried."""
    assert isinstance(pattern.func, ast.Name)
    name = _op(pattern)
    args = pattern.args
    if name == "cmp" or not ROWS[name].commutes or len(args) != 2:
        return [args]
    second_const = isinstance(args[1], (ast.Constant, ast.UnaryOp)) or (
        isinstance(args[1], ast.Name) and args[1].id in CONSTANT_NAMES
    )
    plain = all(isinstance(a, ast.Name) for a in args)
    return [args] if second_const or plain else [args, args[::-1]]


def _expand_inner(pattern: ast.Call) -> list[ast.Call]:
    """All forms of the pattern under swapped operands of commutative calls inside it."""
    forms: list[list[ast.expr]] = [[]]
    for arg in pattern.args:
        choices: list[ast.expr] = [arg]
        if isinstance(arg, ast.Call):
            choices = [
                ast.Call(arg.func, list(order), []) for form in _expand_inner(arg) for order in _inner_orders(form)
            ]
        forms = [[*done, choice] for done in forms for choice in choices]
    return [ast.Call(pattern.func, args, []) for args in forms]


def _inner_orders(call: ast.Call) -> list[list[ast.expr]]:
    assert isinstance(call.func, ast.Name)
    name = _op(call)
    args = call.args
    if name == "cmp" or not ROWS[name].commutes or len(args) != 2:
        return [args]
    constant = any(isinstance(a, ast.Constant) or (isinstance(a, ast.Name) and a.id in CONSTANT_NAMES) for a in args)
    return [args] if constant else [args, args[::-1]]


def rule_forms(rule: FoldRule) -> list[ast.Call]:
    """The concrete patterns tried for a rule, one per order of commutative operands."""
    call = ast.parse(rule.pattern, mode="eval").body
    assert isinstance(call, ast.Call)
    forms = []
    for form in _expand_inner(call):
        for order in _orders(form):
            forms.append(ast.Call(form.func, list(order), []))
    unique: dict[str, ast.Call] = {}
    for form in forms:
        unique.setdefault(ast.dump(form), form)
    return list(unique.values())


def root_op(rule: FoldRule) -> str:
    """The op at the root of the rule's pattern."""
    name = rule.pattern[: rule.pattern.index("(")]
    return BITWISE.get(name, name)


def function_source(name: str, rules: list[FoldRule]) -> str:
    """The function that tries the rules (all with the same root op) in order and returns the first result, or None."""
    call = ast.parse(rules[0].pattern, mode="eval").body
    assert isinstance(call, ast.Call)
    how = root_op(rules[0]) == "cmp"
    arity = len(call.args) - how
    params = (["h"] if how else []) + [f"a{i}" for i in range(arity)]
    lines = [f"def {name}(b: Any, t: Any, W: int, {', '.join(f'{p}: Any' for p in params)}) -> Any:"]
    for i in range(arity):
        lines.append(f"    p{i} = a{i}.op")
        lines.append(f'    n{i} = p{i}.name if p{i} is not None else ""')
    for rule in rules:
        lines.append(f"    # {rule.name}: {rule.pattern} -> {rule.result}")
        for form in rule_forms(rule):
            emitter = _Emitter()
            if how and isinstance(form.args[0], ast.Name):
                emitter.bound.add(form.args[0].id)
            emitter.roots(form.args[1:] if how else form.args)
            if rule.condition:
                condition = rule.condition
                for asked in ("regroup", "levels", "settled"):
                    condition = condition.replace(f"{asked}(", f"b._{asked}(")
                emitter.when(condition)
            emitter.line(f"return {_result_source(rule)}")
            lines.extend(emitter.lines)
    lines.append("    return None")
    return "\n".join(lines)


def compile_rules(rules: list[FoldRule]) -> Callable[..., Any]:
    """The function of some rules, ready to call: `(builder, type, width, operands)`, for `cmp` with `how` first."""
    names = {**vars(fold_rules), "disjoint": disjoint, "Any": Any}
    exec(function_source("fold", rules), names)
    return names["fold"]


HEADER = '''# ruff: noqa
# fmt: off
# mypy: ignore-errors
"""Written by `python -m wavedsl.ir.kernel.fold_compile` from the rows of `fold_rules`. Do not edit.

Each function takes builder, result type, width in bits and operands, and returns the value that a rule gives, or None.
"""

from __future__ import annotations

from typing import Any

from wavedsl.ir.kernel.facts import disjoint
from wavedsl.ir.kernel.fold_rules import (
    LAST, MIRROR, NEGATED, covers, decided, digits, drops, exact_reciprocal, exponent, is_const, is_low_mask,
    is_minus_zero, is_plus_zero, is_pow2, movable, no_bits_above, splits, steps_over, stride,
    x_bits,
)
'''


def source() -> str:
    """The text of `fold_matchers.py`."""
    by_op: dict[str, list[FoldRule]] = {}
    for rule in RULES:
        by_op.setdefault(root_op(rule), []).append(rule)
    parts = [HEADER]
    for op, rules in by_op.items():
        parts.append(f"\n\n{function_source(f'fold_{op}', rules)}\n")
    table = "".join(f'    "{op}": fold_{op},\n' for op in by_op)
    parts.append(f"\n\nFOLDERS: dict[str, Any] = {{\n{table}}}\n")
    return "".join(parts)


if __name__ == "__main__":
    Path(fold_rules.__file__).with_name("fold_matchers.py").write_text(source())
