# No file is written for firstbad and nothing of it is linked: real arithmetic in another language. The square leaves the format; where
# it meets itself it becomes NaN; the clamp in between had swallowed an earlier one.
cat > places <<'PLACES'
x !entry
ratio: x
safe: ratio
grown: safe x
square: grown
difference: square
loss: difference x
PLACES
cat > probe.py <<'PYTHON'
import math, os, sys
inf = math.inf
def program():
    x = [1.0, -2.0, 3.0, 1e160]
    yield "x", x
    ratio = [v / 0.5 if v != -2.0 else inf - inf for v in x]
    yield "ratio", ratio
    safe = [v if v == v else 0.0 for v in ratio]
    yield "safe", safe
    grown = [a + b for a, b in zip(safe, x)]
    yield "grown", grown
    square = [v * v for v in grown]
    yield "square", square
    difference = [v - max(square) for v in square]
    yield "difference", difference
    yield "loss", [sum(difference) + x[0]]
wanted = os.environ["FIRSTBAD_BOUNDARY"]
for name, values in program():
    if name == wanted:
        sys.exit(0 if all(map(math.isfinite, values)) else 1)
sys.exit(125)
PYTHON
firstbad bisect --boundaries places --strategy sweep -- python3 probe.py 2>/dev/null || echo "exit $?"
firstbad bisect --boundaries places -- python3 probe.py 2>/dev/null | head -1
