# A fault in a training that should be healthy, a skip that nobody asked for, and a healthy run that is cut short.
start() { printf '#!/bin/bash\n%s\n' "$2" > "$1"; chmod +x "$1"; }
start as-it-is 'exec firstbad-gpt "$@"'
start alarmed 'exec firstbad-gpt "$@" --fault temperature-zero@step=6'
start skips 'exec firstbad-gpt "$@" --precision fp16 --loss-scale 1e12'
start stops-early 'exec firstbad-gpt "$@" --steps 3'
start unguarded 'exec firstbad-gpt "$@" --no-guard'
for trainer in as-it-is alarmed skips stops-early unguarded; do
    code=0; firstbad drill --all --seeds 1 --only plain-fp32 --trainer ./$trainer --dir $trainer.runs --json > out || code=$?
    python3 - $trainer $code <<'PYTHON'
import json, sys
d = json.load(open("out"))
one = d["scenarios"][0]
print(f"{sys.argv[1]}: exit {sys.argv[2]}, alarms {one['false_alarms'] > 0}, went on {one['levels']['after']}, "
      f"{d['score']['silent_when_healthy']}")
PYTHON
done
# What must skip and does not has put nothing to the test.
start never-probes 'exec firstbad-gpt "${@/16777216/256}"'
code=0; firstbad drill --all --seeds 1 --only ok-probing --trainer ./never-probes --dir never.runs > out || code=$?
echo "never-probes: exit $code, $(grep -c 'nothing was put to the test' out)"
