"""The callbacks without `firstbad run`: the frameworks' own training, started by hand, and with a fault."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
from stranger_runs import BUILD, ROOT, environment

pytest.importorskip("torch", reason="torch is not installed")

TRAINER = """
import sys, torch
from transformers import Trainer, TrainingArguments, PreTrainedModel, PretrainedConfig
from firstbad.integrations.transformers import FirstbadCallback

class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
    def forward(self, x, y):
        h = self.a(x)
        loss = ((h / (x.norm(dim=1, keepdim=True) + EPS)) - y).pow(2).mean()
        return {"loss": loss}

BAD, EPS = json_bad, 0.0
torch.manual_seed(0)
rows = [{"x": torch.zeros(4) if i in BAD else torch.randn(4), "y": torch.ones(4)} for i in range(24)]
model = Tiny()
args = TrainingArguments(output_dir="out", max_steps=8, per_device_train_batch_size=2, logging_steps=1, report_to=[],
save_strategy="no",
                         use_cpu=True, disable_tqdm=True, train_sampling_strategy="sequential")
trainer = Trainer(model=model, args=args, train_dataset=rows, callbacks=[FirstbadCallback(run_dir="runs", run_id="r", **OPTIONS)])
try:
    trainer.train()
finally:
    print("HISTORY", [(entry["step"], entry.get("firstbad_skipped")) for entry in trainer.state.log_history if "loss" in entry])
    print("FINITE", all(bool(p.isfinite().all()) for p in model.parameters()))
"""

LIT = """
import torch, lightning as L
from firstbad.integrations.lightning import FirstbadCallback

class Tiny(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
    def training_step(self, batch, batch_idx):
        (x,) = batch
        return (self.a(x) / x.norm(dim=1, keepdim=True)).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

BAD = json_bad
torch.manual_seed(0)
rows = torch.randn(24, 4)
for i in BAD:
    rows[i] = 0
model = Tiny()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=2)
callback = FirstbadCallback(run_dir="runs", run_id="r", **OPTIONS)
trainer = L.Trainer(max_steps=8, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False, callbacks=[callback])
try:
    trainer.fit(model, loader)
finally:
    print("SKIPPED", callback.total)
    print("FINITE", all(bool(p.isfinite().all()) for p in model.parameters()))
"""


def run(folder: pathlib.Path, text: str, bad=(), options="{}"):
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text).replace("json_bad", json.dumps(list(bad))).replace("**OPTIONS", f"**{options}"))
    env = environment()
    env.update(PYTHONPATH=str(ROOT / "python"), FIRSTBAD_LIBRARY=str(BUILD / "libfirstbad.so"), FIRSTBAD_BUILD=str(BUILD))
    done = subprocess.run([sys.executable, str(script)], cwd=str(folder), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=240)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def why(folder: pathlib.Path):
    done = subprocess.run([str(BUILD / "firstbad"), "why", "--json", str(folder / "runs" / "r")], stdout=subprocess.PIPE,
                          timeout=60)
    return json.loads(done.stdout)


def test_trainer__withholds_a_bad_update_and_marks_the_log(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    code, out, err = run(tmp_path, TRAINER, bad=[9])
    assert code == 0, err[-3000:]
    assert "HISTORY [(1, None), (2, None), (3, None), (4, None), (5, 1), (6, None), (7, None), (8, None)]" in out
    assert "FINITE True" in out
    assert "step 5 is not that of all its updates: 1 was withheld" in err
    told = why(tmp_path)
    assert told["first_bad"]["step"] == 4 and told["first_bad"]["operator"] == "div"
    assert told["first_bad"]["source"] == f"train.py:{[i for i, l in enumerate(TRAINER.splitlines(), 1) if 'norm(dim' in l][0]}"


def test_trainer__that_halts_raises_the_answer_out_of_train(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    code, out, err = run(tmp_path, TRAINER, bad=[9], options='{"on_bad": "halt"}')
    assert code == 1 and "firstbad.errors.Halted: " in err and "step 4" in err.strip().splitlines()[-1]
    assert "FINITE True" in out
    assert why(tmp_path)["decision"]["action"] == "halt"


def test_trainer__healthy_says_nothing(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    code, out, err = run(tmp_path, TRAINER)
    assert code == 0 and "firstbad" not in err and "(5, None)" in out
    assert why(tmp_path)["status"] == "clean"


def test_lightning__withholds_a_bad_update_and_counts_it(tmp_path):
    pytest.importorskip("lightning", reason="lightning is not installed")
    code, out, err = run(tmp_path, LIT, bad=[9])
    assert code == 0, err[-3000:]
    assert "SKIPPED 1" in out and "FINITE True" in out
    assert why(tmp_path)["first_bad"]["step"] == 4


def test_lightning__that_halts_raises_the_answer_out_of_fit(tmp_path):
    pytest.importorskip("lightning", reason="lightning is not installed")
    code, out, err = run(tmp_path, LIT, bad=[8, 10, 12], options='{"max_skips": 2}')
    assert code == 1 and "firstbad.errors.Halted: " in err and "step 6" in err, err[-3000:]
    assert "FINITE True" in out


def test_arguments__that_make_no_sense_are_refused():
    sys.path.insert(0, os.fspath(ROOT / "python"))
    from firstbad.integrations._session import Watch

    for wrong in ({"on_bad": "ignore"}, {"max_skips": 0}):
        with pytest.raises(ValueError):
            Watch(**wrong)
