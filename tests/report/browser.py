"""A headless Chromium, spoken to through pipes: what a person would see and do, in a test."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser. Messages of the DevTools protocol end with a zero byte."""

    def __init__(self, program, profile):
        # The browser reads from descriptor 3 and writes to 4; ours lie above, out of the way.
        to_browser, from_browser = os.pipe(), os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (*to_browser, *from_browser)]
        for fd in (*to_browser, *from_browser):
            os.close(fd)
        self._reads, self._writes = high[2], high[1]
        script = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "-", str(high[0]), str(high[3]), program]
            + [*_SWITCHES, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(high[0], high[3]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(high[0])
        os.close(high[3])
        self._held, self._number, self._session = b"", 0, None
        self.requests, self.exceptions = [], []
        target = next(t for t in self._until_page() if t["type"] == "page")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network"):
            self._call(f"{domain}.enable")

    def close(self):
        self._process.terminate()
        self._process.wait(20)
        os.close(self._reads)
        os.close(self._writes)

    def open(self, address, width, height, dark=False):
        """Open a page, and wait until it says that it is ready."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=address)
        for _ in range(400):
            if self.evaluate("document.body && document.body.dataset.ready") == "true":
                return
            time.sleep(0.05)
        raise AssertionError(f"the page is not ready; {self.exceptions}")

    def evaluate(self, expression):
        reply = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", buttons=1, clickCount=1)

    def picture(self):
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _until_page(self):
        for _ in range(200):
            targets = self._call("Target.getTargets")["targetInfos"]
            if any(target["type"] == "page" for target in targets):
                return targets
            time.sleep(0.05)
        raise AssertionError("the browser opened no page")

    def _call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._message()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                return reply["result"]
            if reply.get("method") == "Network.requestWillBeSent":
                self.requests.append(reply["params"]["request"]["url"])
            if reply.get("method") == "Runtime.exceptionThrown":
                self.exceptions.append(reply["params"]["exceptionDetails"])

    def _message(self):
        while b"\0" not in self._held:
            ready, _, _ = select.select([self._reads], [], [], 60)
            assert ready, "the browser does not answer"
            read = os.read(self._reads, 1 << 16)
            assert read, "the browser has ended"
            self._held += read
        message, self._held = self._held.split(b"\0", 1)
        return json.loads(message)
