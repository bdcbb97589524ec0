# The loss is bad in every second run that looks at it: no boundary is named, and k of n is said.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 h.1 loss > places
names h.1 loss > bad
mv program steady
cat > program <<'PROGRAM'
#!/bin/bash
if [ "$FIRSTBAD_BOUNDARY" = loss ]; then
    echo x >> looked
    [ $(($(wc -l < looked) % 2)) = 0 ] && exit 0
fi
./steady
PROGRAM
chmod +x program
search
echo "--- it never shows"
: > bad
mv steady program
search
