#!/usr/bin/env python3
"""The sizes of classes under libsentinel/ and include/, as libclang reads them: no class has more than 20 data
members and 45 functions, and none of the objects that make up a training more than 15 data members. Headers are read
as one unit; each source that defines a class is read with that unit precompiled, a seventh of a second each.

    sizes_test.py             the test
    sizes_test.py --list N    the N largest classes, with their fields and functions
"""

import pathlib
import re
import sys
import tempfile
import unittest

import clang.cindex

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_FIELDS, MOST_FUNCTIONS, MOST_FIELDS_OF_A_PART = 20, 45, 15
EXEMPT = {
    "Plan": "the record that a plan file holds, field by field: a contract",
}
KINDS = clang.cindex.CursorKind
CLASSES = (KINDS.CLASS_DECL, KINDS.STRUCT_DECL, KINDS.CLASS_TEMPLATE)
FUNCTIONS = (KINDS.CXX_METHOD, KINDS.CONSTRUCTOR, KINDS.DESTRUCTOR, KINDS.FUNCTION_TEMPLATE, KINDS.CONVERSION_FUNCTION)


def parse(source, folders, name="all.h"):
    unit = clang.cindex.Index.create().parse(
        name, args=["-std=c++20", "-xc++", *(f"-I{folder}" for folder in folders)], unsaved_files=[(name, source)],
        options=clang.cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES)
    wrong = [str(one) for one in unit.diagnostics if one.severity >= clang.cindex.Diagnostic.Error]
    if wrong:
        raise ValueError("\n".join(wrong))
    return unit


def classes(cursor, inside, outer=""):
    """Name -> (fields, functions) of each class that `inside` accepts the file of."""
    found = {}
    for child in cursor.get_children():
        if child.location.file and not inside(child.location.file.name):
            continue
        name = f"{outer}{child.spelling}"
        if child.kind == KINDS.NAMESPACE:
            found.update(classes(child, inside, outer))
        elif child.kind in CLASSES and child.is_definition():
            members = [one.kind for one in child.get_children()]
            found[name] = (members.count(KINDS.FIELD_DECL), sum(one in FUNCTIONS for one in members))
            found.update(classes(child, inside, f"{name}::"))
    return found


FOLDERS = [ROOT / "libsentinel", ROOT / "include"]


def all_headers():
    headers = sorted(path.relative_to(folder) for folder in FOLDERS for path in folder.rglob("*.h")
                     if "uapi" not in path.parts)
    return "\n".join(f'#include "{path}"' for path in headers) + "\n"


def of_the_tree():
    """All headers as one unit, so that each is read once."""
    unit = parse(all_headers(), FOLDERS)
    return classes(unit.cursor, lambda name: name.startswith(str(ROOT)))


def of_the_sources():
    """"file: class" -> its sizes, of each class that a source defines."""
    index, found = clang.cindex.Index.create(), {}
    arguments = ["-std=c++20", *(f"-I{folder}" for folder in FOLDERS)]
    with tempfile.TemporaryDirectory() as folder:
        headers, precompiled = pathlib.Path(folder) / "all.h", pathlib.Path(folder) / "all.pch"
        headers.write_text(all_headers())
        index.parse(str(headers), args=["-xc++-header", *arguments],
                    options=clang.cindex.TranslationUnit.PARSE_INCOMPLETE |
                    clang.cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES).save(str(precompiled))
        for path in sorted(FOLDERS[0].rglob("*.cpp")):
            if not re.search(r"^ *(class|struct) [^;]*\{", path.read_text(), re.M):
                continue
            unit = index.parse(str(path), args=["-xc++", *arguments, "-include-pch", str(precompiled)],
                               options=clang.cindex.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES)
            here = classes(unit.cursor, lambda name, path=path: name == str(path))
            found.update({f"{path.relative_to(ROOT)}: {name}": sizes for name, sizes in here.items()})
    return found


def parts_of(header, owner):
    """The types of the owner's members, by the header's text."""
    body = re.search(rf"^class {owner} {{\n(.*?)^}};", header.read_text(), re.M | re.S)[1]
    return set(re.findall(r"^  (?:const )?([A-Z]\w+) \w+_;", body, re.M))


def too_large(found, most_fields=MOST_FIELDS, most_functions=MOST_FUNCTIONS):
    return {name: sizes for name, sizes in found.items()
            if name not in EXEMPT and (sizes[0] > most_fields or sizes[1] > most_functions)}


class Sizes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = of_the_tree()

    def test_it_reads_the_tree(self):
        self.assertGreater(len(self.found), 300)
        self.assertEqual(EXEMPT.keys() - self.found.keys(), set())

    def test_no_class_is_too_large(self):
        self.assertEqual(too_large(self.found), {})

    def test_no_class_of_a_source_is_too_large(self):
        found = of_the_sources()
        self.assertGreater(len(found), 100)
        self.assertEqual(too_large(found), {})

    def test_no_part_of_a_training_is_too_large(self):
        parts = parts_of(ROOT / "libsentinel/runtime/training.h", "Training") | {"Training", "Session", "OtherDevices"}
        self.assertGreater(len(parts), 10)
        self.assertEqual(too_large({name: self.found[name] for name in parts}, MOST_FIELDS_OF_A_PART), {})


class Planted(unittest.TestCase):
    """The test finds what it is for."""

    def test_fields_and_functions_are_counted(self):
        unit = parse("namespace n { class A { A(); int f(); template <class T> void g(T); int a = 0, b = 0; static int c;\n"
                     "struct B { int d; }; }; class C; }", [])
        self.assertEqual(classes(unit.cursor, lambda name: True), {"A": (2, 3), "A::B": (1, 0)})

    def test_a_large_class_is_found(self):
        self.assertEqual(too_large({"A": (21, 0), "B": (0, 46), "C": (20, 45)}), {"A": (21, 0), "B": (0, 46)})

    def test_what_does_not_parse_is_told(self):
        self.assertRaises(ValueError, parse, "class A { nothing x; };", [])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--list"]:
        largest = sorted({**of_the_tree(), **of_the_sources()}.items(), key=lambda one: -max(one[1][0] / MOST_FIELDS, one[1][1] / MOST_FUNCTIONS))
        for name, (fields, functions) in largest[:int(sys.argv[2])]:
            print(f"{name:60} {fields:3} fields {functions:4} functions")
    else:
        unittest.main()
