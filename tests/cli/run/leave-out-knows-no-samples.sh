# Told apart, and nothing is started: a run without a case, a case without samples, no such case, and two ways to say it.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
try() { firstbad run "$@" -- touch started 2>&1 || echo "exit $?"; }
make_run clean clean
try --leave-out clean | sed "s|$PWD|HERE|"
make_run r1 grad-nan
"$FIRSTBAD_BUILD/tests/make-bundle" alone/bundle 1 3 a1-000003 ''
try --leave-out alone
try --leave-out nowhere
FIRSTBAD_LEAVE_OUT=5 try --leave-out r1
test ! -e started
