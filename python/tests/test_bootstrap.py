"""`firstbad run` and Python programs that have never heard of it: real programs, started by the real tool.

Each trap of attaching from the outside is a program here: launchers, start methods, environments, other people's sitecustomize, other
people's import hooks, our own failures. FIRSTBAD_BUILD names the build folder.
"""
from __future__ import annotations

import glob
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import zipapp

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FIRSTBAD_BUILD", ROOT / "build"))
START = ROOT / "python" / "firstbad" / "bootstrap" / "sitecustomize.py"
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

ATTACHED = "import sys; print('firstbad.pytorch' in sys.modules)"


class Job:
    """One `firstbad run`: what it printed, what it said at the end, and the notes that processes left."""

    def __init__(self, folder, command, env=None, options=(), run_id="r"):
        full = {name: value for name, value in os.environ.items() if not name.startswith("FIRSTBAD_") or name == "FIRSTBAD_PYTHON"}
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            full.pop(name, None)
        full.update(OMP_NUM_THREADS="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        full.update(env or {})
        full = {name: value for name, value in full.items() if value is not None}
        done = subprocess.run([str(BUILD / "firstbad"), "run", "--json", "--dir", str(folder / "runs"), "--run-id", run_id, *options, "--",
                               *map(str, command)], cwd=str(folder), env=full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=240)
        self.out, self.err, self.code = done.stdout.decode(), done.stderr.decode(), done.returncode
        lines = self.err.splitlines()
        self.end = json.loads(lines[-1])
        self.said = "\n".join(lines[:-1])
        self.run = folder / "runs" / run_id
        self.notes = [json.loads(pathlib.Path(name).read_text()) for name in glob.glob(str(self.run / "ledger/a*/python/pid-*.json"))]
        self.ledgers = glob.glob(str(self.run / "ledger/a*/r*.log"))

    @property
    def errors(self):
        return [note["error"] for note in self.notes if note["error"]]


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def env_with_torch(folder, *options):
    """A virtual environment without firstbad; torch is borrowed from this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *options, str(folder / "env")], check=True)
    site = glob.glob(str(folder / "env/lib/python3*/site-packages"))[0]
    if HAS_TORCH:
        borrowed = pathlib.Path(importlib.util.find_spec("torch").origin).parents[1]
        (pathlib.Path(site) / "borrowed.pth").write_text(f"{borrowed}\n")
    return folder / "env/bin/python", pathlib.Path(site)


# ---- before torch ------------------------------------------------------------------------------------------------------------------

def test_inert__a_python_without_torch_has_no_module_thread_file_or_note_more(tmp_path):
    code = ("import sys, threading, os, json\n"
            "print(json.dumps([sorted(m for m in sys.modules if m != 'sitecustomize'), threading.active_count(),"
            " len(os.listdir('/proc/self/fd')), sys.path[1:2]]))")
    script = write(tmp_path, "plain.py", code)
    job = Job(tmp_path, [sys.executable, script])
    bare = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, check=True,
                          env={k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FIRSTBAD_"))})
    ours, theirs = json.loads(job.out), json.loads(bare.stdout)
    assert ours[:3] == theirs[:3]
    assert job.notes == [] and job.ledgers == [] and job.said == "" and not job.end["guarded"]


def test_inert__starting_opens_no_file_and_imports_nothing(tmp_path):
    code = f"""
        import importlib.util, os, sys
        events = []
        spec = importlib.util.spec_from_file_location("sitecustomize", {str(START)!r})
        module = importlib.util.module_from_spec(spec)
        code = compile(open({str(START)!r}).read(), {str(START)!r}, "exec")
        sys.modules["sitecustomize"] = module
        sys.addaudithook(lambda name, args: events.append((name, str(args[0]))) if name in ("open", "import", "subprocess.Popen") else None)
        exec(code, module.__dict__)
        seen = list(events)
        assert [e for e in seen if e[0] != "import"] == [], seen
        assert {{e[1] for e in seen}} <= {{"sitecustomize"}}, seen
        assert type(sys.meta_path[0]).__name__ == "_FirstbadFinder"
        print("inert")
    """
    script = write(tmp_path, "watch.py", code)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FIRSTBAD_"))}
    # -S -I: no other sitecustomize is found, and site itself imports none.
    done = subprocess.run([sys.executable, "-I", "-S", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert done.stdout.decode().strip() == "inert", done.stderr.decode()


@needs_torch
def test_import__who_asks_for_torch_is_not_attached_and_who_imports_it_is(tmp_path):
    script = write(tmp_path, "forms.py", """
        import importlib.util, sys
        assert importlib.util.find_spec("torch") is not None and importlib.util.find_spec("torch") is not None
        assert "firstbad" not in sys.modules and "torch" not in sys.modules
        from torch import save
        from torch.nn.utils import clip_grad_norm_
        import inspect, torch, torch.nn.utils
        assert save is torch.save and clip_grad_norm_ is torch.nn.utils.clip_grad_norm_
        assert len(inspect.getsource(torch)) > 10000
        loader = torch.__spec__.loader
        assert type(loader).__name__ == "SourceFileLoader" and loader is torch.__loader__
        assert "exec_module" not in vars(loader) or vars(loader)["exec_module"].__func__ is type(loader).exec_module
        assert not [f for f in sys.meta_path if "firstbad" in type(f).__name__.lower()]
        assert "firstbad.pytorch" in sys.modules
        folder = __import__("os").path.dirname(sys.modules["firstbad"].__path__[0])
        assert folder not in sys.path, sys.path
        print("fine")
    """)
    job = Job(tmp_path, [sys.executable, script])
    assert job.out.strip() == "fine", job.err
    assert len(job.notes) == 1 and job.errors == [] and job.ledgers == [] and job.said == ""
    assert job.end["python"] == {"attached": True, "reason": None, "imported_torch": 1, "failed": 0, "error": None}
    told = subprocess.run([str(BUILD / "firstbad"), "run", "--dir", str(tmp_path / "runs"), "--", sys.executable, str(script)],
                          env=dict(os.environ, PYTHONPATH=""), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "none of them began a training step" in " ".join(told.stderr.decode().split())


@needs_torch
def test_import__a_torch_that_fails_once_is_attached_when_it_is_imported_again(tmp_path):
    write(tmp_path, "broken/torch/__init__.py", "raise ImportError('libsomething.so is missing')")
    script = write(tmp_path, "again.py", f"""
        import sys
        sys.path.insert(0, {str(tmp_path / 'broken')!r})
        try:
            import torch
        except ImportError as why:
            print(why)
        assert "firstbad" not in sys.modules
        sys.path.pop(0)
        import torch
        {ATTACHED}
    """)
    job = Job(tmp_path, [sys.executable, script])
    assert job.out.split("\n")[:2] == ["libsomething.so is missing", "True"], job.err
    assert len(job.notes) == 1


def test_import__another_finder_that_asks_all_the_others_gets_an_answer(tmp_path):
    script = write(tmp_path, "two.py", f"""
        import sys

        class Other:
            def find_spec(self, name, path=None, target=None):
                if name != "torch":
                    return None
                for finder in sys.meta_path:
                    spec = finder.find_spec(name, path, target) if finder is not self else None
                    if spec is not None:
                        return spec

        sys.meta_path.insert(0, Other())
        sys.meta_path.append(Other())
        import torch
        {ATTACHED}
    """)
    env = dict(fake_torch(tmp_path, "2.13.0"), **broken_package(tmp_path, "def install(): pass"))
    job = Job(tmp_path, [sys.executable, script], env)
    assert job.out.strip() == "True", job.err


# ---- how Python is started ---------------------------------------------------------------------------------------------------------

@needs_torch
@pytest.mark.parametrize("way", ["-c", "-m", "script", "zip", "safe path", "user's PYTHONPATH", "launched by a shell", "only PYTHONPATH"])
def test_start__however_python_is_started(tmp_path, way):
    program = "import torch, mine\n" if way == "user's PYTHONPATH" else "import torch\n"
    write(tmp_path, "lib/mine.py", "")
    script = write(tmp_path, "program.py", program + ATTACHED + "; print(__import__('os').environ['FIRSTBAD_RUN_ID'])\n")
    env, command = {}, [sys.executable, script]
    if way == "-c":
        command = [sys.executable, "-c", script.read_text()]
    elif way == "-m":
        command = [sys.executable, "-m", "program"]
    elif way == "zip":
        write(tmp_path, "app/__main__.py", script.read_text())
        zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
        command = [sys.executable, tmp_path / "app.pyz"]
    elif way == "safe path":
        env["PYTHONSAFEPATH"] = "1"
    elif way == "user's PYTHONPATH":
        env["PYTHONPATH"] = str(tmp_path / "lib")
    elif way == "launched by a shell":
        command = ["sh", "-c", f"true && exec {sys.executable} program.py"]
    elif way == "only PYTHONPATH":  # as deepspeed's launcher hands the environment on
        command = ["sh", "-c", f'exec env -i PATH="$PATH" PYTHONPATH="$PYTHONPATH" {sys.executable} program.py']
    job = Job(tmp_path, command, env)
    assert job.out.split() == ["True", "r"], job.err
    assert len(job.notes) == 1 and job.errors == []


@needs_torch
@pytest.mark.parametrize("options", [(), ("--system-site-packages",)], ids=["alone", "with system packages"])
def test_start__a_virtual_environment_that_has_no_firstbad(tmp_path, options):
    python, _ = env_with_torch(tmp_path, *options)
    job = Job(tmp_path, [python, "-c", "import torch\n" + ATTACHED + "\nimport firstbad; print(firstbad.__version__)"])
    assert job.out.split() == ["True", "0.1.0"], job.err
    assert job.errors == []


def test_start__isolated_python_is_not_attached_and_run_says_why(tmp_path):
    done = subprocess.run([str(BUILD / "firstbad"), "run", "--dir", str(tmp_path), "--", sys.executable, "-I", "-c", "print(1)"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stdout == b"1\n" and b"-I keeps Python from reading" in done.stderr


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_start__an_older_python_below_the_run_goes_on_as_before(tmp_path, version):
    places = [*glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")), shutil.which(f"python{version}")]
    found = next((place for place in places if place and subprocess.run([place, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0), None)
    if not found:
        pytest.skip(f"there is no Python {version}")
    job = Job(tmp_path, [found, "-c", "import sys, json, threading; print(len(sys.meta_path)); sys.stderr.write('')"])
    bare = subprocess.run([found, "-c", "import sys, json, threading; print(len(sys.meta_path))"], stdout=subprocess.PIPE)
    assert (job.out, job.said, job.code) == (bare.stdout.decode(), "", 0)


# ---- other people's sitecustomize --------------------------------------------------------------------------------------------------

def test_sitecustomize__the_user_s_own_in_pythonpath_runs_too(tmp_path):
    write(tmp_path, "own/sitecustomize.py", "import sys; sys.mine = 1; sys.path.append('/added')")
    code = "import sys, sitecustomize; print(sys.mine, sitecustomize.__file__.split('/')[-2], sys.path[-1])"
    job = Job(tmp_path, [sys.executable, "-c", code], {"PYTHONPATH": str(tmp_path / "own")})
    assert job.out.split() == ["1", "own", "/added"], job.err
    # The folder stays in sys.path: who makes a PYTHONPATH of it keeps the children guarded.
    job = Job(tmp_path, [sys.executable, "-c", "import sys; print([p for p in sys.path if p.endswith('a2/python')] != [])"],
              {"PYTHONPATH": str(tmp_path / "own")})
    assert job.out.strip() == "True", job.err


def test_sitecustomize__that_of_an_environment_runs_too(tmp_path):
    python, site = env_with_torch(tmp_path)
    write(site, "sitecustomize.py", "import sys; sys.mine = 2")
    job = Job(tmp_path, [python, "-c", "import sys, sitecustomize; print(sys.mine, 'site-packages' in sitecustomize.__file__)"])
    assert job.out.split() == ["2", "True"], job.err


@pytest.mark.parametrize("text", ["raise RuntimeError('mine')", "import not_there_at_all"])
def test_sitecustomize__one_that_fails_is_told_as_without_us(tmp_path, text):
    write(tmp_path, "own/sitecustomize.py", text)
    command = [sys.executable, "-c", "print(1)"]
    job = Job(tmp_path, command, {"PYTHONPATH": str(tmp_path / "own")})
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FIRSTBAD_"))}
    bare = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(env, PYTHONPATH=str(tmp_path / "own")))
    assert (job.out, job.said) == (bare.stdout.decode(), bare.stderr.decode().rstrip("\n")) and job.said


@needs_torch
def test_sitecustomize__one_run_inside_another_attaches_once_and_to_the_inner_one(tmp_path):
    program = "import torch, os, sys\nprint(os.environ['FIRSTBAD_RUN_ID'], 'firstbad.pytorch' in sys.modules)"
    inner = f"exec {BUILD / 'firstbad'} run --dir {tmp_path / 'runs'} --run-id inner -- {sys.executable} -c \"{program}\""
    job = Job(tmp_path, ["sh", "-c", inner])
    assert job.out.split() == ["inner", "True"], job.err
    assert job.notes == [] and len(glob.glob(str(tmp_path / "runs/inner/ledger/a1/python/pid-*.json"))) == 1


# ---- processes of the job ----------------------------------------------------------------------------------------------------------

@needs_torch
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes__each_start_method(tmp_path, method):
    script = write(tmp_path, "many.py", f"""
        import multiprocessing, sys

        def work(queue):
            import torch
            queue.put("firstbad.pytorch" in sys.modules)

        if __name__ == "__main__":
            if {method!r} == "fork":
                import torch
            context = multiprocessing.get_context({method!r})
            queue = context.Queue()
            child = context.Process(target=work, args=(queue,))
            child.start()
            print(queue.get(timeout=120))
            child.join()
            sys.exit(child.exitcode)
    """)
    job = Job(tmp_path, [sys.executable, script])
    assert (job.out.strip(), job.code, job.errors) == ("True", 0, []), job.err
    assert len(job.notes) == 1 and job.ledgers == []


@needs_torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes__workers_of_a_dataloader_do_their_work_and_open_no_ledger(tmp_path, method):
    script = write(tmp_path, "load.py", f"""
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Squares(Dataset):
            def __len__(self): return 8
            def __getitem__(self, i): return torch.tensor(float(i * i))

        if __name__ == "__main__":
            torch.set_num_threads(1)
            loader = DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context={method!r})
            print([int(x.sum()) for x in loader])
    """)
    job = Job(tmp_path, [sys.executable, script])
    assert job.out.strip() == "[14, 126]", job.err
    assert job.errors == [] and job.ledgers == [] and len(job.notes) == (1 if method == "fork" else 3)


@needs_torch
def test_processes__a_subprocess_is_attached_unless_it_is_given_another_pythonpath(tmp_path):
    script = write(tmp_path, "parent.py", """
        import os, subprocess, sys
        child = [sys.executable, "-c", "import torch, sys; print('firstbad.pytorch' in sys.modules)"]
        for change in ({}, {"PYTHONPATH": "/elsewhere"}, {"PYTHONPATH": os.pathsep.join(sys.path)}):
            sys.stdout.write(subprocess.run(child, env=dict(os.environ, **change), stdout=subprocess.PIPE, check=True).stdout.decode())
    """)
    job = Job(tmp_path, [sys.executable, script])
    assert job.out.split() == ["True", "False", "True"], job.err


LAUNCHED = """
    import os, sys, torch
    print("rank", os.environ.get("RANK"), "firstbad.pytorch" in sys.modules, flush=True)
"""


@needs_torch
def test_launchers__torchrun_s_agent_is_inert_and_its_workers_are_attached(tmp_path):
    script = write(tmp_path, "worker.py", LAUNCHED)
    job = Job(tmp_path, [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script])
    assert sorted(job.out.split("\n"))[1:] == ["rank 0 True", "rank 1 True"], job.err
    assert len(job.notes) == 3 and job.errors == [] and job.ledgers == []
    assert sorted(str(note["rank"]) for note in job.notes) == ["0", "1", "None"]


@needs_torch
def test_launchers__torchrun_s_restarts_are_attempts(tmp_path):
    script = write(tmp_path, "worker.py", """
        import os, sys, torch, firstbad.runs
        print("attempt", firstbad.runs.attempt_from_environment(), flush=True)
        sys.exit(os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
    """)
    job = Job(tmp_path, [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1", "--max-restarts", "1", script])
    assert job.out.split("\n")[:2] == ["attempt 1", "attempt 2"] and job.code == 0, job.err


@needs_torch
def test_launchers__accelerate(tmp_path):
    pytest.importorskip("accelerate")
    script = write(tmp_path, "worker.py", LAUNCHED)
    job = Job(tmp_path, [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1",
                         "--mixed_precision", "no", "--dynamo_backend", "no", script], {"HF_HOME": str(tmp_path / "hf")})
    assert job.out.strip().endswith("True") and job.errors == [], job.err


# ---- our own failures --------------------------------------------------------------------------------------------------------------

def broken_package(folder, body):
    """A copy of the package whose part for PyTorch is `body`."""
    shutil.copytree(ROOT / "python" / "firstbad", folder / "copy" / "firstbad", ignore=shutil.ignore_patterns("__pycache__", "pytorch"))
    write(folder / "copy" / "firstbad", "pytorch/__init__.py", body)
    return {"FIRSTBAD_PYTHON": str(folder / "copy")}


def fake_torch(folder, version):
    write(folder, "fake/torch/__init__.py", f"__version__ = {version!r}")
    return {"PYTHONPATH": str(folder / "fake")}


@pytest.mark.parametrize("body, said", [("import no_such_module", "No module named 'no_such_module'"),
                                        ("def install(): raise ValueError('hooks are gone')", "ValueError: hooks are gone")])
def test_failure__the_program_goes_on_and_run_says_what_failed(tmp_path, body, said):
    env = dict(fake_torch(tmp_path, "2.13.0"), **broken_package(tmp_path, body))
    job = Job(tmp_path, [sys.executable, "-c", "import torch; print('trained')"], env)
    assert (job.out, job.code) == ("trained\n", 0)
    assert job.said.count("is not guarded") == 1 and said in job.said
    assert job.end["python"]["failed"] == 1 and said in job.end["python"]["error"]


def test_failure__a_torch_that_is_too_old_is_named(tmp_path):
    job = Job(tmp_path, [sys.executable, "-c", "import torch; print(1)"], fake_torch(tmp_path, "1.13.1"))
    assert job.out == "1\n" and "torch 1.13.1 is older than 2.2" in job.said and "torch 1.13.1" in job.end["python"]["error"]


def test_failure__all_can_be_switched_off(tmp_path):
    job = Job(tmp_path, [sys.executable, "-c", "import torch"], dict(fake_torch(tmp_path, "2.13.0"), FIRSTBAD_OFF="all"))
    assert job.said == "" and job.end["python"]["error"] == "FIRSTBAD_OFF says all"
    job = Job(tmp_path, [sys.executable, "-c", "import torch, sys; print('firstbad' in sys.modules)"], fake_torch(tmp_path, "2.13.0"),
              options=["--no-python"])
    assert job.out == "False\n" and job.end["python"]["attached"] is False


def test_failure__a_folder_that_cannot_be_written_costs_the_note_alone(tmp_path):
    env = dict(fake_torch(tmp_path, "2.13.0"), **broken_package(tmp_path, "def install(): print('installed')"))
    code = "import glob, os, shutil, sys; d = [p for p in sys.path if p.endswith('/python')][0]\n" \
           "import json; j = open(d + '/run.json').read(); shutil.rmtree(d); open(os.path.dirname(d) + '/x', 'w')\n" \
           "import torch\nprint('went on')"
    job = Job(tmp_path, [sys.executable, "-c", code], env)
    assert job.out.split("\n")[-2] == "went on" and job.code == 0, job.err


def test_attempt__is_that_of_run_and_one_more_for_each_restart_since(monkeypatch):
    from firstbad.runs import attempt_from_environment

    for variables, attempt in (({}, 0), ({"FIRSTBAD_ATTEMPT": "3"}, 3), ({"FIRSTBAD_ATTEMPT": "3", "TORCHELASTIC_RESTART_COUNT": "2"}, 5),
                               ({"FIRSTBAD_ATTEMPT": "3", "TORCHELASTIC_RESTART_COUNT": "2", "FIRSTBAD_RESTARTS": "2"}, 3),
                               ({"FIRSTBAD_ATTEMPT": "no"}, 0), ({"TORCHELASTIC_RESTART_COUNT": "2"}, 0)):
        for name in ("FIRSTBAD_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "FIRSTBAD_RESTARTS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert attempt_from_environment() == attempt, variables
