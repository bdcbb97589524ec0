# One of a thing is not many.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names h.0 > places
names h.0 > bad
search --runs 1 | grep -e 'Not certain' -e why -e cost
names x '!entry' | paste -sd ' ' > places
names 'h.0: x' >> places
search --runs 1 --log log | grep -e why -e cost
