"""Who the ranks are, how they agree to vote, and what happens when one of them does not come."""
from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
import torch.distributed as dist
from several_ranks import BUILD, Job, same

if not (BUILD / "firstbad").exists():
    pytest.skip("the tool is not built", allow_module_level=True)

from firstbad import _abi as abi
from firstbad.pytorch import ranks, sharded, silent
from firstbad.pytorch.arming import Rendezvous, turn

# ---- the rendezvous --------------------------------------------------------------------------------------------------------------


def meet(world, seconds, come, judge=lambda said: "all: " + ",".join(said), late={}):
    """What each rank of `come` got."""
    store = dist.HashStore()
    got = {}

    def one(rank):
        time.sleep(late.get(rank, 0))
        got[rank] = Rendezvous(store, rank, world, seconds).agree("x", f"i{rank}", judge, lambda away: f"away: {away}")

    threads = [threading.Thread(target=one, args=(rank,)) for rank in come]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_arming__all_ranks_read_one_text():
    got = meet(4, 5, range(4))
    assert {answer.text for answer in got.values()} == {"all: i0,i1,i2,i3"}


def test_arming__a_rank_that_does_not_come_is_named_to_the_others():
    assert {answer.text for answer in meet(3, 0.2, (0, 2)).values()} == {"away: [1]"}


def test_arming__a_rank_that_comes_too_late_reads_that_it_was_missed():
    got = meet(3, 0.2, range(3), late={1: 0.6})
    assert {answer.text for answer in got.values()} == {"away: [1]"}


def test_arming__without_rank_0_nobody_agrees(monkeypatch):
    store = dist.HashStore()
    one = Rendezvous(store, 1, 2, 0.05)
    monkeypatch.setattr(Rendezvous, "_wait", lambda *_: False)
    answer = one.agree("x", "i1", None, None)
    assert answer.text is None and "rank 0 was not there" in answer.why


def test_arming__a_rank_that_gave_up_is_not_counted(monkeypatch):
    store = dist.HashStore()
    with monkeypatch.context() as patched:
        patched.setattr(Rendezvous, "_wait", lambda *_: False)
        assert Rendezvous(store, 1, 2, 0.05).agree("x", "i1", None, None).text is None
    answer = Rendezvous(store, 0, 2, 5).agree("x", "i0", lambda said: "all", lambda away: f"away: {away}")
    assert answer.text == "away: [1]"


def test_arming__a_rank_that_is_counted_waits_for_the_text(monkeypatch):
    """It has waited long enough, and rank 0 locked it at that moment: it may not go."""
    store = dist.HashStore()
    rank = Rendezvous(store, 1, 2, 0.05)

    def locked(*_):
        assert store.compare_set("firstbad/x/1", "here:i1", "locked") == b"locked"
        threading.Timer(0.2, lambda: store.set("firstbad/x/told", "all")).start()
        return False

    monkeypatch.setattr(rank, "_wait", locked)
    assert rank.agree("x", "i1", None, None).text == "all"


def test_arming__the_keys_of_workers_that_an_agent_started_before_are_not_those_of_its_next(monkeypatch):
    """torchrun keeps its store from one restart to the next. A job of torch's own may hang on that, so none is run here."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    first = turn(1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert turn(1) != first and turn(2) != turn(1)
    monkeypatch.setenv("WORLD_SIZE", "4")  # agents of two nodes, which count each their own restarts
    assert turn(1) == "1"


def test_arming__a_store_that_fails_is_no_agreement_and_no_exception():
    class Broken:
        def compare_set(self, *_):
            raise RuntimeError("connection lost")

    answer = Rendezvous(Broken(), 0, 2, 1).agree("x", "i0", None, None)
    assert answer.text is None and "connection lost" in answer.why


# ---- who moves together ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups, world, joined", [([], 1, True), ([], 2, False), ([(0, 1)], 2, True), ([(0, 1)], 3, False),
                                                   ([(0, 1), (2, 3)], 4, False), ([(0, 1), (2, 3), (1, 2)], 4, True),
                                                   ([(0, 2), (1, 3), (0, 1), (2, 3)], 4, True)])
def test_ranks__vote_only_where_groups_join_all_of_them(groups, world, joined):
    assert sharded.connected(groups, world) is joined


def test_ranks__what_torch_raises_for_a_lost_peer_is_told_from_other_errors():
    lost = ["[gloo/transport/tcp/pair.cc:537] Connection closed by peer [127.0.0.1]:1",
            "Timed out waiting 6000ms for recv operation",
            "NCCL error in: ProcessGroupNCCL.cpp"]
    assert all(ranks.is_collective_failure(RuntimeError(text)) for text in lost)
    assert not ranks.is_collective_failure(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not ranks.is_collective_failure(ValueError("Connection closed by peer"))


# ---- who is silent ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def child():
    one = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield one
    one.kill()
    one.wait()


def test_silent__a_killed_process_is_seen_before_anybody_has_waited_for_it(child):
    process = silent.Process(silent.me().place, child.pid, silent._since(child.pid)[1])
    assert silent.seen(process) == "running"
    child.kill()
    for _ in range(200):
        if silent.seen(process) == "ended":
            return
        time.sleep(0.01)
    pytest.fail("a process that was killed is not seen")


def test_silent__a_stopped_process_is_named(child):
    process = silent.Process(silent.me().place, child.pid, silent._since(child.pid)[1])
    os.kill(child.pid, signal.SIGSTOP)
    found = silent.find(None, "x", 0, [silent.me(), process])
    assert list(found.ranks) == [1] and found.certain and found.text().startswith(f"rank 1 stopped (process {child.pid} of ")


def test_silent__a_number_that_was_given_out_again_is_not_the_rank():
    me = silent.me()
    assert silent.seen(me) == "running" and silent.seen(me._replace(since="1")) == "ended"


def test_silent__a_process_of_another_machine_is_asked_through_the_store():
    store = dist.HashStore()
    far = [silent.Process("node-7 pid:[1]", 5, "9")] * 3
    store.set("x/2", "here")
    found = silent.find(store, "x", 0, far, seconds=0.2)
    assert list(found.ranks) == [1] and not found.certain and "gave no answer" in found.text()


def test_silent__a_store_that_hangs_does_not_hold_us():
    class Hangs:
        def set(self, *_):
            time.sleep(30)

    began = time.monotonic()
    silent.find(Hangs(), "x", 0, [], seconds=0.2)
    assert time.monotonic() - began < 10


# ---- a process on its own --------------------------------------------------------------------------------------------------------


@pytest.fixture
def clean(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("FIRSTBAD_") and name not in ("FIRSTBAD_BUILD", "FIRSTBAD_LIBRARY") \
                or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FIRSTBAD_DIR", str(tmp_path))
    return monkeypatch


def test_ranks__a_single_process_is_rank_0_of_1_and_agrees_with_itself(clean):
    alone = ranks.join(None)
    assert (alone.rank, alone.world, alone.run_id, alone.attempt, alone.agreement) == (0, 1, "", 0, abi.AGREE_VOTE)
    assert alone.min4([1, 2, 3, 4]) == (1, 2, 3, 4) and alone.max_ints([5]) == [5]


def test_ranks__a_world_without_torch_distributed_is_not_voted_in(clean):
    clean.setenv("WORLD_SIZE", "4")
    clean.setenv("RANK", "3")
    clean.setenv("FIRSTBAD_RUN_ID", "night")
    clean.setenv("FIRSTBAD_ATTEMPT", "2")
    one = ranks.join(None)
    assert (one.rank, one.world, one.run_id, one.attempt, one.agreement) == (3, 4, "night", 2, abi.AGREE_NONE)
    assert one.max_ints is None and any("not initialised" in line for line in one.not_covered)


def test_ranks__nobody_named_the_run_so_each_process_is_one_of_its_own(clean):
    clean.setenv("WORLD_SIZE", "2")
    clean.setenv("RANK", "1")
    assert (ranks.join(None).rank, ranks.join(None).world) == (0, 1)


@pytest.mark.parametrize("rank, world", [("x", "2"), ("5", "2"), ("-1", "2"), ("0", "0")])
def test_ranks__variables_that_cannot_be_are_not_believed(clean, rank, world):
    clean.setenv("WORLD_SIZE", world)
    clean.setenv("RANK", rank)
    clean.setenv("FIRSTBAD_RUN_ID", "night")
    one = ranks.join(None)
    assert (one.rank, one.world) in ((0, 1), (0, 2))


def test_ranks__a_second_training_below_one_launch_takes_the_next_attempt(clean, tmp_path):
    clean.setenv("FIRSTBAD_RUN_ID", "night")
    clean.setenv("FIRSTBAD_ATTEMPT", "1")
    assert ranks.join(None).attempt == 1
    (tmp_path / "night/ledger/a1").mkdir(parents=True)
    (tmp_path / "night/ledger/a1/r00000.log").touch()
    assert ranks.join(None).attempt == 2


def test_ranks__the_environment_names_the_attempt_while_the_run_is_opened_and_not_after(clean):
    clean.setenv("FIRSTBAD_ATTEMPT", "1")
    one = ranks.Ranks()
    one.run_id, one.attempt = "night", 3
    with one.environment():
        assert os.environ["FIRSTBAD_ATTEMPT"] == "3" and os.environ["FIRSTBAD_RUN_ID"] == "night"
    assert os.environ["FIRSTBAD_ATTEMPT"] == "1" and "FIRSTBAD_RUN_ID" not in os.environ


def test_ranks__a_vote_that_fails_once_is_never_tried_again(clean):
    class Group:
        calls = 0

        def allreduce(self, *_):
            Group.calls += 1
            raise RuntimeError("Connection closed by peer")

    one = ranks.Ranks(0, 2)
    one.group = Group()
    assert one.min4([1, 2, 3, 4]) is None and one.min4([1, 2, 3, 4]) is None and Group.calls == 1
    with pytest.raises(ranks.RanksLost, match="Connection closed"):
        one.max_ints([1])


# ---- real ranks ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ranks")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def told(job):
    """What `why` knows of a rank that was lost in step 2. Ranks that hung in a collective until the launcher ended them did not
    vote either; which one was lost is what the others saw."""
    text = " ".join(job.why_text().split())
    assert re.search(r"Undecided no vote of rank (\d+, )*1(, \d+)* at step 2", text), text
    return text


def test_ranks__a_killed_rank_is_named_at_once_and_in_why(folder):
    job = Job(folder / "kill", 4, "--die", "2:1:kill", "--steps", "4")
    assert job.code == 1
    named = [line for line in job.said if "rank 1 ended (process " in line and not line.startswith("firstbad: undecided: ")]
    assert named and all(line.startswith("firstbad: step 2 is not applied on rank ") for line in named), job.err
    assert "nothing is guarded from step 2 on: rank 1 ended (process " in told(job)


def test_ranks__of_those_without_a_vote_the_one_that_ended_is_told_and_the_job_is_known_to_be_over(folder):
    """Ranks that waited in a collective until the launcher ended them have no vote either."""
    job = Job(folder / "kill-said", 4, "--die", "2:1:kill", "--steps", "4")
    assert " voted, and saw that rank 1 ended (process " in told(job)
    last = next(line for line in job.said if line.startswith("firstbad: undecided: no vote of rank "))
    assert " voted, and saw that rank 1 ended (process " in last and "still be running" not in last


def test_ranks__a_stopped_rank_is_named_when_the_jobs_own_timeout_is_over(folder):
    job = Job(folder / "stop", 2, "--die", "2:1:stop", "--steps", "4", "--timeout", "5")
    assert job.code == 1
    assert any("rank 1 stopped (process " in line for line in job.said), job.err
    assert "rank 1 stopped (process " in told(job)


def test_ranks__a_restart_by_torchrun_is_an_attempt_of_its_own(folder):
    job = Job(folder / "restart", 2, "--die", "2:1:raise", "--steps", "4", "--checkpoint", "state.pt",
              launcher=["--max-restarts", "1"])
    if job.code and "Gloo connectFullMesh failed" in job.err:
        # Before anybody trains: the workers that were started again read the addresses of those that are dead. It happens without us.
        pytest.skip("torch's gloo did not come up again after the restart")
    assert job.code == 0, job.err
    assert same([job], "parameters", "updates") and [rank["updates"] for rank in job.ranks] == [4, 4]
    ledgers = sorted(str(path.relative_to(job.folder / "runs/job/ledger")) for path in job.folder.glob("runs/job/ledger/a*/r*.log"))
    assert ledgers == ["a1/r00000.log", "a1/r00001.log", "a2/r00000.log", "a2/r00001.log"]


def test_ranks__one_that_leaves_its_optimizer_out_does_not_hang_the_others(folder):
    job = Job(folder / "leaves", 2, "--bad", "2:1:continue", "--steps", "4", timeout=200)
    assert job.code == 0, job.err
    assert any("rank 1 went on to its next forward, and left this update out" in line for line in job.said), job.err
    assert all(any("nothing is guarded from step 2 on" in line for line in left["not_covered"]) for left in job.python())


def test_ranks__one_that_changes_its_gradients_after_the_vote_begins_no_vote_alone(folder):
    """A vote of that rank alone met the next one of the others, and ended a healthy job."""
    job = Job(folder / "touch", 2, "--clip", "--touch", "3:1:1.0", timeout=100)
    plain = Job(folder / "touch-plain", 2, "--clip", guarded=False)
    assert job.code == 0 and job.said == [], job.err
    assert job.ranks == plain.ranks and [left["not_covered"] for left in job.python()] == [[], []]


def test_ranks__one_that_makes_its_gradients_bad_after_the_vote_stops_and_says_so(folder):
    job = Job(folder / "spoil", 2, "--clip", "--touch", "3:1:nan", "--timeout", "60", timeout=100)
    assert job.code == 86, job.err
    assert job.said[0].startswith("firstbad: step 3 is not applied on rank 1: the vote did not complete: gradients were changed "
                                  "here after the ranks had voted, are not finite"), job.err
    assert not any("is off from here" in line for line in job.said)
    assert any(line.startswith("firstbad: step 4 is not applied on rank 0: rank 1 ended (process ") for line in job.said), job.err
    first = job.why()["first_bad"]
    assert (first["step"], first["rank"]) == (3, 1)


def test_ranks__gradients_that_all_ranks_make_bad_after_the_vote_are_left_out_on_all(folder):
    job = Job(folder / "spoil-all", 2, "--clip", "--touch", "3:all:nan", env={"FIRSTBAD_LOCATE": "none"}, timeout=100)
    assert job.code == 0, job.err
    assert same([job], "parameters", "moments", "updates") and [rank["updates"] for rank in job.ranks] == [4, 4]
    assert all("nan" not in loss for rank in job.ranks for loss in rank["losses"])
    assert job.why()["decision"]["unanimous"] and not any("vote did not complete" in line for line in job.said)


def test_ranks__a_run_that_only_observes_goes_on_when_one_rank_makes_its_gradients_bad_after_the_vote(folder):
    job = Job(folder / "spoil-seen", 2, "--clip", "--touch", "4:1:nan", env={"FIRSTBAD_ON_BAD": "observe"}, timeout=100)
    assert job.code == 0, job.err
    assert any("changed after the vote" in line for line in job.python()[1]["not_covered"])


def test_ranks__a_backward_of_one_rank_that_is_no_update_is_heard_of_by_no_vote(folder):
    """A map of gradients, drawn by one rank: it gave a step up alone, and the next vote halted a healthy job."""
    job = Job(folder / "look", 2, "--look", "3:0", timeout=100)
    plain = Job(folder / "look-plain", 2, "--look", "3:0", guarded=False)
    assert job.code == 0 and job.said == [], job.err
    assert job.ranks == plain.ranks and job.why()["status"] == "clean"


def test_ranks__what_all_ranks_leave_out_by_themselves_was_not_applied(folder):
    """The local gradient that was bad is none of the update that came in its place, under the same number."""
    job = Job(folder / "leave", 2, "--leave", "--bad", "3:1:gradient", timeout=100)
    plain = Job(folder / "leave-plain", 2, "--leave", "--bad", "3:1:gradient", guarded=False)
    assert job.code == 0 and job.said == [], job.err
    assert job.ranks == plain.ranks and job.why()["first_bad"] is None


def test_ranks__one_that_decides_for_itself_does_not_speak_for_the_others(folder):
    """Nothing averages these gradients: rank 0 goes on, and its updates are applied."""
    job = Job(folder / "alone", 2, "--kind", "plain", "--bad", "2:1:gradient", env={"FIRSTBAD_LOCATE": "none"}, timeout=100)
    assert job.said[0].startswith("firstbad: step 2 was not applied on rank 1, where each of the 2 decides for itself: "
                                  "a non-finite gradient on rank 1"), job.err
    assert "came out of it" not in job.err


def test_ranks__a_vote_that_failed_is_no_fault_of_a_rank_without_a_number():
    from types import SimpleNamespace

    from firstbad.pytorch.words import words_of
    verdict = SimpleNamespace(step=7, action=abi.HALT, agreement=abi.AGREE_VOTE, unanimous=-1, first_rank=-1, first_boundary=0,
                              consecutive_skips=0, case_id=b"a1-000007")
    said = words_of(verdict, -1, 4, "runs/x").headline
    assert said == "step 7 was not applied on this rank, which does not know of the others: a rank did not vote"
    verdict.unanimous = 0
    said = words_of(verdict, -1, 4, "runs/x").headline
    assert said.startswith("step 7 was not applied on any of 4 ranks: the ranks do not agree")


def test_ranks__below_join_nobody_votes_and_everybody_ends(folder):
    job = Job(folder / "join", 2, "--kind", "join", "--steps", "3")
    assert job.code == 0, job.err
    assert same([job], "parameters")
    assert all(any("Join" in line for line in left["not_covered"]) for left in job.python())


def test_ranks__without_a_vote_the_averages_decide_alike_on_all_ranks(folder):
    job = Job(folder / "norm", 2, "--bad", "2:1:gradient", "--steps", "4",
              env={"FIRSTBAD_VOTE": "never", "FIRSTBAD_LOCATE": "none"})
    assert job.code == 0, job.err
    assert same([job], "parameters", "moments", "updates") and [rank["updates"] for rank in job.ranks] == [3, 3]
    assert any("ranks do not vote: switched off" in line for left in job.python() for line in left["not_covered"])


def test_ranks__a_rank_that_comes_late_to_the_first_update_costs_the_vote_and_nothing_else(folder):
    job = Job(folder / "late", 2, "--kind", "manual", "--steps", "3",
              env={"FIRSTBAD_VOTE": "always", "FIRSTBAD_ARM_SECONDS": "0.1"})
    again = Job(folder / "plain", 2, "--kind", "manual", "--steps", "3", guarded=False)
    assert job.code == 0 and [rank["losses"] for rank in job.ranks] == [rank["losses"] for rank in again.ranks]
