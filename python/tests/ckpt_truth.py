"""What a checkpoint must be said to hold, worked out by torch and numpy alone: names, shapes, counts, first index, bits.

Nothing here knows how firstbad reads a file. Numbers are judged by torch.isnan and numpy.isnan after an exact conversion to FP64.
"""
import collections
import dataclasses
import json
import math
import os
import pathlib
import subprocess

import numpy as np
import torch

torch.set_num_threads(1)  # tensors are tiny, and spinning threads cost more than they bring

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
TOOL = BUILD / "firstbad"

# Exponent bits and mantissa bits of formats whose exponent of ones means Inf or NaN.
IEEE = {torch.float64: (11, 52), torch.float32: (8, 23), torch.float16: (5, 10), torch.bfloat16: (8, 7), torch.float8_e5m2: (5, 2)}
# Every non-finite code of the formats that have no infinity.
NAN_CODES = {torch.float8_e4m3fn: [0x7F, 0xFF], torch.float8_e4m3fnuz: [0x80], torch.float8_e5m2fnuz: [0x80],
             torch.float8_e8m0fnu: [0xFF]}
UNSIGNED = {1: (torch.uint8, np.uint8), 2: (torch.uint16, np.uint16), 4: (torch.uint32, np.uint32), 8: (torch.uint64, np.uint64)}
FLOATS = list(IEEE) + list(NAN_CODES)


def code_of(rng, dtype, kind):
    """A code of that kind, with a payload by chance; a kind that the format lacks becomes a NaN. Returns (code, kind)."""
    if dtype in NAN_CODES:
        return rng.choice(NAN_CODES[dtype]), "nan"
    exponent, mantissa = IEEE[dtype]
    ones = ((1 << exponent) - 1) << mantissa
    sign = 1 << (exponent + mantissa)
    if kind == "nan":
        return ones | rng.randrange(1, 1 << mantissa) | rng.choice([0, sign]), kind
    return ones | (sign if kind == "-inf" else 0), kind


@dataclasses.dataclass
class Entry:
    """One tensor or number as the file's owner knows it."""

    name: str
    shape: tuple
    kinds: np.ndarray  # flat, in the tensor's own order: 0 finite, 1 nan, 2 +inf, 3 -inf
    bits: np.ndarray  # flat; of the part that gave the kind
    stored: np.ndarray  # flat: which stored element this is, since a view may show one several times
    number: bool = False
    strict: bool = False  # a plain number that no healthy program lets become infinite
    floating: bool = True  # its format has codes that are not finite

    @property
    def elements(self):
        return math.prod(self.shape)

    def finding(self):
        """None when finite."""
        bad = np.flatnonzero(self.kinds)
        if not len(bad):
            return None
        _, once = np.unique(self.stored[bad], return_index=True)
        kinds = self.kinds[bad[once]]
        first = int(bad[0])
        return {"shape": list(self.shape), "flat_index": first, "index": [int(i) for i in np.unravel_index(first, self.shape)],
                "kind": ["", "nan", "+inf", "-inf"][self.kinds[first]], "bits": int(self.bits[first]),
                "nan": int((kinds == 1).sum()), "pos_inf": int((kinds == 2).sum()), "neg_inf": int((kinds == 3).sum())}

    def is_legal(self):
        """As documented: a number that is infinite, and an additive mask."""
        some = set(self.kinds.tolist())
        if self.number:
            return not self.strict and 1 not in some
        return "mask" in self.name.rpartition(".")[2] and some == {0, 3} and bool((self.bits[self.kinds == 0] == 0).all())


def kinds_of(parts):
    """(elements, parts) of FP64 -> kind, and which part gave it."""
    nan, pos, neg = np.isnan(parts), parts == np.inf, parts == -np.inf
    which = np.where(nan.any(1), 1, np.where(pos.any(1), 2, np.where(neg.any(1), 3, 0))).astype(np.int8)
    by_kind = np.stack([np.zeros_like(nan), nan, pos, neg])
    return which, by_kind[which, np.arange(len(which))].argmax(1)


def entry_of_tensor(name, tensor):
    tensor = tensor.detach()
    shape, count = tuple(tensor.shape), tensor.numel()
    place = np.zeros(shape, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, tensor.stride())):
        place = place + (np.arange(size) * stride).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    stored = np.broadcast_to(place, shape).reshape(-1)
    dense = tensor.resolve_conj().contiguous().reshape(-1)
    if not (dense.is_floating_point() or dense.is_complex()) or dense.dtype == torch.float4_e2m1fn_x2:
        return Entry(name, shape, np.zeros(count, np.int8), np.zeros(count, np.uint64), stored, floating=False)
    if dense.dtype == torch.complex32:
        dense = dense.view(torch.float16).reshape(-1, 2)
    elif dense.is_complex():
        dense = torch.view_as_real(dense)
    else:
        dense = dense.reshape(-1, 1)
    wide = dense.to(torch.float32).numpy().astype(np.float64) if dense.dtype != torch.float64 else dense.numpy()
    unsigned, _ = UNSIGNED[dense.element_size()]
    codes = dense.view(unsigned).numpy().astype(np.uint64)
    kinds, part = kinds_of(wide)
    return Entry(name, shape, kinds, codes[np.arange(count), part], stored)


def entry_of_array(name, array):
    array = np.asarray(array)
    flat = np.ascontiguousarray(array).reshape(-1)
    stored = np.arange(flat.size)
    if flat.dtype.kind not in "fc":
        return Entry(name, array.shape, np.zeros(flat.size, np.int8), np.zeros(flat.size, np.uint64), stored, floating=False)
    part = flat.dtype.itemsize // (2 if flat.dtype.kind == "c" else 1)
    floats = flat.view(flat.dtype.str[0] + "f" + str(part)).reshape(flat.size, -1)
    codes = floats.view(flat.dtype.str[0] + "u" + str(part)).astype(np.uint64)
    kinds, which = kinds_of(floats.astype(np.float64))
    return Entry(name, array.shape, kinds, codes[np.arange(flat.size), which], stored)


def entry_of_number(name, value, strict):
    array = entry_of_array(name, np.float64(value))
    return dataclasses.replace(array, number=True, strict=strict)


# ---- whole objects ------------------------------------------------------------------------------------------------------------------

# Under these keys an infinity is a fault and no "best so far".
STRICT = {"optimizer", "scaler", "param_groups", "lr", "scale", "_last_lr", "base_lrs"}


def key_text(key, place):
    if isinstance(key, str):
        return "".join(c if c >= " " and c != "\x7f" else "\\x%02x" % ord(c) for c in key)
    return str(key) if isinstance(key, (int, bool, type(None))) else str(place)


class Walk:
    """All that torch.save writes of an object, by the path of keys. names: of the parameters of `optimizer`, in the order of its
    numbers; empty where the file does not say them."""

    def __init__(self, thing, names=()):
        self.entries, self.finite_numbers, self.seen, self.alive = [], 0, set(), []
        self.names = names
        self.visit(thing, [], False)

    def name(self, path):
        if self.names and path[:2] == ["optimizer", "state"] and len(path) > 3:
            return ".".join([*path[:2], *path[3:]]) + " of " + self.names[int(path[2])]
        return ".".join(path) or "(root)"

    def number(self, value, path, strict):
        if math.isfinite(value):
            self.finite_numbers += 1
        else:
            self.entries.append(entry_of_number(self.name(path), value, strict))

    def tensor(self, t, path, strict):
        name = self.name(path)
        if t.is_quantized:
            self.entries.append(entry_of_tensor(name, t.int_repr()))
            if t.qscheme() == torch.per_tensor_affine:
                self.number(t.q_scale(), path + ["scale"], True)
            else:
                scales = t.q_per_channel_scales()
                self.entries.append(entry_of_tensor(name + ".scale", scales))
                self.entries.append(entry_of_tensor(name + ".zero_point", t.q_per_channel_zero_points()))
        elif t.layout == torch.sparse_coo:
            self.entries.append(entry_of_tensor(name + ".indices", t._indices()))
            self.entries.append(entry_of_tensor(name + ".values", t._values()))
        elif t.layout == torch.sparse_csr:
            for part in ("crow_indices", "col_indices", "values"):
                self.entries.append(entry_of_tensor(name + "." + part, getattr(t, part)()))
        else:
            self.entries.append(entry_of_tensor(name, t))

    def visit(self, thing, path, strict):
        if isinstance(thing, bool) or isinstance(thing, (int, str, bytes, type(None), torch.Size, torch.dtype, torch.device)):
            return
        if isinstance(thing, torch.Tensor):
            return self.tensor(thing, path, strict)
        if isinstance(thing, (np.floating, np.complexfloating, np.integer, np.bool_)):
            self.entries.append(entry_of_array(self.name(path), thing))
            return
        if isinstance(thing, float):
            return self.number(thing, path, strict)
        if id(thing) in self.seen:
            return
        self.seen.add(id(thing))
        self.alive.append(thing)
        if isinstance(thing, complex):
            self.number(thing.real, path + ["0"], strict)
            self.number(thing.imag, path + ["1"], strict)
        elif isinstance(thing, np.ndarray):
            if thing.dtype.kind == "O":
                for i, item in enumerate(thing.reshape(-1)):
                    self.visit(item, path + [str(i)], strict)
            elif thing.dtype.kind not in "SU":
                self.entries.append(entry_of_array(self.name(path), thing))
        elif isinstance(thing, collections.abc.Mapping):
            for place, (key, value) in enumerate(thing.items()):
                self.visit(key, path + ["key"], True)
                self.visit(value, path + [key_text(key, place)], strict or key in STRICT)
        elif isinstance(thing, (list, tuple, set, frozenset, collections.deque)):
            for i, item in enumerate(thing):
                self.visit(item, path + [str(i)], strict)
        else:
            for key, value in vars(thing).items():
                self.visit(value, path + [key], strict or key in STRICT)


# ---- the tool -----------------------------------------------------------------------------------------------------------------------

EXITS = {"clean": 0, "non_finite": 1, "unreadable": 3, "limit": 3, "unsupported": 4}


def run(paths, *options, kernel=None, timeout=120, limits=None):
    """Objects in the order of the paths. A signal, a missing object, a status at odds with its exit code fail here."""
    env = dict(os.environ)
    env.pop("FIRSTBAD_KERNEL", None)
    if kernel:
        env["FIRSTBAD_KERNEL"] = kernel
    done = subprocess.run([str(TOOL), "scan", "--json", "--all", *options, "--", *map(str, paths)], capture_output=True, env=env,
                          timeout=timeout, preexec_fn=limits)
    assert done.returncode in (0, 1, 3, 4), (done.returncode, done.stderr[-2000:])
    out = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [o["path"] for o in out] == [str(p) for p in paths], done.stderr[-2000:]
    for o in out:
        assert EXITS[o["status"]] == o["exit"], o
        assert o["exit"] in (0, 1) or o["error"]["reason"], o
        assert not (o["exit"] == 0 and (o["findings"] or o["unscanned"] or not o["whole"])), o
    order = [1, 3, 4, 0]
    assert done.returncode == min((o["exit"] for o in out), key=order.index)
    return out


SHAPE_KEYS = ("shape", "flat_index", "index", "kind", "nan", "pos_inf", "neg_inf")


def plain(finding):
    out = {key: finding[key] for key in SHAPE_KEYS}
    out["bits"] = int(finding["bits"], 16)
    return out


def multiset(pairs):
    return sorted(pairs, key=lambda pair: json.dumps(pair, sort_keys=True))


def compare(got, entries, finite_numbers=0, unscanned=()):
    """One object of `scan --json --stats` against the truth: nothing more, nothing less."""
    bad = [(e.name, e.finding()) for e in entries if e.finding() and not e.is_legal()]
    legal = [(e.name, e.finding()) for e in entries if e.finding() and e.is_legal()]
    assert multiset((f["tensor"], plain(f)) for f in got["findings"]) == multiset(bad), got["path"]
    assert multiset((f["tensor"], plain(f)) for f in got["legal"]) == multiset(legal), got["path"]
    assert sorted(u["tensor"] for u in got["unscanned"]) == sorted(unscanned), got["path"]
    checked = sum(e.elements for e in entries if e.floating) + finite_numbers
    want = 1 if bad else 4 if unscanned or not checked else 0
    assert got["exit"] == want, (got["path"], got["status"], got["error"])
    rows = multiset((e.name, list(e.shape)) for e in entries) + ([("(numbers)", [finite_numbers])] if finite_numbers else [])
    assert multiset((r["tensor"], r["shape"]) for r in got["statistics"]) == multiset(rows), got["path"]
    assert got["tensors"] == len(rows) and got["elements"] == sum(e.elements for e in entries) + finite_numbers, got["path"]
    assert got["checked"] == checked, got["path"]
    assert got["bad_tensors"] == len(bad) and got["bad"] == sum(f["nan"] + f["pos_inf"] + f["neg_inf"] for _, f in bad), got["path"]
    assert got["bytes"] == os.path.getsize(got["path"]) or got["kind"] == "folder"
