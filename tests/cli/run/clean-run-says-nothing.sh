# Nothing found, nothing said: a log that is quiet on good days is read on bad ones.
firstbad run --run-id clean -- firstbad-gpt --steps 4 --layers 2 --channels 16 --heads 2 --block 16 --batch 1 --log-every 0
firstbad run --json --run-id clean -- firstbad-gpt --steps 4 --layers 2 --channels 16 --heads 2 --block 16 --batch 1 --log-every 0 2>json
python3 -c 'import json
line = open("json").read()
said = json.loads(line)
assert line.count("\n") == 1
print({k: said[k] for k in ("attempt", "guarded", "ranks", "status", "case", "halted", "code", "exit", "error")})'
