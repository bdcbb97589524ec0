#!/usr/bin/env python3
"""Make tests/golden/safetensors: small files written by the real safetensors library, and hostile ones written byte by byte.

The files are committed, so that the tests need no Python. Run this again only to change them; it needs the packages
`safetensors` (0.8 or newer) and `numpy`, and gives the same bytes each time:

    python3 scripts/make-golden-safetensors.py [--ask]

With --ask it also prints what the real library says of every hostile file: some it takes, and firstbad must not.
"""
import ctypes
import json
import os
import struct
import sys

import numpy as np
import safetensors

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden", "safetensors")

# Name in TensorSpec, little-endian bytes of a finite element, of a non-finite one (None: the format has none), elements in these bytes.
CODES = [
    ("bool", "01", None, 1),
    ("uint8", "ff", None, 1),
    ("int8", "80", None, 1),
    ("int16", "0080", None, 1),
    ("uint16", "ffff", None, 1),
    ("int32", "0000807f", None, 1),
    ("uint32", "ffffffff", None, 1),
    ("int64", "000000000000f07f", None, 1),
    ("uint64", "ffffffffffffffff", None, 1),
    ("float16", "ff7b", "007c", 1),
    ("bfloat16", "7f7f", "80ff", 1),
    ("float32", "ffff7f7f", "0100a07f", 1),
    ("float64", "ffffffffffffef7f", "efbeadde0000f47f", 1),
    ("float8_e4m3fn", "7e", "7f", 1),
    ("float8_e5m2", "7b", "fc", 1),
    ("float8_e8m0fnu", "fe", "ff", 1),
    ("float8_e4m3fnuz", "7f", "80", 1),
    ("float8_e5m2fnuz", "7f", "80", 1),
    ("float4_e2m1fn_x2", "77", None, 1),
    ("complex64", "0000803f0000803f", "0000803f0000c0ff", 1),
]


def real(tensors, metadata=None):
    """Bytes of a file, made by the library. tensors: name -> (dtype, shape, bytes)."""
    keep = {name: ctypes.create_string_buffer(data, max(1, len(data))) for name, (_, _, data) in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(dtype=dtype, shape=shape, data_ptr=ctypes.addressof(keep[name]), data_len=len(data))
        for name, (dtype, shape, data) in tensors.items()
    }
    return bytes(safetensors.serialize(specs, metadata=metadata))


def f32(values):
    array = np.asarray(values, dtype="<f4")
    return ("float32", list(array.shape), array.tobytes())


def raw(header, data=b"", length=None):
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(begin, end, shape=None, dtype="F32"):
    return {"dtype": dtype, "shape": shape if shape is not None else [(end - begin) // 4], "data_offsets": [begin, end]}


def write(name, data):
    path = os.path.join(ROOT, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


def good_files():
    finite = {dtype + ".x": (dtype, [5], bytes.fromhex(code) * 5) for dtype, code, _, _ in CODES}
    finite["scalar"] = ("float32", [], bytes(4))
    finite["empty"] = ("float32", [0, 7], b"")
    write("every-dtype.safetensors", real(finite, {"format": "pt", "note": "caf\u00e9 \"quoted\""}))

    # One bad element in each format that has one: number 3 of 5.
    bad = {dtype + ".x": (dtype, [5], bytes.fromhex(good) * 3 + bytes.fromhex(code) + bytes.fromhex(good))
           for dtype, good, code, _ in CODES if code}
    write("bad-in-every-dtype.safetensors", real(bad))

    mask = np.triu(np.full((4, 4), -np.inf, dtype="<f4"), 1)
    write("causal-mask.safetensors", real({"h.0.attn.mask": f32(mask), "h.0.attn.weight": f32(np.ones((4, 4)))}))
    trained = np.ones(4, dtype="<f4")
    trained[2] = -np.inf
    write("trained-mask-token.safetensors", real({"mask_token": f32(trained)}))

    moments = np.full(6, 0.5, dtype="<f4")
    bad_moments = moments.copy()
    bad_moments[4] = np.nan
    bad_moments[5] = np.inf
    write("bad-moment.safetensors",
          real({"model.w": f32(moments), "optimizer.exp_avg.w": f32(bad_moments), "optimizer.exp_avg_sq.w": f32(moments)}))
    write("only-integers.safetensors", real({"rng": ("uint64", [3], bytes(range(24)))}))
    write("no-tensor.safetensors", real({}))

    # Written by hand as the library's older writers did: no padding, so that data begins at an odd offset; still valid.
    write("unaligned.safetensors", raw({"a": entry(0, 8), "odd": entry(8, 9, [1], "U8"), "b": entry(9, 17)},
                                       struct.pack("<ff", 1, 2) + b"\x07" + struct.pack("<ff", 3, float("nan"))))
    # F6 is named in the format; its writer does not exist yet. A key that no release knows must not make the file unreadable.
    write("six-bit.safetensors", raw({"f6": entry(0, 3, [4], "F6_E2M3")}, b"\xff\xff\xff"))
    write("unknown-key.safetensors", raw({"a": dict(entry(0, 4), future={"deep": [1, 2]})}, bytes(4)))
    write("unknown-dtype.safetensors", raw({"a": entry(0, 4), "b": entry(4, 8, [2], "F12_X")}, bytes(8)))


def sharded():
    first = real({"h.0.w": f32(np.ones(4)), "h.1.w": f32(np.ones(4))})
    second = real({"h.2.w": f32(np.ones(4))})
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    weight_map = {"h.0.w": names[0], "h.1.w": names[0], "h.2.w": names[1]}

    def folder(name, files, index):
        for file, data in files:
            write(os.path.join(name, file), data)
        text = index if isinstance(index, bytes) else json.dumps(index, indent=1).encode()
        write(os.path.join(name, "model.safetensors.index.json"), text)

    index = {"metadata": {"total_size": 48}, "weight_map": weight_map}
    both = [(names[0], first), (names[1], second)]
    folder("sharded", both, index)
    folder("sharded-missing", both[:1], index)
    folder("sharded-wrong-shard", both, dict(index, weight_map=dict(weight_map, **{"h.2.w": names[0]})))
    folder("sharded-unlisted", both, dict(index, weight_map={"h.0.w": names[0], "h.2.w": names[1]}))
    folder("sharded-path", both, dict(index, weight_map=dict(weight_map, **{"h.2.w": "../secret.safetensors"})))


def hostile():
    eight = bytes(8)
    good = entry(0, 8)
    text = json.dumps(good, separators=(",", ":"))
    files = {
        "truncated-length": b"\x10\x00\x00",
        "truncated-header": raw({"a": good})[:20],
        "truncated-data": raw({"a": good}, bytes(7)),
        "trailing-data": raw({"a": good}, bytes(9)),
        "length-past-end": raw({"a": good}, eight, length=10_000_000),
        "length-bomb": raw({"a": good}, eight, length=0x7FFFFFFFFFFFFFFF),
        "length-all-ones": raw({"a": good}, eight, length=0xFFFFFFFFFFFFFFFF),
        "length-zero": struct.pack("<Q", 0) + b"{",
        "length-short": raw({"a": good}, eight, length=20),
        "overlap": raw({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)),
        "same-range": raw({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)),
        "contained": raw({"a": entry(0, 16), "b": entry(4, 8)}, bytes(16)),
        "hole": raw({"a": entry(0, 8), "b": entry(12, 16)}, bytes(16)),
        "hole-at-start": raw({"a": entry(4, 12)}, bytes(12)),
        "empty-tensor-inside": raw({"a": entry(0, 8), "z": entry(4, 4, [0])}, eight),
        "past-end": raw({"a": entry(0, 4096)}, eight),
        "far-past-end": raw(('{"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,18446744073709551615]}}').encode(), eight),
        "backwards": raw({"a": entry(8, 0, [2])}, eight),
        "negative-offset": raw({"a": entry(-8, 0, [2])}, eight),
        "negative-shape": raw({"a": entry(0, 8, [-2])}, eight),
        "float-shape": raw(b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}', eight),
        "exponent-offset": raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8e0]}}', eight),
        "string-offset": raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":["0","8"]}}', eight),
        "offset-over-64-bits": raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551624]}}', eight),
        "shape-overflow": raw(b'{"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}}', eight),
        "shape-overflow-by-bits": raw(b'{"a":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}}', eight),
        "shape-overflow-then-zero": raw(b'{"a":{"dtype":"F32","shape":[18446744073709551615,18446744073709551615,0],"data_offsets":[0,0]}}'),
        "shape-disagrees": raw({"a": entry(0, 8, [3])}, eight),
        "half-byte": raw({"a": entry(0, 2, [3], "F4")}, bytes(2)),
        "one-offset": raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[8]}}', eight),
        "three-offsets": raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}', eight),
        "no-dtype": raw(b'{"a":{"shape":[2],"data_offsets":[0,8]}}', eight),
        "no-shape": raw(b'{"a":{"dtype":"F32","data_offsets":[0,8]}}', eight),
        "no-offsets": raw(b'{"a":{"dtype":"F32","shape":[2]}}', eight),
        "dtype-number": raw(b'{"a":{"dtype":32,"shape":[2],"data_offsets":[0,8]}}', eight),
        "two-dtypes": raw(b'{"a":{"dtype":"I32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', eight),
        "two-names": raw(('{"a":%s,"a":%s}' % (text, text)).encode(), eight),
        "two-names-escaped": raw(('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                                  '"\\u0061":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}').encode(), eight),
        "two-metadata": raw(('{"__metadata__":{},"__metadata__":{},"a":%s}' % text).encode(), eight),
        "metadata-number": raw({"__metadata__": {"epoch": 1}, "a": good}, eight),
        "metadata-list": raw({"__metadata__": ["pt"], "a": good}, eight),
        "entry-list": raw(b'{"a":["F32",[2],[0,8]]}', eight),
        "header-list": struct.pack("<Q", 2) + b"[]",
        "bad-utf8": raw(b'{"\xff\xfe":' + text.encode() + b"}", eight),
        "overlong-utf8": raw(b'{"\xc0\xaf":' + text.encode() + b"}", eight),
        "lone-surrogate": raw(b'{"\\ud800":' + text.encode() + b"}", eight),
        "nul-in-name": raw(b'{"a\\u0000b":' + text.encode() + b"}", eight),
        "raw-control": raw(b'{"a\x01":' + text.encode() + b"}", eight),
        "long-name": raw({"n" * 5000: good}, eight),
        "deep": raw(b'{"a":' + b"[" * 400 + b"]" * 400 + b"}"),
        "deep-unknown-key": raw(b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":' + b"[" * 100 + b"]" * 100 + b"}}", eight),
        "trailing-comma": raw(b'{"a":' + text.encode() + b",}", eight),
        "two-documents": raw(b'{"a":' + text.encode() + b"}{}", eight),
        "nan-literal": raw(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}}', eight),
        "many-dims": raw({"a": entry(0, 4, [1] * 100)}, bytes(4)),
    }
    for name, data in files.items():
        write(os.path.join("hostile", name + ".safetensors"), data)
    return files


def main():
    good_files()
    sharded()
    files = hostile()
    if "--ask" in sys.argv:
        for name, data in files.items():
            try:
                safetensors.deserialize(data)
                print("%-26s taken" % name)
            except Exception as error:  # the library raises its own type, and others on bad text
                print("%-26s %s" % (name, error))


if __name__ == "__main__":
    main()
