"""A healthy run is the same run: losses, parameters, optimizer state and random streams are equal to the last bit, nothing is
said."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import guarded  # noqa: E402
import guarded_programs  # noqa: E402

NAMES = list(guarded_programs.BY_NAME)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return guarded.programs(tmp_path_factory.mktemp("plain"), False, -1, NAMES)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return guarded.programs(tmp_path_factory.mktemp("guarded"), True, -1, NAMES)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Every update is held back."""
    return guarded.programs(tmp_path_factory.mktemp("held"), True, -1, NAMES, FIRSTBAD_HOLD="all")


@pytest.mark.parametrize("name", NAMES)
def test_identity__a_guarded_run_is_the_same_run(name, plain, watched):
    assert watched[name]["result"] == plain[name]["result"]
    assert watched[name]["updates"] > 0 or name == "by_hand"


def test_identity__updates_that_are_made_by_hand_are_told_as_not_gated(watched):
    assert watched["by_hand"]["updates"] == 0
    assert any("without a step of any optimizer of torch" in line for line in watched["by_hand"]["not_covered"])


@pytest.mark.parametrize("name", NAMES)
def test_identity__an_update_that_is_held_back_is_the_same_update(name, plain, held):
    assert held[name]["result"] == plain[name]["result"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "scaled_overflow"])
def test_identity__nothing_is_withheld_in_a_healthy_run(name, watched):
    assert watched[name]["skips"] == 0
    assert not [line for line in watched[name]["not_covered"] if "failed" in line]
    assert "firstbad:" not in watched[name]["stderr"], watched[name]["stderr"]


def test_identity__skips_of_a_scaler_that_seeks_its_scale_are_no_case(watched):
    assert 0 < watched["scaled_overflow"]["skips"] < watched["scaled_overflow"]["updates"]
    assert "firstbad:" not in watched["scaled_overflow"]["stderr"]
