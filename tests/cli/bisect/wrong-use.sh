. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
exec 2>&1
names a b > places
try() { firstbad bisect "$@" || echo "exit $?"; }
try --boundaries places
try --boundaries places --
try --boundaries places --count 3 -- true
try --count 0 -- true
try --boundaries nowhere -- true
try --boundaries places --finding c -- true
try --boundaries places --probes 3 -- true
try --boundaries places --strategy guess -- true
try --boundaries places --log a --resume b -- true
try --boundaries places some-case -- true
try --boundaries places --dir d -- true
try --log x
try --nonsense
echo "--- the file"
bad() { printf "$1" > places; try --boundaries places -- true; }
bad ''
bad '# nothing\n\n'
bad 'a\na\n'
bad 'a\nb: c\n'
bad 'a: a\n'
bad 'a\nb c\n'
bad 'a\n!mask\n'
bad 'a !maks\n'
bad 'a\nw: a !state\n'
bad 'a\001b\n'
bad 'a\000b\n'
