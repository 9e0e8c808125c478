"""The conformance suite for file systems: `check_file_system` holds one against `filesystems.contract`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from scribengin.base.threads import background
from scribengin.filesystems.contract import DurableFileSystem, TreeFileSystem, is_lasting
from scribengin.testing.conformance.expecting import expect, expect_equal, promised
from scribengin.testing.failpoints import at_failpoint

Check = Callable[[DurableFileSystem, str], None]
_THREADS = 4
_FILES_EACH = 3


def check_file_system(files: DurableFileSystem, root: str) -> None:
    """Raise AssertionError, with a sentence that says which promise is broken, unless the system keeps all of them.

    `root`: a directory of it that is not there yet, in the system's own form. Nothing is deleted afterwards.
    """
    for check in FILE_SYSTEM_CHECKS:
        with promised(check):
            check(files, f"{root}/{check.__name__}")


def what_was_written_is_read(files: DurableFileSystem, root: str) -> None:
    """Whole, in parts, and found by its name."""
    files.make_directories(f"{root}/a/b")
    files.make_directories(f"{root}/a/b")
    write_file(files, f"{root}/a/b/f", b"one ", memoryview(b"two "), b"three")
    expect_equal(files.size(f"{root}/a/b/f"), 13, "the size of a file of three blocks")
    expect_equal(files.names(f"{root}/a/b"), ["f"], "the names in its directory")
    expect_equal(contents(files, f"{root}/a/b/f"), [b"one two three"], "what snapshots() reads")
    parts = [files.read(f"{root}/a/b/f", *part) for part in ((0, 3), (4, 7), (8, 99), (99, 100))]
    expect_equal(parts, [b"one", b"two", b"three", b""], "parts of a file, also beyond its end")
    expect_equal(files.readable(f"{root}/a/b/f", 13), 13, "readable() of a file that is closed")
    (found,) = files.find(root)
    expect_equal((found.name, found.size_bytes), ("a/b/f", 13), "what find() finds below a directory")
    expect(files.is_complete(f"{root}/a/b/f", found), "is_complete() of a file that nobody writes to")
    (itself,) = files.find(f"{root}/a/b/f")
    expect_equal((itself.name, itself.size_bytes), ("f", 13), "what find() says of a file")


def every_byte_is_written_and_read_as_it_is(files: DurableFileSystem, root: str) -> None:
    """Also the memory of an Arrow buffer, which calls its bytes signed."""
    files.make_directories(root)
    every = bytes(range(256))
    signed = memoryview(pa.py_buffer(every))
    write_file(files, f"{root}/f", every, every[:0], signed, memoryview(bytearray(every)).cast("b"))
    expect_equal(contents(files, f"{root}/f"), [every * 3], "what snapshots() reads of all bytes")
    expect_equal(files.read(f"{root}/f", 128, 256), every[128:], "what read() reads of all bytes")


def a_name_is_given_once(files: DurableFileSystem, root: str) -> None:
    """A file that is there is neither written over nor emptied."""
    files.make_directories(root)
    write_file(files, f"{root}/f", b"first")
    expect(_raises(FileExistsError, lambda: files.create(f"{root}/f")), "create() of a name that is taken raises")
    expect_equal(contents(files, f"{root}/f"), [b"first"], "the file that was there")


def a_file_is_moved_once_and_never_over_another(files: DurableFileSystem, root: str) -> None:
    """Whoever moves it a second time is told, and so is who would cover another."""
    files.make_directories(f"{root}/to")
    for name in ("f", "g"):
        write_file(files, f"{root}/{name}", name.encode())
    files.rename(f"{root}/f", f"{root}/to/f")
    expect_equal((files.size(f"{root}/f"), contents(files, f"{root}/to/f")), (None, [b"f"]), "a file that was moved")
    again = _raises(FileNotFoundError, lambda: files.rename(f"{root}/f", f"{root}/to/f"))
    expect(again, "rename() of a file that was moved raises FileNotFoundError, though its target is there")
    covering = _raises(FileExistsError, lambda: files.rename(f"{root}/g", f"{root}/to/f"))
    expect(covering, "rename() to a name that is taken raises FileExistsError")
    expect_equal(contents(files, f"{root}/g", f"{root}/to/f"), [b"g", b"f"], "both files after that")


def a_lasting_identity_outlives_a_move(files: DurableFileSystem, root: str) -> None:
    """Where a system has such: and no other file has it."""
    files.make_directories(root)
    for name in ("f", "other"):
        write_file(files, f"{root}/{name}", name.encode())
    first, other = files.find(root)
    expect(not first.identity or first.identity != other.identity, "two files have two identities")
    files.rename(f"{root}/f", f"{root}/g")
    if is_lasting(first.identity):
        expect_equal(files.path_of(f"{root}/f", first.identity), f"{root}/g", "where path_of() finds a moved file")
        expect_equal(files.read_same(f"{root}/g", first.identity, 0, 9), b"f", "what read_same() reads of it")


def what_is_not_there_is_said_to_be_missing(files: DurableFileSystem, root: str) -> None:
    """As the contract has it: some calls say so by their answer, others raise FileNotFoundError."""
    there = (files.names(root), files.size(f"{root}/f"), files.is_directory(root))
    expect_equal(there, ([], None, False), "names(), size() and is_directory() of nothing")
    files.remove(f"{root}/f")
    files.make_directories(root)
    files.remove(f"{root}/f")
    expect(files.is_directory(root), "is_directory() of a directory that was made")
    expect(_raises(FileNotFoundError, lambda: files.snapshots([f"{root}/f"])), "snapshots() of nothing raises")
    expect(_raises(FileNotFoundError, lambda: files.read(f"{root}/f", 0, 1)), "read() of nothing raises")
    expect(_raises(FileNotFoundError, lambda: files.find(f"{root}/none")), "find() below nothing raises")


def what_was_removed_is_gone(files: DurableFileSystem, root: str) -> None:
    """For who asks for it by name, and for who lists its directory."""
    files.make_directories(root)
    write_file(files, f"{root}/f", b"f")
    files.remove(f"{root}/f")
    files.sync_directory(root)
    expect_equal((files.size(f"{root}/f"), files.names(root)), (None, []), "a file that was removed")


def a_name_is_no_pattern(files: DurableFileSystem, root: str) -> None:
    """It may hold what patterns are made of, and means itself alone."""
    odd, meant_by_a_pattern = f"{root}/a[1]?*", f"{root}/a1b"
    for directory in (odd, meant_by_a_pattern):
        files.make_directories(directory)
        write_file(files, f"{directory}/f", directory.encode())
    expect_equal([info.name for info in files.find(odd)], ["f"], "what find() finds below a[1]?*")
    files.rename(f"{odd}/f", f"{odd}/g")
    both = contents(files, f"{odd}/g", f"{meant_by_a_pattern}/f")
    expect_equal(both, [odd.encode(), meant_by_a_pattern.encode()], "what a[1]?*/g and a1b/f hold after a move to g")
    files.remove(f"{odd}/g")
    expect_equal((files.names(odd), files.names(meant_by_a_pattern)), ([], ["f"]), "names after a[1]?*/g was removed")


def hidden_files_are_nobodys_input_and_depth_is_kept(files: DurableFileSystem, root: str) -> None:
    """Names that begin with a dot or an underscore, of files and of directories."""
    for name in ("a", "x/b", "x/y/c", "_hidden/d", ".e", "x/_f"):
        files.make_directories(f"{root}/{name}".rpartition("/")[0])
        write_file(files, f"{root}/{name}", b"1")
    expect_equal([info.name for info in files.find(root)], ["a", "x/b", "x/y/c"], "what find() finds")
    expect_equal([info.name for info in files.find(root, 2)], ["a", "x/b"], "what find() finds two levels down")


def a_file_that_is_given_up_can_be_closed_and_removed(files: DurableFileSystem, root: str) -> None:
    """Without having been synced; and closing twice is fine."""
    files.make_directories(root)
    file = files.create(f"{root}/f")
    file.append(b"half")
    file.close()
    file.close()
    files.remove(f"{root}/f")
    expect_equal(files.names(root), [], "the names after a file was given up")


def a_place_has_one_name(files: DurableFileSystem, root: str) -> None:
    """However it is written; another place has another."""
    files.make_directories(root)
    expect_equal(files.resource(f"{root}/"), files.resource(root), "resource() of a path with a slash behind it")
    expect(files.resource(root) != files.resource(f"{root}/x"), "resource() of two places are two")
    expect(bool(files.promise), "promise says what a sink's guarantee rests on")


def a_directory_may_be_made_by_somebody_else_meanwhile(files: DurableFileSystem, root: str) -> None:
    """Whoever was overtaken between his look and his own attempt finds it there."""
    with at_failpoint("files.make_directory:before", lambda _stop: files.make_directories(root)):
        files.make_directories(root)
    expect(files.is_directory(root), "the directory is there")


def threads_do_not_meet(files: DurableFileSystem, root: str) -> None:
    """Each writes and moves files of its own, at once."""
    files.make_directories(root)

    def work(thread: int) -> None:
        for number in range(_FILES_EACH):
            write_file(files, f"{root}/{thread}-{number}", b"%d" % thread)
            files.rename(f"{root}/{thread}-{number}", f"{root}/done-{thread}-{number}")

    threads = [background(f"file-check-{number}", partial(work, number)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = [f"done-{thread}-{number}" for thread in range(_THREADS) for number in range(_FILES_EACH)]
    expect_equal(files.names(root), wanted, "the names that four threads left")
    expect_equal(contents(files, f"{root}/{wanted[-1]}"), [b"%d" % (_THREADS - 1)], "what the last of them wrote")


def a_directory_is_moved_once_with_all_that_is_in_it(files: DurableFileSystem, root: str) -> None:
    """Where whole directories can be moved: never over another, and whoever comes second is told."""
    if not isinstance(files, TreeFileSystem):
        return
    for name in ("a/deep/f", "b/g"):
        files.make_directories(f"{root}/{name}".rpartition("/")[0])
        write_file(files, f"{root}/{name}", name.encode())
    files.rename(f"{root}/a", f"{root}/moved")
    expect_equal(contents(files, f"{root}/moved/deep/f"), [b"a/deep/f"], "a file in a directory that was moved")
    expect_equal((files.is_directory(f"{root}/a"), files.names(root)), (False, ["b", "moved"]), "the names after that")
    again = _raises(FileNotFoundError, lambda: files.rename(f"{root}/a", f"{root}/other"))
    expect(again, "rename() of a directory that was moved raises FileNotFoundError")
    covering = _raises(FileExistsError, lambda: files.rename(f"{root}/b", f"{root}/moved"))
    expect(covering, "rename() of a directory to a name that is taken raises FileExistsError")
    expect_equal(files.names(f"{root}/moved"), ["deep"], "what was in the directory that had the name")


def a_file_is_put_in_place_of_another(files: DurableFileSystem, root: str) -> None:
    """With `replace`, where there is one."""
    if not isinstance(files, TreeFileSystem):
        return
    files.make_directories(root)
    for name in ("old", "new"):
        write_file(files, f"{root}/{name}", name.encode())
    files.replace(f"{root}/new", f"{root}/old")
    expect_equal((files.names(root), contents(files, f"{root}/old")), (["old"], [b"new"]), "what replace() leaves")
    missing = _raises(FileNotFoundError, lambda: files.replace(f"{root}/new", f"{root}/old"))
    expect(missing, "replace() of a file that is not there raises FileNotFoundError")


def directories_are_removed_whole_or_only_when_they_are_empty(files: DurableFileSystem, root: str) -> None:
    """With `remove_tree` and `remove_directory`, where there are such; what is not there is fine."""
    if not isinstance(files, TreeFileSystem):
        return
    files.make_directories(f"{root}/a/deep")
    write_file(files, f"{root}/a/deep/f", b"f")
    files.remove_directory(f"{root}/a")
    expect_equal(files.names(f"{root}/a"), ["deep"], "what remove_directory() leaves of one that is not empty")
    files.remove_tree(f"{root}/a/deep")
    expect_equal(files.names(f"{root}/a"), [], "what remove_tree() leaves beside it")
    files.remove_directory(f"{root}/a")
    expect_equal(files.names(root), [], "the names after an empty directory was removed")
    files.remove_directory(f"{root}/a")
    files.remove_tree(f"{root}/a")


FILE_SYSTEM_CHECKS: tuple[Check, ...] = (
    what_was_written_is_read,
    every_byte_is_written_and_read_as_it_is,
    a_name_is_given_once,
    a_file_is_moved_once_and_never_over_another,
    a_lasting_identity_outlives_a_move,
    what_is_not_there_is_said_to_be_missing,
    what_was_removed_is_gone,
    a_name_is_no_pattern,
    hidden_files_are_nobodys_input_and_depth_is_kept,
    a_file_that_is_given_up_can_be_closed_and_removed,
    a_place_has_one_name,
    a_directory_may_be_made_by_somebody_else_meanwhile,
    threads_do_not_meet,
    a_directory_is_moved_once_with_all_that_is_in_it,
    a_file_is_put_in_place_of_another,
    directories_are_removed_whole_or_only_when_they_are_empty,
)
"""What `check_file_system` checks, one after the other: each below a directory of its own."""


def write_file(files: DurableFileSystem, path: str, *blocks: bytes | memoryview) -> None:
    """Make a file of these blocks, durably but for its name."""
    file = files.create(path)
    for block in blocks:
        file.append(block)
    file.sync()
    file.close()


def contents(files: DurableFileSystem, *paths: str) -> list[bytes]:
    """All that the files hold."""
    return [b"".join(blocks) for blocks in files.snapshots(paths)]


def _raises(kind: type[OSError], act: Callable[[], object]) -> bool:
    try:
        act()
    except kind:
        return True
    return False
