#!/usr/bin/env python3
"""The fault benchmark: training scripts that know nothing of firstbad, under firstbad and under what people use today.

    run.py [--python PYTHON] [--firstbad PATH] [--tools firstbad,plain,...] [--json FILE] [--markdown FILE] [--verbose]
           [part of a name ...]

Each script runs as a process of its own under each tool, two at a time. judge.py says by which rules it is scored; the truth is in
truth.toml, and oracle.py holds it against PyTorch alone. Exit code 0 when firstbad claimed nothing that is not so, raised no false
alarm, and detected at least as many faults as each peer; 1 otherwise; 2 for wrong use.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

import judge
import runs
from truth import HERE, Case, load

ROOT = os.path.dirname(os.path.dirname(HERE))
NAMES = {
    "firstbad": "firstbad run",
    "anomaly": "detect_anomaly",
    "duo": "DebugUnderflowOverflow",
    "clip": "error_if_nonfinite",
    "loss": "isfinite(loss)",
    "plain": "script alone",
}
MARKS = ("<!-- faults: begin, written by bench/faults/run.py --markdown -->", "<!-- faults: end -->")


def one(case: Case, options: argparse.Namespace) -> Dict[str, Any]:
    """Every tool on one case, one after the other; the plain run is first, since healthy ones are compared with it."""
    if case.needs and not runs.has(options.python, case.needs):
        return {"case": case.name, "skipped": f"{case.needs} is not installed"}
    row: Dict[str, Any] = {"case": case.name, "kind": case.kind, "tools": {}}
    plain, quick = None, case.kind != "healthy"  # healthy ones are timed
    if case.kind == "healthy" or "plain" in options.tools:
        plain = runs.start(case, "plain", options.python, options.firstbad, options.package, quick=quick)
    for tool in options.tools:
        if tool == "duo" and not options.transformers:
            continue
        seen = plain if plain and tool == "plain" else None
        seen = seen or runs.start(case, tool, options.python, options.firstbad, options.package, quick=quick)
        score = judge.firstbad(case, seen, plain) if tool == "firstbad" else judge.peer(case, tool, seen)
        row["tools"][tool] = {
            "levels": score.levels,
            "wrong": score.wrong,
            "within": score.within,
            "late": score.late,
            "alarm": score.alarm,
            "said": score.said,
            "exact": score.exact,
            "seconds": seen.seconds,
            "ratio": seen.seconds / plain.seconds if plain else None,
            "exit": seen.code,
        }
        if options.verbose and (score.wrong or score.alarm or (tool == "firstbad" and not score.exact)):
            missing = [level for level, value in score.levels.items() if value is False]
            print(
                f"{case.name} {tool}: missing {missing} wrong {score.wrong} alarm {score.alarm} said {score.said}",
                file=sys.stderr,
                flush=True,
            )
    return row


def table(rows: List[Dict[str, Any]], tools: List[str]) -> List[List[str]]:
    """Lines of the table: a level a line, a tool a column; right of asked."""
    faults = [row for row in rows if row.get("kind") == "fault"]
    finite = [row for row in rows if row.get("kind") == "finite"]
    healthy = [row for row in rows if row.get("kind") == "healthy"]
    lines = [["", *[NAMES[tool] for tool in tools]]]

    def count(tool: str, those: List[Dict[str, Any]], level: str) -> str:
        values = [row["tools"][tool]["levels"][level] for row in those if tool in row["tools"]]
        values = [value for value in values if value is not None]
        return f"{sum(values)} of {len(values)}" if values else "-"

    words = {
        "detected": "detected, in its step",
        "stopped": "stopped, the state unchanged",
        "rank": "rank",
        "module": "module",
        "operator": "operator",
        "entry": "a bad batch or state is named",
        "line": "source line",
        "cause": "class of the cause",
        "samples": "samples",
    }
    for level in judge.LEVELS:
        lines.append([words[level], *[count(tool, faults, level) for tool in tools]])
    lines.insert(
        2, ["detected later", *[str(sum(row["tools"][tool]["late"] for row in faults if tool in row["tools"])) for tool in tools]]
    )
    lines.append(
        ["all that was asked", *[str(sum(row["tools"][tool]["exact"] for row in faults if tool in row["tools"])) for tool in tools]]
    )
    lines.append(
        [
            "not named, among what is left",
            *[str(sum(row["tools"][tool]["within"] for row in faults if tool in row["tools"])) for tool in tools],
        ]
    )
    lines.append(
        [
            "what is named is not the first",
            *[str(sum(bool(row["tools"][tool]["wrong"]) for row in faults if tool in row["tools"])) for tool in tools],
        ]
    )
    lines.append(["faults that stay finite, detected", *[count(tool, finite, "detected") for tool in tools]])
    lines.append(
        [
            "false alarms, of healthy scripts",
            *[
                f"{sum(bool(row['tools'][tool]['alarm']) for row in healthy if tool in row['tools'])} of {len(healthy)}"
                for tool in tools
            ],
        ]
    )
    lines.append(
        [
            "time of the process, healthy, to plain",
            *[_ratio([row["tools"][tool]["ratio"] for row in healthy if tool in row["tools"]]) for tool in tools],
        ]
    )
    return lines


def _ratio(values: List[Optional[float]]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{statistics.median(numbers):.2f}" if numbers else "-"


def text(lines: List[List[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(zip(line, widths)))
        for line in lines
    )


def markdown(lines: List[List[str]], rows: List[Dict[str, Any]]) -> str:
    head = "| " + " | ".join(lines[0]) + " |\n|" + "---|" * len(lines[0])
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines[1:])
    return f"{head}\n{body}\n"


def write_markdown(path: str, what: str) -> None:
    with open(path, encoding="utf-8") as file:
        old = file.read()
    before, rest = old.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{MARKS[0]}\n{what}{MARKS[1]}{after}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch (default: this one)")
    parser.add_argument(
        "--firstbad", default=os.path.join(os.environ.get("FIRSTBAD_BUILD", os.path.join(ROOT, "build")), "firstbad")
    )
    parser.add_argument(
        "--package", default=os.path.join(ROOT, "python", "firstbad"), help="the Python package that the tool attaches"
    )
    parser.add_argument("--tools", default="firstbad,anomaly,duo,clip,loss,plain", type=lambda words: words.split(","))
    parser.add_argument("--json", metavar="FILE", help="every answer, as JSON")
    parser.add_argument("--markdown", metavar="FILE", help="put the table between the marks in this file")
    parser.add_argument(
        "--from-json",
        metavar="FILE",
        action="append",
        default=[],
        help="no run: the table of what --json wrote; may be repeated, by tool",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="what each tool missed or said wrongly")
    parser.add_argument("only", nargs="*")
    options = parser.parse_args()
    unknown = [tool for tool in options.tools if tool not in NAMES]
    if unknown:
        parser.error(f"no such tool: {unknown[0]}")
    return options


def main() -> int:
    options = arguments()
    cases = load(options.only)
    if options.from_json:
        rows = merged(options.from_json)
    else:
        options.versions = runs.versions(options.python)
        options.transformers = runs.has(options.python, "transformers")
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = []
            for row in pool.map(lambda case: one(case, options), cases):
                rows.append(row)
                keep(rows, options)  # each time: who interrupts it keeps what there is
    done = [row for row in rows if "tools" in row]
    for row in rows:
        if "skipped" in row:
            print(f"skipped {row['case']}: {row['skipped']}", file=sys.stderr)
    tools = [tool for tool in options.tools if any(tool in row["tools"] for row in done)]
    lines = table(done, tools)
    print(text(lines))
    if options.markdown:
        write_markdown(options.markdown, markdown(lines, done))
    return verdict(done, tools)


def keep(rows: List[Dict[str, Any]], options: argparse.Namespace) -> None:
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "firstbad.faults/1", "versions": options.versions, "rows": rows}, file, indent=1)


def merged(paths: List[str]) -> List[Dict[str, Any]]:
    """Rows of several runs: of each tool the newest answer, that is the one of the last file that has it."""
    rows: Dict[str, Dict[str, Any]] = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                if "tools" in rows.get(row["case"], {}) and "tools" in row:
                    rows[row["case"]]["tools"].update(row["tools"])
                else:
                    rows[row["case"]] = row
    return [rows[name] for name in sorted(rows)]


def verdict(rows: List[Dict[str, Any]], tools: List[str]) -> int:
    if "firstbad" not in tools:
        return 0
    faults = [row for row in rows if row["kind"] == "fault"]
    found = {tool: sum(bool(row["tools"].get(tool, {}).get("levels", {}).get("detected")) for row in faults) for tool in tools}
    wrong = sum(bool(row["tools"]["firstbad"]["wrong"]) for row in faults) + sum(
        bool(row["tools"]["firstbad"]["alarm"]) for row in rows
    )
    return 1 if wrong or any(found[tool] > found["firstbad"] for tool in tools) else 0


if __name__ == "__main__":
    sys.exit(main())
