# The default is to skip: the job ends well, with its own code, and the case is told.
firstbad run --run-id skipped --inject 'grad-inf@step=3' -- \
    firstbad-gpt --steps 6 --layers 2 --channels 16 --heads 2 --block 16 --batch 1 --log-every 0
