code() { set +e; firstbad "$@" >out 2>err; echo "exit $?: $(cat out err | head -1)"; set -e; }
code wyh
code exprot
code frobnicate
code --verbose
code help wy
code
