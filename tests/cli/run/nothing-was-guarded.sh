# A command that does not link firstbad: its own code, and the sentence that nothing was guarded.
firstbad run --run-id plain -- sh -c 'echo trained; exit 3'
