firstbad scan --help
firstbad help scan | diff - <(firstbad scan --help)
