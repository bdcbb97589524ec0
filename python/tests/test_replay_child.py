"""`firstbad replay` and `firstbad bisect` of a Python program: its own command starts again, and the update comes from the
bundle."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
CLI = BUILD / "firstbad"

HEAD = """
    import os, sys, torch, torch.nn as nn, torch.nn.functional as F
    torch.manual_seed(0)
    torch.set_num_threads(1)
"""
SCRIPTS = {
    # A loss outside of the model; BatchNorm, dropout, and a batch of which one sample is to blame.
    "one": HEAD + """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.norm, self.drop, self.out = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3)
        def forward(self, x):
            return self.out(self.drop(self.norm(self.fc(x)).relu()))
    m = Net() if "--wider" not in sys.argv else nn.Linear(4, 3)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for step in range(4):
        x, w = torch.randn(6, 4), torch.ones(6)
        if step == 2:
            w[4] = 0.0
        opt.zero_grad()
        loss = -(F.softmax(m(x), -1)[:, 0] * w).log().mean()  # here
        loss.backward()
        opt.step()
        print(step, loss.item(), flush=True)
    """,
    # Two roots, of which one reads what the other made; autocast.
    "gan": HEAD + """
    g, d = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    opt = torch.optim.SGD(list(g.parameters()) + list(d.parameters()), lr=0.01)
    for step in range(3):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            fake = g(torch.randn(5, 3))
            score = d(fake * (0.0 if step == 1 else 1.0))
        loss = (score.float() / fake.float().sum().mul(0.0 if step == 1 else 1.0)).sum()  # here
        loss.backward()
        opt.step()
    """,
    # An argument of the program's own, which has no form in a file.
    "own": HEAD + """
    class Config:
        def __init__(self):
            self.scale = 1.0
        def __call__(self):
            return self.scale
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 1)
        def forward(self, x, config):
            return self.fc(x).sum() * config.scale
    m, config = Net(), Config()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    for step in range(3):
        config.scale = float("inf") if step == 1 else 1.0
        opt.zero_grad()
        m(torch.ones(2, 2), config).backward()
        opt.step()
    """,
}


def run(folder, *words):
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("FIRSTBAD_")}, "PYTHONPATH": str(ROOT / "python"),
                   "FIRSTBAD_BUILD": str(BUILD), "FIRSTBAD_LIBRARY": str(BUILD / "libfirstbad.so")}
    return subprocess.run([str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """{name: folder} of runs that met their fault."""
    folders = {}
    for name, text in SCRIPTS.items():
        folders[name] = folder = tmp_path_factory.mktemp(name)
        (folder / "train.py").write_text(textwrap.dedent(text))
        ran = run(folder, CLI, "run", "--", sys.executable, "train.py")
        assert ran.returncode == 0 and "was not applied" in ran.stderr, ran.stderr
    return folders


def line(name):
    return next(i for i, text in enumerate(textwrap.dedent(SCRIPTS[name]).splitlines(), 1) if "# here" in text)


def newest(folder):
    return sorted(folder.glob("firstbad-runs/*/cases/*/replays/*"))[-1]


def test_replay__comes_to_the_same_in_a_process_of_its_own(trained):
    asked = run(trained["one"], CLI, "replay", "--json")
    assert asked.returncode == 1, asked.stdout + asked.stderr
    told = json.loads((newest(trained["one"]) / "locate.json").read_text())
    assert told["replay"]["reproduced"] == told["replay"]["attempts"] == 3 and told["replay"]["faithful"] is True
    log = next(newest(trained["one"]).glob("*.log")).read_text()
    assert "\n0 " not in log and not log.startswith("0 ")  # no step was trained


def test_bisect__names_operator_line_cause_and_sample(trained):
    asked = run(trained["one"], CLI, "bisect")
    assert asked.returncode == 1, asked.stdout + asked.stderr
    told = json.loads((newest(trained["one"]) / "locate.json").read_text())
    assert told["found"] == "operator" and "log" in told["location"]["operator"]
    assert told["location"]["source"] == f"train.py:{line('one')}" and told["cause"]["class"] == "domain_math"
    assert told["minimise"]["rows_kept"] == [4]


def test_replay__the_smallest_batch_is_kept_and_shows_it(trained):
    asked = run(trained["one"], CLI, "replay", "--batch", "minimal")
    assert asked.returncode == 1 and "smallest batch" in asked.stdout, asked.stdout + asked.stderr


def test_replay__several_models_are_found_in_the_new_process(trained):
    asked = run(trained["gan"], CLI, "bisect")
    assert asked.returncode == 1, asked.stdout + asked.stderr
    told = json.loads((newest(trained["gan"]) / "locate.json").read_text())
    assert "div" in told["location"]["operator"] and told["location"]["source"] == f"train.py:{line('gan')}"


def test_replay__a_model_that_is_built_otherwise_is_told(trained):
    asked = run(trained["one"], CLI, "replay", "--", sys.executable, "train.py", "--wider")
    assert asked.returncode == 3
    log = next(newest(trained["one"]).glob("*.log")).read_text()
    assert "built otherwise than it was" in log


def test_replay__of_a_program_that_does_other_things_now_is_not_the_run(tmp_path):
    """What a module reads from elsewhere, here its command line, is in no bundle: that the fault is gone proves nothing."""
    (tmp_path / "train.py").write_text(textwrap.dedent(HEAD + """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.calls = nn.Linear(4, 3), 0
        def forward(self, x):
            self.calls += self.training
            return self.fc(x) / (0.0 if "--mended" not in sys.argv and x[0, 0] > 50 else 1.0)
    m = Net()
    opt = torch.optim.SGD(m.parameters(), lr=1e-2)
    for step in range(4):
        x = torch.randn(6, 4)
        if step == 2:
            x[0, 0] = 100.0
        opt.zero_grad()
        m(x).square().mean().backward()
        opt.step()
    """))
    ran = run(tmp_path, CLI, "run", "--", sys.executable, "train.py")
    assert ran.returncode == 0 and "was not applied" in ran.stderr, ran.stderr
    asked = run(tmp_path, CLI, "replay", "--", sys.executable, "train.py", "--mended")
    told = json.loads((newest(tmp_path) / "locate.json").read_text())
    assert told["replay"]["reproduced"] == 0 and told["replay"]["faithful"] is False, asked.stdout
    assert any("in the run" in sentence for sentence in told["replay"]["differences"]), told["replay"]
    assert asked.returncode == 0 and "faithful    yes" not in asked.stdout, asked.stdout + asked.stderr


def test_replay__what_has_no_form_in_a_file_is_not_promised(trained):
    asked = run(trained["own"], CLI, "replay")
    assert asked.returncode == 3 and "records no command" in asked.stderr
    part = json.loads(next(trained["own"].glob("firstbad-runs/*/cases/*/bundle/part-r00000.json")).read_text())
    assert part["command"] is None and "Config" in {v["key"]: v.get("text") for v in part["values"]}["not_replayable"]


def test_encode__refuses_what_nobody_wrote_like_this():
    from firstbad.pytorch import encode
    for given in ({"op": 1}, {"dtype": "os.system"}, {"dtype": "torch.__name__x y"}, [1], {"f": "1", "v": 2}):
        with pytest.raises((encode.NotPlain, AttributeError)):
            encode.value_of(given)
    with pytest.raises(encode.NotPlain):
        encode._operator("os.system.x; import os")
    for value in (1, 1.5, float("inf"), None, "a", True, (1, [2, {"k": torch.float16}]), torch.device("cpu"), torch.Size([2]), 1j):
        assert encode.value_of(json.loads(json.dumps(encode.plain(value)))) == value


DDP = HEAD + """
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn, self.fc = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)
        def forward(self, x, pad):
            h, _ = self.attn(x, x, x, key_padding_mask=pad)  # here
            return self.fc(h.mean(1))
    m = nn.parallel.DistributedDataParallel(Net())
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    g = torch.Generator().manual_seed(rank)
    for step in range(4):
        x, pad, y = torch.randn(4, 6, 8, generator=g), torch.zeros(4, 6, dtype=torch.bool), torch.randint(0, 3, (4,), generator=g)
        if step == 2 and rank == 1:
            pad[2] = True
        opt.zero_grad()
        F.cross_entropy(m(x, pad), y).backward()
        opt.step()
    dist.destroy_process_group()
"""


def test_replay__two_ranks_are_located_and_started_again_by_their_launcher(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    (tmp_path / "train.py").write_text(textwrap.dedent(DDP))
    ran = run(tmp_path, CLI, "run", "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py")
    assert ran.returncode == 0, ran.stderr
    where = (
        f"train.py:{textwrap.dedent(DDP).splitlines().index('        h, _ = self.attn(x, x, x, key_padding_mask=pad)  # here') + 1}"
    )
    case, = tmp_path.glob("firstbad-runs/*/cases/*")
    told = json.loads((case / "locate.json").read_text())
    for _ in range(2):
        assert told["found"] == "operator" and "softmax" in told["location"]["operator"]
        assert told["location"]["rank"] == 1 and told["location"]["module"] == "attn" and told["location"]["source"] == where
        assert told["cause"]["class"] == "mask_full_row" and told["replay"]["faithful"] is True
        other = told["replay"]["other_ranks"]  # where the batch was tried there, it is bad there as well: it is the data
        assert other["bad"] == other["tried"]
        assert told["minimise"]["rows_kept"] == [2]
        if not list(case.glob("replays/*")):
            asked = run(tmp_path, CLI, "bisect")
            assert asked.returncode == 1 and "torchrun" in asked.stdout, asked.stdout + asked.stderr
            told = json.loads((newest(tmp_path) / "locate.json").read_text())
    asked = run(tmp_path, CLI, "replay")
    told = json.loads((newest(tmp_path) / "locate.json").read_text())
    assert asked.returncode == 1 and told["replay"]["other_ranks"] == {"tried": 1, "bad": 1}, asked.stdout + asked.stderr
