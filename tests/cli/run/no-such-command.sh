# 127 and 126 as in a shell, a sentence, and no run folder for a run that never was.
code=0; firstbad run -- no-such-command-here || code=$?; echo "$code"
code=0; firstbad run -- ./no/such/file || code=$?; echo "$code"
echo 'not a program' > text
code=0; firstbad run -- ./text || code=$?; echo "$code"
code=0; firstbad run -- / || code=$?; echo "$code"
code=0; firstbad run -- '' || code=$?; echo "$code"
test ! -e firstbad-runs
