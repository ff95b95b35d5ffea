#!/usr/bin/env python3
"""The graph of includes under libsentinel/: no cycle between folders, none between files, and no include that the
folder's target does not link.

A file is a header with its source (x.h and x.cpp): a pair that includes another which includes it back is a cycle.

    graph_test.py [FOLDER]    the folder that holds CMakeLists.txt with its sentinel_room() lines
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2] / "libsentinel"
MOST_FILES = 30  # in a folder


def rooms(root):
    """Folder -> the folders that its target links, by the lines of CMakeLists.txt."""
    text = (root / "CMakeLists.txt").read_text()
    names = dict(re.findall(r"^set\((\w+) ([\w /]+)\)$", text, re.M))
    prefixes = dict(re.findall(r"^list\(TRANSFORM (\w+) PREPEND ([\w/]+)\)$", text, re.M))
    found = {}
    for call in re.findall(r"^sentinel_room\(([^)]*)\)", text, re.M):
        call = re.sub(r"\$\{(\w+)\}", lambda m: " ".join(
            prefixes.get(m[1], "") + one for one in names[m[1]].split()) if m[1] in names else "", call)
        folder, *words = call.split()
        depends = words[words.index("DEPENDS") + 1:] if "DEPENDS" in words else []
        found[folder] = depends[:depends.index("LINK")] if "LINK" in depends else depends
    return found


def includes(root):
    """File -> the files under the root that it includes; both without their suffix, relative to the root."""
    found = {}
    for path in sorted(root.rglob("*.[hc]*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        name = path.relative_to(root).with_suffix("").as_posix()
        wanted = {include.removesuffix(".h") for include in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)
                  if (root / include).exists()}
        found.setdefault(name, set()).update(wanted - {name})
    return found


def reachable(graph, start):
    seen, waiting = set(), list(graph.get(start, ()))
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(graph.get(node, ()))
    return seen


def cycles(graph):
    """Each a sorted list of nodes that reach one another."""
    reach = {node: reachable(graph, node) for node in graph}
    knots = {tuple(sorted({node} | {other for other in reach[node] if node in reach.get(other, ())}))
             for node in graph if node in reach[node]}
    return [list(knot) for knot in sorted(knots)]


def folder_of(name):
    return name.rpartition("/")[0]


def folders(files):
    graph = {}
    for name, wanted in files.items():
        graph.setdefault(folder_of(name), set()).update(
            folder_of(one) for one in wanted if folder_of(one) != folder_of(name))
    return graph


def not_linked(files, targets):
    """(file, include) of each include whose folder the including folder's target does not link."""
    reach = {folder: reachable(targets, folder) | {folder} for folder in targets}
    return [(name, one) for name, wanted in files.items() for one in sorted(wanted)
            if folder_of(name) and folder_of(one) not in reach.get(folder_of(name), ())]


class House(unittest.TestCase):
    def setUp(self):
        self.files, self.targets = includes(ROOT), rooms(ROOT)

    def test_every_folder_is_a_target(self):
        self.assertEqual({folder_of(name) for name in self.files if folder_of(name)} - set(self.targets), set())

    def test_targets_have_no_cycle(self):
        self.assertEqual(cycles(self.targets), [])

    def test_folders_have_no_cycle(self):
        self.assertEqual(cycles(folders(self.files)), [])

    def test_files_have_no_cycle(self):
        self.assertEqual(cycles(self.files), [])

    def test_includes_are_linked(self):
        self.assertEqual(not_linked(self.files, self.targets), [])

    def test_no_folder_is_a_hall(self):
        for folder in self.targets:
            count = sum(path.is_file() for path in (ROOT / folder).iterdir())
            self.assertLessEqual(count, MOST_FILES, folder)


class Planted(unittest.TestCase):
    """The test finds what it is for."""

    def test_a_cycle_of_files(self):
        self.assertEqual(cycles({"a/x": {"a/y"}, "a/y": {"a/x"}, "a/z": {"a/x"}}), [["a/x", "a/y"]])

    def test_a_cycle_of_folders(self):
        self.assertEqual(cycles(folders({"a/x": {"b/y"}, "b/z": {"a/w"}})), [["a", "b"]])

    def test_an_include_against_the_arrow(self):
        self.assertEqual(not_linked({"a/x": {"b/y"}}, {"a": [], "b": ["a"]}), [("a/x", "b/y")])
        self.assertEqual(not_linked({"b/x": {"a/y"}}, {"a": [], "b": ["a"]}), [])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
