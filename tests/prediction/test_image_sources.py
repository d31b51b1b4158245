"""Which images are meant: in what order, and what is said about places that lead nowhere."""

import io
import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from helpers.photos import RED_PNG
from PIL import Image

from gcab.classifier.image_sources import LARGEST_INPUT, Photo, find_photos
from gcab.data.formats import USUAL
from gcab.errors import GcabError


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def names(photos: Iterable[Photo]) -> list[str]:
    """Of those that were found; a reason instead of an image fails the test."""
    found = list(photos)
    assert not [photo.source for photo in found if isinstance(photo.source, GcabError)]
    return [photo.name for photo in found]


def reasons(photos: Iterable[Photo]) -> list[str]:
    return [str(photo.source) for photo in photos if isinstance(photo.source, GcabError)]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_folder_gives_its_images_in_order_of_name(tmp_path: Path) -> None:
    touch(tmp_path, "p/b/2.png", "p/b/10.JPG", "p/a.webp", "p/c.gif", "p/.hidden.png", "p/.cache/x.png", "p/read.txt")
    assert names(find_photos(["p"])) == ["p/a.webp", "p/b/10.JPG", "p/b/2.png", "p/c.gif"]
    assert names(find_photos([Path("p/c.gif"), "p/b"])) == ["p/c.gif", "p/b/10.JPG", "p/b/2.png"]


def test_a_link_back_to_a_folder_does_not_go_round(tmp_path: Path) -> None:
    touch(tmp_path, "p/a.png", "q/b.png")
    (tmp_path / "p/again.png").symlink_to(tmp_path / "p")
    (tmp_path / "p/linked.png").symlink_to(tmp_path / "q/b.png")
    (tmp_path / "q/p").symlink_to(tmp_path / "p")
    assert names(find_photos(["p"])) == ["p/a.png", "p/linked.png"]
    assert names(find_photos(["q/p"])) == ["q/p/a.png", "q/p/linked.png"]


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    touch(tmp_path, "elsewhere/owl/1.png", "elsewhere/owl/2.png", "p/wren/3.png")
    (tmp_path / "p/owl").symlink_to(tmp_path / "elsewhere/owl")
    (tmp_path / "p/owl again").symlink_to(tmp_path / "elsewhere/owl")
    (tmp_path / "elsewhere/owl/up").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "p/ring").symlink_to("ring")
    (tmp_path / "p/ring.png").symlink_to("ring.png")
    (tmp_path / "only").mkdir()
    (tmp_path / "only/owl").symlink_to(tmp_path / "elsewhere/owl")
    assert names(find_photos(["p"])) == ["p/owl/1.png", "p/owl/2.png", "p/ring.png", "p/wren/3.png"]
    assert names(find_photos(["only"])) == ["only/owl/1.png", "only/owl/2.png"]


def test_an_empty_name_is_not_the_current_folder(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    photos = list(find_photos(["", "a.png"]))
    assert [photo.name for photo in photos] == ["", "a.png"]
    assert reasons(photos) == ["an empty name was given: name a file, a folder or a pattern."]


def test_patterns_and_files_that_look_like_one(tmp_path: Path) -> None:
    touch(tmp_path, "p/b.png", "p/a.png", "p/deep/er/c.png", "p/deep/d.jpg", "p/e[1].png", "p/.h.png")
    assert names(find_photos(["p/?.png"])) == ["p/a.png", "p/b.png"]
    assert names(find_photos(["p/**/*.png"])) == ["p/a.png", "p/b.png", "p/deep/er/c.png", "p/e[1].png"]
    every = ["p/a.png", "p/b.png", "p/deep/d.jpg", "p/deep/er/c.png", "p/e[1].png"]
    assert names(find_photos(["p/*"])) == every
    assert names(find_photos(["p/**"])) == every  # each once, though folders match too
    assert names(find_photos(["**/er"])) == ["p/deep/er/c.png"]
    assert names(find_photos(["p/e[1].png"])) == ["p/e[1].png"]


def test_places_that_lead_nowhere_say_so_and_the_rest_goes_on(tmp_path: Path) -> None:
    touch(tmp_path, "p/a.png", "empty/notes.txt")
    photos = list(find_photos(["empty", "nothing*", "p"]))
    assert [photo.name for photo in photos] == ["empty", "nothing*", "p/a.png"]
    assert reasons(photos) == [
        "'empty' holds no images: check the folder.",
        "nothing matches 'nothing*': check the pattern.",
    ]


def test_a_folder_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "p/a.png", "p/locked/b.png", "p/z.png")
    scandir = os.scandir

    def guarded(folder: Path) -> object:
        if folder.name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", guarded)
    photos = list(find_photos(["p"]))
    assert [photo.name for photo in photos] == ["p/a.png", "p/locked", "p/z.png"]
    assert reasons(photos) == ["'p/locked' cannot be opened (Permission denied): check the folder."]


def test_nothing_is_looked_for_before_it_is_asked_for(tmp_path: Path) -> None:
    touch(tmp_path, "p/a.png")

    def places() -> Iterable[str]:
        yield "p"
        raise AssertionError("asked for too early")

    assert names(islice(find_photos(places()), 1)) == ["p/a.png"]


@pytest.mark.parametrize("kind", [*USUAL, "AVIF", "PPM", "TIFF"])
@pytest.mark.parametrize("size", [(300, 9), (9, 8300), (8300, 9)])
def test_every_kind_of_image_through_standard_input(kind: str, size: tuple[int, int]) -> None:
    stream = io.BytesIO()
    Image.new("RGB", size, "red").save(stream, format=kind)
    (photo,) = find_photos(["-"], io.BytesIO(stream.getvalue()))
    assert photo == Photo("-", stream.getvalue())


@pytest.mark.parametrize(
    "content", [b"P1\n2 1\n0 1\n", b"P4\n8 1\n\xff", b"P5 1 1 255\n.", b"P6\n# by hand\n#\n 1 1 # odd\n255\n..."]
)
def test_every_way_to_begin_a_ppm(content: bytes) -> None:
    assert list(find_photos(["-"], io.BytesIO(content))) == [Photo("-", content)]


@pytest.mark.parametrize("content", [b"p/a.png\np/b.png", b"p/a.png\r\n\r\np/b.png\r\n", b"p/a.png\0p/b.png\0", b"p\n"])
def test_a_list_of_paths_through_standard_input(content: bytes, tmp_path: Path) -> None:
    touch(tmp_path, "p/a.png", "p/b.png")
    assert names(find_photos(["-"], io.BytesIO(content))) == ["p/a.png", "p/b.png"]


def test_listed_names_may_be_anything_a_file_can_be_called() -> None:
    odd = [b"BMW.png", b"GIF8.png", b"P6.ppm", b"RIFF.png", b"b[1]*.png", b"caf\xe9.png", b"-"]
    listed = find_photos(["-"], io.BytesIO(b"\n".join(odd)))
    assert [os.fsencode(name) for name in names(listed)] == odd
    for first in (b"P1 a.jpg", b"P4 12 05 2024.jpg", b"P6", b"P2 3", b"GIF89a.jpg"):
        for separator in (b"\n", b"\0"):
            listed = find_photos(["-"], io.BytesIO(separator.join([first, b"b.jpg", b""])))
            assert names(listed) == [first.decode(), "b.jpg"]
    lines = find_photos(["-"], io.BytesIO(b"a\nb.png\0 c.png\0"))
    assert names(lines) == ["a\nb.png", " c.png"]


def test_a_long_list_is_cut_at_its_lines_and_read_as_it_is_needed() -> None:
    count = 20000
    stream = io.BytesIO(b"".join(b"photos/%05d.png\n" % number for number in range(count)))
    photos = find_photos(["-"], stream)
    assert next(photos).name == "photos/00000.png"
    assert stream.tell() < 2**17
    assert [photo.name for photo in photos] == [f"photos/{number:05d}.png" for number in range(1, count)]


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_empty_standard_input(content: bytes) -> None:
    assert "nothing came through standard input" in reasons(find_photos(["-"], io.BytesIO(content)))[0]


def test_an_endless_image_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcab.classifier.image_sources.LARGEST_INPUT", 1000)
    assert LARGEST_INPUT > 10**8
    (photo,) = find_photos(["-"], io.BytesIO(RED_PNG + bytes(2000)))
    assert "standard input has more than" in str(photo.source)


def test_without_a_stream_a_minus_is_a_file() -> None:
    assert names(find_photos(["-"])) == ["-"]
