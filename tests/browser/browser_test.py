"""The scripts of the HTML reports, in a headless browser.

    /usr/bin/python3 tests/browser/browser_test.py BUILD_DIR [Scripts.test_draw ...]

A unit page is the whole page with figures of our own, and one *_test.js inside of its closure, so that tests see
all that the scripts define. A real page is one that BUILD_DIR/bin/sentinel wrote, with pages/*.js behind it.
"""
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HTML = ROOT / "libsentinel/report/html"
PROFILE = ROOT / "tests/bench/data/resnet20-batch32.jsonl.gz"
SCRIPTS = sorted(path.stem for path in HTML.glob("*.js"))
BROWSER = "chromium"
ABSENT = "There is no chromium, which these tests need: apt-get install -y --no-install-recommends chromium"
END_OF_CLOSURE = "})();"
FIGURES = {"page.cpp": "heatmap.json", "comparison.cpp": "comparison.json", "difference.cpp": "difference.json"}
SECONDS = 40  # for one page
RESULTS = re.compile(r'CONSOLE\S*\] "results ([^"]*)"')
CONSOLE = re.compile(r'CONSOLE\S*\] "(.*)", source: .* \((\d+)\)$')
WRITER = re.compile(r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function|fetch|XMLHttpRequest|"
                    r"import|WebSocket|sendBeacon)\b")


class Page:
    """The text of a page, and the file and line that each of its lines is from."""

    def __init__(self):
        self.lines, self.origins = [], []

    def add(self, text, name=None, first=1):
        for number, line in enumerate(text.removesuffix("\n").split("\n"), first):
            self.lines.append(line)
            self.origins.append((name, number))

    def add_file(self, path):
        self.add(path.read_text(), path.name)

    def text(self):
        return "\n".join(self.lines) + "\n"

    def origin(self, line):
        name, number = self.origins[line - 1] if 0 < line <= len(self.origins) else (None, line)
        return f"{name or 'the page'}:{number}"

    def told(self, stack):
        """Where the assertion or the error is: the first line of a stack that is not the harness's."""
        places = [self.origin(int(line)) for line in re.findall(r"\.html:(\d+):\d+", stack or "")]
        return next((place for place in places if not place.startswith("harness.js")), "harness.js:0")


def layout(source):
    """The body and the scripts of a page, in order, as its renderer writes them."""
    text = (HTML / source).read_text()
    body, = re.findall(r"embedded::(\w+)_html", text)
    return body, re.findall(r"embedded::(\w+)_js", text)


def unit_page(script):
    source, figures = next((source, figures) for source, figures in
                           ((page, FIGURES[page]) for page in FIGURES)
                           if script in layout(source)[1])
    body, scripts = layout(source)
    page = Page()
    page.add('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<style>')
    page.add_file(HTML / "style.css")
    page.add("</style>\n<script>")
    page.add_file(HERE / "harness.js")
    page.add("</script>\n</head>")
    page.add_file(HTML / f"{body}.html")
    page.add('<script type="application/json" id="profile">')
    page.add_file(HERE / figures)
    page.add("</script>\n<script>")
    for name in scripts[:-1]:
        page.add_file(HTML / f"{name}.js")
    last = (HTML / f"{scripts[-1]}.js").read_text().rstrip()
    if not last.endswith(END_OF_CLOSURE):
        raise ValueError(f"{scripts[-1]}.js does not end the closure with {END_OF_CLOSURE}")
    page.add(last.removesuffix(END_OF_CLOSURE), f"{scripts[-1]}.js")
    page.add("{")
    page.add_file(HERE / f"{script}_test.js")
    page.add("}\n" + END_OF_CLOSURE + "\n</script>\n</body>\n</html>")
    return page


def real_page(text, tests):
    head, end = text.rsplit("</body>", 1)
    page = Page()
    page.add(head, "the written page")
    for path in (HERE / "harness.js", tests):
        page.add("<script>")
        page.add_file(path)
        page.add("</script>")
    page.add("</body>" + end)
    return page


def open_page(path, folder):
    """The browser's words, line by line, until the page's tests have ended, and their results."""
    command = [BROWSER, "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad",
               "--no-first-run", "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1280,900",
               f"--user-data-dir={folder}/browser", "--enable-logging=stderr", path.as_uri()]
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")  # which root cannot have
    words, results = [], None
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True, errors="replace", start_new_session=True) as process:
        watch = threading.Timer(SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        watch.start()
        for line in process.stderr:
            if results := RESULTS.search(line):
                break
            words.append(line.rstrip())
        watch.cancel()
        if results:
            os.killpg(process.pid, signal.SIGKILL)
    return words, json.loads(urllib.parse.unquote(results[1])) if results else None


def problems(page, planned, words, results):
    """All that is wrong with a page's tests, one a line."""
    console = [CONSOLE.search(line) for line in words]
    found = [f"{page.origin(int(said[2]))}: the console says {said[1]}" for said in console if said]
    if results is None:
        last = "\n".join(line for line in words[-12:] if "dbus" not in line)
        return found + [f"{planned} tests are written, none reported within {SECONDS} s; the browser's last words:",
                        last]
    for error in results["errors"]:
        found.append(f"{page.told(error['stack'])}: outside of the tests: {error['message']}")
    for test in results["tests"]:
        for failure in test["failures"]:
            found.append(f"{page.told(failure['stack'])}: {test['name']}: {failure['message']}")
    if len(results["tests"]) != planned:
        found.append(f"{planned} tests are written, {len(results['tests'])} reported")
    return found


def planned_in(path):
    return len(re.findall(r"^test\(", path.read_text(), re.M))


class Case(unittest.TestCase):
    def setUp(self):
        if not shutil.which(BROWSER):
            self.fail(ABSENT)
        folder = tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def show(self, page, planned):
        path = self.folder / "page.html"
        path.write_text(page.text())
        return problems(page, planned, *open_page(path, self.folder))

    def passes(self, page, tests):
        self.assertGreater(planned_in(tests), 0, f"{tests.name} has no test")
        found = self.show(page, planned_in(tests))
        if found:
            self.fail("\n" + "\n".join(found))


class Scripts(Case):
    """Each script's functions; one method a script is added below."""


def script_test(script):
    def run(self):
        tests = HERE / f"{script}_test.js"
        self.assertTrue(tests.exists(), f"{script}.js has no {tests.relative_to(ROOT)}")
        self.passes(unit_page(script), tests)
    return run


for _script in SCRIPTS:
    setattr(Scripts, f"test_{_script}", script_test(_script))


class Rules(unittest.TestCase):
    """The rules of every script, whatever it does."""

    def test_pages_load_nothing_and_names_stay_text(self):
        for script in SCRIPTS:
            for number, line in enumerate((HTML / f"{script}.js").read_text().splitlines(), 1):
                code = re.sub(r"//.*", "", line).replace("http://www.w3.org/2000/svg", "")
                self.assertIsNone(WRITER.search(code), f"{script}.js:{number}: {line.strip()}")

    def test_every_script_is_on_a_page(self):
        self.assertEqual(set().union(*(layout(page)[1] for page in FIGURES)), set(SCRIPTS))

    def test_every_function_is_used(self):
        code = {name: re.sub(r"//.*", "", (HTML / f"{name}.js").read_text()) for name in SCRIPTS}
        for source in FIGURES:
            scripts = layout(source)[1]
            for name in scripts:
                users = "\n".join(code[one] for one in (SCRIPTS if name == "formats" else scripts))  # it serves all
                for word in re.findall(r"^(?:function|class|const|let) (\w+)", code[name], re.M):
                    self.assertGreater(len(re.findall(rf"(?<![\w.]){word}\b", users)), 1, f"{name}.js: {word}")


class Real(Case):
    """Pages that the command writes of a training's trace."""

    def command(self, *arguments):
        result = subprocess.run([SENTINEL, *map(str, arguments)], capture_output=True, text=True, cwd=self.folder,
                                timeout=SECONDS, env={**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")})
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_report(self):
        tests = HERE / "pages/report.js"
        self.passes(real_page(self.command("report", PROFILE, "--format", "html"), tests), tests)

    def compared(self, name, *options):
        self.command("compare", PROFILE, "--machine", "rtx2080ti", *options, "--html", "page.html")
        tests = HERE / "pages" / name
        self.passes(real_page((self.folder / "page.html").read_text(), tests), tests)

    def test_comparison(self):
        self.compared("comparison.js", "--policy", "lru,sentinel", "--fast", "60%")

    def test_difference(self):
        trace = gzip.decompress(PROFILE.read_bytes()).decode().splitlines()
        later = [json.loads(line) for line in trace]
        for line in later:
            if "bytes" in line:
                line["bytes"] *= 2
            if "us" in line:
                line["us"] *= 1.5
        (self.folder / "later.jsonl").write_text("".join(json.dumps(line) + "\n" for line in later))
        tests = HERE / "pages/difference.js"
        self.passes(real_page(self.command("report", "--diff", PROFILE, "later.jsonl", "--format", "html"), tests), tests)

    def test_sweep(self):
        self.compared("sweep.js", "--policy", "lru", "--sweep", "fast=60%,80%")


class Planted(Case):
    """The tests find what they are for."""

    @staticmethod
    def page(script):
        page = Page()
        page.add('<!doctype html>\n<meta charset="utf-8">\n<body>\n<script>')
        page.add_file(HERE / "harness.js")
        page.add("</script>\n<script>")
        page.add(script, "planted.js")
        page.add("</script>\n</body>")
        return page

    def test_each_failure_with_its_line(self):
        found = self.show(self.page("test('sums', () => {\n  equal(1 + 1, 3);\n  equal(1, 1);\n  that(false, 'no');\n"
                                    "  near(1, 1.5);\n  console.warn('look');\n  nothing();\n});\n"
                                    "test('good', () => {});\ntest('endless', () => new Promise(() => {}));\n"
                                    "throw new Error('stop');\ntest('late', () => {});"), 4)
        self.assertEqual(found, ["planted.js:11: the console says Uncaught Error: stop",
                                 "planted.js:6: the console says look",
                                 "planted.js:11: outside of the tests: Uncaught Error: stop",
                                 "planted.js:2: sums: expected 3, not 2",
                                 "planted.js:4: sums: no",
                                 "planted.js:5: sums: expected 1.5 within 1e-9, not 1",
                                 "planted.js:7: sums: ReferenceError: nothing is not defined",
                                 "harness.js:0: endless: not at its end after 5 s",
                                 "4 tests are written, 3 reported"])

    def test_a_script_that_is_none(self):
        found = self.show(self.page("test('one', () => {});\nconst = 3;"), 1)
        self.assertIn("planted.js:2: the console says Uncaught SyntaxError: Unexpected token '='", found)
        self.assertIn("1 tests are written, 0 reported", found)

    def test_a_browser_that_is_not_there(self):
        global BROWSER
        BROWSER, was = "no-such-browser", BROWSER
        try:
            with self.assertRaisesRegex(AssertionError, "apt-get install -y --no-install-recommends chromium"):
                self.setUp()
        finally:
            BROWSER = was


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    SENTINEL = str(pathlib.Path(sys.argv.pop(1)).resolve() / "bin/sentinel")
    unittest.main()
