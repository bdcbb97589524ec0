"""GradScaler: its scale moves as it would, an update is withheld whole, and misuse is told."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

if not hasattr(torch.amp, "GradScaler"):
    pytest.skip("before 2.3 a GradScaler works on CUDA alone", allow_module_level=True)

from torch import nn  # noqa: E402
from watched import watched  # noqa: E402,F401

NAN = float("nan")


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def loop(model, optimizer, scaler, updates, bad=(), unscale=True, clip=True, poison=NAN, factor=1.0):
    scales = []
    for i in range(updates):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        if i in bad:
            loss = loss * poison
        scaler.scale(loss * factor).backward()
        if unscale:
            scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def parameters(model):
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_scaler__a_bad_loss_is_withheld_and_the_scale_which_did_nothing_stays(watched, fused, unscale):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    loop(model, optimizer, scaler, 4, unscale=unscale, clip=unscale)
    before = parameters(model)
    step = {k: int(v["step"]) for k, v in enumerate(optimizer.state.values())}
    tracker = scaler._growth_tracker.item()
    assert loop(model, optimizer, scaler, 1, bad=(0,), unscale=unscale, clip=unscale) == [1024.0]
    assert scaler._growth_tracker.item() == tracker
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(model)))
    assert {k: int(v["step"]) for k, v in enumerate(optimizer.state.values())} == step
    assert loop(model, optimizer, scaler, 2, unscale=unscale, clip=unscale) == [1024.0, 1024.0]
    assert (watched.session.updates, watched.session.skips) == (7, 1)


def test_scaler__an_overflow_of_the_scale_is_probing_and_no_case(watched, capsys):
    """Gradients are finite, and 2**120 times too large."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    scales = loop(model, optimizer, scaler, 14, clip=False, factor=64.0)
    assert scales[0] == 2.0**126 and watched.session.skips >= 1
    assert not watched.cases() and "firstbad:" not in capsys.readouterr().err


def test_scaler__a_gradient_that_is_bad_at_every_scale_is_a_fault_at_once(watched, capfd, monkeypatch):
    """The loss is finite, so that the scaler alone would back off, again and again; each batch is asked, and told in its step."""
    monkeypatch.setenv("FIRSTBAD_LOCATE", "all")
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    loop(model, optimizer, scaler, 4)
    before = parameters(model)
    for skips in (1, 2, 3):
        optimizer.zero_grad()
        out = model(torch.randn(8, 4))
        scaler.scale(torch.where(out.abs() >= 0, out, (out * 0).sqrt()).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert watched.session.last.verdict.fault == 1 and watched.session.last.verdict.consecutive_skips == skips
        assert scaler.get_scale() == 1024.0
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(model)))
    loop(model, optimizer, scaler, 1)
    assert watched.session.skips == 3
    assert "step 4 was not applied" in capfd.readouterr().err


def test_scaler__the_scale_moves_as_it_would_alone(watched):
    def run():
        torch.manual_seed(5)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=3)
        return loop(model, optimizer, scaler, 25, clip=False, factor=64.0)

    import firstbad.pytorch

    with_us = run()
    firstbad.pytorch.uninstall()
    assert with_us == run()


def test_scaler__clipping_before_unscaling_is_told(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loop(model, optimizer, scaler, 3, unscale=False, clip=True)
    assert any("clipped before they were unscaled" in line for line in watched.session.coverage.lines)
    assert watched.session.skips == 0


def test_scaler__unscaling_before_clipping_is_right_and_nothing_is_told(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loop(model, optimizer, torch.amp.GradScaler("cpu", init_scale=1024.0), 3)
    assert watched.session.coverage.lines == []


def test_scaler__a_loss_that_was_not_scaled_is_told(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loop(model, optimizer, scaler, 1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        scaler.step(optimizer)
        scaler.update()
    assert any("did not scale" in line for line in watched.session.coverage.lines)


def test_scaler__misuse_that_torch_refuses_is_refused_as_without_us(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with pytest.raises(AssertionError):
        scaler.step(optimizer)
    scaler.scale(model(torch.randn(8, 4)).square().mean()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update()
    with pytest.raises(AssertionError):
        scaler.update()


def test_scaler__two_optimizers_of_one_scaler_are_withheld_together(watched):
    one, two = net(), net()
    first, second = torch.optim.AdamW(one.parameters()), torch.optim.SGD(two.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)

    def update(poison=1.0):
        first.zero_grad()
        second.zero_grad()
        x = torch.randn(8, 4)
        loss = one(x).square().mean() * poison + two(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()

    for _ in range(3):
        update()
    before = parameters(one) + parameters(two)
    update(float("inf"))
    assert all(torch.equal(a, b) for a, b in zip(before, parameters(one) + parameters(two)))
    assert scaler.get_scale() == 1024.0
    update()
    assert (watched.session.updates, watched.session.skips) == (5, 1)


def test_scaler__two_scalers_keep_their_own_scale(watched):
    one, two = net(), net()
    first, second = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.SGD(two.parameters(), lr=0.1)
    a = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    b = torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=1000)
    for i in range(4):
        loop(one, first, a, 1, factor=1e38 if i == 2 else 1.0, clip=False)
        loop(two, second, b, 1)
    assert (a.get_scale(), b.get_scale()) == (512.0, 4096.0) and watched.session.skips == 1


def test_scaler__found_inf_is_one_or_nothing(watched):
    """What several devices found is summed to 2: an optimizer that is given 2 would take the step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(model(torch.randn(8, 4)).square().mean()).backward()
    scaler.unscale_(optimizer)
    kept = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
    next(iter(kept.values())).fill_(2.0)
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0


def test_scaler__one_that_is_off_is_not_looked_at(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loop(model, optimizer, torch.amp.GradScaler("cpu", enabled=False), 4, bad=(2,))
    assert (watched.session.updates, watched.session.skips) == (4, 1)
    assert all(p.isfinite().all() for p in model.parameters())


def test_scaler__the_scale_stands_in_the_ledger(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loop(model, optimizer, torch.amp.GradScaler("cpu", init_scale=1024.0), 2)
    import firstbad
    from firstbad.pytorch import session

    folder = watched.session.folder
    session.close()
    steps = [r for r in firstbad.ledger(folder) if r["table"] == "steps"]
    assert steps and all(str(s).count("1024") for s in steps)
