# Sourced by the tests of bisect. ./program answers as a real one would, out of three files: bad, neginf and hidden hold the names of
# places that are not finite, hold -Inf alone, and cannot be looked at.
touch bad neginf hidden
cat > program <<'PROGRAM'
#!/bin/bash
any=0 all=1
while IFS= read -r place; do
    grep -qx -- "$place" hidden && exit 125
    if grep -qx -- "$place" neginf; then [ "$FIRSTBAD_ASK" = any_bad ] && exit 2; all=0
    elif grep -qx -- "$place" bad; then any=1
    else all=0; fi
done <<< "$FIRSTBAD_BOUNDARY"
[ "$FIRSTBAD_ASK" = all_bad ] && exit $all
exit $any
PROGRAM
chmod +x program
names() { printf '%s\n' "$@"; }
# Both: what was asked, and the answer; then the exit code.
search() { firstbad bisect --boundaries places "$@" -- ./program 2>&1 || echo "exit $?"; }
