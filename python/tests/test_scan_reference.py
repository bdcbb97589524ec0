"""The scanner against torch and numpy, which judge by their own code: counts, first index, extremes and norms of real tensors.

The shared library is called through ctypes, as any program without our headers would. FIRSTBAD_BUILD names the build folder.
"""
import ctypes
import math
import os
import pathlib

import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_uint64), ("dtype", ctypes.c_int32), ("site", ctypes.c_uint32),
                ("layout", ctypes.c_void_p), ("device", ctypes.c_int32), ("flags", ctypes.c_uint32), ("stream", ctypes.c_void_p),
                ("reserved", ctypes.c_uint64 * 2)]


class Layout(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int32), ("reserved", ctypes.c_int32), ("shape", ctypes.c_int64 * 8), ("strides", ctypes.c_int64 * 8)]


class Result(ctypes.Structure):
    _fields_ = ([("size", ctypes.c_uint32), ("dtype", ctypes.c_int32)]
                + [(n, ctypes.c_uint64) for n in ("elements", "nan", "pos_inf", "neg_inf", "zero", "subnormal", "at_max", "first_index",
                                                  "first_bits")]
                + [("first_kind", ctypes.c_int32), ("checked", ctypes.c_int32)]
                + [(n, ctypes.c_double) for n in ("abs_min", "abs_max", "sum_sq")]
                + [("sum_sq_exponent", ctypes.c_int32), ("reserved", ctypes.c_int32)])


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("os_errno", ctypes.c_int32), ("offset", ctypes.c_uint64), ("message", ctypes.c_char * 1024)]


@pytest.fixture(scope="module")
def lib():
    path = BUILD / "libfirstbad.so"
    assert path.exists(), f"{path} is not there; run make, or set FIRSTBAD_BUILD"
    library = ctypes.CDLL(str(path))
    library.fb_scan.argtypes = [ctypes.POINTER(View), ctypes.POINTER(Result), ctypes.POINTER(Error)]
    library.fb_scan_norm.restype = ctypes.c_double
    return library


DTYPES = {torch.float64: 1, torch.float32: 2, torch.float16: 3, torch.bfloat16: 4, torch.float8_e4m3fn: 5, torch.float8_e5m2: 6,
          torch.float8_e4m3fnuz: 7, torch.float8_e5m2fnuz: 8}


def scan(lib, tensor):
    view, result, error, layout = View(), Result(), Error(), Layout()
    view.data, view.count, view.dtype, view.device = tensor.data_ptr(), tensor.numel(), DTYPES[tensor.dtype], -1
    if not tensor.is_contiguous():
        layout.ndim = tensor.dim()
        for i in range(tensor.dim()):
            layout.shape[i], layout.strides[i] = tensor.shape[i], tensor.stride(i)
        view.layout = ctypes.cast(ctypes.pointer(layout), ctypes.c_void_p)
    result.size = ctypes.sizeof(Result)
    status = lib.fb_scan(ctypes.byref(view), ctypes.byref(result), ctypes.byref(error))
    assert status == 0, error.message
    return result


def expected(tensor):
    """What torch says, through float64, into which every format converts exactly."""
    wide = tensor.to(torch.float32).to(torch.float64) if tensor.dtype != torch.float64 else tensor
    flat = wide.reshape(-1)
    bad = ~torch.isfinite(flat)
    finite = flat[~bad]
    magnitude = finite.abs()
    return {
        "nan": int(torch.isnan(flat).sum()), "pos_inf": int((flat == math.inf).sum()), "neg_inf": int((flat == -math.inf).sum()),
        "zero": int((finite == 0).sum()), "first_index": int(bad.nonzero()[0]) if bad.any() else 2**64 - 1,
        "abs_max": float(magnitude.max()) if len(finite) else 0.0,
        "abs_min": float(magnitude[magnitude > 0].min()) if (magnitude > 0).any() else 0.0,
        "norm": math.hypot(*finite.tolist()),  # scales by itself: Inf only where the norm itself leaves FP64
    }


def check(lib, tensor):
    got, want = scan(lib, tensor), expected(tensor)
    for name in ("nan", "pos_inf", "neg_inf", "zero", "first_index", "abs_max", "abs_min"):
        assert getattr(got, name) == want[name], name
    norm = lib.fb_scan_norm(ctypes.byref(got))
    assert norm == want["norm"] or abs(norm - want["norm"]) <= 1e-7 * want["norm"]
    assert got.elements == tensor.numel() and got.checked == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_code_of_small_formats_and_random_bits_of_large_ones(lib, dtype):
    size = torch.empty(0, dtype=dtype).element_size()
    if size <= 2:
        codes = torch.arange(256**size, dtype=torch.int64).to(torch.uint8 if size == 1 else torch.uint16)
        check(lib, codes.view(dtype))
        for code in range(256):  # one by one, so that each first index and each kind is its own
            check(lib, codes[code:code + 1].view(dtype) if size == 1 else codes[code * 256:code * 256 + 1].view(dtype))
    generator = torch.Generator().manual_seed(11)
    for count in (1, 7, 64, 1000, 100_003):
        check(lib, torch.randint(0, 256, (count * size,), dtype=torch.uint8, generator=generator).view(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_planted_in_normal_values_and_strided(lib, dtype):
    generator = torch.Generator().manual_seed(5)
    base = torch.randn(96, 130, generator=generator).to(dtype)
    for where in range(0, base.numel(), 1933):
        for bad in (math.nan, math.inf, -math.inf):
            tensor = base.clone()
            tensor.view(-1)[where] = bad
            check(lib, tensor)
            check(lib, tensor.t())
            check(lib, tensor[::3, 5:99:2])
            check(lib, tensor[:, :1].expand(96, 17))


def test_finite_values_whose_squares_overflow_are_no_bad_elements(lib):
    for tensor in (torch.full((1000,), 1e30), torch.full((1000,), 1e200, dtype=torch.float64), torch.full((1000,), 1e-200, dtype=torch.float64)):
        got = scan(lib, tensor)
        assert got.nan == got.pos_inf == got.neg_inf == 0
        want = float(tensor[0]) * math.sqrt(1000)
        assert abs(lib.fb_scan_norm(ctypes.byref(got)) - want) <= 1e-12 * want
