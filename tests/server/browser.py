"""Chromium without a window, spoken to over a pair of pipes (its --remote-debugging-pipe)."""

import base64
import json
import os
import shutil
import subprocess
import tempfile


def find():
    """The program, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page. Messages are JSON and end with a zero byte; the browser reads descriptor 3 and writes 4."""

    def __init__(self, width=800, height=900):
        self.profile = tempfile.TemporaryDirectory(prefix="sluice-browser-", ignore_cleanup_errors=True)
        reads, self.to = os.pipe()
        self.come, writes = os.pipe()

        def place():  # the two descriptors may have either number
            kept = os.dup(reads), os.dup(writes)
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", f"--user-data-dir={self.profile.name}", f"--window-size={width},{height}",
             "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(reads)
        os.close(writes)
        self.rest, self.number, self.session, self.log = b"", 0, None, []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return answer["result"]
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.log.append(answer["params"])

    def receive(self):
        while b"\0" not in self.rest:
            data = os.read(self.come, 1 << 16)
            if not data:
                raise RuntimeError("the browser has ended")
            self.rest += data
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def run(self, script):
        """The value of an expression of the page, awaited where it is a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description"))
        return result["result"].get("value")

    def wait(self, condition):
        """Until the expression is true, for a minute."""
        if not self.run(f"""new Promise((resolve) => {{
            const end = Date.now() + 60000;
            const look = () => ({condition}) ? resolve(true) : Date.now() > end ? resolve(false) : setTimeout(look, 20);
            look();
        }})"""):
            raise TimeoutError(condition)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def set_theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        os.close(self.to)
        os.close(self.come)
        self.profile.cleanup()
