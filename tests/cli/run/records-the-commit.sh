# The code is named by git where there is a repository, with whether it was changed; elsewhere it is unknown, never guessed.
command -v git >/dev/null || { echo 'git is not installed' >&2; exit 77; }
code() { python3 -c 'import json,sys; c=json.load(open(sys.argv[1]))["code"]; print(len(c["commit"] or ""), c["dirty"])' "runs/$1/run.json"; }
firstbad run --dir runs --run-id none -- true 2>/dev/null
git init -q repository
cd repository
git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first
echo x > file
git add file
git -c user.name=a -c user.email=a@b commit -q -m second
firstbad run --dir ../runs --run-id clean -- true 2>/dev/null
echo y > file
firstbad run --dir ../runs --run-id dirty -- true 2>/dev/null
cd ..
code none
code clean
code dirty
