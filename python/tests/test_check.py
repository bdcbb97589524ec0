"""firstbad.check against torch's and numpy's own answers: every format, layout and container, and arrays of other libraries."""
from __future__ import annotations

import collections
import ctypes
import dataclasses
import math
import os
import pathlib
import subprocess
import sys

import pytest

import firstbad
from firstbad import BadTensor, _leaves

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
torch.set_num_threads(1)

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz,
          torch.float8_e5m2fnuz]
KINDS = {"NaN": float("nan"), "+Inf": float("inf"), "-Inf": float("-inf")}


def bad(value, **options):
    with pytest.raises(BadTensor) as why:
        firstbad.check(value, **options)
    return why.value


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_check__each_format_tells_kind_and_index(dtype, kind):
    values = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
    values[1, 2, 0] = KINDS[kind]
    tensor = values.to(dtype)
    # FP8 formats without infinities round them to NaN, or to the largest number: torch's own conversion says which.
    back = tensor.float()[1, 2, 0].item()
    if math.isfinite(back):
        assert firstbad.check(tensor).finite
        return
    error = bad(tensor, name="x")
    assert (error.path, error.kind, error.index) == ("x", "NaN" if back != back else "+Inf" if back > 0 else "-Inf", (1, 2, 0))
    assert error.report.bad == 1 and "x (" in str(error) and "[1, 2, 0]" in str(error)


@pytest.mark.parametrize("dtype", FLOATS + [torch.complex64, torch.complex128, torch.int64, torch.bool], ids=str)
def test_check__what_torch_finds_on_a_device_is_what_the_library_finds_on_the_host(dtype):
    generator = torch.Generator().manual_seed(3)
    for _ in range(10):
        raw = torch.randint(0, 256, (8 * 48,), dtype=torch.uint8, generator=generator)
        tensor = raw > 127 if dtype is torch.bool else raw.view(dtype)[:24].reshape(2, 3, 4)
        leaf = _leaves.look(tensor)
        assert leaf is not None and leaf.view is not None
        ours, theirs = _leaves.count(leaf), _leaves.by_torch(tensor)
        assert dataclasses.astuple(ours) == pytest.approx(dataclasses.astuple(theirs))


@pytest.mark.parametrize("view", [lambda t: t.t(), lambda t: t[::2, 1::3], lambda t: t[:, None, :, None], lambda t: t.flip(1),
                                  lambda t: t[:1].expand(3, 7), lambda t: t.as_strided((3, 3), (7, 2), 1), lambda t: t[0:0]])
def test_check__a_view_is_looked_at_as_it_is_seen(view):
    for row in range(6):
        for column in range(7):
            base = torch.zeros(6, 7)
            base[row, column] = float("nan")
            seen = view(base)
            places = torch.isnan(seen).nonzero().tolist()
            if places:
                assert bad(seen).index == tuple(places[0])
                assert bad(seen).report.findings[0].nan == len(places)
            else:
                assert firstbad.check(seen).finite


def test_check__views_of_many_dimensions_sparse_nested_negative_and_conjugate_tensors():
    deep = torch.zeros((2,) * 10)
    deep[(1,) * 10] = float("inf")
    assert bad(deep.permute(*reversed(range(10)))).index == (1,) * 10
    sparse = torch.sparse_coo_tensor([[0, 3], [2, 1]], torch.tensor([[1.0, 2.0], [3.0, float("nan")]]), (4, 4, 2))
    assert bad(sparse).index == (3, 1, 1)
    assert bad(torch.tensor([[0.0, 1], [float("inf"), 0]]).to_sparse_csr()).kind == "+Inf"
    nested = torch.nested.nested_tensor([torch.zeros(2, 2), torch.full((1, 2), float("nan"))])
    assert bad(nested).kind == "NaN"
    negative = torch.tensor([complex(1, float("inf"))]).conj().imag  # the same memory with a bit that says "minus"
    assert negative.is_neg() and bad(negative).kind == "-Inf"


def test_check__what_has_no_numbers_is_told_and_not_called_finite():
    with pytest.raises(TypeError, match="meta"):
        firstbad.check(torch.empty(3, device="meta"))
    report = firstbad.check({"a": torch.ones(2), "b": torch.empty(3, device="meta"), "c": object()})
    assert [path for path, _ in report.passed_over] == ["b", "c"] and report.tensors == 1
    for nothing in ("text", 3, None, object(), np.array([object()])):
        with pytest.raises(TypeError, match="holds none"):
            firstbad.check(nothing)


@dataclasses.dataclass
class Batch:
    x: object
    labels: object = None


Point = collections.namedtuple("Point", "x y")


def test_check__paths_name_the_place_in_dicts_lists_dataclasses_modules_and_optimizers():
    nan = torch.tensor([1.0, float("nan")])
    ok = torch.ones(2)
    assert bad({"a": [ok, {"b": nan}]}, name="batch").path == "batch.a[1].b"
    assert bad(Batch(x=ok, labels=(ok, nan))).path == "labels[1]"
    assert bad(Point(ok, nan)).path == "y"
    assert bad({3: nan}, name="d").path == "d[3]"
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model[1].running_var[1] = float("inf")
    assert bad(model, name="model").path == "model.1.running_var"
    optimizer = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters())
    optimizer.state[optimizer.param_groups[0]["params"][0]]["exp_avg"] = nan
    assert bad(optimizer).path == "state[0].exp_avg"
    loop = {"x": ok}
    loop["self"] = loop
    assert firstbad.check(loop).tensors == 1


def test_check__all_that_is_bad_is_in_the_report():
    tree = {"a": torch.tensor([float("inf"), float("-inf"), float("nan"), 7.5]), "b": torch.ones(3), "c": float("nan"), "n": torch.ones(2).int()}
    report = firstbad.check(tree, raises=False)
    assert not report.finite and [found.path for found in report.findings] == ["a", "c"]
    first = report.findings[0]
    assert (first.nan, first.pos_inf, first.neg_inf, first.kind, first.index, first.abs_max) == (1, 1, 1, "+Inf", (0,), 7.5)
    assert (report.tensors, report.elements, report.checked, report.bad) == (4, 10, 8, 4)


def test_check__an_intended_minus_infinity_is_allowed_and_others_are_not():
    mask = torch.tensor([0.0, float("-inf")])
    assert firstbad.check(mask, allow_neg_inf=True).finite
    assert bad({"mask": mask, "x": torch.tensor([float("inf")])}, allow_neg_inf=True).path == "x"


@pytest.mark.parametrize("make", [
    lambda a: a, lambda a: a.astype(">f4"), lambda a: np.asfortranarray(a), lambda a: np.ascontiguousarray(a[:, ::-1])[:, ::-1],
    lambda a: a.astype(np.float16), lambda a: a.astype(np.float64), lambda a: a.astype(np.complex64)])
def test_check__numpy_arrays(make):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    array[2, 1] = np.inf
    assert bad(make(array)).index == (2, 1)
    assert bad(np.broadcast_to(make(array), (2, 3, 4))).index == (0, 2, 1)


def test_check__numpy_s_odd_arrays():
    record = np.zeros(3, dtype=[("a", "<f4"), ("b", "<i2")])
    record["a"][1] = np.nan
    assert (bad(record, name="r").path, bad(record).index) == ("r.a", (1,))
    packed = np.zeros(3, dtype=np.dtype([("i", "u1"), ("f", "<f4")], align=False))["f"]  # strides that are no multiple of 4
    packed[2] = np.nan
    assert bad(packed).index == (2,)
    assert firstbad.check(np.ma.masked_array([1.0, np.nan], mask=[False, True])).finite
    assert bad(np.float32("nan")).kind == "NaN"


def test_check__formats_of_ml_dtypes():
    ml = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz"):
        assert bad(np.array([1, float("nan")], dtype=getattr(ml, name))).index == (1,)


class OnlyDlpack:
    """What JAX and CuPy arrays are to us."""

    def __init__(self, tensor, device=1, refuse=False):
        self.tensor, self.device, self.refuse = tensor, device, refuse
        self.shape, self.dtype = tuple(tensor.shape), tensor.dtype

    def __dlpack__(self, stream=None):
        if self.refuse:
            raise BufferError("readonly")
        return self.tensor.__dlpack__()

    def __dlpack_device__(self):
        return self.device, 0


class Copies(OnlyDlpack):
    def __array__(self, dtype=None, copy=None):
        return self.tensor.numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64], ids=str)
def test_check__dlpack_arrays(dtype):
    tensor = torch.zeros(3, 4, dtype=dtype)
    tensor[1, 3] = float("nan")
    assert bad(OnlyDlpack(tensor)).index == (1, 3)
    assert bad(OnlyDlpack(tensor.t())).index == (3, 1)
    assert bad(OnlyDlpack(tensor[1:])).index == (0, 3)
    assert firstbad.check(OnlyDlpack(torch.ones(3, dtype=dtype))).checked == 3


def test_check__a_dlpack_array_that_cannot_be_read_here_is_copied_by_its_library_or_told():
    tensor = torch.tensor([1.0, float("inf")])
    assert bad(Copies(tensor, device=2)).index == (1,) and bad(Copies(tensor, refuse=True)).index == (1,)
    with pytest.raises(TypeError, match="device"):
        firstbad.check(OnlyDlpack(tensor, device=2))
    with pytest.raises(TypeError, match="readonly"):
        firstbad.check(OnlyDlpack(tensor, refuse=True))


def test_check__memory_of_a_capsule_is_freed_when_the_check_is_over():
    import gc
    import weakref

    tensor = torch.ones(4)
    gone = weakref.ref(tensor.untyped_storage()) if hasattr(tensor.untyped_storage(), "__weakref__") else None
    before = sys.getrefcount(tensor)
    firstbad.check(OnlyDlpack(tensor))
    gc.collect()
    assert sys.getrefcount(tensor) == before and (gone is None or gone() is not None)


def test_check__plain_numbers():
    assert firstbad.check(1.5).finite and firstbad.check([1.0, 2.0 + 3j]).tensors == 2
    assert bad(float("nan"), name="loss").path == "loss" and bad(complex(0, float("-inf"))).kind == "-Inf"


def test_check__without_torch_and_without_numpy():
    code = ("import sys, array, ctypes; sys.modules['torch'] = None; sys.modules['numpy'] = None\n"
            "import firstbad\n"
            "assert firstbad.check([1.0, {'x': 2.0}]).finite\n"
            "try: firstbad.check({'a': float('inf')})\n"
            "except firstbad.BadTensor as why: print(why.path, why.kind)\n")
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
    assert done.stdout.decode().split() == ["a", "+Inf"]


def test_check__nothing_is_changed():
    tensor = torch.randn(5, requires_grad=True)
    state = torch.get_rng_state()
    before = tensor.detach().clone()
    firstbad.check(tensor)
    assert torch.equal(tensor.detach(), before) and torch.equal(torch.get_rng_state(), state) and tensor.grad is None
    assert ctypes.sizeof(ctypes.c_void_p) == 8
