# What a hostile name would tell a terminal to do is not passed on to it, and JSON has it as it is.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
name=$(printf 'a\033]0;b\007\233c\342\200\256.safetensors')
cp "$golden/bad-moment.safetensors" "$name"
mkdir ckpt
cp "$golden/hostile/hole.safetensors" "ckpt/$name"
cp "$golden/bad-moment.safetensors" ckpt/b.safetensors
for path in "$name" ckpt "$(printf 'no\033such')"; do
    firstbad scan --stats --digest "$path" >out 2>&1 || true
    test -s out
    ! LC_ALL=C grep -q "$(printf '[\033\007\233]')" out
done
firstbad scan "$name" || test $? = 1
firstbad scan --json "$name" | json_get 'd["path"].encode("utf-8", "replace")[:4].hex()'
