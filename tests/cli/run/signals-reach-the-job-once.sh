# A signal sent to firstbad reaches the job, once each, and the job's own way of ending is kept.
cat > job <<'JOB'
for s in INT HUP USR1 USR2 TERM; do trap "echo $s >> got; test $s != TERM || exit 9" $s; done
: > ready
while :; do sleep 0.05; done
JOB
firstbad run -- bash job 2>/dev/null &
parent=$!
until test -e ready; do sleep 0.02; done
for s in HUP USR1 USR2 TERM; do
    kill -$s $parent
    until grep -q $s got 2>/dev/null; do sleep 0.02; done
done
code=0; wait $parent || code=$?
cat got
echo "$code"
