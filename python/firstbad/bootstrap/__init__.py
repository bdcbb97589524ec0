"""What `firstbad run` puts at the head of PYTHONPATH, and what that calls when a process has imported torch."""
