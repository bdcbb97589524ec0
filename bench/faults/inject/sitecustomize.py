# The bench's own way into the scripts of cases/, which nobody edits: when torch has been imported, `observer` is installed.
# FAULTBENCH_OUT is the activation; without it this file does nothing.
import os
import sys


class _Finder:
    """Answers for the name torch, and lets it pass; afterwards the observer is told."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        import importlib.util

        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            import observer

            observer.install()

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("FAULTBENCH_OUT"):
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.meta_path.insert(0, _Finder())
