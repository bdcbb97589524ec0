# What cannot be written is said, and not hidden behind a good exit code.
[ -e /dev/full ] || { echo "no /dev/full" >&2; exit 77; }
set +e
firstbad --help >/dev/full
echo "exit $?"
firstbad drill --list >/dev/full 2>err
echo "exit $? $(cat err)"
firstbad --help >&-
echo "exit $?"
