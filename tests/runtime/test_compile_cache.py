"""The cache of compiled steps as files: what one session leaves, what the next finds, and what it must not trust."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from myxtts.runtime import compile_cache
from myxtts.runtime.compile_cache import (
    CompileCache,
    find_cache_folder,
    get_compile_cache,
    name_platform,
    open_compile_cache,
    start_compile_cache,
)
from myxtts.runtime.hardware import Gpu

GROUP = "tiny, 8 shapes"
CARD = Gpu(0, "RTX 3090", 24_000_000_000, 23_000_000_000, "uuid", (8, 6), 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path / "cache" / "compiled"


def open_cache(folder: Path, group: str = GROUP) -> CompileCache:
    lines: list[str] = []
    cache = open_compile_cache(folder, (), lines.append)
    cache.use_group(group)
    return cache


def compile_function(cache: CompileCache, name: str, content: bytes = b"code") -> int:
    """Writes a file as TensorFlow does."""
    assert cache.session is not None
    cache.mark()
    (cache.session / name).write_bytes(content)
    return cache.publish()


def list_found(cache: CompileCache) -> list[str]:
    assert cache.session is not None
    return sorted(path.name for path in cache.session.iterdir() if not path.name.startswith("."))


def list_kept(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.pb.*") if path.is_file())


def test_what_one_session_compiles_is_found_by_the_next(folder: Path) -> None:
    first = open_cache(folder)
    assert first.num_found == 0
    assert compile_function(first, "a.pb") == 1
    assert compile_function(first, "b.pb") == 1
    first.close()
    second = open_cache(folder)
    assert (second.num_found, list_found(second)) == (2, ["a.pb", "b.pb"])
    # A function that TensorFlow found is not written again.
    second.mark()
    assert second.publish() == 0
    other = open_cache(folder, "another model")
    assert other.num_found == 0
    for cache in (second, other):
        cache.close()
    assert not list(folder.glob("*/session-*"))


def test_files_that_others_compiled_are_not_kept(folder: Path) -> None:
    cache = open_cache(folder)
    assert cache.session is not None
    (cache.session / "synthesis.pb").write_bytes(b"code")
    assert compile_function(cache, "step.pb") == 1
    assert [path.name.partition(".")[0] for path in list_kept(folder)] == ["step"]


@pytest.mark.parametrize("damage", [b"", b"cod", b"codf", b"code and more"])
def test_a_damaged_file_is_removed_and_compiled_again(folder: Path, damage: bytes) -> None:
    first = open_cache(folder)
    compile_function(first, "a.pb")
    compile_function(first, "b.pb", b"other code")
    first.close()
    damaged, _ = list_kept(folder)
    damaged.write_bytes(damage)
    second = open_cache(folder)
    assert list_found(second) == ["b.pb"]
    assert not damaged.exists()
    compile_function(second, "a.pb")
    assert list_found(open_cache(folder)) == ["a.pb", "b.pb"]


def test_two_sessions_at_once_do_not_see_each_others_unfinished_files(folder: Path) -> None:
    one, other = open_cache(folder), open_cache(folder)
    assert one.session != other.session
    compile_function(one, "a.pb")
    compile_function(other, "a.pb")
    compile_function(other, "a2.pb", b"differently compiled")
    assert list_found(one) == ["a.pb"]
    one.close()
    # Closing one leaves the other its files.
    assert list_found(other) == ["a.pb", "a2.pb"]
    assert list_found(open_cache(folder)) == ["a.pb", "a2.pb"]


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_live_one_is_not(folder: Path) -> None:
    alive, killed = open_cache(folder), open_cache(folder)
    assert alive.session is not None
    assert killed.session is not None
    # The kernel releases the lock of a process that ends.
    os.close(killed._lock)
    killed._lock = -1
    open_cache(folder)
    assert alive.session.exists()
    assert not killed.session.exists()


def test_the_groups_that_were_not_used_for_longest_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "MAX_CACHE_BYTES", 250)
    for number, group in enumerate(("old", "older", "new")):
        cache = open_cache(folder, group)
        compile_function(cache, "a.pb", b"x" * 100)
        assert cache.group is not None
        if cache.group.exists():
            os.utime(cache.group, (0, (2000, 1000, 3000)[number]))
    assert [open_cache(folder, group).num_found for group in ("old", "older", "new")] == [1, 0, 1]


def test_a_folder_in_which_others_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    with pytest.raises(OSError, match=r"another user may write in .*compiled"):
        open_cache(folder)
    folder.chmod(0o700)
    cache = open_cache(folder)
    assert cache.session is not None
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in (cache.session, cache.session.parent))


@pytest.mark.parametrize("hindrance", ["file", "full"])
def test_without_a_place_to_write_there_is_a_warning_and_no_cache(
    hindrance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(compile_cache, "_present", CompileCache())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    if hindrance == "file":
        (tmp_path / "myxtts").write_text("", encoding="utf-8")
    else:
        monkeypatch.setattr(compile_cache, "_MIN_FREE_BYTES", 10**18)
    start_compile_cache((), lines.append)
    assert len(lines) == 1
    assert lines[0].startswith("Compiled steps are not kept for the next start: ")
    assert os.environ["TF_XLA_FLAGS"] == "--tf_xla_clustering_debug"
    cache = get_compile_cache()
    assert not cache.is_on
    cache.use_group(GROUP)
    cache.mark()
    assert cache.publish() == 0


def test_flags_of_the_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "_present", CompileCache())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=/somewhere")
    start_compile_cache((), print)
    assert not get_compile_cache().is_on
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    start_compile_cache((), print)
    flags = os.environ["TF_XLA_FLAGS"].split()
    assert flags == ["--tf_xla_clustering_debug", f"--tf_xla_persistent_cache_directory={get_compile_cache().session}"]
    get_compile_cache().close()


def test_the_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert find_cache_folder({}) == Path("/home/someone/.cache/myxtts/compiled")
    assert find_cache_folder({"XDG_CACHE_HOME": "/fast"}) == Path("/fast/myxtts/compiled")
    assert find_cache_folder({"XDG_CACHE_HOME": "relative"}) == Path("/home/someone/.cache/myxtts/compiled")


def test_other_hardware_or_options_have_a_folder_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        name_platform((), {}),
        name_platform((CARD,), {}),
        name_platform((), {"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}),
    ]
    monkeypatch.setattr(compile_cache, "_describe_processor", lambda: "another processor")
    names.append(name_platform((), {}))
    assert len(set(names)) == 4
