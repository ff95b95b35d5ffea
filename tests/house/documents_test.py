#!/usr/bin/env python3
"""The documents: every link resolves, every path exists, the README is short, no document is too long, no sentence is
too long, and each command block either is run by tests/integration/test_documents.py or says why not.

    documents_test.py             the test
    documents_test.py --longest   the longest sentences, and each document's words
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = "docs examples include kernel libsentinel tests tfplugin tools torchplugin".split()
MOST_README_LINES, MOST_WORDS, MOST_WORDS_OF_A_SENTENCE = 150, 3000, 40
RUN_FROM = ("README.md", "docs/guide/", "docs/reference/", "examples/")  # where command blocks are run or marked
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
MARK = re.compile(r"^ *<!-- not run here: \S.* -->\n$")
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^()\s<>]+)>?\)")


def documents(root):
    """Name -> text, of every document under the root."""
    paths = [*root.glob("*.md"), *(path for folder in FOLDERS for path in (root / folder).rglob("*.md"))]
    return {path.relative_to(root).as_posix(): path.read_text() for path in sorted(paths)
            if "node_modules" not in path.parts}


def without_code(text):
    return FENCE.sub("", text)


def spoken(text):
    """Without blocks, comments, links' targets and signs; a name in code is one word."""
    text = re.sub(r"<!--.*?-->", "", without_code(text), flags=re.S)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"!?\[([^\[\]]*)\]\([^()\s]*\)", r"\1", text)
    return re.sub(r"<https?:[^>]*>", "link", text)


def paragraphs(text):
    """Each of text, of a heading, of an item of a list. Tables are left out."""
    lines = []
    for line in spoken(text).splitlines():
        if line.lstrip().startswith("|"):
            line = ""
        if not line.strip() or re.match(r"\s*([-*]|\d+\.)\s|#", line):
            yield " ".join(lines)
            lines = []
        lines.append(re.sub(r"^\s*([-*]|\d+\.|#+)\s", "", line).strip())
        if line.startswith("#"):
            yield " ".join(lines)
            lines = []
    yield " ".join(lines)


def words(text):
    return [word for word in text.split() if re.search(r"\w", word)]


def is_a_list_of_names(sentence):
    """Mostly names: in code, or between commas by one or two."""
    return sentence.count("code") * 2 > len(words(sentence)) or sentence.count(",") * 3 > len(words(sentence))


def sentences(text):
    for paragraph in paragraphs(text):
        yield from re.split(r"(?<=[.!?])[\"')*_]* +(?=[\"'(*_]*[A-Z0-9])|(?<=[.!?]) +(?=code )", paragraph)


def long_sentences(text):
    return [one for one in sentences(text)
            if len(words(one)) > MOST_WORDS_OF_A_SENTENCE and not is_a_list_of_names(one)]


def anchors(text):
    """As GitHub names the headings."""
    found, names = {}, set()
    for title in re.findall(r"^#+ +(.*?) *#*$", without_code(text), re.M):
        title = re.sub(r"\[([^\[\]]*)\]\([^()\s]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = found[name] = found.get(name, -1) + 1
        names.add(f"{name}-{count}" if count else name)
    return names | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def links(text):
    text = re.sub(r"`[^`\n]*`", lambda code: code[0] if "](" not in code[0] else "", without_code(text))
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def broken_links(root, name, text, all_documents):
    broken = []
    for link in links(text):
        target, _, anchor = link.partition("#")
        path = (root / name).parent / target if target else root / name
        if not path.exists():
            broken.append(link)
        elif anchor and path.suffix == ".md":
            other = path.resolve().relative_to(root.resolve()).as_posix()
            if anchor not in anchors(all_documents.get(other, "")):
                broken.append(link)
    return broken


def missing_paths(root, text):
    """What stands in code, begins with a folder of ours, and is no file, folder or pattern of one. Capitals stand for
    any name; "belady" is the policy that CONTRIBUTING.md adds as an example."""
    missing = []
    for code in re.findall(r"`([^`\n]+)`", without_code(text)):
        path = code.split()[0].split(":")[0]
        if path.split("/")[0] in FOLDERS and "/" in path and re.fullmatch(r"[\w./*-]+", path):
            if not any(root.glob(path.rstrip("/"))) and not re.search(r"(^|/)(STAGE|NAME)|belady", path):
                missing.append(path)
    return missing


def command_blocks(text):
    """(line, commands, marked as not run here) of each sh block."""
    found = []
    for block in FENCE.finditer(text):
        if block[2] != "sh":
            continue
        before = text[:block.start()]
        indent = len(block[1])
        commands = "".join(line[indent:] if line[:indent].isspace() else line for line in block[3].splitlines(True))
        above = before.splitlines(True)[-1] if before else ""
        found.append((before.count("\n") + 1, commands, MARK.match(above) is not None))
    return found


def unmarked_comments(text):
    """Marks that stand above no block."""
    return len(re.findall(r"<!-- not run here", text)) - sum(marked for _, _, marked in command_blocks(text))


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.all = documents(ROOT)

    def test_it_reads_them(self):
        self.assertGreater(len(self.all), 40)

    def test_links_resolve(self):
        broken = {name: found for name, text in self.all.items() if (found := broken_links(ROOT, name, text, self.all))}
        self.assertEqual(broken, {})

    def test_paths_exist(self):
        missing = {name: found for name, text in self.all.items()
                   if not name.startswith(("docs/notebook", "CHANGELOG")) and (found := missing_paths(ROOT, text))}
        self.assertEqual(missing, {})

    def test_the_readme_is_short(self):
        lines = self.all["README.md"].splitlines()
        self.assertLessEqual(len(lines), MOST_README_LINES)
        first = next(number for number, line in enumerate(lines, 1) if line.startswith("```sh"))
        self.assertLess(first, 20)

    def test_no_document_is_too_long(self):
        counts = {name: len(words(text)) for name, text in self.all.items()
                  if not name.startswith(("docs/reference/", "docs/notebook"))}
        self.assertEqual({name: count for name, count in counts.items() if count > MOST_WORDS}, {})

    def test_no_sentence_is_too_long(self):
        found = {name: many for name, text in self.all.items() if (many := long_sentences(text))}
        self.assertEqual(found, {})

    def test_command_blocks_are_run_or_marked(self):
        for name, text in self.all.items():
            self.assertEqual(unmarked_comments(text), 0, f"{name}: a mark stands directly before no block")
            if name.startswith(RUN_FROM):
                bare = [block[3] for block in FENCE.finditer(text) if not block[2]]
                self.assertEqual(bare, [], f"{name}: a block without a language")


class Planted(unittest.TestCase):
    """The test finds what it is for."""

    def test_links(self):
        text = "[a](documents_test.py) [b](nothing.md) [c](#a-title) [d](#none) `[e](f)` [g](https://h)\n\n## A `title`!\n"
        self.assertEqual(broken_links(ROOT, "tests/house/x.md", "[b](nothing.md)", {}), ["nothing.md"])
        self.assertEqual(links(text), ["documents_test.py", "nothing.md", "#a-title", "#none"])
        self.assertEqual(anchors(text), {"a-title"})

    def test_long_sentences(self):
        words_40 = " ".join(["word"] * 40)
        self.assertEqual(long_sentences(f"{words_40}. {words_40.capitalize()}.\n\n| {words_40} more |\n"), [])
        self.assertEqual(len(long_sentences(f"- {words_40}\n  more.\n- Less.\n")), 1)
        self.assertEqual(long_sentences(f"```\n{words_40} more\n```\n"), [])
        self.assertEqual(long_sentences("These: " + ", ".join(["a `name`"] * 30)), [])

    def test_paths(self):
        self.assertEqual(missing_paths(ROOT, "`tests/house/documents_test.py` `tests/none.py` `tests/house/*.py`"),
                         ["tests/none.py"])

    def test_blocks(self):
        text = "<!-- not run here: it is long -->\n```sh\nlong\n```\n\n1. one\n\n   ```sh\n   short\n     deeper\n   ```\n"
        self.assertEqual(command_blocks(text), [(2, "long\n", True), (8, "short\n  deeper\n", False)])
        self.assertEqual(unmarked_comments("<!-- not run here: no block -->\n\ntext\n"), 1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--longest"]:
        for name, text in documents(ROOT).items():
            print(f"{len(words(text)):6} words  {name}")
        every = [(len(words(one)), name, one) for name, text in documents(ROOT).items() for one in sentences(text)]
        for count, name, one in sorted(every, reverse=True)[:40]:
            print(f"{count:4} {name}: {one}")
    else:
        unittest.main()
