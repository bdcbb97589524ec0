# Narrow terminals get narrow lines, whatever is shown.
cd "$FIRSTBAD_SOURCE/tests/golden/safetensors"
for columns in 40 60 80 100; do
    for path in bad-in-every-dtype.safetensors every-dtype.safetensors sharded sharded-missing causal-mask.safetensors; do
        code=0
        LC_ALL=C COLUMNS=$columns firstbad scan --stats $path >"$OLDPWD/out" || code=$?
        [ $code -le 4 ] && [ -s "$OLDPWD/out" ] || echo "$path, $columns: exit $code, $(wc -c <"$OLDPWD/out") bytes"
        # A word that cannot be broken may stand over.
        awk -v max=$columns -v path=$path 'length > max && NF > 1 { print path ", " max ": " $0 }' "$OLDPWD/out"
    done
done
COLUMNS=40 firstbad scan bad-moment.safetensors || test $? = 1
