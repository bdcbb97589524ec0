# No folder, no guard: told before anything is started.
code=0; firstbad run --dir /dev/null/runs -- touch started || code=$?
test ! -e started
exit "$code"
