"""A standalone cluster of Spark on this machine, of the PySpark that is installed: a master and two workers.

Each is the leader of a session of its own, so that its executors and their Python are found by that session, and ended
by their id.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyspark
from server_kit import wait_until_ready

SPARK_HOME: Final = Path(pyspark.__file__).parent
WORKERS: Final = 2
START_SECONDS: Final = 60
END_SECONDS: Final = 20
POLL_SECONDS: Final = 0.05

LIGHT_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
STARTED: Final = r"Starting Spark master at (spark://\S+)[\s\S]*I have been elected leader"
REGISTERED: Final = "Successfully registered with master (spark://.+)"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": LIGHT_JAVA,
    "spark.driver.extraJavaOptions": LIGHT_JAVA,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # no task begins before all executors are there
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{START_SECONDS}s",
    "spark.shuffle.io.retryWait": "1s",  # how long the rows of a lost executor are asked for, three times
}
"""What a driver needs, which is on this machine, too."""


@dataclass(frozen=True, slots=True)
class Server:
    """A master or a worker.

    Attributes:
        process: its Java.
        folder: its log, and for a worker what its executors write.
    """

    process: subprocess.Popen[bytes]
    folder: Path

    def session(self) -> dict[int, str]:
        """Return the running processes of its session, with their command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):  # it has ended
                if entry.name.isdigit() and self._has(entry):
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = words.decode(errors="replace")
        return found

    def _has(self, entry: Path) -> bool:
        """Say whether a process is of its session, and not one that has ended and waits for its parent."""
        state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        return int(session) == self.process.pid and state != "Z"

    def kill(self) -> None:
        """End it at once, with its executors and their Python, with SIGKILL. Idempotent."""
        deadline = time.monotonic() + END_SECONDS
        while found := self.session():
            for each in found:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            assert time.monotonic() < deadline, f"not ended by SIGKILL: {found}"
            time.sleep(POLL_SECONDS)
        self.process.wait(END_SECONDS)

    def end(self) -> None:
        """End it with SIGTERM, as it removes its temporary files then; what is left of it, with SIGKILL."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        self.kill()


@dataclass(slots=True)
class SparkCluster:
    """A master with its workers.

    Attributes:
        folder: where all of them write.
        url: of the master.
        servers: the master and all workers that were started.
        current: the current folder of all of them.
    """

    folder: Path
    current: Path
    url: str = ""
    servers: list[Server] = field(default_factory=list)

    @property
    def workers(self) -> list[Server]:
        """Return the workers that run."""
        return [each for each in self.servers[1:] if each.process.poll() is None]

    def start_master(self) -> None:
        """Start the master, on a port that the system chooses."""
        self.url = self._wait(self._start("master", "master.Master"), STARTED)

    def start_workers(self, number: int) -> None:
        """Start workers of one core each; return when the master knows them."""
        made = []
        for _ in range(number):
            name = f"worker-{len(self.servers)}"
            words = ["--cores", "1", "--memory", "512m", "--work-dir", str(self.folder / name / "work"), self.url]
            made.append(self._start(name, "worker.Worker", *words))
        for each in made:
            self._wait(each, REGISTERED)

    def _start(self, name: str, kind: str, *words: str) -> Server:
        folder = self.folder / name
        (folder / "temporary").mkdir(parents=True)
        command = [
            java(), "-Xmx256m", *LIGHT_JAVA.split(), "-Dspark.master.rest.enabled=false", "-cp", f"{SPARK_HOME}/jars/*",
            f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *words,
        ]  # fmt: skip
        known = {each: value for each, value in os.environ.items() if not each.startswith(("PY", "SPARK"))}
        own = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": scala_version()}
        own |= dict.fromkeys(("SPARK_LOCAL_DIRS", "TMPDIR"), str(folder / "temporary"))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.current, env=known | own, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.servers.append(Server(process, folder))
        return self.servers[-1]

    def _wait(self, server: Server, said: str) -> str:
        """Wait until a server's log has a text, and return its group."""
        return wait_until_ready(server.process, said, server.folder / "log", START_SECONDS)[1]

    def end(self) -> None:
        """End all: the workers first, which end their executors."""
        for each in self.workers:
            each.process.terminate()
        for each in reversed(self.servers):
            each.end()


def java() -> str:
    """Return the program that PySpark would run, too."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    assert found is not None, "there is no Java"
    return found


def scala_version() -> str:
    """Return the version of Scala that Spark was compiled for, as its scripts tell it to a worker."""
    [core] = (SPARK_HOME / "jars").glob("spark-core_*.jar")
    return core.name.removeprefix("spark-core_").partition("-")[0]


@contextmanager
def spark_cluster(folder: Path, current: Path) -> Iterator[SparkCluster]:
    """Run a cluster of two workers; nothing of it runs after the block.

    Args:
        folder: a folder for all that it writes.
        current: the current folder of master and workers.
    """
    cluster = SparkCluster(folder, current)
    try:
        cluster.start_master()
        cluster.start_workers(WORKERS)
        yield cluster
    finally:
        cluster.end()
