# Bold labels on a terminal; none without one, nor under NO_COLOR.
file=$FIRSTBAD_SOURCE/tests/golden/safetensors/bad-moment.safetensors
unset NO_COLOR
export TERM=xterm
firstbad scan "$file" >plain || test $? = 1
! grep -q "$(printf '\033')" plain
script -qec "firstbad scan $file" /dev/null >coloured </dev/null || test $? = 1
grep -q "$(printf '\033')\[1mNON-FINITE" coloured
NO_COLOR=1 script -qec "firstbad scan $file" /dev/null >without </dev/null || test $? = 1
! grep -q "$(printf '\033')" without
