"""Files of this machine that Spark's JVM makes, without a process for each.

Hadoop's code sets the permissions of every file that it makes, and of the checksum's beside it. It does so by a native
library, which PySpark does not bring along, or else by starting `chmod`, in 3 ms. A batch of a query with two
partitions of state starts twelve of them. That was a fifth of a small batch's time.
"""

from __future__ import annotations

import threading
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from scribengin.spark.session.failures import failure

_CLASS = "localfiles.LocalFiles"
_USUAL = ("org.apache.hadoop.fs.LocalFileSystem", "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem")
"""Hadoop's, and what Spark has where Hive's jars are: that renames nothing over a file, and nor does the one here."""
_ANY_FILE = "file:///"
# Java sets permissions itself; of what it has no word for, Hadoop's own way stays. Spark's compiler, Janino, makes it.
_JAVA = """
package localfiles;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public boolean rename(Path from, Path to) throws IOException {
        return !isFile(to) && super.rename(from, to);
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                Files.setPosixFilePermissions(
                    pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString())
                );
            }
        }
    }
}
"""
_lock = threading.Lock()


def make_files_in_process(session: SparkSession) -> None:
    """From now on `file:` is written so in this JVM, by whoever asks Hadoop for its file system. Idempotent; where the
    native library is there, nothing is done. Raises SparkUnavailable."""
    with _lock:
        try:
            _replace(session)
        except Py4JError as error:
            raise failure(error, "preparing to write files without a process for each") from error


def _replace(session: SparkSession) -> None:
    jvm: Any = session._jvm
    hadoop = jvm.org.apache.hadoop
    conf = hadoop.conf.Configuration(session.sparkContext._jsc.hadoopConfiguration())
    files = jvm.java.net.URI(_ANY_FILE)
    known = hadoop.fs.FileSystem.get(files, conf)
    if known.getClass().getName() not in _USUAL or hadoop.io.nativeio.NativeIO.isAvailable():
        return  # it is this one already, or one that the user has chosen
    conf.setClassLoader(_compiled(jvm).getClassLoader())
    conf.set("fs.file.impl", _CLASS)
    while known.getClass().getName() in _USUAL:  # another thread may have made the next one by its own settings
        known.close()  # whoever has it goes on with it; whoever asks gets the next one
        known = hadoop.fs.FileSystem.get(files, conf)


def _compiled(jvm: Any) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_JAVA)
    return compiler.getClassLoader().loadClass(_CLASS)
