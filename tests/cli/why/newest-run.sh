. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# The newest run is the one that was written last, whatever its name.
make_run z-old grad-nan
sleep 0.05
make_run a-new bad-token
firstbad why | head -1 || test $? = 1
