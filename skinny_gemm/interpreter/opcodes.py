"""What each opcode becomes: a mixin of the code generator with one method `op_<name>` per opcode.

A method appends lines that call the group of warps (`g`), NumPy or `ops`; whatever it cannot match raises, and the
generator refuses the instruction by name.
"""

import re
from functools import cache

from .parser import Float, Imm, Reg, Vector

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
           "hs": ">=", "equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}  # fmt: skip
LOGIC = {"and": "&", "or": "|", "xor": "^"}
ROUND = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
SCOPES = ("cta", "cluster", "gpu", "sys")
#: Orders and scopes that loads and stores may name: memory is coherent here.
ORDERS = ("weak", "relaxed", "acquire", "release", "volatile", "nc", *SCOPES)
SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster"}


@cache
def width_of(type_name: str) -> int:
    """Bits of a PTX type such as `u32` or `bf16x2`; a predicate has one."""
    if type_name.endswith("x2"):
        return 2 * width_of(type_name[:-2])
    return 1 if type_name == "pred" else int(re.sub(r"[^0-9]", "", type_name))


class Opcodes:
    # Data movement

    def op_mov(self, ins, mods, operands):
        d, a = operands
        kind = mods[-1]
        if isinstance(d, Vector):  # split a register into its parts, low first
            part = width_of(kind) // len(d.items)
            for i, item in enumerate(d.items):
                shift = self.constant(i * part, f"u{width_of(kind) // 8}")
                self.assign(item, f"({self.value(a, kind)} >> {shift}).astype(u{part // 8})")
            return
        if isinstance(a, Vector):
            part = width_of(kind) // len(a.items)
            wide = f"u{width_of(kind) // 8}"
            terms = [
                f"({self.value(item, f'b{part}')}.astype({wide}) << {self.constant(i * part, wide)})"
                for i, item in enumerate(a.items)
            ]
            return self.assign(d, " | ".join(terms))
        if kind == "pred":
            return self.assign(d, self.value(a, "pred"))
        self.assign(d, self.value(a, "b" + kind[1:]))

    def op_cvta(self, ins, mods, operands):
        self.assign(operands[0], self.value(operands[1], "u64"))

    def op_cvt(self, ins, mods, operands):
        *modifiers, to, source = mods
        d, *a = operands
        if source == "f32" and to in ("bf16x2", "bf16") and modifiers == ["rn"]:
            words = [self.value(x, "b32") for x in a]
            if to == "bf16x2":
                return self.assign(d, f"ops.bf16x2({words[0]}, {words[1]})")
            return self.assign(d, f"ops.bf16_bits({words[0]}).astype(u2)")
        if source == "bf16" and to == "f32" and not modifiers:
            return self.assign(d, f"{self.value(a[0], 'b16')}.astype(u4) << {self.constant(16, 'u4')}")
        if source[0] in "us" and to[0] in "us" and not modifiers:
            text = self.value(a[0], source)
            step = f"{'i' if source[0] == 's' else 'u'}{width_of(to) // 8}"
            return self.result(d, f"{text}.astype({step}).view(u{width_of(to) // 8})", "u" + to[1:])
        if source[0] in "us" and to == "f32" and modifiers == ["rn"]:
            return self.result(d, f"{self.value(a[0], source)}.astype(f4)", "f32")
        if source == "f32" and to in ("u32", "s32") and len(modifiers) == 1:
            rounded = f"np.{ROUND[modifiers[0]]}({self.value(a[0], source)})"
            return self.result(d, f"ops.to_integer({rounded}, {'i4' if to == 's32' else 'u4'})", to)
        if (source, to, modifiers) in (("f32", "f64", []), ("f64", "f32", ["rn"])):
            return self.result(d, f"{self.value(a[0], source)}.astype({'f8' if to == 'f64' else 'f4'})", to)
        raise ValueError

    def op_ld(self, ins, mods, operands):
        d, a, *policy = operands
        if mods[0] == "param":
            p = self.parameters[a.base]
            return self.assign(d, f"g.parameter({p.offset + a.offset}, {width_of(mods[-1]) // 8})")
        space, count, kind = self.access_of(mods, policy)
        size = width_of(kind) // 8
        text = f"g.load_{space}({ins.index}, {self.address_in(space, a)}, {size * count}, {self.mask})"
        registers_ = d.items if isinstance(d, Vector) else (d,)
        if len(registers_) != count:
            raise ValueError
        signed = kind[0] == "s"
        if count == 1:
            return self.result(d, f"{text}.view({'i' if signed else 'u'}{size})", ("s" if signed else "u") + kind[1:])
        self.counter += 1
        name = f"w{self.counter}"
        self.out.append(f"{name} = ops.words({text}, {count}, u{size})")
        for i, register in enumerate(registers_):
            self.result(register, f"{name}[{i}]", "u" + kind[1:])

    def op_st(self, ins, mods, operands):
        if mods[0] == "async":
            return self.store_async(ins, mods[1:], operands)
        a, value, *policy = operands
        space, count, kind = self.access_of(mods, policy)
        text = f"{self.address_in(space, a)}, {self.words_of(value, count, kind)}, {self.mask}"
        self.out.append(f"g.store_{space}({ins.index}, {text})")

    def op_multimem(self, ins, mods, operands):
        order, scope, *rest = mods[1:]
        if mods[0] != "st" or order not in ("relaxed", "release") or scope not in SCOPES:
            raise ValueError
        _, count, kind = self.access_of(rest if rest[0] == "global" else ["global", *rest], ())
        if count > 1 and kind not in ("f32", "f16x2", "bf16x2"):
            raise ValueError
        a, value = operands
        text = f"{self.address_in('global', a)}, {self.words_of(value, count, kind)}, {self.mask}"
        self.out.append(f"g.store_multicast({ins.index}, {text})")

    def store_async(self, ins, mods, operands):
        a, value, barrier = operands
        mods = [m for m in mods if m != "weak"]
        if mods[:2] != ["shared::cluster", "mbarrier::complete_tx::bytes"]:
            raise ValueError
        _, count, kind = self.access_of([mods[0], *mods[2:]], ())
        text = f"{self.address(a)}, {self.address(barrier)}, {self.mask}, {width_of(kind) // 8 * count}"
        self.out.append(f"g.transfer({ins.index}, {text}, words={self.words_of(value, count, kind)})")

    def access_of(self, mods, policy):
        """(space, elements, type) of a load or store; cache operators and hints change nothing here."""
        hints = [m for m in mods if "::" in m and not m.startswith("shared::")]
        space, *vector, kind = (m for m in mods if m not in ORDERS and m not in hints)
        if len(policy) != ("L2::cache_hint" in hints) or len(vector) > 1:
            raise ValueError
        count = {(): 1, ("v2",): 2, ("v4",): 4}[tuple(vector)]
        if width_of(kind) * count > 128:
            raise ValueError
        return SPACES[space], count, kind

    def address_in(self, space, a) -> str:
        return self.address(a, 64 if space == "global" else 32)

    def words_of(self, value, count, kind) -> str:
        items = value.items if isinstance(value, Vector) else (value,)
        if len(items) != count:
            raise ValueError
        return f"({', '.join(self.value(x, f'b{width_of(kind)}') for x in items)},)"

    def op_mapa(self, ins, mods, operands):
        d, a, rank = operands
        if mods not in (("shared::cluster", "u32"), ("u32",)) or isinstance(rank, Float):
            raise ValueError
        self.assign(d, f"g.mapa({self.value(a, 'u32')}, {self.value(rank, 'u32')})")

    def op_createpolicy(self, ins, mods, operands):
        self.assign(operands[0], self.constant(0, "u8"))

    # Integers, logic and floats

    def sum(self, ins, mods, template):
        kind = mods[-1]
        if kind[0] in "us" and len(mods) == 1:
            return self.binary(ins, "u" + kind[1:], template)  # the bits do not depend on the sign
        if kind in ("f32", "f64") and mods[:-1] in ((), ("rn",)):
            return self.binary(ins, kind, template)
        raise ValueError

    def op_add(self, ins, mods, operands):
        self.sum(ins, mods, "{a} + {b}")

    def op_sub(self, ins, mods, operands):
        self.sum(ins, mods, "{a} - {b}")

    def op_mul(self, ins, mods, operands):
        d, a, b = operands
        match mods:
            case ("wide", kind):
                return self.result(d, self.wide_product(a, b, kind), kind[0] + str(2 * width_of(kind)))
            case ("lo", kind):
                return self.binary(ins, "u" + kind[1:], "{a} * {b}")
            case ("hi", kind):
                return self.binary(ins, kind, "ops.multiply_high({a}, {b})")
            case (("f32" | "f64") as kind,) | ("rn", ("f32" | "f64") as kind):
                return self.binary(ins, kind, "{a} * {b}")
        raise ValueError

    def op_mad(self, ins, mods, operands):
        d, a, b, c = operands
        match mods:
            case ("wide", kind):
                wide = kind[0] + str(2 * width_of(kind))
                return self.result(d, f"{self.wide_product(a, b, kind)} + {self.value(c, wide)}", wide)
            case ("lo", kind):
                kind = "u" + kind[1:]
                text = f"{self.value(a, kind)} * {self.value(b, kind)} + {self.value(c, kind)}"
                return self.result(d, text, kind)
        raise ValueError

    def wide_product(self, a, b, kind) -> str:
        wide = f"{'i' if kind[0] == 's' else 'u'}{width_of(kind) // 4}"
        return f"{self.value(a, kind)}.astype({wide}) * {self.value(b, kind)}.astype({wide})"

    def op_fma(self, ins, mods, operands):
        # The product of two float32 is exact in float64; the sum is then rounded twice, which differs from a true
        # fma only where the float64 sum lies within 2^-53 of a float32 tie.
        d, a, b, c = operands
        if mods != ("rn", "f32"):
            raise ValueError
        a, b, c = (f"{self.value(x, 'f32')}.astype(f8)" for x in (a, b, c))
        self.result(d, f"({a} * {b} + {c}).astype(f4)", "f32")

    def op_div(self, ins, mods, operands):
        if mods[-1][0] in "us" and len(mods) == 1:
            return self.binary(ins, mods[-1], "ops.divide({a}, {b})")
        if mods == ("rn", "f32"):
            return self.binary(ins, "f32", "{a} / {b}")
        raise ValueError

    def op_rem(self, ins, mods, operands):
        self.binary(ins, mods[-1], "ops.remainder({a}, {b})")

    def extreme(self, ins, mods, name):
        match mods:
            case ("NaN", "f32"):
                return self.binary(ins, "f32", f"np.{name}imum({{a}}, {{b}})")
            case ("f32" | "f64",):
                return self.binary(ins, mods[0], f"np.f{name}({{a}}, {{b}})")
            case (kind,) if kind[0] in "us":
                return self.binary(ins, kind, f"np.{name}imum({{a}}, {{b}})")
        raise ValueError

    def op_min(self, ins, mods, operands):
        self.extreme(ins, mods, "min")

    def op_max(self, ins, mods, operands):
        self.extreme(ins, mods, "max")

    def logic(self, ins, mods):
        kind = mods[-1]
        self.binary(ins, kind, f"{{a}} {LOGIC[ins.op[0]]} {{b}}")

    def op_and(self, ins, mods, operands):
        self.logic(ins, mods)

    def op_or(self, ins, mods, operands):
        self.logic(ins, mods)

    def op_xor(self, ins, mods, operands):
        self.logic(ins, mods)

    def op_not(self, ins, mods, operands):
        self.result(operands[0], f"~{self.value(operands[1], mods[-1])}", mods[-1])

    def op_neg(self, ins, mods, operands):
        (kind,) = mods
        self.result(operands[0], f"-{self.value(operands[1], kind)}", kind)

    def op_abs(self, ins, mods, operands):
        (kind,) = mods
        self.result(operands[0], f"np.abs({self.value(operands[1], kind)})", kind)

    def op_lop3(self, ins, mods, operands):
        d, a, b, c, table = operands
        if mods != ("b32",):
            raise ValueError
        self.assign(d, f"ops.lop3({', '.join(self.value(x, 'b32') for x in (a, b, c))}, {table.value})")

    def op_prmt(self, ins, mods, operands):
        d, *rest = operands
        if mods != ("b32",):
            raise ValueError
        self.assign(d, f"ops.permute_bytes({', '.join(self.value(x, 'b32') for x in rest)})")

    def op_bfe(self, ins, mods, operands):
        d, a, start, count = operands
        (kind,) = mods
        text = f"ops.extract_bits({self.value(a, kind)}, {self.value(start, 'u32')}, {self.value(count, 'u32')})"
        self.result(d, text, kind)

    def op_bfi(self, ins, mods, operands):
        d, a, b, start, count = operands
        (kind,) = mods
        words = ", ".join(self.value(x, kind) for x in (a, b))
        self.assign(d, f"ops.insert_bits({words}, {self.value(start, 'u32')}, {self.value(count, 'u32')})")

    def op_shf(self, ins, mods, operands):
        d, low, high, amount = operands
        side, mode, kind = mods
        if side not in ("l", "r") or mode not in ("wrap", "clamp") or kind != "b32":
            raise ValueError
        words = ", ".join(self.value(x, "b32") for x in (low, high, amount))
        self.assign(d, f"ops.funnel_shift({words}, {side == 'l'}, {mode == 'wrap'})")

    def op_clz(self, ins, mods, operands):
        self.assign(operands[0], f"ops.leading_zeros({self.value(operands[1], mods[0])})")

    def op_brev(self, ins, mods, operands):
        self.assign(operands[0], f"ops.reverse_bits({self.value(operands[1], mods[0])})")

    def shift(self, ins, mods, symbol, function):
        d, a, b = ins.operands
        kind = mods[-1]
        if isinstance(b, Imm) and 0 <= b.value < width_of(kind):
            dtype = f"{'i' if kind[0] == 's' else 'u'}{width_of(kind) // 8}"
            return self.result(d, f"{self.value(a, kind)} {symbol} {self.constant(b.value, dtype)}", kind)
        return self.result(d, f"ops.{function}({self.value(a, kind)}, {self.value(b, 'u32')})", kind)

    def op_shl(self, ins, mods, operands):
        self.shift(ins, mods, "<<", "shift_left")

    def op_shr(self, ins, mods, operands):
        self.shift(ins, mods, ">>", "shift_right")

    def op_setp(self, ins, mods, operands):
        d, a, b, *combine = operands
        kind, compare = mods[-1], mods[0]
        if isinstance(d, Vector) or (len(mods) > 2 and mods[1] not in LOGIC):
            raise ValueError
        if compare in ("lo", "ls", "hi", "hs"):
            kind = "u" + kind[1:]
        if compare in ("num", "nan") and kind[0] == "f":
            text = f"(np.isnan({self.value(a, kind)}) | np.isnan({self.value(b, kind)}))"
            text = text if compare == "nan" else f"~{text}"
        else:
            text = f"{self.value(a, kind)} {COMPARE[compare]} {self.value(b, kind)}"
        if kind[0] == "f" and (compare == "ne" or (compare[-1] == "u" and compare != "neu")):
            nan = f"(np.isnan({self.value(a, kind)}) | np.isnan({self.value(b, kind)}))"
            text = f"({text}) & ~{nan}" if compare == "ne" else f"({text}) | {nan}"
        if combine:
            text = f"({text}) {LOGIC[mods[1]]} {self.value(combine[0], 'pred')}"
        self.assign(d, text)

    def op_selp(self, ins, mods, operands):
        d, a, b, p = operands
        kind = "b" + mods[-1][1:]
        self.result(d, f"where({self.value(p, 'pred')}, {self.value(a, kind)}, {self.value(b, kind)})", kind)

    def op_popc(self, ins, mods, operands):
        self.assign(operands[0], f"np.bitwise_count({self.value(operands[1], mods[-1])}).astype(u4)")

    # Warp level

    def op_shfl(self, ins, mods, operands):
        if mods[0] != "sync" or mods[-1] != "b32":
            raise ValueError
        d, a, b, c, members = operands
        self.out.append(f"g.converged({ins.index}, {self.value(members, 'u32')}, {self.mask})")
        text = f"ops.shuffle({mods[1]!r}, {self.value(a, 'u32')}, {self.value(b, 'u32')}, {self.value(c, 'u32')})"
        if isinstance(d, Vector):
            self.counter += 1
            self.out.append(f"w{self.counter} = {text}")
            self.assign(d.items[0], f"w{self.counter}[0]")
            self.assign(d.items[1], f"w{self.counter}[1]")
        else:
            self.assign(d, text + "[0]")

    def op_vote(self, ins, mods, operands):
        d, p, members = operands
        if mods[0] != "sync":
            raise ValueError
        text = f"ops.vote({mods[1]!r}, {self.value(p, 'pred')}, ops.lane_mask({self.value(members, 'u32')}))"
        self.assign(d, text)

    def op_activemask(self, ins, mods, operands):
        mask = "TRUE" if self.mask == "None" else self.mask
        self.assign(operands[0], f"ops.vote('ballot', {mask}, TRUE)")

    def op_redux(self, ins, mods, operands):
        d, a, members = operands
        sync, name, kind = mods
        if sync != "sync" or kind not in ("u32", "s32", "b32") or (kind == "b32") != (name in LOGIC):
            raise ValueError
        self.out.append(f"g.converged({ins.index}, {self.value(members, 'u32')}, {self.mask})")
        members = f"ops.lane_mask({self.value(members, 'u32')})"
        self.result(d, f"ops.reduce_lanes({name!r}, {self.value(a, kind)}, {members})", kind)

    def op_elect(self, ins, mods, operands):
        pair, members = operands
        leader, elected = pair.items if isinstance(pair, Vector) else (Reg("_"), pair)
        self.counter += 1
        name = f"w{self.counter}"
        self.out.append(f"{name} = g.elect({ins.index}, {self.value(members, 'u32')}, {self.mask})")
        self.assign(leader, f"{name}[0]")
        self.assign(elected, f"{name}[1]")

    def op_ldmatrix(self, ins, mods, operands):
        if mods[:3] != ("sync", "aligned", "m8n8") or mods[-1] != "b16" or not mods[-2].startswith("shared"):
            raise ValueError
        d, a = operands
        count = int(mods[3][1:])
        if self.fusion and self.fusion.takes(ins):
            self.out.append(f"a{ins.index} = {self.address(a)}")
            return
        items = d.items if isinstance(d, Vector) else (d,)
        if len(items) != count:
            raise ValueError
        self.counter += 1
        name = f"w{self.counter}"
        transposed = "trans" in mods
        self.out.append(f"{name} = g.ldmatrix({ins.index}, {self.address(a)}, {count}, {transposed}, {self.mask})")
        for i, item in enumerate(items):
            self.assign(item, f"{name}[{i}]")

    def op_mma(self, ins, mods, operands):
        if mods != ("sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"):
            raise ValueError
        d, a, b, c = operands
        if self.fusion:
            names = [self.local_name(r.name) if isinstance(r, Reg) else self.value(r, "b32") for r in c.items]
            if self.fusion.extend(ins, names):
                self.local.update(self.number[r.name] for r in d.items)
                return
        self.out.append(f"g.converged({ins.index}, {self.constant(0xFFFFFFFF, 'u4')}, {self.mask})")
        left, right = (
            f"ops.fragment(({', '.join(self.value(r, 'b32') for r in x.items)},), {rows})"
            for x, rows in ((a, 16), (b, 8))
        )
        acc = ", ".join(self.local_name(r.name) if isinstance(r, Reg) else self.value(r, "b32") for r in c.items)
        self.counter += 1
        name = f"w{self.counter}"
        self.out.append(f"{name} = mma({left}, {right}, ({acc},))")
        for i, item in enumerate(d.items):
            self.assign(item, f"{name}[{i}]")

    # Asynchronous copies and barriers

    def op_cp(self, ins, mods, operands):
        match mods:
            case ("async", "commit_group"):
                self.out.append("g.commit()")
            case ("async", "wait_group"):
                self.out.append(f"g.wait_groups({operands[0].value})")
            case ("async", "wait_all"):
                self.out.append("g.commit()")
                self.out.append("g.wait_groups(0)")
            case ("async", "mbarrier", "arrive", *rest):
                noinc = "noinc" in rest
                self.out.append(f"g.arrive_copies({ins.index}, {self.address(operands[0])}, {noinc}, {self.mask})")
            case ("async", "bulk", ("shared::cluster" | "shared::cta") as to, "global", "mbarrier::complete_tx::bytes",
                  *hints):  # fmt: skip
                dst, src, size, barrier, *policy = operands
                if hints != ["L2::cache_hint"] * len(policy):
                    raise ValueError
                text = f"{self.address(dst)}, {self.address(barrier)}, {self.mask}, {self.value(size, 'u32')}"
                source = self.address(src, 64)
                self.out.append(f"g.transfer({ins.index}, {text}, source={source}, cluster={to == 'shared::cluster'})")
            case ("async", "ca" | "cg", "shared" | "shared::cta", "global", *hints):
                dst, src, size, *rest = operands
                if "L2::cache_hint" in hints:
                    rest = rest[:-1]
                valid = "None"
                if rest:
                    valid = self.value(rest[0], "u32")
                text = f"{self.address(dst)}, {self.address(src, 64)}, {size.value}, {valid}, {self.mask}"
                self.out.append(f"g.copy_async({ins.index}, {text})")
            case _:
                raise ValueError

    def op_mbarrier(self, ins, mods, operands):
        event, *rest, space, kind = mods
        if kind != "b64" or space not in ("shared", "shared::cta", "shared::cluster"):
            raise ValueError
        expects = event == "arrive" and rest[:1] == ["expect_tx"]
        rest = rest[1:] if expects else rest
        if event in ("init", "inval") and (rest or space == "shared::cluster"):
            raise ValueError
        orders = {"arrive": "release", "expect_tx": "relaxed"}
        if rest and (len(rest) != 2 or rest[0] != orders[event] or rest[1] not in ("cta", "cluster")):
            raise ValueError
        cluster = space == "shared::cluster"
        match event:
            case "init":
                a, count = operands
                text = f"g.init_barrier({ins.index}, {self.address(a)}, {self.value(count, 'u32')}, {self.mask})"
                self.out.append(text)
            case "inval":
                self.out.append(f"g.invalidate_barrier({ins.index}, {self.address(operands[0])}, {self.mask})")
            case "expect_tx":
                a, tx = operands
                text = f"{self.address(a)}, {self.value(tx, 'u32')}, {self.mask}, {cluster}"
                self.out.append(f"g.expect_bytes({ins.index}, {text})")
            case "arrive":
                state, a, *count = operands
                if cluster and state != Reg("_"):
                    raise ValueError
                count = self.value(count[0], "u32") if count else self.constant(1, "u4")
                if expects:
                    text = f"{self.address(a)}, {count}, {self.mask}, {cluster}"
                    self.out.append(f"g.expect_bytes({ins.index}, {text})")
                    count = self.constant(1, "u4")
                scope = rest[1] if rest else "cta"
                text = f"{self.address(a)}, {count}, {self.mask}, {scope!r}, {cluster}"
                self.assign(state, f"g.arrive({ins.index}, {text})")
            case _:
                raise ValueError

    def op_bar(self, ins, mods, operands):
        if mods[0] == "warp":
            self.out.append(f"g.warp_sync({self.mask})")
            return
        if mods[0] != "arrive":
            raise ValueError
        number, count = operands
        text = f"{self.value(number, 'u32')}, {self.value(count, 'u32')}, {self.mask}"
        self.out.append(f"g.bar_arrive({ins.index}, {text})")

    def op_barrier(self, ins, mods, operands):
        if mods[0] != "cluster":
            return self.op_bar(ins, mods, operands)
        order, aligned = [m for m in mods[2:] if m != "aligned"], "aligned" in mods
        if mods[1] != "arrive" or order not in ([], ["release"], ["relaxed"]):
            raise ValueError
        self.out.append(f"g.cluster_arrive({ins.index}, {order != ['relaxed']}, {aligned}, {self.mask})")

    def op_fence(self, ins, mods, operands):
        match mods:
            case ("mbarrier_init", "release", "cluster"):
                self.out.append(f"g.fence('init', {self.mask})")
            case ("acq_rel" | "sc", "cluster" | "gpu" | "sys") | ("cluster", "acq_rel"):
                self.out.append(f"g.fence('cluster', {self.mask})")
            case ("acq_rel" | "sc", "cta") | ("proxy", "async") | ("proxy", "async", "global" | "shared::cta"):
                pass  # of one CTA, or between proxies: all see one memory here
            case _:
                raise ValueError

    def op_nanosleep(self, ins, mods, operands):
        self.out.append(f"g.sleep({self.value(operands[0], 'u32')})")

    def op_griddepcontrol(self, ins, mods, operands):
        if mods[0] == "wait":
            self.out.append(f"g.dependency_wait({self.mask})")
