firstbad replay --help | head -1
firstbad help replay | head -1
firstbad replay --help | awk 'length > 132 { print "too long: " $0 }'
