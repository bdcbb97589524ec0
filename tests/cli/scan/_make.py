"""Write a safetensors file byte by byte: make(path, {name: (dtype, shape, bytes or a number of zero bytes)})."""
import json
import struct


def make(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        size = data if isinstance(data, int) else len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            # A number of zero bytes is a hole, so a file may be far larger than the disk.
            out.truncate(out.seek(data, 1)) if isinstance(data, int) else out.write(data)
