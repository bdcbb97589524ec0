"""Optimizers and gradient scalers of this process, in the order in which they were made. Weak: we keep none of them alive."""
from __future__ import annotations

import weakref
from typing import Any, Dict, List


class Registry:
    """Objects by identity."""

    def __init__(self) -> None:
        self._held: Dict[int, "weakref.ref[Any]"] = {}

    def add(self, thing: Any) -> None:
        """Nothing happens for one that is known."""
        known = self._held.get(id(thing))
        if known is None or known() is not thing:
            self._held[id(thing)] = weakref.ref(thing)

    def alive(self) -> List[Any]:
        """Those that are still there."""
        out = []
        for key, reference in list(self._held.items()):
            thing = reference()
            if thing is None:
                del self._held[key]
            else:
                out.append(thing)
        return out


class Optimizers(Registry):
    def alive(self) -> List[Any]:
        """Without those whose __init__ did not come to its end."""
        return [o for o in super().alive() if "param_groups" in o.__dict__ and "state" in o.__dict__]


optimizers = Optimizers()
scalers = Registry()
