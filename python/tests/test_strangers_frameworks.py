"""Hugging Face Trainer, peft, TRL, Lightning, Accelerate, DDP and FSDP2 under `firstbad run`, as their users call them."""
from __future__ import annotations

import pytest
import stranger_checks as checks
from stranger_runs import Pool
from stranger_truths import FRAMEWORKS

pytest.importorskip("torch", reason="torch is not installed")

ALL = [checks.parameter(stranger) for stranger in FRAMEWORKS]


@pytest.fixture(scope="module")
def pool(tmp_path_factory, request):
    pool = Pool(tmp_path_factory.mktemp("frameworks"))
    checks.announce(pool, request.session.items, __name__)
    yield pool
    pool.close()


@pytest.mark.parametrize("stranger", ALL)
def test_healthy__is_left_alone_to_the_last_bit_and_gated(pool, stranger):
    checks.healthy(pool, stranger)


@pytest.mark.parametrize("stranger", ALL)
def test_fault__is_withheld_and_named(pool, stranger):
    checks.faulty(pool, stranger)


@pytest.mark.parametrize("stranger", [checks.parameter(s) for s in FRAMEWORKS if s.name in ("hf-gpt2", "lightning", "ddp-2")])
def test_halt__ends_with_86_at_the_first_fault(pool, stranger):
    checks.halted(pool, stranger)


@pytest.mark.skipif(not checks.SLOW, reason="of the truths, not of firstbad; FIRSTBAD_SLOW=1 runs it")
@pytest.mark.parametrize("stranger", ALL)
def test_truth__the_fault_is_one(pool, stranger):
    checks.broken(pool, stranger)


def test_resume__of_a_trainer_goes_on_where_it_was(tmp_path):
    checks.resume_trainer(tmp_path)
