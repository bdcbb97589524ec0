. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
make_run r1 grad-nan
code() { set +e; firstbad "$@" >out 2>err; echo "exit $?: $(cat out err)"; set -e; }
code why nosuch
code why r1 --case 7
code why r1 --case x
code why r1 --attempt 0
code why r1 --attempt 9
code why r1 r2
code why --colour
code why --dir
code why --json=1
code why --dir empty
mkdir empty
code why --dir empty
# What a hostile name would tell a terminal to do is not passed on to it.
code why "$(printf 'a\033]0;b\233c')"
code why ./out
