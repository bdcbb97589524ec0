# A link that a person names is followed; one that leads nowhere is told; one inside a checkpoint is listed and not followed.
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
mkdir step-1 ckpt
cp "$golden/bad-moment.safetensors" step-1/a.safetensors
cp "$golden/every-dtype.safetensors" .
ln -s step-1 latest
ln -s every-dtype.safetensors file
ln -s nowhere broken
ln -s ../every-dtype.safetensors ckpt/a.safetensors
firstbad scan file
code=0
firstbad scan latest >out || code=$?
echo "exit $code"
head -n 1 out
tail -n 1 out | grep -c "^latest: .*1 of 3 tensors bad"
firstbad scan broken || echo "exit $?"
firstbad scan ckpt >out || echo "exit $?"
grep -c "nothing left" out || test $? = 1
