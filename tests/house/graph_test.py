#!/usr/bin/env python3
"""The graph of includes under libsentinel/: no cycle between folders, none between files, and no include that the
folder's target does not link. No folder of sources, wherever it is, holds more than 30 files.

A file is a header with its source (x.h and x.cpp): a pair that includes another which includes it back is a cycle.

    graph_test.py [FOLDER]    the folder that holds CMakeLists.txt with its sentinel_room() lines
"""

import pathlib
import re
import sys
import tempfile
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


# A stage whose words mean something else outside it has a namespace of its own. All other rooms share `sentinel`, where
# a name exists once: sizes_test.py reads all their headers as one unit.
NAMESPACES = {"plan": "sentinel::plan", "sim": "sentinel::sim", "engine/gpu": "sentinel::gpu"}


def strangers(root):
    """(file, namespace) of each file whose namespace is not its room's. What include/ declares is `sentinel`'s wherever
    it is defined; a file about a GPU may speak of `sentinel::gpu`; a file may have a namespace of its own name."""
    found = []
    for path in sorted(root.rglob("*.[hc]*")):
        name = path.relative_to(root).as_posix()
        wanted = next((space for room, space in NAMESPACES.items() if name.startswith(room + "/")), "sentinel")
        for space in re.findall(r"^namespace (sentinel[a-z:]*) \{", path.read_text(), re.M):
            declares = wanted != "sentinel" and space == "sentinel" and path.suffix == ".cpp"
            of_gpu = space == "sentinel::gpu" and re.match(r"(gpu|device)_", path.name)
            own = space == f"{wanted}::{path.stem}"
            if not (space == wanted or space.startswith(wanted + "::") and wanted != "sentinel" or declares or of_gpu or own):
                found.append((name, space))
    return found


SOURCES = ("include", "kernel", "libsentinel", "tests", "tfplugin", "tools", "torchplugin")
DATA = {"data", "golden", "__pycache__"}  # folders of what tests compare or read


def halls(project):
    """Folder -> its files, of each folder of sources that holds too many."""
    counts = {}
    for part in SOURCES:
        for path in sorted((project / part).rglob("*")):
            if path.is_file() and not DATA & set(path.relative_to(project).parts[:-1]):
                folder = path.parent.relative_to(project).as_posix()
                counts[folder] = counts.get(folder, 0) + 1
    return {folder: count for folder, count in counts.items() if count > MOST_FILES}


# engine/engine.h names them; the GPU's engine calls nothing of theirs.
UNCALLED = {"capture/userfault/fault_loop", "capture/userfault/uffd_calls", "capture/userfault/uffd_open"}


def left_behind(files, built, sources):
    """The sources, of those given, that a build of the files `built` alone includes and does not compile."""
    included = set(built).union(*(reachable(files, name) for name in built))
    return included & set(sources) - set(built)


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

    def test_namespaces_are_the_rooms(self):
        self.assertEqual(strangers(ROOT), [])

    def test_the_gpus_engine_builds_alone(self):
        listed = re.search(r"^set\(alone ([^)]*)\)", (ROOT.parent / "tests/gpu/CMakeLists.txt").read_text(), re.M)[1].split()
        sources = {path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.rglob("*.cpp")}
        built = listed + [name for name in sources if name.startswith("engine/gpu/")]
        self.assertEqual(left_behind(self.files, built, sources) - UNCALLED, set())

    def test_no_folder_is_a_hall(self):
        self.assertEqual(halls(ROOT.parent), {})


class Planted(unittest.TestCase):
    """The test finds what it is for."""

    def test_a_stranger(self):
        with tempfile.TemporaryDirectory() as folder:
            room = pathlib.Path(folder) / "plan" / "step"
            room.mkdir(parents=True)
            for name, space in (("a.h", "sentinel::plan"), ("b.h", "sentinel"), ("c.cpp", "sentinel"), ("d.h", "sentinel::sim")):
                (room / name).write_text(f"namespace {space} {{\n}}\n")
            self.assertEqual(strangers(pathlib.Path(folder)), [("plan/step/b.h", "sentinel"), ("plan/step/d.h", "sentinel::sim")])

    def test_a_hall(self):
        with tempfile.TemporaryDirectory() as folder:
            for where, count in (("tools/many", MOST_FILES + 1), ("tools/few", MOST_FILES), ("tests/data", MOST_FILES + 1)):
                room = pathlib.Path(folder) / where
                room.mkdir(parents=True)
                for i in range(count):
                    (room / f"{i}.cpp").touch()
            self.assertEqual(halls(pathlib.Path(folder)), {"tools/many": MOST_FILES + 1})

    def test_a_source_left_behind(self):
        files = {"a/x": {"b/y"}, "b/y": {"c/z", "c/w"}}
        self.assertEqual(left_behind(files, ["a/x", "b/y"], ["a/x", "b/y", "c/z"]), {"c/z"})

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
