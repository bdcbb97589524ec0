# One scenario on two ranks, the table's form, and nothing left behind in the temporary folder.
export TMPDIR=$PWD/tmp
mkdir tmp
firstbad drill --ranks 2 --only grad-nan
test -z "$(ls tmp)"
