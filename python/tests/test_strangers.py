"""Training loops of people who have never heard of firstbad, under `firstbad run`: healthy they are left alone to the last bit,
and a fault is withheld and named as it is true of it (stranger_truths.py)."""
from __future__ import annotations

import pytest
import stranger_checks as checks
from stranger_runs import Pool
from stranger_truths import LOOPS

pytest.importorskip("torch", reason="torch is not installed")

ALL = [checks.parameter(stranger) for stranger in LOOPS]


@pytest.fixture(scope="module")
def pool(tmp_path_factory, request):
    pool = Pool(tmp_path_factory.mktemp("loops"))
    checks.announce(pool, request.session.items, __name__)
    yield pool
    pool.close()


@pytest.mark.parametrize("stranger", ALL)
def test_healthy__is_left_alone_to_the_last_bit_and_gated(pool, stranger):
    checks.healthy(pool, stranger)


@pytest.mark.parametrize("stranger", ALL)
def test_fault__is_withheld_and_named(pool, stranger):
    checks.faulty(pool, stranger)


@pytest.mark.parametrize("stranger", [checks.parameter(s) for s in LOOPS if s.name in ("nanogpt", "contrastive", "lbfgs")])
def test_halt__ends_with_86_at_the_first_fault(pool, stranger):
    checks.halted(pool, stranger)


@pytest.mark.skipif(not checks.SLOW, reason="of the truths, not of firstbad; FIRSTBAD_SLOW=1 runs it")
@pytest.mark.parametrize("stranger", ALL)
def test_truth__the_fault_is_one(pool, stranger):
    checks.broken(pool, stranger)


def test_resume__goes_on_where_a_skip_left_it(tmp_path):
    checks.resume_nanogpt(tmp_path)


def test_ids__that_the_table_does_not_have_are_named_before_torch_raises(tmp_path):
    checks.shifted_ids(tmp_path)
