"""A job as tools leave it behind: in a session of its own, busy, and it ignores signals. Niced, since it is only a test."""

import subprocess

JOB = "trap '' TERM INT HUP; echo started; while :; do :; done"
jobs = []


def start_job():
    job = subprocess.Popen(
        ["nice", "-n", "19", "sh", "-c", JOB, "busy-job"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    job.stdout.readline()  # now its traps are set
    jobs.append(job)
    return job
