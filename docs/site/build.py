#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""build.py FOLDER: the site of docs/site.sh. Doxygen does the pages; this gives it Markdown that it understands, adds
the files that the chapters name and an index of every text for the search, and follows every link."""

import html
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
FRIEND = re.compile(r"^(?: *template <[^\n]*>\n)? *friend [^;{]*;$", re.MULTILINE)
HEADING = re.compile(r"^(#+) +(.*?)\s*$")


def slug(text):
    """The anchor that readers of Markdown know a heading by."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def quoted(path):
    """A path in Doxygen's settings, which may have blanks in it."""
    return f'"{path}"'


def label(document, anchor=""):
    """A name of a page, or of a heading on it, for Doxygen."""
    name = re.sub(r"\W", "_", str(document.relative_to(ROOT)))
    return "page_" + name + ("__" + re.sub(r"\W", "_", anchor) if anchor else "")


def documents():
    """All Markdown that the README leads to, itself first and then in the order of its list at the end."""
    found, waiting = [], [ROOT / "README.md"]
    while waiting:
        document = waiting.pop(0)
        if document in found:
            continue
        found.append(document)
        text, mark, chapters = document.read_text(encoding="utf-8").partition("\n## Documentation\n")
        for _, link in LINK.findall(chapters + mark + text):
            target = target_of(document, link)
            if target and target.suffix == ".md":
                waiting.append(target)
    missed = set((ROOT / "docs").rglob("*.md")) - set(found)
    if missed:
        sys.exit("no link leads from the README to " + ", ".join(sorted(str(each) for each in missed)))
    return found


def target_of(document, link):
    """The file of the repository that a link names; a folder's README for the folder."""
    path = link.partition("#")[0]
    if re.match(r"[a-z]+:", link):
        return None
    target = (document.parent / path).resolve() if path else document
    return target / "README.md" if target.is_dir() and (target / "README.md").is_file() else target


class Site:
    def __init__(self, folder):
        self.folder = folder
        self.html = folder / "html"
        self.pages = documents()
        self.files = set()  # named by chapters, to be shown as they are
        self.index = []  # [title, where, address, text]

    def linked(self, document, text):
        def replace(match):
            words, link = match.group(1).replace("\n", " "), match.group(2)  # Doxygen wants a link on one line
            target = target_of(document, link)
            if target is None:
                return match.group(0)
            if target.suffix == ".md":
                return f"[{words}](@ref {label(target, link.partition('#')[2])})"
            self.files.add(target)
            return f'<a href="files/{target.relative_to(ROOT)}.html">{words}</a>'

        return LINK.sub(replace, re.sub(r'<img src="(?:\.\./)*(?:docs/)?images/', '<img src="', text))

    def staged(self, document):
        """The document with a label for every heading and links that Doxygen knows."""
        made, prose, fenced = [], [], False

        def flush():
            if prose:
                made.append(self.linked(document, "\n".join(prose)))
            prose.clear()

        # Marks of docs/figures.py: Doxygen drops the blank behind them.
        text = re.sub(r"<!-- figure:.*?-->(.*?)<!-- / -->", r"\1", document.read_text(encoding="utf-8"), flags=re.DOTALL)
        for line in text.splitlines():
            if line.startswith("```"):
                flush()
                fenced = not fenced
                made.append(line)
            elif fenced:
                made.append(line)
            elif heading := HEADING.match(line):
                level, text = heading.groups()
                own = label(document, "" if len(level) == 1 else slug(text))
                page = "index" if document == self.pages[0] else label(document)
                where = self.index[-1][1] if len(level) > 1 else text
                self.index.append([text.replace("`", ""), where, f"{page}.html" + (f"#{own}" if len(level) > 1 else ""), ""])
                prose.append(f"{level} {text} {{#{own}}}")
            else:
                self.index[-1][3] += re.sub(r"<!--.*?-->|[*`|]|\]\([^)]*\)|\[", " ", line) + " "
                prose.append(line)
        flush()
        return "\n".join(made) + "\n"

    def stage_headers(self):
        """The headers as Doxygen understands them: it takes the version in the namespace's name for a namespace, and
        lists friends that are declared as if they were described there. Lines keep their numbers."""
        for header in sorted((ROOT / "include").rglob("*.hpp")):
            text = header.read_text(encoding="utf-8").replace("namespace pergrad::inline v0_1", "namespace pergrad")
            text = FRIEND.sub(lambda found: "\n" * found.group(0).count("\n"), text)
            place = self.folder / "stage" / header.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")

    def run_doxygen(self):
        stage = self.folder / "stage"
        for document in self.pages:
            place = stage / (label(document) + ".md")
            place.write_text(self.staged(document), encoding="utf-8")
        self.stage_headers()
        version = re.search(r'version = "([^"]+)"', (ROOT / "include/pergrad/version.hpp").read_text(encoding="utf-8"))
        chapters = [str(stage / (label(document) + ".md")) for document in self.pages]
        settings = {
            "INPUT": " ".join(map(quoted, [stage / "include", "docs/site/namespaces.dox", *chapters])),
            "OUTPUT_DIRECTORY": quoted(self.folder),
            "STRIP_FROM_PATH": quoted(stage / "include"),
            "STRIP_FROM_INC_PATH": quoted(stage / "include"),
            "PROJECT_NUMBER": version.group(1) if version else "",
            "USE_MDFILE_AS_MAINPAGE": quoted(chapters[0]),
            "IMAGE_PATH": "docs/images",
        }
        text = (ROOT / "docs/site/Doxyfile").read_text(encoding="utf-8")
        text += "".join(f"{name} = {value}\n" for name, value in settings.items())
        return subprocess.run(["doxygen", "-"], input=text, cwd=ROOT, text=True, check=False).returncode == 0

    def add_files(self):
        for image in (ROOT / "docs/images").iterdir():
            shutil.copy(image, self.html)
        for file in sorted(self.files):
            place = self.html / "files" / (str(file.relative_to(ROOT)) + ".html")
            place.parent.mkdir(parents=True, exist_ok=True)
            name = html.escape(str(file.relative_to(ROOT)))
            up = "../" * (len(place.relative_to(self.html).parts) - 1)
            if file.is_dir():
                text = "\n".join(sorted(each.name for each in file.iterdir()))
            else:
                text = file.read_text(encoding="utf-8")
            place.write_text(
                f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title></head>\n'
                f'<body><p><a href="{up}index.html">pergrad</a> / {name}</p>\n<pre>{html.escape(text)}</pre>\n'
                "</body></html>\n",
                encoding="utf-8",
            )

    def add_search(self):
        """Every page gets the search, over the sections of the chapters and what the comments describe."""
        text_of = lambda node: " ".join("".join(each.itertext()) for each in node.iterfind("*") if each.tag.endswith("description"))
        for file in sorted((self.folder / "xml").glob("*.xml")):
            for compound in xml.etree.ElementTree.parse(file).getroot().iterfind("compounddef"):
                if compound.get("kind") not in ("class", "struct", "concept", "namespace"):
                    continue
                name = compound.findtext("compoundname")
                self.index.append([name.rpartition("::")[2], name, compound.get("id") + ".html", text_of(compound)])
                for member in compound.iterfind("sectiondef/memberdef[@prot='public']"):
                    page, _, anchor = member.get("id").rpartition("_1")
                    if (self.html / f"{page}.html").is_file() and text_of(member).strip():
                        called = member.findtext("name")
                        self.index.append([called, f"{name}::{called}", f"{page}.html#{anchor}", text_of(member)])
        known = {path.name for path in self.html.glob("*.html")}
        entries = [[*map(lambda part: " ".join(part.split()), entry)] for entry in self.index
                   if entry[2].partition("#")[0] in known]
        (self.html / "search-index.js").write_text(
            "const search_index = " + json.dumps(entries, ensure_ascii=False, separators=(",", ":")) + ";\n", encoding="utf-8")
        shutil.copy(ROOT / "docs/site/search.js", self.html)
        scripts = '<link rel="icon" href="data:,"><script src="search-index.js" defer></script><script src="search.js" defer></script></head>'
        for page in self.html.glob("*.html"):
            page.write_text(page.read_text(encoding="utf-8").replace("</head>", scripts, 1), encoding="utf-8")
        print(f"{len(entries)} entries in the search")
        return [f"the search leads to {entry[2]}" for entry in entries if not self.leads(entry[2])]

    def leads(self, link):
        page, _, anchor = link.partition("#")
        return not anchor or f'"{anchor}"' in (self.html / page).read_text(encoding="utf-8")

    def check_links(self):
        """What is wrong with links of pages to pages: a file or an anchor that is not there."""
        pages = {path.resolve(): Page(path) for path in self.html.rglob("*.html")}
        wrong, count = [], 0
        for path, page in sorted(pages.items()):
            wrong += [f"{path.relative_to(self.html)}: Doxygen has left {each}" for each in page.left_over]
            for link in page.links:
                parts = urllib.parse.urlsplit(link)
                if parts.scheme or parts.netloc or link.startswith("javascript:"):
                    continue
                count += 1
                target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
                where = f"{path.relative_to(self.html)}: the link {link}"
                if not target.is_file():
                    wrong.append(f"{where} leads nowhere")
                elif parts.fragment and target in pages:
                    if urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                        wrong.append(f"{where} leads to no place on that page")
        print(f"{len(pages)} pages, {count} links inside the site")
        return wrong


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        text = path.read_text(encoding="utf-8")
        self.feed(text)
        self.left_over = re.findall(r"[@\\](?:ref|section|subsection) page_\w+", text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src", "data") and value:
                self.links.append(value)
            if name in ("id", "name") and value:
                self.anchors.add(value)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    parts = [folder / part for part in ("html", "xml", "stage")]
    is_ours = (folder / "stage" / (label(ROOT / "README.md") + ".md")).is_file()  # made first, and deleted last
    if taken := [str(part) for part in parts if part.exists() and not is_ours]:
        sys.exit(f"build.py: {', '.join(taken)}: not made by this program, so it deletes nothing there; name another folder")
    for part in parts:
        shutil.rmtree(part, ignore_errors=True)
    (folder / "stage").mkdir(parents=True)
    site = Site(folder)
    if not site.run_doxygen():
        return 1
    site.add_files()
    wrong = site.add_search() + site.check_links()
    print("\n".join(wrong) or f"built {os.path.relpath(site.html / 'index.html')}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
