"""Every route: what it answers, in which shape, and how it says no."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.openapi.models import OpenAPI
from helpers.serving import SIZE, TASKS, Client, class_folders, form, model_folder, photo, serving
from pydantic import BaseModel

from gcab.classifier.facts import facts_of
from gcab.classifier.learner import ContinualClassifier
from gcab.data.decode import read_image
from gcab.errors import GcabError
from gcab.report.model_page import write_model_page
from gcab.serve import schema
from gcab.serve.app import PAGE
from gcab.serve.attention import attention_maps
from gcab.serve.limits import Limits
from gcab.serve.security import SECURITY_HEADERS, Door

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("serve") / "birds.gcab")


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with serving(folder) as client:
        yield client


def assert_error(response: Any, status: int, part: str = "") -> None:
    assert response.status_code == status, response.text
    schema.Failure.model_validate(response.json())
    assert part in response.json()["error"]
    assert "Traceback" not in response.text
    for name, value in SECURITY_HEADERS.items():
        assert response.headers[name] == value


@pytest.mark.repeats
def test_the_model_describes_itself(client: Client) -> None:
    model = client.get("/model").json()
    schema.Model.model_validate(model)
    assert model["name"] == "birds"
    assert (model["method"], model["generation"], model["image_size"]) == ("gcab", 2, SIZE)
    assert [entry["task"] for entry in model["classes"]] == [1, 1, 2, 2, 2]
    assert {entry["name"] for entry in model["classes"]} == {name for task in TASKS for name in task}
    assert [sorted(task["classes"]) for task in model["tasks"]] == [sorted(names) for names in TASKS]
    assert [task["held_out"] for task in model["tasks"]] == [16, 24]
    assert set(model["capacity"]) == {"input", "hidden"}
    assert (model["can_undo"], model["undoes"], model["can_teach"]) == (True, "task", False)
    assert model["limits"]["batch"] == Limits().images
    assert not model["stores_images"]
    now = [task["now"] for task in model["tasks"]]
    assert model["expected_accuracy"] == pytest.approx((2 * now[0] + 3 * now[1]) / 5)
    assert model["verdict"] == "the eye alone decides: nothing shows that the network would name more photos right"
    assert any("Lesson 2 ended with" in warning for warning in model["warnings"])  # noise cannot be learned


@pytest.mark.repeats
def test_the_report_is_the_one_of_the_command(tmp_path: Path) -> None:
    """Made once for a model, and again for the next."""
    folder = model_folder(tmp_path / "birds.gcab")
    page = write_model_page(facts_of(folder), None, tmp_path / "report.html").read_text()
    with serving(folder) as client:
        first, again = client.get("/report").json(), client.get("/report").json()
        schema.Report.model_validate(first)
        assert first == again  # a figure made anew would have other names inside
        assert first["digest"] == client.service.model.digest
        assert without_figures(first["content"].strip()) in without_figures(page)
        assert "&lt;b&gt;swift&lt;/b&gt;" in first["content"]
        assert client.get("/page/report.css").text in page
        client.service.folder.undo()
        assert client.get("/report").json()["digest"] != first["digest"]


def without_figures(page: str) -> str:
    """An SVG figure has the time and random names in it."""
    return re.sub(r'src="[^"]*"', "", page)


@pytest.mark.repeats
def test_a_model_that_stores_images_says_so(tmp_path: Path) -> None:
    with serving(model_folder(tmp_path / "birds.gcab", "er")) as client:
        model = client.get("/model").json()
    schema.Model.model_validate(model)
    assert model["stores_images"]


def test_predictions_are_the_models_own(client: Client, folder: Path, tmp_path: Path) -> None:
    paths = []
    for seed in range(3):
        paths.append(tmp_path / f"{seed}.png")
        paths[-1].write_bytes(photo(seed, 40, 30))
    model = ContinualClassifier.load(folder, device="cpu")
    expected, unknown = model.predict_proba(paths), model.unknown(paths)
    answer = client.predict(*(path.read_bytes() for path in paths), params={"top": 5}).json()
    schema.Predictions.model_validate(answer)
    assert answer["model"] == {"generation": 2, "digest": model.digest}
    assert len(set(unknown)) > 1
    for row, one in enumerate(answer["predictions"]):
        assert one["file"] == f"{row}.png"
        order = np.argsort(-expected[row])
        assert [guess["class"] for guess in one["top"]] == [model.classes[index] for index in order]
        assert [guess["probability"] for guess in one["top"]] == pytest.approx(expected[row][order], abs=2e-6)
        assert [share["probability"] for share in one["tasks"]] == pytest.approx(
            [expected[row][:2].sum(), expected[row][2:].sum()], abs=2e-6
        )
        assert one["answered_by"] == one["top"][0]["task"] == (1 if order[0] < 2 else 2)
        assert one["unknown"] == pytest.approx(unknown[row], abs=1e-6)
        assert one["flagged"] == (unknown[row] >= 0.95)
        assert "attention" not in one


def test_top_and_attention(client: Client, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "0.png"
    path.write_bytes(photo(5))
    one = client.predict(photo(5), params={"top": 1, "attention": "true"}).json()["predictions"][0]
    assert len(one["top"]) == 1
    method = ContinualClassifier.load(folder, device="cpu").method
    maps = attention_maps(method, method.setting.normalise(read_image(path, SIZE)[None]))
    assert maps is not None
    assert one["attention"]["side"] == 8
    assert np.allclose(one["attention"]["maps"], maps[0].detach(), atol=1e-4)


def numbers(answer: object) -> list[float]:
    """Every floating-point number of an answer, in order."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list):
        return [number for part in answer for number in numbers(part)]
    return [answer] if isinstance(answer, float) else []


def without_numbers(answer: object) -> object:
    """An answer with its floating-point numbers blanked: names, order and flags remain."""
    if isinstance(answer, dict):
        return {key: without_numbers(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [without_numbers(part) for part in answer]
    return None if isinstance(answer, float) else answer


def test_a_request_may_ask_for_maps_beside_one_that_does_not(client: Client) -> None:
    with_maps = client.predict(photo(1), photo(2), params={"attention": "true"}).json()["predictions"]
    without = client.predict(photo(1), photo(2)).json()["predictions"]
    for one, other in zip(with_maps, without, strict=True):
        maps = one.pop("attention")["maps"]
        assert [max(values) for values in maps] == [1, 1]
        assert without_numbers(one) == without_numbers(other)
        assert numbers(one) == pytest.approx(numbers(other), abs=2e-6)


def test_some_unreadable_images(client: Client) -> None:
    answer = client.predict(photo(1), b"no image", b"", photo(2))
    assert answer.status_code == 200
    schema.Predictions.model_validate(answer.json())
    errors = [one.get("error") for one in answer.json()["predictions"]]
    assert [error is None for error in errors] == [True, False, False, True]
    assert errors[1].startswith("1.png is not an image")


def test_one_unreadable_image(client: Client) -> None:
    assert_error(client.predict(b"no image"), 422, "0.png is not an image")


@pytest.mark.parametrize(
    ("given", "shown"), [("../../etc/passwd", "passwd"), ("C:\\x\\y.png", "y.png"), ("\x1b[1m", "[1m")]
)
def test_file_names_are_shown_without_folders(client: Client, given: str, shown: str) -> None:
    response = client.post("/predict", files=[("images", (given, b"?"))])
    assert_error(response, 422, f"{shown} is not")


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("top=0", "top: "),
        ("top=x", "top: "),
        ("top=99999", "top: "),
        ("attention=maybe", "attention: "),
        ("top=", "top: "),
    ],
)
def test_bad_parameters(client: Client, query: str, part: str) -> None:
    assert_error(client.predict(photo(), params=query), 422, part)


def test_bad_bodies(client: Client) -> None:
    assert_error(client.post("/predict"), 415, "multipart/form-data")
    assert_error(client.post("/predict", json={"images": []}), 415)
    assert_error(client.post("/predict", data={"images": "text"}), 415)
    assert_error(client.post("/predict", files=form("pictures", photo())), 422, "'images'")
    assert_error(client.post("/predict", files=form("images", photo()), data={"more": "x"}), 422, "no other field")
    assert_error(client.post("/predict", files=form("images", *[photo()] * 65)), 413, "64 files")
    damaged = {"Content-Type": "multipart/form-data; boundary=x"}
    assert_error(client.post("/predict", content=b"--y\r\n", headers=damaged), 400, "form is damaged")
    assert_error(client.post("/predict", content=b"", headers={"Content-Type": "multipart/form-data"}), 400)


def test_what_is_not_there(client: Client) -> None:
    for path in ("/docs", "/redoc", "/page/app.py", "/page/..%2Fapp.py", "/page/", "/nothing"):
        assert_error(client.get(path), 404, "nothing at this address")
    assert_error(client.get("/predict"), 405, "does not take GET")
    assert_error(client.post("/model"), 405)


def test_health(client: Client) -> None:
    response = client.get("/healthz")
    assert response.json() == {"status": "ok"}
    assert response.headers["Cache-Control"] == "no-store"


def test_the_page(client: Client) -> None:
    for path in PAGE.iterdir():
        response = client.get(f"/page/{path.name}")
        assert response.content == path.read_bytes()
        assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
    index = client.get("/")
    assert index.headers["Content-Type"] == "text/html; charset=utf-8"
    assert index.content == (PAGE / "index.html").read_bytes()
    script = client.get("/page/app.js")
    assert script.headers["Content-Type"].startswith("text/javascript")
    assert script.headers["Cache-Control"] == "no-cache"


def test_open_api(client: Client) -> None:
    document = client.get("/openapi.json").json()
    OpenAPI.model_validate(document)
    described = {(path, verb) for path, verbs in document["paths"].items() for verb in verbs}
    assert described == {
        ("/healthz", "get"),
        ("/model", "get"),
        ("/metrics", "get"),
        ("/report", "get"),
        ("/predict", "post"),
        ("/teach", "post"),
        ("/teach", "get"),
        ("/undo", "post"),
    }
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert body["properties"]["images"]["items"] == {"type": "string", "format": "binary"}
    for path, verb in described:
        for status, response in document["paths"][path][verb]["responses"].items():
            if int(status) >= 400:
                shape = response["content"]["application/json"]["schema"]
                assert (shape["required"], shape["additionalProperties"]) == (["error"], False)
    assert "ValidationError" not in json.dumps(document)
    assert "securitySchemes" not in document["components"]


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _references(part)


@pytest.mark.repeats
def test_metrics(folder: Path) -> None:
    with serving(folder) as client:
        client.predict(photo(1), photo(2))
        client.predict(b"?")
        client.get("/some/path/of/a/stranger")
        text = client.get("/metrics").text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert samples['gcab_requests_total{route="/predict",method="POST",status="200"}'] == "1"
    assert samples['gcab_requests_total{route="/predict",method="POST",status="422"}'] == "1"
    assert samples['gcab_requests_total{route="other",method="GET",status="404"}'] == "1"
    assert samples['gcab_images_total{outcome="predicted"}'] == "2"
    assert samples['gcab_images_total{outcome="refused"}'] == "1"
    assert samples['gcab_request_seconds_bucket{route="/predict",le="+Inf"}'] == "2"
    assert float(samples["gcab_batch_images_sum"]) == 2
    assert samples["gcab_queue_images"] == "0"
    assert samples["gcab_requests_under_way"] == "1"
    assert samples["gcab_model_generation"] == "2"
    assert 10**6 < int(samples["process_resident_memory_bytes"]) <= int(samples["gcab_peak_memory_bytes"])
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert len(names) == 10


@pytest.mark.repeats
@pytest.mark.parametrize("path", ["/model", "/metrics", "/openapi.json", "/teach", "/nothing"])
def test_the_token(folder: Path, path: str) -> None:
    with serving(folder, door=Door(token=TOKEN)) as client:
        right = {"Authorization": f"Bearer {TOKEN}"}
        for wrong in ({}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "Bearer"}):
            refused = client.get(path, headers=wrong)
            assert_error(refused, 401, "Authorization: Bearer")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        for almost in (TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 20):
            assert client.get(path, headers={"Authorization": f"Bearer {almost}".encode()}).status_code == 401
        assert client.get(path, headers=right).status_code in (200, 404)
        for open_path in ("/", "/healthz", "/page/app.js"):
            assert client.get(open_path).status_code == 200
        assert client.predict(photo()).status_code == 401
        assert client.predict(photo(), headers=right).status_code == 200


@pytest.mark.repeats
def test_the_token_is_described(folder: Path) -> None:
    with serving(folder, door=Door(token=TOKEN)) as client:
        document = client.get("/openapi.json", headers={"Authorization": f"bearer {TOKEN}"}).json()
        assert TOKEN not in json.dumps(document)
    OpenAPI.model_validate(document)
    assert document["security"] == [{"token": []}]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1@evil", "", "[", "a:b"]
)
def test_another_host_is_refused(client: Client, host: str) -> None:
    assert_error(client.get("/model", headers={"Host": host}), 421, "localhost only")


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "[::1]", "LocalHost"])
def test_this_host_is_welcome(client: Client, host: str) -> None:
    assert client.get("/model", headers={"Host": host}).status_code == 200


@pytest.mark.repeats
def test_a_proxys_name_and_other_addresses(folder: Path) -> None:
    with serving(folder, door=Door(further_hosts=("birds.example",))) as client:
        assert client.get("/model", headers={"Host": "birds.example"}).status_code == 200
        assert client.get("/model", headers={"Host": "cats.example"}).status_code == 421
    with serving(folder, door=Door("0.0.0.0", TOKEN)) as client:
        assert client.get("/healthz", headers={"Host": "birds.example"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9"},
        {"Origin": "file://localhost"},
        {"Origin": "http://[localhost"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
    ],
)
def test_other_pages_cannot_post(client: Client, headers: dict[str, str]) -> None:
    assert_error(client.predict(photo(), headers=headers), 403, "another web page")


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "http://localhost"}, {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}]
)
def test_the_own_page_can_post(client: Client, headers: dict[str, str]) -> None:
    assert client.predict(photo(), headers=headers).status_code == 200


def test_teaching_is_off_unless_allowed(client: Client) -> None:
    assert_error(client.post("/teach", files=form("archive", class_folders("a", "b"))), 403, "--allow-teach")
    assert_error(client.post("/undo"), 403, "--allow-teach")
    report = client.get("/teach").json()
    schema.Teaching.model_validate(report)
    assert report["state"] == "idle"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "birds.example", ""])
def test_other_addresses_need_a_token(host: str) -> None:
    with pytest.raises(GcabError, match="give a token"):
        Door(host)
    Door(host, TOKEN)


@pytest.mark.parametrize("token", ["", "short", "with blanks in the middle", "ümlaute-sind-hier-nicht-gut"])
def test_weak_tokens(token: str) -> None:
    with pytest.raises(GcabError, match="at least 16"):
        Door("127.0.0.1", token)
    assert "secret" not in repr(Door("127.0.0.1", "secret-secret-secret"))


def test_a_mistake_in_the_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(folder) as client:
        monkeypatch.setattr(client.service, "describe", lambda: 1 / 0)
        assert_error(client.get("/model"), 500, "the server made a mistake")
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.setattr(client.service.model, "scores", lambda *_: 1 / 0)
        assert_error(client.predict(photo()), 500)
        monkeypatch.undo()
        assert client.predict(photo()).status_code == 200


@pytest.mark.repeats
def test_a_method_with_one_pass(tmp_path: Path) -> None:
    with serving(model_folder(tmp_path / "plain.gcab", "finetune")) as client:
        one = client.predict(photo(), params={"attention": True}).json()["predictions"][0]
        assert len(one["attention"]["maps"]) == 1
        assert client.get("/model").json()["capacity"] == {}


@pytest.mark.repeats
def test_every_field_is_described() -> None:
    shapes = [shape for shape in vars(schema).values() if isinstance(shape, type) and issubclass(shape, BaseModel)]
    assert all(shape.model_config.get("extra") == "forbid" for shape in shapes if shape is not BaseModel)
