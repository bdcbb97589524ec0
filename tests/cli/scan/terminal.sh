# A bar on a terminal while it reads, gone afterwards; Ctrl-C ends it with 130; no bar where nobody looks at it.
python3 -B - "$FIRSTBAD_SOURCE" <<'END'
import os, re, subprocess, sys
sys.path[:0] = [sys.argv[1] + "/tests/cli/run", sys.argv[1] + "/tests/cli/scan"]
from _make import make
from _terminal import play
os.environ["TERM"] = "xterm"
# Nobody can read a hole of a terabyte to its end in the time that this test has, so the bar is there when Ctrl-C is typed.
make("large.safetensors", {"w": ("F32", [1 << 38], 1 << 40)})
out, code = play(["firstbad", "scan", "large.safetensors"], [("%", "\003")], 60)
print(code)
bars = [bar for bar in re.findall(r"\r(.*?)\033\[K", out) if bar]
print(len(bars) > 0, all(re.match(r"large\.safetensors  \[[=> ]{10,40}\] +\d+ %", bar) for bar in bars), max(map(len, bars)) < 100)
end = out.replace("^C", "").split("\r\033[K")[-1]
print(end.strip())
job = subprocess.Popen(["firstbad", "scan", "--json", "large.safetensors"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
try: job.wait(1)
except subprocess.TimeoutExpired: pass
job.terminate()
print(job.communicate(), job.returncode)
END
