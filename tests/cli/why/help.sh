firstbad why --help
