code() { set +e; firstbad scan "$@" >out 2>err; echo "exit $?: $(cat out err)"; set -e; }
code
code --jsn x
code -j 0 x
code -jx x
code -j
code --digest=md5 x
code --allow
code --sort size x
code --sort
code --json=1 x
code ''
code -- --json
