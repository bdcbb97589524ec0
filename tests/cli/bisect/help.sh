firstbad bisect --help | head -3
firstbad help bisect | head -1
firstbad bisect --help | awk 'length > 132 { print "too long: " $0 }'
