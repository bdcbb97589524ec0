# A drill that cannot fail is worth nothing: trainers that break each promise, and the sentence that gives them away.
cat > trainer-without-guard <<'SCRIPT'
#!/bin/bash
exec firstbad-gpt "$@" --no-guard
SCRIPT
cat > trainer-that-ignores-the-verdict <<'SCRIPT'
#!/bin/bash
FIRSTBAD_ON_BAD=observe exec firstbad-gpt "$@"
SCRIPT
cat > trainer-that-drops-the-fault <<'SCRIPT'
#!/bin/bash
unset FIRSTBAD_INJECT
exec firstbad-gpt "$@"
SCRIPT
cat > trainer-with-another-fault <<'SCRIPT'
#!/bin/bash
FIRSTBAD_INJECT=${FIRSTBAD_INJECT/index=777/index=778} exec firstbad-gpt "$@"
SCRIPT
cat > trainer-that-stops-early <<'SCRIPT'
#!/bin/bash
exec firstbad-gpt "$@" --steps 14
SCRIPT
cat > trainer-where-ranks-differ <<'SCRIPT'
#!/bin/bash
test "$OMPI_COMM_WORLD_RANK" != 0 || export FIRSTBAD_MAX_SKIPS=9
exec firstbad-gpt "$@"
SCRIPT
chmod +x trainer-*
for trainer in trainer-*; do
    code=0; firstbad drill --ranks 2 --only grad-nan --trainer ./$trainer --dir $trainer.runs > out || code=$?
    echo "$trainer: exit $code, $(grep -c FAILED out) failed"
    grep differs out | head -3
done
