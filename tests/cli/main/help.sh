firstbad --help | head -4
firstbad help why | head -1
firstbad why -h | head -1
