# A link is followed to the file that it leads to, named or found in a folder; one to another folder, or to nothing, is told.
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
mkdir step-1 ckpt other
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
firstbad scan ckpt
ln -s a.safetensors ckpt/same.safetensors
firstbad scan ckpt | cut -c 1-60
rm ckpt/same.safetensors
ln -s ../other ckpt/unet
firstbad scan ckpt >out || echo "exit $?"
grep -c "unet: it is a symbolic link to another folder" out
rm ckpt/unet
ln -s ../blobs/never ckpt/b.safetensors
firstbad scan ckpt >out || echo "exit $?"
head -n 1 out
rm ckpt/b.safetensors
mkfifo pipe
ln -s ../pipe ckpt/pipe.pt
firstbad scan ckpt >out || echo "exit $?"
grep -c "pipe.pt: no regular file" out
firstbad scan ckpt/pipe.pt || echo "exit $?"
# What the registry says must not hang on bytes that lie elsewhere.
firstbad ckpt verify ckpt >out 2>&1 || echo "exit $?"
