"""A bundle that the library wrote, read by the real safetensors and json, and its hashes made again by xxhsum.

The shared library is called through ctypes, as any program without our headers would. FIRSTBAD_BUILD names the build folder.
"""
import ctypes
import json
import os
import pathlib
import shutil
import subprocess

import pytest

np = pytest.importorskip("numpy")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
BATCH, RNG, STATE = 1, 2, 3
DTYPES = {"float64": 1, "float32": 2, "float16": 3, "int8": 16, "uint8": 17, "int16": 18, "uint16": 19, "int32": 20, "uint32": 21,
          "int64": 22, "uint64": 23, "bool": 24}
FILES = {BATCH: "batch-r{:05d}.safetensors", RNG: "rng-r{:05d}.safetensors", STATE: "state-r{:05d}.safetensors"}


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("rank", ctypes.c_int32), ("world", ctypes.c_int32), ("folder", ctypes.c_char_p),
                ("run_id", ctypes.c_char_p), ("case_id", ctypes.c_char_p), ("step", ctypes.c_int64), ("bytes_max", ctypes.c_uint64)]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("os_errno", ctypes.c_int32), ("offset_bytes", ctypes.c_uint64),
                ("message", ctypes.c_char * 1024)]


def arrays(rank):
    rng = np.random.default_rng(412 + rank)
    state = {f"h.{i}.w": rng.standard_normal((3, 5 + i)).astype("float32") for i in range(4)}
    state["h.0.w"][1, 2] = np.nan
    state["h.1.w"][0, 0] = -np.inf
    state["half"] = rng.standard_normal(7).astype("float16")
    state["moments"] = rng.standard_normal((2, 2, 2)).astype("float64")
    state["step"] = np.array(412, dtype="int64")
    batch = {"tokens": rng.integers(0, 50257, (2, 8)).astype("int32"), "sample_ids": np.array([20417, 3], dtype="int64"),
             "mask": rng.integers(0, 2, (2, 8)).astype("bool"), "none": np.zeros((0, 4), dtype="float32")}
    return {BATCH: batch, RNG: {"stream": rng.integers(0, 2**63, 4).astype("uint64")}, STATE: state}


def write(lib, folder, world):
    err = Error()

    def check(status):
        assert status == 0, err.message.decode()

    for rank in range(world):
        config = Config(ctypes.sizeof(Config), rank, world, os.fsencode(folder), b"run-1", b"a1-000412", 412, 0)
        writer = ctypes.c_void_p()
        check(lib.fb_bundle_create(ctypes.byref(writer), ctypes.byref(config), ctypes.byref(err)))
        for part, tensors in arrays(rank).items():
            for name, array in tensors.items():
                shape = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
                data = array.copy()
                check(lib.fb_bundle_put(writer, part, name.encode(), DTYPES[array.dtype.name], array.ndim, shape,
                                        ctypes.c_void_p(data.ctypes.data), ctypes.byref(err)))
                data.view("uint8" if data.ndim else data.dtype)[...] = 1  # what the caller does afterwards is nobody's business
        check(lib.fb_bundle_set_number(writer, b"learning_rate", ctypes.c_double(float("nan")), ctypes.byref(err)))
        check(lib.fb_bundle_set_number(writer, b"loss_scale", ctypes.c_double(65536.0), ctypes.byref(err)))
        check(lib.fb_bundle_set_integer(writer, b"micro_step", ctypes.c_int64(2), ctypes.byref(err)))
        check(lib.fb_bundle_set_text(writer, b"precision", "fp16 \u00e9 \"quoted\"".encode(), ctypes.byref(err)))
        check(lib.fb_bundle_finish(writer, ctypes.byref(err)))
    check(lib.fb_bundle_seal(os.fsencode(folder), world, ctypes.byref(err)))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = BUILD / "libfirstbad.so"
    assert path.exists(), f"{path} is not there; run make, or set FIRSTBAD_BUILD"
    folder = tmp_path_factory.mktemp("case") / "bundle"
    write(ctypes.CDLL(str(path)), folder, 2)
    return folder


def hexhash(data):
    if not shutil.which("xxhsum"):
        pytest.skip("xxhsum is not installed")
    return "0x" + subprocess.run(["xxhsum", "-H3"], input=data, capture_output=True, check=True).stdout.split()[-1].decode()


def test_bundle__every_tensor_is_what_was_put_in(bundle):
    for rank in range(2):
        for part, tensors in arrays(rank).items():
            found = safetensors_numpy.load_file(bundle / FILES[part].format(rank))
            assert sorted(found) == sorted(tensors)
            for name, array in tensors.items():
                assert found[name].dtype == array.dtype and found[name].shape == array.shape
                assert found[name].tobytes() == array.tobytes(), name


def test_bundle__the_hashes_are_those_of_xxhsum(bundle):
    for name in ["bundle.json"] + [f"part-r{rank:05d}.json" for rank in range(2)]:
        text = (bundle / name).read_bytes()
        body, _ = text.rsplit(b",\n  \"self\"", 1)
        assert json.loads(text)["self"] == hexhash(body), name
    for line in json.loads((bundle / "bundle.json").read_text())["parts"]:
        text = (bundle / line["file"]).read_bytes()
        assert line["bytes"] == len(text) and line["xxh3"] == hexhash(text)
        for file in json.loads(text)["files"]:
            data = (bundle / file["file"]).read_bytes()
            assert file["bytes"] == len(data) and file["xxh3"] == hexhash(data)
            found = safetensors_numpy.load_file(bundle / file["file"])
            assert sorted(found) == sorted(t["name"] for t in file["tensors"])
            for tensor in file["tensors"]:
                assert tensor["xxh3"] == hexhash(found[tensor["name"]].tobytes())
                assert tuple(tensor["shape"]) == found[tensor["name"]].shape


def test_bundle__values_are_plain_json(bundle):
    part = json.loads((bundle / "part-r00001.json").read_text())
    assert part["schema"] == "firstbad.bundle.part/1" and part["rank"] == 1 and part["step"] == 412
    values = {value["key"]: value for value in part["values"]}
    assert values["precision"]["text"] == "fp16 \u00e9 \"quoted\""
    assert values["micro_step"]["integer"] == 2
    assert values["loss_scale"]["number"] == 65536
    assert values["learning_rate"]["number"] is None
    bits = np.array([int(values["learning_rate"]["bits"], 16)], dtype="uint64")
    assert np.isnan(bits.view("float64")[0])
