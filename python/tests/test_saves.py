"""The gate before a save, with torch.save, safetensors, transformers and torch.distributed.checkpoint; and what is registered."""
from __future__ import annotations

import io
import os
import sys
import threading
from typing import Any, Iterator, List

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from firstbad import _abi as abi  # noqa: E402
from firstbad import checkpoints  # noqa: E402
from firstbad.errors import SaveWithheld  # noqa: E402
from firstbad.pytorch import registry, saves  # noqa: E402
from firstbad.pytorch import session as session_module  # noqa: E402
from torch_session import FakeSession, fresh  # noqa: E402

torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.b = torch.nn.Linear(4, 2)
        self.register_buffer("causal_mask", torch.triu(torch.full((3, 3), float("-inf")), 1))

    def forward(self, x: Any) -> Any:
        return self.b(self.norm(self.a(x)))


class Job:
    """A model that was trained for two updates, its optimizer, and the session that saw it."""

    def __init__(self, folder: Any, monkeypatch: Any, on_bad: str = "skip", model: Any = None) -> None:
        torch.manual_seed(0)
        self.model = Net() if model is None else model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        registry.optimizers._held.clear()
        self.session = FakeSession(folder / "runs", self.model, self.optimizer, on_bad)
        self.session.buffers.moved = {id(b): None for name, b in self.model.named_buffers() if "running" in name}
        monkeypatch.setattr(session_module, "_current", self.session)
        for _ in range(2):
            self.step()

    def step(self) -> None:
        self.session.begin()
        if isinstance(self.model, Net):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 4)).square().mean().backward()
            self.optimizer.step()
        self.session.inputs.enter(self.model, "", (), {})
        views = [one for one in self.views()]
        self.session.need_step()
        from firstbad import _native

        table = (abi.View * len(views))(*views)
        _native.call(_native.lib().fb_step_check, self.session.run, abi.LOCAL_GRAD, table, len(views))
        self.session.end()

    def views(self) -> List[Any]:
        from firstbad.pytorch import views

        out = []
        self.kept = []
        for place in self.session.names.places.values():
            gradient = place.tensor.grad if place.tensor.grad is not None else torch.zeros_like(place.tensor)
            view, kept = views.one(gradient, place.gradient)
            self.kept.append((gradient, kept))
            out.append(view)
        return out

    def spoil(self) -> None:
        with torch.no_grad():
            self.model.a.weight[1, 2] = float("nan")


@pytest.fixture(autouse=True)
def patched() -> Iterator[Any]:
    patches = fresh()
    saves.install(patches)
    yield patches
    patches.uninstall()
    registry.optimizers._held.clear()


@pytest.fixture
def job(tmp_path: Any, monkeypatch: Any) -> Iterator[Job]:
    one = Job(tmp_path, monkeypatch)
    yield one
    one.session.close()


def both(job: Job) -> Any:
    return {"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict(), "epoch": 3, "best": float("inf")}


def state_of(path: Any, job: Job) -> str:
    saves.closing(job.session)
    os.environ["FIRSTBAD_DIR"] = job.session.dir
    try:
        return checkpoints.may_load(path)
    finally:
        del os.environ["FIRSTBAD_DIR"]


# ---- good ones -------------------------------------------------------------------------------------------------------------------

def test_saves__a_good_checkpoint_is_written_read_back_and_committed(job: Job, tmp_path: Any) -> None:
    path = tmp_path / "out" / "ckpt.pt"
    path.parent.mkdir()
    torch.save(both(job), path)
    assert torch.load(path, weights_only=True)["epoch"] == 3
    assert state_of(path, job) == "committed"
    assert checkpoints.latest_committed(path.parent) == str(path)


def test_saves__the_file_has_the_bytes_that_torch_writes_without_us(job: Job, tmp_path: Any, patched: Any) -> None:
    torch.save(both(job), tmp_path / "same.pt")
    watched = (tmp_path / "same.pt").read_bytes()
    patched.uninstall()
    torch.save(both(job), tmp_path / "same.pt")
    assert watched == (tmp_path / "same.pt").read_bytes()


def test_saves__a_file_that_is_written_over_keeps_the_committed_one_until_the_new_one_is(job: Job, tmp_path: Any) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(both(job), path)
    assert state_of(path, job) == "committed"
    job.step()
    torch.save(both(job), path)
    kept = checkpoints.latest_committed(tmp_path)
    assert kept != str(path) and ".firstbad" in kept and torch.load(kept, weights_only=True)["epoch"] == 3
    assert state_of(path, job) == "committed"
    assert checkpoints.latest_committed(tmp_path) == str(path)


def test_saves__who_saves_aside_and_renames_is_followed(job: Job, tmp_path: Any) -> None:
    torch.save(both(job), tmp_path / "ckpt.pt.tmp")
    os.replace(tmp_path / "ckpt.pt.tmp", tmp_path / "ckpt.pt")
    assert state_of(tmp_path / "ckpt.pt", job) == "committed"
    (tmp_path / "tmp-1").mkdir()
    torch.save(both(job), tmp_path / "tmp-1" / "state.pt")
    (tmp_path / "tmp-1").rename(tmp_path / "done")
    assert state_of(tmp_path / "done" / "state.pt", job) == "committed"


def test_saves__a_file_object_and_a_path_object_are_files(job: Job, tmp_path: Any) -> None:
    with open(tmp_path / "a.pt", "wb") as file:
        torch.save(both(job), file)
    assert state_of(tmp_path / "a.pt", job) == "committed"


def test_saves__the_next_forward_hands_over_what_was_saved(job: Job, tmp_path: Any) -> None:
    torch.save(both(job), tmp_path / "ckpt.pt")
    assert len(saves._pending) == 1
    job.step()
    assert saves._pending == []


def test_saves__whole_modules_and_bare_state_dicts_are_checkpoints(job: Job, tmp_path: Any) -> None:
    torch.save(job.model, tmp_path / "whole.pt")
    torch.save(job.model.state_dict(), tmp_path / "weights.pt")
    torch.save({k: v.clone() for k, v in job.model.state_dict().items()}, tmp_path / "copied.pt")
    torch.save(job.optimizer.state_dict(), tmp_path / "opt.pt")
    assert sorted(os.path.basename(one.path) for one in saves._pending) == ["copied.pt", "opt.pt", "weights.pt", "whole.pt"]
    assert state_of(tmp_path / "weights.pt", job) == "committed"


# ---- bad ones --------------------------------------------------------------------------------------------------------------------

def test_saves__a_state_that_is_not_finite_is_not_written_and_the_older_file_stays(job: Job, tmp_path: Any) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save(both(job), path)
    assert state_of(path, job) == "committed"
    before = path.read_bytes()
    job.step()
    job.spoil()
    with pytest.raises(SaveWithheld) as withheld:
        torch.save(both(job), path)
    assert path.read_bytes() == before
    assert "a.weight holds NaN, first at [1, 2] (1 bad numbers in 1 tensors)" in str(withheld.value)
    assert f"Resume from {path}" in str(withheld.value)
    assert (withheld.value.module, withheld.value.step) == ("a.weight", 2)
    job.session.begin()
    job.session.need_step()
    assert job.session.vote().first_boundary in (abi.ENTRY, abi.CHECKPOINT)  # the next vote hears of it


@pytest.mark.parametrize("spoil", ["moment", "running", "copy", "ema", "memory", "safetensors", "thread"])
def test_saves__bad_state_is_found_wherever_it_is(job: Job, tmp_path: Any, spoil: str) -> None:
    thing, target = both(job), tmp_path / "x.pt"
    if spoil == "moment":
        job.optimizer.state[job.model.b.weight]["exp_avg_sq"][0, 1] = float("inf")
    elif spoil == "running":
        job.model.norm.running_var[2] = float("nan")
    elif spoil == "ema":
        thing["ema"] = {k: v.clone() for k, v in job.model.state_dict().items()}
        thing["ema"]["b.bias"][0] = float("nan")
    else:
        job.spoil()
    if spoil == "copy":
        thing = {f"module.{k}": v.clone() for k, v in job.model.state_dict().items()}
    with pytest.raises(SaveWithheld):
        if spoil == "memory":
            torch.save(thing, io.BytesIO())
        elif spoil == "safetensors":
            safetensors = pytest.importorskip("safetensors.torch")
            safetensors.save_file(job.model.state_dict(), target)
        elif spoil == "thread":
            caught: List[BaseException] = []

            def work() -> None:
                try:
                    torch.save(thing, target)
                except SaveWithheld as why:
                    caught.append(why)

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            raise caught[0]
        else:
            torch.save(thing, target)
    assert not target.exists()


def test_saves__a_run_that_only_observes_writes_it(tmp_path: Any, monkeypatch: Any) -> None:
    job = Job(tmp_path, monkeypatch, on_bad="observe")
    job.spoil()
    torch.save(both(job), tmp_path / "x.pt")
    assert (tmp_path / "x.pt").exists()
    job.session.close()
    assert any(row.get("boundary") == "checkpoint" for row in job.session.findings())


# ---- not ours --------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("thing", [
    torch.tensor([float("nan")]), {"loss": torch.tensor([float("nan"), 1.0])}, [torch.full((3,), float("inf"))], {"a": 1}, "text",
    None,
    {"batch": torch.full((4, 4), float("nan")), "labels": torch.zeros(4)}], ids=str)
def test_saves__what_is_no_checkpoint_passes_untouched_and_unregistered(job: Job, tmp_path: Any, thing: Any) -> None:
    torch.save(thing, tmp_path / "x.pt")
    assert saves._pending == [] and not (tmp_path / ".firstbad").exists()


def test_saves__masks_of_minus_infinity_and_a_best_loss_of_infinity_are_legal(job: Job, tmp_path: Any) -> None:
    thing = both(job)
    thing["best_loss"] = torch.tensor(float("inf"))
    torch.save(thing, tmp_path / "x.pt")
    assert "causal_mask" in thing["model"]
    state_of(tmp_path / "x.pt", job)
    assert not os.path.exists(tmp_path / ".firstbad" / "quarantine")


def test_saves__a_good_checkpoint_beside_odd_numbers_is_never_set_aside(job: Job, tmp_path: Any) -> None:
    thing = both(job)
    thing["history"] = torch.tensor([1.0, float("nan"), float("inf")])
    torch.save(thing, tmp_path / "x.pt")
    saves.closing(job.session)
    assert (tmp_path / "x.pt").exists()
    assert any("history in it is not finite and no part of the training state" in line for line in job.session.coverage.lines)


def test_saves__before_anything_was_trained_nothing_is_looked_at(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(session_module, "_current", None)
    model = Net()
    with torch.no_grad():
        model.a.weight[0, 0] = float("nan")
    torch.save(model.state_dict(), tmp_path / "x.pt")
    assert (tmp_path / "x.pt").exists()


def test_saves__in_the_middle_of_an_update_it_is_looked_at_and_not_registered(job: Job, tmp_path: Any) -> None:
    job.session.begin()
    job.session.need_step()
    torch.save(both(job), tmp_path / "mid.pt")
    assert saves._pending == []
    job.spoil()
    with pytest.raises(SaveWithheld):
        torch.save(both(job), tmp_path / "mid2.pt")
    job.session.end()


def test_saves__a_failure_of_ours_saves_all_the_same(job: Job, tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("made to fail")

    monkeypatch.delenv("FIRSTBAD_DEBUG", raising=False)
    monkeypatch.setattr(saves, "State", broken)
    torch.save(both(job), tmp_path / "x.pt")
    assert (tmp_path / "x.pt").exists() and capsys.readouterr().err.count("made to fail") == 1


# ---- libraries -------------------------------------------------------------------------------------------------------------------

def test_saves__safetensors_that_was_imported_before_is_wrapped_where_transformers_bound_it(job: Job, tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    import transformers.modeling_utils as modeling

    assert hasattr(modeling.safe_save_file, "_firstbad_original")
    assert transformers is not None


def test_saves__a_folder_of_the_trainer_is_one_checkpoint(tmp_path: Any, monkeypatch: Any) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    job = Job(tmp_path, monkeypatch, model=model)
    folder = tmp_path / "out" / "checkpoint-2"
    model.save_pretrained(folder)
    torch.save(job.optimizer.state_dict(), folder / "optimizer.pt")
    torch.save({"python": 1}, folder / "rng_state.pth")
    (folder / "trainer_state.json").write_text('{"global_step": 2}')
    assert state_of(folder, job) == "committed"
    assert [row["text"] for row in job.session.records() if row.get("event") == "checkpoint"] == [str(folder)]
    with torch.no_grad():
        model.transformer.h[0].mlp.c_fc.weight[0, 0] = float("inf")
    with pytest.raises(SaveWithheld):
        model.save_pretrained(tmp_path / "out" / "checkpoint-3")
    job.session.close()


def test_saves__distributed_checkpoints_are_one_folder_and_gated(job: Job, tmp_path: Any) -> None:
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    if not hasattr(dcp, "async_save"):
        pytest.skip("before 2.3 a save without ranks is another call")
    folder = tmp_path / "dcp-step-2"
    dcp.save({"model": job.model.state_dict()}, checkpoint_id=str(folder))
    assert [one.path for one in saves._pending] == [str(folder)]
    assert state_of(folder, job) == "committed"
    job.spoil()
    with pytest.raises(SaveWithheld):
        dcp.save({"model": job.model.state_dict()}, checkpoint_id=str(tmp_path / "dcp-step-3"))
    assert not (tmp_path / "dcp-step-3").exists()


def test_saves__an_asynchronous_save_is_registered_when_it_is_done(job: Job, tmp_path: Any) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    if not hasattr(dcp, "async_save"):
        pytest.skip("torch has it from 2.3 on")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        future = dcp.async_save({"model": job.model.state_dict()}, checkpoint_id=str(tmp_path / "step-2"))
        future.result()
        assert state_of(tmp_path / "step-2", job) == "committed"
        assert saves._in_background == 0
    finally:
        dist.destroy_process_group()
