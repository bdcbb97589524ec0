"""A program that ends in the middle of an update because of a number: it looked at its loss itself, or was refused."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import guarded  # noqa: E402

SCRIPT = """
import math, sys, torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(6, 4)
    out = net(x)
    if step == AT and BAD:
        out = (out - out).sqrt()
        out = out / out
    if step == AT and "early" == HOW:
        raise KeyError("of the program")
    loss = out.square().mean()
    if step == AT:
        if HOW == "exit": sys.exit(3)
        if HOW == "leave": sys.exit()
        if HOW == "raise": raise ValueError("stop")
        if HOW == "ctrl": raise KeyboardInterrupt
        if HOW == "refused": torch.distributions.Normal(out, 1.0)
    opt.zero_grad()
    loss.backward()
    if step == AT and HOW == "after": raise RuntimeError("stop")
    opt.step()
"""
LINE = next(i for i, line in enumerate(SCRIPT.splitlines(), 1) if "out / out" in line)


def run(folder, how, bad=True, at=3):
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("HOW", repr(how)).replace("BAD", str(bad)).replace("AT", str(at)))
    done = subprocess.run([str(guarded.build() / "firstbad"), "run", "--", sys.executable, str(script)], cwd=folder,
                          env=dict(guarded.environment(folder), FIRSTBAD_PYTHON=str(guarded.PACKAGE)), capture_output=True, text=True,
                          timeout=600)
    cases = sorted(folder.glob("runs/*/cases/*"))
    return done, cases


@pytest.mark.parametrize("how, code", [("exit", 3), ("raise", 1), ("after", 1), ("refused", 1)])
def test_postmortem__a_program_that_stops_for_its_loss_is_told_why(tmp_path, how, code):
    done, cases = run(tmp_path, how)
    assert done.returncode == code
    assert [case.name for case in cases] == ["a1-000003"], done.stderr
    located = json.loads((cases[0] / "locate.json").read_text())
    assert located["location"]["operator"] == "div" and located["location"]["source"] == f"train.py:{LINE}", located["location"]
    assert "the program ended here by itself" in done.stderr
    assert "no update followed" in done.stderr and "raining went on" not in done.stderr


def test_postmortem__the_first_update_can_be_the_one(tmp_path):
    done, cases = run(tmp_path, "raise", at=0)
    assert done.returncode == 1 and [case.name for case in cases] == ["a1-000000"], done.stderr


@pytest.mark.parametrize("how, bad, code", [("raise", False, 1), ("exit", False, 3), ("after", False, 1), ("leave", True, 0),
                                            ("ctrl", True, None), ("early", True, 1)])
def test_postmortem__a_program_that_ends_for_another_reason_is_left_alone(tmp_path, how, bad, code):
    """With "early", NaN is in a value and the exception speaks of something else: it may be what a mask hides."""
    done, cases = run(tmp_path, how, bad)
    assert not cases and "was not applied" not in done.stderr, done.stderr
    assert done.returncode == code if code is not None else done.returncode != 0
