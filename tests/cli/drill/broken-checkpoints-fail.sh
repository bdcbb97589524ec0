# Trainers that would make a bad checkpoint one to resume from, and the sentence that gives them away.
cat > trainer-that-skips-what-should-be-observed <<'SCRIPT'
#!/bin/bash
FIRSTBAD_ON_BAD=skip exec firstbad-gpt "$@"
SCRIPT
cat > trainer-that-deletes-the-pins <<'SCRIPT'
#!/bin/bash
out=; for word; do test "$last" = --out && out=$word; last=$word; done
firstbad-gpt "$@"; code=$?
rm -rf "$out/.firstbad"
exit $code
SCRIPT
cat > trainer-that-saves-without-a-word <<'SCRIPT'
#!/bin/bash
firstbad-gpt "$@" --out elsewhere; code=$?
out=; for word; do test "$last" = --out && out=$word; last=$word; done
mkdir -p "$out"; cp elsewhere/step-* "$out"
exit $code
SCRIPT
chmod +x trainer-*
try() {
    code=0; firstbad drill --ranks 2 --only $2 --trainer ./$1 --dir $1.runs > out || code=$?
    echo "$1: $2: exit $code, $(grep -c FAILED out) failed"
    grep differs out | head -1 | cut -c1-60
}
try trainer-that-skips-what-should-be-observed saved-descendant
try trainer-that-deletes-the-pins saved-rotation
try trainer-that-saves-without-a-word saved-torn
