"""All ranks agree on one text, over the key-value store of torch.distributed, or all know that they did not.

A collective cannot be used to find out whether all ranks will take part in collectives: one that never comes would leave the others
waiting. The store can: a rank says that it is here, rank 0 locks those that came in time and says what follows, and a rank that
does not want to wait takes its word back. Both are one compare-and-set on the same key, so a rank is either counted or gone,
never both:

    rank r          absent -> here                      compare_set
    rank 0          here -> locked                      compare_set; all locked: the text is published
    rank r          here -> gone                        compare_set, when it has waited long enough; too late once it is locked

A rank that was locked waits for the text as long as the store lets it: rank 0 has nothing left to do but to write it.
"""
from __future__ import annotations

import os
import time
from typing import Any, Callable, List, NamedTuple, Optional

_HERE, _LOCKED, _GONE = "here:", "locked", "gone"


def turn(joins: int) -> str:
    """What the keys of the `joins`-th meeting of this process begin with. An agent of torchrun keeps its store when it starts its
    workers again, with the keys of those before in it; its count of restarts tells them apart. Agents of several nodes count each
    their own, so there it is left out: a key that was taken then means no vote."""
    one_agent = os.environ.get("LOCAL_WORLD_SIZE", "") == os.environ.get("WORLD_SIZE")
    return f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.{joins}" if one_agent else str(joins)


class Agreed(NamedTuple):
    """text: what rank 0 published, the same on all ranks that have one; None: this rank knows of no agreement, for the reason
    `why`."""

    text: Optional[str]
    why: str


class Rendezvous:
    """One after another, each with a name of its own that is the same on all ranks.

    store    a torch.distributed Store     rank, world    as in the default group
    seconds  how long rank 0 waits for the others; these wait a little longer
    slow     called once when it takes more than 5 seconds, with the ranks that are not there yet (rank 0) or an empty list
    """

    def __init__(self, store: Any, rank: int, world: int, seconds: float,
                 slow: Optional[Callable[[List[int]], None]] = None) -> None:
        self.store, self.rank, self.world, self.seconds, self.slow = store, rank, world, seconds, slow

    def agree(self, name: str, mine: str, judge: Callable[[List[str]], str], missing: Callable[[List[int]], str]) -> Agreed:
        """mine: what this rank has to say. judge: on rank 0, from what all said, by rank: the text. missing: on rank 0, from the
        ranks that did not come: the text. Never raises for a store that fails. Cost: a few requests to the store."""
        try:
            return self._agree(name, mine, judge, missing)
        except Exception as why:  # the store is gone, or of a kind that cannot do this
            return Agreed(None, f"the store of torch.distributed failed: {type(why).__name__}: {why}".splitlines()[0])

    def _agree(self, name: str, mine: str, judge: Callable[[List[str]], str], missing: Callable[[List[int]], str]) -> Agreed:
        keys = [f"firstbad/{name}/{r}" for r in range(self.world)]
        told = f"firstbad/{name}/told"
        here = _HERE + mine
        if self.store.compare_set(keys[self.rank], "", here).decode() != here:
            return Agreed(None, f"the key {keys[self.rank]} was taken already")
        if self.rank == 0:
            text = self._gather(keys, judge, missing)
            self.store.set(told, text)
            return Agreed(text, "")
        # Twice the time of rank 0: it may have begun to wait later than this rank, and is the one who must decide.
        if not self._wait([told], 2 * self.seconds + 5, []):
            if self.store.compare_set(keys[self.rank], here, _GONE).decode() == _GONE:
                return Agreed(None, f"rank 0 was not there after {2 * self.seconds + 5:.0f} s")
            self.store.wait([told])  # we are counted: the text is on its way
        return Agreed(self.store.get(told).decode(), "")

    def _gather(self, keys: List[str], judge: Callable[[List[str]], str], missing: Callable[[List[int]], str]) -> str:
        self._wait(keys, self.seconds, keys)
        said: List[str] = []
        away: List[int] = []
        for rank, key in enumerate(keys):
            was = self.store.get(key).decode() if self.store.check([key]) else ""
            if was.startswith(_HERE) and self.store.compare_set(key, was, _LOCKED).decode() == _LOCKED:
                said.append(was[len(_HERE):])
            else:
                away.append(rank)
        return missing(away) if away else judge(said)

    def _wait(self, keys: List[str], seconds: float, whose: List[str]) -> bool:
        """True once all keys are there. Asked again and again, and not Store.wait: a wait that runs out makes torch print
        warnings."""
        begun = time.monotonic()
        pause = 0.002
        while not self.store.check(keys):
            waited = time.monotonic() - begun
            if waited >= seconds:
                return False
            if waited >= 5 and self.slow is not None:
                self.slow([rank for rank, key in enumerate(whose) if not self.store.check([key])])
                self.slow = None
            time.sleep(max(0.0, min(pause, seconds - waited)))
            pause = min(0.1, 2 * pause)
        return True
