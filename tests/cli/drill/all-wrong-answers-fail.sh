# A benchmark that cannot fail is worth nothing. Each trainer below is right but for one thing; the line must fail, and say which.
# A name, a rank or a certain cause that is not the truth is a wrong claim; an interval that holds the truth is none.
change() { # NAME PYTHON: what the file says is changed after the training, by rank 0
    cat > "$1" <<SCRIPT
#!/bin/bash
firstbad-gpt "\$@"; code=\$?
test "\$OMPI_COMM_WORLD_RANK" != 0 || python3 - "\$FIRSTBAD_DIR/\$FIRSTBAD_RUN_ID/cases" <<'PYTHON'
import glob, json, os, shutil, sys
case = glob.glob(sys.argv[1] + "/*")[0]
name = case + "/locate.json"
text = open(name).read()
d = json.loads(text)
$2
open(name, "w").write(text if isinstance(d, dict) and d == json.loads(text) else json.dumps(d))
PYTHON
exit \$code
SCRIPT
    chmod +x "$1"
}
start() { # NAME SHELL: what is started is another training
    printf '#!/bin/bash\n%s\n' "$2" > "$1"
    chmod +x "$1"
}
change as-it-is 'pass'
change another-module 'text = text.replace("h.1.attn", "h.2.attn"); d = json.loads(text)'
change another-operator "text = text.replace('\"div\"', '\"mul\"'); d = json.loads(text)"
change another-boundary 'd["location"]["boundary"] = d["chain"][0]["boundary"] = "loss"'
change another-cause 'd["cause"]["class"] = "overflow"'
change another-cause-uncertain 'd["cause"].update({"class": "overflow", "certain": False})'
change another-rule 'd["cause"]["rule"] = "range"'
change another-rank 'd["location"]["rank"] = 0'
change broken-chain 'd["chain"][1]["reads"] = 999999'
change an-interval 'd.update(found="interval", candidates=[d["chain"][0], dict(d["chain"][0], operator="add")], location=None)'
change a-wrong-interval 'd.update(found="interval", candidates=[dict(d["chain"][0], operator="add")], location=None)'
change not-reproduced 'd.update(found="not_reproduced", location=None, chain=[])'
change entry-blamed 'd.update(found="entry"); d["location"].update(boundary="entry_state", operator=None, tensor="wte")'
change larger-batch 'd["minimise"].update(rows_needed=2, rows_kept=[0, 1])'
change no-bundle 'shutil.rmtree(case + "/bundle-min")'
change torn 'text = text[:99]; d = None'
start unlocated 'FIRSTBAD_LOCATE=none exec firstbad-gpt "$@"'
start spreads 'FIRSTBAD_ON_BAD=observe exec firstbad-gpt "$@"'
start another-step 'exec firstbad-gpt "${@/step=5/step=6}"'
start on-another-rank 'exec firstbad-gpt "${@/rank=1/rank=0}"'
start in-another-layer 'exec firstbad-gpt "${@/layer=1/layer=2}"'
start without-fault 'exec firstbad-gpt "${@/layer=1/layer=1,steps=0}"'
start dies 'exit 9'
for trainer in as-it-is another-module another-operator another-boundary another-cause another-cause-uncertain another-rule \
    another-rank broken-chain an-interval a-wrong-interval not-reproduced entry-blamed larger-batch no-bundle torn unlocated spreads \
    another-step on-another-rank in-another-layer without-fault dies; do
    code=0; firstbad drill --all --seeds 1 --only temperature-zero --trainer ./$trainer --dir $trainer.runs --json > out || code=$?
    python3 - $trainer $code <<'PYTHON'
import json, sys
one = json.load(open("out"))["scenarios"][0]
wrong = [f"{k} {v}" if v != "wrong" else k for k, v in one["levels"].items() if v not in ("right", None)]
print(f"{sys.argv[1]}: exit {sys.argv[2]}, {one['wrong_claims']} wrong claims; {', '.join(wrong) or 'all right'}")
PYTHON
done
