"""Zips from strangers: what is unpacked, what is refused, and that nothing is written outside."""

import contextlib
import errno
import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from helpers.photos import zipped
from helpers.serving import class_folders, photo
from PIL import Image

from gcab.serve.archive import unpack
from gcab.serve.decoding import Decoders
from gcab.serve.limits import Limits, RequestError
from gcab.serve.photos import check_photo, decode_photo
from gcab.serve.wording import plain_name, without_paths

LIMITS = Limits(zip_files=50, zip_bytes=3 * 2**20, name_characters=20)
GOOD = {"robin/a.png": photo(0), "wren/b.jpg": photo(1, kind="JPEG")}


def unpacked(content: bytes, target: Path, limits: Limits = LIMITS) -> list[str]:
    target.mkdir(exist_ok=True)
    unpack(io.BytesIO(content), target / "inside", limits)
    return sorted(path.relative_to(target / "inside").as_posix() for path in target.rglob("*") if path.is_file())


def refused(content: bytes, target: Path, limits: Limits = LIMITS) -> RequestError:
    with pytest.raises(RequestError) as problem:
        unpacked(content, target, limits)
    outside = [path for path in target.rglob("*") if path.is_file() and target / "inside" not in path.parents]
    assert outside == []
    assert str(target) not in problem.value.sentence
    assert problem.value.sentence.endswith(".")
    return problem.value


def test_a_good_zip(tmp_path: Path) -> None:
    assert unpacked(zipped(GOOD), tmp_path) == ["robin/00000.png", "wren/00001.jpg"]
    assert (tmp_path / "inside/robin/00000.png").read_bytes() == GOOD["robin/a.png"]


def test_folders_around_the_classes_and_what_systems_add(tmp_path: Path) -> None:
    files = {f"my photos/2026/{name}": content for name, content in GOOD.items()}
    extra = {"__MACOSX/my photos/._a.png": b"?", "my photos/.DS_Store": b"?", "my photos/2026/wren/Thumbs.db": b"?"}
    assert unpacked(zipped({**files, **extra, "my photos/": b""}), tmp_path) == [
        "robin/00000.png",
        "wren/00001.jpg",
    ]


def test_deeper_folders_belong_to_the_class(tmp_path: Path) -> None:
    files = {"robin/2025/may/a.png": photo(0), "robin/b.png": photo(1), "wren/c d!é.png": photo(2)}
    assert unpacked(zipped(files), tmp_path) == ["robin/00000.png", "robin/00001.png", "wren/00002.png"]


def test_the_names_that_photos_had_are_told_and_not_written(tmp_path: Path) -> None:
    files = {"robin/2025/my secret.JPG": photo(0, kind="JPEG"), "wren/my secret.png": photo(1)}
    inside = tmp_path / "inside"
    assert unpack(io.BytesIO(zipped(files)), inside, LIMITS) == {
        inside / "robin/00000.jpg": "robin/my secret.JPG",
        inside / "wren/00001.png": "wren/my secret.png",
    }
    assert not list(tmp_path.rglob("*secret*"))


def test_names_of_classes_are_text(tmp_path: Path) -> None:
    files = {"<script>/a.png": photo(0), "Zaunko\u0308nig /b.png": photo(1), "$(rm -r x)/c.png": photo(2)}
    assert unpacked(zipped(files), tmp_path) == [
        "$(rm -r x)/00002.png",
        "<script>/00000.png",
        "Zaunkönig/00001.png",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "../robin/a.png",
        "robin/../../a.png",
        "/robin/a.png",
        "//robin/a.png",
        "robin//a.png",
        "./robin/a.png",
        "C:/robin/a.png",
        "c:robin/a.png",
        "robin\\a.png",
        "..\\..\\a.png",
        "\\\\server\\share\\a.png",
        "robin/a\n.png",
        "robin/\x1b[31m.png",
        "robin/\u202egnp.exe",
        "robin/a\x00.png",
        "..",
        "/",
        "a/b/c/d/e/f/g/h/i/j.png",
    ],
)
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for good, content in GOOD.items():
            archive.writestr(good, content)
        placeholder = "x" * len(name.encode())
        archive.writestr(placeholder, photo(0))
    # zipfile would tidy some of these names, so they are put in place afterwards
    content = stream.getvalue().replace(placeholder.encode(), name.encode())
    if not name.isascii():
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr(name, photo(0))
        content = stream.getvalue()
    assert refused(content, tmp_path).status == 422


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_entries_that_are_no_files(tmp_path: Path, kind: int) -> None:
    stream = io.BytesIO(zipped(GOOD))
    with zipfile.ZipFile(stream, "a") as archive:
        info = zipfile.ZipInfo("robin/link.png")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    assert "link or a device" in refused(stream.getvalue(), tmp_path).sentence


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["robin/a.png", "robin/a.png"], "twice"),
        (["robin/a.png", "robin/A.PNG"], "twice"),
        (["robin/\u00e9.png", "robin/e\u0301.png"], "twice"),
        (["robin/a.png", "Robin/b.png"], "differ only in capitals"),
        (["robin/a.png", "robin /b.png"], ""),
        (["photos/robin/a.png", "photos/robin/b.png"], ""),
        (["robin/a.png", "wren.png"], "outside any class folder"),
        (["a.png", "b.png"], "outside any class folder"),
        ([], "holds no photos"),
        (["robin/", "wren/"], "holds no photos"),
        ([".hidden/a.png"], "holds no photos"),
        (["robin/a.exe", "wren/b.png"], "'a.exe' in the zip is no image"),
        (["robin/a", "wren/b.png"], "no image"),
        (["robin/inner.zip", "wren/b.png"], "no image"),
        (["x" * 21 + "/a.png", "wren/b.png"], "cannot name a class"),
        ([" /a.png", "wren/b.png"], "cannot name a class"),
        (["é" * 20 + "/a.png", "\U0001f600" * 20 + "/b.png"], ""),
        ([f"robin/{index}.png" for index in range(51)], "more than 50 files"),
    ],
)
def test_what_a_zip_must_hold(tmp_path: Path, names: list[str], part: str) -> None:
    stream = io.BytesIO()
    twice = pytest.warns(UserWarning, match="Duplicate") if len(set(names)) < len(names) else contextlib.nullcontext()
    with twice, zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, b"" if name.endswith("/") else photo(0))
    if part:
        assert part in refused(stream.getvalue(), tmp_path).sentence
    else:
        assert len(unpacked(stream.getvalue(), tmp_path)) == 2


def test_bombs(tmp_path: Path) -> None:
    zeros = zipped({**GOOD, "wren/zeros.png": bytes(2 * 2**20)})
    assert (refused(zeros, tmp_path).status, len(zeros) < 10**4) == (413, True)
    many = {f"wren/{index}.png": bytes(2**20) for index in range(4)}
    assert refused(zipped({**GOOD, **many}), tmp_path).sentence.startswith("the zip unpacks to more than 3 MiB")


def with_field(content: bytes, offset: int, layout: str, value: int) -> bytes:
    """The zip with one field of every entry of its table of contents replaced."""
    changed, start = bytearray(content), content.find(b"PK\x01\x02")
    while start >= 0:
        struct.pack_into(layout, changed, start + offset, value)
        start = content.find(b"PK\x01\x02", start + 1)
    return bytes(changed)


def test_sizes_that_lie(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in ("robin", "wren"):
            archive.writestr(f"{folder}/a.png", bytes(2 * 2**20))
    assert refused(with_field(stream.getvalue(), 24, "<I", 100), tmp_path).status == 422  # fewer than there are


def test_kinds_that_are_not_read(tmp_path: Path) -> None:
    good = zipped(GOOD)
    assert "encrypted" in refused(with_field(good, 8, "<H", 1), tmp_path).sentence
    for method in (1, 9, 12, 14, 99):
        assert "packed in a way" in refused(with_field(good, 10, "<H", method), tmp_path).sentence
    assert refused(with_field(good, 42, "<I", 2**31), tmp_path).status == 422  # an entry far outside the file


def test_a_table_of_contents_that_is_too_long(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for index in range(1000):
            archive.writestr(f"robin/{index}.png", b"")
    assert refused(stream.getvalue(), tmp_path, Limits(zip_files=50)).status == 413


def test_a_budget_that_headers_do_not_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcab.serve.archive._check_entry", lambda *_: None)
    monkeypatch.setattr("gcab.serve.archive._photos", _photos_without_sum)
    error = refused(zipped({"robin/a.png": bytes(4 * 2**20)}), tmp_path)
    assert (error.status, "more than 3 MiB" in error.sentence) == (413, True)


def _photos_without_sum(archive: zipfile.ZipFile, _: Limits) -> list[object]:
    from gcab.serve.archive import Photo

    entries = archive.infolist()
    return [Photo(entries[0], ("robin",), "a.png"), Photo(entries[0], ("wren",), "a.png")]


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"no zip at all" * 100, b"PK\x05\x06" + bytes(18), b"\x1f\x8b\x08" * 9]
)
def test_no_zips(tmp_path: Path, content: bytes) -> None:
    assert refused(content, tmp_path).status == 422


def test_a_zip_cut_short_anywhere(tmp_path: Path) -> None:
    whole = class_folders("robin", "wren", count=2)
    for index, length in enumerate(range(0, len(whole) - 1, len(whole) // 25)):
        assert refused(whole[:length], tmp_path / str(index)).status == 422


def test_a_zip_with_flipped_bits(tmp_path: Path) -> None:
    """Many flips matter to nobody (a date, a padding): then the photos are as they were."""
    whole = zipped(GOOD)
    for index, place in enumerate(range(0, len(whole), max(1, len(whole) // 60))):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << index % 8
        target = tmp_path / str(index)
        outcome = 0
        try:
            outcome = len(unpack(io.BytesIO(bytes(flipped)), target, LIMITS))
        except RequestError as problem:
            outcome = problem.status
        assert outcome in (2, 413, 422)
        assert len(list(target.rglob("*.*"))) == 2 or outcome != 2


def test_photos_in_a_zip_are_looked_at(tmp_path: Path) -> None:
    assert "not an image" in refused(zipped({**GOOD, "wren/c.png": b"GIF?"}), tmp_path).sentence
    limits = Limits(pixels=100)
    assert "0.0001 million pixels" in refused(zipped(GOOD), tmp_path / "again", limits).sentence


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EINVAL, 422)])
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("gcab.serve.archive._write", fail)
    assert refused(zipped(GOOD), tmp_path).status == status


def image_bytes(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_photos_that_would_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCAB_FORMATS", "tiff,ppm")
    black = Image.new("L", (64, 64))
    other = Image.new("L", (64, 64), 9)
    cases = {
        "million pixels": image_bytes(Image.new("L", (3000, 3000)), "PNG"),
        "several pages": image_bytes(black, "TIFF", save_all=True, append_images=[other] * 3),
        "animated": image_bytes(black, "GIF", save_all=True, append_images=[other] * 3),
        "scans": image_bytes(black, "JPEG", progressive=True) + b"\xff\xda" * 101,
        "empty": b"",
    }
    for part, content in cases.items():
        with pytest.raises(RequestError) as problem:
            check_photo(io.BytesIO(content), "the photo", Limits(pixels=10**6))
        assert part in problem.value.sentence
    decoders = Decoders(1, Limits())
    for kind in ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM"):
        assert decode_photo(decoders, io.BytesIO(image_bytes(black, kind)), "p", 8).shape == (3, 8, 8)
    with pytest.raises(RequestError, match="floating-point"):
        decode_photo(decoders, io.BytesIO(image_bytes(Image.new("F", (8, 8)), "TIFF")), "p", 8)
    decoders.close()


def test_gigantic_claims() -> None:
    header = bytearray(photo(0))
    header[16:24] = struct.pack(">II", 2**31 - 1, 2**31 - 1)
    with pytest.raises(RequestError) as problem:
        check_photo(io.BytesIO(bytes(header)), "p", Limits())
    assert problem.value.status in (413, 422)
    bomb = image_bytes(Image.new("1", (14_000, 14_000)), "PNG")  # above the size at which Pillow itself refuses
    with pytest.raises(RequestError, match="million pixels"):
        check_photo(io.BytesIO(bomb), "p", Limits())


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("cannot read /home/me/birds.gcab/model.json: check it", "cannot read model.json: check it"),
        ("'/var/tmp/gcab-x/photos' has no class folders", "'photos' has no class folders"),
        (r"C:\Users\me\x.png is damaged", "x.png is damaged"),
        ("~/birds is locked (pid 3)", "birds is locked (pid 3)"),
        ("train and/or test, 1/2 of robin/a.png", "train and/or test, 1/2 of robin/a.png"),
        ("cannot identify <_io.BytesIO object at 0x7f00aa>", "cannot identify the file"),
        ("/my folder/birds.gcab/lock is held", "birds.gcab/lock is held"),
    ],
)
def test_sentences_without_paths(sentence: str, told: str) -> None:
    assert without_paths(sentence, Path("/my folder/birds.gcab")) == told


def test_plain_names() -> None:
    assert plain_name(None) == plain_name("a/") == plain_name("\x00") == "the image"
    assert plain_name("x" * 500) == "x" * 120
