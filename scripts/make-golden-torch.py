#!/usr/bin/env python3
"""Make tests/golden/zip, tests/golden/torch and tests/golden/npz: small files written by the real torch and numpy, and hostile ones.

The files are committed, so that the tests need no Python. Run this again only to change them; it needs `torch` (2.13) and `numpy`.
All files come out the same each time, but for the legacy ones of torch, which name storages by their addresses:

    python3 scripts/make-golden-torch.py [--ask]

What was planted where stands in truth.json beside the files: outcome, and for each finding "NAME INDEX KIND". With --ask it also
prints what zipfile, torch and numpy say of the hostile files: some they take, and firstbad must not.
"""
import io
import json
import os
import pickle
import struct
import sys
import zipfile
import zlib

import numpy as np
import torch

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
NAN, INF = float("nan"), float("inf")

# numpy and zipfile write the time of day; the same bytes each time are wanted.
zipfile.time.localtime = lambda *_: (1980, 1, 1, 0, 0, 0, 0, 0, 0)


def write(folder, name, data):
    path = os.path.join(GOLDEN, folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


# ---- zip archives, byte by byte -----------------------------------------------------------------------------------------------------


class Member:
    """One member; fields that start with local_ differ from the directory only when a test wants them to."""

    def __init__(self, name, data=b"", method=0, flags=0, **other):
        self.name = name if isinstance(name, bytes) else name.encode()
        self.data, self.method, self.flags = data, method, flags
        if method == 8:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            self.stored = packer.compress(data) + packer.flush()
        else:
            self.stored = data
        self.crc, self.size, self.stored_size = zlib.crc32(data), len(data), len(self.stored)
        self.extra, self.local_extra, self.comment, self.between, self.disk = b"", b"", b"", b"", 0
        self.offset = None
        self.local_name = self.local_flags = self.local_method = self.local_crc = self.local_size = self.local_stored_size = None
        for key, value in other.items():
            assert hasattr(self, key), key
            setattr(self, key, value)

    def local(self):
        def pick(local, central):
            return central if local is None else local
        name = pick(self.local_name, self.name)
        late = self.flags & 8
        return struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, pick(self.local_flags, self.flags), pick(self.local_method, self.method), 0, 0,
                           pick(self.local_crc, 0 if late else self.crc), pick(self.local_stored_size, 0 if late else self.stored_size),
                           pick(self.local_size, 0 if late else self.size), len(name), len(self.local_extra)) + name + self.local_extra

    def central(self, offset):
        return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, self.flags, self.method, 0, 0, self.crc, self.stored_size, self.size,
                           len(self.name), len(self.extra), len(self.comment), self.disk, 0, 0,
                           offset if self.offset is None else self.offset) + self.name + self.extra + self.comment


def end_record(members, directory_bytes, place, comment=b"", **other):
    v = dict(disk=0, directory_disk=0, here=members, count=members, size=directory_bytes, at=place, comment_bytes=len(comment))
    v.update(other)
    return struct.pack("<4sHHHHIIH", b"PK\5\6", v["disk"], v["directory_disk"], v["here"], v["count"], v["size"], v["at"],
                       v["comment_bytes"]) + comment


def end64(members, directory_bytes, place, own_place, **other):
    v = dict(count=members, size=directory_bytes, at=place, bytes=44, disk=0, disks=1, here_at=own_place)
    v.update(other)
    return struct.pack("<4sQHHIIQQQQ", b"PK\6\6", v["bytes"], 45, 45, v["disk"], 0, v["count"], v["count"], v["size"], v["at"]) + \
        struct.pack("<4sIQI", b"PK\6\7", 0, v["here_at"], v["disks"])


def archive(members, prefix=b"", before_directory=b"", wide=None, tail=b"", comment=b"", directory_tail=b"", **end):
    """members in the order of places; wide: None, or fields of the zip64 end record that differ."""
    out, places = prefix, []
    for m in members:
        places.append(len(out))
        out += m.local() + m.stored
        if m.flags & 8:
            out += struct.pack("<4sIII", b"PK\7\10", m.crc, m.stored_size, m.size)
        out += m.between
    out += before_directory
    at = len(out)
    directory = b"".join(m.central(place) for m, place in zip(members, places)) + directory_tail
    out += directory
    if wide is not None:
        out += end64(len(members), len(directory), at, len(out), **wide)
    return out + end_record(len(members), len(directory), at, comment, **end) + tail


def repack(data, change, **how):
    """The members of an archive as Members, changed by a function from name to None (leave out), bytes or a list of Members."""
    members = []
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        for info in zipped.infolist():
            content = zipped.read(info)
            new = change(info.filename, content)
            if isinstance(new, list):
                members += new
            elif new is not None:
                members.append(Member(info.filename, new))
    return archive(members, **how)


def zips():
    a, b = Member("a", b"alpha"), Member("b/c", b"beta" * 100, method=8)
    good = {
        "two": archive([a, b]),
        "empty": archive([]),
        "empty-member": archive([Member("a"), Member("b", method=8)]),
        "comment": archive([a, b], comment=b"made by hand"),
        "wide": archive([a, b], wide={}),
        "wide-full": archive([Member("a", b"alpha", size=0xffffffff, stored_size=0xffffffff, offset=0xffffffff,
                                     extra=struct.pack("<HHQQQ", 1, 24, 5, 5, 0), local_size=5, local_stored_size=5)],
                             wide={}, count=0xffff, here=0xffff, size=0xffffffff, at=0xffffffff),
        "wide-local": archive([Member("a", b"alpha", local_size=0xffffffff, local_stored_size=0xffffffff,
                                      local_extra=struct.pack("<HHQQ", 1, 16, 5, 5)), b]),
        "descriptor": archive([Member("a", b"alpha", flags=8), Member("b/c", b"beta" * 100, method=8, flags=8)]),
        "descriptor-bare": bare_descriptor(),
        "descriptor-wide": wide_descriptor(),
        "unicode": archive([Member("gr\u00fc\u00dfe/\u4e16", b"x", flags=0x800)]),
        "folder": archive([Member("d/"), Member("d/a", b"alpha")]),
        "directory-order": reordered(),
        "end-mark-in-data": archive([Member("a", b"..PK\5\6" + b"\1" * 40)]),
        "dots-in-names": archive([Member("a..b/..c/d..", b"x")]),
        "no-checksum": archive([Member("a", b"alpha", crc=0)]),
    }
    for name, data in good.items():
        write("zip", name + ".zip", data)

    big = Member("n" * 4097, b"x")
    inner = archive([Member("evil", b"evil")])
    later = archive([a, b])
    hostile = {
        "prefix": archive([a, b], prefix=b"#!/bin/sh\n"),
        "prefix-offsets-unchanged": b"#!/bin/sh\n" + later,
        "prefix-is-an-archive": inner + later,
        "trailing": later + b"\n",
        "trailing-zeros": later + bytes(100),
        "comment-too-long": archive([a], comment=b"abc", comment_bytes=2),
        "comment-too-short": archive([a], comment=b"abc", comment_bytes=4),
        "comment-is-an-end-record": archive([a], comment=b"xx" + end_record(0, 0, 0)),
        "comment-holds-a-misfit-end-record": archive([a], comment=b"xx" + end_record(0, 0, 0, comment_bytes=7) + b"yy"),
        "comment-is-an-archive": archive([a], comment=inner),
        "no-end": later[:-22],
        "no-end-but-the-mark": later[:-1],
        "counts-disagree": archive([a, b], here=1),
        "count-too-small": archive([a, b], here=1, count=1),
        "count-too-large": archive([a, b], here=3, count=3),
        "count-huge": archive([a, b], wide={"count": 1 << 40}, here=0xffff, count=0xffff),
        "count-over-the-limit": archive([a], wide={"count": 2000001}, here=0xffff, count=0xffff),
        "directory-size-small": archive([a, b], size=46),
        "directory-size-huge": archive([a, b], size=0xfffffffe),
        "directory-beyond": archive([a, b], at=0xfffffff0),
        "directory-gap": archive([a, b], before_directory=b"hole"),
        "directory-followed": archive([a, b], directory_tail=b"tail"),
        "disk": archive([a], disk=1, directory_disk=1),
        "member-on-another-disk": archive([Member("a", b"alpha", disk=1)]),
        "wide-disagrees": archive([a, b], wide={"count": 1}),
        "wide-size-disagrees": archive([a, b], wide={"size": 5}),
        "wide-place-disagrees": archive([a, b], wide={"at": 5}),
        "wide-record-size": archive([a, b], wide={"bytes": 45}),
        "wide-record-elsewhere": archive([a, b], wide={"here_at": 3}),
        "wide-two-disks": archive([a, b], wide={"disks": 2}),
        "wide-missing": archive([a, b], size=0xffffffff, at=0xffffffff),
        "wide-field-missing": archive([Member("a", b"alpha", size=0xffffffff, stored_size=0xffffffff)]),
        "wide-field-short": archive([Member("a", b"alpha", size=0xffffffff, stored_size=0xffffffff, extra=struct.pack("<HHQ", 1, 8, 5))]),
        "wide-field-long": archive([Member("a", b"alpha", size=0xffffffff, extra=struct.pack("<HHQQ", 1, 16, 5, 5))]),
        "wide-field-twice": archive([Member("a", b"alpha", size=0xffffffff, stored_size=0xffffffff,
                                            extra=struct.pack("<HHQQ", 1, 16, 5, 5) * 2)]),
        "wide-field-beyond": archive([Member("a", b"alpha", size=0xffffffff, stored_size=0xffffffff, extra=struct.pack("<HHQQ", 1, 60, 5, 5))]),
        "wide-size-over-63-bits": archive([Member("a", b"alpha", size=0xffffffff, stored_size=0xffffffff,
                                                  extra=struct.pack("<HHQQ", 1, 16, 1 << 63, 1 << 63))]),
        "wide-offset-overflows": archive([Member("a", b"alpha", offset=0xffffffff, extra=struct.pack("<HHQ", 1, 8, (1 << 64) - 20))]),
        "extra-damaged": archive([Member("a", b"alpha", extra=b"\1\0\0")]),
        "extra-second-name": archive([Member("a", b"alpha", extra=struct.pack("<HHBI1s", 0x7075, 6, 1, zlib.crc32(b"a"), b"b"))]),
        "duplicate": archive([a, Member("a", b"other")]),
        "same-place": archive([a, Member("z", b"alpha", offset=0, local_name=b"a")]),
        "quoted-overlap": quoted_overlap(),
        "inside-another": inside_another(),
        "backwards": archive([Member("a", b"alpha", offset=40), Member("b", b"beta", offset=0)]),
        "place-in-directory": archive([a, Member("b", b"beta", offset=100)]),
        "place-beyond": archive([Member("a", b"alpha", offset=0xfffffff0)]),
        "hidden-member": archive([Member("a", b"alpha", between=Member("hidden", b"evil").local() + b"evil"), b]),
        "hidden-byte": archive([Member("a", b"alpha", between=b"!"), b]),
        "name-differs": archive([Member("a", b"alpha", local_name=b"b")]),
        "name-length-differs": archive([Member("a", b"alpha", local_name=b"ab")]),
        "flags-differ": archive([Member("a", b"alpha", local_flags=1)]),
        "flags-differ-descriptor": archive([Member("a", b"alpha", local_flags=8)]),
        "method-differs": archive([Member("a", b"alpha", local_method=8)]),
        "checksum-differs": archive([Member("a", b"alpha", local_crc=1)]),
        "size-differs": archive([Member("a", b"alpha", local_size=4, local_stored_size=4)]),
        "size-differs-from-zero": archive([Member("a", b"alpha", local_size=0, local_stored_size=0)]),
        "descriptor-differs": changed_descriptor(),
        "local-mark": archive([a, b]).replace(b"PK\3\4", b"PK\3\5", 1),
        "central-mark": archive([a, b]).replace(b"PK\1\2", b"PK\1\3", 1),
        "stored-two-sizes": archive([Member("a", b"alpha", size=6, local_size=6)]),
        "size-too-large": archive([Member("a", b"alpha", size=5000, stored_size=5000)]),
        "encrypted": archive([Member("a", b"alpha", flags=1)]),
        "strong": archive([Member("a", b"alpha", flags=0x41)]),
        "masked": archive([Member("a", b"alpha", flags=0x2000)]),
        "flags-meaningless": archive([Member("a", b"alpha", flags=0x80)]),
        "method-bzip2": archive([Member("a", b"alpha", method=12)]),
        "method-99": archive([Member("a", b"alpha", method=99)]),
        "name-empty": archive([Member("", b"alpha")]),
        "name-absolute": archive([Member("/etc/passwd", b"alpha")]),
        "name-up": archive([Member("a/../../b", b"alpha")]),
        "name-up-end": archive([Member("a/..", b"alpha")]),
        "name-up-only": archive([Member("..", b"alpha")]),
        "name-backslash": archive([Member("a\\b", b"alpha")]),
        "name-nul": archive([Member(b"a\0b", b"alpha")]),
        "name-control": archive([Member(b"a\x1b[2Jb", b"alpha")]),
        "name-delete": archive([Member(b"a\x7f", b"alpha")]),
        "name-c1": archive([Member("a\u009bb".encode(), b"alpha", flags=0x800)]),
        "name-no-utf8": archive([Member(b"\xff\xfe", b"alpha", flags=0x800)]),
        "name-overlong": archive([Member(b"a\xc0\xaf", b"alpha")]),
        "name-surrogate": archive([Member(b"\xed\xa0\x80", b"alpha")]),
        "name-cut": archive([Member(b"a\xe4\xb8", b"alpha")]),
        "name-long": archive([big]),
    }
    for name, data in hostile.items():
        write("zip/hostile", name + ".zip", data)
    # These open, and fail when the member is read.
    content = {
        "stored-checksum": archive([Member("a", b"alpha", crc=5)]),
        "deflated-checksum": archive([Member("a", b"alpha" * 20, method=8, crc=5)]),
        "deflated-short": archive([Member("a", b"alpha" * 20, method=8, size=101)]),
        "deflated-long": archive([Member("a", b"alpha" * 20, method=8, size=99)]),
        "deflated-cut": cut_stream(),
        "deflated-followed": followed_stream(),
        "deflated-noise": noise_stream(),
        "deflated-bomb": archive([Member("a", b"", method=8, size=300 << 20)]),
    }
    for name, data in content.items():
        write("zip/content", name + ".zip", data)
    return hostile


def bare_descriptor():
    m = Member("a", b"alpha", flags=8)
    head = m.local() + m.stored + struct.pack("<III", m.crc, 5, 5)
    return head + m.central(0) + end_record(1, len(m.central(0)), len(head))


def wide_descriptor():
    m = Member("a", b"alpha", flags=8)
    head = m.local() + m.stored + struct.pack("<4sIQQ", b"PK\7\10", m.crc, 5, 5)
    return head + m.central(0) + end_record(1, len(m.central(0)), len(head))


def changed_descriptor():
    data = archive([Member("a", b"alpha", flags=8)])
    at = data.index(b"PK\7\10")
    return data[:at + 8] + b"\6" + data[at + 9:]


def reordered():
    a, b = Member("a", b"alpha"), Member("b", b"beta")
    head = a.local() + a.stored
    place = len(head)
    head += b.local() + b.stored
    directory = b.central(place) + a.central(0)
    return head + directory + end_record(2, len(directory), len(head))


def quoted_overlap():
    """The kernel of many members that share one compressed body: a stored block whose data is the next local header."""
    inner = Member("b", b"beta")
    body = inner.local() + inner.stored
    outer = Member("a", body)
    head = outer.local() + body
    directory = outer.central(0) + inner.central(len(outer.local()))
    return head + directory + end_record(2, len(directory), len(head))


def inside_another():
    outer = Member("a", Member("b", b"beta").local() + b"beta" + b"rest")
    head = outer.local() + outer.stored
    directory = outer.central(0) + Member("b", b"beta").central(31)
    return head + directory + end_record(2, len(directory), len(head))


def cut_stream():
    m = Member("a", b"alpha" * 20, method=8)
    m.stored = m.stored[:-3]
    m.stored_size = len(m.stored)
    return archive([m])


def followed_stream():
    m = Member("a", b"alpha" * 20, method=8)
    m.stored += b"xyz"
    m.stored_size = len(m.stored)
    return archive([m])


def noise_stream():
    m = Member("a", b"alpha" * 20, method=8)
    m.stored = b"\xff" * len(m.stored)
    return archive([m])


# ---- torch --------------------------------------------------------------------------------------------------------------------------


class Named(io.BytesIO):
    """torch names the folder of an archive after the file; a stream gives `archive`."""


def saved(thing, legacy=False):
    out = Named()
    torch.save(thing, out, _use_new_zipfile_serialization=not legacy)
    return out.getvalue()


def with_code(dtype, code, count=5, index=3):
    """count elements of 0 or 1, one of them with this code (bytes, little-endian)."""
    size = torch.empty(0, dtype=dtype).element_size()
    data = bytearray(size * count)
    data[index * size:index * size + size] = code
    return torch.frombuffer(data, dtype=torch.uint8).clone().view(dtype)


CODES = {
    torch.float64: b"\xef\xbe\xad\xde\0\0\xf4\x7f", torch.float32: b"\1\0\xa0\x7f", torch.float16: b"\0\x7c", torch.bfloat16: b"\x80\xff",
    torch.float8_e4m3fn: b"\x7f", torch.float8_e5m2: b"\xfc", torch.float8_e4m3fnuz: b"\x80", torch.float8_e5m2fnuz: b"\x80",
    torch.float8_e8m0fnu: b"\xff", torch.complex64: b"\0\0\x80\x3f\0\0\xc0\xff", torch.complex128: b"\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xf0\x7f",
}
KINDS = {torch.float16: "+inf", torch.bfloat16: "-inf", torch.float8_e5m2: "-inf", torch.complex128: "+inf"}


def short(dtype):
    return str(dtype).replace("torch.", "")


def planted(values, *where):
    t = torch.as_tensor(values, dtype=torch.float32).clone()
    for index, value in where:
        t.view(-1)[index] = value
    return t


def objects():
    """name -> (object, outcome, findings)"""
    out = {}
    out["clean"] = ({"w": torch.ones(2, 3), "b": torch.zeros(3, dtype=torch.bfloat16)}, "clean", [])
    out["bare-tensor"] = (planted(range(6), (4, NAN)), "non_finite", ["* 4 nan"])
    out["dtypes"] = ({short(d): with_code(d, code) for d, code in CODES.items()}, "non_finite",
                     ["%s 3 %s" % (short(d), KINDS.get(d, "nan")) for d in CODES])
    out["integers"] = ({"a": torch.full((3,), -1), "m": torch.tensor([True, False])}, "clean", [])
    out["empty"] = ({}, "unsupported", [])
    base = planted(range(20), (7, NAN)).view(4, 5)
    out["views"] = ({"base": base, "row": base[1], "column": base[:, 2], "turned": base.t(), "wide": base[0, :1].expand(7),
                     "tied": base, "tail": base[2:]}, "non_finite",
                    ["base 7 nan", "row 2 nan", "column 1 nan", "turned 9 nan", "tied 7 nan"])
    wide = planted(range(4), (2, INF))
    out["expanded"] = ({"x": wide[2:3].expand(3, 5)}, "non_finite", ["x 0 +inf"])
    out["unreferenced"] = ({"head": planted(range(8), (6, NAN))[:4]}, "clean", [])
    out["scalars"] = ({"zero": torch.tensor(1.0), "none": torch.empty(0, 7), "bad": torch.tensor(-INF)}, "non_finite", ["bad 0 -inf"])
    out["nested"] = ({"a": [{"b": (torch.ones(2), planted(range(3), (1, NAN)))}], "n": {"m": {"k": torch.ones(1)}}}, "non_finite",
                     ["a.0.b.1 1 nan"])
    out["parameter"] = ({"p": torch.nn.Parameter(planted(range(4), (2, NAN)))}, "non_finite", ["p 2 nan"])
    out["sparse"] = ({"s": torch.sparse_coo_tensor([[0, 2]], [1.0, NAN], (4,)), "r": torch.tensor([[0, 2.0], [NAN, 0]]).to_sparse_csr()},
                     "non_finite", ["s* 1 nan", "r* 1 nan"])
    quantised = torch.quantize_per_channel(torch.ones(3, 4), torch.tensor([1.0, NAN, 1.0]), torch.zeros(3), 0, torch.qint8)
    out["quantised"] = ({"q": quantised, "t": torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.quint8)}, "non_finite", ["q* 1 nan"])
    out["numpy"] = ({"x": np.array([1.0, NAN, 3.0]), "f": np.asfortranarray([[1, 2], [3, INF]], dtype="<f4"), "i": np.arange(3)},
                    "non_finite", ["x 1 nan", "f 3 +inf"])
    return out


def training(bad):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    state = optimizer.state_dict()
    if bad:
        state["state"][1]["exp_avg"][1] = NAN
    return {"model": model.state_dict(), "optimizer": state, "scheduler": scheduler.state_dict(),
            "scaler": {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000, "_growth_tracker": 3},
            "rng": torch.get_rng_state()[:16].clone(), "iteration": 1, "best_val_loss": INF}


class Script(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(planted(range(4), (1, NAN)))

    def forward(self, x):
        return x + self.w + torch.tensor([1.0, 2.0, 3.0, 4.0])


def scripted(freeze):
    module = torch.jit.script(Script().eval())
    if freeze:
        module = torch.jit.freeze(module)
    out = Named()
    torch.jit.save(module, out)
    return out.getvalue()


def parted():
    """Storages that are parts of another one, as torch before 0.4 wrote them."""
    root = planted(range(10), (6, NAN))

    class Storage:
        def __init__(self, part):
            self.part = part

    class Writer(pickle.Pickler):
        def persistent_id(self, thing):
            if not isinstance(thing, Storage):
                return None
            return ("storage", torch.FloatStorage, "1000", "cpu", 10, thing.part)

    class Tensor:
        def __init__(self, part, offset, shape):
            self.args = (Storage(part), offset, shape, (1,), False, {})

        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, self.args

    out = io.BytesIO()
    for thing in (torch.serialization.MAGIC_NUMBER, 1001,
                  {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}):
        pickle.dump(thing, out, protocol=2)
    Writer(out, protocol=2).dump({"first": Tensor(("2000", 0, 5), 1, (4,)), "second": Tensor(("3000", 5, 5), 0, (5,))})
    pickle.dump(["1000"], out, protocol=2)
    return out.getvalue() + struct.pack("<q", 10) + root.numpy().tobytes()


def seeds():
    """What is inside archives, for the fuzz drivers, which put it back into one."""
    corpus = os.path.join("..", "fuzz", "corpus")
    for name in ("views", "dtypes", "quantised", "sparse", "numpy", "parameter", "nested", "expanded"):
        with zipfile.ZipFile(io.BytesIO(saved(objects()[name][0]))) as zipped:
            write(os.path.join(corpus, "torch_zip"), name + ".pkl", zipped.read("archive/data.pkl"))
    with zipfile.ZipFile(io.BytesIO(scripted(True))) as zipped:
        write(os.path.join(corpus, "torch_zip"), "constants.pkl", zipped.read("archive/constants.pkl"))
    for name, array in (("plain", np.array([1.0, NAN])), ("big", np.ones(2, dtype=">f4")), ("turned", np.asfortranarray(np.ones((2, 3)))),
                        ("fields", np.zeros(2, dtype=[("a", "<i4"), ("b", "<f4", (2,))])), ("objects", np.array([None], dtype=object))):
        write(os.path.join(corpus, "npz"), name + ".npy", npy(array))


def torches():
    truth = []

    def keep(name, data, outcome, findings):
        write("torch", name, data)
        truth.append({"file": name, "outcome": outcome, "findings": findings})

    for name, (thing, outcome, findings) in objects().items():
        keep(name + ".pt", saved(thing), outcome, findings)
        keep("legacy-" + name + ".pt", saved(thing, legacy=True), outcome, findings)
    moment = ["optimizer.state.exp_avg of 0.bias 1 nan"]
    keep("training.pt", saved(training(False)), "clean", [])
    keep("training-bad-moment.pt", saved(training(True)), "non_finite", moment)
    keep("legacy-training-bad-moment.pt", saved(training(True), legacy=True), "non_finite", moment)
    keep("script.pt", scripted(False), "non_finite", ["w 1 nan"])
    keep("script-frozen.pt", scripted(True), "non_finite", ["* 1 nan"])
    keep("legacy-parts.pt", parted(), "non_finite", ["second 1 nan"])
    one = {"w": planted(range(4), (2, NAN))}
    good = saved(one)
    bytes_of = one["w"].numpy()
    keep("big-endian.pt", repack(good, lambda n, d: b"big" if n.endswith("byteorder") else bytes_of.byteswap().tobytes()
                                 if n.endswith("data/0") else d), "non_finite", ["w 2 nan"])
    keep("before-byteorder.pt", repack(good, lambda n, d: None if "byteorder" in n or "/." in n else d), "non_finite", ["w 2 nan"])
    keep("deflated.pt", repack(good, lambda n, d: [Member(n, d, method=8)]), "non_finite", ["w 2 nan"])
    keep("extra-members.pt", repack(good, lambda n, d: [Member(n, d), Member("archive/data/7", b"1234"), Member("archive/evil.py", b"1")]
                                    if n.endswith("version") and "/." not in n else d), "non_finite", ["w 2 nan"])
    torch.serialization.set_crc32_options(False)
    keep("no-checksums.pt", saved(one), "non_finite", ["w 2 nan"])
    torch.serialization.set_crc32_options(True)
    legacy = saved(one, legacy=True)
    at = legacy.index(b"little_endian")
    keep("legacy-big-endian.pt", legacy[:at] + legacy[at:].replace(b"\x88", b"\x89", 1), "non_finite", ["w 2 nan"])
    pickled = {"lr": 0.1, "x": np.array([1.0, 2.0, -INF])}
    for protocol in (2, 3, 4, 5):
        keep("bare-protocol-%d.pkl" % protocol, pickle.dumps(pickled, protocol=protocol), "non_finite", ["x 2 -inf"])
    write("torch", "truth.json", json.dumps(truth, indent=1).encode() + b"\n")
    return hostile_torches(good, legacy)


def hostile_torches(good, legacy):
    def without(part):
        return repack(good, lambda n, d: None if n == "archive/" + part else d)

    def instead(part, data):
        return repack(good, lambda n, d: data if n == "archive/" + part else d)

    tail = legacy.rindex(struct.pack("<q", 4))
    hostile = {
        "storage-missing": without("data/0"),
        "storage-short": instead("data/0", bytes(12)),
        "storage-long": instead("data/0", bytes(20)),
        "storage-outside": repack(good, lambda n, d: [Member("data/0", d)] if n == "archive/data/0" else d),
        "object-missing": without("data.pkl"),
        "object-cut": repack(good, lambda n, d: d[:-1] if n == "archive/data.pkl" else d),
        "object-followed": repack(good, lambda n, d: d + b"." if n == "archive/data.pkl" else d),
        "object-empty": instead("data.pkl", b""),
        "version-missing": without("version"),
        "version-99": instead("version", b"99\n"),
        "version-word": instead("version", b"three\n"),
        "version-empty": instead("version", b""),
        "version-long": instead("version", b"3" * 65),
        "byteorder-middle": instead("byteorder", b"middle"),
        "format-2": instead(".format_version", b"2"),
        "two-objects": repack(good, lambda n, d: [Member(n, d), Member("other/data.pkl", d)] if n == "archive/data.pkl" else d),
        "object-and-arrays": repack(good, lambda n, d: [Member(n, d), Member("x.npy", npy(np.ones(3)))] if n.endswith("data.pkl") else d),
        "object-in-another-folder": repack(good, lambda n, d: [Member("first/version", b"3"), Member(n, d)] if n.endswith("data.pkl") else d),
        "no-folder": repack(good, lambda n, d: [Member("version", b"3"), Member(n, d)] if n.endswith("data.pkl") else d),
        "prefix": b"\x80\x02}." + good,
        "keras": archive([Member("metadata.json", b"{}"), Member("config.json", b"{}"), Member("model.weights.h5", b"\x89HDF\r\n\x1a\n")]),
        "other-zip": archive([Member("readme.txt", b"hello")]),
        "legacy-cut": legacy[:-1],
        "legacy-followed": legacy + b"!",
        "legacy-no-storage": legacy[:tail],
        "legacy-count": legacy[:tail] + struct.pack("<q", 3) + legacy[tail + 8:],
        "legacy-count-negative": legacy[:tail] + struct.pack("<q", -1) + legacy[tail + 8:],
        "legacy-protocol": legacy.replace(b"M\xe9\x03.", b"M\xea\x03.", 1),
        "legacy-no-keys": legacy_keys(legacy, tail, []) + legacy[tail:],
        "legacy-no-keys-no-data": legacy_keys(legacy, tail, []),
        "legacy-key-unknown": legacy_keys(legacy, tail, ["1"]) + legacy[tail:],
        "legacy-key-twice": legacy_keys(legacy, tail, None) + legacy[tail:] * 2,
        "legacy-keys-no-list": legacy_keys(legacy, tail, {}) + legacy[tail:],
        "legacy-key-number": legacy_keys(legacy, tail, [5]) + legacy[tail:],
        "legacy-magic-only": legacy[:15],
        "pickle-followed": pickle.dumps({"lr": 0.1}, protocol=2) + b"x",
        "pickle-cut": pickle.dumps({"lr": 0.1}, protocol=2)[:-1],
    }
    for name, data in hostile.items():
        write("torch/hostile", name + ".pt", data)
    return hostile


def legacy_keys(legacy, tail, keys):
    """The beginning of a legacy file with another list of keys; None: its own, twice."""
    class Reader(pickle.Unpickler):
        def persistent_load(self, pid):
            return torch.storage.TypedStorage(wrap_storage=torch.UntypedStorage(16), dtype=torch.float32, _internal=True)

    stream = io.BytesIO(legacy[:tail])
    for _ in range(4):
        Reader(stream).load()
    at = stream.tell()
    if keys is None:
        keys = pickle.loads(legacy[at:tail]) * 2
    return legacy[:at] + pickle.dumps(keys, protocol=2)


# ---- npz ----------------------------------------------------------------------------------------------------------------------------


def npy(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def savez(compressed=False, **arrays):
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def npzs():
    truth = []

    def keep(name, data, outcome, findings):
        write("npz", name, data)
        truth.append({"file": name, "outcome": outcome, "findings": findings})

    x = np.arange(6, dtype="<f4").reshape(2, 3)
    x[1, 1] = NAN
    arrays = {"x": x, "y": np.array([1.0, INF]), "i": np.arange(4), "big": np.array([1.0, -INF], dtype=">f8"),
              "half": np.array([1, 2, NAN], dtype="<f2"), "turned": np.asfortranarray(x), "none": np.ones((0, 3)), "c": np.array([1j, NAN])}
    findings = ["x 4 nan", "y 1 +inf", "big 1 -inf", "half 2 nan", "turned 4 nan", "c 1 nan"]
    keep("stored.npz", savez(**arrays), "non_finite", findings)
    keep("deflated.npz", savez(True, **arrays), "non_finite", findings)
    keep("clean.npz", savez(a=np.ones(3), b=np.zeros(2, dtype="<f2")), "clean", [])
    keep("clean-deflated.npz", savez(True, a=np.ones(3), b=np.zeros(2000, dtype="<f2")), "clean", [])
    keep("no-array.npz", savez(), "unsupported", [])
    keep("objects.npz", savez(o=np.array([None, 1], dtype=object), x=np.ones(2)), "unsupported", [])
    keep("structured.npz", savez(s=np.array([(1, NAN), (2, 1)], dtype=[("a", "<i4"), ("b", "<f4")])), "non_finite", ["s.b 0 nan"])
    keep("note.npz", archive([Member("x.npy", npy(np.ones(3))), Member("readme", b"hello")]), "clean", [])
    keep("first-is-no-array.npz", archive([Member("readme", b"hello"), Member("x.npy", npy(np.array([1.0, NAN])))]), "non_finite", ["x 1 nan"])
    keep("folders.npz", archive([Member("a/b.npy", npy(np.array([NAN])))]), "non_finite", ["a/b 0 nan"])
    write("npz", "truth.json", json.dumps(truth, indent=1).encode() + b"\n")
    good = npy(np.ones(3))
    hostile = {
        "array-cut": archive([Member("x.npy", good[:-1])]),
        "array-followed": archive([Member("x.npy", good + b"!")]),
        "array-empty": archive([Member("x.npy", b"")]),
        "array-no-magic": archive([Member("x.npy", b"hello world, this is no array")]),
        "header-bomb": archive([Member("x.npy", b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(100))]),
        "header-cut": archive([Member("x.npy", good[:40])]),
        "deflated-cut": archive([Member("x.npy", good[:40], method=8)]),
        "deflated-size": archive([Member("x.npy", good, method=8, size=len(good) + 8)]),
        "shape-overflow": archive([Member("x.npy", good.replace(b"(3,)", b"(1<<"))]),
        "object-of-torch": archive([Member("x.npy", good), Member("archive/data.pkl", b"\x80\2}.")]),
    }
    for name, data in hostile.items():
        write("npz/hostile", name + ".npz", data)
    return hostile


def ask(name, data, load):
    try:
        load(data)
        print("%-36s taken" % name)
    except Exception as error:  # each library raises its own types
        print("%-36s %s: %s" % (name, type(error).__name__, str(error).split("\n")[0][:90]))


def load_zip(data):
    with zipfile.ZipFile(io.BytesIO(data)) as zipped:
        for name in zipped.namelist():
            zipped.read(name)


def main():
    hostile = zips()
    hostile_torch = torches()
    hostile_npz = npzs()
    seeds()
    if "--ask" in sys.argv:
        for name, data in hostile.items():
            ask("zip " + name, data, load_zip)
        for name, data in hostile_torch.items():
            ask("torch " + name, data, lambda d: torch.load(io.BytesIO(d), weights_only=True))
        for name, data in hostile_npz.items():
            ask("npz " + name, data, lambda d: {k: v for k, v in np.load(io.BytesIO(d)).items()})


if __name__ == "__main__":
    main()
