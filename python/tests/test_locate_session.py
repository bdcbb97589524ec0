"""Incidents: an update that is bad is replayed in the living process, located, and written into its case.

A run of the library is opened, what backward left is looked at as the guard looks at it, and the verdict goes to
firstbad.pytorch.locate.
"""
import ctypes
import json
import math
import os
import types

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from firstbad import _abi as abi  # noqa: E402
from firstbad import _native  # noqa: E402
from firstbad.pytorch import locate, probing, recorder, replay_update  # noqa: E402
from torch_updates import everything  # noqa: E402

torch.set_num_threads(1)
HERE = os.path.basename(__file__)
DTYPES = {torch.float32: abi.F32, torch.float16: abi.F16, torch.bfloat16: abi.BF16}


class Guarded:
    """What the session does around an update, without its hooks."""

    def __init__(self, folder, *roots):
        self.lib, self.run = _native.lib(), ctypes.c_void_p()
        config = abi.RunConfig.new(dir=os.fsencode(folder), run_id="r")
        _native.call(self.lib.fb_run_open_alone, ctypes.byref(self.run), ctypes.byref(config))
        self.rank, self.world, self.ranks, self.scalers, self.first_step, self.resumed = 0, 1, None, [], 0, False
        self.roots = roots if isinstance(roots[0], tuple) else [("", root) for root in roots]
        self.recorder, self.number, self.losses = recorder.Recorder(self), 0, []
        self.gradient_names, self.sites = {}, {}
        for prefix, root in self.roots:
            for name, p in root.named_parameters():
                module, _, last = name.rpartition(".")
                self.gradient_names[id(p)] = f"{prefix}.{module}".strip("."), last
                self.site(abi.ROLE_GRADIENT, *self.gradient_names[id(p)], ".grad")
                self.site(abi.ROLE_PARAMETER, *self.gradient_names[id(p)], "")
        self.site(abi.ROLE_LOSS, "", "loss", "")

    def site(self, role, module, tensor, suffix):
        view = abi.View.new()
        _native.call(self.lib.fb_run_name_view, self.run, role, module.encode(), (tensor + suffix).encode(), ctypes.byref(view))
        self.sites[module, tensor + suffix] = view.site

    def call(self, root, *args, **kwargs):
        name = next(name for name, known in self.roots if known is root)
        self.recorder.root_enter(root, name, args, kwargs)
        out = root(*args, **kwargs)
        self.recorder.root_exit(out)
        return out

    def backward(self, loss, scaled=None):
        self.losses.append(types.SimpleNamespace(tensor=loss.detach()))
        tensor = loss if scaled is None else scaled
        self.recorder.backward_enter(tensor, None, {}, loss)
        tensor.backward()
        self.recorder.backward_exit()

    def check(self, boundary, things):
        views = (abi.View * len(things))()
        held = []
        for view, (place, tensor) in zip(views, things):
            data = tensor.detach().contiguous()
            held.append(data)
            view.data, view.count, view.dtype = data.data_ptr(), data.numel(), DTYPES[data.dtype]
            view.site, view.device = self.sites[place], -1
        _native.call(self.lib.fb_step_check, self.run, boundary, views, len(things))

    def incident(self, boundary=None, things=None, held=None, samples=None):
        """Gate the update that was recorded. Returns (verdict, Located)."""
        step, verdict = abi.Step.new(step=self.number, micro_steps=4), abi.Verdict.new()
        _native.call(self.lib.fb_step_begin, self.run, ctypes.byref(step))
        for micro in range(1, self.recorder.micro + 1):
            _native.call(self.lib.fb_step_micro, self.run, micro)
        if things is not None:
            self.check(boundary, things)
        else:
            self.check(abi.LOSS, [(("", "loss"), loss.tensor) for loss in self.losses[-1:]])
            self.check(abi.LOCAL_GRAD, [((module, f"{name}.grad"), p.grad) for _, root in self.roots for p in root.parameters()
                                        for module, name in [self.gradient_names[id(p)]] if p.grad is not None])
        _native.call(self.lib.fb_step_vote_alone, self.run, ctypes.byref(verdict))
        update = types.SimpleNamespace(number=self.number, losses=self.losses, held=held, samples=samples)
        try:
            return verdict, locate.incident(self, update, verdict)
        finally:
            self.recorder.drop()
            self.losses = []

    def case(self, verdict):
        return os.path.join(_native.text(self.lib.fb_run_folder(self.run)), "cases", verdict.case_id.decode())


def read(guarded, verdict):
    with open(os.path.join(guarded.case(verdict), "locate.json"), encoding="utf-8") as file:
        return json.load(file)


def line_of(marker):
    with open(__file__, encoding="utf-8") as file:
        return next(i for i, text in enumerate(file, 1) if f"# {marker}" in text and "line_of" not in text)


def at(located, marker):
    return located.source and located.source.endswith(f"{HERE}:{line_of(marker)}")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in [
        name for name in os.environ if name.startswith("FIRSTBAD_") and name not in ("FIRSTBAD_BUILD", "FIRSTBAD_LIBRARY")
    ]:
        monkeypatch.delenv(name)
    return tmp_path


def test_incident__a_loss_outside_of_the_model_is_named_with_its_line(folder):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(5, 4)
    guarded = Guarded(folder, model)
    out = guarded.call(model, x)
    loss = F.cross_entropy(out, torch.full((5,), -100))  # all ignored
    guarded.backward(loss)
    before = everything(model)
    verdict, located = guarded.incident(samples=[10, 11, 12, 13, 14])
    assert everything(model) == before
    assert located.found == "operator" and "nll_loss" in located.operator and at(located, "all ignored"), located
    assert located.cause == "label_all_ignored" and located.faithful
    assert (
        located.text.startswith("firstbad: step 0 was not applied: a non-finite loss") and verdict.case_id.decode() in located.text
    )
    assert all(len(line) <= 100 or "/" in line for line in located.text.splitlines())
    told = read(guarded, verdict)
    assert told["found"] == "operator" and told["case"] == verdict.case_id.decode() and told["replay"]["faithful"] is True
    assert os.path.exists(os.path.join(guarded.case(verdict), "l3", "witness.safetensors"))


def test_incident__a_logarithm_of_zero_between_two_models(folder):
    torch.manual_seed(1)
    g, d = nn.Linear(3, 4), nn.Linear(4, 1)
    guarded = Guarded(folder, ("Generator", g), ("Discriminator", d))
    fake = guarded.call(g, torch.randn(2, 3)) * torch.tensor([[0.0], [1.0]])
    mixed = fake.square().sum(1, keepdim=True).log()  # log of zero
    loss = guarded.call(d, mixed.expand(2, 4)).mean()
    guarded.backward(loss)
    _, located = guarded.incident()
    assert located.found == "operator" and "log" in located.operator and at(located, "log of zero"), (located, located.note)
    assert located.module == "" and located.boundary == abi.FORWARD and located.cause == "domain_math"


def test_incident__the_root_of_zero_is_told_with_the_line_of_its_forward(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            h = self.fc(x)
            return (h - h.detach()).pow(2).sum(1).sqrt()  # root in a module
    torch.manual_seed(2)
    model = Net()
    guarded = Guarded(folder, model)
    guarded.backward(guarded.call(model, torch.randn(2, 3)).mean())
    verdict, located = guarded.incident()
    assert verdict.first_boundary == abi.LOCAL_GRAD
    assert located.found == "operator" and at(located, "root in a module"), located
    assert located.cause == "domain_math" and located.boundary == abi.LOCAL_GRAD
    assert located.node.startswith("SqrtBackward")


def test_incident__the_bad_micro_step_and_its_sample_are_told(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn, self.fc = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

        def forward(self, x, pad):
            h, _ = self.attn(x, x, x, key_padding_mask=pad)  # attention
            return self.fc(h.mean(1))
    torch.manual_seed(3)
    model = Net()
    guarded = Guarded(folder, model)
    for micro in range(2):
        pad = torch.zeros(4, 5, dtype=torch.bool)
        if micro == 1:
            pad[2] = True
        guarded.backward(F.cross_entropy(guarded.call(model, torch.randn(4, 5, 8), pad), torch.tensor([0, 1, 2, 0])) / 2)
    verdict, located = guarded.incident(samples={1: [70, 71, 72, 73]})
    assert located.found == "operator" and "softmax" in located.operator and located.module == "attn", located
    assert located.micro == 1 and located.cause == "mask_full_row" and located.rows == [2] and at(located, "attention")
    assert read(guarded, verdict)["minimise"]["sample_ids"] == [72]


def test_incident__a_bad_number_of_the_batch_blames_no_operator(folder):
    model = nn.Linear(4, 2)
    guarded = Guarded(folder, model)
    x = torch.ones(3, 4)
    x[1, 2] = math.nan
    guarded.backward(guarded.call(model, x).mean())
    _, located = guarded.incident()
    assert (
        located.found == "entry" and located.module == "batch" and located.tensor == "input" and located.cause == "input_nonfinite"
    )
    assert located.rows == [1]


def test_incident__an_fp16_overflow_does_not_come_back_in_fp32(folder):
    model = nn.Linear(64, 64).to(torch.float16)
    nn.init.constant_(model.weight, 20.0)
    guarded = Guarded(folder, model)
    x = torch.ones(4, 64, dtype=torch.float16)
    x[2] = 100.0
    guarded.backward(guarded.call(model, x).float().mean())
    before = everything(model)
    _, located = guarded.incident()
    assert located.found == "operator" and "addmm" in located.operator and located.cause == "fp16_forward_overflow", located
    assert located.persists == 0 and located.rows == [2] and everything(model) == before


def test_incident__several_losses_of_one_micro_step_are_told_apart(folder):
    torch.manual_seed(4)
    model = nn.Linear(3, 2)
    guarded = Guarded(folder, model)
    out = guarded.call(model, torch.randn(4, 3))
    bad = (out - out).mean() / (out - out).sum()  # zero by zero
    guarded.recorder.backward_enter(bad, None, {"retain_graph": True}, bad)
    bad.backward(retain_graph=True)
    guarded.recorder.backward_exit()
    guarded.losses.append(types.SimpleNamespace(tensor=bad.detach()))
    good = out.square().mean()
    guarded.backward(good)
    _, located = guarded.incident(abi.LOSS, [(("", "loss"), bad)])
    assert located.found == "operator" and "div" in located.operator and at(located, "zero by zero"), (located, located.note)


def test_incident__memory_that_nobody_wrote_is_said_to_be_it(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            rows = torch.empty(4, 3)  # fresh
            if garbage:
                rows.fill_(math.nan)
            rows[:2] = self.fc(x)
            return rows.sum()
    garbage = True
    model = Net()
    guarded = Guarded(folder, model)
    guarded.backward(guarded.call(model, torch.ones(2, 3)))
    garbage = False  # noqa: F841  what the run found there is not what a replay finds
    verdict, located = guarded.incident()
    assert located.found == "operator" and "empty" in located.operator and located.cause == "uninitialised_memory", (
        located, located.note)
    assert at(located, "fresh") and not located.faithful
    assert any("nobody had written" in sentence for sentence in read(guarded, verdict)["replay"]["differences"])


def test_incident__what_does_not_come_back_is_not_called_transient_when_the_replay_is_not_the_run(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 1)

        def forward(self, x):
            return self.fc(x).mean() * scale[0]
    scale = [math.inf]  # read from outside, and changed since
    model = Net()
    guarded = Guarded(folder, model)
    guarded.backward(guarded.call(model, torch.ones(2, 3)))
    scale[0] = 1.0
    verdict, located = guarded.incident()
    assert located.found == "not_reproduced" and located.reproduced == 0 and not located.faithful
    assert any("in the run" in sentence for sentence in read(guarded, verdict)["replay"]["differences"])


def test_incident__a_forward_that_raises_in_the_replay_names_nobody(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 1)

        def forward(self, x):
            if refuse:
                raise ValueError("only once")
            return self.fc(x).mean() / 0.0
    refuse = False
    model = Net()
    guarded = Guarded(folder, model)
    guarded.backward(guarded.call(model, torch.ones(2, 3)))
    refuse = True  # noqa: F841
    before = everything(model)
    _, located = guarded.incident()
    assert located.found == "undecided" and "only once" in located.note and located.module == "", located
    assert everything(model) == before


def test_incident__a_loss_that_could_not_be_followed_is_undecided_with_the_reason(folder):
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * math.inf

        @staticmethod
        def backward(ctx, g):
            return g
    model = nn.Linear(3, 1)
    guarded = Guarded(folder, model)
    guarded.backward(Own.apply(guarded.call(model, torch.ones(2, 3))).sum())
    _, located = guarded.incident()
    assert located.found == "undecided" and "custom autograd function" in located.note


def test_incident__an_update_that_was_taken_back_names_the_optimizer_and_the_line_of_step(folder):
    model = nn.Linear(2, 1, bias=False)
    guarded = Guarded(folder, model)
    optimizer = torch.optim.Adam(model.parameters(), eps=0.0)
    guarded.backward(guarded.call(model, torch.tensor([[1.0, 0.0]])).sum())
    held = [replay_update.Held(optimizer, {id(model.weight): ("", "weight")}, f"{HERE}:1")]
    proposed = torch.full((1, 2), math.nan)
    step, verdict = abi.Step.new(step=0, micro_steps=1), abi.Verdict.new()
    lib = guarded.lib
    _native.call(lib.fb_step_begin, guarded.run, ctypes.byref(step))
    guarded.check(abi.LOCAL_GRAD, [(("", "weight.grad"), model.weight.grad)])
    _native.call(lib.fb_step_vote_alone, guarded.run, ctypes.byref(verdict))
    assert verdict.action == abi.PROCEED
    guarded.check(abi.UPDATE, [(("", "weight"), proposed)])
    verdict = abi.Verdict.new()
    _native.call(lib.fb_step_vote_alone, guarded.run, ctypes.byref(verdict))
    assert verdict.fault == 1
    before = everything(model)
    located = locate.incident(guarded, types.SimpleNamespace(number=0, losses=[], held=held, samples=None), verdict)
    assert located.found == "operator" and "addcdiv" in located.operator and located.source == f"{HERE}:1", located
    assert located.cause == "epsilon_underflow" and everything(model) == before and not optimizer.state


def test_incident__is_located_once_a_case_and_not_when_switched_off(folder, monkeypatch):
    model = nn.Linear(2, 1)
    guarded = Guarded(folder, model)
    guarded.backward(guarded.call(model, torch.ones(1, 2)).sum() / 0.0)
    monkeypatch.setenv("FIRSTBAD_LOCATE", "none")
    verdict, located = guarded.incident()
    assert located is None and not os.path.exists(os.path.join(guarded.case(verdict), "locate.json"))


def test_probing__tells_an_overflow_of_the_scale_from_a_fault(folder):
    """2 ** 40 overflows FP16 by itself; a root at 0 has an infinite slope at every scale."""
    for fault, expected in ((False, 0), (True, 1)):
        model = nn.Linear(4, 2).half()
        guarded = Guarded(folder / str(fault), model)
        guarded.scalers = [torch.amp.GradScaler("cpu", init_scale=2.0 ** 40)]
        guarded.gradient_names = {}
        x = torch.zeros(3, 4, dtype=torch.float16) if fault else torch.ones(3, 4, dtype=torch.float16)
        model.bias.data.zero_()
        out = guarded.call(model, x).float()
        loss = out.square().sum().sqrt() if fault else out.sum()
        guarded.backward(loss, guarded.scalers[0].scale(loss))
        update = types.SimpleNamespace(number=0, gated={id(p): p for p in model.parameters()})
        before = everything(model)
        assert probing._ask(guarded, update) == expected
        assert everything(model) == before


def test_locating__stops_making_the_batch_small_when_its_time_is_over(folder, monkeypatch):
    monkeypatch.setenv("FIRSTBAD_LOCATE_SECONDS", "0.000001")
    model = nn.Linear(4, 2)
    guarded = Guarded(folder, model)
    x = torch.ones(8, 4)
    x[3] = math.nan
    guarded.backward(guarded.call(model, x).mean())
    _, located = guarded.incident()
    assert located.found == "entry" and located.rows in ([], list(range(8)))


def test_incident__a_list_with_one_item_a_row_follows_its_rows(folder):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x, lengths):
            return self.fc(torch.stack([row[:n].mean(0) for row, n in zip(x, lengths)]))
    model = Net()
    guarded = Guarded(folder, model)
    guarded.backward(guarded.call(model, torch.randn(5, 3, 4), [3, 2, 0, 1, 3]).mean())
    _, located = guarded.incident(samples=[50, 51, 52, 53, 54])
    assert located.found == "operator" and "mean" in located.operator and located.rows == [2], located


def test_incident__no_sample_is_blamed_where_any_of_them_shows_it(folder):
    model = nn.Linear(4, 2)
    guarded = Guarded(folder, model)
    out = guarded.call(model, torch.randn(5, 4))
    guarded.backward((out - out).sum().sqrt())
    verdict, located = guarded.incident(samples=[50, 51, 52, 53, 54])
    assert located.found == "operator" and located.rows == [] and read(guarded, verdict)["minimise"] is None


def test_incident__a_master_copy_stands_for_the_parameter_that_its_gradient_was_made_of(folder, monkeypatch):
    from firstbad.pytorch import registry
    model = nn.Linear(4, 2).half()
    master = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizer = torch.optim.SGD(master, lr=0.1)
    monkeypatch.setattr(registry.optimizers, "alive", lambda: [optimizer])
    guarded = Guarded(folder, model)
    x = torch.ones(3, 4, dtype=torch.float16)
    guarded.backward((guarded.call(model, x).float() * 1e6).sum())
    for i, (p, m) in enumerate(zip(model.parameters(), master)):
        m.grad, p.grad = p.grad.float(), None
        guarded.gradient_names[id(m)] = "optimizer", f"[{i}]"
        guarded.site(abi.ROLE_GRADIENT, "optimizer", f"[{i}]", ".grad")
    _, located = guarded.incident(abi.LOCAL_GRAD, [(("optimizer", "[0].grad"), master[0].grad)])
    assert located.found == "operator" and located.boundary == abi.LOCAL_GRAD and located.cause == "fp16_backward_overflow", (
        located, located.note)
