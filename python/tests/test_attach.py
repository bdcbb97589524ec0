"""The guard in the hands of a program."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import guarded  # noqa: E402
from torch import nn  # noqa: E402
from watched import watched  # noqa: E402,F401

NAN = float("nan")


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def test_attach__a_model_that_is_attached_is_guarded(watched):
    import firstbad

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = firstbad.attach(model, optimizer, locate=False)
    assert guard.last is None
    for i in range(4):
        with guard.step():
            optimizer.zero_grad()
            (model(torch.randn(8, 4)).square().mean() * (NAN if i == 2 else 1.0)).backward()
            optimizer.step()
        assert guard.last.step == i and guard.last.skipped == (i == 2)
    assert guard.last.action == "proceed" and not guard.last.fault
    folder = guard.folder
    guard.close()
    guard.close()
    assert sorted(p.name for p in (watched.folder / folder.rsplit("/", 1)[1] / "cases").iterdir()) == ["a1-000002"]


def test_attach__settings_count(watched):
    import firstbad

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    firstbad.attach(model, optimizer, on_bad="halt", run_id="mine", locate=False)
    with pytest.raises(firstbad.Halted) as raised:
        (model(torch.randn(8, 4)).square().mean() * NAN).backward()
        optimizer.step()
    assert raised.value.step == 0 and raised.value.case.endswith("mine/cases/a1-000000")


def test_attach__what_firstbad_run_says_wins(watched, monkeypatch):
    import firstbad

    monkeypatch.setenv("FIRSTBAD_ON_BAD", "skip")
    monkeypatch.setenv("FIRSTBAD_RUN_ID", "theirs")
    monkeypatch.setenv("FIRSTBAD_ATTEMPT", "1")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = firstbad.attach(model, optimizer, on_bad="halt", run_id="mine", locate=False)
    (model(torch.randn(8, 4)).square().mean() * NAN).backward()
    optimizer.step()
    assert guard.last.skipped and guard.folder.endswith("/theirs")


@pytest.mark.parametrize("wrong", [{"on_bad": "ignore"}, {"max_skips": 0}])
def test_attach__settings_that_mean_nothing_are_refused(watched, wrong):
    import firstbad

    with pytest.raises(ValueError):
        firstbad.attach(net(), **wrong)


def test_attach__samples_and_the_programs_own_number_stand_in_the_ledger(watched):
    import firstbad

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = firstbad.attach(model, optimizer, sample_ids=lambda batch: batch["id"], locate=False)
    for number in (100, 105):
        with guard.step({"id": torch.tensor([7, 8, 9])}, number=number):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
    assert guard.last.step == 105
    folder = guard.folder
    guard.close()
    steps = [r for r in firstbad.ledger(folder) if r["table"] == "steps"]
    assert [s["step"] for s in steps] == [100, 105] and all(s["sample_ids"] == [7, 8, 9] for s in steps)


def test_attach__twice_and_several_models_are_one_guard(watched):
    import firstbad

    one, two = net(), net()
    first, second = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.SGD(two.parameters(), lr=0.1)
    a = firstbad.attach(one, first, locate=False)
    b = firstbad.attach([one, two], [first, second])
    for model, optimizer in ((one, first), (two, second)):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    assert a.last == b.last and a.last.step == 1 and a.folder == b.folder


def test_attach__gradients_that_are_nobodys_can_be_asked_for(watched):
    import firstbad

    guard = firstbad.attach(locate=False)
    weight = torch.randn(4, 1)
    for i in range(5):
        x = torch.randn(8, 4)
        gradient, loss = torch.func.grad_and_value(lambda w: (x @ w).square().mean())(weight)
        if i == 2:
            gradient = gradient * NAN
        allowed = guard.check({"w": gradient}, loss=loss)
        assert allowed == (i != 2)
        if allowed:
            weight = weight - 0.1 * gradient
    assert weight.isfinite().all() and watched.first_bad()["tensor"] == "w.grad"
    assert (guard.last.step, guard.last.skipped) == (4, False)


def test_attach__a_bad_loss_withholds_what_is_asked_for(watched):
    import firstbad

    guard = firstbad.attach(locate=False)
    assert guard.check([torch.ones(3)], loss=torch.tensor(1.0))
    assert not guard.check([torch.ones(3)], loss=torch.tensor(NAN))


def test_attach__a_program_that_imports_firstbad_needs_no_launcher(tmp_path):
    done = guarded.script(tmp_path, """
import torch, firstbad
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
guard = firstbad.attach(model, optimizer)
for i in range(5):
    optimizer.zero_grad()
    out = model(torch.randn(8, 4))
    loss = (out * 0 if i == 3 else out).square().mean().sqrt()
    loss.backward()
    optimizer.step()
print(guard.last.step, all(p.isfinite().all() for p in model.parameters()))
""")
    assert done.stdout.split() == ["4", "True"]
    assert "step 3 was not applied" in done.stderr and "script.py:10" in done.stderr and "sqrt" in done.stderr


def test_attach__workers_and_forked_children_are_left_alone(tmp_path):
    """A dataset that runs a module in its workers, and a child that trains on after a fork: one ledger, nothing said, no hang."""
    done = guarded.script(tmp_path, """
import os, sys, torch
import firstbad.pytorch
firstbad.pytorch.install()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

class Data(torch.utils.data.Dataset):
    net = torch.nn.Linear(4, 4)
    def __len__(self):
        return 32
    def __getitem__(self, i):
        out = self.net(torch.randn(4))
        return out.detach()

def train(loader):
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

train(torch.utils.data.DataLoader(Data(), batch_size=8, num_workers=2))
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    train([torch.randn(8, 4) * float("nan")] * 2)
    print("child", firstbad.pytorch.current(), bool(model.weight.isnan().any()))
    sys.stdout.flush()
    os._exit(0)
os.waitpid(pid, 0)
train([torch.randn(8, 4)])
print("parent", firstbad.pytorch.current().updates)
""")
    assert done.stdout.splitlines() == ["child None True", "parent 5"]
    assert "firstbad:" not in done.stderr
    assert len(list(tmp_path.glob("runs/*/ledger/*/*.log"))) == 1


def test_attach__installing_imports_neither_the_compiler_nor_numpy(tmp_path):
    """What makes a start slow."""
    done = guarded.script(tmp_path, """
import sys, torch
before = set(sys.modules)
import firstbad.pytorch
firstbad.pytorch.install()
new = set(sys.modules) - before
print(sorted(name for name in new if name.split(".")[0] in ("numpy", "sympy", "transformers") or name.startswith("torch._dynamo")))
print(sorted(name for name in new if name.startswith("torch.") and name.count(".") == 1))
""")
    assert done.stdout.splitlines()[0] == "[]", done.stdout
