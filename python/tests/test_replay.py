"""A recorded update, run again in the living process: the same numbers, and no trace. firstbad/pytorch: recorder, replay,
untouched."""
import random

import pytest

torch = pytest.importorskip("torch")

import numpy  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from firstbad.pytorch import recorder, replay, untouched  # noqa: E402
from torch_updates import bits, everything, recorded, replay_of  # noqa: E402

torch.set_num_threads(1)


def same(a, b):
    return bits(a) == bits(b)


def holds_the_same(program, losses, *roots):
    """A replay gives the losses and gradients of the run to the last bit, and changes nothing."""
    assert program.problems == []
    before = everything(*roots)
    again = replay_of(program)
    for _ in range(2):
        again.run()
        flat = [t for loss in losses for t in ([loss] if isinstance(loss, torch.Tensor) else loss)]
        assert [bits(t) for t in again.losses] == [bits(t) for t in flat]
        for leaf, gradient in again.gradients:
            assert (leaf.grad is None) == (gradient is None)
            assert gradient is None or (same(leaf.grad, gradient) and leaf.grad is not gradient)
        assert everything(*roots) == before
    assert not replay.replaying()


class Small(nn.Module):
    """BatchNorm, dropout, a counter in Python, random numbers of three streams, and an output in a dict."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.3), nn.Linear(4, 5)
        self.calls, self.log = 0, []

    def forward(self, x, noise=None):
        self.calls += 1
        self.log.append(self.calls)
        h = self.norm(self.conv(x)).relu().mean((2, 3))
        h = h + random.random() + float(numpy.random.rand()) + torch.rand(())
        return {"logits": self.fc(self.drop(h)), "hidden": (h, [h * 2])}


def test_replay__gives_the_same_bits_for_a_model_with_all_kinds_of_state():
    torch.manual_seed(0)
    numpy.random.seed(3)  # a stream that is first used within forward was not there to be kept
    model, x, y = Small(), torch.randn(6, 3, 5, 5), torch.tensor([0, 1, 2, 3, 4, 0])
    buffers = [(b, b.clone()) for b in model.buffers()]

    def step(call, backward):
        out = call(model, x, noise=None)
        backward(F.cross_entropy(out["logits"], y) + out["hidden"][1][0].square().mean())
    program, losses, _ = recorded({"": model}, step, before=buffers)
    holds_the_same(program, losses, model)


def test_replay__accumulates_over_micro_steps_as_the_run_did():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    parts = [torch.randn(3, 4) for _ in range(3)]

    def step(call, backward):
        for x in parts:
            backward(call(model, x).square().mean() / 3)
    program, losses, _ = recorded({"": model}, step)
    assert program.micro == 2 and len(losses) == 3
    holds_the_same(program, losses, model)


def test_replay__two_roots_where_one_reads_what_the_other_made():
    torch.manual_seed(2)
    g, d = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    z, real = torch.randn(5, 3), torch.randn(5, 4)

    def step(call, backward):
        fake = call(g, z)
        backward(F.binary_cross_entropy(call(d, real), torch.ones(5, 1)))
        backward(F.binary_cross_entropy(call(d, fake), torch.zeros(5, 1)), retain_graph=True)
    program, losses, _ = recorded({"Generator": g, "Discriminator": d}, step)
    assert len([s for s in program.steps if type(s).__name__ == "RootCall"]) == 3
    holds_the_same(program, losses, g, d)


def test_replay__a_gradient_penalty_takes_a_gradient_in_the_middle():
    torch.manual_seed(3)
    d = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    real, fake = torch.randn(5, 4), torch.randn(5, 4)
    rec = recorder.Recorder()
    mixed = (real * 0.3 + fake * 0.7).requires_grad_()
    rec.root_enter(d, "", (mixed,), {})
    out = d(mixed)
    rec.root_exit(out)
    rec.grad_enter(out, [mixed], torch.ones_like(out), {"create_graph": True})
    grad, = torch.autograd.grad(out, [mixed], torch.ones_like(out), create_graph=True)
    rec.grad_exit((grad,))
    loss = ((grad.norm(dim=1) - 1) ** 2).mean()
    rec.backward_enter(loss)
    loss.backward()
    rec.backward_exit()
    holds_the_same(rec.finish(), [loss.detach()], d)


def test_replay__loss_scale_and_autocast_are_those_of_the_run():
    torch.manual_seed(4)
    model, x, y = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(call, backward):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(call(model, x).float(), y)
        backward(scaler.scale(loss), losses_are=loss)
    program, losses, _ = recorded({"": model}, step)
    assert program.problems == []
    again = replay_of(program)
    again.run()
    assert not same(again.losses[0], losses[0])  # the loss that counts is the one before the scale
    assert float(losses[0]) == pytest.approx(1024 * float(again.losses[0]), rel=1e-6)
    assert all(same(leaf.grad, gradient) for leaf, gradient in again.gradients)


@pytest.mark.parametrize("reentrant", [False, True])
def test_replay__activation_checkpointing_is_run_as_it_was(reentrant):
    torch.manual_seed(5)
    block, head = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()), nn.Linear(4, 1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = block, head

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=reentrant))
    model, x = Net(), torch.randn(6, 4, requires_grad=True)

    def step(call, backward):
        backward(call(model, x).square().mean())
    program, losses, _ = recorded({"": model}, step)
    holds_the_same(program, losses, model)
    assert x.grad is not None


def test_replay__a_batch_that_forward_writes_into_is_copied_from_the_second_update_on():
    class Clamps(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 1)

        def forward(self, x):
            return self.fc(x.clamp_(min=0))
    model = Clamps()
    rec = recorder.Recorder()

    def update():
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(9))
        rec.root_enter(model, "", (x,), {})
        out = model(x)
        rec.root_exit(out)
        loss = out.sum()
        rec.backward_enter(loss)
        loss.backward()
        rec.backward_exit()
        return rec.finish(), loss.detach()
    first, _ = update()
    assert "writes into its own input x" in first.problems[0]
    rec.drop()
    model.zero_grad()
    second, loss = update()
    holds_the_same(second, [loss], model)


def test_replay__a_batch_that_was_changed_since_is_named():
    model, x, y = nn.Linear(3, 2), torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    buffer = numpy.zeros((4, 3), dtype=numpy.float32)

    def step(call, backward):
        backward(F.cross_entropy(call(model, x) + call(model, torch.from_numpy(buffer)), y))
    program, _, _ = recorded({"": model}, step)
    assert program.changed() == []
    buffer[0, 0] = 3.0  # past torch: no version counter moves
    assert program.changed() == ["input"]
    y[0] = 1
    assert program.changed() == ["input", "target"]


def test_replay__hooks_of_the_user_on_leaves_do_not_step_an_optimizer():
    model, x = nn.Linear(3, 1), torch.randn(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepped = []

    def step(call, backward):
        backward(call(model, x).sum())
    program, _, _ = recorded({"": model}, step)
    hook = model.weight.register_post_accumulate_grad_hook(lambda p: stepped.append(1) or optimizer.step())
    before = everything(model)
    replay_of(program).run()
    assert stepped == [] and everything(model) == before
    model(x).sum().backward()
    assert stepped == [1]  # and it is there again
    hook.remove()


def test_replay__a_forward_that_raises_leaves_no_trace():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm, self.fail = nn.Linear(3, 3), nn.BatchNorm1d(3), False

        def forward(self, x):
            self.seen = self.norm(self.fc(x))
            if Fails.fail_now:
                raise ValueError("no")
            return self.seen.sum()
    Fails.fail_now = False
    model, x = Fails(), torch.randn(4, 3)

    def step(call, backward):
        backward(call(model, x))
    program, _, _ = recorded({"": model}, step)
    before = everything(model)
    Fails.fail_now = True
    with pytest.raises(ValueError, match="no"):
        replay_of(program).run()
    assert everything(model) == before and not replay.replaying()
    assert not model._forward_pre_hooks and not model._forward_hooks


def test_replay__the_run_itself_is_the_same_with_and_without_a_recorder():
    def run(record):
        torch.manual_seed(11)
        model = Small()
        random.seed(1)
        numpy.random.seed(1)
        x, y = torch.randn(6, 3, 5, 5), torch.tensor([0, 1, 2, 3, 4, 0])
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        rec = recorder.Recorder()
        for _ in range(4):
            optimizer.zero_grad()
            if record:
                rec.root_enter(model, "", (x,), {})
            out = model(x)
            if record:
                rec.root_exit(out)
            loss = F.cross_entropy(out["logits"], y, label_smoothing=0.1) + out["hidden"][0].var()
            if record:
                rec.backward_enter(loss)
            loss.backward()
            if record:
                rec.backward_exit()
                rec.drop()
            optimizer.step()
        return [bits(t) for t in model.state_dict().values()] + [bits(loss), bits(torch.get_rng_state()), random.getstate(),
                                                                 str(numpy.random.get_state())]
    assert run(True) == run(False)


def test_replay__optimizer_hooks_are_there_again_afterwards():
    calls = []
    handle = register_optimizer_step_pre_hook(lambda *_: calls.append(1))
    try:
        model = nn.Linear(2, 1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with untouched.optimizer_hooks_off():
            optimizer.step()
        assert calls == []
        optimizer.step()
        assert calls == [1]
    finally:
        handle.remove()
