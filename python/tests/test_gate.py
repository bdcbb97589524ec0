"""Which numbers decide about an update, when they are looked at, and what never withholds anything."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from watched import watched  # noqa: E402,F401

NAN = float("nan")


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def train(model, optimizer, updates=1, bad=(), change=None):
    """Some updates; those in `bad` have a NaN in their batch."""
    for i in range(updates):
        optimizer.zero_grad()
        x = torch.randn(8, 4)
        if i in bad:
            x[0, 0] = NAN
        loss = model(x).square().mean()
        loss.backward()
        if change:
            change(i)
        optimizer.step()


def state(model, optimizer):
    return [t.detach().clone() for t in model.state_dict().values()] + [
        v.clone() for kept in optimizer.state.values() for v in kept.values() if isinstance(v, torch.Tensor)]


def test_gate__nothing_is_opened_before_the_first_training_forward(watched):
    model = net()
    with torch.no_grad():
        model(torch.randn(2, 4))
    torch.optim.SGD(model.parameters(), lr=0.1)
    assert watched.session is None or not watched.session.run.value
    assert not list(watched.folder.iterdir())


def test_gate__an_update_is_counted_once(watched):
    model = net()
    train(model, torch.optim.AdamW(model.parameters()), 5)
    session = watched.end() or watched.session
    assert (session.updates, session.skips, session.number) == (5, 0, 5)


def test_gate__accumulated_micro_steps_are_one_update_and_the_bad_one_is_named(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for update in range(4):
        for micro in range(3):
            x = torch.randn(8, 4)
            if (update, micro) == (3, 1):
                x[:] = NAN
            (model(x).square().mean() / 3).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert watched.session.updates == 4
    found = watched.first_bad()
    assert (found["step"], found["micro_step"]) == (3, 1)


def test_gate__clipping_does_not_hide_where_it_was(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = state(model, optimizer)

    def change(_):
        model[0].weight.grad[2, 1] = float("inf")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    train(model, optimizer, 1, change=change)
    found = watched.first_bad()
    assert (found["module"], found["tensor"], found["kind"], found["count"]) == ("0", "weight.grad", "+inf", 1)
    assert found["index"] == [2, 1]
    assert all(torch.equal(a, b) for a, b in zip(before, state(model, optimizer)))


def test_gate__a_gradient_that_is_changed_after_clipping_is_looked_at_again(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 3)
    before = state(model, optimizer)

    def change(_):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model[2].bias.grad.mul_(NAN)

    train(model, optimizer, 1, change=change)
    assert watched.first_bad()["module"] == "2"
    assert all(torch.equal(a, b) for a, b in zip(before, state(model, optimizer)))


def test_gate__a_gradient_that_is_replaced_after_clipping_is_looked_at_again(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def change(_):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        model[2].bias.grad = None
        model[2].bias.grad = torch.full((1,), NAN)

    train(model, optimizer, 1, change=change)
    assert watched.session.skips == 1


def test_gate__finite_gradients_whose_norm_overflows_are_not_bad(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def change(_):
        for parameter in model.parameters():
            parameter.grad.fill_(3e38)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    train(model, optimizer, 3, change=change)
    assert watched.session.skips == 0 and not watched.cases()


def test_gate__a_frozen_parameter_and_one_without_gradient_are_no_finding(watched):
    model = net()
    model[0].weight.requires_grad_(False)
    unused = nn.Parameter(torch.full((3,), 1.0))
    optimizer = torch.optim.AdamW([*model.parameters(), unused])
    train(model, optimizer, 3)
    assert watched.session.skips == 0


def test_gate__a_gradient_that_no_optimizer_owns_decides_nothing(watched):
    model = net()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)

    def change(_):
        model[0].weight.grad.fill_(NAN)

    train(model, optimizer, 3, change=change)
    assert watched.session.skips == 0 and not watched.cases()


def test_gate__a_gradient_that_another_optimizer_left_there_decides_nothing(watched):
    """The judge of a GAN keeps a NaN from an update that was withheld; the generator is trained meanwhile."""
    one, two = net(), net()
    first, second = torch.optim.SGD(one.parameters(), lr=0.1), torch.optim.SGD(two.parameters(), lr=0.1)
    train(one, first, 1, bad=(0,))
    assert one[0].weight.grad.isnan().any()
    train(two, second, 3)
    session = watched.session
    assert (session.updates, session.skips) == (4, 1)


def test_gate__a_stale_gradient_that_an_optimizer_is_about_to_use_decides(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 1, bad=(0,))
    x = torch.randn(8, 4)
    model[2](torch.randn(3, 8)).sum().backward()  # zero_grad was forgotten
    optimizer.step()
    assert x is not None and watched.session.skips == 2
    assert all(p.isfinite().all() for p in model.parameters())


def test_gate__a_masked_row_of_minus_infinity_is_legal(watched):
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    attention.register_buffer("mask", torch.triu(torch.full((5, 5), float("-inf")), 1))
    optimizer = torch.optim.AdamW(attention.parameters())
    for _ in range(4):
        x = torch.randn(2, 5, 8)
        optimizer.zero_grad()
        attention(x, x, x, attn_mask=attention.mask, need_weights=False)[0].square().mean().backward()
        optimizer.step()
    assert watched.session.skips == 0 and not watched.cases()


def test_gate__a_nan_behind_where_that_reaches_nothing_is_legal(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        out = model(torch.randn(8, 4))
        garbage = torch.full_like(out, NAN)
        torch.where(torch.ones_like(out, dtype=torch.bool), out, garbage).square().mean().backward()
        optimizer.step()
    assert watched.session.skips == 0 and not watched.cases()


def test_gate__padding_garbage_that_the_program_masks_is_legal(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.randn(8, 4)
        x[5:] = NAN
        optimizer.zero_grad()
        model(x[:5]).square().mean().backward()
        optimizer.step()
    assert watched.session.skips == 0 and not watched.cases()


def test_gate__a_batch_that_the_program_leaves_out_itself_withholds_nothing(watched):
    """isnan(loss): continue, after backward, with zero_grad: the next update is a good one."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    applied = 0
    for i in range(6):
        x = torch.randn(8, 4)
        if i == 3:
            x[0] = NAN
        loss = model(x).square().mean()
        loss.backward()
        if loss.isnan():
            optimizer.zero_grad()
            continue
        before = model[0].weight.detach().clone()
        optimizer.step()
        applied += int(not torch.equal(before, model[0].weight))
        optimizer.zero_grad()
    assert applied == 5
    assert watched.session.skips == 0 and not watched.cases()


def test_gate__a_program_that_skips_by_itself_after_clipping_goes_on(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(6):
        x = torch.randn(8, 4)
        if i == 3:
            x[0] = NAN
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if not nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite():
            continue
        optimizer.step()
    session = watched.session
    assert (session.updates, session.skips) == (6, 1)
    assert all(p.isfinite().all() for p in model.parameters())


def test_gate__a_bad_state_is_told_as_such_and_blames_no_layer(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 3)
    with torch.no_grad():
        model[0].bias[1] = NAN
    train(model, optimizer, 1)
    found = watched.first_bad()
    assert found["boundary"] == "entry_state" and (found["module"], found["tensor"]) == ("0", "bias")


def test_gate__the_run_halts_after_three_in_a_row_and_stays_shut(watched, capsys):
    from firstbad import Halted

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = state(model, optimizer)
    with pytest.raises(Halted) as raised:
        train(model, optimizer, 8, bad=range(8))
    assert watched.session.updates in (3, 4)
    assert raised.value.step == 3
    for _ in range(2):  # who swallows it gets it again
        with pytest.raises(Halted):
            train(model, optimizer, 1)
    assert all(torch.equal(a, b) for a, b in zip(before, state(model, optimizer)))
    said = capsys.readouterr().err
    assert said.count("first bad") == 1 and "skipped 1 of at most 3 in a row" in said and "the run halts here" in said


def test_gate__halt_stops_at_the_first(watched, monkeypatch):
    from firstbad import Halted

    monkeypatch.setenv("FIRSTBAD_ON_BAD", "halt")
    model = net()
    with pytest.raises(Halted):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 1, bad=(0,))


def test_gate__observe_changes_nothing(watched, monkeypatch, capsys):
    monkeypatch.setenv("FIRSTBAD_ON_BAD", "observe")
    model = net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2, bad=(1,))
    assert model[0].weight.isnan().any()
    assert watched.session.skips == 0
    assert "is applied although it is bad" in capsys.readouterr().err


def test_gate__an_exception_in_forward_gives_the_update_up(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 2)
    with pytest.raises(RuntimeError):
        model(torch.randn(8, 5))
    train(model, optimizer, 2)
    assert watched.session.updates == 4 and watched.session.skips == 0


def test_gate__a_step_that_raises_leaves_the_guard_in_order(watched):
    class Refuses(torch.optim.SGD):
        refuse = False

        def step(self, closure=None):
            if self.refuse:
                raise KeyError("no")
            return super().step(closure)

    model = net()
    optimizer = Refuses(model.parameters(), lr=0.1)
    train(model, optimizer, 2)
    optimizer.refuse = True
    with pytest.raises(KeyError):
        train(model, optimizer, 1, bad=(0,))
    optimizer.refuse = False
    train(model, optimizer, 2)
    assert watched.session.updates == 5 and watched.session.skips == 1
    assert all(p.isfinite().all() for p in model.parameters())


def test_gate__an_optimizer_that_steps_in_backward_is_told_as_late(watched):
    model = net()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for parameter in model.parameters():
        def hook(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        parameter.register_post_accumulate_grad_hook(hook)
    for _ in range(3):
        model(torch.randn(8, 4)).square().mean().backward()
    assert any("inside backward" in line for line in watched.session.coverage.lines)


def test_gate__a_strangers_optimizer_that_counts_without_gradients_is_put_back(watched):
    class Counts(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1, "count": 0})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                group["count"] += 1
                for p in group["params"]:
                    p.mul_(0.99)  # decay, whatever the gradient
                    if p.grad is not None:
                        p.sub_(p.grad, alpha=group["lr"])

    model = net()
    optimizer = Counts(model.parameters())
    train(model, optimizer, 3)
    before, count = state(model, optimizer), optimizer.param_groups[0]["count"]
    train(model, optimizer, 1, bad=(0,))
    assert watched.session.skips == 1
    assert all(torch.equal(a, b) for a, b in zip(before, state(model, optimizer)))
    assert optimizer.param_groups[0]["count"] == count == 3


def test_gate__a_bad_update_is_taken_back_in_the_first_updates(watched):
    """Gradients are finite, and the optimizer makes the bad number: an epsilon of 0 and a second moment of 0."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, eps=0.0)
    with torch.no_grad():
        model[2].weight.zero_()
    before = state(model, optimizer)
    model(torch.randn(8, 4)).sum().backward()
    assert model[0].weight.grad.abs().max() == 0
    optimizer.step()
    assert watched.session.last.skipped
    assert watched.first_bad()["boundary"] == "update"
    after = state(model, optimizer)
    assert len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after))


def test_gate__buffers_that_forward_moved_are_put_back(watched):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 4)
    before, version = state(model, optimizer), model[1].running_mean._version
    train(model, optimizer, 1, bad=(0,))
    assert all(torch.equal(a, b) for a, b in zip(before, state(model, optimizer)))
    assert watched.session.skips == 1
    assert model[1].running_mean._version == version  # a graph that lives on may have saved it


def test_gate__an_evaluation_that_forgot_no_grad_keeps_its_statistics(watched):
    """Batch norm in train mode is run over a few batches before the bad update: that is not of the update."""
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 3)
    for _ in range(5):
        model(torch.randn(8, 4)).mean().item()
    before = state(model, optimizer)
    train(model, optimizer, 1, bad=(0,))
    assert all(torch.equal(a, b) for a, b in zip(before, state(model, optimizer)))


def test_gate__shared_weights_have_both_names(watched):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
    place, = watched.session.names.places.values()
    assert (place.module, place.name, place.also) == ("0", "weight", ["1.weight"])


def test_gate__two_models_are_named_by_their_class(watched):
    class Generator(nn.Sequential):
        pass

    class Judge(nn.Sequential):
        pass

    one, two = Generator(nn.Linear(4, 4)), Judge(nn.Linear(4, 1))
    first = torch.optim.SGD(one.parameters(), lr=0.1)
    second = torch.optim.SGD(two.parameters(), lr=0.1)
    for _ in range(2):
        two(one(torch.randn(8, 4)).detach()).mean().backward()
        second.step()
        two(one(torch.randn(8, 4))).mean().backward()
        first.step()
    assert {watched.session.names.of(p) for p in one.parameters()} == {"Generator.0.weight", "Generator.0.bias"}
    assert {watched.session.names.of(p) for p in two.parameters()} == {"Judge.0.weight", "Judge.0.bias"}


def test_gate__a_schedule_of_epochs_is_left_alone(watched):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    rate = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(3):
        train(model, optimizer, 4, bad=(3,))
        rate.step()
    assert watched.session.skips == 3 and optimizer.param_groups[0]["lr"] == 0.125


def test_gate__no_thing_of_ours_is_pickled_with_a_model(watched, tmp_path):
    import pickletools

    model = net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
    import pickle

    text = pickle.dumps(model)
    assert not [arg for _, arg, _ in pickletools.genops(text) if isinstance(arg, str) and "firstbad" in arg]
    again = pickle.loads(text)
    assert torch.equal(again(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_gate__a_failure_of_ours_is_told_once_and_training_goes_on(watched, monkeypatch, capsys):
    from firstbad.pytorch import gate, patch

    def breaks(self, *_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(gate.Gate, "run", breaks)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 4)
    assert capsys.readouterr().err.count("ZeroDivisionError: ours") == 1
    assert "session" in patch.broken()
    patch.reset()


def test_gate__uninstalled_it_leaves_torch_as_it_was(watched):
    import firstbad.pytorch

    model = net()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), 2)
    firstbad.pytorch.uninstall()
    assert not hasattr(torch.autograd.backward, "_firstbad_original")
    assert not hasattr(torch.optim.Optimizer.__init__, "_firstbad_original")
    assert not hasattr(torch.nn.utils.clip_grad_norm_, "_firstbad_original")
    assert not hasattr(torch.amp.GradScaler.step, "_firstbad_original")
    assert not model._forward_pre_hooks and not torch.nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_gate__a_learning_rate_that_is_no_number_is_found_in_the_update_that_it_spoils(watched, kind, rate):
    """Long after the updates that are held back anyway; training goes on when the rate is a number again."""
    model = nn.Linear(4, 1)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
    for i in range(8):
        for group in optimizer.param_groups:
            group["lr"] = rate if i == 6 else 0.1
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        assert all(torch.isfinite(p).all() for p in model.parameters())
        if i == 6:
            assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    watched.end()
    assert watched.session.skips == 1 and watched.first_bad()["boundary"] == "update" and watched.first_bad()["step"] == 6


def own_check(model, optimizer, scale, updates, poison, clears, factor=1e19):
    """A loop with a scale and a check of its own, as people write them: `clears` says whether the left-out gradients go away."""
    for i in range(updates):
        loss = model(torch.randn(8, 4) * (factor if i in poison else 1.0)).square().mean()
        if clears:
            optimizer.zero_grad()
        (loss * scale).backward()
        if all(torch.isfinite(p.grad).all() for p in model.parameters()):
            for p in model.parameters():
                p.grad /= scale
            optimizer.step()
            optimizer.zero_grad()


def test_gate__a_bad_gradient_that_a_program_leaves_lying_is_found_when_more_is_added_to_it(watched):
    from firstbad.errors import Halted

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with pytest.raises(Halted):
        own_check(model, optimizer, 8.0, 40, {5}, False)
    assert watched.first_bad()["step"] == 5 and watched.first_bad()["boundary"] == "local_gradient"


@pytest.mark.parametrize("factor", [1e19, 1e30])
def test_gate__an_update_that_a_program_leaves_out_and_clears_is_its_own_business(watched, factor):
    """A scale of one's own overflows now and then, or a loss is infinite; nothing bad is added to."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    own_check(model, optimizer, 8.0, 40, {5, 6, 20}, True, factor)
    watched.end()
    assert not watched.cases() and watched.session.skips == 0


def test_gate__models_that_a_program_has_done_with_are_let_go_and_the_next_is_gated(watched):
    """A sweep in one process: none of its models stays alive for us, and every update of each is gated."""
    import gc
    import weakref

    alive = []
    for k in range(4):
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters())
        alive.append(weakref.ref(model))
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean() * (NAN if k == 3 else 1.0)
            loss.backward()
            try:
                optimizer.step()
            except FloatingPointError:
                break
        if k == 2:
            del model, optimizer, loss
            gc.collect()
    assert [reference() is not None for reference in alive[:2]] == [False, False]
    watched.end()
    assert watched.first_bad()["step"] == 12
    rows = [row for row in watched.session.names.sites if row[1].startswith("Sequential")]
    assert {row[1].split(".")[0] for row in rows} >= {"Sequential#2", "Sequential#3", "Sequential#4"}


def test_gate__a_bad_loss_whose_gradients_are_finite_is_that_of_its_micro_step(watched):
    """It was handed to backward, and nobody cleared anything: finite gradients do not make it somebody else's."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(4):
        optimizer.zero_grad()
        for micro in range(2):
            loss = model(torch.randn(8, 4)).square().mean()
            (loss + (NAN if i == 3 else 0.0)).backward()
        optimizer.step()
    watched.end()
    assert watched.first_bad()["step"] == 3 and watched.first_bad()["micro_step"] == 0 and watched.first_bad()["boundary"] == "loss"
