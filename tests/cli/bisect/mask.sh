# -Inf in a mask is meant. Of a fully masked row the softmax is what goes wrong.
. "$FIRSTBAD_SOURCE/tests/cli/bisect/_lib.sh"
names scores 'mask !mask' softmax loss > places
names mask > neginf
names softmax loss > bad
search
echo "--- what the mask read was bad: it may carry that, or be a mask"
names scores softmax loss > bad
names 'q !entry' scores 'mask !mask' softmax loss > places
search | grep -v '^ *[0-9]'
