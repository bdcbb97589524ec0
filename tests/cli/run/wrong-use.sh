# Each is told apart, ends with 2, starts nothing and leaves nothing behind.
try() { code=0; firstbad run "$@" 2>&1 || code=$?; echo "$code"; }
try
try --
try --no-such-option -- touch started
try --dir
try --on-bad never -- touch started
try --max-skips -1 -- touch started
try --max-skips 3x -- touch started
try --inject grad -- touch started
try --inject 'grad-inf@rank=1' -- touch started
try --set novalue -- touch started
try --set =value -- touch started
try --run-id ../escape -- touch started
try --run-id .hidden -- touch started
try --run-id "$(printf 'x%.0s' $(seq 64))" -- touch started
try --run-id=-x -- touch started
try --js -- touch started
FIRSTBAD_RUN_ID='a b' try -- touch started
test ! -e started
test ! -e firstbad-runs
