# Each finding names its file; a broken file beside it is told as well, and the finding decides.
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
mkdir ckpt
cp "$golden/bad-moment.safetensors" ckpt/a.safetensors
cp "$golden/hostile/hole.safetensors" ckpt/b.safetensors
cp "$golden/hostile/overlap.safetensors" ckpt/c.safetensors
cp "$golden/every-dtype.safetensors" ckpt/d.safetensors
firstbad scan ckpt
