. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer
make_case c 1 412 ./trainer
replay c --times 0
replay c --times 10001
replay c --batch half
replay c d
replay c --alone -- ./trainer
replay c --
replay --nonsense
replay nowhere
bisect c --log x
bisect c --strategy guess
bisect c --probes 0
bisect c --count 3 -- true
ls c
