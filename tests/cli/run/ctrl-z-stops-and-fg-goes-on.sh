# Under a shell's job control: Ctrl-Z stops job and firstbad together, fg lets both go on.
cp "$FIRSTBAD_SOURCE/tests/cli/run/_terminal.py" terminal.py
cat > job <<'JOB'
echo job-started
sleep 1
echo job-ended
exit 4
JOB
PS1='prompt> ' python3 -c 'from terminal import play
out, code = play(["bash", "--norc", "--noprofile", "-i"],
    [("prompt> ", "firstbad run -- bash job 2>/dev/null; echo shell-got $?\n"), ("job-started\n", "\x1a"), ("Stopped", "fg; echo code-$?-end\n"),
     ("code-4-end\n", "exit 3\n")])
print("Stopped" in out, "job-ended" in out, "code-4-end" in out, code)'
