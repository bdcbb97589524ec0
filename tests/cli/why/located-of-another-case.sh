. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# Files that were copied here from elsewhere, explain something else, or are torn are told and not used.
make_run r1 grad-nan
write_locate r1 'd["case"] = "a1-000009"'
write_locate r1 'd["run_id"] = "another"' replays/001
write_locate r1 'd["finding"]["module"] = "h.2.mlp"' replays/002
write_locate r1 '' replays/003
truncate -s 700 firstbad-runs/r1/cases/a1-000003/replays/003/locate.json
firstbad why
