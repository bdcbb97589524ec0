# firstbad: attach to a program that was started by `firstbad run` and has never heard of us.
#
# `firstbad run` copies this file into a folder of the run, beside run.json, and puts that folder first in PYTHONPATH: every Python
# below it, whatever its environment, runs this file when it starts. Until torch has been imported it does nothing but watch for
# that name: no file is opened, no thread started, nothing imported. It is run by every Python that the job starts, so it keeps to
# what Python 2.7 understands; there, and below 3.9, it only passes on.
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _FirstbadFinder(object):
    """Answers for the name `torch` alone: the answer of the finders behind it, with a word to be told when that has run.

    find_spec is asked also by who only wants to know whether there is a torch (importlib.util.find_spec), so it stays in
    sys.meta_path until torch runs. exec_module is replaced on the loader itself, not by another loader: inspect.getsource(torch),
    pkgutil and importlib.resources go on to find the loader that they expect."""

    def __init__(self, here):
        self.here = here
        self.asking = set()  # threads: another finder that asks all the others, as we do, would ask us for ever

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        from _thread import get_ident  # built in; there since the start

        if get_ident() in self.asking:
            return None
        self.asking.add(get_ident())
        try:
            spec = self.spec_of_others(name, path, target)
        finally:
            self.asking.discard(get_ident())
        if spec is None:
            return None
        if hasattr(spec.loader, "exec_module"):
            self.watch(spec.loader)
        return spec

    def spec_of_others(self, name, path, target):
        for finder in list(sys.meta_path):
            ask = getattr(finder, "find_spec", None)
            spec = ask(name, path, target) if ask and finder is not self else None
            if spec is not None:
                return spec
        return None

    def watch(self, loader):
        run = loader.exec_module

        def exec_module(module):
            loader.exec_module = run
            self.leave()
            try:
                run(module)
            except BaseException:
                sys.meta_path.insert(0, self)  # who catches it may try again
                raise
            _attach(self.here)

        try:
            loader.exec_module = exec_module
        except Exception as why:  # a loader that takes no attributes; the import itself must go on
            _say("torch cannot be watched through its loader %r: %s" % (loader, why))

    def leave(self):
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]


def _say(what):
    sys.stderr.write("firstbad: this process (%d) is not guarded: %s\n" % (os.getpid(), what))


def _package(folder):
    """The package from the place that run.json names, also in an environment where it is not installed. Its parent folder never
    stands in sys.path, where it might shadow names of the program."""
    if "firstbad" in sys.modules:
        return sys.modules["firstbad"]
    import importlib.util

    file = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("firstbad", file, submodule_search_locations=[folder])
    package = importlib.util.module_from_spec(spec)
    sys.modules["firstbad"] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules["firstbad"]
        raise
    return package


def _attach(here):
    """torch has just been imported, and nobody has used it yet."""
    import gc

    # A collection would walk through all that torch has made, several times while our few modules are imported: most of the time.
    collects = gc.isenabled()
    gc.disable()
    try:
        import importlib
        import json

        with open(os.path.join(here, "run.json"), "rb") as file:
            facts = json.loads(file.read().decode("utf-8"))
        # A launcher may have dropped our variables (deepspeed passes those that begin with PYTHON); where they are set they win.
        for name, value in facts["environment"].items():
            os.environ.setdefault(name, value)
        _package(facts["package"])
        importlib.import_module("firstbad.bootstrap.hook").attach(here)
    except Exception as why:
        _say("%s: %s" % (type(why).__name__, why))
    finally:
        if collects:
            gc.enable()


def _pass_on():
    """Run the sitecustomize that would have run without us: the system's, or the user's own."""
    ours, before = sys.modules.get(__name__), list(sys.path)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as why:
        if "sitecustomize" not in str(getattr(why, "name", None) or why):
            raise  # site says what it would have said
    finally:
        # Children that get sys.path for their PYTHONPATH shall be guarded too. What the other one changed stays.
        after = sys.path[:]
        if after == [entry for entry in before if os.path.abspath(entry or ".") != _HERE]:
            sys.path[:] = before
        elif _HERE in before:
            sys.path.insert(0, _HERE)
        if "sitecustomize" not in sys.modules:
            sys.modules["sitecustomize"] = ours


if __name__ == "sitecustomize":
    # One run inside another: the inner one stands first, and is the one that counts.
    if sys.version_info >= (3, 9) and not any(type(finder).__name__ == "_FirstbadFinder" for finder in sys.meta_path):
        if "torch" in sys.modules:
            _attach(_HERE)
        else:
            sys.meta_path.insert(0, _FirstbadFinder(_HERE))
    _pass_on()
