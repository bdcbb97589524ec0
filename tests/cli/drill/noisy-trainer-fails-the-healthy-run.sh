# A fault in a run that should be healthy is a false alarm, and fails the line.
cat > trainer <<'SCRIPT'
#!/bin/bash
FIRSTBAD_INJECT=grad-nan@step=50,rank=1 exec firstbad-gpt "$@"
SCRIPT
chmod +x trainer
firstbad drill --ranks 2 --only healthy-fp32 --trainer ./trainer --dir runs | grep -e FAILED -e differs
