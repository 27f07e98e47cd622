"""Frames that go along time, keys or a vocabulary: recurrences, chunks, pages of keys, loops in loops."""

from __future__ import annotations

from generator.frames import FLOATING, Frames, Value
from generator.program import Do, Let, Type
from generator.state import EXACT, LIMIT, PRODUCTS


class Sequences(Frames):
    """Each method draws a kernel."""

    # ---- recurrences: a state that each step changes and writes

    def time(self) -> tuple[str, str]:
        """The loop's head, perhaps with an end that the kernel reads, and the step's place in memory."""
        head = "T"
        if self.chance(0.35):
            ends = self.numbers(("B",), 0, self.program.sizes["T"] + 1)
            stop = self.number_of(ends, self.one(("", "B: B")) if "B" in self.single else "B: 0")
            head = f"T, stop={stop[0]}"
            if self.chance(0.3):
                head = f"T, start=flag, stop={stop[0]}"
        return head, self.one(("wd.tile_start(T)", "wd.tile_start(T)", "T - 1 - wd.tile_start(T)"))

    single: frozenset[str] = frozenset()
    """Dimensions of which a workgroup has one place."""

    def cell(self) -> None:
        """h[t] from W h[t - 1] and x[t]: a product per step, gates, several outputs."""
        h, count = self.few(8, 16, 20, 32, 33), self.few(1, 2, 5, 16, 19)
        self.begin(T=self.few(1, 2, 3, 6), B=count, H=h, J=h)
        self.single = frozenset()
        self.tile("B", self.few(16, 16, 8, 32), 0)
        self.along("T", 1)
        self.open = ("T", "B")
        gates = self.chance(0.5)
        weights = [self.given(("H", "J"), self.operand, -3, 3) for _ in range(1 + gates)]
        held = [self.put(f"wd.read({w.name})", ("H", "J"), self.operand, 3) for w in weights]
        order, place = self.one(
            ((("T", "B", "H"), "[{}, :, :]"), (("B", "T", "H"), "[:, {}]"), (("T", "B", "H"), "[{}]"))
        )
        x = self.given(order, self.one(("f32", "f16", "i32", "f64")), -9, 9)
        head, t = self.time()
        sums = PRODUCTS[self.operand]
        state = Type(("B", "H"), self.one((sums, sums, "f32")))
        lengths = self.numbers(("B",), 0, self.program.sizes["T"]) if self.chance(0.4) else None
        until = self.number_of(lengths, dims=("B",)) if lengths is not None else None
        start = self.given(("B", "H"), state.dtype, -9, 9) if self.chance(0.5) else None
        first = self.zero(("B", "H"), state.dtype)
        if start is not None:
            first = self.put(f"wd.read({start.name})", ("B", "H"), state.dtype, 9)[0]
        out = self.array(order, self.one((state.dtype, "f16", "i32")), 77, 77)

        def step(old: Value) -> list[str]:
            at = self.name()
            self.body.append(Let(at, Type((), "i32"), t))
            moved = []
            for w in held:
                row = self.as_operand(old)
                text = f"wd.reshape({row[0]}, B, J)"
                acc = self.zero(("B", "H"), sums)
                moved.append(
                    self.product_of((text, Type(("B", "J"), self.operand)), w, acc, ("B", "H"), 33 * 180, sums)
                )
            more = self.put(f"wd.read({x.name}{place.format(at)})", ("B", "H"), x.dtype, 9)
            wide = self.cast_to(more, state.dtype)[0]
            product = self.cast_to((f"small({moved[0][0]})", Type(("B", "H"), sums)), state.dtype)[0]
            new = self.put(f"small({product} + {wide})", ("B", "H"), state.dtype)
            new = self.touched(new, more)
            if gates:
                new = self.put(
                    f"wd.where({moved[1][0]} > {self.few(0, 3)}, {new[0]}, {old[0]})", ("B", "H"), state.dtype
                )
            if until is not None:
                new = self.put(f"wd.where({at} < {until[0]}, {new[0]}, {old[0]})", ("B", "H"), state.dtype)
            text = self.cast_to(new, out.dtype)[0]
            self.write_to(out, text, place.format(at))
            return [new[0]]

        (last,) = self.looped(head, [(state, first)], step)
        self.result(self.touched(last), ("B", "H"), self.one((state.dtype, "f16", "bf16")))

    def memory(self) -> None:
        """A matrix per head that fades, loses and gains an outer product in each step."""
        heads = self.few(1, 1, 2, 3)
        self.begin(
            B=self.few(1, 2, 3),
            H=heads,
            T=self.few(1, 2, 4, 7),
            D=self.few(4, 8, 16, 17, 32),
            E=self.few(8, 16, 24, 33, 64),
        )
        self.single = frozenset("BH")
        self.tile("B", 1, 2)
        self.tile("H", 1, 1)
        if self.chance(0.7):
            self.tile("E", self.few(16, 16, 32, 8), 0, self.few(1, 1, 1, 2))
        self.along("T", 1)
        self.open = ("T", "B")
        front = self.chance(0.5)
        order = ("B", "T", "H") if front else ("B", "H", "T")
        place = "[:, {}]" if front else "[:, :, {}]"
        rows = self.one(("f16", "bf16", "f32", "i8"))
        arrays = {n: self.given((*order, n), rows, -3, 3) for n in ("D", "E")}
        more = [self.given((*order, "D"), self.one((rows, "f32")), -3, 3) for _ in range(self.few(1, 2))]
        dtype = self.one(("f32", "f32", "i32", "f64"))
        state = self.given(("B", "H", "D", "E"), dtype, -9, 9, plain=True)
        self.atomics.add(state.name)
        bonus = (
            self.put(f"wd.read({self.given(('H', 'D'), dtype, -3, 3).name})", ("D",), dtype, 3)
            if self.chance(0.5)
            else None
        )
        head, t = self.time()
        out = self.array((*order, "E"), self.one((dtype, "f16", "f32")), 77, 77)
        matrix = Type(("D", "E"), dtype)
        start = self.put(f"wd.read({state.name})", ("D", "E"), dtype, 9)
        delta = self.chance(0.5)

        def step(old: Value) -> list[str]:
            at = self.name()
            self.body.append(Let(at, Type((), "i32"), t))

            def row(array: str, dim: str, kind: str) -> Value:
                read = self.put(f"wd.read({array}{place.format(at)})", (dim,), kind, 3)
                return self.cast_to(read, dtype)

            key, value = row(arrays["D"].name, "D", rows), row(arrays["E"].name, "E", rows)
            query = row(more[0].name, "D", more[0].dtype)
            now = self.put(f"{key[0]} * {value[0]}", ("D", "E"), dtype, 9)
            seen = old if bonus is None else self.put(f"small({old[0]} + {bonus[0]} * {now[0]})", ("D", "E"), dtype)
            total = self.put(f"wd.sum({seen[0]} * {query[0]}, dim=D)", ("E",), dtype, LIMIT * 3 * 33)
            narrow = self.put(f"small({total[0]})", ("E",), dtype)
            self.write_to(out, self.cast_to(self.touched(narrow), out.dtype)[0], place.format(at))
            gone = f"{old[0]}"
            if delta and len(more) > 1:
                fade = row(more[1].name, "D", more[1].dtype)
                removed = self.put(f"small(wd.sum({old[0]} * {fade[0]}, dim=D))", ("E",), dtype)
                gone = f"{old[0]} - {removed[0]} * {key[0]}"
            elif len(more) > 1:
                fade = row(more[1].name, "D", more[1].dtype)
                gone = f"wd.where({fade[0]} > 0, {old[0]}, 0)"
            return [self.put(f"small({gone} + {now[0]})", ("D", "E"), dtype)[0]]

        (last,) = self.looped(head, [(matrix, start[0])], step)
        if self.chance(0.6):
            self.body.append(Do(f"wd.write({last[0]}, {state.name})"))
        else:
            self.result(last, ("B", "H", "D", "E"), self.one((dtype, "f16")))

    def line(self) -> None:
        """A row of a table from the one before: neighbours by shuffles, a scan along it, the best and its place."""
        s = self.few(1, 5, 16, 33, 64, 70)
        self.begin(B=self.few(1, 2, 4), T=self.few(1, 2, 4, 6), S=s, R=s, L=self.few(3, 20, 50))
        self.single = frozenset("B")
        self.tile("B", 1, 0)
        self.along("T", 1)
        self.open = ("T",)
        dtype = self.one(("i32", "i32", "f32", "i16"))
        ways = ("shuffle", "best", "scan") if s <= 33 else ("shuffle", "scan")
        how = [w for w in ways if self.chance(0.6)] or [self.one(ways)]
        symbol = self.numbers(("B", "S"), 0, 19)
        place = self.put("wd.index(S)", ("S",), "i32", 70)
        mine = self.number_of(symbol, dims=("S",), high=20)
        table = self.given(("T", "B", "L"), dtype, -5, 5)
        moves = self.given(("R", "S"), dtype, -5, 5)
        step_of = self.put(f"wd.read({moves.name})", ("R", "S"), dtype, 5) if "best" in how else None
        head, t = self.time()
        out = self.array(("B", "T", "S"), dtype, 77, 77)
        came = self.array(("T", "B", "S"), self.one(("i32", "i16", "u8")), 77, 77) if "best" in how else None
        row = Type(("S",), dtype)
        first = self.put(f"wd.cast({place[0]} % 7, wd.{dtype})", ("S",), dtype, 7)

        def step(old: Value) -> list[str]:
            at = self.name()
            self.body.append(Let(at, Type((), "i32"), t))
            add = self.put(
                f"wd.read({table.name}, mapping=wd.IndexMapping((S,), {{T: {at}, L: {mine[0]}}}))", ("S",), dtype, 5
            )
            new = old
            if "shuffle" in how:
                for by in self.one(((1,), (1, 2), (2,), (5,))):
                    back = self.chance(0.8)
                    where = f"wd.maximum({place[0]} - {by}, 0)" if back else f"wd.minimum({place[0]} + {by}, S - 1)"
                    ends = f"{place[0]} >= {by}" if back else f"{place[0]} + {by} < S"
                    moved = f"wd.where({ends}, wd.shuffle({old[0]}, {where}, dim=S), -{LIMIT})"
                    new = self.put(f"wd.maximum({new[0]}, {moved})", ("S",), dtype)
            if step_of is not None and came is not None:
                other = self.put(f"wd.reshape({old[0]}, R)", ("R",), dtype)
                both = self.put(f"{other[0]} + {step_of[0]}", ("R", "S"), dtype, 65)
                best = self.put(f"wd.max({both[0]}, dim=R)", ("S",), dtype, 65)
                which = self.put(f"wd.argmax({both[0]}, dim=R)", ("S",), "i32", 70)
                self.write_to(came, self.cast_to(which, came.dtype)[0] if came.dtype != "i32" else which[0], f"[{at}]")
                new = self.put(f"wd.maximum({new[0]}, small({best[0]}))", ("S",), dtype)
            new = self.put(f"small({new[0]} + {add[0]})", ("S",), dtype)
            if "scan" in how:
                op = self.one(("wd.minimum(a, b)", "wd.maximum(a, b)"))
                identity = LIMIT if "min" in op else -LIMIT
                back = self.one(("", ", reverse=True"))
                new = self.put(f"wd.scan({new[0]}, lambda a, b: {op}, {identity}, dim=S{back})", ("S",), dtype)
            new = self.touched(new, add)
            self.write_to(out, new[0], f"[:, {at}]")
            return [new[0]]

        (last,) = self.looped(head, [(row, first[0])], step)
        end = self.put(f"wd.{self.one(('sum', 'max', 'min'))}({last[0]}, dim=S)", (), dtype, LIMIT * 70)
        self.result(end, ("B",))

    # ---- chunks of a sequence, each with the state before it

    def chunks(self) -> None:
        """Causal attention without softmax: what lies before a chunk is a matrix, perhaps with gates and a system."""
        size = self.few(16, 16, 32)
        self.begin(
            B=self.few(1, 2),
            H=self.few(1, 2),
            T=self.few(1, 16, 37, 48, 64),
            D=self.few(16, 16, 20, 32),
            E=self.few(16, 24, 32),
        )
        p = self.program
        p.subs.update(S=size)
        self.single = frozenset("BH")
        self.tile("B", 1, 1)
        self.tile("H", 1, 0)
        self.along("T", size)
        self.open = ("T",)
        sums = PRODUCTS[self.operand]
        order = self.one((("B", "H", "T"), ("B", "T", "H")))
        q, k, v = (self.given((*order, d), self.operand, -1, 1) for d in ("D", "D", "E"))
        gate = self.given(order, self.one(("f32", "i32")), -2, 2) if self.chance(0.5) else None
        out = self.array((*order, "E"), self.one((sums, "f16")), 77, 77)
        state = Type(("D", "E"), sums)
        solve = self.chance(0.4)
        subscript = ", ".join("{0} : {0} + S" if d == "T" else ":" for d in order)
        slices = self.chance(0.5)

        def chunk(old: Value) -> list[str]:
            t = self.put("wd.tile_start(T)", (), "i32", 99)

            def part(array: str, dims: tuple[str, ...], dtype: str, bound: int) -> Value:
                text = f"{array}[{subscript.format(t[0])}{', :' * (len(dims) - 1)}]"
                if not slices:
                    names = "".join(f"{d}, " for d in dims)
                    text = f"{array}, mapping=wd.IndexMapping(({names}), {{T: {t[0]} + wd.index(S)}})"
                return self.put(f"wd.read({text})", dims, dtype, bound)

            query = self.put(f"wd.read({q.name})", ("T", "D"), self.operand, 1)
            keys, values = part(k.name, ("S", "D"), self.operand, 1), part(v.name, ("S", "E"), self.operand, 1)
            scores = self.product_of(query, keys, self.zero(("T", "S"), sums), ("T", "S"), 32)
            causal = f"wd.index(T) {self.one(('>=', '>'))} wd.index(S) + {t[0]}"
            masked = self.put(f"wd.where({causal}, {scores[0]}, 0)", ("T", "S"), sums, 32)
            if gate is not None:
                rows = self.cast_to(self.put(f"wd.read({gate.name})", ("T",), gate.dtype, 2), sums)
                columns = self.cast_to(part(gate.name, ("S",), gate.dtype, 2), sums)
                down = self.put(f"wd.cumsum({rows[0]}, dim=T)", ("T",), sums, 64)
                across = self.put(f"wd.cumsum({columns[0]}, dim=S)", ("S",), sums, 64)
                masked = self.put(f"small({masked[0]} * wd.clamp({down[0]} - {across[0]}, -2, 2))", ("T", "S"), sums)
            before = self.product_of(query, self.as_operand(old), self.zero(("T", "E"), sums), ("T", "E"), 60 * 32)
            stored = self.put(
                f"wd.cast({values[0]}, wd.{sums})" if sums != self.operand else f"{values[0]} * 1", ("S", "E"), sums, 1
            )
            if solve:
                for j in self.one(((0, 1), (0, 3, 9), (2,))):
                    behind = f"wd.where(wd.index(S) > {j}, 1, 0)"
                    behind = behind if sums == "i32" else f"wd.cast({behind}, wd.{sums})"
                    row, column = f"wd.extract({stored[0]}, {{S: {j}}})", f"wd.extract({masked[0]}, {{S: {j}}})"
                    stored = self.put(f"wd.clamp({stored[0]} - {row} * {behind}, -3, 3)", ("S", "E"), sums, 3)
                    masked = self.put(f"small({masked[0]} + {column} * {behind})", ("T", "S"), sums)
            left = self.as_operand(masked)
            after = self.product_of(left, self.as_operand(stored), before[0], ("T", "E"), 60 * 64 * 4)
            self.write_to(out, self.cast_to(self.put(f"small({after[0]})", ("T", "E"), sums), out.dtype)[0])
            new = self.product_of(keys, self.as_operand(stored), old[0], ("D", "E"), LIMIT + 3 * 64)
            return [self.put(f"small({new[0]})", ("D", "E"), sums)[0]]

        (last,) = self.looped("T", [(state, self.zero(("D", "E"), sums))], chunk)
        if self.chance(0.6):
            self.result(last, ("B", "H", "D", "E"), self.one((sums, "bf16")))

    # ---- attention over pages of keys

    def pages(self) -> None:
        """Rows of queries of a head against keys whose pages a table names: windows, sinks, parts of the keys, keys
        in bytes with a scale each; the weights are 1 where a score is the largest, else 0."""
        page = self.few(8, 16, 16, 32)
        self.begin(B=self.few(1, 2, 3), G=self.few(1, 2), R=self.few(1, 4, 16, 17), D=self.few(16, 16, 32, 40), L=page,
                   W=(w := self.few(1, 2, 4, 6)), X=self.few(2, 5, 9))  # fmt: skip
        p = self.program
        p.sizes.update(N=w * page)
        self.single = frozenset("BG")
        self.tile("B", 1, 2)
        self.tile("G", 1, 1)
        parts = self.few(1, 1, 2, 3)
        if parts > 1:
            p.subs["S"] = parts
            p.cut.append("wd.WorkgroupConstraint(S, 1, 0)")
        tile = self.few(16, 32, 32, 64)
        waves = self.few(1, 1, 1, 2)
        p.cut.append(f"wd.TilingConstraint(N, {tile * waves})")
        if waves > 1:
            p.cut.append(f"wd.WaveConstraint(N, {tile})")
        self.open = ("B",)
        if self.operand == "f64":
            self.operand = "f16"
        sums = PRODUCTS[self.operand]
        stored = self.one((self.operand, self.operand, "i8", *(("f8e4m3",) if self.operand in ("f16", "bf16") else ())))
        bound = 3
        q = self.given(("B", "G", "R", "D"), self.operand, -3, 3)
        order = self.one((("X", "L", "G"), ("X", "G", "L")))
        k, v = (self.given((*order, "D"), stored, -bound, bound) for _ in range(2))
        scale = self.given(order, "f16", 1, 2) if stored == "i8" and self.chance(0.6) else None
        table = self.numbers(
            ("B", "W"), self.one((0, -1)), self.one((self.program.sizes["X"] - 1, self.program.sizes["X"]))
        )
        lengths = self.numbers(("B",), 0, self.program.sizes["N"])
        length = self.number_of(lengths, high=200)
        query = self.put(f"wd.read({q.name})", ("R", "D"), self.operand, 3)
        head, last, first = "N", length[0], "0"
        if parts > 1:
            part = self.put(f"({length[0]} + {parts * 8 - 1}) // {parts * 8} * 8", (), "i32", 200)
            first = self.put(f"wd.index(S) * {part[0]}", (), "i32", 600)[0]
            last = self.put(f"wd.minimum({first} + {part[0]}, {length[0]})", (), "i32", 600)[0]
            head = f"N, start={first}, stop={last}"
        elif self.chance(0.7):
            head = f"N, stop={last}"
        window = self.few(0, 0, 5, 20)
        if window and parts == 1 and self.chance(0.5):
            first = self.put(f"wd.maximum({length[0]} - {window}, 0)", (), "i32", 200)[0]
            head = f"N, start={first}, stop={last}"
        sink = self.given(("G", "R"), sums, -9, 9) if self.chance(0.4) else None
        one = Type(("R",), sums)
        low = -9999
        top = one.fill(low)
        total = one.fill(0)
        if sink is not None:
            top, total = self.put(f"wd.read({sink.name})", ("R",), sums, 9)[0], one.fill(1)
        by_page = self.chance(0.7)

        def keys(acc_top: Value, count: Value, acc: Value) -> list[str]:
            number = f"wd.read({table.name}, mapping=wd.IndexMapping((N,), {{W: N // {page}}}))" if by_page else ""
            if not by_page:
                number = f"wd.read({table.name}, mapping=wd.IndexMapping((N,), {{W: wd.index(N) // {page}}}))"
            where = self.put(number, ("N",), table.dtype, 20)
            seen = f"(wd.index(N) < {last})"
            if parts > 1 or "start" in head:
                seen = f"{seen} & (wd.index(N) >= {first})"
            if window:
                seen = f"{seen} & (wd.index(N) + {window} >= {length[0]})"

            def rows(array: str, dtype: str) -> Value:
                mapping = f"wd.IndexMapping((N, D), {{X: {where[0]}, L: N % {page}}})"
                name = self.name()
                self.body.append(Let(name, Type(("N", "D"), dtype, bound), f"wd.read({array}, mapping={mapping})"))
                text, kind = name, Type(("N", "D"), dtype, bound)
                if dtype != self.operand:
                    text, kind = f"wd.cast({text}, wd.{self.operand})", Type(("N", "D"), self.operand, bound)
                if scale is not None:
                    factor = f"wd.read({scale.name}, mapping=wd.IndexMapping((N,), {{X: {where[0]}, L: N % {page}}}))"
                    factor = factor if self.operand == "f16" else f"wd.cast({factor}, wd.{self.operand})"
                    text, kind = f"{text} * {factor}", Type(kind.dims, kind.dtype, 2 * bound)
                return self.put(text, kind.dims, kind.dtype, kind.bound)

            scores = self.product_of(query, rows(k.name, stored), self.zero(("R", "N"), sums), ("R", "N"), 3 * 6 * 40)
            if self.chance(0.3):
                cap = self.put(f"wd.clamp({scores[0]}, -40, 40)", ("R", "N"), sums, 40)
                scores = self.touched(cap)
            mask = self.put(seen, ("N",), "i1", 1)
            scores = self.put(f"wd.where({mask[0]}, {scores[0]}, {low})", ("R", "N"), sums, -low)
            higher = self.put(f"wd.maximum({acc_top[0]}, wd.max({scores[0]}, dim=N))", ("R",), sums, -low)
            form = self.one(("wd.where({} == {}, 1.0, 0.0)", "wd.round(wd.exp2(({} - {}) * 20.0))"))
            weight = self.put(f"wd.where({mask[0]}, {form.format(scores[0], higher[0])}, 0.0)", ("R", "N"), sums, 1)
            keep = self.put(form.format(acc_top[0], higher[0]), ("R",), sums, 1)
            more = self.put(f"{count[0]} * {keep[0]} + wd.sum({weight[0]}, dim=N)", ("R",), sums, 300)
            faded = self.put(f"{acc[0]} * {keep[0]}", ("R", "D"), sums, 2000)
            new = self.product_of(self.as_operand(weight), rows(v.name, stored), faded[0], ("R", "D"), 2000)
            return [higher[0], more[0], new[0]]

        top, count, acc = self.looped(
            head, [(Type(("R",), sums, -low), top), (Type(("R",), sums, 300), total), (Type(("R", "D"), sums, 2000),
             self.zero(("R", "D"), sums))], keys,
        )  # fmt: skip
        outer = ("B", "G", "S") if parts > 1 else ("B", "G")
        mean = self.put(f"wd.where({count[0]} > 0, wd.floor({acc[0]} / {count[0]}), 0)", ("R", "D"), sums, 6)
        self.result(mean, (*outer, "R", "D"), self.one((sums, self.operand)))
        if self.chance(0.6):
            self.result((f"wd.where({count[0]} > 0, {top[0]}, {low})", Type(("R",), sums)), (*outer, "R"))
        if self.chance(0.3):
            self.result((f"wd.cast({count[0]}, wd.i32)", Type(("R",), "i32")), (*outer, "R"))

    # ---- loops in loops

    def vocabulary(self) -> None:
        """Logits that are never stored: a loop over a vocabulary with a loop of products in it; the best, a total, the
        chosen one; a second pass writes, or adds what comes of it. The inner loop's bounds may be numbers."""
        self.begin(M=self.few(1, 7, 16, 20, 40), U=self.few(1, 16, 33, 64, 70), K=self.few(1, 16, 17, 40, 64))
        p = self.program
        self.tile("M", self.few(16, 16, 32), 0, self.few(1, 1, 2))
        self.along("U", self.few(16, 32, 32))
        self.along("K", self.few(16, 16, 32))
        self.open = ("M", "U", "K")
        sums = PRODUCTS[self.operand]
        x, w = (
            self.given(("M", "K"), self.operand, -3, 3),
            self.given(self.one((("U", "K"), ("K", "U"))), self.operand, -3, 3),
        )
        label = self.number_of(self.numbers(("M",), -1, p.sizes["U"] - 1), dims=("M",), high=100)
        inner = "K"
        if self.chance(0.4):
            ends = ("stop=wd.tile_stop(U)", "start=wd.tile_start(U)", "start=flag * 16", "stop=40 - flag * 8")
            inner = f"K, {self.one(ends)}"
        apart = inner != "K"

        def logits() -> Value:
            def products(acc: Value) -> list[str]:
                a = self.put(f"wd.read({x.name})", ("M", "K"), self.operand, 3)
                b = self.put(f"wd.read({w.name})", tuple(w.dims), self.operand, 3)
                return [self.product_of(a, b, acc[0], ("M", "U"), 9 * 64)[0]]

            kind = Type(("M", "U"), sums, 9 * 64)
            (z,) = self.looped(inner, [(kind, kind.fill(0))], products)
            return self.put(f"small({z[0]})", ("M", "U"), sums) if self.chance(0.5) or apart else z

        column = Type(("M",), sums, 99999)
        want = [w for w in ("top", "which", "total", "chosen") if self.chance(0.7)] or ["total"]
        kinds = {"top": column, "which": Type(("M",), "i32"), "total": column, "chosen": column}
        starts = {
            "top": column.fill(-999),
            "which": kinds["which"].fill(-1),
            "total": column.fill(0),
            "chosen": column.fill(0),
        }
        if "which" in want and "top" not in want:
            want.insert(0, "top")

        def tiles(*carried: Value) -> list[str]:
            old = dict(zip(want, carried))
            z = self.touched(logits())
            found = {}
            if "top" in old:
                high = self.put(f"wd.max({z[0]}, dim=U)", ("M",), sums, 999)
                found["top"] = self.put(f"wd.maximum({old['top'][0]}, {high[0]})", ("M",), sums, 999)[0]
                if "which" in old:
                    at = self.put(f"wd.argmax({z[0]}, dim=U)", ("M",), "i32", 100)
                    new = f"wd.where({high[0]} > {old['top'][0]}, {at[0]}, {old['which'][0]})"
                    found["which"] = self.put(new, ("M",), "i32", 100)[0]
            if "total" in old:
                found["total"] = self.put(f"{old['total'][0]} + wd.sum({z[0]}, dim=U)", ("M",), sums, 99999)[0]
            if "chosen" in old:
                mine = f"wd.where(wd.index(U) == {label[0]}, {z[0]}, 0)"
                found["chosen"] = self.put(f"{old['chosen'][0]} + wd.sum({mine}, dim=U)", ("M",), sums, 99999)[0]
            return [found[w] for w in want]

        ends = dict(zip(want, self.looped("U", [(kinds[w], starts[w]) for w in want], tiles)))
        for value in ends.values():
            self.result(value, ("M",))
        if not self.chance(0.5) or apart:
            return
        wide = self.array(("M", "U"), self.one((sums, "f16", "i8")), 77, 77) if self.chance(0.6) else None
        spread = None
        if wide is None or self.chance(0.3):
            spread = self.array(("U", "K"), sums, 3, 3)
            spread.spread = "plain"
            self.atomics.add(spread.name)
        rest = ends.get("top", ends.get("total"))

        def gradient() -> list[str]:
            z = logits()
            if rest is not None:
                z = self.put(f"small({z[0]} - {rest[0]})", ("M", "U"), sums)
            z = self.put(f"small(wd.where(wd.index(U) == {label[0]}, {z[0]} + 1, {z[0]}))", ("M", "U"), sums)
            if wide is not None:
                self.write_to(wide, self.cast_to(z, wide.dtype)[0])
            if spread is not None:

                def rows() -> list[str]:
                    a = self.put(f"wd.read({x.name})", ("M", "K"), self.operand, 3)
                    made = self.product_of(self.as_operand(z), a, self.zero(("U", "K"), sums), ("U", "K"), 180 * 64)
                    self.body.append(Do(f"wd.atomic_add({made[0]}, {spread.name})"))
                    return []

                self.looped("K", [], rows)
            return []

        self.looped("U", [], gradient)


assert set(FLOATING) <= set(EXACT)
