# A hang-up that was ignored when we started stays ignored, by us and by the job.
cat > job <<'JOB'
: > ready
until test -e go; do sleep 0.02; done
echo survived
JOB
(trap '' HUP; exec firstbad run -- bash job 2>/dev/null) &
parent=$!
until test -e ready; do sleep 0.02; done
kill -HUP $parent
: > go
wait $parent
