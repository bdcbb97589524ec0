#!/usr/bin/env python3
"""Make tests/golden/npy, tests/golden/gguf and tests/golden/flax: small files written by NumPy, by the gguf package (with its
quantisers) and by Flax, some with bad numbers planted in them, and truth.json in each folder, which says what was planted where.

The files are committed, so that the tests need no Python. Run this again only to change them; it needs the packages `numpy`,
`ml_dtypes`, `gguf` (0.19 or newer) and `flax`, and gives the same bytes each time:

    python3 scripts/make-golden-arrays.py
"""
import io
import json
import os
import struct

import flax.serialization
import gguf
import ml_dtypes
import numpy as np

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden")
NAN32, SNAN32, INF32 = 0x7FC00000, 0x7F800001, 0x7F800000


class Folder:
    def __init__(self, name):
        self.path = os.path.join(GOLDEN, name)
        os.makedirs(self.path, exist_ok=True)
        self.files, self.findings = [], []

    def put(self, name, data, outcome="clean", findings=()):
        """findings: (tensor, index, kind, bits, offset in the file), in the order of the file."""
        with open(os.path.join(self.path, name), "wb") as out:
            out.write(data)
        self.files.append({"file": name, "outcome": "non_finite" if findings and outcome == "clean" else outcome})
        for tensor, index, kind, bits, offset in findings:
            self.findings.append({"file": name, "tensor": tensor, "index": index, "kind": kind, "bits": hex(bits),
                                  "offset": offset})

    def close(self):
        with open(os.path.join(self.path, "truth.json"), "w") as out:
            json.dump({"files": self.files, "findings": self.findings}, out, indent=1)
            out.write("\n")


# ---- npy --------------------------------------------------------------------------------------------------------------------

def npy_bytes(array, version=None, allow_pickle=False):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=allow_pickle)
    return out.getvalue()


BAD = {  # by size of a float: its bits, and what they are
    2: (0x7C00, "+inf"),
    4: (SNAN32, "nan"),
    8: (0xFFF0000000000000, "-inf"),
}


def planted(array, place, part=0):
    """The same array with a bad number at `place` (an index), by its bits. Returns bytes, (index, kind, bits, offset)."""
    raw = bytearray(npy_bytes(array))
    data_at = len(raw) - array.nbytes
    size = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
    bits, kind = BAD[size]
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    in_memory = np.ravel_multi_index(place, array.shape, order="F" if fortran else "C")
    at = data_at + int(in_memory) * array.dtype.itemsize
    raw[at + part * size:at + (part + 1) * size] = bits.to_bytes(size, "big" if array.dtype.str[0] == ">" else "little")
    return bytes(raw), (int(np.ravel_multi_index(place, array.shape)), kind, bits, at)


def make_npy():
    folder = Folder("npy")
    for dtype in ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8", "<c8", "<c16", ">c8"]:
        name = dtype.replace("<", "").replace(">", "big-")
        array = np.arange(30).reshape(5, 6).astype(dtype)
        folder.put(name + ".npy", npy_bytes(array))
        data, found = planted(array, (3, 4), part=1 if "c" in dtype else 0)
        folder.put("bad-" + name + ".npy", data, findings=[("array",) + found])
    fortran = np.asfortranarray(np.arange(60).reshape(3, 4, 5).astype("<f4"))
    folder.put("fortran.npy", npy_bytes(fortran))
    data, found = planted(fortran, (1, 2, 3))
    folder.put("bad-fortran.npy", data, findings=[("array",) + found])
    folder.put("scalar.npy", npy_bytes(np.float32(1.5)))
    folder.put("empty.npy", npy_bytes(np.zeros((3, 0, 2), "<f4")))
    folder.put("version-2.npy", npy_bytes(np.ones(3, "<f4"), version=(2, 0)))
    for dtype in ["|b1", "|i1", "|u1", "<i2", ">u4", "<i8", "<M8[ns]", ">m8[us]", "|S5", "<U3"]:
        folder.put("nothing-%s.npy" % dtype.strip("<>|").replace("[", "-").strip("]"), npy_bytes(np.zeros((2, 3), dtype)))

    pair = np.dtype([("x", "<f2"), ("y", "<f8")])  # four bytes of padding before it
    record = np.dtype({"names": ["id", "w", "pair"], "formats": ["<i4", ("<f4", (2, 3)), (pair, (2,))],
                       "offsets": [0, 4, 32]})
    records = np.zeros(4, record)
    records["w"] = 1
    folder.put("records.npy", npy_bytes(records))
    raw = bytearray(npy_bytes(records))
    at = len(raw) - records.nbytes
    w = at + 2 * record.itemsize + 4 + 4 * 5
    y = at + 3 * record.itemsize + record.fields["pair"][1] + 10 + 2
    raw[w:w + 4] = struct.pack("<I", NAN32)
    raw[y:y + 8] = struct.pack("<Q", 0x7FF0000000000000)
    folder.put("bad-records.npy", bytes(raw), findings=[("array.w", 2 * 6 + 5, "nan", NAN32, w),
                                                       ("array.pair[1].y", 3, "+inf", 0x7FF0000000000000, y)])
    folder.put("names-utf8.npy", npy_bytes(np.zeros(2, [("\u043c\u0430\u0441\u0441\u0430", "<f4")])))
    folder.put("names-latin1.npy", npy_bytes(np.zeros(2, [("poids_appris_\u00e9", ">f4")])))
    folder.put("only-integers.npy", npy_bytes(np.zeros(2, [("a", "<i4"), ("b", "|S3")])))
    folder.put("byte-orders.npy", npy_bytes(np.zeros(2, [("a", "<f4"), ("b", ">f4")])), "unsupported")

    folder.put("bfloat16.npy", npy_bytes(np.ones(3, ml_dtypes.bfloat16)), "unsupported")
    folder.put("float8.npy", npy_bytes(np.ones(3, ml_dtypes.float8_e4m3fn)), "unsupported")
    long_doubles = np.frombuffer(bytes(3 * np.dtype(np.longdouble).itemsize), np.longdouble)  # its padding would be noise
    folder.put("long-double.npy", npy_bytes(long_doubles), "unsupported")
    folder.put("objects.npy", npy_bytes(np.array([{"a": 1}], dtype=object), allow_pickle=True), "unsupported")
    folder.close()


# ---- gguf -------------------------------------------------------------------------------------------------------------------

Q = gguf.GGMLQuantizationType
# Where the first bad number of a block lies, its bytes, which element it scales, and what it reads as.
LANES = {
    Q.F32: (0, "0100807f", 0, "nan", SNAN32), Q.F16: (0, "00fc", 0, "-inf", 0xFC00), Q.BF16: (0, "c07f", 0, "nan", 0x7FC0),
    Q.F64: (0, "000000000000f07f", 0, "+inf", 0x7FF0000000000000),
    Q.Q4_0: (0, "007c", 0, "+inf", 0x7C00), Q.Q4_1: (2, "007e", 0, "nan", 0x7E00), Q.Q5_0: (0, "007c", 0, "+inf", 0x7C00),
    Q.Q5_1: (2, "00fc", 0, "-inf", 0xFC00), Q.Q8_0: (0, "007e", 0, "nan", 0x7E00), Q.Q2_K: (82, "007e", 0, "nan", 0x7E00),
    Q.Q3_K: (108, "007c", 0, "+inf", 0x7C00), Q.Q4_K: (2, "007c", 0, "+inf", 0x7C00), Q.Q5_K: (0, "00fe", 0, "nan", 0xFE00),
    Q.Q6_K: (208, "007c", 0, "+inf", 0x7C00), Q.Q8_K: (0, "0000c07f", 0, "nan", NAN32), Q.IQ2_XXS: (0, "007e", 0, "nan", 0x7E00),
    Q.IQ2_XS: (0, "007c", 0, "+inf", 0x7C00), Q.IQ3_XXS: (0, "007e", 0, "nan", 0x7E00), Q.IQ1_S: (0, "007e", 0, "nan", 0x7E00),
    Q.IQ4_NL: (0, "007c", 0, "+inf", 0x7C00), Q.IQ3_S: (0, "007e", 0, "nan", 0x7E00), Q.IQ2_S: (0, "00fc", 0, "-inf", 0xFC00),
    Q.IQ4_XS: (0, "007e", 0, "nan", 0x7E00), Q.TQ1_0: (52, "007c", 0, "+inf", 0x7C00), Q.TQ2_0: (64, "007e", 0, "nan", 0x7E00),
    Q.MXFP4: (0, "ff", 0, "nan", 0xFF),
    Q.NVFP4: (2, "7f", 32, "nan", 0x7F), Q.Q1_0: (0, "007e", 0, "nan", 0x7E00),
}
# The top nibbles of the four numbers of IQ1_M, the lowest first: 0x7d21 is a NaN.
LANES[Q.IQ1_M] = (48, "0010002000d00070", 0, "nan", 0x7D21)


def blocks_of(kind, rows, per_row):
    """rows x per_row finite blocks, made by the real quantiser where the package has one."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    values = np.linspace(-1, 1, rows * per_row * elements, dtype=np.float32).reshape(rows, -1)
    try:
        return np.ascontiguousarray(gguf.quants.quantize(values, kind)).view(np.uint8).reshape(rows, -1)
    except NotImplementedError:
        return np.zeros((rows, per_row * size), np.uint8)


def gguf_bytes(path, tensors, keys=lambda writer: None, **options):
    writer = gguf.GGUFWriter(path, "llama", **options)
    keys(writer)
    for name, (kind, data) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(path, "rb") as data:
        raw = data.read()
    where = {t.name: int(t.data_offset) for t in gguf.GGUFReader(path).tensors}
    os.remove(path)
    return bytearray(raw), where


def make_gguf():
    folder = Folder("gguf")
    scratch = os.path.join(folder.path, "scratch.gguf")
    kinds = [k for k in gguf.GGML_QUANT_SIZES if k != Q.Q8_1]  # never stored, and the package has another size for it than ggml
    tensors = {"blk.%s.weight" % k.name.lower(): (k, blocks_of(k, 2, 3)) for k in kinds}
    raw, where = gguf_bytes(scratch, tensors, lambda w: (w.add_float32("llama.rope.freq_base", 10000.0), w.add_uint32("n", 7)))
    folder.put("every-type.gguf", raw)
    findings = []
    for kind in kinds:
        if kind not in LANES:
            continue
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        place, code, element, what, bits = LANES[kind]
        name = "blk.%s.weight" % kind.name.lower()
        at = where[name] + 4 * size + place
        raw[at:at + len(code) // 2] = bytes.fromhex(code)
        findings.append((name, 4 * elements + element, what, bits, at))
    folder.put("bad-in-every-type.gguf", raw, findings=findings)

    small = {"w": (Q.F32, np.ones((2, 3), "<f4"))}
    raw, where = gguf_bytes(scratch, small, lambda w: w.add_custom_alignment(128))
    folder.put("aligned-128.gguf", raw)
    raw, where = gguf_bytes(scratch, small, lambda w: (w.add_float32("llama.rope.freq_base", float("nan")),
                                                        w.add_array("llama.scales", [0.5, float("inf"), 0.25]),
                                                        w.add_float64("llama.d", 1.0),
                                                        w.add_array("tokenizer.ggml.tokens", ["a", "", "\u00e9"])))
    first = raw.index(b"llama.rope.freq_base") + 20 + 4
    second = raw.index(b"llama.scales") + 12 + 4 + 4 + 8 + 4
    folder.put("bad-keys.gguf", raw, findings=[("llama.rope.freq_base", 0, "nan", NAN32, first),
                                               ("llama.scales", 1, "+inf", INF32, second)])
    raw, where = gguf_bytes(scratch, small, lambda w: w.add_array("gemma3n.activation_sparsity_scale",
                                                                  [1.6448533535003662, float("-inf")]))
    at = raw.index(b"gemma3n.activation_sparsity_scale") + 33 + 4 + 4 + 8 + 4
    folder.put("gemma3n.gguf", raw, outcome="legal", findings=[("gemma3n.activation_sparsity_scale", 1, "-inf", 0xFF800000, at)])
    raw, where = gguf_bytes(scratch, {}, lambda w: w.add_float32("llama.rope.freq_base", 1.0))
    folder.put("no-tensors.gguf", raw)

    big = {"f": (Q.F32, np.ones((2, 3), "<f4")), "h": (Q.F16, np.ones(5, "<f2")), "d": (Q.F64, np.ones(2, "<f8"))}
    raw, where = gguf_bytes(scratch, big, lambda w: w.add_float64("llama.x", 1.5), endianess=gguf.GGUFEndian.BIG)
    folder.put("big-endian.gguf", raw)
    at = where["h"] + 2 * 3
    raw[at:at + 2] = b"\x7e\x01"
    folder.put("bad-big-endian.gguf", raw, findings=[("h", 3, "nan", 0x7E01, at)])

    three = {"a": (Q.F32, np.ones(8, "<f4")), "b": (Q.F32, np.ones(9, "<f4")), "c": (Q.F32, np.ones(8, "<f4"))}
    raw, where = gguf_bytes(scratch, three)
    table = raw.index(b"\x01\0\0\0\0\0\0\0b\x01\0\0\0") + 9 + 4 + 8
    raw[table:table + 4] = struct.pack("<I", 77)
    folder.put("unknown-type.gguf", raw, "unsupported")
    at = where["c"] + 4
    raw[at:at + 4] = struct.pack("<I", NAN32)
    folder.put("bad-unknown-type.gguf", raw, findings=[("c", 1, "nan", NAN32, at)])
    folder.close()


# ---- flax -------------------------------------------------------------------------------------------------------------------

def make_flax():
    folder = Folder("flax")

    def put(name, tree, outcome="clean", findings=()):
        """findings: (tensor, index, kind, bits, the bytes that are bad, how far into them)."""
        raw = flax.serialization.msgpack_serialize(tree)
        folder.put(name, raw, outcome, [(t, i, k, b, raw.index(mark) + more) for t, i, k, b, mark, more in findings])

    formats = ["float64", "float32", "float16", "complex64", "complex128", "bool", "int8", "uint64", "bfloat16", "float8_e4m3fn",
               "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float4_e2m1fn", "int4"]
    arrays = {f: np.ones((2, 3), np.dtype(getattr(ml_dtypes, f, f))) for f in formats}
    put("every-format.msgpack", {"params": {"layer": arrays}, "step": 7, "note": "text", "rng": b"\xff\xff\xff\xff", "none": None})
    bad = {
        "bfloat16": (b"\xc1\x7f", "nan", 0x7FC1), "float32": (struct.pack("<I", SNAN32), "nan", SNAN32),
        "float64": (struct.pack("<Q", 0x7FF00000DEADBEEF), "nan", 0x7FF00000DEADBEEF), "float16": (b"\x01\xfe", "nan", 0xFE01),
        "complex64": (b"\0\0\x80\x3f" + struct.pack("<I", 0x7FC00123), "nan", 0x7FC00123),
        "float8_e4m3fn": (b"\xff", "nan", 0xFF), "float8_e5m2": (b"\xfc", "-inf", 0xFC), "float8_e4m3fnuz": (b"\x80", "nan", 0x80),
        "float8_e8m0fnu": (b"\xff", "nan", 0xFF),
    }
    findings, tree = [], {}
    for f, (code, kind, bits) in sorted(bad.items()):
        array = arrays[f].copy()
        raw = bytearray(array.tobytes())
        size = array.itemsize
        raw[4 * size:5 * size] = code
        tree[f] = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)
        findings.append((f, 4, kind, bits, bytes(raw), 4 * size))
    put("bad-formats.msgpack", tree, findings=findings)

    put("numbers.msgpack",
        {"best": float("inf"), "lr": np.float32("nan"), "z": complex(1.0, float("-inf")), "list": [1.5, 2, float("nan")]},
        findings=[("best", 0, "+inf", 0x7FF0000000000000, b"best\xcb", 5),
                  ("list.2", 0, "nan", 0x7FF8000000000000, b"\x02\xcb", 2),
                  ("lr", 0, "nan", NAN32, struct.pack("<I", NAN32), 0),
                  ("z.imag", 0, "-inf", 0xFFF0000000000000, bytes.fromhex("fff0000000000000"), 0)])

    # Chunks of 2^30 bytes in real life.
    flax.serialization.MAX_CHUNK_SIZE = 64
    table = np.ones((7, 5), "<f4")
    put("chunked.msgpack", {"embedding": table, "w": np.ones(3, "<f4")})
    table = table.copy()
    table[4, 2] = np.inf
    put("bad-chunked.msgpack", {"embedding": table, "w": np.ones(3, "<f4")},
        findings=[("embedding", 22, "+inf", INF32, struct.pack("<I", INF32), 0)])
    put("unknown-format.msgpack", {"a": np.ones(3, ml_dtypes.float8_e3m4), "b": np.ones(3, "<f4")}, "unsupported")
    folder.close()


make_npy()
make_gguf()
make_flax()
