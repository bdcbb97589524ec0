# Trainings one after another below one launch have attempts of their own, as restarts by torchrun have. The newest is the answer;
# a case of one before it is told all the same. What another launch did is its own affair.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
cat > train <<'SH'
for scenario; do
    "$FIRSTBAD_BUILD/tests/make-run" "$FIRSTBAD_DIR" "$FIRSTBAD_RUN_ID" "$scenario" >/dev/null || exit 1
    FIRSTBAD_ATTEMPT=$((FIRSTBAD_ATTEMPT + 1))
done
SH
said() { firstbad run --json --run-id "$1" -- bash train "${@:2}" 2>&1 | json_get '[d[k] for k in ("attempt", "newest_attempt", "status", "case", "halted", "exit")]'; }
said one clean clean
said two clean grad-nan
said three grad-nan clean
said four grad-nan-halt clean
said five clean grad-nan-halt
echo "--- for people"
firstbad run --run-id six -- bash train grad-nan clean 2>&1 | tr '\n' ' ' | tr -s ' ' | grep -o 'next .* code 0'
echo "--- another launch of the same run, meanwhile"
firstbad run --json --run-id seven -- bash -c 'bash train clean; unset FIRSTBAD_ATTEMPT; firstbad run --run-id seven -- bash train grad-nan 2>/dev/null' 2>&1 |
    json_get '[d[k] for k in ("attempt", "newest_attempt", "status")]'
