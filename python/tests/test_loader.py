"""Which samples are in a batch, with torch's real DataLoader and what is put around it; and samples that are left out."""
from __future__ import annotations

import os
import sys
from typing import Any, Iterator, List

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler  # noqa: E402

from firstbad.pytorch import batch, loader  # noqa: E402
from torch_session import fresh  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def patched(monkeypatch: Any) -> Iterator[Any]:
    monkeypatch.delenv("FIRSTBAD_LEAVE_OUT", raising=False)
    patches = fresh()
    loader.install(patches)
    yield patches
    patches.uninstall()


class Squares(Dataset):  # type: ignore[misc]
    """Sample i is i, and its square."""

    def __init__(self, count: int = 20) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.tensor([float(index)]), "y": torch.tensor(index * index)}


class Slow(Squares):
    """Early samples take longer, so that workers overtake each other."""

    def __getitem__(self, index: int) -> Any:
        import time

        time.sleep(0.02 if index < 8 else 0.0)
        return super().__getitem__(index)


class Root(torch.nn.Module):
    def forward(self, x: Any, y: Any = None) -> Any:
        return x


def known(*args: Any, **kwargs: Any) -> Any:
    return loader.match(list(batch.fields_of(Root(), args, kwargs, 0)))


def truth(data: Any) -> List[int]:
    return [int(value) for value in data["x"].reshape(-1)]


@pytest.mark.parametrize("options", [
    {}, {"shuffle": True}, {"num_workers": 2, "shuffle": True},
    {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}, {"num_workers": 2, "in_order": False}],
    ids=["plain", "shuffle", "workers", "persistent", "overtaking"])
def test_loader__the_samples_of_each_batch_are_those_that_are_in_it(options: Any) -> None:
    if options.get("in_order") is False and "in_order" not in DataLoader.__init__.__code__.co_varnames:
        pytest.skip("this torch has no in_order")
    data = DataLoader(Slow() if "in_order" in options else Squares(), batch_size=4, **options)
    seen: List[int] = []
    for epoch in range(2):
        for step, one in enumerate(data):
            found = known(one["x"], y=one["y"])
            assert found is not None and found.indices == truth(one)
            assert found.number == epoch * 5 + step
            seen += found.indices
    assert sorted(seen) == sorted(list(range(20)) * 2)


def test_loader__samplers_of_indices_and_single_samples_are_known() -> None:
    sampler = DistributedSampler(Squares(), num_replicas=2, rank=1, shuffle=True, seed=3)
    for one in DataLoader(Squares(), batch_size=3, sampler=sampler):
        assert known(one["x"]).indices == truth(one)
    for one in DataLoader(Squares(), batch_sampler=BatchSampler(RandomSampler(Squares()), 4, True)):
        assert known(one["x"]).indices == truth(one)
    for index, one in enumerate(DataLoader(Squares(3), batch_size=None)):
        assert known(one["x"]).indices == [index]


def test_loader__rows_of_a_batch_have_their_own_samples() -> None:
    one = next(iter(DataLoader(Squares(), batch_size=6, shuffle=True)))
    whole = truth(one)
    for first in (0, 2, 4):
        part = one["x"][first:first + 2]
        assert known(part).indices == whole[first:first + 2]
    assert known(one["x"][3:4]).indices == whole[3:4]
    assert known(one["x"][::2]).indices is None  # every second row: not told rather than told wrong


def test_loader__a_batch_that_was_copied_on_the_way_is_known_when_it_is_the_only_one() -> None:
    numbers = iter(DataLoader(Squares(), batch_size=4))
    one = next(numbers)
    assert known(one["x"].double()).indices == truth(one)
    next(numbers)
    two = next(numbers)
    assert known(two["x"].double()) is None  # which of two it is cannot be told
    three = next(numbers)
    assert known(three["x"].double()).indices == truth(three)


def test_loader__data_that_no_loader_gave_is_not_named() -> None:
    one = next(iter(DataLoader(Squares(), batch_size=4)))
    assert known(one["x"]).indices == truth(one)
    assert known(torch.zeros(4, 1)) is None


def test_loader__an_iterable_data_set_has_no_indices() -> None:
    class Stream(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter([torch.tensor([float(i)]) for i in range(6)])

    for one in DataLoader(Stream(), batch_size=2):
        found = known(one)
        assert found is not None and found.indices is None


def test_loader__memory_of_a_batch_is_not_kept() -> None:
    import gc
    import weakref

    one = next(iter(DataLoader(Squares(), batch_size=4)))
    watch = weakref.ref(one["x"])
    storage = torch.multiprocessing.reductions.StorageWeakRef(one["x"].untyped_storage())
    del one
    gc.collect()
    assert watch() is None and storage.expired()


def test_loader__the_shard_of_accelerate_is_seen_although_it_fetches_ahead() -> None:
    accelerate = pytest.importorskip("accelerate")
    prepared = accelerate.Accelerator(cpu=True).prepare(DataLoader(Squares(), batch_size=4, shuffle=True))
    count = 0
    for one in prepared:
        assert known(one["x"], y=one["y"]).indices == truth(one)
        count += 1
    assert count == 5


def test_loader__order_and_random_numbers_are_those_of_the_plain_program(patched: Any) -> None:
    def epoch() -> Any:
        torch.manual_seed(5)
        data = [truth(one) for one in DataLoader(Squares(), batch_size=3, shuffle=True)]
        return data, torch.get_rng_state()

    watched, state = epoch()
    patched.uninstall()
    plain, expected = epoch()
    assert watched == plain and torch.equal(state, expected)


# ---- leaving out -----------------------------------------------------------------------------------------------------------------

def batches(monkeypatch: Any, listed: str, **options: Any) -> List[List[int]]:
    loader.reset()
    monkeypatch.setenv("FIRSTBAD_LEAVE_OUT", listed)
    return [truth(one) for one in DataLoader(Squares(options.pop("count", 12)), **options)]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader__a_sample_that_is_left_out_is_replaced_within_its_batch(monkeypatch: Any, workers: int) -> None:
    got = batches(monkeypatch, "1,6", batch_size=4, num_workers=workers)
    assert got == [[0, 2, 2, 3], [4, 5, 7, 7], [8, 9, 10, 11]]
    assert loader.coverage_line() == "samples left out by FIRSTBAD_LEAVE_OUT: 2 times, each replaced by another of its batch"


def test_loader__ids_of_what_was_fetched_are_told_and_not_of_what_was_left_out(monkeypatch: Any) -> None:
    monkeypatch.setenv("FIRSTBAD_LEAVE_OUT", "1")
    loader.reset()
    one = next(iter(DataLoader(Squares(), batch_size=4)))
    assert known(one["x"]).indices == [0, 2, 2, 3]


def test_loader__an_evaluation_without_gradients_sees_all_of_its_data(monkeypatch: Any) -> None:
    with torch.no_grad():
        assert batches(monkeypatch, "1,6", batch_size=4)[0] == [0, 1, 2, 3]


def test_loader__a_batch_with_nothing_left_gives_way_to_the_next(monkeypatch: Any) -> None:
    assert batches(monkeypatch, "4,5 6\n7", batch_size=4) == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert "1 batches of them alone were passed over" in str(loader.coverage_line())
    assert batches(monkeypatch, "0,1,2", batch_size=1, count=4) == [[3]]


def test_loader__one_of_several_ranks_keeps_its_number_of_batches(monkeypatch: Any) -> None:
    monkeypatch.setattr(loader, "_world", lambda: 2)
    assert batches(monkeypatch, "4,5,6,7", batch_size=4) == [[0, 1, 2, 3], [3, 3, 3, 3], [8, 9, 10, 11]]


def test_loader__the_list_may_be_a_file_and_what_is_no_list_leaves_nothing_out(monkeypatch: Any, tmp_path: Any) -> None:
    path = tmp_path / "ids"
    path.write_text("1\n2\n")
    assert batches(monkeypatch, f"@{path}", batch_size=4)[0] == [0, 3, 0, 3]
    assert batches(monkeypatch, "1;2", batch_size=4)[0] == [0, 1, 2, 3]  # fb_run_open refuses it
    assert batches(monkeypatch, "@/nowhere", batch_size=4)[0] == [0, 1, 2, 3]


def test_loader__a_failure_of_ours_fetches_what_was_asked_for(monkeypatch: Any, capsys: Any) -> None:
    def broken(asked: Any) -> Any:
        raise RuntimeError("made to fail")

    monkeypatch.setattr(loader, "_as_ints", broken)
    assert batches(monkeypatch, "1", batch_size=4)[0] == [0, 1, 2, 3]
    assert capsys.readouterr().err.count("made to fail") == 2  # leave_out and loader, once each
