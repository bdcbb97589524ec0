"""What lies on a device is looked at by torch's own operations, with one wait an update. There is no GPU here: the same
operations run on tensors in host memory, and a mode counts what would make a host wait for a device."""
from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from several_ranks import BUILD, ROOT
from torch.utils._python_dispatch import TorchDispatchMode

if not (BUILD / "firstbad").exists():
    pytest.skip("the tool is not built", allow_module_level=True)

from firstbad import _abi as abi
from firstbad.pytorch import device
from firstbad.pytorch import views

NAN, INF = float("nan"), float("inf")
FORMATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn, torch.complex64]


class Waits(TorchDispatchMode):
    """Counts operations that a host can only answer when the device is done."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        self.count += name.startswith(("aten._local_scalar_dense", "aten.equal", "aten.nonzero", "aten.is_nonzero", "aten.item"))
        return function(*args, **(kwargs or {}))


def flags(*tensors):
    return device._flags([tensor.detach() for tensor in tensors]).tolist()


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_device__a_bad_element_of_every_format_raises_its_tensors_flag_alone(dtype, value):
    if dtype == torch.float8_e4m3fn and value != value or dtype != torch.float8_e4m3fn:
        good = torch.ones(40, dtype=torch.float32).to(dtype)
        bad = torch.ones(40, dtype=torch.float32)
        bad[17] = value
        assert flags(good, bad.to(dtype), good) == [0.0, 1.0, 0.0]


def test_device__flags_are_exactly_0_and_1():
    assert set(flags(torch.tensor([NAN]), torch.tensor([INF, INF]), torch.tensor([1.0]))) == {0.0, 1.0}


def test_device__formats_are_told_apart_in_one_call():
    tensors = [torch.ones(3).to(dtype) for dtype in FORMATS] + [torch.tensor([NAN], dtype=torch.float64)]
    assert flags(*tensors) == [0.0] * len(FORMATS) + [1.0]


def test_device__a_large_double_is_not_narrowed_into_infinity():
    assert flags(torch.tensor([1e300], dtype=torch.float64)) == [0.0]


@pytest.mark.parametrize("dtype, largest", [(torch.float32, 3e38), (torch.float16, 6e4), (torch.bfloat16, 3e38)])
def test_device__finite_elements_with_an_infinite_norm_are_no_finding(dtype, largest):
    tensor = torch.full((64,), largest, dtype=dtype)
    found = device.count(tensor, 0, abi.LOCAL_GRAD, 0)
    assert torch.isfinite(tensor).all() and found is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float8_e5m2])
def test_device__counts_kinds_and_first_index_are_those_of_the_library(dtype):
    values = torch.ones(4, 6, dtype=torch.float32)
    values[1, 2], values[1, 5], values[3, 0], values[3, 1] = -INF, NAN, INF, NAN
    tensor = values.to(dtype)
    found = device.count(tensor, 3, abi.REDUCED_GRAD, 2)
    view, held = views.one(tensor, 3)
    stats = abi.ScanResult.new()
    import ctypes

    from firstbad import _native
    _native.call(_native.lib().fb_scan, ctypes.byref(view), ctypes.byref(stats))
    assert held is not None
    assert (found.site, found.boundary, found.micro_step) == (3, abi.REDUCED_GRAD, 2)
    assert (found.count, found.first_index, found.kind) == (stats.nan + stats.pos_inf + stats.neg_inf, stats.first_index,
                                                            stats.first_kind)
    assert (found.stats.nan, found.stats.pos_inf, found.stats.neg_inf) == (stats.nan, stats.pos_inf, stats.neg_inf)


class Coverage:
    def __init__(self):
        self.lines = []

    def note(self, line):
        self.lines.append(line)


class Session:
    """As much of a session as the path asks for; what it would tell the library is kept."""

    world, loss_site, run = 1, 99, None

    def __init__(self):
        self.coverage = Coverage()
        self.update = type("Update", (), {"micro": 0})()
        self.reported, self.looked = [], []


@pytest.fixture
def session(monkeypatch):
    made = Session()

    def call(function, *args):
        if function == "report":
            made.reported += [(f.site, f.boundary, f.micro_step, f.kind, f.count) for f in args[1]]
        else:
            made.looked.append((args[1], [view.site for view in args[2]]))

    library = type("Library", (), {"fb_step_looked": "looked", "fb_step_report": "report"})()
    monkeypatch.setattr(device._native, "lib", lambda: library)
    monkeypatch.setattr(device._native, "call", call)
    monkeypatch.setattr(device, "COPY_BYTES_MAX", -1)
    return made


def check(session, gradients, losses=()):
    with Waits() as waits:
        before = device.waits
        device.check(session, abi.LOCAL_GRAD, gradients, losses)
    return waits.count, device.waits - before


def test_device__a_healthy_update_waits_once(session):
    gradients = [(torch.randn(50, dtype=dtype), site) for site, dtype in enumerate((torch.float32, torch.float64, torch.float32))]
    device.look(session, abi.LOCAL_GRAD, [(torch.randn(5), 7)])  # what hooks saw in backward
    operations, counted = check(session, gradients, [(torch.tensor(1.0), 0), (torch.tensor(2.0), 1)])
    assert counted == 1 and session.reported == []
    assert operations <= 1  # tolist() is one copy, and no wait for each element
    assert [boundary for boundary, _ in session.looked if boundary != abi.REDUCED_GRAD] != []


def test_device__looking_does_not_wait_at_all(session):
    with Waits() as waits:
        eight_bits = torch.ones(4).to(torch.float8_e5m2)
        device.look(session, abi.LOCAL_GRAD, [(torch.randn(50), 1), (torch.tensor([NAN]), 2), (eight_bits, 3)])
    assert waits.count == 0


def test_device__a_bad_gradient_and_a_bad_loss_are_told_with_their_micro_step(session):
    bad = torch.ones(10)
    bad[4], bad[6] = NAN, INF
    check(session, [(torch.ones(3), 1), (bad, 2)], [(torch.tensor(INF), 1)])
    assert sorted(session.reported) == sorted([(2, abi.LOCAL_GRAD, 0, abi.KIND_NAN, 2), (99, abi.LOSS, 1, abi.KIND_POS_INF, 1)])


def test_device__what_was_seen_in_backward_is_told_with_the_values_of_then(session):
    gradient = torch.tensor([1.0, NAN])
    device.look(session, abi.LOCAL_GRAD, [(gradient, 5)])
    session.update.micro = 1
    check(session, [(torch.ones(2), 1)])
    assert session.reported == [(5, abi.LOCAL_GRAD, 0, abi.KIND_NAN, 1)]


def test_device__what_an_update_left_is_not_told_in_the_next(session):
    device.look(session, abi.LOCAL_GRAD, [(torch.tensor([NAN]), 5)])
    session.update = type("Update", (), {"micro": 0})()
    check(session, [(torch.ones(2), 1)])
    assert session.reported == []


def test_device__nothing_is_done_while_a_graph_is_captured(session, monkeypatch):
    monkeypatch.setattr(device, "capturing", lambda: True)
    check(session, [(torch.tensor([NAN]), 1)])
    assert session.looked == session.reported == [] and any("CUDA graph" in line for line in session.coverage.lines)


def test_device__what_cannot_be_read_is_passed_over_and_told(session):
    check(session, [(torch.empty(3, device="meta"), 1), (torch.ones(2), 2)])
    assert any("cannot be read" in line for line in session.coverage.lines) and session.reported == []


SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for step in range(5):
    optimizer.zero_grad()
    out = model(torch.randn(5, 8))
    loss = out.pow(2).mean() + torch.sqrt((out * 0).sum() + (0.0 if step == int(sys.argv[1]) else 1.0))
    loss.backward()
    optimizer.step()
print([p.double().sum().item() for p in model.parameters()], int(optimizer.state[next(model.parameters())]["step"]))
"""


def run(folder, bad, path, guarded=True):
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    env = {name: value for name, value in os.environ.items() if not name.startswith("FIRSTBAD_") or name == "FIRSTBAD_LIBRARY"}
    env.update(FIRSTBAD_PYTHON=str(ROOT / "python"), FIRSTBAD_LOCATE="none", FIRSTBAD_DEVICE_PATH=path)
    command = [sys.executable, "train.py", str(bad)]
    if guarded:
        command = [str(BUILD / "firstbad"), "run", "--dir", "runs", "--run-id", "r", "--", *command]
    done = subprocess.run(command, cwd=str(folder), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    why = subprocess.run([str(BUILD / "firstbad"), "why", "--dir", str(folder / "runs"), "r"],
                         stdout=subprocess.PIPE).stdout.decode()
    shutil.rmtree(folder, ignore_errors=True)
    return done.stdout.decode(), done.stderr.decode(), " ".join(why.split())


def test_device__the_whole_run_is_covered_gated_and_the_same(tmp_path):
    plain, _, _ = run(tmp_path / "plain", -1, "0", guarded=False)
    said, err, why = run(tmp_path / "healthy", -1, "1")
    assert said == plain and err == ""
    assert "local gradients (all 4), reduced gradients (all 4)" in why and "5 of 5 applied updates had a clean vote" in why


def test_device__a_bad_update_is_withheld_as_on_the_other_path(tmp_path):
    here, _, _ = run(tmp_path / "here", 3, "0")
    there, err, why = run(tmp_path / "there", 3, "1")
    assert here == there and there.strip().endswith("4")
    assert "step 3 was not applied" in err and "2.bias.grad" in why.replace(" bias", ".bias")
