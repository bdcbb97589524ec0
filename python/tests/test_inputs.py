"""The input gate against real models: what is told of a batch, and what is not."""
from __future__ import annotations

import os
import re
import sys
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from firstbad import _abi as abi  # noqa: E402
from firstbad.pytorch import anomalies, batch, labels, randomness  # noqa: E402
from torch_session import FakeSession, fresh  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def patched() -> Iterator[Any]:
    patches = fresh()
    labels.install(patches)
    yield patches
    patches.uninstall()
    labels.watcher = None


class Tiny(torch.nn.Module):
    """A language model that anybody might write."""

    def __init__(self, vocabulary: int = 50, block: int = 16) -> None:
        super().__init__()
        self.wte = torch.nn.Embedding(vocabulary, 8)
        self.wpe = torch.nn.Embedding(block, 8)
        self.head = torch.nn.Linear(8, vocabulary)

    def forward(self, idx: Any, targets: Any = None) -> Any:
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        logits = self.head(x)
        return logits if targets is None else F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def one_update(session: FakeSession, model: Any, *args: Any, loss: Any = None, micro: int = 0, **kwargs: Any) -> Any:
    """Forward and loss as a session carries them: returns what evidence() says, which is asked only when the loss is bad."""
    if session.update is None:
        session.begin()
    session.update.micro = micro
    session.inputs.enter(model, "", args, kwargs)
    out = model(*args, **kwargs)
    session.inputs.left(out)
    value = float(out.detach() if loss is None else loss(out).detach())
    session.loss(value)
    return session.inputs.evidence(session.update) if value != value or abs(value) == float("inf") else []


def ids(rows: int = 4, columns: int = 6, vocabulary: int = 50) -> Any:
    return torch.randint(0, vocabulary, (rows, columns), generator=torch.Generator().manual_seed(1))


# ---- ids -------------------------------------------------------------------------------------------------------------------------

def test_inputs__an_id_that_the_embedding_does_not_have_is_told_before_torch_raises(tmp_path: Any) -> None:
    model = Tiny()
    session = FakeSession(tmp_path, model)
    bad = ids()
    bad[2, 3] = 50
    session.begin()
    session.inputs.enter(model, "", (bad,), {})
    with pytest.raises(IndexError):
        model(bad)
    assert [e.text for e in session.faults] == [
        "idx[2, 3] is 50, and wte has 50 rows (0 .. 49); it is one too large, as if ids counted from 1, or the table had not grown "
        "with the vocabulary"]
    assert session.end(healthy=False).action == abi.SKIP
    session.close()
    found = session.findings()[0]
    assert (found["boundary"], found["tensor"], found["field"], found["kind"]) == ("input", "idx", "tokens", "out_of_range")
    assert (found["index_in_shape"], found["value"], found["allowed_high"]) == ([2, 3], 50, 49)


@pytest.mark.parametrize("value, words", [
    (40000 - 65536, "it equals 40000 - 65536, as if ids were stored in 16 bits with a sign"),
    (451 - 65536, "it equals 451 - 65536"), (65536 - 100, "it equals 65536 - 100, as if -100 was stored in 16 bits without a sign"),
    (-100, "-100 marks labels that are left out"), (50000, "one too large"), (-3, ""), (70000, "")])
def test_inputs__an_id_out_of_range_is_explained_only_where_the_number_says_why(value: int, words: str) -> None:
    tokens = ids(2, 3, 1000)
    tokens[1, 1] = value
    evidence = anomalies.ids_outside(tokens, 50000, None, "wte", 0, None)
    assert evidence is not None and evidence.value == value
    assert (words in evidence.text) if words else ";" not in evidence.text


def test_inputs__a_position_beyond_the_table_names_the_table(tmp_path: Any) -> None:
    model = Tiny(block=4)
    session = FakeSession(tmp_path, model)
    session.begin()
    session.inputs.enter(model, "", (ids(),), {})
    with pytest.raises(IndexError):
        model(ids())
    evidence = session.faults[0]
    assert "wpe has 4 rows" in evidence.text and evidence.what == abi.FIELD_POSITIONS and evidence.value == 4
    session.close()


def test_inputs__a_label_that_is_no_class_is_told_with_row_and_column(tmp_path: Any) -> None:
    model = Tiny()
    session = FakeSession(tmp_path, model)
    targets = ids()
    targets[1, 5] = 77
    session.begin()
    session.inputs.enter(model, "", (ids(), targets), {})
    with pytest.raises(IndexError):
        model(ids(), targets)
    assert session.faults[0].text == ("targets[1, 5] is 77, and cross_entropy was given 50 classes (0 .. 49) and ignore_index "
                                      "-100")
    session.close()


def test_inputs__what_the_user_catches_of_torch_is_what_torch_raised(tmp_path: Any) -> None:
    with pytest.raises(IndexError) as plain:
        labels_original = F.embedding._firstbad_original
        labels_original(torch.tensor([9]), torch.zeros(3, 2))
    model = Tiny()
    session = FakeSession(tmp_path, model)
    session.begin()
    session.inputs.enter(model, "", (ids(),), {})
    with pytest.raises(IndexError) as guarded:
        F.embedding(torch.tensor([9]), torch.zeros(3, 2))
    assert str(guarded.value) == str(plain.value)
    session.close()


def test_inputs__the_ledger_has_the_tokens_of_a_healthy_step(tmp_path: Any) -> None:
    model = Tiny()
    session = FakeSession(tmp_path, model)
    tokens = ids()
    for _ in range(2):
        one_update(session, model, tokens, tokens)
        assert session.end().action == abi.PROCEED
    session.close()
    steps = [row for row in session.records() if row["table"] == "steps"]
    assert [step["tokens"] for step in steps] == [24, 24] and steps[0]["token_max"] == int(tokens.max())
    assert not session.faults


def test_inputs__tokens_that_nobody_looks_up_are_named_in_coverage(tmp_path: Any) -> None:
    class OneHot(torch.nn.Module):
        def forward(self, input_ids: Any) -> Any:
            return F.one_hot(input_ids, 50).float().mean()

    model = OneHot()
    session = FakeSession(tmp_path, model)
    one_update(session, model, ids())
    session.end()
    assert any(line.startswith("token ids (input_ids)") for line in session.coverage.lines)
    session.close()


# ---- labels ----------------------------------------------------------------------------------------------------------------------

def test_inputs__a_batch_without_a_label_is_evidence_beside_its_nan(tmp_path: Any) -> None:
    model = Tiny()
    session = FakeSession(tmp_path, model)
    found = one_update(session, model, ids(), torch.full((4, 6), -100))
    assert [e.text for e in found] == ["all 24 labels of cross_entropy are left out of it (ignore index -100): their mean is 0/0"]
    assert found[0].reported and session.end(False).first_boundary == abi.INPUT
    session.close()
    assert session.findings()[0]["kind"] == "all_ignored" and session.findings()[0]["field"] == "labels"


def test_inputs__a_batch_without_a_label_alone_stops_nothing(tmp_path: Any) -> None:
    model = Tiny()
    session = FakeSession(tmp_path, model)
    session.begin()
    targets = torch.full((4, 6), -100)
    session.inputs.enter(model, "", (ids(), targets), {})
    F.cross_entropy(torch.zeros(24, 50), targets.view(-1), reduction="sum")
    session.loss(0.0)
    assert session.end().action == abi.PROCEED
    session.close()
    assert session.findings() == []


def test_inputs__labels_that_are_all_ignored_behind_the_shift_are_seen(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    session = FakeSession(tmp_path, model)
    targets = torch.full((2, 6), -100)
    targets[:, 0] = 3  # the model predicts from the second on
    found = one_update(session, model, input_ids=ids(2), labels=targets, loss=lambda out: out.loss)
    assert len(found) == 1 and found[0].kind == abi.KIND_ALL_IGNORED and found[0].reported, found
    session.end(False)
    session.close()


def test_inputs__labels_of_a_compiled_loss_are_judged_as_a_field(tmp_path: Any, patched: Any) -> None:
    class SomeCausalLM(torch.nn.Module):
        def forward(self, input_ids: Any, labels: Any) -> Any:
            return torch.tensor(float("nan"))

    session = FakeSession(tmp_path)
    targets = torch.full((2, 6), -100)
    targets[:, 0] = 3
    found = one_update(session, SomeCausalLM(), input_ids=ids(2), labels=targets)
    assert len(found) == 1 and "behind the first column" in found[0].text
    session.end(False)
    session.close()


def test_inputs__a_class_of_weight_zero_counts_as_no_label(tmp_path: Any) -> None:
    found = labels.judge(torch.tensor([1, 1, -100]), 3, -100, torch.tensor([1.0, 0.0, 1.0]))
    assert found.all_ignored
    assert not labels.judge(torch.tensor([1, 2, -100]), 3, -100, torch.tensor([1.0, 0.0, 1.0])).all_ignored
    assert labels.judge(torch.tensor([1, 9]), 3).outside == 1


def test_inputs__ctc_with_fewer_frames_than_labels_names_the_row(tmp_path: Any) -> None:
    class Speech(torch.nn.Module):
        def forward(self, x: Any, targets: Any, lengths: Any) -> Any:
            return F.ctc_loss(x.log_softmax(-1), targets, lengths, torch.tensor([2, 5]))

    session = FakeSession(tmp_path)
    x = torch.zeros(8, 2, 5)
    found = one_update(session, Speech(), x, torch.ones(2, 5, dtype=torch.int64), torch.tensor([8, 3]))
    assert [e.text for e in found] == ["row 1 of ctc_loss has 3 frames for 5 labels: no path, its loss is infinite"]
    session.end(False)
    session.close()


# ---- floats and masks ------------------------------------------------------------------------------------------------------------

class Mean(torch.nn.Module):
    """Takes whatever a batch has, and gives the mean of its field x."""

    def forward(self, x: Any, attention_mask: Any = None, bias_mask: Any = None, key_padding_mask: Any = None, **other: Any) -> Any:
        return x.mean()


def test_inputs__nan_in_a_float_field_is_evidence_with_index_and_sample(tmp_path: Any) -> None:
    session = FakeSession(tmp_path)
    x = torch.zeros(4, 3)
    x[2, 1] = float("nan")
    session.inputs.samples[0] = [10, 11, 12, 13]
    found = one_update(session, Mean(), x)
    assert [e.text for e in found] == ["batch field x [4, 3] holds 1 NaN, first at [2, 1] (sample 12)"]
    assert session.end(False).first_boundary == abi.INPUT
    session.close()
    row = session.findings()[0]
    assert (row["tensor"], row["index_in_shape"], row["kind"]) == ("x", [2, 1], "nan")


def test_inputs__missing_values_that_healthy_updates_had_too_are_not_blamed(tmp_path: Any) -> None:
    session = FakeSession(tmp_path)
    y = torch.tensor([[1.0], [float("nan")]])  # a label that is missing, which the loss masks
    model = Mean()
    for _ in range(2):
        one_update(session, model, torch.ones(2, 2), target=y)
        session.end(healthy=True)
    found = one_update(session, model, torch.full((2, 2), float("inf")), target=y)
    assert {e.field: e.reported for e in found} == {"x": True, "target": False}
    assert "healthy updates before had that too" in next(e.text for e in found if e.field == "target")
    session.end(False)
    session.close()


def test_inputs__a_batch_that_lies_where_an_output_lay_is_a_batch(tmp_path: Any) -> None:
    """The allocator gives a dead output's storage to the next micro-step's batch; a live output is no batch of another root."""
    session = FakeSession(tmp_path)
    session.begin()
    model = Mean()
    for micro in range(200):
        session.update.micro = micro
        x = torch.zeros(3, 2) + micro
        session.inputs.enter(model, "", (x,), {})
        out = x * 2
        session.inputs.left(out)
        del x, out
    assert [len(session.inputs.fields[micro]) for micro in range(200)] == [1] * 200
    made = torch.zeros(3, 2)
    session.inputs.left(made)
    session.update.micro = 200
    session.inputs.enter(model, "", (made,), {})
    assert session.inputs.fields[200] == []
    session.end(False)
    session.close()


def test_inputs__garbage_under_padding_is_told_and_not_blamed(tmp_path: Any) -> None:
    session = FakeSession(tmp_path)
    x = torch.zeros(2, 3, 4)
    x[1, 2] = float("nan")
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    found = one_update(session, Mean(), x.clone(), attention_mask=mask)
    assert len(found) == 1 and not found[0].reported and "attention_mask says padding" in found[0].text
    x[0, 0, 0] = float("nan")  # and one that counts
    found = one_update(session, Mean(), x, attention_mask=mask)
    assert [e.reported for e in found if "padding" not in e.text] == [True]
    session.end(False)
    session.close()


def test_inputs__minus_infinity_in_an_additive_mask_is_legal_and_a_row_of_it_is_not(tmp_path: Any) -> None:
    causal = torch.triu(torch.full((3, 3), float("-inf")), 1)
    x = torch.full((2, 3, 4), float("nan"))
    session = FakeSession(tmp_path)
    found = one_update(session, Mean(), x, bias_mask=causal.clone())
    assert [e.field for e in found] == ["x"]
    closed = causal.clone()
    closed[1] = float("-inf")
    found = one_update(session, Mean(), x, bias_mask=closed)
    said = [e.text for e in found if e.field == "bias_mask"]
    assert said == ["row 1 of bias_mask [3, 3] lets nothing in: a softmax over it is 0/0"]
    session.end(False)
    session.close()


@pytest.mark.parametrize("name, shown, hidden", [("attention_mask", 1, 0), ("key_padding_mask", 0, 1)])
def test_inputs__a_row_without_a_token_is_told_by_what_its_mask_means(tmp_path: Any, name: str, shown: int, hidden: int) -> None:
    x = torch.full((3, 2), float("nan"))
    mask = torch.full((3, 2), shown)
    session = FakeSession(tmp_path)
    found = one_update(session, Mean(), x, **{name: mask.bool() if hidden else mask.clone()})
    assert [e.field for e in found] == ["x"]
    mask[2] = hidden
    found = one_update(session, Mean(), x, **{name: mask.bool() if hidden else mask})
    assert [e.index for e in found if e.field == name] == [4]
    session.end(False)
    session.close()


def test_inputs__a_mask_whose_truth_value_nobody_knows_is_not_judged() -> None:
    field = batch.Field("mask", batch.MASK, torch.zeros(2, 3, dtype=torch.bool), 0, 0)
    assert anomalies.of([field], [], [], None, lambda tensor: None) == []


def test_inputs__what_another_root_gave_out_is_no_batch(tmp_path: Any) -> None:
    session = FakeSession(tmp_path)
    session.begin()
    fake = torch.full((2, 2), float("nan"))
    session.inputs.enter(Mean(), "", (torch.zeros(2, 2),), {})
    session.inputs.left({"images": fake})
    session.inputs.enter(Mean(), "", (fake.detach(),), {})
    session.loss(float("nan"))
    assert session.inputs.evidence(session.update) == []
    session.end(False)
    session.close()


def test_inputs__the_micro_step_of_the_bad_batch_is_named(tmp_path: Any) -> None:
    session = FakeSession(tmp_path)
    good, bad = torch.zeros(2, 2), torch.full((2, 2), float("inf"))
    one_update(session, Mean(), good, micro=0)
    _native_micro(session, 1)
    found = one_update(session, Mean(), bad, micro=1)
    assert [(e.micro, e.reported) for e in found] == [(1, True)]
    assert session.end(False).first_micro_step == 1
    session.close()


def _native_micro(session: FakeSession, micro: int) -> None:
    from firstbad import _native

    _native.call(_native.lib().fb_step_micro, session.run, micro)
    session.update.micro = micro


def test_inputs__a_field_that_was_written_to_after_it_entered_is_not_blamed(tmp_path: Any) -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.div_(0.0).mean()

    session = FakeSession(tmp_path)
    found = one_update(session, Writes(), torch.ones(2, 2))
    assert len(found) == 1 and not found[0].reported and "written to after it entered" in found[0].text
    session.end(False)
    session.close()


# ---- fingerprints ----------------------------------------------------------------------------------------------------------------

def test_inputs__equal_batches_have_equal_fingerprints_and_others_have_others() -> None:
    def of(**fields: Any) -> Any:
        return batch.fingerprint(list(batch.fields_of(Mean(), (), fields, 0)))

    x = torch.arange(12.0).reshape(3, 4)
    assert of(x=x) == of(x=x.clone())
    assert of(x=x) == of(x=x.t().contiguous().t())  # strides are no part of it
    assert len({of(x=x), of(x=x + 1), of(y=x), of(x=x.double()), of(x=x.reshape(4, 3))}) == 5
    large = torch.zeros(1 << 20)
    ends = large.clone()
    ends[-1] = 1
    assert of(x=large) == of(x=large.clone()) != of(x=ends)
    assert of(x=torch.zeros(2, device="meta")) is None


def test_inputs__looking_at_a_batch_draws_no_random_number_and_changes_nothing(tmp_path: Any) -> None:
    import random

    before = randomness.capture()
    assert batch.rng_hash(before) == batch.rng_hash(randomness.capture())
    session = FakeSession(tmp_path)
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(3))
    version, bits = x._version, x.clone()
    session.begin()
    session.inputs.enter(Mean(), "", (x,), {})
    session.loss(0.0)
    session.end()
    assert x._version == version and torch.equal(x, bits)
    assert batch.rng_hash(randomness.capture()) == batch.rng_hash(before)
    random.random()
    assert batch.rng_hash(randomness.capture()) != batch.rng_hash(before)
    session.close()


def test_inputs__names_come_from_the_signature_of_the_users_own_forward() -> None:
    wrapped = torch.nn.DataParallel(Tiny())
    names = [field.name for field in batch.fields_of(wrapped, (ids(), ids()), {}, 0)]
    assert names == ["idx", "targets"]
    nested = [f.name for f in batch.fields_of(Mean(), ({"a": torch.zeros(1), "b": [torch.zeros(1)]},), {}, 0)]
    assert nested == ["x.a", "x.b.0"]


# ---- a guest ---------------------------------------------------------------------------------------------------------------------

def test_inputs__scripts_traces_and_transforms_of_the_program_work_as_before() -> None:
    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(5, 3)

        def forward(self, x):  # torch.jit.script would read annotations
            return F.cross_entropy(self.table(x), x)

    model, x = Both(), torch.tensor([1, 2])
    expected = model(x)
    assert torch.equal(torch.jit.script(model)(x), expected)
    assert torch.equal(torch.jit.trace(model, x)(x), expected)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), expected)
    rows = torch.func.vmap(lambda one: F.embedding(one, model.table.weight))(torch.tensor([[1, 2], [0, 1]]))
    assert rows.shape == (2, 2, 3)
    exported = torch.export.export(model, (x,)).module()(x)
    assert torch.equal(exported, expected)


def test_inputs__a_model_that_was_watched_pickles_without_us(tmp_path: Any) -> None:
    import pickle

    model = Tiny()
    session = FakeSession(tmp_path, model)
    one_update(session, model, ids(), ids())
    session.end()
    assert b"firstbad" not in re.sub(rb"test_inputs|torch_session", b"", pickle.dumps(model))
    session.close()


def test_inputs__compiled_code_has_no_break_because_of_us() -> None:
    model = torch.compile(Tiny(), backend="aot_eager", fullgraph=True)
    tokens = ids()
    assert torch.isfinite(model(tokens, tokens))
