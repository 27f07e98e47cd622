"""Every fold rule is an equality of wrapping integers, and what the builder makes folds no further.

Patterns are evaluated here with plain Python integers; results are built and run by the interpreter. Leaves are kernel
parameters with random ranges, and every thread of a workgroup is one experiment.
"""

import ast
import itertools
import math
import random
import struct

import numpy as np
import pytest
from wavedsl.ir.kernel import fold_compile, fold_matchers
from wavedsl.ir.kernel.build_core import _Frame
from wavedsl.ir.kernel.builder import Builder, new_kernel
from wavedsl.ir.kernel.fold_compile import compile_rules, root_op, rule_forms
from wavedsl.ir.kernel.fold_rules import BITWISE, NEGATED, RULES, FoldRule
from wavedsl.ir.kernel.kernel_eval import evaluate
from wavedsl.ir.kernel.kernel_ir import F32, I32, I64, PRED, ROWS, Op
from wavedsl.ir.kernel.kernel_meaning import CHEAP
from wavedsl.ir.kernel.kernel_passes import rebuild
from wavedsl.ir.kernel.kernel_text import text

SEED = 20250
THREADS = 256
EDGES = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, 255, 256, 4095, 4096, 65535, 65536, 1 << 30, (1 << 31) - 1]
FLOAT_RULES = [r for r in RULES if root_op(r) in ("fmul", "fadd", "fsub", "fdiv", "ffma", "fneg", "fabs")]
PRED_OPS = ("pand", "por", "pxor", "pnot")


def as_signed(v, bits):
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


def meaning(name, args, bits):
    """Plain integers; shift counts outside the width mean nothing and are not generated."""
    mask = (1 << bits) - 1
    u = [a & mask if isinstance(a, int) and not isinstance(a, bool) else a for a in args]
    if name == "cmp":
        how, a, b = args[0], args[1], args[2]
        if how[0] == "u":
            a, b, how = u[1], u[2], "s" + how[1:]
        return {
            "eq": a == b, "ne": a != b, "slt": a < b, "sle": a <= b, "sgt": a > b, "sge": a >= b,
        }[how]  # fmt: skip
    a = args[0]
    b = args[1] if len(args) > 1 else None
    table = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "mulhi_u": lambda: u[0] * u[1] >> bits,
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
        "shl": lambda: a << b,
        "lshr": lambda: u[0] >> b,
        "ashr": lambda: a >> b,
        "min_s": lambda: min(a, b),
        "max_s": lambda: max(a, b),
        "min_u": lambda: min(u[0], u[1]),
        "max_u": lambda: max(u[0], u[1]),
    }
    if name in table:
        return as_signed(table[name](), bits)
    return {
        "select": lambda: args[1] if a else args[2],
        "pand": lambda: a and b,
        "por": lambda: a or b,
        "pxor": lambda: a != b,
        "pnot": lambda: not a,
        "readfirst": lambda: a,
    }[name]()


def value_names(node, types, want):
    """Types of the names in a pattern, from the operands' places."""
    if isinstance(node, ast.Name):
        types.setdefault(node.id, want)
    elif isinstance(node, ast.Call):
        name = BITWISE.get(node.func.id, node.func.id)
        args = node.args[1:] if name == "cmp" else node.args
        for i, a in enumerate(args):
            if name in PRED_OPS or (name == "select" and i == 0):
                value_names(a, types, "pred")
            elif name == "cmp":
                value_names(a, types, "int")
            elif name in ("shl", "lshr", "ashr") and i == 1:
                value_names(a, types, "shift")
            else:
                value_names(a, types, want if name == "select" else "int")


def random_constant(rng, bits):
    v = rng.choice([rng.choice(EDGES), 1 << rng.randrange(bits), (1 << rng.randrange(bits)) - 1, rng.getrandbits(bits)])
    return as_signed(v if rng.random() < 0.7 else -v, bits)


HOWS = ("h", "g")
"""Names of comparisons in patterns."""


def random_leaf(b, rng, index, t, bits):
    """A parameter with random facts, and samples that obey them."""
    kind = rng.randrange(4)
    half = 1 << (bits - 1)
    lo, hi, multiple = -half, half - 1, 1
    if kind == 1:
        lo, hi = 0, rng.choice(EDGES[1:])
    elif kind == 2:
        multiple = 1 << rng.randrange(12)
        lo, hi = 0, multiple * rng.randrange(1, 1 << 12)
    elif kind == 3:
        lo = random_constant(rng, bits - 1)
        hi = min(lo + rng.choice(EDGES[1:]), half - 1)
    facts = {} if kind == 0 else {"lo": lo, "hi": hi, "multiple": multiple}
    pool = [v for v in (*EDGES, *(-e for e in EDGES), lo, hi, lo + 1, hi - 1) if lo <= v <= hi and v % multiple == 0]
    samples = []
    for _ in range(THREADS):
        if pool and rng.random() < 0.4:
            samples.append(rng.choice(pool))
        else:
            first = -(-lo // multiple)
            samples.append(rng.randint(first, max(first, hi // multiple)) * multiple)
    samples = [min(max(s, lo), hi) // multiple * multiple if multiple > 1 else s for s in samples]
    leaf = b.param(index, t, **facts)
    leaf.uniform = rng.random() < 0.5  # in a test every thread may have a number of its own
    b._depth[leaf.id] = rng.randrange(len(b._frames))
    return leaf, np.array(samples, np.int64)


def build(b, node, env, t):
    """The pattern, op by op, without folding: what the compiled matcher is given."""
    if isinstance(node, ast.Name):
        return env[node.id]
    if not isinstance(node, ast.Call):
        return b.const(ast.literal_eval(node), t)
    name = BITWISE.get(node.func.id, node.func.id)
    args = node.args
    attrs = None
    if name == "cmp":
        attrs, args = {"how": env[args[0].id]}, args[1:]
    values = []
    for i, a in enumerate(args):
        values.append(build(b, a, env, I32 if name in ("shl", "lshr", "ashr") and i == 1 else t))
    result = PRED if name in ("cmp", *PRED_OPS) else values[1].type if name == "select" else values[0].type
    return b._pure(name, tuple(values), result, attrs)


def compute(node, env, i, bits):
    if isinstance(node, ast.Name):
        v = env[node.id]
        return v if isinstance(v, (str, bool)) else (int(v[i]) if isinstance(v, np.ndarray) else v)
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    return meaning(BITWISE.get(node.func.id, node.func.id), [compute(a, env, i, bits) for a in node.args], bits)


def attempt(rule, form, rng, bits):
    """One random instance: True if the rule applied and was right, False if it did not apply."""
    t = I32 if bits == 32 else I64
    b = Builder(new_kernel(waves=4))
    b._frames.append(_Frame(b.kernel.body, False))  # two depths, one place: rules may ask for depths
    types = {}
    value_names(form, types, "int")
    values, numbers, inputs = {}, {}, {}
    index = 0
    for name, kind in types.items():
        if name in HOWS:
            continue
        if name in fold_compile.CONSTANT_NAMES:
            if kind == "pred":
                c = rng.random() < 0.5
            elif kind == "shift":
                c = rng.randrange(bits)
            else:
                c = random_constant(rng, bits)
                others = [v for v in numbers.values() if isinstance(v, int) and not isinstance(v, bool)]
                if others and rng.random() < 0.3:
                    c = as_signed(rng.choice(others) + rng.choice((-1, 0, 1)), bits)
            numbers[name] = c
            values[name] = b.const(c, PRED if kind == "pred" else I32 if kind == "shift" else t)
        elif kind == "pred":
            sample = np.array([rng.random() < 0.5 for _ in range(THREADS)])
            raw = b.param(index, I32)
            inputs[index] = sample.astype(np.int64)
            values[name] = b._pure("cmp", (raw, b.const(1)), PRED, {"how": "eq"})
            numbers[name] = sample
            index += 1
        elif kind == "shift":
            values[name], inputs[index] = (
                b.param(index, I32, lo=0, hi=31),
                np.array([rng.randrange(32) for _ in range(THREADS)]),
            )
            numbers[name] = inputs[index]
            index += 1
        else:
            values[name], inputs[index] = random_leaf(b, rng, index, t, bits)
            numbers[name] = inputs[index]
            index += 1
    for name in HOWS:
        if f"cmp({name}" in rule.pattern:
            numbers[name] = values[name] = rng.choice(sorted(NEGATED))
    if rule.name in ("cut zero-extended", "cut sign-extended", "extend positive"):
        pytest.fail("width rules have their own test")
    how = root_op(rule) == "cmp"
    args = form.args[1:] if how else form.args
    built = []
    for i, a in enumerate(args):
        shift = root_op(rule) in ("shl", "lshr", "ashr") and i == 1
        built.append(build(b, a, values, I32 if shift else t))
    only = compile_rules([rule])
    result_type = PRED if root_op(rule) in ("cmp", *PRED_OPS) else t
    result = only(b, result_type, bits, *([values["h"]] if how else []), *built)
    if result is None:
        return False
    got = evaluate(b.kernel, inputs)[result]
    for i in range(THREADS):
        want = compute(form, numbers, i, bits)
        inputs_here = {k: compute(ast.Name(k), numbers, i, bits) for k in numbers}
        assert got[i] == want, (
            f"{rule.name}: {ast.unparse(form)} with {inputs_here} is {want}, the rule says {got[i]} (seed {SEED})"
        )
    return True


WIDTH_RULES = ("cut zero-extended", "cut sign-extended", "extend positive")
INTEGER_RULES = [r for r in RULES if r not in FLOAT_RULES and r.name not in WIDTH_RULES]


@pytest.mark.parametrize("rule", INTEGER_RULES, ids=lambda r: r.name)
def test_integer_rule_is_an_equality(rule):
    rng = random.Random(f"{SEED} {rule.name}")
    applied = 0
    for form in rule_forms(rule):
        for i in range(2500):
            bits = 64 if i % 4 == 3 and "mulhi" not in rule.pattern else 32
            applied += attempt(rule, form, rng, bits)
            if applied >= 5 and i > 8:
                break
    assert applied, f"no random input met the condition of {rule.name}"


def test_a_wrong_rule_is_found():
    wrong = FoldRule("wrong", "add(add(x, c), d)", "", "add(x, c - d)")
    rng = random.Random(SEED)
    with pytest.raises(AssertionError, match="the rule says"):
        for _ in range(20):
            attempt(wrong, rule_forms(wrong)[0], rng, 32)


def test_width_rules():
    b = Builder(new_kernel(waves=4))
    x, y = b.param(0, I32), b.param(1, I32, lo=0)
    assert b.trunc(b.zext(x)) is x and b.trunc(b.sext(x)) is x
    assert b.sext(y).op.name == "zext" and b.sext(x).op.name == "sext"


def f32(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


FLOATS = np.array(
    [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38, 0.1, 3.0, 1e-20],
    np.float32,
)


@pytest.mark.parametrize("rule", FLOAT_RULES, ids=lambda r: r.name)
def test_float_rule_keeps_every_bit(rule):
    """Against the unfolded pattern, over zeros of both signs, infinities, subnormals and random bit patterns."""
    rng = random.Random(f"{SEED} {rule.name}")
    constants = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 4.0, 0.125, -8.0, 3.0]
    applied = 0
    (form,) = rule_forms(rule)[:1]
    for c in constants:
        b = Builder(new_kernel(waves=4))
        inputs = {}
        env = {"c": b.const(c, F32)}
        for i, name in enumerate("xy"):
            bits = [rng.getrandbits(32) for _ in range(THREADS - len(FLOATS))]
            sample = np.concatenate([np.roll(FLOATS, i), np.array(bits, np.uint32).view(np.float32)])
            inputs[i] = sample
            env[name] = b.param(i, F32)
        plain = build(b, form, env, F32)
        only = compile_rules([rule])
        result = only(b, F32, 32, *plain.op.args)
        if result is None:
            continue
        applied += 1
        out = evaluate(b.finish(), inputs)
        got, want = out[result], out[plain]
        nan = np.isnan(want)
        assert np.array_equal(np.isnan(got), nan)
        assert np.array_equal(got[~nan].view(np.uint32), want[~nan].view(np.uint32)), (rule.name, c)
    assert applied


def random_expression(b, rng, leaves, arrays, size):
    """Ops through the builder, and beside each what NumPy makes of the operands without any folding."""
    values, numbers = list(leaves), list(arrays)
    preds, truths = [b.true], [np.ones(THREADS, bool)]
    for _ in range(size):
        op = rng.choice(
            "add add add sub mul and or xor shl lshr ashr min_s max_s min_u max_u cmp select".split()
            + "udiv urem floordiv floormod".split()
        )
        i, j = rng.randrange(len(values)), rng.randrange(len(values))
        x, y, nx, ny = values[i], values[j], numbers[i], numbers[j]
        if rng.random() < 0.5:
            c = random_constant(rng, 32)
            y, ny = b.const(c), np.full(THREADS, c, np.int32)
        if op in ("shl", "lshr", "ashr"):
            s = rng.randrange(32)
            values.append(b.emit(op, (x, s)))
            numbers.append(CHEAP[op](None, nx, np.full(THREADS, s, np.int32)))
        elif op in ("udiv", "urem", "floordiv", "floormod"):
            d = rng.choice([1, 2, 3, 5, 6, 7, 10, 12, 64, 96, 100, 641, 1000, 65537])
            values.append(getattr(b, op)(x, d))
            wide = nx.view(np.uint32).astype(np.int64) if op[0] == "u" else nx.astype(np.int64)
            numbers.append((wide // d if "div" in op else wide % d).astype(np.int32))
        elif op == "cmp":
            how = rng.choice(sorted(NEGATED))
            preds.append(b.cmp(how, x, y))
            truths.append(CHEAP["cmp"](Op("cmp", (), {"how": how}), nx, ny))
        elif op == "select":
            k = rng.randrange(len(preds))
            values.append(b.select(preds[k], x, y))
            numbers.append(np.where(truths[k], nx, ny))
        else:
            values.append(b.emit(op, (x, y)))
            numbers.append(CHEAP[op](None, nx, ny))
    return values + preds, numbers + truths


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions(seed):
    """They equal what NumPy makes of them, every range and known zero holds, building again changes nothing."""
    rng = random.Random(SEED * 100 + seed)
    b = Builder(new_kernel(waves=4, grid=(17, 1, 1)))
    inputs = {}
    leaves = [b.lane(), b.tid(), b.wave(), b.wgid(0)]
    tid, wgid = np.arange(THREADS, dtype=np.int32), np.array([rng.randrange(17) for _ in range(THREADS)], np.int32)
    arrays = [tid % 64, tid, tid // 64, wgid]
    for i in range(3):
        leaf, samples = random_leaf(b, rng, i, I32, 32)
        inputs[i] = samples
        leaves.append(leaf)
        arrays.append(samples.astype(np.int32))
    values, numbers = random_expression(b, rng, leaves, arrays, 60)
    kernel = b.finish()
    with np.errstate(all="ignore"):
        out = evaluate(kernel, inputs, (wgid, 0, 0))
    for v, want in zip(values, numbers):
        assert np.array_equal(out[v], want), (v.op, SEED, seed)
    for v, numbers in out.items():
        if v.lo is not None:
            assert v.lo <= numbers.min() and numbers.max() <= v.hi, (v.op, v.lo, v.hi, SEED)
            assert not (numbers.astype(np.int64) & v.zeros & 0xFFFFFFFF).any(), (v.op, hex(v.zeros), SEED)
            assert v.lo < v.hi or v.const is not None, "a value with one possible value is a constant"
    once = rebuild(kernel, dead_code=False)
    assert text(rebuild(once, dead_code=False)) == text(once)


@pytest.mark.parametrize("join", ["pand", "por"])
def test_two_comparisons_of_one_number(join):
    """Of any two kinds: rules that ask for one kind twice must not take another for it."""
    constants = (-3, 0, 1, 7)
    b = Builder(new_kernel(waves=1))
    x = b.param(0, I32)
    samples = np.array([-(2**31), -4, -3, -2, -1, 0, 1, 2, 6, 7, 8, 2**31 - 1] * 6, np.int32)[:64]
    wanted = []
    for h, g in itertools.product(sorted(NEGATED), repeat=2):
        for c, d in itertools.product(constants, repeat=2):
            both = getattr(b, join)(b.cmp(h, x, c), b.cmp(g, x, d))
            sides = [(h, np.full(64, c, np.int32)), (g, np.full(64, d, np.int32))]
            one, two = (CHEAP["cmp"](Op("cmp", (), {"how": how}), samples, k) for how, k in sides)
            wanted.append((both, one & two if join == "pand" else one | two, (h, c, g, d)))
    out = evaluate(b.finish(), {0: samples})
    for value, want, what in wanted:
        have = out[value] if value.const is None else np.full(64, value.const)
        assert np.array_equal(have, want), what


def test_every_rule_has_a_name_of_its_own_and_a_known_root():
    names = [r.name for r in RULES]
    assert len(set(names)) == len(names)
    assert all(root_op(r) in ROWS for r in RULES)


def test_the_compiled_rules_are_up_to_date():
    with open(fold_matchers.__file__) as file:
        assert file.read() == fold_compile.source(), "run `python -m wavedsl.ir.kernel.fold_compile`"
