"""The tape and fb_locate_run against PyTorch: programs that firstbad did not write, in operators as PyTorch names them.

Each operator that aten dispatches, forward and backward, is told through ctypes (locate_tape.py, locate_program.py). What is
located is compared with brute force that knows no dataflow (locate_oracle.py), with torch's anomaly detection, with causes that were
derived by hand (locate_faults.py), and with random programs whose truth is carried along element by element (locate_random.py).
FIRSTBAD_BUILD names the build folder, FB_SEED=n draws other programs.
"""
import json
import os
import pathlib

import pytest

torch = pytest.importorskip("torch")

import locate_faults  # noqa: E402
import locate_healthy  # noqa: E402
import locate_oracle  # noqa: E402
import locate_random  # noqa: E402
import locate_structs  # noqa: E402
from locate_program import Locator  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
FAULTS, HEALTHY = locate_faults.FAULTS, locate_healthy.HEALTHY
OUT_OF_RANGE = 4
torch.set_num_threads(1)  # tensors are tiny, and spinning threads cost more than they bring


@pytest.fixture(scope="module")
def lib():
    path = BUILD / "libfirstbad.so"
    assert path.exists(), f"{path} is not there; run make, or set FIRSTBAD_BUILD"
    return locate_structs.load(path)


@pytest.fixture(autouse=True)
def fresh_memory_is_the_same_each_time():
    """torch.empty gives NaN then, and the same in each replay."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


def wider(fault):
    def make():
        program = fault.make()
        program.model.float()
        program.state = {name: t.clone() for name, t in program.model.state_dict().items()}
        program.batch = {name: t.float() if t.is_floating_point() else t for name, t in program.batch.items()}
        return program
    return make if fault.wider else None


def short(op):
    """As it is told: without the dispatcher's prefix, overload and leading underscores."""
    return op.split(".")[1].lstrip("_")


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.found in ("operator", "set")])
def test_locate__names_the_operator_that_repairing_it_proves(lib, name, tmp_path):
    fault = FAULTS[name]
    program = fault.make()
    finding = program.finding()
    assert finding, "the fault does not show"
    blamed = locate_oracle.to_blame(program, finding, fault.masks)
    assert [short(op) for _, op in blamed][0] == fault.op.lstrip("_"), (blamed, fault.op)
    assert len(blamed) == 1 or fault.found == "set"

    locator = Locator(lib, program, wider(fault))
    swept = locator.run(finding, folder=tmp_path)
    assert swept.found == fault.found, (swept, locator.failure)
    assert swept.source == f"#{blamed[0][0]}" and swept.op == short(blamed[0][1]) and swept.module == fault.module, swept
    assert swept.reproduced == swept.tried == 3 and swept.faithful
    assert swept.candidates == len(blamed)
    assert (swept.rule, swept.cause) == (fault.rule, fault.cause), swept
    if fault.rows is not None:
        assert swept.rows == fault.rows, swept
    assert swept.persists == fault.persists
    assert fault.node in ("", swept.node) and (swept.node != "") == (swept.boundary == locate_structs.LOCAL_GRAD), swept
    assert fault.says in swept.sentence, swept.sentence
    assert json.loads((tmp_path / "locate.json").read_text())["location"]["node"] == (swept.node or None)

    chain = json.loads((tmp_path / "locate.json").read_text())["chain"]
    assert chain[0]["source"] == swept.source and chain[0]["reads"] is None
    assert all(later["reads"] == before["made"] for before, later in zip(chain, chain[1:]))
    assert chain[-1]["tensor"] == finding[0] and chain[-1]["module"] == finding[1]

    halved = locator.run(finding, locate_structs.BISECT)
    assert halved.same_as(swept), (halved, swept)
    few = locator.run(finding, locate_structs.BISECT, probes_max=8)
    assert few.same_as(swept), (few, swept)


def test_locate__views_and_operators_in_place_hide_nobody_and_accuse_nobody(lib, tmp_path):
    """Random programs, with the truth carried along element by element."""
    first, searched = int(os.environ.get("FB_SEED", "1")) * 1000, 0
    for seed in range(first, first + 70):
        drawn = locate_random.draw(seed)
        if drawn is None:
            continue
        program, blamed = drawn
        finding, folder = program.finding(), tmp_path / str(seed)
        folder.mkdir()
        swept = Locator(lib, program).run(finding, folder=folder)
        told = json.loads((folder / "locate.json").read_text())
        named = {link["source"] for link in told["candidates"]} or {swept.source}
        later = {link["source"] for link in told["later"]}
        assert swept.found == ("operator" if len(named) == 1 else "set"), (seed, swept)
        assert named <= blamed <= named | later, (seed, swept, blamed, named, later)
        assert Locator(lib, program).run(finding, locate_structs.BISECT).same_as(swept), seed
        searched += 1
    assert searched >= 10


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.anomaly])
def test_locate__names_the_function_that_anomaly_detection_names(lib, name):
    fault = FAULTS[name]
    program = fault.make()
    finding = program.finding()
    assert locate_oracle.anomaly(fault.make()) == fault.anomaly
    locator = Locator(lib, program)
    found = locator.run(finding)
    if found.boundary == locate_structs.LOCAL_GRAD:
        assert locator.nodes[int(found.source[1:])] == fault.anomaly, found
    else:  # forward made it, and the backward of that very operator read it again
        assert fault.anomaly.lower() == f"{fault.op}backward0", found


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.found == "entry"])
def test_locate__blames_no_operator_for_what_was_bad_before(lib, name):
    fault = FAULTS[name]
    program = fault.make()
    finding = program.finding()
    for strategy in (locate_structs.SWEEP, locate_structs.BISECT):
        found = Locator(lib, program).run(finding, strategy)
        assert found.found == "entry" and found.op == "", found
        assert (found.rule, found.cause) == (fault.rule, fault.cause), found
        assert fault.rows is None or found.rows == fault.rows, found


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.raises])
def test_locate__a_step_that_raises_names_nobody(lib, name):
    fault = FAULTS[name]
    locator = Locator(lib, fault.make())
    found = locator.run(("tokens", "batch", locate_structs.INPUT), kind=OUT_OF_RANGE)
    assert fault.raises in str(locator.failure)
    assert found.found == "undecided" and found.op == "", found
    assert (found.rule, found.cause) == ("batch", "token_out_of_range"), found


def accuses_nobody(lib, program):
    program.restore()
    places = program.step(program.some_batch(None))
    assert all(place[3] for place in places), "it is not well"
    for place in places[:4] + places[-2:]:
        found = Locator(lib, program).run(place)
        assert found.found == "not_reproduced" and found.op == "" and found.reproduced == 0 and found.faithful, found
    found = Locator(lib, program).run(places[0], locate_structs.BISECT)
    assert found.found == "not_reproduced" and found.op == "", found


@pytest.mark.parametrize("name", HEALTHY)
def test_locate__accuses_nobody_in_a_model_that_is_well(lib, name):
    accuses_nobody(lib, HEALTHY[name]())


@pytest.mark.parametrize("make", [locate_healthy.gpt2, locate_healthy.llama])
def test_locate__accuses_nobody_in_a_model_of_transformers(lib, make):
    program = make()
    if program is None:
        pytest.skip("the package transformers is not installed")
    program.restore()
    places = program.step(program.some_batch(None))
    assert all(place[3] for place in places)
    for place in (places[0], places[1], places[-1]):
        found = Locator(lib, program).run(place)
        assert found.found == "not_reproduced" and found.op == "" and found.faithful, found


@pytest.mark.parametrize("make, weights", [(locate_healthy.gpt2, ("h.0.ln_2.weight", "h.0.mlp.c_fc.weight")),
                                           (locate_healthy.llama, ("model.norm.weight", "lm_head.weight"))])
def test_locate__finds_where_weights_overflow_in_a_model_of_transformers(lib, make, weights):
    program = make()
    if program is None:
        pytest.skip("the package transformers is not installed")
    for name in weights:
        [full] = [full for full in program.state if full.endswith(name)]
        program.state[full].fill_(1e30)
    finding = program.finding()
    blamed = locate_oracle.to_blame(program, finding, False)
    found = Locator(lib, program).run(finding)
    assert found.found == "operator" and [found.source] == [f"#{number}" for number, _ in blamed], (found, blamed)
    assert found.module.endswith(weights[1].rpartition(".")[0]) and (found.rule, found.cause) == ("range", "overflow"), found
