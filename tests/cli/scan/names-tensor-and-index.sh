# The tensor, its format and shape, the first bad element in its own coordinates, its kind and bits, and how many there are.
cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
firstbad scan bad-in-every-dtype.safetensors || test $? = 1
firstbad scan bad-moment.safetensors || test $? = 1
firstbad scan trained-mask-token.safetensors || test $? = 1
