"""The tape of a replay: what is named in models that go wrong, against answers derived by hand and random programs with known
truth.

The models are those of locate_faults.py, locate_healthy.py and locate_random.py, which the C library is held to by another client
of its own; here they run as a user's update, recorded and replayed by firstbad/pytorch.
"""
import math
import os

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import locate_faults  # noqa: E402
import locate_healthy  # noqa: E402
import locate_random  # noqa: E402
from firstbad import _abi as abi  # noqa: E402
from firstbad.pytorch import locator, places, replay_update, tape, where  # noqa: E402
from locate_structs import RULES  # noqa: E402
from torch_updates import located, recorded, replay_of  # noqa: E402

torch.set_num_threads(1)
INF = float("inf")
ROOT_ONLY = {name: fault for name, fault in locate_faults.FAULTS.items() if not fault.raises and name not in (
    "memory_that_nobody_wrote",  # below
    # Their faults lie in an optimizer that is a function of the test's own.
    "adam_by_hand_in_fp16", "adam_without_epsilon", "learning_rate_that_is_infinite", "clipping_by_a_number_of_the_host")}


def run_of(program):
    """The update of a test's program, as a user runs it."""
    model = program.model
    for name, t in program.state.items():
        with torch.no_grad():
            model.state_dict()[name].copy_(t)
    for module in model.modules():
        module._forward_pre_hooks.clear()  # the other client's own
        module._forward_hooks.clear()
        module._forward_hooks_always_called.clear()
    torch.manual_seed(11)
    batch = program.some_batch(None)

    def step(call, backward):
        loss = call(model, **batch)
        if loss.requires_grad:
            backward(loss)
        else:
            backward(loss * torch.ones((), requires_grad=True))
    return recorded({"": model}, step, session=type("S", (), {"scalers": ()})())


def short(name):
    return name.split(".")[1].strip("_") if "." in name else name.strip("_")


@pytest.mark.parametrize("name", sorted(ROOT_ONLY))
def test_tape__names_what_was_derived_by_hand(name):
    expected = ROOT_ONLY[name]
    program, losses, _ = run_of(expected.make())
    assert program.problems == []
    found = located(program, losses)
    assert found is not None, "nothing was bad"
    if name == "loss_scale_that_is_infinite":  # a constant of the program is not known to be a scale
        assert found.found == "entry"
        return
    assert found.found == expected.found, (found, found.note, found.sentences)
    if expected.found == "operator":
        assert short(found.operator) == expected.op.strip("_"), found
        assert found.module == expected.module, found
    assert RULES[found.rule] == expected.rule, (found, found.sentence)
    assert found.cause == expected.cause, (found, found.sentence)
    if expected.found in ("operator", "entry"):
        assert found.reproduced == found.tried == 3 and found.faithful


@pytest.mark.parametrize("name", sorted(locate_healthy.HEALTHY))
def test_tape__accuses_nobody_in_a_healthy_model(name):
    program = locate_healthy.HEALTHY[name]()
    recorded_program, losses, _ = run_of(program)
    assert located(recorded_program, losses) is None
    # Asked about a gradient all the same, the replays do not show it.
    again = replay_of(recorded_program)
    if not again.names.gradients or recorded_program.problems:
        return
    leaf, module, last = again.names.gradients[0]
    if leaf.grad is None:
        return
    one = locator.Locator(again, recorded_program, locator.Group(), 0)
    assert one.run(locator.Finding(0, abi.LOCAL_GRAD, 0, 1, module, f"{last}.grad")).found == "not_reproduced"


def test_tape__names_the_operators_of_random_programs(monkeypatch):
    """Element by element the truth is carried along; what is named must be it."""
    class Counted(tape.Tape):
        def __init__(self, *given):
            super().__init__(*given)
            self.heard = -1

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.heard += 1
            self.where.number = self.heard
            return super().__torch_dispatch__(func, types, args, kwargs)
    now = where.Where.now
    monkeypatch.setattr("firstbad.pytorch.replay.Tape", Counted)
    monkeypatch.setattr(where.Where, "now", lambda self: now(self)._replace(source=f"#{getattr(self, 'number', -1)}"))
    seed, checked = int(os.environ.get("FB_SEED", "1")), 0
    for k in range(seed * 1000, seed * 1000 + 600):
        drawn = locate_random.draw(k)
        if drawn is None:
            continue
        program, blame = drawn
        recorded_program, losses, _ = run_of(program)
        found = located(recorded_program, losses, parts=abi.LOCATE_SEARCH | abi.LOCATE_REPLAY)
        assert found is not None
        if found.found == "operator":
            assert found.source in blame, (k, found, blame)
            assert len(blame) == 1 or found.later
        else:
            assert found.found in ("set", "interval"), (k, found)
        checked += 1
    assert checked > 100


def test_tape__memory_that_nobody_wrote_is_named_where_it_decides():
    program, losses, _ = run_of(locate_faults.FAULTS["memory_that_nobody_wrote"].make())
    again = replay_of(program)
    one = locator.Locator(again, program, locator.Group(), 0, fill=math.nan)
    found = one.run(locator.Finding(0, abi.LOSS, 0, 1, "", "loss"))
    assert (found.found, short(found.operator), found.cause) == ("operator", "empty", "uninitialised_memory")
    assert one.unwritten > 0


def test_tape__fresh_memory_that_is_written_before_it_is_read_counts_for_nothing():
    def run(m, x):
        y = torch.empty(4)
        y[:2], y[2:] = x[:2] * m.w, x[2:] * m.w
        return y.sum()
    program, losses, _ = run_of(locate_faults.program(run, {"x": torch.ones(4)}, w=lambda: locate_faults.par(1.0)))
    again = replay_of(program)
    one = locator.Locator(again, program, locator.Group(), 0, fill=math.nan)
    assert one.run(locator.Finding(0, abi.LOSS, 0, 1, "", "loss")).found == "not_reproduced" and one.unwritten == 0


@pytest.mark.parametrize("kind, options, op, cause", [
    (torch.optim.Adam, {"eps": 0.0}, "addcdiv", "epsilon_underflow"),
    (torch.optim.AdamW, {"eps": 0.0, "fused": True}, "addcdiv", "epsilon_underflow"),
    (torch.optim.SGD, {"lr": INF}, "add", "lr_instability"),
    (torch.optim.SGD, {"lr": 0.1, "momentum": INF}, "mul", None),
])
def test_tape__an_optimizer_that_makes_it_is_named_with_the_line_of_its_step(kind, options, op, cause):
    leaf = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = kind([leaf], **options)
    leaf.grad = torch.tensor([1.0, 0.0])
    if options.get("momentum"):
        optimizer.step()
        leaf.data = torch.tensor([1.0, 2.0])
    before = leaf.detach().clone(), {k: v for k, v in optimizer.state[leaf].items()}
    held = replay_update.Held(optimizer, {id(leaf): ("fc", "weight")}, "train.py:88")
    again = replay_update.UpdateReplay(held)
    found = locator.Locator(again, None, locator.Group(), 0).run(locator.Finding(0, abi.UPDATE, 0, 1, "fc", "weight"), step=3)
    assert found.found == "operator" and short(found.operator) == op and found.source == "train.py:88", (found, found.sentence)
    assert found.module == "optimizer" and (cause is None or found.cause == cause), found
    assert torch.equal(leaf, before[0]) and all(optimizer.state[leaf][k] is v for k, v in before[1].items())


def test_tape__a_scheduler_that_wrapped_step_does_not_step_the_original():
    leaf = nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.SGD([leaf], lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    leaf.grad = torch.tensor([1.0])
    optimizer.step()
    scheduler.step()
    value = leaf.detach().clone()
    replay_update.UpdateReplay(replay_update.Held(optimizer, {id(leaf): ("", "w")})).run()
    assert torch.equal(leaf, value)


def test_tape__sparse_gradients_are_followed_by_their_values():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.fc = nn.Embedding(6, 3, sparse=True), nn.Linear(3, 1)

        def forward(self, ids):
            return self.fc(self.wte(ids)).sqrt().sum()
    torch.manual_seed(0)
    model, ids = Net(), torch.tensor([1, 2, 2])
    with torch.no_grad():
        model.fc.weight.zero_()
        model.fc.bias.zero_()

    def step(call, backward):
        backward(call(model, ids))
    program, losses, _ = recorded({"": model}, step)
    found = located(program, losses, locator.Finding(0, abi.LOCAL_GRAD, 0, 1, "wte", "weight.grad"))
    assert found.found == "operator" and short(found.operator) == "div", (found, found.note, found.sentences)
    assert "test_tape.py:" in found.source


# ---- places ----------------------------------------------------------------------------------------------------------------------


def test_places__intervals_and_elements_come_to_the_same():
    """The quick way for stretches of memory, and the slow one for all others, on random writes and reads."""
    import random
    rng = random.Random(int(os.environ.get("FB_SEED", "1")))
    for _ in range(300):
        base = torch.zeros(24)
        memory = places.Memory(places.StorageWeakRef(base.untyped_storage()))
        for number in range(rng.randrange(1, 6)):
            low = rng.randrange(0, 20)
            view = base[low:low + rng.randrange(1, 24 - low)]
            memory.parts.append(places.Part(number, places.Geometry.of(view), 0))
        low = rng.randrange(0, 20)
        wanted = places.Geometry.of(base[low:low + rng.randrange(1, 24 - low)])
        intervals = [part.geometry.interval() for part in memory.parts]
        quick = places._by_intervals(memory.parts, intervals, wanted.interval())
        slow = places._by_elements(memory.parts, wanted)
        flat = [None if found is None else [(part.number, None if left is None else left.tolist()) for part, left in found]
                for found in (quick, slow)]
        assert flat[0] == flat[1]


def test_places__memory_that_died_is_forgotten():
    known = places.Places()
    for _ in range(2000):
        storage = torch.zeros(8).untyped_storage()
        known.of(storage).wrote(places.Part(0, places.Geometry(torch.float32, 0, (8,), (1,)), 0))
    assert len(known.memory) <= 600


def test_source__is_the_users_line_and_not_torchs():
    lines = []

    class Net(nn.Module):
        def forward(self, x):
            from firstbad.pytorch import source
            lines.append(source.caller())
            return x
    nn.Sequential(Net())(torch.zeros(1))
    assert lines[0].rpartition(":")[0].endswith("test_tape.py")


def test_tape__a_root_that_is_all_torchs_is_told_with_the_line_that_called_it():
    model = nn.Sequential(nn.Linear(2, 2), nn.LogSoftmax(-1))
    with torch.no_grad():
        model[0].weight.fill_(3e38)
    lines = []

    def step(call, backward):
        import sys
        lines.append(sys._getframe().f_lineno + 1)
        backward(call(model, torch.ones(1, 2)).sum())
    program, losses, _ = recorded({"": model}, step)
    found = located(program, losses)  # a replay is called from here, and this line did nothing
    assert found.module == "0" and "torch_updates.py" in found.source or found.source.endswith(f"test_tape.py:{lines[0]}"), found


def test_tape__an_optimizer_of_the_users_own_is_told_with_its_own_line():
    class Own(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"eps": 0.0})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad / (p.grad * p.grad + group["eps"]).sqrt())  # own line
    leaf = nn.Parameter(torch.tensor([1.0, 2.0]))
    leaf.grad = torch.tensor([1.0, 0.0])
    held = replay_update.Held(Own([leaf]), {id(leaf): ("", "w")}, "train.py:1")
    found = locator.Locator(replay_update.UpdateReplay(held), None, locator.Group(), 0).run(
        locator.Finding(0, abi.UPDATE, 0, 1, "", "w"))
    with open(__file__, encoding="utf-8") as file:
        line = next(i for i, text in enumerate(file, 1) if "# own line" in text)
    assert found.found == "operator" and "div" in found.operator and found.source.endswith(f"test_tape.py:{line}"), found


def test_tape__the_largest_of_a_masked_row_is_masked_and_what_comes_of_it_is_not():
    def run(m, x):
        s = (x * m.w).masked_fill(torch.tensor([[True, True], [False, True]]), -INF)
        return (s - s.amax(-1, keepdim=True)).exp().sum()  # Inf - Inf in the first row
    program, losses, _ = run_of(locate_faults.program(run, {"x": torch.ones(2, 2)}, w=lambda: locate_faults.par(1.0)))
    found = located(program, losses)
    assert found.found == "operator" and "sub" in found.operator and found.cause == "domain_math", found
