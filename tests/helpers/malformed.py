"""Several hundred requests that no server should trust, each with a name."""

import io
import random
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator

from PIL import Image

from helpers.photos import zipped
from helpers.serving import class_folders, photo

Case = tuple[str, bytes]  # what is wrong with it, and all its bytes
KINDS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
HOST = b"Host: localhost\r\n"
LONG_TEXT = "a PNG with a text of a gigabyte"


def post(
    path: str, body: bytes, content_type: str = "multipart/form-data; boundary=b", length: int | None = None
) -> bytes:
    count = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {count}\r\n\r\n"
    return head.encode() + body


def form(field: str, content: bytes, filename: bytes = b"a.png") -> bytes:
    disposition = b'Content-Disposition: form-data; name="%s"; filename="%s"' % (field.encode(), filename)
    return b"--b\r\n" + disposition + b"\r\n\r\n" + content + b"\r\n--b--\r\n"


def image_request(content: bytes) -> bytes:
    return post("/predict", form("images", content))


def zip_request(content: bytes) -> bytes:
    return post("/teach", form("archive", content, b"a.zip"))


def cut_images() -> Iterator[Case]:
    for kind in KINDS:
        whole = photo(1, 24, 24, kind)
        for share in (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
            yield f"{kind} cut to {share:.0%}", image_request(whole[: int(len(whole) * share)])


def flipped_images() -> Iterator[Case]:
    """Damage in the first bytes, where every format says what it is."""
    chance = random.Random(1)
    for kind in KINDS:
        whole = photo(2, 24, 24, kind)
        for index in range(6):
            flipped = bytearray(whole)
            for place in (index % 2, *chance.sample(range(2, len(whole)), 40)):
                flipped[place] ^= 1 << chance.randrange(8)
            yield f"{kind} with flipped bits {index}", image_request(bytes(flipped))


def no_images() -> Iterator[Case]:
    texts = {
        "nothing": b"",
        "one byte": b"\x89",
        "zeros": bytes(10_000),
        "text": b"hello" * 100,
        "html": b"<html><script>alert(1)</script></html>",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'></svg>",
        "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) run showpage\n",
        "pdf": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n",
        "elf": b"\x7fELF" + bytes(200),
        "psd": b"8BPS\x00\x01" + bytes(100),
        "icon": b"\x00\x00\x01\x00\x01\x00" + bytes(100),
        "fits": b"SIMPLE  =                    T".ljust(2880),
        "zip": class_folders("a", "b"),
        "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94.",
        "numpy": b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
    }
    for name, content in texts.items():
        yield f"no image but {name}", image_request(content)
    chance = random.Random(2)
    for index in range(8):
        yield f"random bytes {index}", image_request(chance.randbytes(500 * index + 1))


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, *chunks: bytes, data: bytes = b"") -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + png_chunk(b"IDAT", data) + png_chunk(b"IEND", b"")


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def bombs() -> Iterator[Case]:
    zeros = zlib.compress(bytes(2**20), 9)
    black, grey = Image.new("L", (32, 32)), Image.new("L", (32, 32), 99)
    large_jpeg = bytearray(photo(1, kind="JPEG"))
    frame = large_jpeg.find(b"\xff\xc0")
    large_jpeg[frame + 5 : frame + 9] = struct.pack(">HH", 65_500, 65_500)
    large_gif, large_bmp, large_tiff = (bytearray(photo(1, kind=kind)) for kind in ("GIF", "BMP", "TIFF"))
    large_gif[6:10] = struct.pack("<HH", 65_535, 65_535)
    large_bmp[18:26] = struct.pack("<ii", 200_000, 200_000)
    width = large_tiff.find(struct.pack("<HHI", 256, 4, 1)) + 8
    large_tiff[width : width + 4] = struct.pack("<I", 2**30)
    contents = {
        "a PNG of 1.6 billion pixels": saved(Image.new("1", (12_000, 12_000)), "PNG"),
        "a PNG that claims 2³¹ pixels a side": png(2**31 - 1, 2**31 - 1, data=zeros),
        "a PNG without width": png(0, 5, data=zeros),
        "a PNG that lacks its pixels": png(1000, 1000, data=zlib.compress(b"x")),
        LONG_TEXT: png(4, 4, png_chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(10**8), 9)), data=zeros),
        "a PNG with a wrong sum": png(4, 4, data=zeros)[:29] + bytes(4) + png(4, 4, data=zeros)[33:],
        "a JPEG of 65500² pixels": bytes(large_jpeg),
        "a JPEG of a thousand scans": saved(black, "JPEG", progressive=True) + b"\xff\xda\x00\x08" * 1000,
        "a GIF of 65535² pixels": bytes(large_gif),
        "a GIF of 500 frames": saved(black, "GIF", save_all=True, append_images=[grey, black] * 250),
        "a BMP of 200000² pixels": bytes(large_bmp),
        "a TIFF of 2³⁰ columns": bytes(large_tiff),
        "a TIFF of 100 pages": saved(black, "TIFF", save_all=True, append_images=[grey] * 100),
        "a TIFF that points at itself": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
        "a PPM of 10¹⁰ pixels": b"P6 99999 99999 255\n" + bytes(100),
        "a PPM of text": b"P3 9 9 255\n" + b"-1 " * 300,
        "floats": saved(Image.new("F", (8, 8)), "TIFF"),
    }
    for name, content in contents.items():
        yield name, image_request(content)


def zips() -> Iterator[Case]:
    """With a photo outside any class: even where the damage does no harm, no lesson begins."""
    whole = zipped({"robin/0.png": photo(0), "1.png": photo(1)})
    for index in range(25):
        yield f"zip cut at {index}", zip_request(whole[: len(whole) * index // 25])
    chance = random.Random(3)
    for index in range(20):
        flipped = bytearray(whole)
        for place in chance.sample(range(len(whole)), 3 + index):
            flipped[place] ^= 1 << chance.randrange(8)
        yield f"zip with flipped bits {index}", zip_request(bytes(flipped))
    for name in (
        "../x.png",
        "/etc/x.png",
        "a/../../x.png",
        "C:/x.png",
        "a\\x.png",
        "..\\x.png",
        "a/\n.png",
        "a//x.png",
    ):
        yield f"zip with {name!r}", zip_request(zipped({name: photo(0), "b/c.png": photo(0)}))
    for kind in (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFBLK):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            info = zipfile.ZipInfo("robin/link.png")
            info.external_attr = kind << 16
            archive.writestr(info, "/etc/passwd")
        yield f"zip with entry of kind {kind:o}", zip_request(stream.getvalue())
    contents = {
        "bomb": zipped({"a/x.png": bytes(3 * 2**20), "b/x.png": photo(0)}),
        "bomb of many": zipped({f"a/{index}.png": bytes(2**20) for index in range(9)}),
        "too many files": zipped({f"a/{index}.png": b"x" for index in range(101)}),
        "a huge table": zipped({f"a/{index}.png": b"" for index in range(3000)}),
        "no images": zipped({"a/x.txt": b"x", "b/y.sh": b"x"}),
        "damaged images": zipped({"a/x.png": b"x", "b/y.png": b"x"}),
        "a zip in a zip": zipped({"a/x.zip": whole, "b/y.zip": whole}),
        "large images": zipped({"a/x.png": saved(Image.new("1", (2000, 2000)), "PNG"), "b/y.png": photo(0)}),
        "nothing": zipped({}),
        "no zip": b"Rar!\x1a\x07\x00" + bytes(100),
        "a lonely end": b"PK\x05\x06" + b"\xff" * 18,
    }
    for name, content in contents.items():
        yield f"zip: {name}", zip_request(content)


def forms() -> Iterator[Case]:
    good = form("images", photo(0))
    disposition = b'Content-Disposition: form-data; name="images"; filename="a.png"\r\n'
    bodies = {
        "nothing": b"",
        "no end": good[:-10],
        "another boundary": good.replace(b"--b", b"--c"),
        "no boundary at all": photo(0),
        "only the end": b"--b--\r\n",
        "lines without returns": good.replace(b"\r\n", b"\n"),
        "no disposition": b"--b\r\n\r\n" + photo(0) + b"\r\n--b--\r\n",
        "no name": good.replace(b'name="images"; ', b""),
        "another name": good.replace(b'"images"', b'"image"'),
        "a field instead of a file": good.replace(b'; filename="a.png"', b""),
        "a large field": b'--b\r\nContent-Disposition: form-data; name="images"\r\n\r\n'
        + b"x" * 9999
        + b"\r\n--b--\r\n",
        "a thousand files": b"".join(b"--b\r\n" + disposition + b"\r\nx\r\n" for _ in range(1000)) + b"--b--\r\n",
        "a thousand fields": b"".join(
            b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n' for _ in range(1000)
        ),
        "a thousand headers": b"--b\r\n" + disposition + b"X: y\r\n" * 1000 + b"\r\nx\r\n--b--\r\n",
        "a long header": b"--b\r\n" + disposition + b"X: " + b"y" * 100_000 + b"\r\n\r\nx\r\n--b--\r\n",
        "a bad header": b"--b\r\n" + disposition + b"no colon\r\n\r\nx\r\n--b--\r\n",
        "a form inside": b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n"
        + disposition
        + b"\r\n--c\r\n\r\n--c--\r\n--b--\r\n",
        "too much": form("images", bytes(2 * 2**20)),
    }
    for name, body in bodies.items():
        yield f"form: {name}", post("/predict", body)
    for kind in (
        "application/json",
        "text/plain",
        "",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=b",
        "multipart/form-data; boundary=" + "x" * 500,
        "multipart/form-data; charset=x",
    ):
        yield f"form as {kind[:40]!r}", post("/predict", good, kind)
    for filename in (b"../../x", b"\xff\xfe", b"x" * 3000, b"<img src=x>", "\u202ex".encode(), b"%00", b"CON", b"a\\b"):
        yield f"file named {filename[:20]!r}", post("/predict", form("images", b"x", filename))
    for query in (
        "top=0",
        "top=-1",
        "top=1e9",
        "top=nan",
        "top=" + "9" * 500,
        "attention=2",
        "top[]=1",
        "top=%ff",
        "top=%00",
    ):
        if query != "top[]=1":
            yield f"query {query[:20]}", post(f"/predict?{query}", good)


def lines() -> Iterator[Case]:
    """Requests that are not quite HTTP, or ask for what is not there."""
    get = b"GET /model HTTP/1.1\r\n"
    requests = {
        "nonsense": b"\x00\x01\x02\r\n\r\n",
        "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
        "mail": b"EHLO example\r\n\r\n",
        "an old version": b"GET /model\r\n\r\n",
        "no version": b"GET /model HTTP\r\n" + HOST + b"\r\n",
        "version nine": b"GET /model HTTP/9.9\r\n" + HOST + b"\r\n",
        "no host": get + b"\r\n",
        "two hosts": get + HOST + HOST + b"\r\n",
        "another host": get + b"Host: evil.example\r\n\r\n",
        "a huge header": get + HOST + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        "a thousand headers": get
        + HOST
        + b"".join(b"X-%d: yyyyyyyyyyyyyyyy\r\n" % index for index in range(1000))
        + b"\r\n",
        "a long path": b"GET /" + b"x" * 60_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        "a folded header": get + HOST + b"X: a\r\n\x01 b\r\n\r\n",
        "a header with zero": get + HOST + b"X: a\x00b\r\n\r\n",
        "a header without colon": get + HOST + b"what\r\n\r\n",
        "a blank in a name": get + HOST + b"X : y\r\n\r\n",
        "a negative length": b"POST /predict HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
        "a length in words": b"POST /predict HTTP/1.1\r\n" + HOST + b"Content-Length: ten\r\n\r\n",
        "two lengths": b"POST /predict HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "a strange encoding": b"POST /predict HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n",
        "a strange method": b"BREW /predict HTTP/1.1\r\n" + HOST + b"\r\n",
        "delete": b"DELETE /model HTTP/1.1\r\n" + HOST + b"\r\n",
        "put": b"PUT /predict HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\n\r\n",
        "options": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
        "connect": b"CONNECT example.com:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        "trace": b"TRACE / HTTP/1.1\r\n" + HOST + b"\r\n",
        "a websocket": b"GET /ws HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "another page": b"POST /undo HTTP/1.1\r\n" + HOST + b"Origin: http://evil.example\r\nContent-Length: 0\r\n\r\n",
        "no page": b"POST /undo HTTP/1.1\r\n" + HOST + b"Origin: null\r\nContent-Length: 0\r\n\r\n",
    }
    for name, content in requests.items():
        yield f"HTTP: {name}", content
    for path in (
        "/..",
        "/../../etc/passwd",
        "//etc/passwd",
        "/page/../app.py",
        "/page/%2e%2e%2fapp.py",
        "/page/..%5capp.py",
        "/%00",
        "/%ff",
        "/page/app.js%00.png",
        "/model/",
        "/docs",
        "/.git/config",
        "/page",
        "/predict",
    ):
        yield f"path {path}", f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    chunked = (
        b"POST /predict HTTP/1.1\r\n"
        + HOST
        + b"Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    parts = {
        "sizes that are none": b"zz\r\nxx\r\n0\r\n\r\n",
        "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
        "a size of 30 digits": b"f" * 30 + b"\r\n",
        "a chunk that goes on": b"2\r\nhello\r\n0\r\n\r\n",
        "an endless extension": b"5;" + b"x" * 60_000 + b"\r\nhello\r\n0\r\n\r\n",
        "a body that is no form": b"5\r\nhello\r\n0\r\n\r\n",
        "no body": b"0\r\n\r\n",
        "too much": (b"10000\r\n" + bytes(2**16) + b"\r\n") * 20 + b"0\r\n\r\n",
        "trailers": b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 9000 + b"\r\n",
        "half a form": b"5\r\n--b\r\n\r\n0\r\n\r\n",
    }
    for name, body in parts.items():
        yield f"chunked: {name}", chunked + body


def cases() -> list[Case]:
    makers = (cut_images, flipped_images, no_images, bombs, zips, forms, lines)
    return [case for maker in makers for case in maker()]
