#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""release_test.py FOLDER: .ci/release on a clone: what is in the archive, that it is the same each time, and what it
refuses. Works in FOLDER/release_test, and leaves FOLDER/archive.cmake, which says where there the archive is."""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command, cwd, status=0):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == status, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def repository(folder):
    """This working tree as one commit, so that the test sees what is here and needs no history."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True,
                            text=True, check=False)
    names = listed.stdout.splitlines()
    if listed.returncode != 0:  # an archive, or somebody else's clone
        files = [each.relative_to(ROOT) for each in ROOT.rglob("*")]
        names = [str(each) for each in files if each.parts[0] not in (".git", "build", "out")]
    for name in names:
        if name.startswith("tests/golden/data") or not (ROOT / name).is_file():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    run("git", "init", "-q", cwd=folder)
    commit(folder)


def commit(folder):
    run("git", "add", "-A", cwd=folder)
    run("git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-qm", "test", cwd=folder)


def release(clone, folder):
    return pathlib.Path(run("sh", ".ci/release", str(folder), cwd=clone).splitlines()[-1])


def main():
    folder = pathlib.Path(sys.argv[1]).resolve() / "release_test"
    shutil.rmtree(folder, ignore_errors=True)
    clone = folder / "clone"
    clone.mkdir(parents=True)
    repository(clone)

    # A stale single header in the commit does not get into the archive.
    header = clone / "single_include/pergrad.hpp"
    header.write_text(header.read_text(encoding="utf-8") + "// stale\n", encoding="utf-8")
    commit(clone)
    archive = release(clone, folder / "release")
    assert "0.1.0+2." in archive.name, archive
    run("sha256sum", "--check", "--strict", archive.name + ".sha256", cwd=archive.parent)
    with tarfile.open(archive) as packed:
        name = archive.name[: -len(".tar.gz")]
        text = lambda path: packed.extractfile(f"{name}/{path}").read().decode()
        run(sys.executable, "single_include/amalgamate.py", cwd=clone)
        assert text("single_include/pergrad.hpp") == header.read_text(encoding="utf-8")
        assert "stale" not in text("single_include/pergrad.hpp")[-100:]
        changes = text("CHANGES.md")
        log = (clone / "docs/CHANGELOG.md").read_text(encoding="utf-8")
        newest, older = log.split("\n## ")[1:3]
        assert newest.partition("\n")[2].strip() in changes and older.splitlines()[2] not in changes, changes
        packed_names = set(packed.getnames())
        for needed in ("LICENSE", "CMakeLists.txt", "include/pergrad/pergrad.hpp", "examples/01_quickstart.cpp"):
            assert f"{name}/{needed}" in packed_names, needed
        assert all(each == name or each.startswith(name + "/") for each in packed_names)
        assert not any("__pycache__" in each or "/.git/" in each for each in packed_names)

    # Refused: what is not committed. Then the same bytes again, in a folder that is named from where the user is.
    run("sh", ".ci/release", str(folder / "again"), cwd=clone, status=1)
    run("git", "checkout", "-q", ".", cwd=clone)
    again = pathlib.Path(run("sh", str(clone / ".ci/release"), "again", cwd=folder).splitlines()[-1])
    assert again.parent == folder / "again", again
    digest = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
    assert again.name == archive.name and digest(again) == digest(archive)

    # A release is named by its version, which both files must agree on.
    log_file = clone / "docs/CHANGELOG.md"
    log_file.write_text(log.replace("## Not released", "## 0.1.0", 1).replace("## 0.1.0\n\nFirst", "## 0.0.9\n\nFirst"),
                        encoding="utf-8")
    commit(clone)
    assert release(clone, folder / "named").name == "pergrad-0.1.0.tar.gz"
    log_file.write_text(log.replace("## Not released", "## 0.2.0", 1), encoding="utf-8")
    commit(clone)
    assert "version.hpp says 0.1.0" in run("sh", ".ci/release", str(folder / "named"), cwd=clone, status=1)
    shutil.rmtree(clone)

    # What FetchContent is to be given.
    (folder.parent / "archive.cmake").write_text(f'set(archive "{archive}")\nset(archive_hash {digest(archive)})\n', encoding="utf-8")
    print(archive)


if __name__ == "__main__":
    main()
