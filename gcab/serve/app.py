"""The routes: the page, the model, predictions, lessons; each a few lines around the service."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from gcab.report.page import style
from gcab.serve import schema
from gcab.serve.batching import Turn
from gcab.serve.limits import RequestError, needing_room
from gcab.serve.middleware import INTERNAL, Middleware
from gcab.serve.security import Door
from gcab.serve.served import ServedModel
from gcab.serve.service import Service
from gcab.serve.wording import plain_name
from gcab.version import VERSION

PAGE = Path(__file__).with_name("page")
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def failures(meanings: Mapping[int, str]) -> dict[int | str, dict[str, Any]]:
    """How OpenAPI describes errors; all have one shape."""
    content = {"application/json": {"schema": schema.Failure.model_json_schema()}}
    return {status: {"description": meaning, "content": content} for status, meaning in meanings.items()}


FAILURES = failures(
    {
        400: "not a proper request",
        401: "the token is missing or wrong",
        403: "not allowed here",
        408: "arrived too slowly",
        413: "too large",
        415: "not multipart/form-data",
        421: "not this server's name",
        422: "cannot be read or does not fit",
        429: "too busy at the moment",
        431: "headers too large",
        500: "a mistake of the server",
        503: "took too long, or the model is gone",
        507: "no room for the photos",
    }
)
CONFLICT = failures({409: "does not fit the model's state"})


def make_app(service: Service, door: Door) -> Middleware:
    """The whole application, behind its middleware."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        watch = asyncio.create_task(service.watch())
        yield
        watch.cancel()
        await asyncio.wait([watch])
        await service.teacher.stop()
        await service.batcher.stop()

    api = FastAPI(
        title="gcab",
        version=VERSION,
        description="Classify images, teach new classes, undo the last lesson.",
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=FAILURES,
    )
    add_error_shapes(api)
    add_page(api)
    add_model_routes(api, service)
    add_predict(api, service)
    add_teaching(api, service)
    if door.token is not None:
        describe_token(api)
    routes = frozenset(getattr(route, "path", "") for route in api.routes)
    return Middleware(api, door, service.limits, service.metrics, routes)


def add_error_shapes(api: FastAPI) -> None:
    """Every error leaves as {"error": sentence}, also those of the framework."""

    def answer(status: int, sentence: str, headers: Any = None) -> JSONResponse:
        return JSONResponse({"error": sentence}, status, headers)

    @api.exception_handler(RequestError)
    async def refused(_: Request, problem: RequestError) -> JSONResponse:
        return answer(problem.status, problem.sentence, problem.headers)

    @api.exception_handler(HTTPException)
    async def framework(request: Request, problem: HTTPException) -> JSONResponse:
        sentences = {
            404: "there is nothing at this address: see /openapi.json for what there is.",
            405: f"this address does not take {plain_name(request.method)}: see /openapi.json for what it takes.",
        }
        return answer(problem.status_code, sentences.get(problem.status_code, "bad request."), problem.headers)

    @api.exception_handler(RequestValidationError)
    async def invalid(_: Request, problem: RequestValidationError) -> JSONResponse:
        first = problem.errors()[0]
        return answer(422, f"{first['loc'][-1]}: {first['msg'][:1].lower()}{first['msg'][1:]}.")

    @api.exception_handler(Exception)
    async def mistake(_: Request, __: Exception) -> JSONResponse:
        return answer(500, INTERNAL)


def add_page(api: FastAPI) -> None:
    """The page's files, read once; no request can name any other file."""
    files = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.suffix in KINDS}
    files["report.css"] = style().encode()

    def page_file(name: str) -> Response:
        if name not in files:
            raise HTTPException(404)
        return Response(files[name], media_type=KINDS[Path(name).suffix], headers={"Cache-Control": "no-cache"})

    @api.get("/", include_in_schema=False)
    async def index() -> Response:
        return page_file("index.html")

    @api.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return page_file(name)


def add_model_routes(api: FastAPI, service: Service) -> None:
    @api.get("/healthz", response_model=schema.Health, summary="Whether the server is alive")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @api.get("/model", response_model=schema.Model, summary="What the model knows, and the limits of this server")
    async def model() -> JSONResponse:
        return JSONResponse(service.describe())

    @api.get("/report", response_model=schema.Report, summary="What the model knows about itself, as a page")
    async def report() -> JSONResponse:
        return JSONResponse(await service.report())

    @api.get("/metrics", response_class=PlainTextResponse, summary="Counters for Prometheus")
    async def metrics() -> Response:
        batcher = service.batcher
        text = service.metrics.text(batcher.admitted, service.model.generation, batcher.decoders.ended)
        return Response(text, media_type="text/plain; version=0.0.4")


def add_predict(api: FastAPI, service: Service) -> None:
    @api.post(
        "/predict",
        response_model=schema.Predictions,
        summary="Classify one or more images",
        openapi_extra={"requestBody": form_body("images", "array")},
    )
    async def predict(
        request: Request, top: Annotated[int, Query(ge=1, le=1000)] = 5, attention: bool = False
    ) -> JSONResponse:
        """An image that cannot be read has an error in its place; if it is the only one, the answer is 422 or 413."""
        async with uploads(request, "images", service.limits.images) as files:
            model = service.model  # the whole request is answered by it, also if a lesson ends meanwhile
            with service.batcher.admit(len(files)):
                turn = service.batcher.turn()
                try:
                    async with asyncio.timeout(service.limits.answer_seconds):
                        found = await asyncio.gather(*(one(model, file, top, attention, turn) for file in files))
                except TimeoutError:
                    raise RequestError(
                        503, "the answer took too long: try again with fewer or smaller images."
                    ) from None
        refused = [problem for _, problem in found if problem is not None]
        service.metrics.images["refused"] += len(refused)
        service.metrics.images["predicted"] += len(found) - len(refused)
        if refused and len(found) == 1:
            raise refused[0]
        answered = {"generation": model.generation, "digest": model.digest}
        return JSONResponse({"model": answered, "predictions": [answer for answer, _ in found]})

    async def one(
        model: ServedModel, file: UploadFile, top: int, attention: bool, turn: Turn
    ) -> tuple[dict[str, Any], RequestError | None]:
        name = plain_name(file.filename)
        try:
            scores = await service.batcher.scores(model, file.file, name, attention, turn)
            return model.answer(name, scores, top), None
        except RequestError as problem:
            return {"file": name, "error": problem.sentence}, problem


def add_teaching(api: FastAPI, service: Service) -> None:
    @api.post(
        "/teach",
        status_code=202,
        response_model=schema.Job,
        responses=CONFLICT,
        summary="Learn new classes from a zip with a folder of photos for each",
        openapi_extra={"requestBody": form_body("archive", "string")},
    )
    async def teach(request: Request) -> JSONResponse:
        """The files sent are deleted when the lesson ends, however it ends; GET /teach shows how far it is.

        A model that stores images (GET /model tells) keeps some of them in it.
        """
        service.check_teachable()
        async with service.teacher.alone(), uploads(request, "archive", 1) as files:
            return JSONResponse({"job": await service.teacher.start(files[0].file)}, 202)

    @api.get("/teach", response_model=schema.Teaching, summary="The lesson under way, or the last one")
    async def progress() -> JSONResponse:
        return JSONResponse(service.teacher.report())

    @api.post("/undo", response_model=schema.Model, responses=CONFLICT, summary="Back to before the last task")
    async def undo() -> JSONResponse:
        service.check_teachable()
        await service.undo()
        return JSONResponse(service.describe())


@asynccontextmanager
async def uploads(request: Request, field: str, most: int) -> AsyncIterator[list[UploadFile]]:
    """The files of one field of a form; they are closed, and so deleted, at the end."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RequestError(415, f"send the files as multipart/form-data in the field '{field}'.")
    try:
        with needing_room():  # large ones become temporary files
            form = await request.form(max_files=most, max_fields=most + 8, max_part_size=1024)
    except (HTTPException, UnicodeError, ValueError, KeyError, IndexError) as problem:
        detail = str(getattr(problem, "detail", ""))
        if detail.startswith("Too many"):
            raise RequestError(413, f"a request may hold {most} files in the field '{field}': send fewer.") from None
        raise RequestError(400, "the form is damaged: send multipart/form-data with a boundary.") from None
    try:
        given = form.getlist(field)
        files = [value for value in given if isinstance(value, UploadFile)]
        if not files or len(files) != len(form.multi_items()):
            raise RequestError(422, f"send the field '{field}' with files in it, and no other field.")
        yield files
    finally:
        await form.close()


def form_body(field: str, kind: str) -> dict[str, Any]:
    """How OpenAPI describes a form with files."""
    file = {"type": "string", "format": "binary"}
    content = {"type": "array", "items": file, "minItems": 1} if kind == "array" else file
    form = {"type": "object", "required": [field], "properties": {field: content}}
    return {"required": True, "content": {"multipart/form-data": {"schema": form}}}


def describe_token(api: FastAPI) -> None:
    """Say in the OpenAPI document that a token is needed; the middleware checks it."""
    document = api.openapi()
    document.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    document["paths"]["/healthz"]["get"]["security"] = []
