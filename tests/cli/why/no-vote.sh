. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 no-vote
set +e
firstbad why | without_time
exit ${PIPESTATUS[0]}
