"""An update that would carry NaN into the state is an exact no-op: parameters, moments, counters, buffers, schedules and
averages."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import guarded  # noqa: E402
import guarded_programs  # noqa: E402

NAMES = list(guarded_programs.BY_NAME)
POISONED = [name for name in NAMES if name not in ("scaled_overflow", "by_hand")]
BAD = 2


@pytest.fixture(scope="module")
def skipped(tmp_path_factory):
    """Update 2 of each program is bad; updates 0 and 1 were held back, this one is not."""
    return guarded.programs(tmp_path_factory.mktemp("skipped"), True, BAD, POISONED, FIRSTBAD_LOCATE="none")


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The first update of all is bad."""
    return guarded.programs(tmp_path_factory.mktemp("first"), True, 0, POISONED, FIRSTBAD_LOCATE="none")


@pytest.mark.parametrize("name", [name for name in POISONED if name not in ("compiled_later",)])
def test_skip__the_state_is_what_it_was(name, skipped):
    report = skipped[name]
    assert report["skips"] == 1, report["stderr"]
    seen = report["result"]["seen"]
    if len(seen) > BAD + 1:
        assert seen[BAD] == seen[BAD + 1]
    assert seen[BAD - 1] != seen[BAD]
    if len(seen) > BAD + 2:
        assert seen[BAD + 1] != seen[BAD + 2]


@pytest.mark.parametrize("name", POISONED)
def test_skip__so_it_is_in_the_first_update(name, first):
    report = first[name]
    assert report["skips"] >= 1, report["stderr"]
    seen = report["result"]["seen"]
    assert seen[0] == seen[1]
    assert len(seen) < 3 or seen[1] != seen[2]


@pytest.mark.parametrize("name", POISONED)
def test_skip__no_number_that_is_not_finite_reaches_the_end(name, skipped):
    assert "failed and is off" not in skipped[name]["stderr"]
    losses = str(skipped[name]["result"].get("losses", skipped[name]["result"].get("second")))
    assert losses.count("nan") <= 2, losses
