# A name that promises numbers and does not hold them is told, alone as in a folder: a pointer of Git LFS, nothing, zeros, a web page.
# A format that is known by sight is named.
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n' >pointer.safetensors
cp pointer.safetensors pointer.bin
: >empty.pt
head -c 5000 /dev/zero >torn.pt
printf '<html>404: no such file, sign in first</html>\n' >page.bin
printf '(dp0\nVw\np1\nFnan\ns.' >protocol-0.pkl
printf '\037\213\010\000\000\000\000\000' >packed.pt
for file in *; do
    mkdir folder
    cp $file "$golden/every-dtype.safetensors" folder/
    firstbad scan $file | head -n 2
    firstbad scan --json $file | python3 -c 'import json, sys; print(json.load(sys.stdin)["exit"])'
    firstbad scan folder || echo "exit $?"
    rm -r folder
done
