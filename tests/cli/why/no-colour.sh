. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Colour on a terminal; none without one, nor under NO_COLOR.
make_run r1 grad-nan
unset NO_COLOR
export TERM=xterm
firstbad why >plain || test $? = 1
! grep -q "$(printf '\033')" plain
script -qec "firstbad why" /dev/null >coloured </dev/null || test $? = 1
grep -q "$(printf '\033')\[1m1 First bad" coloured
NO_COLOR=1 script -qec "firstbad why" /dev/null >without </dev/null || test $? = 1
! grep -q "$(printf '\033')\[1m" without
