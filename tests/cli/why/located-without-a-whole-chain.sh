. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
# The second link reads what nobody made: the operator is not named, in neither form.
make_run r1 grad-nan
write_locate r1 'd["chain"][1]["reads"] = 5'
firstbad why
firstbad why --json >out.json || test $? = 1
! grep -q softmax out.json
json_get '[d["location"]["found"], d["location"]["origin"], d["location"]["chain"], d["first_bad"]["operator"], d["cause"]["class"]]' <out.json
