# The list starts nothing.
firstbad drill --list
