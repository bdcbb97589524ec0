# The cache of Hugging Face: a snapshot is links to blobs without names, and the index is one of them. Read by folder, index and file.
golden=$FIRSTBAD_SOURCE/tests/golden/safetensors
cache=hub/models--a--b
mkdir -p $cache/blobs $cache/refs $cache/snapshots/1f
cd $cache
printf 1f >refs/main
cp "$golden/every-dtype.safetensors" blobs/aa
cp "$golden/bad-moment.safetensors" blobs/bb
python3 -c 'import json, struct
def names(path):
    f = open(path, "rb")
    return [n for n in json.loads(f.read(struct.unpack("<Q", f.read(8))[0])) if n != "__metadata__"]
json.dump({"weight_map": {n: "model-%05d-of-00002.safetensors" % i for i, p in ((1, "blobs/aa"), (2, "blobs/bb")) for n in names(p)}},
          open("blobs/cc", "w"))'
ln -s ../../blobs/aa snapshots/1f/model-00001-of-00002.safetensors
ln -s ../../blobs/bb snapshots/1f/model-00002-of-00002.safetensors
ln -s ../../blobs/cc snapshots/1f/model.safetensors.index.json
for path in snapshots/1f snapshots/1f/model.safetensors.index.json snapshots/1f/model-00001-of-00002.safetensors; do
    firstbad scan --digest $path || echo "exit $?"
done
# The digest is that of a copy without links.
cp -rL snapshots/1f copy
firstbad scan --digest copy | grep DIGEST
rm blobs/bb
firstbad scan snapshots/1f || echo "exit $?"
