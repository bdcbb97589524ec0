"""DistributedDataParallel under `firstbad run`, on real ranks: the rank that brought a bad gradient is named, everybody skips
alike, and a run in which nothing happens is the same run to the last bit."""
from __future__ import annotations

import importlib.util
import shutil

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

from several_ranks import BUILD, Job, same

if not (BUILD / "firstbad").exists():
    pytest.skip("the tool is not built", allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ddp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def plain(folder):
    return Job(folder / "plain", 2, "--clip", guarded=False)


@pytest.fixture(scope="module")
def healthy(folder):
    return Job(folder / "healthy", 2, "--clip")


@pytest.fixture(scope="module")
def bad(folder):
    """Rank 1's loss is finite at step 3, and its gradient is not."""
    return Job(folder / "bad", 2, "--clip", "--bad", "3:1:gradient")


def test_ddp__healthy_ranks_are_the_same_to_the_last_bit(plain, healthy):
    assert plain.code == healthy.code == 0, healthy.err
    assert len(plain.ranks) == 2 and plain.ranks == healthy.ranks
    assert healthy.said == [] and [left["not_covered"] for left in healthy.python()] == [[], []]


def test_ddp__every_gradient_of_every_rank_is_covered_and_voted_on(healthy):
    why = healthy.why()
    assert why["status"] == "clean"
    assert "10 of 10 applied updates had a clean vote over all gradients" in " ".join(healthy.why_text().split())
    assert "local gradients (all 8), reduced gradients (all 8)" in " ".join(healthy.why_text().split())


def test_ddp__a_finite_loss_with_a_bad_gradient_names_its_rank(bad):
    assert bad.code == 0, bad.err
    first = bad.why()["first_bad"]
    assert (first["step"], first["rank"], first["micro_step"]) == (3, 1, 0)
    assert bad.said[0].startswith("firstbad: step 3 was not applied on any of 2 ranks: a non-finite gradient on rank 1")


def test_ddp__the_operator_and_the_line_are_those_of_the_rank_that_brought_it(bad):
    first = bad.why()["first_bad"]
    assert "div" in first["operator"] and first["source"].startswith("several.py:")


def test_ddp__after_a_skip_all_ranks_are_equal_and_one_update_behind(bad, healthy):
    assert same([bad], "parameters", "moments", "updates")
    assert [rank["updates"] for rank in bad.ranks] == [4, 4] and [rank["updates"] for rank in healthy.ranks] == [5, 5]


def test_ddp__nothing_of_the_bad_update_stays(bad, healthy):
    assert all("nan" not in loss for rank in bad.ranks for loss in rank["losses"])
    assert [rank["stream"] for rank in bad.ranks] == [rank["stream"] for rank in healthy.ranks]
    decision = bad.why()["decision"]
    assert decision["action"] == "skip" and decision["unanimous"] and decision["agreement"] == "vote"


def test_ddp__a_forward_that_was_put_there_for_one_call_is_that_of_the_replay(folder, bad):
    """Lightning calls training_step in the place of forward; its module may have no forward at all."""
    job = Job(folder / "redirect", 2, "--clip", "--redirect", "--bad", "3:1:gradient")
    assert job.code == 0, job.err
    first = job.why()["first_bad"]
    assert first["operator"] == bad.why()["first_bad"]["operator"] and first["rank"] == 1
    assert job.why()["replay"]["faithful"] is True and same([job], "parameters", "moments", "updates")


def test_ddp__what_powersgd_keeps_of_a_bad_update_does_not_make_the_next_ones_bad(folder):
    words = ("--power", "--steps", "8", "--bad", "5:1:gradient")
    job = Job(folder / "power", 2, *words, env={"FIRSTBAD_LOCATE": "none"})
    assert job.code == 0, job.err
    assert same([job], "parameters", "moments", "updates") and [rank["updates"] for rank in job.ranks] == [7, 7]
    assert sum("was not applied" in line for line in job.said) == 2  # as it happened, and as the command ended
    assert any("PowerSGD" in line for left in job.python() for line in left["not_covered"])


def test_ddp__buckets_that_are_reduced_in_place_are_read_before(folder):
    job = Job(folder / "view", 2, "--bucket-view", "--bad", "2:1:gradient", "--steps", "4", env={"FIRSTBAD_LOCATE": "none"})
    assert job.code == 0, job.err
    first = job.why()["first_bad"]
    assert (first["step"], first["rank"], first["boundary"]) == (2, 1, "local_gradient")
    assert same([job], "parameters", "moments", "updates")


def test_ddp__the_micro_step_is_named_below_no_sync_and_on_four_ranks(folder):
    job = Job(folder / "four", 4, "--micro", "3", "--no-sync", "--find-unused", "--bad", "2:2:gradient:1", "--steps", "4",
              env={"FIRSTBAD_LOCATE": "none"})
    assert job.code == 0, job.err
    first = job.why()["first_bad"]
    assert (first["step"], first["rank"], first["micro_step"], first["boundary"]) == (2, 2, 1, "local_gradient")
    assert len(job.ranks) == 4 and same([job], "parameters", "moments", "updates")


def test_ddp__what_other_ranks_sent_in_an_earlier_micro_step_is_not_taken_for_ours(folder):
    """Accumulation without no_sync: after the first micro-step every rank has rank 1's NaN in its gradients."""
    job = Job(folder / "mixed", 2, "--micro", "3", "--bad", "2:1:gradient:0", "--steps", "4", env={"FIRSTBAD_LOCATE": "none"})
    assert job.code == 0, job.err
    first = job.why()["first_bad"]
    assert (first["step"], first["rank"], first["micro_step"], first["boundary"]) == (2, 1, 0, "local_gradient")
    assert all(member["rank"] == 1 for member in job.why()["first_bad_set"])
    assert any("lie on top of what other ranks sent" in line for left in job.python() for line in left["not_covered"])


def test_ddp__a_zero_redundancy_optimizer_is_withheld_on_all_ranks(folder):
    job = Job(folder / "zero", 2, "--kind", "zero", "--bad", "2:0:gradient", "--steps", "4", env={"FIRSTBAD_LOCATE": "none"})
    assert job.code == 0, job.err
    assert job.why()["first_bad"]["rank"] == 0 and same([job], "parameters")
    assert all("nan" not in loss for rank in job.ranks for loss in rank["losses"])
