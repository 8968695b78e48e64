"""The language server of pyright, asked what an editor would offer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from places import ROOT

SERVER: Final = ROOT / "build" / "pyright" / "node_modules" / "pyright" / "langserver.index.js"
PATIENCE: Final = 120.0


class LanguageServer:
    """One that runs, for the programs of a folder.

    Args:
        process: the server.
        folder: where the programs would be.
        python: the interpreter whose packages they import.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, python: Path) -> None:
        self._process = process
        self._folder = folder
        self._python = str(python)
        self._requests = 0
        self._documents = 0
        root = folder.as_uri()
        self._ask(
            "initialize",
            processId=None,
            rootUri=root,
            workspaceFolders=[{"uri": root, "name": "programs"}],
            capabilities={"workspace": {"configuration": True}},
        )
        self._tell("initialized")

    def offers(self, program: str) -> list[str]:
        """Return what is offered at the end of a program, in alphabetical order."""
        self._documents += 1
        uri = (self._folder / f"program{self._documents}.py").as_uri()
        self._tell(
            "textDocument/didOpen",
            textDocument={"uri": uri, "languageId": "python", "version": 1, "text": program},
        )
        lines = program.split("\n")
        position = {"line": len(lines) - 1, "character": len(lines[-1])}
        found = self._ask("textDocument/completion", textDocument={"uri": uri}, position=position)
        return sorted(each["label"] for each in found["items"])

    def _ask(self, method: str, **params: Any) -> Any:
        self._requests += 1
        self._write({"id": self._requests, "method": method, "params": params})
        while True:
            heard = self._read()
            if "method" in heard and "id" in heard:  # the server asks
                self._write({"id": heard["id"], "result": self._settings(heard)})
            elif heard.get("id") == self._requests:
                assert "error" not in heard, heard
                return heard["result"]

    def _tell(self, method: str, **params: Any) -> None:
        self._write({"method": method, "params": params})

    def _settings(self, heard: dict[str, Any]) -> Any:
        if heard["method"] != "workspace/configuration":
            return None
        return [
            {"pythonPath": self._python} if each.get("section") == "python" else {} for each in heard["params"]["items"]
        ]

    def _write(self, said: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        octets = json.dumps({"jsonrpc": "2.0", **said}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(octets), octets))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the language server has ended"
        found: dict[str, Any] = json.loads(self._process.stdout.read(length))
        return found


@contextmanager
def language_server(folder: Path, python: Path) -> Iterator[LanguageServer]:
    """Run one."""
    assert SERVER.is_file(), "type: make packages"
    words = ["node", str(SERVER), "--stdio"]
    with subprocess.Popen(words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield LanguageServer(process, folder, python)
        finally:
            process.kill()
