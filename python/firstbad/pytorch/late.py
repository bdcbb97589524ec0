"""Functions of modules that are imported later than we are: wrapped as their module has run, before anybody can bind their
names."""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, List, Set

from .patch import guest


class Later:
    """One finder in front of sys.meta_path, which answers for the names it waits for and is gone with the last of them.

    exec_module is replaced on the loader of that one module, so that inspect and importlib.resources find the loader they expect.
    An import costs a look into a dict.
    """

    def __init__(self) -> None:
        self._waiting: Dict[str, List[Callable[[Any], None]]] = {}
        self._asking: Set[str] = set()  # two finders like this one would ask each other for ever

    def when_imported(self, name: str, then: Callable[[Any], None]) -> None:
        """then(module) once module `name` is there; at once where it is."""
        module = sys.modules.get(name)
        if module is not None and getattr(getattr(module, "__spec__", None), "_initializing", False) is False:
            _call(then, module)
            return
        self._waiting.setdefault(name, []).append(then)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Wait for nothing any more."""
        self._waiting.clear()
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    remove = stop  # as a hook's handle: patch.Patches.keep

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._waiting or name in self._asking:
            return None
        self._asking.add(name)
        try:
            for finder in list(sys.meta_path):
                ask = getattr(finder, "find_spec", None)
                spec = ask(name, path, target) if ask is not None and finder is not self else None
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        self._watch(name, spec.loader)
                    return spec
            return None
        finally:
            self._asking.discard(name)

    def _watch(self, name: str, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.exec_module = run
            run(module)
            for then in self._waiting.pop(name, []):
                _call(then, module)
            if not self._waiting:
                self.stop()

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass  # a loader that takes no attributes: that module stays as it is


@guest("late")
def _call(then: Callable[[Any], None], module: Any) -> None:
    then(module)


# Who binds functions of safetensors under names of their own.
_BINDERS = frozenset(("transformers", "accelerate", "diffusers", "peft", "trl", "lightning", "pytorch_lightning", "safetensors",
                      "torch", "__main__"))


def rebind(patches: Any, original: Any, made: Any) -> None:
    """Modules that bound `original` under a name of their own get `made`. For what was imported before we were."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _BINDERS:
            continue
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is original:
                setattr(module, key, made)
                patches._undo.append((module, key, original, False))
