"""Frames whose places or bounds are read: groups of rows, segments, blocks; windows; narrow results with their scales;
counts, searches; parts of a sum that the last workgroup adds; rows that exchange their elements in steps.
"""

from __future__ import annotations

from generator.frames import Frames, Value, ceiling
from generator.program import Array, Block, Do, Let, Type
from generator.state import LIMIT, PRODUCTS


class Groups(Frames):
    """Each method draws a kernel."""

    # ---- rows of groups

    def ends_of(self, group: str, most: int, last: int) -> tuple[Value, Value]:
        """Where a group's rows begin and end; some are empty, some go beyond the array."""
        begins, counts = self.numbers((group,), 0, last), self.numbers((group,), 0, most)
        places = self.one(("", f"{group}: {group}"))
        first, count = self.number_of(begins, places, high=last), self.number_of(counts, places, high=most)
        return first, self.put(f"{first[0]} + {count[0]}", (), "i32", last + most)

    def segments(self) -> None:
        """A loop over each group's rows: sums, the largest and where it is, products with what is carried."""
        self.begin(G=self.few(1, 2, 5), X=self.few(1, 20, 70), D=self.few(1, 7, 16, 40, 64), N=self.few(16, 33, 64))
        p = self.program
        self.tile("G", 1, 1)
        dense = self.chance(0.5)
        if not dense and self.chance(0.6):
            self.tile("D", self.few(16, 64, 32), 0)
        elif dense and self.chance(0.6):
            self.tile("N", self.few(16, 32), 0, self.few(1, 1, 2))
        self.along("L", self.few(8, 16, 32))
        p.subs["L"] = p.sizes["X"]
        self.open = ("G", "X")
        first, last = self.ends_of("G", p.sizes["X"] + 3, p.sizes["X"])
        dtype = self.operand if dense else self.one(("f32", "f16", "i32", "i16", "f64"))
        x = self.given(("X", "D") if self.chance(0.85) else ("D", "X"), dtype, -9, 9)
        direct = self.chance(0.5)
        head = f"L, start={first[0]}, stop={last[0]}" if direct else f"L, start=0, stop={last[0]} - {first[0]}"
        sums = PRODUCTS.get(dtype, dtype) if dense else dtype
        ways = ["product"] if dense else [w for w in ("sum", "top", "which", "count") if self.chance(0.6)] or ["sum"]
        if "which" in ways and "top" not in ways:
            ways.insert(0, "top")
        other = self.given(("X", "N"), dtype, -3, 3) if dense else None
        kinds = {
            "sum": Type(("D",), "f64" if dtype == "f64" else "i32" if dtype[0] == "i" else "f32", 9 * 80),
            "top": Type(("D",), dtype), "which": Type(("D",), "i32", 99), "count": Type((), "i32", 99),
            "product": Type(("D", "N"), sums, 27 * 80),
        }  # fmt: skip
        starts = {"top": kinds["top"].fill(-LIMIT), "which": kinds["which"].fill(-1)}

        def rows(*carried: Value) -> list[str]:
            old, found = dict(zip(ways, carried)), {}
            at = self.put("wd.index(L)" if direct else f"wd.index(L) + {first[0]}", ("L",), "i32", 200)
            mine = f"({at[0]} >= {first[0]}) & ({at[0]} < {last[0]})" if direct else f"{at[0]} < {last[0]}"
            mask = self.put(mine, ("L",), "i1", 1)
            place = f"wd.where({mask[0]}, {at[0]}, -1)"
            if not self.chance(0.7):
                place = at[0]
            dims = ("L", "D")
            value = self.put(f"wd.read({x.name}, mapping=wd.IndexMapping((L, D), {{X: {place}}}))", dims, dtype, 9)
            value = self.touched(value)
            if other is not None:
                right = self.put(
                    f"wd.read({other.name}, mapping=wd.IndexMapping((L, N), {{X: {place}}}))", ("L", "N"), dtype, 3
                )
                left = self.put(f"wd.where({mask[0]}, {value[0]}, 0)", dims, dtype, value[1].bound)
                acc = old["product"]
                if value[1].bound > 9:
                    left = self.put(f"wd.clamp({left[0]}, -9, 9)", dims, dtype, 9)
                return [self.product_of(left, right, acc[0], ("D", "N"), 27 * 80, sums)[0]]
            if "sum" in old:
                wide = self.cast_to((f"wd.where({mask[0]}, {value[0]}, 0)", value[1]), kinds["sum"].dtype)[0]
                found["sum"] = self.put(
                    f"{old['sum'][0]} + wd.sum({wide}, dim=L)", ("D",), kinds["sum"].dtype, 60 * 80
                )[0]
            if "top" in old:
                low = self.put(f"wd.where({mask[0]}, {value[0]}, -{LIMIT})", dims, dtype)
                high = self.put(f"wd.max({low[0]}, dim=L)", ("D",), dtype)
                found["top"] = self.put(f"wd.maximum({old['top'][0]}, {high[0]})", ("D",), dtype)[0]
                if "which" in old:
                    best = f"wd.cast(wd.argmax({low[0]}, dim=L), wd.i32)"
                    new = f"wd.where({high[0]} > {old['top'][0]}, {best}, {old['which'][0]})"
                    found["which"] = self.put(new, ("D",), "i32", 99)[0]
            if "count" in old:
                number = f"wd.sum(wd.cast({mask[0]}, wd.i32), dim=L)"
                found["count"] = self.put(f"{old['count'][0]} + {number}", (), "i32", 99)[0]
            return [found[w] for w in ways]

        first_of = [(kinds[w], starts.get(w, kinds[w].fill(0))) for w in ways]
        for w, value in zip(ways, self.looped(head, first_of, rows)):
            if w == "count":
                self.result(value, ("G",))
                continue
            value = (
                self.touched((f"small({value[0]})", Type(value[1].dims, value[1].dtype))) if self.chance(0.3) else value
            )
            self.result(value, ("G", *value[1].dims))

    def experts(self) -> None:
        """Rows that a table gives to each group, times the group's matrix, added up or written where they came from."""
        rows = self.few(8, 16, 16, 32)
        self.begin(
            G=self.few(1, 2, 4),
            S=(s := self.few(1, 20, 50, 64)),
            N=self.few(7, 16, 48, 80),
            K=self.few(8, 16, 33, 64),
            E=self.few(1, 3),
        )
        p = self.program
        p.subs["M"] = rows
        self.tile("G", 1, 1)
        self.tile("N", self.few(16, 32, 64), 0, self.few(1, 1, 2))
        self.along("K", self.few(16, 32))
        self.open = ("S", "K", "N", "G")
        stored = self.one((self.operand, self.operand, self.operand, "i8", "u4"))
        sums = PRODUCTS[self.operand]
        x = self.given(("S", "K"), self.operand, -3, 3)
        if stored == "u4":
            p.sizes["K"] += p.sizes["K"] % 2
        w = self.given(("E", "N", "K") if stored == "u4" or self.chance(0.7) else ("E", "K", "N"), stored, -3, 3)
        if stored == "u4":
            w.spread, w.low, w.high = "plain", -8, 7
        expert = self.number_of(self.numbers(("G",), 0, p.sizes["E"] - 1), self.one(("", "G: G")), high=4)
        written = self.chance(0.3)
        table = self.numbers(("G", "M"), -1, s)
        table.dims = ("G", "M")
        place = self.number_of(table, dims=("M",), high=70)
        if written:  # places of their own
            place = self.exactly(f"wd.index(M) * {p.sizes['G']} + wd.index(G)", ("M",), "i32", 200)
        factor = self.given(("G", "M"), sums, -3, 3) if self.chance(0.5) else None
        scale = self.given(("E", "N"), "f16" if self.operand == "f16" else sums, 1, 2) if self.chance(0.4) else None
        kind = Type(("M", "N"), sums, 45 * 3 * 64)
        lasts = self.chance(0.3)
        head = "K"
        if lasts:
            head = f"K, stop={self.number_of(self.numbers(('E',), 0, p.sizes['K']), f'E: {expert[0]}', high=70)[0]}"

        def products(acc: Value) -> list[str]:
            a = self.put(
                f"wd.read({x.name}, mapping=wd.IndexMapping((M, K), {{S: {place[0]}}}))", ("M", "K"), self.operand, 3
            )
            mapping = f"wd.IndexMapping((N, K), {{E: {expert[0]}}})"
            name = self.name()
            dims = ("N", "K")
            self.body.append(Let(name, Type(dims, stored, 15), f"wd.read({w.name}, mapping={mapping})"))
            b: Value = (name, Type(dims, stored, 15 if stored == "u4" else 3))
            if stored != self.operand:
                b = self.put(f"wd.cast({name}, wd.{self.operand})", dims, self.operand, b[1].bound)
                if self.chance(0.4):
                    b = self.put(f"{b[0]} - 8" if stored == "u4" else f"{b[0]} * 2", dims, self.operand, 15)
            return [self.product_of(a, b, acc[0], ("M", "N"), kind.bound, sums)[0]]

        (product,) = self.looped(head, [(kind, kind.fill(0))], products)
        value = product
        if factor is not None:
            value = self.put(f"{value[0]} * wd.read({factor.name})", ("M", "N"), sums, 3 * kind.bound)
        if scale is not None:
            by = f"wd.read({scale.name}, mapping=wd.IndexMapping((N,), {{E: {expert[0]}}}))"
            by = by if scale.dtype == sums else f"wd.cast({by}, wd.{sums})"
            value = self.put(f"small({value[0]} * {by})", ("M", "N"), sums)
        value = self.put(f"small({value[0]})", ("M", "N"), sums)
        value = self.touched(value)
        mapping = f"wd.IndexMapping((M, N), {{S: {place[0]}}})"
        if written:
            self.result(value, ("S", "N"), self.one((sums, "f16")), mapping)
            return
        out = Array(f"bins{len(self.atomics)}", ("S", "N"), self.one((sums, "i32")) if sums != "f64" else "f64", 0, 0)
        p.arrays.append(out)
        self.atomics.add(out.name)
        text = value[0] if out.dtype == sums else f"wd.cast({value[0]}, wd.i32)"
        self.body.append(Do(f"wd.atomic_add({text}, {out.name}, mapping={mapping})"))

    def sparse(self) -> None:
        """Blocks of a matrix that a list names: their columns' rows of the other operand, by numbers per block."""
        size = self.few(8, 16, 32)
        blocks = self.few(1, 3, 6)
        self.begin(X=blocks, I=self.few(1, 2, 4), N=self.few(7, 16, 50, 64), Y=self.few(1, 3, 4) * size)
        p = self.program
        p.sizes.update(R=size, S=size)
        p.subs["K"] = size * blocks
        self.tile("I", 1, 0)
        self.tile("N", self.few(16, 32, 64), 1, self.few(1, 1, 2))
        self.along("K", self.one((size, size, 2 * size)))
        sums = PRODUCTS[self.operand]
        first, last = self.ends_of("I", 3, blocks)
        values, x = self.given(("X", "R", "S"), self.operand, -3, 3), self.given(("Y", "N"), self.operand, -3, 3)
        column = self.numbers(("X",), 0, p.sizes["Y"] // size - 1)
        kind = Type(("R", "N"), sums, 9 * 300)

        def products(acc: Value) -> list[str]:
            at = self.number_of(column, f"X: K // {size}", ("K",), 9)
            a = self.put(f"wd.read({values.name}, mapping=wd.IndexMapping((R, K), {{X: K // {size}, S: K % {size}}}))",
                         ("R", "K"), self.operand, 3)  # fmt: skip
            rows = f"wd.IndexMapping((K, N), {{Y: {at[0]} * {size} + wd.index(K) % {size}}})"
            b = self.put(f"wd.read({x.name}, mapping={rows})", ("K", "N"), self.operand, 3)
            if self.chance(0.3):
                b = self.put(f"wd.clamp({self.touched(b)[0]}, -3, 3)", ("K", "N"), self.operand, 3)
            return [self.product_of(a, b, acc[0], ("R", "N"), kind.bound, sums)[0]]

        (found,) = self.looped(
            f"K, start={first[0]} * {size}, stop={last[0]} * {size}", [(kind, kind.fill(0))], products
        )
        self.result(found, ("I", "R", "N"), self.one((sums, sums, "f16")))

    # ---- results of several dtypes

    def quantised(self) -> None:
        """Rows with the power of two that brings them into a narrow dtype; the factor, flags, counts beside them."""
        n = self.few(1, 16, 33, 64, 100, 200) if self.chance(0.5) else self.few(16, 64, 128, 256)
        self.begin(M=self.few(1, 3, 8, 20, 33), N=n)
        p = self.program
        self.tile("M", self.few(4, 8, 2, 16) if n < 129 else 2, 0, self.few(1, 1, 2, 4))
        loop = self.chance(0.3)
        if loop:
            self.along("N", self.few(16, 32, 64))
        self.open = ("M", "N") if loop else ("M",)
        dtype = self.one(("f32", "f16", "bf16", "f32", "f64"))
        x = self.given(("M", "N"), dtype, -60, 60)
        add = self.given(("N",), dtype, -9, 9) if self.chance(0.5) else None
        block = next((b for b in (32, 16, 8) if n % b == 0 and n > b), 0) if not loop and self.chance(0.5) else 0
        narrow = self.one(("i8", "i8", "f8", "i4", "u8"))
        if narrow == "i4" and n % 2:
            narrow = "i8"
        if narrow == "f8":
            narrow = self.one(("f8e4m3", "f8e5m2"))

        def row() -> Value:
            value = self.put(f"wd.read({x.name})", ("M", "N"), dtype, LIMIT)
            if add is not None:
                value = self.put(f"small({value[0]} + wd.read({add.name}))", ("M", "N"), dtype)
            return value

        column = Type(("M",), dtype)
        by: tuple[str, ...] = ("M",)
        if loop:

            def tops(top: Value) -> list[str]:
                return [self.put(f"wd.maximum({top[0]}, wd.max(abs({row()[0]}), dim=N))", ("M",), dtype)[0]]

            (top,) = self.looped("N", [(column, column.fill(0))], tops)
            value = None
        else:
            value = self.touched(row())
            grouped = value
            if block:
                p.subs.update(P=n // block, Q=block)
                by = ("M", "P")
                grouped = self.put(f"wd.reshape({value[0]}, M, P, Q)", ("M", "P", "Q"), dtype)
                value = grouped
            top = self.put(f"wd.max(abs({grouped[0]}), dim={'Q' if block else 'N'})", by, dtype)
        most = {"i8": 15, "u8": 15, "i4": 7, "f8e4m3": 7, "f8e5m2": 4}[narrow]
        steps = f"wd.where({top[0]} > {most * 8}, 16.0, wd.where({top[0]} > {most * 2}, 8.0, 1.0))"
        factor = self.put(steps if dtype == "f32" else f"wd.cast({steps}, wd.{dtype})", by, dtype, 16)

        def outputs(value: Value) -> list[tuple[Value, str]]:
            kind = value[1]
            whole = self.put(f"wd.clamp({self.one(('wd.round', 'wd.floor', 'wd.trunc'))}({value[0]} / {factor[0]}), "
                             f"{0 if narrow[0] == 'u' else -most}, {most})", kind.dims, dtype, most)  # fmt: skip
            found = [((f"wd.cast({whole[0]}, wd.{narrow})", Type(kind.dims, narrow)), narrow)]
            if self.chance(0.4):
                found.append((self.cast_to(value, t := self.one(("f16", "bf16", "i32", "i16"))), t))
            if self.chance(0.3):
                found.append(((f"{value[0]} > 3", Type(kind.dims, "i1")), "i1"))
            return found

        def made(value: Value) -> None:
            flat = ("M", "N")
            for (text, kind), narrow_to in outputs(value):
                if block:
                    text = f"wd.reshape({text}, M, N)" if self.chance(0.7) else text
                dims = flat if not block or "reshape" in text else kind.dims
                out = self.array(dims, narrow_to, 77, 77) if narrow_to != "i1" else self.array(dims, "i1", 1, 1)
                if narrow_to in ("i4", "i1"):
                    out.spread = "plain"
                self.atomics.add(out.name)
                self.body.append(Do(f"wd.write({text}, {out.name})"))

        if value is not None:
            made(value)
        else:
            self.looped("N", [], lambda: made(row()) or [])
        self.result(factor, by, self.one((dtype, "f16", "i8")))
        if value is not None and self.chance(0.5):
            last = "Q" if block else "N"
            number = self.put(f"wd.sum(wd.cast({value[0]} > 3, wd.i32), dim={last})", by, "i32", 300)
            self.result(number, by, self.one(("i32", "i16", "i64", "u8")))
        if value is not None and self.chance(0.4):
            self.result(
                self.put(f"wd.argmax({value[0]}, dim={'Q' if block else 'N'})", by, "i32", 300),
                by,
                self.one(("i32", "i16")),
            )

    # ---- windows

    def windows(self) -> None:
        """Taps of a window over rows or a plane, with stride, gaps and padding: products, sums, maxima."""
        plane = self.chance(0.5)
        self.begin(B=self.few(1, 2), C=self.few(1, 7, 16, 20, 32), E=self.few(8, 16, 33))
        p = self.program
        stride, gap, pad, taps = self.few(1, 1, 2), self.few(1, 1, 2), self.few(0, 1, 2), self.few(2, 3)
        sides = ("H", "W") if plane else ("W",)
        outer = ("P", "Q") if plane else ("Q",)
        for side, out in zip(sides, outer):
            p.sizes[side] = self.few(5, 8, 17) if plane else self.few(5, 17, 40, 64)
            p.sizes[out] = max(1, (p.sizes[side] + 2 * pad - gap * (taps - 1) - 1) // stride + 1)
        how = self.one(("product", "product", "sum", "max"))
        self.tile("B", 1, 2)
        rows = self.few(1, 1, 2, 4) if how != "product" else 1
        if plane:
            self.tile("P", rows, 1)
        self.tile("Q", self.few(16, 16, 8, 32), 0, self.few(1, 1, 2))
        self.open = ("B",)
        order = self.one((("B", *sides, "C"), ("B", "C", *sides)))
        dtype = self.operand if how == "product" else self.one(("f32", "f16", "i32", "i8"))
        x = self.given(order, dtype, -3, 3)
        if x.spread == "repeated":
            x.spread = "plain"
        mapped = ("P", "Q", "C") if plane and rows > 1 else ("Q", "C")
        sums = PRODUCTS[dtype] if how == "product" else {"f16": "f32", "i8": "i32"}.get(dtype, dtype)
        count = taps ** len(sides)
        weights = []
        for _ in range(count):
            dims = ("E", "C") if how == "product" else ("C",)
            weights.append(self.given(dims, dtype, -3, 3) if how != "max" else None)
        if how == "product":
            kind = Type(("Q", "E"), sums, 9 * 33 * 9)
        else:
            kind = Type(mapped, sums, 9 * 9)
        acc: Value = self.put(kind.fill(-LIMIT if how == "max" else 0), kind.dims, sums, kind.bound)
        for number, weight in enumerate(weights):
            offsets = (number // taps, number % taps) if plane else (number,)
            places = []
            for side, out, offset in zip(sides, outer, offsets):
                at = f"wd.index({out})" if self.chance(0.3) else out
                places.append(f"{side}: {at} * {stride} + {offset * gap - pad}")
            text = f"wd.read({x.name}, mapping=wd.IndexMapping(({', '.join(mapped)}), {{{', '.join(places)}}}))"
            value = self.put(text, mapped, dtype, 3)
            if weight is None:
                tests = []
                for side, out, offset in zip(sides, outer, offsets):
                    at = f"wd.index({out}) * {stride} + {offset * gap - pad}"
                    tests.append(f"({at} >= 0) & ({at} < {side})")
                inside = " & ".join(tests)
                wide = self.cast_to(value, sums)[0]
                acc = self.put(f"wd.maximum({acc[0]}, wd.where({inside}, {wide}, -{LIMIT}))", mapped, sums)
            elif how == "product":
                right = self.put(f"wd.read({weight.name})", ("E", "C"), dtype, 3)
                acc = self.product_of(value, right, acc[0], ("Q", "E"), kind.bound, sums)
            else:
                by = self.cast_to(self.put(f"wd.read({weight.name})", ("C",), dtype, 3), sums)
                acc = self.put(f"{acc[0]} + {self.cast_to(value, sums)[0]} * {by[0]}", mapped, sums, 9 * 9)
        if how == "product" and self.chance(0.5):
            bias = self.put(f"wd.read({self.given(('E',), sums, -9, 9).name})", ("E",), sums, 9)
            acc = self.touched(self.put(f"small({acc[0]} + {bias[0]})", acc[1].dims, sums))
        last = acc[1].dims[-1]
        memory = self.one((("B", *outer, last), ("B", last, *outer)))
        self.result(acc, memory, self.one((sums, "f16" if sums != "i32" else "i16")))

    # ---- counts and places

    def counting(self) -> None:
        """Elements by the group that each names: ranks by scans, places by counts, each written where it belongs."""
        t, e = self.few(1, 16, 40, 64, 131), self.few(1, 4, 8, 16)
        self.begin(B=self.few(1, 2, 3), T=t, E=e, D=self.few(8, 16))
        self.tile("B", 1, 0)
        p = self.program
        p.sizes["S"] = t + self.few(0, 0, 5)
        ids = self.array(("B", "T"), self.one(("i32", "i32", "i64", "i8", "u8")), 0, e - 1)
        ids.spread = "plain"
        mine = self.exactly(f"wd.cast(wd.read({ids.name}), wd.i32)", ("T",), "i32", 20)
        hot = self.exactly(f"wd.cast({mine[0]} == wd.index(E), wd.i32)", ("T", "E"), "i32", 1)
        rank = self.exactly(f"wd.cumsum({hot[0]}, dim=T) - {hot[0]}", ("T", "E"), "i32", 140)
        count = self.exactly(f"wd.sum({hot[0]}, dim=T)", ("E",), "i32", 140)
        if self.chance(0.5):
            count = self.exactly(f"({count[0]} + 3) // 4 * 4", ("E",), "i32", 140)
            p.sizes["S"] += 4 * e
        first = self.exactly(f"wd.cumsum({count[0]}, dim=E) - {count[0]}", ("E",), "i32", 300)
        self.result(first, ("B", "E"), "i32")
        place = self.exactly(f"wd.sum({hot[0]} * ({rank[0]} + {first[0]}), dim=E)", ("T",), "i32", 300)
        if self.chance(0.3):  # some are left out
            place = self.exactly(f"wd.where({mine[0]} % 3 == 1, -1, {place[0]})", ("T",), "i32", 300)
        out = self.array(("B", "S"), self.one(("i32", "i16", "f32")), 77, 77)
        value = self.put("wd.index(T)", ("T",), "i32", 140)
        text = value[0] if out.dtype == "i32" else f"wd.cast({value[0]}, wd.{out.dtype})"
        self.atomics.add(out.name)
        self.body.append(Do(f"wd.write({text}, {out.name}, mapping=wd.IndexMapping((T,), {{S: {place[0]}}}))"))
        if self.chance(0.5):  # whole rows too
            dtype = self.one(("f16", "f32", "i8", "bf16"))
            x, to = self.given(("B", "T", "D"), dtype, -9, 9), self.array(("B", "S", "D"), dtype, 77, 77)
            self.atomics.add(to.name)
            rows = self.put(f"wd.read({x.name})", ("T", "D"), dtype, 9)
            self.body.append(Do(f"wd.write({rows[0]}, {to.name}, mapping=wd.IndexMapping((T, D), {{S: {place[0]}}}))"))
        if self.chance(0.4):
            known = f"wd.read({ids.name}, mapping=wd.IndexMapping((R,), {{B: B, T: R}}))"
            p.subs["R"] = t
            other = self.put(f"wd.cast({known}, wd.i32)", ("R",), "i32", 20)
            same = self.put(f"({mine[0]} == {other[0]}) & (wd.index(R) < wd.index(T))", ("T", "R"), "i1", 1)
            again = self.put(f"wd.any({same[0]}, dim=R)", ("T",), "i1", 1)
            self.result((f"wd.cast({again[0]}, wd.i32)", Type(("T",), "i32")), ("B", "T"))

    def search(self) -> None:
        """Each element halves an interval of a table, or follows a chain of numbers, until it is done."""
        self.begin(M=self.few(1, 5, 16, 33), N=self.few(1, 7, 32, 64))
        self.tile("M", self.few(2, 4, 16), 0, self.few(1, 2))
        self.open = ("M",)
        p = self.program
        x = self.given(("M", "N"), self.one(("i32", "f32", "i16")), -20, 20)
        value = self.put(f"wd.read({x.name})", ("M", "N"), x.dtype, 20)
        own = self.chance(0.4)
        table = self.array(("M", "V") if own else ("V",), self.one(("i32", "f32", "f16")), -20, 20)
        value = self.cast_to(value, "f32") if table.dtype != "i32" else self.cast_to(value, "i32")
        value = self.put(f"{value[0]} * 1", ("M", "N"), value[1].dtype, 20)
        dims = ("M", "N")
        if self.chance(0.5):
            low, high, a, b = (self.name() for _ in range(4))
            kind = Type(dims, "i32", 50)
            outer, self.body = self.body, []
            middle = self.put(f"({low} + {high}) // 2", dims, "i32", 50)
            read = f"wd.read({table.name}, mapping=wd.IndexMapping((M, N), {{V: {middle[0]}}}))"
            seen = self.put(
                read if table.dtype in ("i32", "f32") else f"wd.cast({read}, wd.f32)", dims, value[1].dtype, 20
            )
            less = self.put(f"{seen[0]} {self.one(('<', '<='))} {value[0]}", dims, "i1", 1)
            after = self.put(f"wd.where({less[0]}, {middle[0]} + 1, {low})", dims, "i32", 50)
            before = self.put(f"wd.where({less[0]}, {high}, {middle[0]})", dims, "i32", 50)
            body, self.body = self.body, outer
            head, yields = f"{low} < {high}", [after[0], before[0]]
            carried = [(low, kind, kind.fill(0)), (high, kind, kind.fill(41))]
        else:
            low, high, a, b = (self.name() for _ in range(4))
            kind = Type(dims, "i32", 50)
            outer, self.body = self.body, []
            read = f"wd.cast(wd.read({table.name}, mapping=wd.IndexMapping((M, N), {{V: {low}}})), wd.i32)"
            next_one = self.put(f"({read} * 7 + {low} + 45) % 43 - 1", dims, "i32", 50)
            counted = self.put(f"{high} + 1", dims, "i32", 50)
            body, self.body = self.body, outer
            head, yields = f"({high} < {self.few(3, 6)}) & ({low} >= 0)", [next_one[0], counted[0]]
            start = self.cast_to((f"wd.clamp({value[0]}, 0, 20)", Type(dims, value[1].dtype, 20)), "i32")[0]
            carried = [(low, kind, start), (high, kind, kind.fill(0))]
        self.scope = [v for v in self.scope if v[0] in {s.name for s in outer if isinstance(s, Let)}]
        self.body.append(Block("while", head, [(a, kind), (b, kind)], carried, [body], [yields], self.label()))
        self.result((a, kind), dims, self.one(("i32", "i16")))
        self.result((b, kind), dims)
        if self.chance(0.5):
            bins = Array(f"bins{len(self.atomics)}", ("V",), "i32", 0, 0)
            p.arrays.append(bins)
            self.atomics.add(bins.name)
            one = Type(dims, "i32").fill(1)
            self.body.append(Do(f"wd.atomic_add({one}, {bins.name}, mapping=wd.IndexMapping((M, N), {{V: {a}}}))"))

    # ---- parts that the last workgroup adds

    def partial(self) -> None:
        """Workgroups sum parts of a long dimension; the last one of each batch adds them up."""
        parts = self.few(1, 2, 3)
        product = self.chance(0.5)
        self.begin(B=self.few(1, 2, 3), N=self.few(1, 40, 100, 200), M=self.few(5, 16, 33), D=self.few(8, 16, 32))
        p = self.program
        p.sizes["S"] = parts
        self.tile("B", 1, 2)
        p.cut.append("wd.WorkgroupConstraint(S, 1, 1)")
        self.along("N", self.few(16, 32))
        self.open = ()
        each = -(-p.sizes["N"] // parts)
        each += self.one((0, -each % 16))
        head = f"N, start=wd.index(S) * {each}, stop=wd.minimum(wd.index(S) * {each} + {each}, N)"
        dtype = self.operand if product else self.one(("f32", "i32", "f16"))
        sums = PRODUCTS.get(dtype, dtype) if product else dtype
        x = self.given(("B", "M", "N"), dtype, -3, 3)
        y = self.given(("B", "D", "N"), dtype, -3, 3) if product else None
        dims = ("M", "D") if product else ("M",)
        kind = Type(dims, sums, 9 * 220)

        def sums_of(acc: Value) -> list[str]:
            a = self.put(f"wd.read({x.name})", ("M", "N"), dtype, 3)
            inside = f"(wd.index(N) >= wd.index(S) * {each}) & (wd.index(N) < wd.index(S) * {each} + {each})"
            a = self.put(f"wd.where({inside}, {a[0]}, 0)", ("M", "N"), dtype, 3)
            if y is not None:
                b = self.put(f"wd.read({y.name})", ("D", "N"), dtype, 3)
                return [self.product_of(a, b, acc[0], dims, kind.bound, sums)[0]]
            return [self.put(f"{acc[0]} + wd.sum({a[0]}, dim=N)", dims, dtype, kind.bound)[0]]

        (mine,) = self.looped(head, [(kind, kind.fill(0))], sums_of)
        mine = self.put(f"small({mine[0]})", dims, sums)
        p.sizes.update(ONE=1, T=p.sizes["B"])
        shelf = self.array(("B", "S", *dims), sums, 77, 77)
        shelf.spread = "plain"
        number = Array(f"bins{len(self.atomics)}", ("T",), "i32", 0, 0)
        p.arrays.append(number)
        out = self.array(("B", *dims), self.one((sums, sums, "i32")), 77, 77)
        self.atomics |= {shelf.name, number.name, out.name}
        self.body += [Do(f"wd.write({mine[0]}, {shelf.name})"), Do("wd.fence()")]
        ticket = self.name()
        one = Type((), "i32").fill(1)
        at = "mapping=wd.IndexMapping((), {T: wd.index(B)})"
        self.body.append(Let(ticket, Type((), "i32"), f"wd.atomic_add({one}, {number.name}, {at})"))

        def add() -> None:
            self.body.append(Do("wd.fence()"))
            total = None
            for s in range(parts):
                mapping = f"wd.IndexMapping(({', '.join(dims)},), {{B: wd.index(B), S: {s}}})"
                part = self.put(f"wd.read({shelf.name}, mapping={mapping})", dims, sums)
                total = part if total is None else self.put(f"small({total[0]} + {part[0]})", dims, sums)
            assert total is not None
            self.body.append(Do(f"wd.write({self.cast_to(total, out.dtype)[0]}, {out.name})"))

        self.conditional(f"{ticket} == {parts - 1}", add)

    # ---- rows that exchange elements

    def butterflies(self) -> None:
        """Steps in which an element of a row meets the one whose index differs in a bit: transforms, sorts by hand."""
        bits = self.few(3, 4, 5, 6, 7)
        n = 1 << bits
        self.begin(M=self.few(1, 5, 16), N=n)
        self.tile("M", self.few(3, 2, 4), 0, self.few(1, 2, 4))
        if self.chance(0.3) and bits >= 5:
            p_tile = n // 2
            self.program.cut += [f"wd.WorkgroupConstraint(N, {n}, 1)", f"wd.WaveConstraint(N, {p_tile})"]
        self.open = ("M",)
        dtype = self.one(("f32", "i32", "f16", "i16", "f64", "i64"))
        halves = self.chance(0.4)
        x = self.given(("M", "2 * N") if halves else ("M", "N"), dtype, -20, 20)
        part = self.one(("[:, ::2]", "[:, 1::2]", "[:, :N]", "[:, N:]")) if halves else ""
        value = self.put(f"wd.read({x.name}{part})", ("M", "N"), dtype, 20)
        i = self.put("wd.index(N)", ("N",), "i32", n)
        payload = self.put(
            f"{i[0]} + {value[0]} * 0" if dtype == "i32" else f"wd.broadcast({i[0]}, M, N)", ("M", "N"), "i32", n
        )
        sort = self.chance(0.4)
        levels = [1 << b for b in range(bits)]
        if self.chance(0.5):
            levels = [b for b in levels if self.chance(0.7)] or [1]
        for half in levels:
            other = self.put(f"wd.shuffle({value[0]}, {i[0]} ^ {half}, dim=N)", ("M", "N"), dtype)
            upper = f"({i[0]} & {half}) != 0"
            if sort:
                theirs = self.put(f"wd.shuffle({payload[0]}, {i[0]} ^ {half}, dim=N)", ("M", "N"), "i32", n)
                take = self.put(
                    f"wd.where({upper}, {other[0]} > {value[0]}, {other[0]} < {value[0]})", ("M", "N"), "i1", 1
                )
                value = self.put(f"wd.where({take[0]}, {other[0]}, {value[0]})", ("M", "N"), dtype)
                payload = self.put(f"wd.where({take[0]}, {theirs[0]}, {payload[0]})", ("M", "N"), "i32", n)
            else:
                value = self.put(
                    f"small(wd.where({upper}, {other[0]} - {value[0]}, {value[0]} + {other[0]}))", ("M", "N"), dtype
                )
        self.result(self.touched(value), ("M", "N"), self.one((dtype, dtype, "i32")))
        if sort:
            self.result(payload, ("M", "N"), self.one(("i32", "u8" if n <= 256 and ceiling("u8") >= 60 else "i16")))
