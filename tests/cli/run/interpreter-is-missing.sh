# Found and executable, and the system still cannot start it: told by exec itself, and kept in exit.json.
printf '#!/no/such/interpreter\n' > broken
chmod +x broken
code=0; firstbad run --run-id broken -- ./broken || code=$?
grep '"code"' firstbad-runs/broken/ledger/a1/exit.json
exit "$code"
