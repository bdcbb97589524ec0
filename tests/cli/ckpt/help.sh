firstbad ckpt --help
