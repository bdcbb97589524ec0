# An interrupt ends the job and takes the temporary folder away; what was asked to be kept stays.
mkdir tmp
TMPDIR=$PWD/tmp python3 - <<'EOF'
import glob, os, signal, subprocess, time
def drill(*more):
    job = subprocess.Popen(["firstbad", "drill", "--only", "healthy-fp16", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
    where = more[1] if more else "tmp/firstbad-drill-*"
    while job.poll() is None and not glob.glob(where + "/*/ledger/a1/r00003.log"):
        time.sleep(0.01)
    job.send_signal(signal.SIGINT)
    out, err = job.communicate()
    print(job.returncode, out.count("passed"), err.replace(os.getcwd(), "HERE").strip())
drill()
print(glob.glob("tmp/firstbad-drill-*"))
drill("--dir", "kept")
print(os.listdir("kept/14-healthy-fp16/ledger/a1").count("exit.json"))
EOF
