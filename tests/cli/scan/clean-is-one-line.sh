cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
firstbad scan every-dtype.safetensors unaligned.safetensors sharded || test $? = 1
firstbad scan --quiet every-dtype.safetensors sharded
