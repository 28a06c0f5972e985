#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""site_test.py FOLDER: builds the site of docs/site.sh in FOLDER, looks for what must be found in it, and makes mistakes
that the build must refuse."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
IS_LONG = "PERGRAD_LONG_TESTS" in os.environ


def build(root, folder):
    done = subprocess.run([sys.executable, root / "docs/site/build.py", folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def refused(copy, mistakes):
    """The build fails once each (file of the copy, change, reason) is made, and tells all of the reasons."""
    kept = {copy / name: (copy / name).read_text(encoding="utf-8") for name, *_ in mistakes}
    for name, change, _ in mistakes:
        path = copy / name
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    status, said = build(copy, copy / "site")
    for path, text in kept.items():
        path.write_text(text, encoding="utf-8")
    for name, _, because in mistakes:
        assert status != 0 and because in said, (name, status, because, said[-2000:])


def main():
    folder = pathlib.Path(sys.argv[1])
    status, said = build(ROOT, folder)
    assert status == 0, said
    index = (folder / "html/search-index.js").read_text(encoding="utf-8")
    entries = json.loads(index[index.index("[") : index.rindex(";")])
    titles = {title for title, *_ in entries}
    for title in ("Privacy", "Released bits", "dp_sgd", "private_loop", "linear", "clip", "calibrate_noise", "load_parameters"):
        assert title in titles, title
    inside = [where for _, where, *_ in entries if "detail" in where or "on_host" in where]
    assert not inside, inside
    assert "A step enters its cost in the ledger" in index  # texts, not headings alone

    # A folder with something of somebody else's stays as it is.
    with tempfile.TemporaryDirectory() as name:
        page = pathlib.Path(name) / "html/index.html"
        page.parent.mkdir()
        page.write_text("mine", encoding="utf-8")
        status, said = build(ROOT, name)
        assert status != 0 and str(page.parent) in said and page.read_text(encoding="utf-8") == "mine", (status, said)

    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name)
        for part in ("README.md", "LICENSE", ".cmake", "docs", "include", "examples", "bench", "single_include", "tests"):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("data", "__pycache__"))
            else:
                shutil.copy(source, copy / part)
        (copy / "tests/golden/data").mkdir(exist_ok=True)
        mistakes = [
            ("docs/quickstart.md", lambda text: text + "\nSee [that](privacy.md#no-such-heading).\n", "no_such_heading"),
            ("include/pergrad/layers/linear.hpp", lambda text: text.replace("/// ", "/// <nonsense> ", 1), "nonsense"),
            ("docs/quickstart.md", lambda text: text + "\nSee [that](no_such_file.cpp).\n", "no_such_file.cpp"),
        ]
        # Those that Doxygen reports are made one by one in the long tier, and in one build in the short tier.
        for made in [mistakes[:1], mistakes[1:2], mistakes[2:]] if IS_LONG else [mistakes[:2], mistakes[2:]]:
            refused(copy, made)

    # And links between pages, which Doxygen makes: one that is bent is found.
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs/site/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    site = module.Site(folder)
    assert site.check_links() == []
    page = folder / "html/page_docs_quickstart_md.html"
    kept = page.read_text(encoding="utf-8")
    for bent in (kept.replace("page_docs_privacy_md.html", "page_docs_privacy.html", 1),
                 kept.replace("page_docs_privacy_md.html#", "page_docs_privacy_md.html#not_", 1)):
        assert bent != kept
        page.write_text(bent, encoding="utf-8")
        assert len(site.check_links()) == 1
    page.write_text(kept, encoding="utf-8")
    print("the site is whole, and mistakes are found")


if __name__ == "__main__":
    main()
