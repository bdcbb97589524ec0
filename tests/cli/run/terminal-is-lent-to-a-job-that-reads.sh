# A job that reads from the terminal, a debugger for example, gets it; Ctrl-C then still is one SIGINT.
cp "$FIRSTBAD_SOURCE/tests/cli/run/_terminal.py" terminal.py
cat > job <<'JOB'
n=0
trap 'n=$((n + 1))' INT
echo ready
read -r line
echo "read: $line"
while [ $n = 0 ]; do sleep 0.05; done
for i in $(seq 10); do sleep 0.05; done
echo "interrupts: $n"
exit 6
JOB
python3 -c 'from terminal import play
out, code = play(["firstbad", "run", "--", "bash", "job"], [("ready", "hello\n"), ("read: hello", "\x03")])
import re
print(re.findall("read: hello|interrupts: [0-9]+", out), code)'
