"""Run a command on a terminal of its own, type, and read: play(command, [(wait for this text, type this), ...]) -> (output, code)."""
import os, pty, select, sys, time


def play(command, script, seconds=20):
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    out, until, script = b"", time.monotonic() + seconds, list(script)
    while time.monotonic() < until:
        if script and script[0][0].encode() in out.replace(b"\r\n", b"\n"):
            os.write(fd, script.pop(0)[1].encode())
        if not select.select([fd], [], [], 0.05)[0]:
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        if not data:
            break
        out += data
    else:
        os.kill(pid, 9)
    return out.decode(errors="replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
