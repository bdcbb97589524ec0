. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
train 2
firstbad ckpt list out --json | json_get '[sorted(d), len(d["checkpoints"]), d["latest"].endswith("/out/step-000002.safetensors"), d["latest_why"]]'
firstbad ckpt list out --json | json_get 'sorted(d["checkpoints"][0])'
firstbad ckpt list out --json | json_get '[(c["state"], c["step"], c["gated"], c["bad"], c["pin"]) for c in d["checkpoints"]]'
firstbad ckpt log out --json | json_get 'sorted(set((c["state"], c["reason"], c["step"]) for c in d["records"]))'
firstbad ckpt latest out --json | json_get '[sorted(d), d["step"], d["attempt"], d["verified"]]'
firstbad ckpt latest out --verify --json | json_get 'd["verified"]'
