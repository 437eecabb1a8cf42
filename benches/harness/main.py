"""benches/run calls this: WORK [PART]...; WORK holds the binaries that are measured and the tools."""

import os
import platform
import sys
import time

import contenders
import events
import relay
import resident
import scale
import startup
import teardown
from table import table

RESULTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "results.md")
HEAD = "# Results\n\nWritten by `benches/run`; what each figure means: [README.md](README.md).\n"


def measure_size(everyone, _work, _quick):
    rows, seen = [], set()
    for contender in everyone:
        file = contender.words[0]
        if file not in seen:
            seen.add(file)
            with open(file, "rb") as binary:
                static = b"/ld-linux" not in binary.read()
            rows.append([contender.name, os.path.getsize(file) // 1024, "static" if static else "needs libc"])
    return "Binary", table(["KiB", "size", ""], rows)


def measure_builds(_everyone, work, quick):
    built = contenders.builds(work)
    _, memory = resident.measure_memory(built, work, quick)
    _, size = measure_size(built, work, quick)
    runs = 60 if quick else startup.RUNS
    text = (f"Builds as distributions make them, beside the release. Start-up of `true`, "
            f"{runs} runs of each in rounds; memory at rest; size.\n\n")
    flags = "The flags of each (`RUSTFLAGS`):\n\n" + contenders.flags(work)
    return "Builds", "\n".join([text + startup.starts(built, work, runs, 0), memory, size, flags])


PARTS = {
    "startup": startup.measure,
    "paused": startup.measure_with_pauses,
    "memory": resident.measure_memory,
    "rest": resident.measure_rest,
    "size": measure_size,
    "builds": measure_builds,
    "forwarding": events.measure_forwarding,
    "relay": relay.measure,
    "throughput": events.measure_throughput,
    "reaping": events.measure_reaping,
    # Last, since their thousands of processes stay in the load average for minutes.
    "teardown": teardown.measure,
    "scale": scale.measure,
}
# A part begins when the load is below this, but waits no longer than so many seconds. A load of 100 needs 320 s.
QUIET, PATIENCE = 0.5, 420


def circumstances():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    model = model.replace("(R)", "").replace(" Processor", "")
    kernel = platform.release().split("-")[0]
    load = os.getloadavg()[0]
    return f"{time.strftime('%Y-%m-%d')}, Linux {kernel}, {os.cpu_count()} × {model}, load {load:.1f} at the start"


def wait_for_quiet():
    deadline = time.monotonic() + PATIENCE
    while os.getloadavg()[0] >= QUIET and time.monotonic() < deadline:
        time.sleep(1)


def kept():
    """The sections of the last results, by title: a part that is measured again replaces its own only."""
    if not os.path.exists(RESULTS):
        return {}
    with open(RESULTS, encoding="utf-8") as file:
        sections = file.read().split("\n## ")[1:]
    return {section.split("\n", 1)[0]: "\n## " + section.rstrip("\n") + "\n" for section in sections}


def main():
    work, asked = sys.argv[1], sys.argv[2:]
    quick = bool(os.environ.get("QUICK"))
    unknown = [part for part in asked if part not in PARTS]
    if unknown:
        raise SystemExit(f"benches: no such part: {unknown[0]}; there are: {' '.join(PARTS)}")
    everyone = contenders.make(work)
    sections = kept()
    for part in asked or PARTS:
        if not quick:
            wait_for_quiet()
        where = circumstances()
        title, body = PARTS[part](everyone, work, quick)
        sections[title] = f"\n## {title}\n{body}\n{where}\n"
        print(sections[title], flush=True)
        if not quick:
            with open(RESULTS, "w", encoding="utf-8") as file:
                file.write(HEAD + "".join(sections.values()))


if __name__ == "__main__":
    main()
