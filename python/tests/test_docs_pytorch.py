"""Every command of docs/pytorch.md and of README's first screen is run, and prints what stands there.

A console block is a session in one folder: `$ command`, then what it prints (stdout and stderr as they come), `...` for any number
of lines, and `exit N` where the code is not 0. What differs from run to run is made equal on both sides: names of runs, places of
folders, times, host, losses behind their second digit.
"""
from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from typing import List, Tuple

import pytest
from stranger_runs import BUILD, ROOT, environment

pytest.importorskip("torch", reason="torch is not installed")

PAGES = ["docs/pytorch.md", "README.md"]


def blocks(page: str, kind: str) -> List[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)


def commands(block: str) -> List[Tuple[str, List[str]]]:
    out: List[Tuple[str, List[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            out.append((line[2:], []))
        else:
            out[-1][1].append(line)
    return out


def settled(line: str) -> str:
    line = re.sub(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d+", "RUN", line)
    line = re.sub(r"(/[\w.@+-]+)+/(?=firstbad-runs|ckpt)", "", line)
    line = re.sub(r"located in [\d.]+ s, \d+ replays?", "located in T", line)
    line = re.sub(r"took [\d.]+ % of the time", "took P of the time", line)
    line = re.sub(r"host [\w.-]+", "host H", line)
    line = re.sub(r"(loss -?\d+\.\d\d)\d+", r"\1", line)
    line = re.sub(r"(largest magnitude \d+\.\d\d)\d+", r"\1", line)
    return re.sub(r" +", " ", line).strip()


def matches(expected: List[str], got: List[str]) -> str:
    """Empty, or the first line that is not there. `...` stands for any lines, a block that wraps elsewhere is one line."""
    def joined(lines: List[str]) -> str:
        return settled(" ".join(line.strip() for line in lines if line.strip()))

    parts: List[List[str]] = [[]]
    for line in expected:
        if line.strip() == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    rest = joined(got)
    for index, part in enumerate(parts):
        wanted = joined(part)
        at = rest.find(wanted)
        if at < 0 or index == 0 and at > 0:
            common = os.path.commonprefix([wanted, rest]) if index == 0 else ""
            return f"wanted {wanted!r}\nafter {common[-80:]!r} of {rest!r}"
        rest = rest[at + len(wanted):].lstrip()
    if len(parts) == 1 or parts[-1]:
        return f"more than was wanted: {rest!r}" if rest else ""
    return ""


def env(folder: pathlib.Path):
    tools = folder / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    out = environment()
    # The tool starts in another folder than its build: it is told where both its parts are.
    out.update(PATH=os.pathsep.join([str(BUILD), str(pathlib.Path(sys.executable).parent), out["PATH"]]), FIRSTBAD_BUILD=str(BUILD),
               PYTHONPATH=str(ROOT / "python"), FIRSTBAD_LIBRARY=str(BUILD / "libfirstbad.so"), COLUMNS="100", PYTHONUNBUFFERED="1",
               JAX_PLATFORMS="cpu")
    return out


def resumed(page: str, folder: pathlib.Path, there) -> str:
    """The line that resumes a script of one's own, where the page's sessions have left their checkpoints. Empty, or what failed."""
    lines = [line for block in blocks(page, "python") for line in block.splitlines() if line.startswith("state = torch.load")]
    code = "import torch, firstbad\n" + "\n".join(lines) + "\nassert not lines or state['model'], state\n"
    done = subprocess.run([sys.executable, "-c", f"lines = {lines!r}\n{code}"], cwd=str(folder), env=there, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    return "" if done.returncode == 0 else f"{lines}\n{done.stdout.decode()}"


@pytest.mark.parametrize("page", PAGES)
def test_console__prints_what_stands_there(page, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    there = env(tmp_path)
    sessions = blocks(page, "console")
    assert sessions, page
    wrong = []
    for session in sessions:
        for command, expected in commands(session):
            done = subprocess.run(command, shell=True, cwd=str(tmp_path), env=there, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
            got = done.stdout.decode().splitlines()
            wanted_code = 0
            if expected and re.fullmatch(r"exit \d+", expected[-1]):
                wanted_code = int(expected.pop().split()[1])
            if done.returncode != wanted_code:
                wrong.append(f"$ {command}\nexit {done.returncode}, not {wanted_code}")
            told = matches(expected, got)
            if told:
                wrong.append(f"$ {command}\n{told}")
    wrong += [one for one in [resumed(page, tmp_path, there)] if one]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("page", PAGES)
def test_python__of_the_page_is_python_and_its_names_are_there(page, tmp_path):
    there = env(tmp_path)
    for block in blocks(page, "python"):
        compile(block, page, "exec")
        for module, names in re.findall(r"^from (firstbad[\w.]*) import (.+)$", block, re.M):
            needs = {"firstbad.integrations.transformers": "transformers", "firstbad.integrations.lightning": "lightning",
                     "firstbad.integrations.jax": "jax, optax"}.get(module, "")
            code = "\n".join(["try:", f"    import {needs}", "except ImportError:", "    raise SystemExit(0)"] if needs else [])
            code += f"\nfrom {module} import {names}\n"
            code += "".join(f"{call}\n" for call in re.findall(r"FirstbadCallback\([^()]*\)", block))
            subprocess.run([sys.executable, "-c", code], env=there, check=True, timeout=120)


def test_jax__the_example_leaves_the_parameters_alone(tmp_path):
    pytest.importorskip("jax", reason="jax is not installed")
    pytest.importorskip("optax", reason="optax is not installed")
    (block,) = [b for b in blocks("docs/pytorch.md", "python") if "skip_nonfinite" in b]
    done = subprocess.run([sys.executable, "-c", block + "\nprint(params['w'].tolist(), int(state.total))\n"], env=env(tmp_path),
                          stdout=subprocess.PIPE, check=True, timeout=120)
    assert done.stdout.decode().strip() == "[1.0, 1.0, 1.0] 1"


def sources() -> str:
    return "".join(path.read_text() for path in (ROOT / "python/firstbad").rglob("*.py"))


def page_and_manual() -> Tuple[str, str]:
    return (ROOT / "docs/pytorch.md").read_text(), (ROOT / "docs/man/firstbad-run.1").read_text()


def test_parts__that_can_be_turned_off_are_those_of_the_page():
    """FIRSTBAD_OFF: what the page and the manual list is what the package asks for."""
    page, manual = page_and_manual()
    table = re.search(r"FIRSTBAD_OFF=a,b.*?\n\n", page, re.S).group(0)
    listed = {name for row in table.splitlines()[2:] if "|" in row for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    source = sources()
    asked = set(re.findall(r"(?:guest|usable|optional)\(\"(\w+)\"", source))
    asked |= set(re.findall(r"\"(\w+)\" in (?:\[part\.strip\(\) for part in )?os\.environ\.get\(\"FIRSTBAD_OFF\"", source))
    asked |= set(re.findall(r"\"(\w+)\"", re.search(r"for part in \((.*?)\):\n +module = patch\.optional", source).group(1)))
    # Not for a person: without these nothing stands, or nothing of what a person asked for changes.
    assert listed == asked - {"session", "ranks", "late", "part"}
    entry = manual[manual.index(".It Ev FIRSTBAD_OFF"):]
    assert listed == set(re.findall(r"\w+", " ".join(re.findall(r"^\.Cm (.*)$", entry[:entry.index(".It Ev", 1)], re.M))))


def test_variables__of_the_page_stand_in_the_manual():
    page, manual = page_and_manual()
    assert set(re.findall(r"FIRSTBAD_[A-Z_]+", page)) <= set(re.findall(r"FIRSTBAD_[A-Z_]+", manual))


def test_variables__that_have_a_number_by_default_have_it_in_the_manual_and_on_the_page():
    pytest.importorskip("torch")
    from firstbad.pytorch import optim, ranks, state

    page, manual = page_and_manual()

    def default(name: str) -> str:
        entry = manual[manual.index(f".It Ev {name}\n"):]
        return re.search(r"Default: (\w+)", entry).group(1)

    assert default("FIRSTBAD_ARM_SECONDS") == f"{ranks._seconds():.0f}" and f"FIRSTBAD_ARM_SECONDS ({ranks._seconds():.0f})" in page
    assert default("FIRSTBAD_HOLD_BYTES") == str(state.HOLD_BYTES_MAX)
    assert f"FIRSTBAD_HOLD_BYTES ({state.HOLD_BYTES_MAX >> 30} GiB)" in page and optim.HOLD_UPDATES == 2
    (seconds,) = set(re.findall(r"FIRSTBAD_LOCATE_SECONDS\"\) or (\d+)", sources()))
    assert default("FIRSTBAD_LOCATE_SECONDS") == seconds and f"FIRSTBAD_LOCATE_SECONDS ({seconds})" in page


def test_calls__of_the_page_are_there_with_these_arguments():
    import inspect

    import firstbad
    from firstbad.pytorch import guard

    page, _ = page_and_manual()
    told = re.search(r"firstbad\.attach\((.*?)\)", page[page.index("| call |"):]).group(1)
    assert [word.strip(" =") for word in told.split(",")] == list(inspect.signature(firstbad.attach).parameters)
    assert all(hasattr(guard.Guard, name) for name in re.findall(r"guard\.(\w+)", page[page.index("| call |"):]))
    fields = re.search(r"`guard.last` \|.*?`(.*?)`", page).group(1)
    assert tuple(fields.split(", ")) == guard.Outcome._fields
    errors = {name for name in firstbad.__all__ if name.startswith("__") or isinstance(getattr(firstbad, name), type)}
    table = page[page.index("| call |"):page.index("## Trainers")]
    assert set(firstbad.__all__) - errors <= set(re.findall(r"(\w+)\(", table))


@pytest.mark.parametrize("page", PAGES)
def test_options__of_the_commands_of_a_page_are_known_to_the_tool(page):
    """In blocks that are not run."""
    lines = re.findall(r"^    (firstbad [a-z]+ .*)$", (ROOT / page).read_text(), re.M)
    assert lines, page
    for line in lines:
        words = line.partition("   #")[0].partition(" -- ")[0].split()
        said = subprocess.run([str(BUILD / "firstbad"), words[1], "--help"], stdout=subprocess.PIPE, check=True).stdout.decode()
        assert [word for word in words[2:] if word.startswith("--") and word not in said] == [], line
