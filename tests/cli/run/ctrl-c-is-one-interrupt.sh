# On a terminal: Ctrl-C is one SIGINT for the job, not one from the terminal and one from us.
cp "$FIRSTBAD_SOURCE/tests/cli/run/_terminal.py" terminal.py
cat > job <<'JOB'
n=0
trap 'n=$((n + 1))' INT
echo ready
for ((i = 0; i < 20; i++)); do sleep 0.05; done
while [ $n = 0 ]; do sleep 0.05; done
for ((i = 0; i < 10; i++)); do sleep 0.05; done
echo "interrupts: $n"
exit 5
JOB
python3 -c 'from terminal import play
out, code = play(["firstbad", "run", "--", "bash", "job"], [("ready", "\x03")])
import re
print(re.findall("interrupts: [0-9]+", out), code)'
