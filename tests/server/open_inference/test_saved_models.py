# SPDX-License-Identifier: Apache-2.0
"""Published models on disk: whole or not there, whatever happens to the server or the files."""

import errno
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from nnpa_server.errors import CallRefused
from nnpa_server.open_inference.owners import OPERATOR
from nnpa_server.open_inference.saved_models import (
    MARK,
    PREFIX,
    Damaged,
    SavedModel,
    SavedModels,
    StateInvalid,
)

KIB = 1 << 10
OLD = SavedModel("digits", "alice", '{"name": "digits"}', {"1": b"old", "2": bytes(range(256))})
NEW = SavedModel("digits", "bob", "{}", {"3": b"new" * 100})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one model."""
    saved = SavedModels(tmp_path / "state", 64 * KIB)
    saved.save(OLD)
    saved.close()
    return tmp_path / "state"


def reopened(folder: Path) -> dict[str, SavedModel | str]:
    """Return the models of a folder, or what is wrong with them, as a new server finds them."""
    saved = SavedModels(folder, 64 * KIB)
    models: dict[str, SavedModel | str] = {}
    for name in saved.names():
        try:
            models[name] = saved.read(name)
        except Damaged as error:
            models[name] = str(error)
    saved.close()
    return models


def file_of(folder: Path) -> Path:
    """Return the only model's file."""
    (path,) = folder.glob("*.model")
    return path


def test_what_was_saved_is_read(folder: Path) -> None:
    """A model is the same after the process that wrote it: owner, configuration, all versions."""
    assert reopened(folder) == {"digits": OLD}
    saved = SavedModels(folder, 64 * KIB)
    assert (saved.names(), saved.owner("digits")) == (["digits"], "alice")
    saved.save(NEW)
    assert saved.read("digits") == NEW
    assert saved.remove("digits")
    assert not saved.remove("digits")
    assert (saved.names(), saved.owner("digits")) == ([], None)
    saved.close()
    assert reopened(folder) == {}
    assert not list(folder.glob("*.model"))


def test_no_file_has_a_clients_name(folder: Path) -> None:
    """Names of files are hashes; folder and files are their owner's only."""
    names = {path.name for path in folder.iterdir()}
    assert not any("digits" in name for name in names)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_no_changed_byte_passes(folder: Path) -> None:
    """A file with any byte changed, cut off or added is no model; no contents change unseen."""
    path, whole = file_of(folder), file_of(folder).read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes((whole[place] ^ 0x10,)) + whole[place + 1 :])
        assert all(isinstance(model, str) for model in reopened(folder).values()), place
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert reopened(folder) == {}, size
    path.write_bytes(whole + b"\0")
    assert reopened(folder) == {}
    path.write_bytes(whole)
    assert reopened(folder) == {"digits": OLD}


def test_a_file_of_another_name_is_no_model(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A whole file under another model's hash is ignored, and told."""
    file_of(folder).rename(folder / f"{'0' * 64}.model")
    with caplog.at_level(logging.WARNING, "nnpa.models"):
        assert reopened(folder) == {}
    assert "named as another model's" in caplog.text


@pytest.mark.parametrize("text", [b"[]", b"{", b'{"name": "x"}', b'{"versions": [[1]]}', b"\xff"])
def test_headers_of_another_kind(folder: Path, text: bytes) -> None:
    """A header whose checksum is right and that says something else is no model, and no failure."""
    prefix = PREFIX.pack(MARK, hashlib.sha256(text).digest(), len(text))
    file_of(folder).write_bytes(prefix + text)
    assert reopened(folder) == {}


def test_damaged_files_are_told_counted_and_an_admins(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged file is told once, counts as bytes, and belongs to the operator."""
    file_of(folder).write_bytes(bytes(60 * KIB))
    with caplog.at_level(logging.WARNING, "nnpa.models"):
        saved = SavedModels(folder, 64 * KIB)
    assert caplog.text.count("damaged and ignored: it does not begin as a model") == 1
    assert saved.owner("digits") == OPERATOR
    with pytest.raises(CallRefused, match="max_state_bytes is 65536"):
        saved.require_room("other", 5 * KIB, "")
    saved.require_room("digits", 63 * KIB, "")
    saved.save(NEW)
    assert saved.owner("digits") == "bob"
    saved.close()
    assert reopened(folder) == {"digits": NEW}


def test_half_written_files_are_removed(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Half-written files of a killed server are removed, foreign files stay; both are told."""
    (folder / f"{'0' * 32}.part").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine")
    (folder / f"{'1' * 64}.model").symlink_to("/etc/hostname")
    with caplog.at_level(logging.WARNING, "nnpa.models"):
        assert reopened(folder) == {"digits": OLD}
    assert "half written" in caplog.text
    assert "'notes.txt' is no file of a model" in caplog.text
    assert f"{'1' * 64}.model' is no file of a model" in caplog.text
    assert not list(folder.glob("*.part"))
    assert (folder / "notes.txt").read_text() == "mine"


def counted(
    calls: list[str], name: str, call: Callable[..., object], fail_at: int
) -> Callable[..., object]:
    """Return a call that is noted, and that fails as call number `fail_at`."""

    def run(*arguments: object, **options: object) -> object:
        calls.append(name)
        if len(calls) == fail_at:
            raise OSError(errno.EIO, "broken")
        return call(*arguments, **options)

    return run


def note_steps(monkeypatch: pytest.MonkeyPatch, fail_at: int = 0) -> list[str]:
    """Note the steps of writing; step number `fail_at` fails."""
    calls: list[str] = []

    def fsync(descriptor: int) -> None:
        calls.append("folder" if Path(f"/proc/self/fd/{descriptor}").is_dir() else "file")
        if len(calls) == fail_at:
            raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", fsync)
    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, counted(calls, name, getattr(Path, name), fail_at))
    return calls


def test_steps_of_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is synchronized before it is renamed, its folder after; so is a removal."""
    saved = SavedModels(folder, 64 * KIB)
    calls = note_steps(monkeypatch)
    saved.save(NEW)
    assert calls == ["file", "replace", "folder"]
    calls.clear()
    saved.remove("digits")
    assert calls == ["unlink", "folder"]
    saved.close()


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_step_fails(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Whichever step of writing fails, the caller hears it, and one of the two models is whole."""
    saved = SavedModels(folder, 64 * KIB)
    with monkeypatch.context() as patched:
        note_steps(patched, step)
        with pytest.raises(OSError, match="broken"):
            saved.save(NEW)
    expected = OLD if step < 3 else NEW
    assert saved.read("digits") == expected
    assert saved.owner("digits") == expected.owner
    saved.close()
    assert not list(folder.glob("*.part"))
    assert reopened(folder) == {"digits": expected}


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is refused like the limit of bytes, and the saved models stay."""
    saved = SavedModels(folder, 64 * KIB)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(CallRefused, match="the disk is full") as caught:
            saved.save(NEW)
    assert (caught.value.name, caught.value.metadata["field"]) == (
        "MODEL_QUOTA_EXCEEDED",
        "max_state_bytes",
    )
    saved.close()
    assert reopened(folder) == {"digits": OLD}


def test_bytes_have_a_limit(folder: Path) -> None:
    """A model beyond the limit is refused and changes nothing; replacing counts the new one."""
    saved = SavedModels(folder, 2 * KIB)
    for name, size in (("digits", 2 * KIB), ("other", 2 * KIB - 400)):
        with pytest.raises(CallRefused) as caught:
            saved.save(SavedModel(name, "", "{}", {"1": bytes(size)}))
        facts = caught.value.metadata
        assert (facts["field"], facts["limit"]) == ("max_state_bytes", "2048")
        assert int(facts["value"]) > 2 * KIB
    saved.save(SavedModel("digits", "", "{}", {"1": bytes(KIB)}))
    saved.save(SavedModel("digits", "", "{}", {"1": bytes(KIB + KIB // 2)}))
    saved.close()
    assert [path.stat().st_size < 2 * KIB for path in folder.glob("*.model")] == [True]


def test_one_server_has_a_folder(folder: Path) -> None:
    """A folder that a server has is refused; a closed one writes no more."""
    saved = SavedModels(folder, KIB)
    with pytest.raises(StateInvalid, match="another server has it"):
        SavedModels(folder, KIB)
    saved.close()
    saved.close()
    for change in (lambda: saved.save(NEW), lambda: saved.remove("digits")):
        with pytest.raises(CallRefused, match="shuts down"):
            change()
    assert reopened(folder) == {"digits": OLD}


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    """A folder that cannot be made is refused, and said."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateInvalid, match=r"--state .*/file/state: Not a directory"):
        SavedModels(tmp_path / "file" / "state", KIB)
