#!/usr/bin/env python3
"""soak.py HOURS [--seed N] [--case N]: trains the seven models under what cases.py draws, and compares each with plain.

Each case ends in one of four ways: with the numbers of the plain training, with 125 and a sentence, killed by what was
injected, or as a failure. A wrong number, a hang, an end without a sentence, a process or a file that is left, and more
memory than the budget are failures; their output stays in build-soak/SEED/failed/. Called by tests/soak.sh.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

import cases
import injections
import runs

ROOT = runs.ROOT
WORKLOADS = ROOT / "tests" / "workloads"
OWN_FAILURE = 125
SAME, SENTENCE, KILLED, FAILED = injections.SAME, injections.SENTENCE, injections.KILLED, "failed"
# Refusals before training, of budgets and policies that cannot work.
REFUSALS = re.compile(r"the smallest that does is|are too few|still holds more than|cannot train in|cannot work|"
                      r"(is|are) allowed")
BARE = re.compile(r"terminate called|what\(\):|std::|Traceback|assertion|core dumped", re.I)


def plain_key(model, words):
    at = words.index("--raise-at") if "--raise-at" in words else None
    return model if at is None else f"{model}-raise-{words[at + 1]}"


class Soak:
    def __init__(self, folder, seed, build, python):
        self.seed, self.build, self.python = seed, build, python
        self.folder, self.plains = folder / str(seed), folder / "plain"
        for each in (self.folder / "failed", self.plains):
            each.mkdir(parents=True, exist_ok=True)
        self.results = self.folder / "results.jsonl"
        self.available = {kind.name for kind in injections.KINDS}
        self.missing = {}
        try:
            with runs.Group(f"soak-{os.getpid()}"):
                pass
        except runs.cgroup.Unavailable as reason:
            self._without("group", reason)
        self.disk = None
        try:
            self.disk = runs.Disk(self.folder)
        except OSError as reason:
            self._without("disk", reason)

    def _without(self, resource, reason):
        for kind in injections.KINDS:
            if resource in kind.needs:
                self.available.discard(kind.name)
                self.missing[kind.name] = str(reason)

    def done(self):
        return [json.loads(line) for line in self.results.read_text().splitlines()] if self.results.exists() else []

    def plain(self, model, words):
        """The record of a plain training, made once, and the seconds it took."""
        record = self.plains / f"{plain_key(model, words)}.json"
        if not record.exists():
            script, *flags = cases.MODELS[model]
            at = words.index("--raise-at") if "--raise-at" in words else len(words)
            begun = time.monotonic()
            outcome = runs.training.finish(
                [self.python, WORKLOADS / script, *flags, *words[at:at + 2], "--json", f"{record}.new"], timeout=900)
            if outcome.status != 0:
                raise SystemExit(f"the plain training of {model} failed: {outcome.err}")
            read = json.loads(pathlib.Path(f"{record}.new").read_text())
            read["seconds"] = time.monotonic() - begun
            record.write_text(json.dumps(read))
            os.unlink(f"{record}.new")
        return record, json.loads(record.read_text())

    def command(self, case, words, folder):
        slow = self.disk.folder if "full disk" in case.words()["injected"] else folder / "slow"
        slow.mkdir(exist_ok=True)
        budget = ["--fast", case.budget] if "limit" not in case.words()["injected"] and case.budget else []
        options = [*case.options, *(word for each in case.injections for word in each.options())]
        if case.backend == "numa":
            options += ["--tiers", "fast=node0,slow=node0"]
        else:
            options += ["--slow", slow]
        return slow, [self.build / "bin/sentinel", "run", "--policy", case.policy, *budget, *options, "--summary",
                      folder / "summary.json", "--", self.python, *words, "--json", folder / "record.json"]

    def run(self, number):
        case = cases.draw(self.seed, number, self.available)
        script, *flags = cases.MODELS[case.model]
        words = [str(WORKLOADS / script), *flags]
        environment = {"SENTINEL_INJECT": "one-node"} if case.backend == "numa" else {}
        for injection in case.injections:
            words = injection.program(words)
            for name, value in injection.environment().items():
                environment[name] = ",".join(filter(None, (environment.get(name), value)))
        reference, plain = self.plain(case.model, words)
        with tempfile.TemporaryDirectory(dir=self.folder) as name, contextlib.ExitStack() as stack:
            folder = pathlib.Path(name)
            slow, command = self.command(case, words, folder)
            group = None
            if any("group" in injection.needs for injection in case.injections):
                group = stack.enter_context(runs.Group(f"soak-{os.getpid()}"))
                share = next((each.share for each in case.injections if each.name == "limit"), 1.5)
                group.begin(int(share * plain["peak_rss_kb"] * 1024) + (64 << 20))
                command = group.inside(*command)
            begun = time.monotonic()
            run = runs.Run(command, environment, folder, self.disk, group)
            status = run.finish(case.injections, 300 + 20 * plain["seconds"])
            took = time.monotonic() - begun
            result = self.judge(case, status, run, folder, slow, reference)
            result = {**case.words(), "seconds": round(took, 1), "status": status, **result}
            if result["end"] == FAILED:
                self.keep(number, folder, command, environment, result)
            if self.disk is not None:
                self.disk.empty()
        return result

    def note(self, result):
        with open(self.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    def keep(self, number, folder, command, environment, result):
        place = self.folder / "failed" / str(number)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name in ("output", "errors", "record.json", "summary.json"):
            if (folder / name).exists():
                shutil.copy(folder / name, place / name)
        text = " ".join([*(f"{name}={value}" for name, value in environment.items()), *map(str, command)])
        (place / "command").write_text(text + "\n" + json.dumps(result, indent=1) + "\n")

    def judge(self, case, status, run, folder, slow, reference):
        errors = run.errors.read_text(errors="replace")
        told = [line for line in errors.splitlines() if line.startswith("sentinel:")]
        ends = set().union({SAME}, *(injection.ends for injection in case.injections))
        survivors = run.survivors()
        if status is None:
            return {"end": FAILED, "why": f"a hang after {run.steps_done()} steps"}
        if survivors:
            return {"end": FAILED, "why": f"{len(survivors)} processes are left"}
        left = [path.name for path in slow.iterdir() if path.name not in ("lost+found", "filler")]
        if left:
            return {"end": FAILED, "why": f"files are left on the slow tier: {', '.join(left)}"}
        if status == 0:
            return self.judge_numbers(folder, reference)
        if status == OWN_FAILURE:
            sentence = told[-1].removeprefix("sentinel: ") if told else ""
            if len(sentence.split()) < 4 or BARE.search(errors):
                return {"end": FAILED, "why": "125 without a sentence"}
            if SENTENCE not in ends and not REFUSALS.search(sentence):
                return {"end": FAILED, "why": f"125 without a cause: {sentence}"}
            return {"end": SENTENCE, "sentence": sentence}
        signals = {128 + number for number in (1, 2, 9, 15)}
        if KILLED in ends and (status in signals or status == 1 and "KeyboardInterrupt" in errors):
            return {"end": KILLED}
        return {"end": FAILED, "why": f"ended with {status}"}

    def judge_numbers(self, folder, reference):
        first = runs.training.Outcome(0, "", "", record_file=folder / "plain.json")
        second = runs.training.Outcome(0, "", "", record_file=folder / "record.json")
        if not second.record_file.exists():
            return {"end": FAILED, "why": "no record"}
        record = json.loads(reference.read_text())
        del record["seconds"]
        first.record_file.write_text(json.dumps(record))
        difference = runs.training.compare(first, second)
        if difference:
            return {"end": FAILED, "why": f"a wrong number: {difference.strip()}"}
        summary = runs.training.read_json(folder / "summary.json")
        if summary and summary["fast_limit_bytes"] and summary["peak_fast_bytes"] > summary["fast_limit_bytes"]:
            return {"end": FAILED, "why": "more memory than the budget"}
        return {"end": SAME}


def table(results, missing):
    """Of what was injected: how often, and how the trainings ended; then the sentences, and the failures."""
    rows = collections.defaultdict(collections.Counter)
    for result in results:
        for name in result["injected"] or ["nothing"]:
            rows[name][result["end"]] += 1
        rows["all"][result["end"]] += 1
    hours = sum(result["seconds"] for result in results) / 3600
    lines = [f"{len(results)} trainings, {hours:.2f} hours", "",
             f"| injected | trainings | {SAME} | {SENTENCE} | {KILLED} | {FAILED} |", "|" + " --- |" * 6]
    for name in sorted(rows, key=lambda name: (name == "all", name)):
        row = rows[name]
        counts = " | ".join(str(row[end]) for end in (SAME, SENTENCE, KILLED, FAILED))
        lines.append(f"| {name} | {sum(row.values())} | {counts} |")
    for field in ("policy", "backend", "model"):
        counts = collections.Counter(result[field] for result in results)
        lines.append(f"\nby {field}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    sentences = collections.Counter(
        re.sub(r"/\S+", "PATH", re.sub(r"\d[\d.]*", "N", result["sentence"]))
        for result in results if "sentence" in result)
    if sentences:
        lines += ["", "| times | sentence of an end with 125 |", "| --- | --- |"]
        lines += [f"| {count} | {sentence} |" for sentence, count in sentences.most_common()]
    lines += [f"\nnot injected here: {name} ({reason})" for name, reason in missing.items()]
    lines += [f"\nfailed: case {one['case']}, {one['why']}" for one in results if one["end"] == FAILED]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hours", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="this one alone, again")
    arguments = parser.parse_args()
    build = pathlib.Path(os.environ.get("SENTINEL_BUILD", ROOT / "build")).resolve()
    soak = Soak(ROOT / "build-soak", arguments.seed, build, os.environ["SENTINEL_TORCH2_PYTHON"])
    end = time.monotonic() + 3600 * arguments.hours
    try:
        number = arguments.case if arguments.case is not None else len(soak.done())
        while time.monotonic() < end:
            result = soak.run(number)
            told = (f"{name}={value}" for name, value in result.items() if value not in ("", [], None))
            print(" ".join(told), flush=True)
            if arguments.case is not None:
                break
            soak.note(result)
            number += 1
    except KeyboardInterrupt:
        print("interrupted; the same seed goes on", file=sys.stderr)
    finally:
        if soak.disk is not None:
            soak.disk.remove()
    text = table(soak.done(), soak.missing)
    (soak.folder / "table.md").write_text(text)
    print(text)
    return 1 if any(result["end"] == FAILED for result in soak.done()) else 0


if __name__ == "__main__":
    sys.exit(main())
