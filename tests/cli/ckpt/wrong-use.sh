. "$FIRSTBAD_SOURCE/tests/cli/ckpt/_lib.sh"
code
code show
code verify
code quarantine x
code release x --why ""
code list a b
code list nosuch/there
code latest nosuch
code verify nosuch
code quarantine nosuch --why reason
code verify x --json
code list --verify
code list --why x
code latest
