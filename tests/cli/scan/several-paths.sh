# Of several paths the gravest counts: 1 before 3 before 4 before 0; each path has its own answer, in order.
cp "$FIRSTBAD_SOURCE"/tests/golden/safetensors/{every-dtype,bad-moment,only-integers,hostile/hole}.safetensors .
code() { local code=0; firstbad scan "$@" 2>&1 >out || code=$?; echo "exit $code: $(sed -e 's/ .*//' out | grep '^[A-Z]' | tr '\n' ' ')"; }
code every-dtype.safetensors every-dtype.safetensors
code every-dtype.safetensors only-integers.safetensors
code only-integers.safetensors hole.safetensors every-dtype.safetensors
code hole.safetensors bad-moment.safetensors only-integers.safetensors
code nosuch bad-moment.safetensors
code every-dtype.safetensors nosuch
firstbad scan hole.safetensors bad-moment.safetensors every-dtype.safetensors || echo "exit $?"
