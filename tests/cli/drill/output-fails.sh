# A table that nobody could read is no success.
[ -e /dev/full ] || { echo "no /dev/full" >&2; exit 77; }
mkdir tmp
export TMPDIR=$PWD/tmp
set +e
firstbad drill --only grad-nan >/dev/full 2>err
echo "$? $(cat err)"
firstbad drill --only grad-nan --json >/dev/full 2>err
echo "$? $(cat err)"
ls tmp | grep -c firstbad-drill
true
