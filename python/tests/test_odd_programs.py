"""Programs that are legal and rare: what they do that a usual script does not, and that the guard goes along."""
from __future__ import annotations

import json
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from watched import watched  # noqa: E402,F401

NAN = float("nan")


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def spoilt(parameter):
    """0, with an infinite slope towards this parameter alone."""
    return (parameter - parameter.detach()).sum().sqrt()


def state(*modules):
    return [tensor.detach().clone() for module in modules for tensor in module.state_dict().values()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other))


def problems(watched):
    return watched.session.recorder.finish().problems


def test_odd__an_optimizer_of_the_same_size_in_the_place_of_another_is_gated(watched):
    """Layer by layer: the second optimizer owns as many parameters as the first, and others."""
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(3)])
    for k, layer in enumerate(model):
        for i, other in enumerate(model):
            other.requires_grad_(i == k)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for update in range(4):
            before = state(model)
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            if (k, update) == (1, 3):
                loss = loss + spoilt(layer.weight)
            loss.backward()
            optimizer.step()
            assert same(before, state(model)) == ((k, update) == (1, 3))
    assert (watched.session.updates, watched.session.skips) == (12, 1)


def test_odd__a_parameter_that_took_the_place_of_another_in_its_group_is_gated(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for update in range(6):
        if update == 3:
            new, old = nn.Parameter(torch.ones(1)), model[2].bias
            model[2].bias = new
            optimizer.param_groups[0]["params"] = [new if p is old else p for p in optimizer.param_groups[0]["params"]]
        before = state(model)
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        if update == 4:
            loss = loss + spoilt(model[2].bias)
        loss.backward()
        optimizer.step()
        assert same(before, state(model)) == (update == 4)


@pytest.mark.parametrize("asks", [False, True])
def test_odd__an_optimizer_that_reads_every_gradient_is_withheld_and_does_not_raise(watched, asks):
    class Raw(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None):
            loss = None if closure is None else closure()
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["count"] = self.state[p].get("count", 0) + 1
                    p.sub_(p.grad, alpha=group["lr"])
                    p.mul_(0.99)
            return loss

    class Asks(Raw):
        def step(self, closure=None):
            if all(p.grad is not None for group in self.param_groups for p in group["params"]):
                super().step(closure)

    model = net()
    optimizer = (Asks if asks else Raw)(model.parameters())
    for update in range(6):
        before = state(model), {p: dict(kept) for p, kept in optimizer.state.items()}
        x = torch.randn(8, 4)
        x[0, 0] = NAN if update == 4 else 0
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        assert same(before[0], state(model)) == (update == 4)
        assert (before[1] == optimizer.state) == (update == 4)
        assert bool(model[0].weight.grad.isnan().any()) == (update == 4)
    assert watched.session.skips == 1


def test_odd__per_sample_gradients_of_torch_func_are_no_forward_of_ours(watched, capsys):
    from torch.func import functional_call, grad_and_value, vmap

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(parameters, x):
        return functional_call(model, parameters, (x[None],)).square().mean()

    for update in range(6):
        before = state(model)
        x = torch.randn(8, 4)
        x[0, 0] = NAN if update == 4 else 0
        gradients, _ = vmap(grad_and_value(loss_of), in_dims=(None, 0))({n: p.detach() for n, p in model.named_parameters()}, x)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name].mean(0)
        optimizer.step()
        assert same(before, state(model)) == (update == 4)
    assert "failed and is off" not in capsys.readouterr().err


def test_odd__a_forward_with_parameters_of_this_call_is_not_replayed_with_others(watched):
    from torch.func import functional_call

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    model(x).square().mean().backward()
    assert not problems(watched)
    optimizer.step()
    optimizer.zero_grad()
    own = dict(model.named_parameters())
    inner = functional_call(model, own, (x,)).square().mean()
    moved = {n: p - 0.1 * g for (n, p), g in zip(own.items(), torch.autograd.grad(inner, list(own.values()), create_graph=True))}
    functional_call(model, moved, (x,)).square().mean().backward()
    assert [problem for problem in problems(watched) if "not its own" in problem]
    optimizer.step()


def test_odd__a_forward_that_only_a_gradient_penalty_still_needs_is_part_of_the_update(watched):
    """The graph of the gradient holds none of the last nodes of the forward that it is of."""
    critic = net()
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    for _ in range(3):
        mixed = torch.randn(8, 4).requires_grad_()
        slope, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        (critic(torch.randn(8, 4)).mean() + penalty).backward()
        assert not problems(watched)
        optimizer.step()
        optimizer.zero_grad()


def test_odd__a_hook_of_the_programs_own_on_a_model_that_was_pickled_is_called_as_it_was_registered(watched, monkeypatch):
    from torch.utils.hooks import RemovableHandle

    monkeypatch.setattr(RemovableHandle, "next_id", 0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    again = pickle.loads(pickle.dumps(model))
    monkeypatch.setattr(RemovableHandle, "next_id", 0)  # as in another process, which takes numbers from 0
    called = []

    def before(module, args):
        called.append("before")

    def after(module, args, output):
        called.append("after")

    for _ in range(8):
        again.register_forward_pre_hook(before)
        again.register_forward_hook(after)
    again(torch.randn(8, 4))
    assert called == ["before"] * 8 + ["after"] * 8
    called.clear()
    with pytest.raises(RuntimeError):
        again(torch.randn(8, 5))
    assert called == ["before"] * 8


def test_odd__a_copy_of_a_root_is_guarded_and_is_told_once(watched):
    import copy

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for update in range(5):
        x = torch.randn(8, 4)
        x[0, 0] = NAN if update == 4 else 0
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        if update == 1:
            model = copy.deepcopy(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert watched.session.skips == 1
    assert (len(model._forward_pre_hooks), len(model._forward_hooks)) == (1, 1)


def test_odd__a_part_that_has_no_memory_yet_does_not_end_the_search(watched, monkeypatch):
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.now, self.later = nn.Linear(4, 1), nn.Linear(4, 4, device="meta")

        def forward(self, x):
            return self.now(x)

    monkeypatch.setenv("FIRSTBAD_LOCATE", "all")
    model = Late()
    optimizer = torch.optim.SGD(model.now.parameters(), lr=0.1)
    for update in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        if update == 3:
            loss = loss + spoilt(model.now.weight)
        loss.backward()
        optimizer.step()
    located, = watched.folder.glob("*/cases/*/locate.json")
    assert json.loads(located.read_text())["found"] == "operator"


@pytest.mark.parametrize("apart", [
    lambda p: p.detach(), lambda p: p.data.clone(), lambda p: p.detach().view(-1).clone().view_as(p)])
def test_odd__a_loss_that_reads_a_parameter_and_what_was_detached_from_it_is_replayed(watched, monkeypatch, apart):
    monkeypatch.setenv("FIRSTBAD_LOCATE", "all")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for update in range(4):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        if update == 3:
            loss = loss + (model[0].weight - apart(model[0].weight)).sum().sqrt()
        loss.backward()
        optimizer.step()
    located, = watched.folder.glob("*/cases/*/locate.json")
    found = json.loads(located.read_text())
    assert (found["found"], found["location"]["node"]) == ("operator", "SqrtBackward0")


class _Divides(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        return made / 0 if function is nn.functional.linear else made


@pytest.mark.parametrize("kind", ["hook", "saved", "mode"])
def test_odd__what_a_replay_would_not_have_is_no_event_that_went_away(watched, monkeypatch, kind):
    """A hook on an activation, hooks around saved tensors, a mode around the forward: each makes the bad number here."""
    monkeypatch.setenv("FIRSTBAD_LOCATE", "all")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for update in range(4):
        optimizer.zero_grad()
        x = torch.randn(8, 4)
        if update == 3 and kind == "saved":
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t / 0, lambda t: t):
                out = model(x)
        elif update == 3 and kind == "mode":
            with _Divides():
                out = model(x)
        else:
            out = model(x)
        if update == 3 and kind == "hook":
            out.register_hook(lambda gradient: gradient / 0)
        out.square().mean().backward()
        optimizer.step()
    assert watched.session.skips == 1
    located, = watched.folder.glob("*/cases/*/locate.json")
    assert json.loads(located.read_text())["found"] not in ("not_reproduced", "operator")


def test_odd__hooks_of_torchs_own_and_within_modules_are_replayed(watched):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = net()

        def forward(self, x):
            out = self.inner(x)
            out.register_hook(lambda gradient: gradient * 2)
            return out

    model = Own()
    model.inner[0].weight.register_hook(lambda gradient: gradient * 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        with torch.autograd.graph.save_on_cpu():
            loss = model(torch.randn(8, 4)).square().mean()
        torch.utils.checkpoint.checkpoint(model, torch.randn(8, 4), use_reentrant=False).square().mean().backward()
        loss.backward()
        assert not problems(watched)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("graph", [False, True])
def test_odd__rows_of_several_lengths_are_a_batch_as_others_are(watched, monkeypatch, graph):
    monkeypatch.setenv("FIRSTBAD_LOCATE", "all")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for update in range(4):
        optimizer.zero_grad()
        rows = [torch.randn(n, 4) for n in (2, 3)]
        if update == 3:
            rows[1][0, 0] = NAN
        loss = model(torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=graph)).values().square().mean()
        loss.backward()
        optimizer.step()
    assert watched.session.skips == 1
    assert watched.first_bad()
    if not graph:  # what gradients are computed for is no batch
        assert "input" in json.dumps(watched.first_bad())


@pytest.mark.parametrize("kind", ["step", "sequential", "plateau"])
def test_odd__a_schedule_that_was_made_in_mid_run_is_held_with_its_update(watched, kind):
    from torch.optim import lr_scheduler

    model = net()
    for phase in range(2):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = {"step": lambda o: lr_scheduler.StepLR(o, 2),
                    "sequential": lambda o: lr_scheduler.SequentialLR(
                        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]),
                    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1)}[kind](optimizer)
        for update in range(6):
            x = torch.randn(8, 4)
            x[0, 0] = NAN if update == 3 else 0
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            schedule.step(*[1.0] if kind == "plateau" else [])
            assert schedule.last_epoch == (update + 1 if update < 3 else update), (phase, update)
    assert watched.session.skips == 2


@pytest.mark.parametrize("kind", ["written", "replaced"])
def test_odd__a_gradient_that_the_program_itself_made_bad_is_laid_at_no_devices_door(watched, monkeypatch, capfd, kind):
    """Between backward and step: no replay runs that code, so that what does not come back there is no transient."""
    monkeypatch.setenv("FIRSTBAD_LOCATE", "all")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        if i == 4 and kind == "written":
            model[2].bias.grad /= 0.0
        if i == 4 and kind == "replaced":
            model[2].bias.grad = model[2].bias.grad * NAN
        optimizer.step()
    watched.end()
    located = json.loads(next(watched.folder.glob("*/cases/a1-000004/locate.json")).read_text())
    assert located["found"] == "not_reproduced" and located["cause"]["class"] == "unknown", located["cause"]
    assert any("changed gradients after backward" in line for line in located["replay"]["differences"]), located["replay"]
    said = capfd.readouterr().err
    assert "transient" not in said and "take that device out" not in said
