# What is done after a bad update, handed to the program and kept in launch.json.
cat > show <<'SHOW'
echo "LOCATE=${FIRSTBAD_LOCATE-unset} STRATEGY=${FIRSTBAD_STRATEGY-unset}"
SHOW
firstbad run --run-id r1 --locate replay,cause --strategy bisect -- bash show 2>/dev/null
grep -e '"locate"' -e '"strategy"' firstbad-runs/r1/ledger/a1/launch.json
firstbad run --run-id r1 --locate none -- bash show 2>/dev/null
firstbad run --run-id r1 -- bash show 2>/dev/null
try() { firstbad run "$@" -- touch started 2>&1 || echo "exit $?"; }
try --locate everything
try --locate replay,
try --locate ''
try --strategy guess
test ! -e started
