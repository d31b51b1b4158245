"""Many requests, few batches; bounds on everything that can pile up."""

import asyncio
import io
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from helpers.serving import Client, form, model_folder, photo, serving
from torch import Tensor

from gcab.errors import GcabError
from gcab.methods.gcab import Gcab
from gcab.serve.batching import Batcher
from gcab.serve.limits import Limits, RequestError, in_mebi
from gcab.serve.metrics import Metrics
from gcab.serve.middleware import Middleware
from gcab.serve.security import Door
from gcab.serve.served import Inference, Scores, ServedModel
from gcab.serve.service import Service

TINY = Limits(wait_seconds=0.05, batch=4)


class SlowModel:
    """Answers with the first pixel of each image, and notes the batches."""

    image_size = 8

    def __init__(self, seconds: float = 0.02, too_many: int = 3) -> None:
        self.seconds, self.too_many = seconds, too_many
        self.batches: list[int] = []
        self.threads: set[str] = set()

    def scores(self, pixels: Tensor, attention: list[bool]) -> list[Scores]:
        self.threads.add(threading.current_thread().name)
        self.batches.append(len(pixels))
        time.sleep(self.seconds)
        if len(pixels) == self.too_many:
            raise RuntimeError("three is too many")
        return [
            Scores(image[0, 0, :1].float(), float(wanted), None)
            for image, wanted in zip(pixels, attention, strict=True)
        ]


def as_model(model: SlowModel) -> ServedModel:
    return cast(ServedModel, model)


def grey(level: int) -> io.BytesIO:
    from PIL import Image

    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (level, level, level)).save(stream, "PNG")
    stream.seek(0)
    return stream


async def ask(batcher: Batcher, model: SlowModel, level: int, attention: bool = False) -> Scores:
    with batcher.admit(1):
        return await batcher.scores(as_model(model), grey(level), "grey.png", attention)


async def working(limits: Limits) -> AsyncIterator[Batcher]:
    batcher = Batcher(limits, Metrics())
    batcher.start()
    yield batcher
    await batcher.stop()


@pytest.mark.repeats
def test_concurrent_requests_share_batches() -> None:
    model = SlowModel()

    async def check() -> None:
        async for batcher in working(TINY):
            found = await asyncio.gather(*(ask(batcher, model, level, level % 2 == 0) for level in range(16)))
            assert [int(scores.probabilities[0]) for scores in found] == list(range(16))
            assert [scores.unknown for scores in found] == [1.0, 0.0] * 8
            assert batcher.admitted == 0
            assert sum(batcher.metrics.batches.counts) == len(model.batches)

    asyncio.run(check())
    assert sum(model.batches) == 16
    assert len(model.batches) <= 6
    assert max(model.batches) == 4
    assert len(model.threads) == 1


def test_a_single_request_does_not_wait() -> None:
    async def check() -> float:
        async for batcher in working(replace(TINY, wait_seconds=1800)):
            began = time.perf_counter()
            await ask(batcher, SlowModel(0), 1)
            return time.perf_counter() - began
        return 0

    assert asyncio.run(check()) < 900


@pytest.mark.repeats
def test_requests_in_flight_keep_their_model() -> None:
    old, new = SlowModel(too_many=0), SlowModel(too_many=0)  # whatever batches they come in

    async def check() -> None:
        async for batcher in working(replace(TINY, batch=8)):
            await asyncio.gather(*(ask(batcher, model, 1) for model in (old, old, new, new, new, new)))

    asyncio.run(check())
    assert (sum(old.batches), sum(new.batches)) == (2, 4)


@pytest.mark.repeats
def test_a_batch_that_fails_fails_alone() -> None:
    model = SlowModel()

    async def check() -> None:
        async for batcher in working(TINY):
            failed = await asyncio.gather(*(ask(batcher, model, 1) for _ in range(3)), return_exceptions=True)
            assert {str(problem) for problem in failed} == {"three is too many"}
            assert int((await ask(batcher, model, 7)).probabilities[0]) == 7

    asyncio.run(check())


def test_who_gave_up_is_left_out() -> None:
    model = SlowModel()

    async def check() -> None:
        async for batcher in working(TINY):
            impatient = asyncio.create_task(ask(batcher, model, 1))
            while not model.batches:  # it is in the network: too late to leave out
                await asyncio.sleep(0.001)
            waiting = asyncio.create_task(ask(batcher, model, 2))
            while batcher.queue.empty():
                await asyncio.sleep(0.001)
            for task in (impatient, waiting):
                task.cancel()
            await asyncio.wait([impatient, waiting])
            assert batcher.admitted == 0
            assert int((await ask(batcher, model, 3)).probabilities[0]) == 3

    asyncio.run(check())
    assert model.batches == [1, 1]


def test_a_full_queue() -> None:
    batcher = Batcher(Limits(queue=70), Metrics())
    with batcher.admit(64), batcher.admit(6):
        with pytest.raises(RequestError, match="queue is full") as refused, batcher.admit(1):
            pass
        assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    assert batcher.admitted == 0
    with batcher.admit(70):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("batching") / "birds.gcab")


@pytest.fixture
def slow(folder: Path) -> Iterator[Client]:
    with serving(folder, Limits(queue=4, images=2, batch=2, wait_seconds=0)) as client:
        scores = client.service.model.scores

        def slowly(*arguments: Any) -> list[Scores]:
            time.sleep(0.1)
            return scores(*arguments)

        client.service.model.scores = slowly  # type: ignore[method-assign,assignment]
        yield client


def prediction_of(answer: Any) -> dict[str, Any]:
    [found] = answer.json()["predictions"]
    return dict(found)


@pytest.mark.repeats
def test_many_requests_over_http(folder: Path) -> None:
    with serving(folder) as client:
        answers = client.together(32, photo(3))
        assert {answer.status_code for answer in answers} == {200}
        said = [[(best["class"], best["probability"]) for best in prediction_of(answer)["top"]] for answer in answers]
        assert len({tuple(name for name, _ in best) for best in said}) == 1
        for place in zip(*said, strict=True):  # batches of other sizes round otherwise
            assert max(share for _, share in place) - min(share for _, share in place) <= 1e-5
        assert sum(client.service.metrics.batches.counts) < 32
        assert client.service.metrics.batches.total == 32


@pytest.mark.repeats
def test_too_many_at_once(slow: Client) -> None:
    answers = slow.together(12, photo(1), photo(2))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 2
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["Retry-After"] == "1"
    assert "queue is full" in refused.json()["error"]
    assert slow.predict(photo(1)).status_code == 200


def test_too_many_requests(folder: Path) -> None:
    with serving(folder, Limits(requests=3)) as client:
        statuses = [answer.status_code for answer in client.together(10, photo(1))]
        assert statuses.count(200) >= 3
        assert statuses.count(429) == 10 - statuses.count(200) > 0
        client.service.metrics.under_way = 100
        assert client.get("/healthz").status_code == 200
        assert client.get("/metrics").status_code == 200
        assert client.get("/model").status_code == 429


def test_large_bodies(folder: Path) -> None:
    with serving(folder, Limits(body_bytes=5000, buffered_bytes=6000, archive_bytes=7000)) as client:
        too_large = client.predict(b"x" * 5000)
        assert (too_large.status_code, too_large.json()["error"][:40]) == (
            413,
            "the request is larger than 5000 bytes: s",
        )
        assert client.get("/metrics").status_code == 200
        full = client.post("/teach", files=form("archive", b"x"))
        assert full.status_code == 403
        assert client.predict(photo(1)).status_code == 200


def chunked(*parts: bytes, seconds: float = 0) -> AsyncIterator[bytes]:
    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            await asyncio.sleep(seconds)
            yield part

    return stream()


HOST = [(b"host", b"localhost")]
MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}
HEAD = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'


@pytest.mark.repeats
def test_bodies_without_a_length_are_counted(folder: Path) -> None:
    with serving(folder, Limits(body_bytes=5000)) as client:
        small = chunked(HEAD, photo(1), b"\r\n--b--\r\n")
        assert client.post("/predict", content=small, headers=MULTIPART).status_code == 200
        endless = chunked(HEAD, *[b"x" * 1000] * 100)
        assert client.post("/predict", content=endless, headers=MULTIPART).status_code == 413
        lying = chunked(HEAD, *[b"x" * 1000] * 100)
        answer = client.post("/predict", content=lying, headers={**MULTIPART, "Content-Length": "10"})
        assert answer.status_code == 413


async def receive_from(parts: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    await asyncio.sleep(seconds)
    return parts.pop(0) if parts else {"type": "http.disconnect"}


def answer_to(
    middleware: Middleware, parts: list[dict[str, Any]], seconds: float, path: str = "/predict"
) -> tuple[int, bytes]:
    """What the middleware sends for a body that arrives part by part."""
    sent: list[Any] = []

    async def receive() -> Any:
        return await receive_from(parts, seconds)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", MULTIPART["Content-Type"].encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "http_version": "1.1",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    asyncio.run(middleware(scope, receive, send))
    return (sent[0]["status"], sent[1]["body"]) if sent else (0, b"")


def reader(limits: Limits) -> Middleware:
    """The middleware around an application that only reads."""

    async def app(_: Any, receive: Any, send: Any) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            from starlette.requests import ClientDisconnect

            raise ClientDisconnect
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return Middleware(app, Door(), limits, Metrics())


def part(size: int, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


def test_slow_bodies_end() -> None:
    middleware = reader(Limits(body_seconds=0.05))
    status, body = answer_to(middleware, [part(1) for _ in range(1000)], 0.02)
    assert (status, b"too long to arrive" in body) == (408, True)
    assert answer_to(middleware, [part(1), part(1, more=False)], 0) == (200, b"")
    assert middleware.buffered == 0


def test_the_bodies_of_all_requests_have_a_limit() -> None:
    middleware = reader(Limits(buffered_bytes=10))
    middleware.buffered = 8
    status, body = answer_to(middleware, [part(2), part(1)], 0)
    assert (status, b"too many large requests" in body) == (429, True)
    assert answer_to(middleware, [part(2, more=False)], 0)[0] == 200
    assert middleware.buffered == 8


def test_a_zip_may_be_larger_than_images() -> None:
    middleware = reader(Limits(body_bytes=2, archive_bytes=5))
    assert answer_to(middleware, [part(5, more=False)], 0, "/teach")[0] == 200
    assert answer_to(middleware, [part(6, more=False)], 0, "/teach")[0] == 413
    assert answer_to(middleware, [part(3, more=False)], 0)[0] == 413


def test_a_client_that_leaves_is_counted_and_not_answered() -> None:
    middleware = reader(Limits())
    assert answer_to(middleware, [part(1)], 0) == (0, b"")
    assert middleware.metrics.requests["other", "POST", 499] == 1
    assert middleware.metrics.under_way == middleware.buffered == 0


def test_a_client_that_does_not_read() -> None:
    middleware = reader(Limits(answer_seconds=0.05))

    async def stuck(_: Any) -> None:
        await asyncio.sleep(60)

    async def receive() -> Any:
        return part(1, more=False)

    scope = {"type": "http", "method": "POST", "http_version": "1.1", "path": "/", "query_string": b"", "headers": HOST}
    asyncio.run(middleware(scope, receive, stuck))
    assert middleware.metrics.under_way == 0


def test_an_answer_that_takes_too_long(folder: Path) -> None:
    with serving(folder, Limits(answer_seconds=0.05)) as client:
        client.service.model.scores = lambda *_: time.sleep(0.3)  # type: ignore[method-assign,assignment]
        answer = client.predict(photo(1))
        assert (answer.status_code, answer.json()["error"][:24]) == (503, "the answer took too long")


def test_limits_that_make_no_sense(folder: Path) -> None:
    with pytest.raises(GcabError, match="the limit images is 0"):
        Limits(images=0).check()
    with pytest.raises(GcabError, match="queue of 5 cannot hold one request of 64"):
        Service(folder, Inference("cpu"), Limits(queue=5))
    assert (in_mebi(5), in_mebi(3 * 2**20)) == ("5 bytes", "3 MiB")


def test_bfloat16_gives_nearly_the_same(folder: Path) -> None:
    pixels = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8)
    models = [ServedModel.load(folder, Inference("cpu")), ServedModel.load(folder, Inference("cpu", "bfloat16"))]
    for model in models:
        assert isinstance(model.method, Gcab)
        assert model.method.referee is not None
        model.method.referee.weights.fill_(0.1)  # the network is heard, too: the eye never computes in bfloat16
    full, half = (model.scores(pixels, [maps] * 3) for model, maps in zip(models, (False, True), strict=True))
    for one, other in zip(full, half, strict=True):
        assert torch.allclose(one.probabilities, other.probabilities, atol=0.02)
        assert not torch.equal(one.probabilities, other.probabilities)


def test_a_network_that_cannot_be_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(_: Any, dynamic: bool) -> Any:
        assert dynamic
        return lambda _: 1 / 0

    monkeypatch.setattr(torch, "compile", compiled)
    with pytest.raises(GcabError, match="without --compile"):
        ServedModel.load(folder, Inference("cpu", compiled=True))
