# Each is told apart and starts nothing.
try() { code=0; firstbad drill "$@" 2>&1 || code=$?; echo "$code"; }
try --only 99
try --only grad-nan,nonsense
try --only ,
try --ranks 1
try --ranks 65
try --ranks four
try --precision fp16
try --bogus
try -- python train.py
try --trainer ./nowhere
try --trainer .
try --dir /dev/null/x 2>&1 | sed 's/:.*//'
