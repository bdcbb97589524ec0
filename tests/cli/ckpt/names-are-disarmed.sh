. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
mkdir ckpts
name=$(printf 'a\033]0;b\007.safetensors')
cp "$FIRSTBAD_SOURCE/tests/golden/safetensors/every-dtype.safetensors" "ckpts/$name"
code verify "ckpts/$name" >verified
code list ckpts >listed
cat verified listed
# Not one of the bytes that a terminal obeys, in what was printed above.
LC_ALL=C tr -d '[:print:]\n' <verified | wc -c
LC_ALL=C tr -d '[:print:]\n' <listed | wc -c
