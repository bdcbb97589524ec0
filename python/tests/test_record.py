"""Recording an update costs little and keeps nothing: what is written down, what is left out, and what is admitted not to be
known."""
import gc
import subprocess
import sys
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack  # noqa: E402

from firstbad.pytorch import recorder, trees  # noqa: E402
from firstbad.pytorch.program import RootCall, TailOp  # noqa: E402
from torch_updates import bits, everything, located, recorded, replay_of  # noqa: E402

torch.set_num_threads(1)


def names(program):
    return [step.func._schema.name.split("::")[-1] for step in program.steps if isinstance(step, TailOp)]


def test_record__metrics_fall_away_and_the_loss_stays():
    model, x, y = nn.Linear(4, 3), torch.randn(5, 4), torch.tensor([0, 1, 2, 1, 0])
    total = torch.zeros(())

    def step(call, backward):
        out = call(model, x)
        with torch.no_grad():
            total.add_((out.argmax(-1) == y).float().mean())
        loss = F.cross_entropy(out, y)
        loss.item()
        backward(loss)
    program, _, _ = recorded({"": model}, step)
    assert names(program) == ["_log_softmax", "nll_loss_forward"] and program.problems == []


def test_record__nothing_is_recorded_inside_of_a_model_or_of_backward():
    model, x = nn.Sequential(*[nn.Linear(4, 4) for _ in range(300)]), torch.randn(2, 4)

    def step(call, backward):
        backward(call(model, x).sum())
    program, _, rec = recorded({"": model}, step)
    assert rec.ops == 1 and len(program.steps) == 3  # the call, the sum, the backward


def test_record__memory_dies_when_it_dies_in_the_plain_run():
    model, x = nn.Linear(1000, 1000), torch.randn(100, 1000)
    rec = recorder.Recorder()
    rec.root_enter(model, "", (x,), {})
    out = model(x)
    rec.root_exit(out)
    hidden = out.exp()
    storages = [weakref.ref(t.untyped_storage()) for t in (out, hidden)]
    alive = [StorageWeakRef(t.untyped_storage()) for t in (out, hidden)]
    loss = hidden.mean()
    rec.backward_enter(loss)
    loss.backward()
    rec.backward_exit()
    del out, hidden, loss, storages
    gc.collect()
    assert all(reference.expired() for reference in alive)
    program = rec.finish()
    assert program.problems == []
    replay_of(program).run()


def test_record__an_address_that_is_given_out_again_is_another_tensor():
    model = nn.Linear(64, 64)
    rec = recorder.Recorder()
    for _ in range(20):
        x = torch.randn(8, 64)
        rec.root_enter(model, "", (x,), {})
        out = model(x)
        rec.root_exit(out)
        loss = (out * 2).sum()
        rec.backward_enter(loss)
        loss.backward()
        rec.backward_exit()
        del out, loss, x
    program = rec.finish()
    assert program.micro == 19 and program.problems == []
    losses = replay_of(program)
    losses.run()
    assert len(losses.losses) == 20 and len({float(t) for t in losses.losses}) == 20


def test_record__the_next_batch_is_the_batch_however_it_is_made():
    model = nn.Linear(3, 2)

    def step(call, backward):
        for k in range(2):
            x = torch.stack([torch.full((3,), float(i + k)) for i in range(4)])
            x[0] = 7.0
            backward(F.cross_entropy(call(model, x), torch.tensor([0, 1, 0, 1])))
    program, losses, _ = recorded({"": model}, step)
    batch = [e for e in program.externals if e.batch and e.name == "input"]
    assert [e.micro for e in batch] == [0, 1] and names(program).count("stack") == 0
    again = replay_of(program)
    again.run()
    assert [bits(t) for t in again.losses] == [bits(t) for t in losses]


def test_record__a_batch_of_one_memory_that_is_filled_anew_is_named():
    model, static = nn.Linear(3, 1), torch.ones(4, 3)

    def step(call, backward):
        for k in range(2):
            static.copy_(torch.full((4, 3), float(k)))
            backward(call(model, static).sum())
    program, _, _ = recorded({"": model}, step)
    assert program.changed() == ["input"]  # the first one is gone


def test_record__objects_dataclasses_and_distributions_are_walked():
    import dataclasses

    @dataclasses.dataclass
    class Out:
        policy: object
        value: torch.Tensor

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, state):
            h = self.fc(state["observation"])
            return Out(torch.distributions.Categorical(logits=h), h.mean(-1))
    torch.manual_seed(0)
    model, state = Policy(), {"observation": torch.randn(5, 4), "done": torch.zeros(5, dtype=torch.bool)}

    def step(call, backward):
        out = call(model, state)
        action = out.policy.sample()
        backward(-(out.policy.log_prob(action) * (1.0 - out.value)).mean() - 0.01 * out.policy.entropy().mean())
    program, losses, _ = recorded({"": model}, step)
    assert program.problems == []
    before = everything(model)
    again = replay_of(program)
    again.run()
    assert bits(again.losses[0]) == bits(losses[0]) and everything(model) == before
    assert [e.name for e in program.externals if e.batch][:1] == ["state.observation"]


def test_record__a_mode_of_the_users_own_is_left_alone():
    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))
    model, x = nn.Linear(3, 1), torch.randn(2, 3)
    rec = recorder.Recorder()
    theirs = Theirs()
    with theirs:
        rec.root_enter(model, "", (x,), {})
        out = model(x)
        rec.root_exit(out)
        assert _get_current_dispatch_mode_stack() == [theirs]
        loss = out.sum()
    assert "dispatch mode of its own" in rec.problems[0]
    rec.drop()
    # Theirs begins after ours and ends after backward: they are left in the order in which they lie.
    rec.root_enter(model, "", (x,), {})
    out = model(x)
    rec.root_exit(out)
    with theirs:
        loss = out.sum()
        rec.backward_enter(loss)
        loss.backward()
        assert _get_current_dispatch_mode_stack()[-1] is theirs
        rec.backward_exit()
    rec.drop()
    assert _get_current_dispatch_mode_stack() == []


def test_record__too_many_operators_are_given_up_and_said():
    model, x = nn.Linear(3, 1), torch.randn(2, 3)

    def step(call, backward):
        h = call(model, x)
        for _ in range(600):
            h = h + 1
        backward(h.sum())
    program, _, rec = recorded({"": model}, step)
    assert any("more than 512 operators" in problem for problem in program.problems)
    assert _get_current_dispatch_mode_stack() == []
    rec.drop()
    program, _, _ = recorded({"": model}, lambda call, backward: backward(call(model, x).sum()))
    assert program.problems == []


def test_record__many_operators_without_gradients_are_taken_as_they_are():
    model, teacher, x = nn.Linear(3, 3), nn.Sequential(*[nn.Linear(3, 3) for _ in range(400)]), torch.randn(2, 3)

    def step(call, backward):
        out = call(model, x)
        with torch.no_grad():
            target = teacher(x)
        backward(F.mse_loss(out, target))
    program, losses, _ = recorded({"": model}, step)
    assert program.problems == []
    again = replay_of(program)
    again.run()
    assert bits(again.losses[0]) == bits(losses[0])


def test_record__another_thread_makes_it_a_program_that_cannot_be_replayed():
    model, x = nn.Linear(3, 1), torch.randn(2, 3)
    rec = recorder.Recorder()
    rec.root_enter(model, "", (x,), {})
    rec.root_exit(model(x))

    def other():
        rec.root_enter(model, "", (x,), {})
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "several threads" in rec.finish().problems[0]
    rec.drop()


def test_record__torch_does_not_import_its_compiler_for_us():
    code = ("import sys, torch\nfrom firstbad.pytorch import recorder\nm, x = torch.nn.Linear(2, 1), torch.ones(1, 2)\n"
            "r = recorder.Recorder()\nr.root_enter(m, '', (x,), {})\no = m(x)\nr.root_exit(o)\nl = o.sum()\nr.backward_enter(l)\n"
            "l.backward()\nr.backward_exit()\nassert not r.finish().problems\nr.drop()\n"
            "sys.exit('torch._dynamo' in sys.modules or 'numpy.random' in sys.modules)\n")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_record__compiled_models_are_replayed_eagerly():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), torch.randn(3, 4)
    compiled = torch.compile(model, backend="aot_eager")

    def step(call, backward):
        backward(call(compiled, x).square().mean())
    program, losses, _ = recorded({"": compiled}, step)
    assert program.problems == [] and program.differences == ["compiled code ran eagerly"]
    before = everything(model)
    again = replay_of(program)
    again.run()
    assert torch.allclose(again.losses[0], losses[0]) and everything(model) == before
    with torch.no_grad():
        model[2].weight.fill_(3e38)
    program, losses, _ = recorded({"": compiled}, step)
    found = located(program, losses)
    assert found.found == "operator" and found.module == "2" and "addmm" in found.operator, found


# ---- models of others ------------------------------------------------------------------------------------------------------------


def gpt2(**options):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=64, n_positions=32, bos_token_id=0, eos_token_id=0,
                                     **options)
    return transformers.GPT2LMHeadModel(config)


def llama(dtype=torch.float32):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                      num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32)
    return transformers.LlamaForCausalLM(config).to(dtype)


def tokens():
    return torch.randint(0, 64, (3, 12), generator=torch.Generator().manual_seed(1))


def of_hf(model, labels=None, ids=None):
    ids = tokens() if ids is None else ids

    def step(call, backward):
        backward(call(model, input_ids=ids, attention_mask=torch.ones(3, 12, dtype=torch.long),
                      labels=ids if labels is None else labels).loss)
    return recorded({"": model}, step)


@pytest.mark.parametrize("make", [gpt2, lambda: llama(torch.bfloat16), lambda: gpt2(attn_implementation="eager")])
def test_record__transformers_give_the_same_bits_and_are_left_as_they_were(make):
    model = make()
    model.train()
    program, losses, _ = of_hf(model)
    assert program.problems == []
    before = everything(model)
    again = replay_of(program)
    again.run()
    assert bits(again.losses[0]) == bits(losses[0]) and everything(model) == before
    assert all(bits(leaf.grad) == bits(gradient) for leaf, gradient in again.gradients if gradient is not None)


def test_record__a_caches_keys_and_values_are_put_back():
    transformers = pytest.importorskip("transformers")
    model = llama()
    cache = transformers.DynamicCache()
    ids = tokens()

    def step(call, backward):
        backward(call(model, input_ids=ids, labels=ids, past_key_values=cache, use_cache=True).loss)
    program, losses, _ = recorded({"": model}, step)
    length = cache.get_seq_length()
    if not program.problems:
        again = replay_of(program)
        again.run()
    assert cache.get_seq_length() == length


def test_record__a_layer_of_gpt2_that_overflows_is_named_with_the_line_of_transformers():
    model = gpt2()
    with torch.no_grad():
        model.transformer.h[1].mlp.c_fc.weight.fill_(3e38)
    program, losses, _ = of_hf(model)
    found = located(program, losses)
    assert found.found == "operator" and "addmm" in found.operator, found
    assert found.module == "transformer.h.1.mlp.c_fc" and found.source.startswith("pytorch_utils.py:"), found


def test_record__labels_of_llama_that_are_all_ignored_are_named():
    model = llama()
    program, losses, _ = of_hf(model, labels=torch.full((3, 12), -100))
    found = located(program, losses)
    assert found.found == "operator" and "nll_loss" in found.operator and found.cause == "label_all_ignored", found
    assert found.source.startswith("loss_utils.py:")


def test_record__gradient_checkpointing_of_a_model_names_its_layer():
    model = llama()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight.fill_(3e38)
    program, losses, _ = of_hf(model)
    found = located(program, losses)
    assert found.found == "operator" and found.module.startswith("model.layers.1"), found


def test_record__trees_are_rebuilt_with_other_leaves():
    import collections
    Pair = collections.namedtuple("Pair", "a b")
    a, b = torch.ones(1), torch.zeros(1)
    tree = {"x": [a, (b, 3)], "y": Pair(a, None), "z": collections.OrderedDict(k=b)}
    out = trees.rebuild(tree, lambda leaf: leaf + 1 if isinstance(leaf, torch.Tensor) else leaf)
    assert out["x"][0] == 2 and out["x"][1][1] == 3 and isinstance(out["y"], Pair) and out["z"]["k"] == 1
    assert tree["x"][0] is a and [path for path, _ in trees.walk(tree)] == ["x.0", "x.1.0", "y.a", "z.k"]
    assert any(isinstance(step, RootCall) for step in recorded(
        {"": nn.Linear(1, 1)}, lambda call, backward: None)[0].steps) is False


def test_record__a_hidden_state_that_is_handed_on_has_no_history():
    torch.manual_seed(0)
    rnn, head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)

    def step(call, backward):
        hidden = torch.zeros(1, 2, 4)
        for _ in range(3):
            out, hidden = call(rnn, torch.randn(2, 5, 3), hidden)
            backward(call(head, out).square().mean())
            hidden = hidden.detach()
    program, losses, _ = recorded({"GRU": rnn, "Linear": head}, step)
    assert program.problems == []
    before = everything(rnn, head)
    again = replay_of(program)
    again.run()
    assert [bits(t) for t in again.losses] == [bits(t) for t in losses] and everything(rnn, head) == before


def test_record__no_mode_lies_around_an_optimizer():
    model, x = nn.Linear(3, 1), torch.randn(2, 3)
    rec = recorder.Recorder()
    rec.root_enter(model, "", (x,), {})
    rec.root_exit(model(x))
    rec.backward_enter(model(x).sum())
    rec.backward_exit()
    assert _get_current_dispatch_mode_stack() == []
    rec.drop()
