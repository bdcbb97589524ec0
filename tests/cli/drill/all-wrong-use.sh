# Each is told apart and starts nothing.
try() { code=0; firstbad drill "$@" 2>&1 || code=$?; echo "$code"; }
try --all --only 3
try --all --only temperature-zero,nonsense
try --all --only ,
try --all --seeds 0
try --all --seeds 101
try --all --jobs 17
try --all --precision fp16
try --seeds 2
try --jobs 2
