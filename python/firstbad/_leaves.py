"""One array of whatever library, as memory that the C library can read: torch, numpy and what speaks its array interface, DLPack.

`look(leaf)` gives a Leaf, or None for what is no array. Nothing is imported here that the program has not imported itself. Memory
of a device is judged by torch's own operations; without torch it is copied to the host by its own library.
"""
from __future__ import annotations

import ctypes
import dataclasses
import sys
from typing import Any, Dict, Optional, Sequence, Tuple

from . import _abi, _native

# Names as torch and ml_dtypes have them. Those that are not here have no form the library knows.
_DTYPES: Dict[str, int] = {
    "float64": _abi.F64, "float32": _abi.F32, "float16": _abi.F16, "bfloat16": _abi.BF16,
    "float8_e4m3fn": _abi.F8_E4M3FN, "float8_e5m2": _abi.F8_E5M2, "float8_e4m3fnuz": _abi.F8_E4M3FNUZ,
    "float8_e5m2fnuz": _abi.F8_E5M2FNUZ, "float8_e8m0fnu": _abi.F8_E8M0, "complex64": _abi.C64, "complex128": _abi.C128,
    "int8": _abi.I8, "uint8": _abi.U8, "int16": _abi.I16, "uint16": _abi.U16, "int32": _abi.I32, "uint32": _abi.U32,
    "int64": _abi.I64, "uint64": _abi.U64, "bool": _abi.BOOL,
}
# DLPack's (code, bits). Codes above 6 are of DLPack 1.1.
_DLPACK: Dict[Tuple[int, int], int] = {
    (0, 8): _abi.I8, (0, 16): _abi.I16, (0, 32): _abi.I32, (0, 64): _abi.I64, (1, 8): _abi.U8, (1, 16): _abi.U16,
    (1, 32): _abi.U32, (1, 64): _abi.U64, (2, 16): _abi.F16, (2, 32): _abi.F32, (2, 64): _abi.F64, (4, 16): _abi.BF16,
    (5, 64): _abi.C64, (5, 128): _abi.C128, (6, 8): _abi.BOOL, (10, 8): _abi.F8_E4M3FN, (11, 8): _abi.F8_E4M3FNUZ,
    (12, 8): _abi.F8_E5M2, (13, 8): _abi.F8_E5M2FNUZ, (14, 8): _abi.F8_E8M0,
}
KINDS = {_abi.KIND_NAN: "NaN", _abi.KIND_POS_INF: "+Inf", _abi.KIND_NEG_INF: "-Inf"}


@dataclasses.dataclass
class Counts:
    """What is in one array. first_index: flat, in the array's own order; None when nothing is bad."""

    elements: int = 0
    checked: bool = True  # False: its format has no code for NaN or Inf
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    first_index: Optional[int] = None
    first_kind: str = ""
    abs_max: float = 0.0  # largest finite magnitude; only where something is bad

    @property
    def bad(self) -> int:
        return self.nan + self.pos_inf + self.neg_inf


@dataclasses.dataclass
class Leaf:
    """An array: either `view` is host memory that `keep` holds alive, or `tensor` is a torch tensor on a device, or neither, and
    `why` says why it cannot be looked at."""

    dtype: str
    shape: Tuple[int, ...]
    view: Optional[_abi.View] = None
    keep: Any = None
    tensor: Any = None
    why: str = ""
    sparse_indices: Any = None  # of a COO tensor: (sparse_dims, nnz)
    values_shape: Tuple[int, ...] = ()

    def index(self, flat: int) -> Tuple[int, ...]:
        """The place of element `flat` in the array's shape."""
        if self.sparse_indices is None:
            return unravel(flat, self.values_shape or self.shape)
        row, *rest = unravel(flat, self.values_shape)
        return tuple(int(i) for i in self.sparse_indices[:, row].tolist()) + tuple(rest)


def unravel(flat: int, shape: Sequence[int]) -> Tuple[int, ...]:
    """Row-major coordinates of a flat index."""
    out = []
    for size in reversed(shape):
        out.append(flat % size if size else 0)
        flat //= size or 1
    return tuple(reversed(out))


def look(leaf: Any) -> Optional[Leaf]:
    """The array that `leaf` is, or None when it is none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        return _torch_leaf(torch, leaf)
    if isinstance(leaf, (float, complex)):
        values = (ctypes.c_double * 2)(leaf.real, leaf.imag)
        dtype = _abi.F64 if isinstance(leaf, float) else _abi.C128
        return Leaf(type(leaf).__name__, (), _view(ctypes.addressof(values), 1, dtype, (), None), values)
    if hasattr(leaf, "__array_interface__"):
        return _array_leaf(leaf)
    if hasattr(leaf, "__dlpack__"):
        return _dlpack_leaf(leaf)
    return None


def _view(address: int, count: int, dtype: int, shape: Sequence[int], strides: Optional[Sequence[int]]) -> _abi.View:
    view = _abi.View.new(data=address or None, count=count, dtype=dtype)
    if strides is not None and count:
        layout = _abi.Layout.new(ndim=len(shape))
        layout.shape[:len(shape)] = list(shape)
        layout.strides[:len(shape)] = list(strides)
        view.layout = ctypes.pointer(layout)
    return view


def _count(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# ---- torch ---------------------------------------------------------------------------------------------------------------------

def _torch_leaf(torch: Any, tensor: Any) -> Leaf:
    dtype, shape = str(tensor.dtype).replace("torch.", ""), tuple(tensor.shape) if not tensor.is_nested else ()
    leaf = Leaf(dtype, shape)
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):  # DTensor: this rank's part
        tensor = tensor.to_local()
        leaf.shape = tuple(tensor.shape)
    if tensor.is_quantized or tensor.device.type == "meta" or type(tensor).__name__ == "FakeTensor":
        leaf.why = "it has no numbers of its own (quantised, meta or fake)"
        return leaf
    if tensor.is_nested:
        tensor = tensor.values() if tensor.layout == torch.jagged else torch.cat([part.reshape(-1) for part in tensor.unbind()])
        leaf.shape = tuple(tensor.shape)
    elif tensor.layout == torch.sparse_coo:
        # Not coalesced: adding duplicates may overflow, and what is stored is what is asked about.
        leaf.sparse_indices, tensor = tensor._indices(), tensor._values()
    elif tensor.layout != torch.strided:
        tensor = tensor.values()
    leaf.values_shape = tuple(tensor.shape)
    tensor = tensor.resolve_neg()  # a negative bit would turn the sign of an infinity
    if dtype not in _DTYPES:
        leaf.why = f"the format {dtype} is not known"
    elif tensor.device.type != "cpu":
        leaf.tensor = tensor
    else:
        if tensor.dim() > _abi.DIMS_MAX and not tensor.is_contiguous():
            tensor = tensor.contiguous()
        strides = None if tensor.is_contiguous() else tensor.stride()
        leaf.keep = tensor
        leaf.view = _view(tensor.data_ptr(), tensor.numel(), _DTYPES[dtype], tensor.shape, strides)
    return leaf


def by_torch(tensor: Any) -> Counts:
    """The counts of a tensor by torch's own operations, where it lies. One answer is waited for; of a bad one four more."""
    torch = sys.modules["torch"]
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return Counts(elements=tensor.numel(), checked=False)
    if tensor.dtype.itemsize == 1:
        tensor = tensor.to(torch.float32)  # exact, and no device has the tests for FP8
    parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.unsqueeze(-1)
    parts = parts.reshape(-1, parts.shape[-1])  # (N, 1 or 2)
    bad = torch.logical_not(torch.isfinite(parts)).any(dim=-1)
    out = Counts(elements=tensor.numel())
    if not bool(bad.any()):
        return out
    nan = torch.isnan(parts).any(dim=-1)
    high = torch.logical_and(torch.isposinf(parts).any(dim=-1), torch.logical_not(nan))
    low = torch.logical_and(bad, torch.logical_not(torch.logical_or(nan, high)))
    out.nan, out.pos_inf, out.neg_inf = (int(kind.sum()) for kind in (nan, high, low))
    out.first_index = int(bad.to(torch.uint8).argmax())
    out.first_kind = "NaN" if bool(nan[out.first_index]) else "+Inf" if bool(high[out.first_index]) else "-Inf"
    out.abs_max = float(torch.where(bad.unsqueeze(-1), torch.zeros_like(parts), parts).abs().max())
    return out


# ---- numpy, and what speaks its interface --------------------------------------------------------------------------------------

_KINDS_OF_ARRAYS = {"f": {2: _abi.F16, 4: _abi.F32, 8: _abi.F64}, "c": {8: _abi.C64, 16: _abi.C128},
                    "i": {1: _abi.I8, 2: _abi.I16, 4: _abi.I32, 8: _abi.I64},
                    "u": {1: _abi.U8, 2: _abi.U16, 4: _abi.U32, 8: _abi.U64}, "b": {1: _abi.BOOL}}


def _array_leaf(array: Any) -> Leaf:
    if hasattr(array, "compressed"):
        array = array.compressed()  # what a mask hides may be anything
    facts = array.__array_interface__
    shape, kind = tuple(facts["shape"]), facts["typestr"]
    name = str(getattr(getattr(array, "dtype", None), "name", kind))
    leaf = Leaf(name, shape, values_shape=shape)
    size = int(kind[2:] or 0)  # objects may have none
    # ml_dtypes' formats are void to the interface, and known by name.
    dtype = _DTYPES.get(name) if kind[1] == "V" or name in _DTYPES else _KINDS_OF_ARRAYS.get(kind[1], {}).get(size)
    if dtype is None:
        leaf.why = f"the format {name} is not known"
        return leaf
    foreign = ">" if sys.byteorder == "little" else "<"
    strides = facts.get("strides")
    if kind[0] == foreign and size > 1:
        array = array.byteswap()  # the same numbers for who reads them in the order of this machine
    elif strides is not None and (any(stride % size for stride in strides) or len(shape) > _abi.DIMS_MAX):
        array = array.copy()
    facts = array.__array_interface__
    steps = facts.get("strides")
    leaf.keep = array
    leaf.view = _view(facts["data"][0], _count(shape), dtype, shape, None if steps is None else [step // size for step in steps])
    return leaf


# ---- DLPack --------------------------------------------------------------------------------------------------------------------

class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_DL_HOST = (1, 3)  # kDLCPU, kDLCUDAHost


def _dlpack_leaf(array: Any) -> Leaf:
    device = array.__dlpack_device__()[0] if hasattr(array, "__dlpack_device__") else _DL_HOST[0]
    leaf = Leaf(str(getattr(array, "dtype", "unknown")), tuple(getattr(array, "shape", ())))
    if int(device) not in _DL_HOST:
        return _copied(array, leaf, "it lies on a device, and its library gives no copy")
    try:
        capsule = array.__dlpack__()
    except Exception as why:  # readonly, a format without a code: the library says no in its own way
        return _copied(array, leaf, f"its library gives no DLPack capsule: {why}")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        address = get(capsule, b"dltensor")
    except ValueError:
        return _copied(array, leaf, "its library gives a DLPack capsule of another version")
    tensor = _DLTensor.from_address(address)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = [tensor.strides[i] for i in range(tensor.ndim)] if tensor.strides else None
    dtype = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    leaf.shape = leaf.values_shape = shape
    if dtype is None:
        leaf.why = f"the format {leaf.dtype} is not known"
        return leaf
    if strides is not None and _is_contiguous(shape, strides):
        strides = None
    if strides is not None and tensor.ndim > _abi.DIMS_MAX:
        return _copied(array, leaf, f"it has more than {_abi.DIMS_MAX} dimensions, not contiguous")
    # The capsule keeps its name, so its own destructor frees it when we let go.
    leaf.keep = capsule
    leaf.view = _view((tensor.data or 0) + tensor.byte_offset, _count(shape), dtype, shape, strides)
    return leaf


def _copied(array: Any, leaf: Leaf, why: str) -> Leaf:
    """A copy in the memory of the host, by the array's own library."""
    if hasattr(array, "__array__"):
        copy = array.__array__()
        if hasattr(copy, "__array_interface__"):
            return _array_leaf(copy)
    leaf.why = why
    return leaf


# ---- counting ------------------------------------------------------------------------------------------------------------------

def count(leaf: Leaf) -> Counts:
    """What is in a leaf that has a view or a tensor. Cost: one read; of a bad one a second."""
    if leaf.tensor is not None:
        return by_torch(leaf.tensor)
    lib = _native.lib()
    view = ctypes.byref(leaf.view) if leaf.view is not None else None
    assert leaf.view is not None
    first = ctypes.c_uint64(0)
    _native.call(lib.fb_scan_first, view, ctypes.byref(first))
    out = Counts(elements=leaf.view.count, checked=leaf.view.dtype <= _abi.C128)
    if first.value == _abi.NO_INDEX:
        return out
    result = _abi.ScanResult.new()
    _native.call(lib.fb_scan, view, ctypes.byref(result))
    out.nan, out.pos_inf, out.neg_inf, out.abs_max = result.nan, result.pos_inf, result.neg_inf, result.abs_max
    out.first_index, out.first_kind = result.first_index, KINDS[result.first_kind]
    return out
