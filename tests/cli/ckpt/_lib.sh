# Sourced by the tests of firstbad ckpt.
. "$FIRSTBAD_SOURCE/tests/cli/_lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# train STEPS [ARGUMENTS]: a guarded training that saves every 2 steps into out/.
train() { steps=$1; shift; FIRSTBAD_RUN_ID=r1 firstbad run -- firstbad-gpt --layers 1 --channels 16 --heads 2 --block 16 --batch 1 --log-every 0 --steps "$steps" --save-every 2 --out out "$@" >/dev/null; }
# What changes from run to run: the time, and where pins lie.
plain() { sed -E -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}Z/DATE/' -e 's/pins\/[0-9a-f]+-[0-9]+/pins\/X/' -e "s,$PWD/,,g"; }
code() { set +e; firstbad ckpt "$@" >out.txt 2>err.txt; echo "exit $?"; set -e; plain <out.txt; plain <err.txt; }
