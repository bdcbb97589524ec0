# A bar on a terminal while a checkpoint is read again, and none where nobody looks at it.
python3 -B - "$FIRSTBAD_SOURCE" <<'END'
import os, re, subprocess, sys
sys.path[:0] = [sys.argv[1] + "/tests/cli/run", sys.argv[1] + "/tests/cli/scan"]
from _make import make
from _terminal import play
os.environ["TERM"] = "xterm"
make("large.safetensors", {"w": ("F32", [1 << 38], 1 << 40)})
out, code = play(["firstbad", "ckpt", "verify", "large.safetensors"], [("%", "\003")], 60)
bars = [bar for bar in re.findall(r"\r(.*?)\033\[K", out) if bar]
print(code != 0, len(bars) > 0, all(re.match(r"large\.safetensors  \[[=> ]{10,40}\] +\d+ %", bar) for bar in bars))
make("small.safetensors", {"w": ("F32", [4], 16)})
print(subprocess.run(["firstbad", "ckpt", "verify", "small.safetensors"], capture_output=True, text=True).stderr)
END
