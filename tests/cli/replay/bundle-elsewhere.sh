# A bundle that was copied: to another folder, out of its case, where the trainer's folder is gone.
. "$FIRSTBAD_SOURCE/tests/cli/replay/_lib.sh"
answer
mkdir home && cp trainer answer.json home && (cd home && make_case c 1 412 ../trainer)
cp -r home/c there
replay there
echo "--- the bundle alone"
cp -r home/c/bundle-min from-a-colleague
replay from-a-colleague
ls
echo "--- its folder is gone"
rm -r home && mkdir x && cp answer.json x && cd x && replay ../there | grep -A1 differs
sed -i 's|home|gone|' ../from-a-colleague/part-r00000.json
replay ../from-a-colleague
echo "--- the smallest of a bundle that was named"
cd "$ROOT" && answer && make_case c 1 412 ./trainer && touch c/first_bad.json
replay c/bundle --batch minimal | sed -n 1p; grep 'REPLAY=' c/replays/001/output.log | here
replay c/bundle-min --batch minimal | sed -n 1p; grep 'REPLAY=' c/replays/002/output.log | here
cp -r c/bundle alone && replay alone --batch minimal
echo "--- words that a shell would cut"
cp trainer "it's mine"
replay c --dir "a dir" -- "./it's mine" 'two words' '' '$HOME' | grep -A2 -e '^  ran' -e '^  next'
echo "--- a run and a case that were renamed"
mkdir -p runs/another/cases && mv c runs/another/cases/renamed && answer 'd["run_id"] = "another"; d["case"] = "renamed"'
replay runs/another/cases/renamed -- ./trainer | head -1
