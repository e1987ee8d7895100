"""The Spark session of a run: the user's own, or one here. A cluster that leaves private text unencrypted is refused."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import UsageError
from tacit.files import private_folder
from tacit.runs.folder import RunFolder

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["open_session", "refuse_limit", "refuse_unencrypted", "spark_folder"]

_NO_MASTER = "local[*]"
"""What Spark says where nobody has named a cluster."""

_CHOSEN = {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"}
"""Where one of these is in the environment, somebody else has said how Java is started."""

_DRIVER_MEMORY = "3g"
"""Three times Spark's own: parts of 25 MB got lost there, which now come to the driver in pieces (`tacit.spark.runner`)."""

_BATCH_BYTES = str(64 << 20)
_ENCRYPTED = ("spark.io.encryption.enabled", "spark.network.crypto.enabled")


def open_session(folder: Path, workers: int) -> SparkSession:
    """The session that is active, else one with the settings of ``spark-submit`` and ``spark-defaults.conf``, else one here.

    Args:
        folder: private: where a session on this machine keeps what does not fit in memory, encrypted.
        workers: tasks at once on this machine.

    Raises:
        UsageError: pyspark or Java is missing, or the cluster would write or send private text unencrypted.
    """
    try:
        import pandas  # noqa: F401 - pyspark's functions on Arrow batches ask for it
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError("compute.runner: spark needs pyspark 4; install it with: pip install 'tacit[spark]'") from None
    if not _CHOSEN & os.environ.keys():
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-memory {_DRIVER_MEMORY} pyspark-shell"
    try:
        SparkContext._ensure_initialized()  # starts Java, which knows the settings of spark-submit
        conf = SparkConf()
        if SparkContext._active_spark_context is None and conf.get("spark.master", _NO_MASTER) == _NO_MASTER:
            _set_local(conf, _own_folder(folder), workers)
        session = SparkSession.builder.config(conf=conf).appName("tacit").getOrCreate()
    except (PySparkRuntimeError, FileNotFoundError):
        raise UsageError(
            "compute.runner: spark needs Java 17 or newer, and it does not start; install a JRE, or set JAVA_HOME"
        ) from None
    refuse_unencrypted(session.sparkContext.getConf())
    refuse_limit(session.sparkContext.getConf())
    _silence(session)
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _BATCH_BYTES)  # more than 2 GiB would end the run
    return session


def _silence(session: SparkSession) -> None:
    """How many parts there are, and how large tasks are, tells how much private text there is: no bar and no warnings."""
    context = session.sparkContext
    context.setLogLevel("ERROR")
    java: Any = context._jsc
    bar = java.sc().progressBar()
    if bar.isDefined():
        bar.get().stop()


def _own_folder(folder: Path) -> Path:
    """This process' own, for other ranks may have sessions too; what killed processes of this machine have left goes."""
    machine = socket.gethostname()
    for path in private_folder(folder).iterdir():
        whose, _, process = path.name.rpartition("-")  # another machine may be called node-1
        if whose == machine and process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)
    return private_folder(folder / f"{machine}-{os.getpid()}")


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # where such a signal ends the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def spark_folder(run: RunFolder) -> Path:
    """Where a session on this machine keeps what does not fit in memory."""
    return run.private / "spark"


def refuse_unencrypted(conf: SparkConf) -> None:
    """Refuse a cluster whose shuffles, spills or connections would hold private text as it is.

    Raises:
        UsageError: names the setting.
    """
    if conf.get("spark.master", "").startswith("local") and not conf.get("spark.master", "").startswith(
        "local-cluster"
    ):
        return
    missing = [name for name in _ENCRYPTED if conf.get(name, "false").lower() != "true"]
    if missing:
        raise UsageError(
            f"compute.runner: this cluster would write or send private text unencrypted; set {' and '.join(missing)} to true"
        )


def refuse_limit(conf: SparkConf) -> None:
    """Text comes to the driver by parts; one that Spark refuses for its size would end the run at one unit (TACIT-46).

    Raises:
        UsageError: names the setting.
    """
    if conf.get("spark.driver.maxResultSize", "1g") != "0":
        raise UsageError(
            "compute.runner: Spark would end a run whose text comes to the driver in too large a part; set "
            "spark.driver.maxResultSize to 0"
        )


def _set_local(conf: SparkConf, folder: Path, workers: int) -> None:
    settings = {
        "spark.local.dir": str(folder),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.maxResultSize": "0",
        "spark.io.encryption.enabled": "true",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(4 * workers),
    }
    for name, value in settings.items():
        conf.setIfMissing(name, value)
    own = {"spark.master": f"local[{workers}]", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in own.items():
        conf.set(name, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
