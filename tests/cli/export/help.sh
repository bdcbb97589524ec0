firstbad export --help
