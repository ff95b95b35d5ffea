#!/usr/bin/env python3
"""campaign.py BUILD [SECONDS [READER...]]: runs libFuzzer on each reader, and prints a table; called by run.sh.

What libFuzzer finds new goes into BUILD/corpus/READER, and what fails into BUILD/findings/READER. As many readers run
side by side as FUZZ_JOBS says, or as there are processors.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIMITS = ["-rss_limit_mb=1024", "-malloc_limit_mb=1024", "-timeout=10", "-max_len=65536"]
FAULT = re.compile(r"^(?:==\d+==\s*)?ERROR: .*|^SUMMARY: .*|.*runtime error: .*|.*Assertion '.*' failed.*", re.M)


def readers(build):
    """Reader -> the names of the sources that parse for it."""
    told = subprocess.run([build / "bin/corpus_writer", "--sources"], check=True, capture_output=True, text=True)
    return {name: sources for name, *sources in (line.split() for line in told.stdout.splitlines())}


def edges(text, sources):
    """Covered and all edges of the functions in these sources, of libFuzzer's -print_coverage."""
    covered = every = 0
    for hit, total, path in re.findall(r"COVERED_FUNC: hits: \d+ edges: (\d+)/(\d+) .* (\S+?):\d+", text):
        if any(path.endswith(source) for source in sources):
            covered, every = covered + int(hit), every + int(total)
    return covered, every


def fuzz(build, reader, sources, seconds):
    corpus, findings = build / "corpus" / reader, build / "findings" / reader
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    seeds = HERE / "corpus" / reader
    environment = {**os.environ, "SENTINEL_READER": reader, "UBSAN_OPTIONS": "print_stacktrace=1",
                   "TMPDIR": "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp",
                   "ASAN_OPTIONS": "quarantine_size_mb=32:detect_stack_use_after_return=1"}
    run = subprocess.run(
        [build / "bin/fuzzer", corpus, seeds, *LIMITS, f"-max_total_time={seconds}", f"-artifact_prefix={findings}/",
         "-print_final_stats=1", "-print_coverage=1"],
        env=environment, capture_output=True, text=True, errors="replace")
    (build / "findings" / f"{reader}.log").write_text(run.stderr)

    def last(pattern):
        return (re.findall(pattern, run.stderr) or ["?"])[-1]

    covered, every = edges(run.stderr, sources)
    fault = FAULT.search(run.stderr)
    if run.returncode == 0:
        found = "none"
    else:
        found = fault[0].strip()[:160] if fault else f"ended with {run.returncode}"
    return {"reader": reader, "runs": last(r"number_of_executed_units:\s+(\d+)"), "edges": last(r" cov: (\d+)"),
            "own": f"{covered} of {every}", "corpus": len(list(corpus.iterdir())) + len(list(seeds.iterdir())),
            "MiB": last(r"peak_rss_mb:\s+(\d+)"), "findings": found}


def main(arguments):
    build = pathlib.Path(arguments[0])
    seconds = int(arguments[1]) if len(arguments) > 1 else 60
    known = readers(build)
    unknown = [name for name in arguments[2:] if name not in known]
    if unknown:
        return f"{unknown[0]} is none of the readers: {', '.join(known)}"
    chosen = arguments[2:] or list(known)
    (build / "findings").mkdir(exist_ok=True)
    jobs = int(os.environ.get("FUZZ_JOBS", os.cpu_count()))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(lambda name: fuzz(build, name, known[name], seconds), chosen))
    columns = list(rows[0])
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(str(row[column]) for column in columns)} |")
    failed = [row["reader"] for row in rows if row["findings"] != "none"]
    return f"findings in {', '.join(failed)}: {build}/findings" if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
