. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
mkdir ckpts
name=$(printf 'a\033]0;b\007.safetensors')
cp "$FIRSTBAD_SOURCE/tests/golden/safetensors/every-dtype.safetensors" "ckpts/$name"
code verify "ckpts/$name" | od -An -c | grep -c '033' || true
code list ckpts | grep -c "$(printf '\033')" || true
