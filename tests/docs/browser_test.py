#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""browser_test.py SITE SCREENSHOTS: a browser opens the first page, searches, opens a chapter and a class by what it has
found, and keeps a picture of each. Chromium is spoken to by its own protocol over two pipes, so nothing else is needed."""

import base64
import contextlib
import functools
import http.server
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib


class Browser:
    """One tab of a headless Chromium. https://chromedevtools.github.io/devtools-protocol/"""

    def __init__(self, profile):
        self.count = 0
        self.events = []
        (their_in, self.out), (self.into, their_out) = os.pipe(), os.pipe()
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
                   "--window-size=1400,1000", f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        # The protocol wants descriptors 3 and 4.
        shell = f'exec "$@" 3<&{their_in} 4>&{their_out}'
        self.process = subprocess.Popen(["bash", "-c", shell, "browser", *command], pass_fds=(their_in, their_out),
                                        stderr=subprocess.DEVNULL)
        os.close(their_in)
        os.close(their_out)
        self.into = os.fdopen(self.into, "rb")
        self.session = None
        page = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def read(self):
        message = bytearray()
        while (byte := self.into.read(1)) != b"\0":
            if not byte:
                raise AssertionError("the browser has ended")
            message += byte
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.events.append(answer)

    def value(self, script):
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, script):
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):  # while a page is being left
                if found := self.value(script):
                    return found
            time.sleep(0.05)
        raise AssertionError(f"waited in vain for {script}; the page is {self.value('location.href')}")

    def press(self, key, text=""):
        code = {"Enter": 13}.get(key, 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path

    def mistakes(self):
        """What scripts threw, and what could not be loaded."""
        bad = [each for each in self.events if each.get("method") == "Runtime.exceptionThrown"]
        return bad + [each for each in self.events if each.get("method") == "Log.entryAdded"
                      and each["params"]["entry"]["level"] == "error"]


def colours(path):
    """How many grey values a picture has: one if it is blank."""
    data = path.read_bytes()
    place, parts = 8, []
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        if data[place + 4 : place + 8] == b"IDAT":
            parts.append(data[place + 8 : place + 8 + size])
        place += 12 + size
    return len(set(zlib.decompress(b"".join(parts))))


def search(browser, words, first):
    """Types into the search and takes the first result, whose title must be `first`."""
    browser.value("document.getElementById('site-search').focus()")
    for letter in words:
        browser.press(letter, letter)
    shown = browser.wait_for("[...document.querySelectorAll('#site-search-results a')].map(a => a.textContent).join('\\n')")
    assert shown.splitlines()[0] == first, (words, shown)
    return shown


def main():
    site, pictures = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    pictures.mkdir(parents=True, exist_ok=True)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            home = f"http://127.0.0.1:{server.server_port}/index.html"
            browser.call("Page.navigate", url=home)
            browser.wait_for("document.readyState === 'complete' && document.getElementById('site-search') !== null")
            assert browser.value("document.title").startswith("pergrad")
            # Every picture of the page is there, and nothing is wider than the window.
            browser.wait_for("[...document.images].every(each => each.complete && each.naturalWidth > 0)")
            assert browser.value("document.documentElement.scrollWidth <= innerWidth")
            made.append(browser.picture(pictures / "home.png"))

            search(browser, "released bits", "Released bits")
            made.append(browser.picture(pictures / "search.png"))
            browser.press("Enter")
            browser.wait_for("location.href.includes('page_docs_privacy_md') && document.readyState === 'complete'")
            assert "Released bits" in browser.value("document.querySelector('.contents').innerText")
            made.append(browser.picture(pictures / "chapter.png"))

            browser.wait_for("document.getElementById('site-search') !== null")
            search(browser, "private_loop", "private_loop")
            browser.press("Enter")
            browser.wait_for("location.href.includes('private__loop') && document.readyState === 'complete'")
            assert "A private training loop of one network" in browser.value("document.querySelector('.contents').innerText")
            made.append(browser.picture(pictures / "class.png"))

            # No word of the chapters, a word of a text only, and nonsense.
            browser.wait_for("document.getElementById('site-search') !== null")
            assert browser.value("found_for('truncated_nonsense_word').length") == 0
            assert browser.value("found_for('qwantile').length") == 0
            assert browser.value("found_for('ledger').length") > 3
            wrong = browser.mistakes()
            assert not wrong, wrong
        finally:
            browser.process.terminate()
            browser.process.wait(timeout=30)
    for picture in made:
        assert colours(picture) > 50, picture
    print("wrote " + ", ".join(map(str, made)))


if __name__ == "__main__":
    main()
