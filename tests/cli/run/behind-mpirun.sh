# Behind the launcher instead of in front of it: refused, since every rank would have a run of its own.
OMPI_COMM_WORLD_SIZE=4 firstbad run -- touch started
