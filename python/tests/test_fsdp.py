"""Parameters that are spread over ranks: FSDP with flat parameters, fully_shard, tensor parallel; on the CPU with gloo."""
from __future__ import annotations

import importlib.util
import shutil

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from several_ranks import BUILD, Job

if not (BUILD / "firstbad").exists():
    pytest.skip("the tool is not built", allow_module_level=True)
VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
if VERSION < (2, 10):
    pytest.skip("sharding on the CPU with gloo", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("fsdp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def whole(folder):
    return Job(folder / "whole", 2, "--kind", "fully-shard", "--bad", "3:1:gradient")


def lines(job):
    return [line for left in job.python() for line in left["not_covered"]]


def finite(job):
    return len(job.ranks) == job.world and all("nan" not in loss for rank in job.ranks for loss in rank["losses"])


def test_fsdp__fully_shard_names_the_rank_that_brought_it_and_not_the_one_that_keeps_the_part(whole):
    assert whole.code == 0, whole.err
    first = whole.why()["first_bad"]
    assert (first["step"], first["rank"], first["boundary"]) == (3, 1, "local_gradient")
    assert (first["module"], first["tensor"]) == ("5", "bias.grad")
    assert finite(whole)


def test_fsdp__fully_shard_is_covered_and_skipped_by_a_vote(whole):
    why = whole.why()
    assert why["decision"]["action"] == "skip" and why["decision"]["agreement"] == "vote" and why["decision"]["unanimous"]
    assert "reduced gradients (all" in " ".join(whole.why_text().split())


def test_fsdp__no_operator_is_named_where_an_update_cannot_be_replayed(whole):
    assert whole.why()["first_bad"]["operator"] is None
    assert any("not replayed" in line for line in lines(whole))


def test_fsdp__until_the_fault_it_is_the_same_run_to_the_last_bit(folder, whole):
    plain = Job(folder / "plain", 2, "--kind", "fully-shard", "--bad", "9:1:gradient", guarded=False)
    assert [rank["losses"][:3] for rank in plain.ranks] == [rank["losses"][:3] for rank in whole.ranks]
    assert [rank["stream"] for rank in plain.ranks] == [rank["stream"] for rank in whole.ranks]


@pytest.mark.parametrize("kind, part", [("fsdp", "[flat "), ("fsdp-flat", "[shard ")])
def test_fsdp__flat_parameters_are_named_with_the_part_that_lies_here(folder, kind, part):
    job = Job(folder / kind, 2, "--kind", kind, "--bad", "2:1:gradient", "--steps", "4")
    assert job.code == 0, job.err
    why = job.why()
    assert why["first_bad"]["boundary"] == "reduced_gradient" and why["decision"]["unanimous"] and finite(job)
    names = [member["tensor"] for member in why["first_bad_set"]] + [why["first_bad"]["tensor"]]
    assert any("grad" in name for name in names) and any("after they were reduced" in line for line in lines(job))
    if kind == "fsdp-flat":
        assert all(part in name for name in names)


def test_fsdp__tensor_parallel_ranks_skip_together(folder):
    job = Job(folder / "tp", 2, "--kind", "tensor-parallel", "--bad", "2:1:gradient", "--steps", "4")
    assert job.code == 0, job.err
    assert job.why()["decision"]["unanimous"] and finite(job)
    assert job.ranks[0]["losses"][3] == job.ranks[1]["losses"][3]  # the step after: its forward goes through parts of both


@pytest.mark.parametrize("kind", ["fully-shard", "fsdp"])
def test_fsdp__a_rank_that_leaves_its_optimizer_out_does_not_hang_the_others(folder, kind):
    """Its part of the parameters stays as it was, and its forward waits for that of the ranks that vote."""
    words = ("--kind", kind, "--bad", "2:1:continue", "--steps", "4", "--timeout", "60")
    job = Job(folder / f"leaves-{kind}", 2, *words, timeout=100)
    plain = Job(folder / f"leaves-{kind}-plain", 2, *words, guarded=False, timeout=100)
    assert job.code == 0, job.err
    assert job.ranks == plain.ranks
    assert any("rank 1 went on to its next forward, and left this update out" in line for line in job.said), job.err
