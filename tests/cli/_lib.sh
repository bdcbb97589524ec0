# Sourced by the tests of the tool.
# make_run RUN SCENARIO: a run folder below firstbad-runs, written by the guard itself (tests/cli/fixtures/make-run.c).
make_run() { "$FIRSTBAD_BUILD/tests/make-run" firstbad-runs "$1" "$2"; }
# write_locate RUN [STATEMENTS [FOLDER]]: what a replay tells of the run's case (tests/cli/fixtures/write-locate.py).
write_locate() { python3 "$FIRSTBAD_SOURCE/tests/cli/fixtures/write-locate.py" firstbad-runs/"$1"/cases/* "${@:2}"; }
# Text as one line, without the share of time that was measured: its width would move the line breaks.
without_time() { tr '\n' ' ' | tr -s ' ' | sed -e 's/; the guard took [0-9.]* % of the time//'; echo; }
# json_get EXPRESSION: of the strict JSON object d on standard input.
json_get() {
    python3 -c 'import json, sys
def no(name): raise ValueError(name)
d = json.load(sys.stdin, parse_constant=no)
print(json.dumps(eval(sys.argv[1])))' "$1"
}
