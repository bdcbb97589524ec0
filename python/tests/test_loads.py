"""The gate before a load: what a run knows to be bad is not loaded, what nobody knows passes unread."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Iterator

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from firstbad import checkpoints  # noqa: E402
from firstbad.errors import LoadRefused  # noqa: E402
from firstbad.pytorch import loads, registry, saves  # noqa: E402
from torch_session import FakeSession, fresh  # noqa: E402
from test_saves import Job, both  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def patched() -> Iterator[Any]:
    patches = fresh()
    saves.install(patches)
    loads.install(patches)
    yield patches
    patches.uninstall()
    registry.optimizers._held.clear()


@pytest.fixture
def job(tmp_path: Any, monkeypatch: Any) -> Iterator[Job]:
    monkeypatch.setenv("FIRSTBAD_DIR", str(tmp_path / "runs"))
    one = Job(tmp_path, monkeypatch)
    yield one
    one.session.close()


def saved(job: Job, path: Any) -> Any:
    torch.save(both(job), path)
    saves.closing(job.session)
    return path


def quarantine(path: Any) -> None:
    tool = os.path.join(os.environ["FIRSTBAD_BUILD"], "firstbad")
    subprocess.run([tool, "ckpt", "quarantine", str(path), "--why", "a test says so"], check=True, stdout=subprocess.DEVNULL)


def test_loads__a_committed_checkpoint_is_loaded_and_becomes_the_parent(job: Job, tmp_path: Any) -> None:
    path = saved(job, tmp_path / "ckpt.pt")
    job.step()
    loads.reset()
    job.session.close()
    assert torch.load(path, weights_only=True)["epoch"] == 3
    assert loads.parent == 1
    assert FakeSession(tmp_path / "other").checkpoint_parent == 1


def test_loads__a_quarantined_checkpoint_is_refused_with_the_one_to_take(job: Job, tmp_path: Any, capsys: Any) -> None:
    good = saved(job, tmp_path / "step-1.pt")
    job.step()
    bad = saved(job, tmp_path / "step-2.pt")
    quarantine(bad)
    with pytest.raises(FileNotFoundError):  # it was set aside; a program may know what to do without it
        torch.load(bad)
    said = capsys.readouterr().err
    assert "step-2.pt is quarantined" in said and f"Resume from {good}" in said
    aside = tmp_path / ".firstbad" / "quarantine" / "step-2.pt"
    with pytest.raises(LoadRefused) as refused:
        torch.load(aside)
    assert f"Resume from {good}" in str(refused.value) and "a test says so" in str(refused.value)
    assert torch.load(good, weights_only=True)["epoch"] == 3


def test_loads__a_suspect_is_read_first_and_refused_when_it_is_not_finite(job: Job, tmp_path: Any, capsys: Any) -> None:
    path = saved(job, tmp_path / "ckpt.pt")
    job.step()
    torch.save(both(job), path)  # announced, and never read back: suspect
    job.session.coverage.lines.clear()
    saves.reset()
    torch.load(path, weights_only=True)
    assert "no run vouches for the updates that made it" in capsys.readouterr().err
    loads.reset()
    plain = torch.save._firstbad_original  # somebody else wrote it
    job.spoil()
    plain(both(job), path)
    with pytest.raises(LoadRefused, match="a.weight|NaN|not finite"):
        torch.load(path)


def test_loads__what_no_run_knows_passes_unread(job: Job, tmp_path: Any, monkeypatch: Any) -> None:
    saved(job, tmp_path / "ckpt.pt")
    other = tmp_path / "pretrained.pt"
    torch.save._firstbad_original({"w": torch.full((4,), float("nan"))}, other)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(checkpoints, "may_load", never)
    assert torch.load(other, weights_only=True)["w"].isnan().all()
    (tmp_path / "far").mkdir()
    torch.save._firstbad_original({"w": torch.ones(1)}, tmp_path / "far" / "ckpt.pt")
    torch.load(tmp_path / "far" / "ckpt.pt", weights_only=True)
    assert loads.parent is None


def test_loads__a_file_of_a_folder_is_asked_for_as_the_folder(job: Job, tmp_path: Any) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    folder = tmp_path / "checkpoint-2"
    folder.mkdir()
    safetensors.save_file({k: v.clone() for k, v in job.model.state_dict().items()}, folder / "model.safetensors")
    torch.save(job.optimizer.state_dict(), folder / "optimizer.pt")
    saves.closing(job.session)
    assert loads.registered(str(folder / "optimizer.pt")) == (str(folder), 1)
    assert "a.weight" in safetensors.load_file(folder / "model.safetensors")
    assert loads.parent == 1
    quarantine(folder)
    aside = tmp_path / ".firstbad" / "quarantine" / "checkpoint-2"
    with pytest.raises(LoadRefused):
        safetensors.load_file(aside / "model.safetensors")
    with pytest.raises(LoadRefused):
        torch.load(aside / "optimizer.pt")


def test_loads__safe_open_and_distributed_loads_are_gated(job: Job, tmp_path: Any) -> None:
    safetensors = pytest.importorskip("safetensors")
    import safetensors.torch
    import torch.distributed.checkpoint as dcp

    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file({k: v.clone() for k, v in job.model.state_dict().items()}, path)
    folder = tmp_path / "step-1"
    dcp.save(job.model.state_dict(), checkpoint_id=str(folder))
    saves.closing(job.session)
    with safetensors.safe_open(str(path), framework="pt") as file:
        assert "a.weight" in file.keys()
    dcp.load({k: v.clone() for k, v in job.model.state_dict().items()}, checkpoint_id=str(folder))
    for bad in (path, folder):
        quarantine(bad)
    aside = tmp_path / ".firstbad" / "quarantine"
    with pytest.raises(LoadRefused):
        safetensors.safe_open(str(aside / "w.safetensors"), framework="pt")
    with pytest.raises(LoadRefused):
        dcp.load({k: v.clone() for k, v in job.model.state_dict().items()}, checkpoint_id=str(aside / "step-1"))


def test_loads__streams_and_names_of_the_net_are_not_ours(job: Job) -> None:
    import io

    stream = io.BytesIO()
    torch.save({"a": torch.ones(1)}, stream)
    stream.seek(0)
    assert torch.load(stream, weights_only=True)["a"] == 1
    assert loads._path_of("s3://bucket/x.pt") is None and loads._path_of(3) is None


def test_loads__a_failure_of_ours_loads_all_the_same(job: Job, tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    path = saved(job, tmp_path / "ckpt.pt")

    def broken(*_: Any) -> Any:
        raise RuntimeError("made to fail")

    monkeypatch.delenv("FIRSTBAD_DEBUG", raising=False)
    monkeypatch.setattr(loads, "registered", broken)
    assert torch.load(path, weights_only=True)["epoch"] == 3
    assert capsys.readouterr().err.count("made to fail") == 1


SCRIPT = """
import os, torch
torch.manual_seed(0); torch.set_num_threads(1)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i): return torch.full((3,), float("nan") if os.environ.get("BAD") == str(i) else float(i) / 12)
model = torch.nn.Linear(3, 1); optimizer = torch.optim.AdamW(model.parameters(), lr=0.1); step = 0
if os.path.exists("ckpt.pt"):
    saved = torch.load("ckpt.pt"); step = saved["step"]
    model.load_state_dict(saved["model"]); optimizer.load_state_dict(saved["optimizer"])
for x in torch.utils.data.DataLoader(Data(), batch_size=2):
    optimizer.zero_grad(); model(x).square().mean().backward(); optimizer.step(); step += 1
    if step % 3 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ckpt.pt")
print("ended at", step)
"""


def under_run(tmp_path: Any, *options: str, **environment: str) -> Any:
    """The script above under the real `firstbad run`; the records of that run."""
    (tmp_path / "train.py").write_text(SCRIPT)
    tool = os.path.join(os.environ["FIRSTBAD_BUILD"], "firstbad")
    package = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "firstbad")
    done = subprocess.run([tool, "run", *options, "--", sys.executable, "train.py"], cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env=dict(os.environ, FIRSTBAD_PYTHON=package, **environment))
    assert done.returncode == 0, done.stderr
    rows = subprocess.run([tool, "export", "--jsonl", "-"], cwd=tmp_path, stdout=subprocess.PIPE, check=True, text=True).stdout
    return done, [json.loads(line) for line in rows.splitlines()]


def test_loads__a_script_that_never_heard_of_us_saves_is_resumed_and_leaves_a_sample_out(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("FIRSTBAD_DIR", raising=False)
    done, rows = under_run(tmp_path)
    assert "ended at 6" in done.stdout and "firstbad" not in done.stderr, done.stderr
    assert checkpoints.latest_committed(tmp_path) == str(tmp_path / "ckpt.pt")
    steps = [row for row in rows if row["table"] == "steps"]
    assert [step["sample_ids"] for step in steps] == [[2 * i, 2 * i + 1] for i in range(6)]
    assert len({step["batch_fingerprint"] for step in steps}) == 6
    done, rows = under_run(tmp_path, BAD="7")
    steps = [row for row in rows if row["table"] == "steps"]
    assert "ended at 12" in done.stdout and steps[0]["step"] == 6 and steps[0]["checkpoint_parent"] == 5
    bad = next(row for row in rows if row["table"] == "findings" and row["boundary"] == "input")
    assert (bad["step"], bad["tensor"], bad["index_in_shape"]) == (9, "input", [1, 0])
    done, rows = under_run(tmp_path, "--leave-out", "a1-000009", BAD="7")
    assert "ended at 18" in done.stdout and not [row for row in rows if row["table"] == "findings"]
    assert [row["sample_ids"] for row in rows if row["table"] == "steps"][3] == [6, 6]
