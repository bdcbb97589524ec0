"""Optimizers that call the program back: everything of an update happens inside `step`."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from watched import watched  # noqa: E402,F401

NAN = float("nan")


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def copies(model, optimizer):
    def kept(value):
        if isinstance(value, torch.Tensor):
            return value.detach().clone()
        if isinstance(value, dict):
            return {k: kept(v) for k, v in value.items()}
        return [kept(v) for v in value] if isinstance(value, (list, tuple)) else value

    return kept(model.state_dict()), kept(optimizer.state_dict())


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    return a == b


def closure_of(model, optimizer, poison=1.0, calls=None):
    x, y = torch.randn(8, 4), torch.randn(8, 1)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y) * poison
        loss.backward()
        if calls is not None:
            calls.append(loss.item())
        return loss

    return closure


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.LBFGS])
def test_closures__a_bad_update_is_withheld(watched, kind, keyword):
    model = net()
    optimizer = kind(model.parameters(), lr=0.1)

    def step(poison=1.0):
        closure = closure_of(model, optimizer, poison)
        return optimizer.step(closure=closure) if keyword else optimizer.step(closure)

    for _ in range(3):
        step()
    before = copies(model, optimizer)
    assert torch.isnan(torch.as_tensor(step(NAN)))
    assert equal(before, copies(model, optimizer))
    step()
    assert not equal(before, copies(model, optimizer))
    assert (watched.session.updates, watched.session.skips) == (5, 1)


def test_closures__the_first_update_of_all_is_withheld_too(watched):
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters())
    before = copies(model, optimizer)
    optimizer.step(closure_of(model, optimizer, NAN))
    assert equal(before, copies(model, optimizer))


def test_closures__gradients_are_there_after_a_withheld_step(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step(closure_of(model, optimizer, NAN))
    assert all(p.grad is not None and p.grad.isnan().any() for p in model.parameters())


def test_closures__evaluations_that_overflow_within_a_line_search_are_no_alarm(watched, capsys):
    """A line search tries points that are too far; what counts is where it ends."""
    weight = nn.Parameter(torch.tensor([30.0]))
    optimizer = torch.optim.LBFGS([weight], lr=1.0, max_iter=10, line_search_fn="strong_wolfe")
    seen = []

    def closure():
        optimizer.zero_grad()
        loss = (weight.exp() - 3.0).square().sum() if len(seen) == 0 else (weight * 0.5).square().sum()
        loss.backward()
        seen.append(loss.item())
        return loss

    optimizer.step(closure)
    assert len(seen) > 1
    if weight.isfinite().all():
        assert watched.session.last is None or not watched.session.last.skipped


def test_closures__a_result_that_is_not_finite_is_taken_back(watched):
    """The first evaluation is finite, a later one is not, and the optimizer ends with NaN."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.LBFGS([weight], lr=1.0, max_iter=4)
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = weight.square().sum()
        if calls:
            loss = loss * NAN
        loss.backward()
        calls.append(1)
        return loss

    before = weight.detach().clone()
    optimizer.step(closure)
    assert len(calls) > 1
    assert torch.equal(weight.detach(), before) and watched.session.skips + int(watched.session.last.skipped) >= 1
    assert not optimizer.state[weight]


def test_closures__an_update_that_accumulates_outside_is_one_update(watched):
    """Lightning with accumulation: only the last closure is given to step; the others are called alone."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            (model(torch.randn(8, 4)).square().mean() / 3).backward()

        def closure():
            loss = model(torch.randn(8, 4)).square().mean() / 3
            loss.backward()
            return loss

        optimizer.step(closure)
    session = watched.session
    assert session.updates == 3 and session.last.micro == 2


def test_closures__a_closure_that_raises_leaves_the_guard_in_order(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def broken():
        raise KeyError("no")

    with pytest.raises(KeyError):
        optimizer.step(broken)
    for _ in range(2):
        optimizer.step(closure_of(model, optimizer))
    assert watched.session.updates == 2


def test_closures__two_steps_of_sharpness_aware_minimisation_are_one_update(watched):
    """Forward, backward, climb; forward, backward, descend: the base optimizer steps once."""
    model = net()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(4):
        x, y = torch.randn(8, 4), torch.randn(8, 1)
        if i == 3:
            y = y * NAN
        before = [p.detach().clone() for p in model.parameters()]
        nn.functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=0.01)
        base.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        with torch.no_grad():
            for p, old in zip(model.parameters(), before):
                p.copy_(old)
        base.step()
        base.zero_grad()
    assert (watched.session.updates, watched.session.skips) == (4, 1)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before))
